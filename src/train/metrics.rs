//! Measures of predictions, on the host.

use crate::device::{IGNORED, Scalar};
use crate::error::{Result, check_length};

/// The column of the largest value of each row, the first one among equals; NaN is never the largest.
///
/// `scores: [n, n_columns]`.
pub fn argmax_rows<S: Scalar>(scores: &[S], n_columns: usize) -> Vec<i32> {
    if n_columns == 0 {
        return Vec::new();
    }
    let best = |row: &[S]| {
        let start = (0, S::neg_infinity());
        row.iter().enumerate().fold(start, |best, (i, &v)| if v > best.1 { (i, v) } else { best }).0 as i32
    };
    scores.chunks_exact(n_columns).map(best).collect()
}

/// Share of labelled rows whose prediction is right; NaN if no row has a label.
pub fn accuracy(predictions: &[i32], labels: &[i32]) -> Result<f64> {
    check_length("predictions", predictions.len(), labels.len())?;
    let labelled = labels.iter().filter(|&&l| l != IGNORED).count();
    let right = predictions.iter().zip(labels).filter(|&(p, l)| p == l && *l != IGNORED).count();
    Ok(right as f64 / labelled as f64)
}

/// Mean negative log-likelihood of the labelled rows under `logits: [n, n_classes]`; NaN if no row has a label.
pub fn mean_nll<S: Scalar>(logits: &[S], n_classes: usize, labels: &[i32]) -> Result<f64> {
    check_length("logits", logits.len(), labels.len() * n_classes)?;
    let mut sum = 0.0;
    let mut count = 0usize;
    for (row, &label) in logits.chunks_exact(n_classes.max(1)).zip(labels) {
        if label == IGNORED {
            continue;
        }
        let max = row.iter().fold(f64::NEG_INFINITY, |m, v| m.max(v.widen_f64()));
        let lse = row.iter().map(|v| (v.widen_f64() - max).exp()).sum::<f64>().ln() + max;
        sum += lse - row[label as usize].widen_f64();
        count += 1;
    }
    Ok(sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_hand() {
        let scores = [0.0f32, 2.0, 2.0, f32::NAN, -1.0, -2.0];
        assert_eq!(argmax_rows(&scores, 3), [1, 1]);
        assert_eq!(accuracy(&[1, 1, 0], &[1, 0, -1]).unwrap(), 0.5);
        assert!(accuracy(&[1], &[-1]).unwrap().is_nan());
        let nll = mean_nll(&[0.0f64, 0.0, 1000.0, 0.0], 2, &[0, 0]).unwrap();
        assert!((nll - 0.5 * 2f64.ln()).abs() < 1e-12, "{nll}");
        assert!(accuracy(&[1], &[]).is_err());
    }
}
