//! Quality measures of predictions, on the host.

use std::collections::BTreeMap;

use crate::device::cpu::argmax;
use crate::device::{IGNORED, Scalar};
use crate::error::{Result, check_length};

/// The column of each row's largest value, the first among equals; NaN is never the largest.
///
/// `scores: [n, n_columns]`.
pub fn argmax_rows<S: Scalar>(scores: &[S], n_columns: usize) -> Vec<i32> {
    if n_columns == 0 {
        return Vec::new();
    }
    scores.chunks_exact(n_columns).map(|row| argmax(row) as i32).collect()
}

/// Share of labelled rows whose prediction is correct; NaN if no row has a label.
///
/// Errors: `predictions` and `labels` differ in length.
pub fn accuracy(predictions: &[i32], labels: &[i32]) -> Result<f64> {
    check_length("predictions", predictions.len(), labels.len())?;
    let labelled = labels.iter().filter(|&&l| l != IGNORED).count();
    let right = predictions.iter().zip(labels).filter(|&(p, l)| p == l && *l != IGNORED).count();
    Ok(right as f64 / labelled as f64)
}

/// The mean over classes of F1, `2 TP / (2 TP + FP + FN)`, on the labelled rows: a rare class counts as much as a
/// frequent one. Classes that are neither a label nor predicted are left out; NaN if no row has a label.
///
/// Errors: `predictions` and `labels` differ in length.
pub fn macro_f1(predictions: &[i32], labels: &[i32]) -> Result<f64> {
    check_length("predictions", predictions.len(), labels.len())?;
    // By class: rows predicted right, and rows that are predicted so or labelled so, each counted once for either.
    let mut counts: BTreeMap<i32, (u64, u64)> = BTreeMap::new();
    for (&predicted, &label) in predictions.iter().zip(labels).filter(|&(_, &label)| label != IGNORED) {
        counts.entry(predicted).or_default().1 += 1;
        let of_label = counts.entry(label).or_default();
        of_label.1 += 1;
        of_label.0 += u64::from(predicted == label);
    }
    let f1 = |&(right, either): &(u64, u64)| 2.0 * right as f64 / either as f64;
    Ok(counts.values().map(f1).sum::<f64>() / counts.len() as f64)
}

/// Mean negative log-likelihood of the labelled rows under `logits: [n, n_classes]`; NaN if no row has a label.
///
/// Errors: `logits` does not have `labels.len() * n_classes` elements.
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

/// Area under the ROC curve of a binary classifier: the probability that a row of class 1 has a higher score than one
/// of class 0, where ties count half (mid-ranks). NaN without rows of both classes.
///
/// `scores: [n]`, `labels: [n]`; rows with labels other than 0 and 1 are skipped. A NaN score ranks above all
/// numbers.
///
/// Errors: `scores` and `labels` differ in length.
pub fn roc_auc(scores: &[f64], labels: &[i32]) -> Result<f64> {
    check_length("scores", scores.len(), labels.len())?;
    let mut rows: Vec<(f64, bool)> = scores
        .iter()
        .zip(labels)
        .filter(|&(_, &label)| label == 0 || label == 1)
        .map(|(&score, &label)| (score, label == 1))
        .collect();
    // Positive NaN is the largest in the total order; -0 and 0 must tie.
    rows.iter_mut().for_each(|row| row.0 = if row.0.is_nan() { f64::NAN } else { row.0 + 0.0 });
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let positive = rows.iter().filter(|row| row.1).count() as f64;
    let negative = rows.len() as f64 - positive;
    let (mut below, mut rank_sum) = (0usize, 0.0);
    for ties in rows.chunk_by(|a, b| a.0.to_bits() == b.0.to_bits()) {
        let mid_rank = below as f64 + (ties.len() as f64 + 1.0) / 2.0;
        rank_sum += mid_rank * ties.iter().filter(|row| row.1).count() as f64;
        below += ties.len();
    }
    Ok((rank_sum - positive * (positive + 1.0) / 2.0) / (positive * negative))
}

#[cfg(test)]
mod tests {
    use approx::assert_abs_diff_eq;

    use super::*;

