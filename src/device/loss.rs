//! Kernel family *loss*: log-softmax and negative log-likelihood in one pass.

use crate::device::{Matrix, MatrixMut, Storage};
use crate::error::Result;

/// The label of a vertex without one: it adds nothing to the loss and gets no gradient.
pub const IGNORED: i32 = -1;

/// Classification losses.
pub trait Loss: Storage {
    /// `loss[i] = lse[i] − logits[i, label[i]]` with `lse[i] = ln Σ_c exp(logits[i, c])`, shifted by the row's maximum;
    /// a label of [`IGNORED`] gives `loss[i] = 0`.
    ///
    /// `logits: [n, n_class]`, `labels, lse, loss: [n]`. Any other label outside `0..n_class` is
    /// [`IndexOutOfRange`](crate::Error::IndexOutOfRange).
    fn log_softmax_nll(
        &self,
        logits: Matrix<'_, Self>,
        labels: Self::View<'_, i32>,
        lse: Self::ViewMut<'_, Self::Scalar>,
        loss: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `dlogits[i, c] = factor · dloss[0] · (exp(logits[i, c] − lse[i]) − [c = label[i]])`, and 0 for ignored rows.
    ///
    /// `dloss: [1]`; labels are those of the forward pass.
    fn log_softmax_nll_backward(
        &self,
        logits: Matrix<'_, Self>,
        labels: Self::View<'_, i32>,
        lse: Self::View<'_, Self::Scalar>,
        factor: f64,
        dloss: Self::View<'_, Self::Scalar>,
        dlogits: MatrixMut<'_, Self>,
    ) -> Result<()>;
}
