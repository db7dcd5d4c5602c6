//! Reductions over PEs: who adds up what, and in which order.

use std::ops::Range;

/// What PE `rank` of `n_pes` adds up of `len` elements: the shares follow each other and differ by one at most.
pub(super) fn share(len: usize, n_pes: usize, rank: usize) -> Range<usize> {
    let start = |rank: usize| rank * (len / n_pes) + rank.min(len % n_pes);
    start(rank)..start(rank + 1)
}

/// `result[i] = combine(result[i], next[i])`: called with one PE after another, in rank order.
pub(super) fn accumulate<T: Copy>(result: &mut [T], next: &[T], combine: impl Fn(T, T) -> T) {
    debug_assert_eq!(result.len(), next.len());
    for (sum, &value) in result.iter_mut().zip(next) {
        *sum = combine(*sum, value);
    }
}

/// The larger one, the first of equals (0 and -0 are), NaN if one is: unlike with [`f64::max`], the bits are the same
/// everywhere.
pub(super) fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_evenly() {
        for n_pes in 1..=9 {
            for len in (0..40).chain([usize::MAX]) {
                let shares: Vec<_> = (0..n_pes).map(|rank| share(len, n_pes, rank)).collect();
                assert_eq!((shares[0].start, shares[n_pes - 1].end), (0, len));
                assert!(shares.windows(2).all(|pair| pair[0].end == pair[1].start));
                let lengths = || shares.iter().map(ExactSizeIterator::len);
                assert!(lengths().max().unwrap() - lengths().min().unwrap() <= 1, "{shares:?}");
            }
        }
    }

    #[test]
    fn nan_wins_and_the_first_of_equals_stays() {
        assert_eq!(larger(1.0, 2.0), 2.0);
        assert_eq!(larger(2.0, 1.0), 2.0);
        assert!(larger(f64::NAN, 1.0).is_nan() && larger(1.0, f64::NAN).is_nan());
        assert!(larger(0.0, -0.0).is_sign_positive() && larger(-0.0, 0.0).is_sign_negative());
    }
}