    #[test]
    fn by_hand() {
        let scores = [0.0f32, 2.0, 2.0, f32::NAN, -1.0, -2.0];
        assert_eq!(argmax_rows(&scores, 3), [1, 1]);
        assert_eq!(accuracy(&[1, 1, 0], &[1, 0, -1]).unwrap(), 0.5);
        assert!(accuracy(&[1], &[-1]).unwrap().is_nan());
        let nll = mean_nll(&[0.0f64, 0.0, 1000.0, 0.0], 2, &[0, 0]).unwrap();
        assert_abs_diff_eq!(nll, 0.5 * 2f64.ln(), epsilon = 1e-12);
        assert!(accuracy(&[1], &[]).is_err());
    }

    /// By the definition, from precision and recall in a full confusion matrix.
    fn naive_macro_f1(confusion: &[[u64; 3]; 3]) -> f64 {
        let of_class = |c: usize| {
            let right = confusion[c][c] as f64;
            let recall = right / confusion[c].iter().sum::<u64>() as f64;
            let precision = right / confusion.iter().map(|row| row[c]).sum::<u64>() as f64;
            if right == 0.0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) }
        };
        (0..3).map(of_class).sum::<f64>() / 3.0
    }

    #[test]
    fn macro_f1_is_that_of_the_confusion_matrix() {
        for confusion in [[[5, 1, 2], [0, 7, 3], [4, 0, 9]], [[0, 2, 0], [1, 0, 3], [2, 0, 40]]] {
            // Rows without a label do not count, whatever is predicted.
            let (mut predictions, mut labels) = (vec![2, 1, 0], vec![-1, -1, -1]);
            for (label, row) in confusion.iter().enumerate() {
                for (predicted, &n) in row.iter().enumerate() {
                    predictions.extend(vec![predicted as i32; n as usize]);
                    labels.extend(vec![label as i32; n as usize]);
                }
            }
            let found = macro_f1(&predictions, &labels).unwrap();
            assert_abs_diff_eq!(found, naive_macro_f1(&confusion), epsilon = 1e-12);
        }
        // Class 0: F1 is 1/2; class 1: 0; class 5, which is only predicted: 0.
        assert_abs_diff_eq!(macro_f1(&[0, 0, 5], &[0, 1, 0]).unwrap(), 0.5 / 3.0, epsilon = 1e-12);
        assert!(macro_f1(&[1], &[-1]).unwrap().is_nan());
        assert!(macro_f1(&[1], &[]).is_err());
    }

    /// The definition: all pairs.
    fn naive_auc(scores: &[f64], labels: &[i32]) -> f64 {
        let (mut won, mut pairs) = (0.0, 0.0);
        for (a, &of_a) in scores.iter().zip(labels) {
            for (b, &of_b) in scores.iter().zip(labels) {
                if of_a == 1 && of_b == 0 {
                    pairs += 1.0;
                    won += if a > b { 1.0 } else { f64::from(u8::from(a == b)) * 0.5 };
                }
            }
        }
        won / pairs
    }

    #[test]
    fn auc_is_the_share_of_pairs_in_order() {
        assert_eq!(roc_auc(&[0.1, 0.4, 0.35, 0.8], &[0, 0, 1, 1]).unwrap(), 0.75);
        assert_eq!(roc_auc(&[5.0; 6], &[0, 1, 1, 0, 0, 1]).unwrap(), 0.5);
        assert_eq!(roc_auc(&[0.0, -0.0], &[0, 1]).unwrap(), 0.5);
        assert!(roc_auc(&[1.0, 2.0], &[1, 1]).unwrap().is_nan());
        assert!(roc_auc(&[], &[]).unwrap().is_nan());
        assert!(roc_auc(&[1.0], &[]).is_err());
        for seed in 0..20 {
            let n = 60;
            let draw = |stream, i, n| crate::rng::bounded(seed, stream, i, n);
            let scores: Vec<f64> = (0..n).map(|i| draw(1, i, 1 + seed) as f64 - 3.0).collect();
            let labels: Vec<i32> = (0..n).map(|i| draw(2, i, 3) as i32 - 1).collect();
            let (found, expected) = (roc_auc(&scores, &labels).unwrap(), naive_auc(&scores, &labels));
            assert_abs_diff_eq!(found, expected, epsilon = 1e-12);
        }
    }
}
