//! What tests of several modules need: random data, closeness of floats, and statistics of random outcomes.

mod close;
mod random;
mod tests;

pub(crate) use close::assert_close;
pub(crate) use random::Random;

/// Pearson's statistic of `counts` against `shares` (any positive scale; a share of 0 must have no count), as a number
/// of standard deviations (Wilson–Hilferty): above 6 with probability below 1e-8.
pub(crate) fn chi_square_deviation(counts: &[u64], shares: &[f64]) -> f64 {
    assert_eq!(counts.len(), shares.len());
    let scale = counts.iter().sum::<u64>() as f64 / shares.iter().sum::<f64>();
    let (mut statistic, mut freedom) = (0.0, -1.0);
    for (&count, share) in counts.iter().zip(shares) {
        let expected = share * scale;
        if expected == 0.0 && count == 0 {
            continue;
        }
        // The normal approximation of a count needs some ten of them.
        assert!(expected > 10.0, "{count} where {expected} are expected");
        statistic += (count as f64 - expected).powi(2) / expected;
        freedom += 1.0;
    }
    let spread = 2.0 / (9.0 * freedom);
    ((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// `√n · sup |F_n − F|` of uniform numbers: above `x` with probability below `2 exp(−2x²)`.
pub(crate) fn kolmogorov_smirnov(mut sample: Vec<f64>) -> f64 {
    sample.sort_by(f64::total_cmp);
    let n = sample.len() as f64;
    let distance = |(i, &x): (usize, &f64)| (x - i as f64 / n).max((i as f64 + 1.0) / n - x);
    sample.iter().enumerate().map(distance).fold(0.0, f64::max) * n.sqrt()
}

/// How far the mean of `sample` is from `expected`, in its own standard errors; 0 for a constant sample that is right.
/// Above 6 with probability below 1e-8 for large samples.
pub(crate) fn mean_deviation(sample: &[f64], expected: f64) -> f64 {
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    let variance = sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let error = (mean - expected).abs();
    if error <= 1e-12 * expected.abs() { 0.0 } else { error / (variance / n).sqrt() }
}
