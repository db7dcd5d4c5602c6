//! Kernel family *loss*: log-softmax and negative log-likelihood in one pass, and losses of one element each.

use crate::device::{Matrix, MatrixMut, Storage};
use crate::error::{Result, check_length};

/// The label of a vertex that has none: it adds nothing to the loss and gets no gradient.
pub const IGNORED: i32 = -1;

/// A loss of a prediction `x` and a target `t`, both numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementLoss {
    /// Binary cross-entropy of the logit `x`: `−t · ln σ(x) − (1 − t) · ln(1 − σ(x))` with `σ(x) = 1 / (1 + exp(−x))`,
    /// calculated as `max(x, 0) − t · x + ln(1 + exp(−|x|))`, which does not overflow for any finite logit. `t` is 0 or
    /// 1, or a probability between. Derivative: `σ(x) − t`.
    BinaryCrossEntropy,
    /// `(x − t)²`. Derivative: `2 · (x − t)`.
    SquaredError,
}

/// Losses.
pub trait Loss: Storage {
    /// `loss[i] = lse[i] − logits[i, label[i]]` with `lse[i] = ln Σ_c exp(logits[i, c])`, shifted by the row's maximum;
    /// a label of [`IGNORED`] gives `loss[i] = 0`.
    ///
    /// `logits: [n, n_class]`, `labels, lse, loss: [n]`.
    ///
    /// Errors: an array does not have its length, a label is neither in `0..n_class` nor [`IGNORED`]
    /// ([`IndexOutOfRange`](crate::Error::IndexOutOfRange)), or the device fails.
    fn log_softmax_nll(
        &self,
        logits: Matrix<'_, Self>,
        labels: Self::View<'_, i32>,
        lse: Self::ViewMut<'_, Self::Scalar>,
        loss: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `dlogits[i, c] = factor · dloss[0] · (exp(logits[i, c] − lse[i]) − [c = label[i]])`, and 0 for ignored rows.
    ///
    /// `dloss: [1]`, `dlogits: [n, n_class]`; `labels` and `lse` are those of the forward pass.
    ///
    /// Errors: `logits` and `dlogits` differ in shape, another array does not have its length, a label is neither in
    /// `0..n_class` nor [`IGNORED`] ([`IndexOutOfRange`](crate::Error::IndexOutOfRange)), or the device fails.
    fn log_softmax_nll_backward(
        &self,
        logits: Matrix<'_, Self>,
        labels: Self::View<'_, i32>,
        lse: Self::View<'_, Self::Scalar>,
        factor: f64,
        dloss: Self::View<'_, Self::Scalar>,
        dlogits: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `out[0] +=` the number of rows whose prediction is `labels[i]`: the column of the row's largest value, the first
    /// among equals; NaN is never the largest, and column 0 is the prediction of a row without any.
    ///
    /// `scores: [n, n_class]`, `labels: [n]`, `out: [1]`. Rows of [`IGNORED`] labels, or of labels that are no class,
    /// do not count.
    ///
    /// Errors: an array does not have its length, or the device fails.
    fn count_right(
        &self,
        scores: Matrix<'_, Self>,
        labels: Self::View<'_, i32>,
        out: Self::ViewMut<'_, u32>,
    ) -> Result<()>;

    /// `loss[i]` is the loss of `x[i]` and `target[i]`, or 0 where the target is NaN, which stands for a missing one.
    /// All have the same length.
    ///
    /// Errors: `x`, `target` and `loss` differ in length, or the device fails.
    fn element_loss(
        &self,
        kind: ElementLoss,
        x: Self::View<'_, Self::Scalar>,
        target: Self::View<'_, Self::Scalar>,
        loss: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `dx[i]` is `factor · dloss[0]` times the derivative at `x[i]`, or 0 where the target is NaN. `dloss: [1]`; all
    /// others have the same length.
    ///
    /// Errors: `x`, `target` and `dx` differ in length, `dloss` does not have one element, or the device fails.
    fn element_loss_backward(
        &self,
        kind: ElementLoss,
        x: Self::View<'_, Self::Scalar>,
        target: Self::View<'_, Self::Scalar>,
        factor: f64,
        dloss: Self::View<'_, Self::Scalar>,
        dx: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;
}

/// `Ok` if the arguments of [`Loss::element_loss`] have the same length.
pub(crate) fn check_element_loss<D: Storage>(
    x: &D::View<'_, D::Scalar>,
    target: &D::View<'_, D::Scalar>,
    loss: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_length("target", D::view_len(target), D::view_len(x))?;
    check_length("loss", D::view_mut_len(loss), D::view_len(x))
}

/// `Ok` if the arguments of [`Loss::element_loss_backward`] have the right lengths.
pub(crate) fn check_element_loss_backward<D: Storage>(
    x: &D::View<'_, D::Scalar>,
    target: &D::View<'_, D::Scalar>,
    dloss: &D::View<'_, D::Scalar>,
    dx: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_length("target", D::view_len(target), D::view_len(x))?;
    check_length("dloss", D::view_len(dloss), 1)?;
    check_length("dx", D::view_mut_len(dx), D::view_len(x))
}
