//! `loss = factor · Σ_i −log_softmax(logits[i])[label[i]]`; `dlogits = factor · dloss · (softmax − onehot)`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The negative log-likelihood of `labels: [n]` under `logits: [n, n_class]`, summed over rows and multiplied by
    /// `factor` (one over the global batch size). Rows labelled [`IGNORED`](crate::device::IGNORED) add nothing.
    ///
    /// Errors: `labels` does not have one element per row of `logits`, or one that is neither below `n_class` nor
    /// [`IGNORED`](crate::device::IGNORED).
    pub fn log_softmax_nll(&self, logits: Var, labels: D::Buffer<i32>, factor: f64) -> Result<Var> {
        self.apply(LogSoftmaxNll { labels, weights: None, factor }, &[logits])
    }

    /// The same with `weights: [n, 1]`, one for each row: `factor · Σ_i weights[i] nll_i`.
    ///
    /// Errors: those of [`log_softmax_nll`](Tape::log_softmax_nll), or `weights` does not have one row per row of
    /// `logits` and one column.
    pub fn weighted_log_softmax_nll(
        &self,
        logits: Var,
        labels: D::Buffer<i32>,
        weights: Tensor<D>,
        factor: f64,
    ) -> Result<Var> {
        let required = [self.shape_of(logits)?[0], 1];
        check_same_shape("weighted_log_softmax_nll", "weights", weights.shape(), "required", required)?;
        self.apply(LogSoftmaxNll { labels, weights: Some(weights), factor }, &[logits])
    }
}

struct LogSoftmaxNll<D: Device> {
    labels: D::Buffer<i32>,
    /// `[n, 1]`: how much each row counts.
    weights: Option<Tensor<D>>,
    factor: f64,
}

impl<D: Device> Op<D> for LogSoftmaxNll<D> {
    /// `[n]`: the logarithm of each row's sum of exponentials.
    type Saved = D::Buffer<D::Scalar>;

    fn name(&self) -> &'static str {
        "log_softmax_nll"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, Self::Saved)> {
        let logits = inputs[0];
        let mut lse = device.allocate(logits.rows())?;
        let mut loss = Tensor::allocate(device, logits.rows(), 1)?;
        device.log_softmax_nll(
            logits.matrix(),
            D::view(&self.labels),
            D::view_mut(&mut lse),
            loss.make_mut(device)?.data,
        )?;
        let mut sum = Tensor::allocate(device, 1, 1)?;
        device.dot(loss.view(), self.weights.as_ref().map(Tensor::view), sum.make_mut(device)?.data)?;
        let mut out = Tensor::allocate(device, 1, 1)?;
        device.scale(self.factor, sum.view(), out.make_mut(device)?.data, Write::Assign)?;
        Ok((out, lse))
    }

    fn backward(
        &self,
        device: &D,
        lse: Self::Saved,
        step: BackwardStep<'_, D>,
    ) -> Result<Vec<Option<Tensor<D>>>> {
        let logits = step.inputs[0];
        let mut dlogits = Tensor::allocate(device, logits.rows(), logits.cols())?;
        device.log_softmax_nll_backward(
            logits.matrix(),
            D::view(&self.labels),
            D::view(&lse),
            self.factor,
            step.gradient.view(),
            dlogits.make_mut(device)?,
        )?;
        if let Some(weights) = &self.weights {
            let mut weighted = Tensor::allocate(device, logits.rows(), logits.cols())?;
            let out = weighted.make_mut(device)?;
            device.scale_rows(weights.view(), dlogits.matrix(), out, Write::Assign)?;
            dlogits = weighted;
        }
        Ok(vec![Some(dlogits)])
    }
}
