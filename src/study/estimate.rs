//! Means over batches and over processing elements.

use serde::Serialize;

/// A mean over batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// The standard error of the mean; 0 for a single batch, for which it is unknown.
    pub standard_error: f64,
}

impl Estimate {
    /// The mean of `values` and its standard error; zeros if there are none.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        if values.is_empty() {
            return Estimate::default();
        }
        let mean = values.iter().sum::<f64>() / n;
        if values.len() == 1 {
            return Estimate { mean, standard_error: 0.0 };
        }
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        Estimate { mean, standard_error: (squares / (n - 1.0) / n).sqrt() }
    }
}

/// A count that every processing element (PE) has, averaged over batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    /// Sum over PEs.
    pub total: f64,
    /// Mean over PEs.
    pub per_pe: f64,
    /// The largest over a batch's PEs: the others wait for it.
    pub largest: f64,
}

impl Spread {
    /// The spread of the counts of `batches`, each `[n_pes]`.
    pub fn of(batches: &[Vec<u64>]) -> Self {
        let n = batches.len().max(1) as f64;
        let sum = |of: &dyn Fn(&[u64]) -> u64| batches.iter().map(|pes| of(pes) as f64).sum::<f64>() / n;
        let total = sum(&|pes| pes.iter().sum());
        let largest = sum(&|pes| pes.iter().copied().max().unwrap_or_default());
        let n_pes = batches.first().map_or(1, |pes| pes.len().max(1));
        Spread { total, per_pe: total / n_pes as f64, largest }
    }

    /// The largest PE's count divided by the mean; 1 if there is nothing.
    pub fn imbalance(&self) -> f64 {
        if self.per_pe == 0.0 { 1.0 } else { self.largest / self.per_pe }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_and_errors_by_hand() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 6.0]);
        // Squares of deviations from 3: 4 + 1 + 0 + 9 = 14; variance 14 / 3.
        assert_eq!(estimate, Estimate { mean: 3.0, standard_error: (14.0f64 / 3.0 / 4.0).sqrt() });
        assert_eq!(Estimate::of(&[5.0]), Estimate { mean: 5.0, standard_error: 0.0 });
        assert_eq!(Estimate::of(&[]), Estimate::default());
        let spread = Spread::of(&[vec![1, 5], vec![4, 2]]);
        assert_eq!(spread, Spread { total: 6.0, per_pe: 3.0, largest: 4.5 });
        assert_eq!(spread.imbalance(), 1.5);
        assert_eq!(Spread::of(&[vec![0, 0]]).imbalance(), 1.0);
    }
}
