//! How good predictions are, found out where the scores are.

use super::evaluate::Evaluation;
use crate::device::{Device, FeatureElement, IGNORED};
use crate::error::Result;
use crate::tensor::Tensor;

/// Losses and right predictions of scores that stay on the device, until the host reads them all at once.
pub(super) struct Tally<D: Device> {
    /// `[1]`.
    right: D::Buffer<u32>,
    /// The rows' losses and `[1]`, the sum of the squared scores, part by part.
    parts: Vec<(Tensor<D>, Tensor<D>)>,
    n_labelled: u64,
}

impl<D: Device> Tally<D> {
    /// Errors: the device fails.
    pub(super) fn new(device: &D) -> Result<Self> {
        let mut right = device.allocate(1)?;
        device.fill(0, D::view_mut(&mut right))?;
        Ok(Tally { right, parts: Vec::new(), n_labelled: 0 })
    }

    /// Counts `scores: [labels.len(), n_classes]`.
    ///
    /// Errors: there is not a label for each row, or the device fails.
    pub(super) fn add(&mut self, device: &D, scores: &Tensor<D>, labels: Vec<i32>) -> Result<()> {
        self.n_labelled += labels.iter().filter(|&&label| label != IGNORED).count() as u64;
        let labels = device.send(labels)?;
        let labels = D::view(&labels);
        device.count_right(scores.matrix(), labels, D::view_mut(&mut self.right))?;
        let column = || Tensor::allocate(device, scores.rows(), 1);
        let (mut lse, mut losses, mut squares) = (column()?, column()?, Tensor::allocate(device, 1, 1)?);
        let (of_lse, of_losses) = (lse.make_mut(device)?.data, losses.make_mut(device)?.data);
        device.log_softmax_nll(scores.matrix(), labels, of_lse, of_losses)?;
        device.dot(scores.view(), Some(scores.view()), squares.make_mut(device)?.data)?;
        self.parts.push((losses, squares));
        Ok(())
    }

    /// The evaluation of all scores. `None`: some may not be finite, or are so large that their squares are not.
    ///
    /// Errors: a label is no class, or the device fails.
    pub(super) fn read(self, device: &D) -> Result<Option<Evaluation>> {
        // All losses, and then all sums of squares.
        let (losses, squares) =
            (self.parts.iter().map(|part| &part.0), self.parts.iter().map(|part| &part.1));
        let mut losses = joined(device, losses.chain(squares))?;
        let squares = losses.split_off(losses.len() - self.parts.len());
        if squares.iter().any(|square| !square.is_finite()) {
            return Ok(None);
        }
        let right: u32 = device.download(D::view(&self.right))?.iter().sum();
        let n_labelled = self.n_labelled as f64;
        Ok(Some(Evaluation {
            loss: losses.iter().sum::<f64>() / n_labelled,
            accuracy: f64::from(right) / n_labelled,
            auc: f64::NAN,
        }))
    }
}

/// The elements of all `parts`, read together.
fn joined<'a, D: Device>(device: &D, parts: impl Iterator<Item = &'a Tensor<D>> + Clone) -> Result<Vec<f64>> {
    let mut all = device.allocate(parts.clone().map(Tensor::rows).sum())?;
    let mut end = 0;
    for part in parts {
        let start = end;
        end += part.rows();
        device.copy(part.view(), D::slice_mut(D::view_mut(&mut all), start..end))?;
    }
    Ok(device.download(D::view(&all))?.into_iter().map(FeatureElement::widen_f64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Scalar;
    use crate::device::test_kernels::test_f64_devices;

    test_f64_devices! { a_tally_is_the_evaluation_of_the_scores }

    fn a_tally_is_the_evaluation_of_the_scores<D: Device<Scalar = f64>>(device: &D) {
        let scores: Vec<f64> = (0..60).map(|i| f64::from(i * 37 % 23) / 4.0).collect();
        let labels: Vec<i32> = (0..20).map(|i| i * 7 % 4 - 1).collect();
        let expected = Evaluation::new(&scores, 3, &labels).unwrap();
        let of = |changed: &[(usize, f64)]| {
            let mut scores = scores.clone();
            changed.iter().for_each(|&(at, value)| scores[at] = D::Scalar::from_f64(value));
            let mut tally = Tally::new(device).unwrap();
            for (rows, labels) in scores.chunks(3 * 8).zip(labels.chunks(8)) {
                let rows = Tensor::from_slice(device, labels.len(), 3, rows).unwrap();
                tally.add(device, &rows, labels.to_vec()).unwrap();
            }
            tally.read(device).unwrap()
        };
        let found = of(&[]).unwrap();
        assert_eq!(found.accuracy, expected.accuracy);
        assert!((found.loss - expected.loss).abs() < 1e-12, "{found:?} {expected:?}");
        for wrong in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e200] {
            assert!(of(&[(31, wrong)]).is_none(), "{wrong}");
        }
    }
}
