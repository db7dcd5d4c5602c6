//! Losses on CUDA; see `cuda/loss.cu`.

use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::{
    ElementLoss, Loss, Matrix, MatrixMut, Scalar, check_element_loss, check_element_loss_backward,
    check_matrix, check_matrix_mut, check_same_shape,
};
use crate::error::{Result, check_length};

impl<S: Scalar> Loss for Cuda<S> {
    fn log_softmax_nll(
        &self,
        logits: Matrix<'_, Self>,
        labels: CudaView<'_, i32>,
        lse: CudaViewMut<'_, S>,
        loss: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_matrix(&logits)?;
        check_length("labels", labels.len(), logits.rows)?;
        check_length("lse", lse.len(), logits.rows)?;
        check_length("loss", loss.len(), logits.rows)?;
        let (rows, n_class, labels) = (logits.rows as u64, logits.cols as u64, labels.pointer());
        let (logits, lse, loss) = (logits.data.pointer().cast(), lse.pointer().cast(), loss.pointer().cast());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: `logits` holds `rows * n_class` scalars, `labels`, `lse` and `loss` hold `rows`.
        let code = unsafe {
            ffi::cohop_log_softmax_nll(dtype::<S>(), rows, n_class, logits, labels, lse, loss, status, stream)
        };
        self.check("log_softmax_nll", code)
    }

    fn log_softmax_nll_backward(
        &self,
        logits: Matrix<'_, Self>,
        labels: CudaView<'_, i32>,
        lse: CudaView<'_, S>,
        factor: f64,
        dloss: CudaView<'_, S>,
        dlogits: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix(&logits)?;
        check_matrix_mut(&dlogits)?;
        check_same_shape("log_softmax_nll_backward", "logits", logits.shape(), "dlogits", dlogits.shape())?;
        check_length("labels", labels.len(), logits.rows)?;
        check_length("lse", lse.len(), logits.rows)?;
        check_length("dloss", dloss.len(), 1)?;
        let (rows, n_class, labels) = (logits.rows as u64, logits.cols as u64, labels.pointer());
        let (logits, lse) = (logits.data.pointer().cast(), lse.pointer().cast());
        let (dloss, dlogits) = (dloss.pointer().cast(), dlogits.data.pointer().cast());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: `logits` and `dlogits` hold `rows * n_class` scalars, `labels` and `lse` `rows`, `dloss` one.
        let code = unsafe {
            ffi::cohop_log_softmax_nll_backward(
                dtype::<S>(),
                rows,
                n_class,
                logits,
                labels,
                lse,
                factor,
                dloss,
                dlogits,
                status,
                stream,
            )
        };
        self.check("log_softmax_nll_backward", code)
    }

    fn count_right(
        &self,
        scores: Matrix<'_, Self>,
        labels: CudaView<'_, i32>,
        out: CudaViewMut<'_, u32>,
    ) -> Result<()> {
        check_matrix(&scores)?;
        check_length("labels", labels.len(), scores.rows)?;
        check_length("out", out.len(), 1)?;
        let (rows, n_class, labels) = (scores.rows as u64, scores.cols as u64, labels.pointer());
        let (scores, out, stream) = (scores.data.pointer().cast(), out.pointer(), self.stream()?);
        // SAFETY: `scores` holds `rows * n_class` scalars, `labels` `rows` elements, `out` one.
        let code =
            unsafe { ffi::cohop_count_right(dtype::<S>(), rows, n_class, scores, labels, out, stream) };
        self.check("count_right", code)
    }

    fn element_loss(
        &self,
        kind: ElementLoss,
        x: CudaView<'_, S>,
        target: CudaView<'_, S>,
        loss: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_element_loss::<Self>(&x, &target, &loss)?;
        let n = x.len() as u64;
        let (x, target, loss) = (x.pointer().cast(), target.pointer().cast(), loss.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x`, `target` and `loss` hold `n` scalars.
        let code = unsafe {
            ffi::cohop_element_loss_forward(dtype::<S>(), kind_code(kind), n, x, target, loss, stream)
        };
        self.check("element_loss", code)
    }

    fn element_loss_backward(
        &self,
        kind: ElementLoss,
        x: CudaView<'_, S>,
        target: CudaView<'_, S>,
        factor: f64,
        dloss: CudaView<'_, S>,
        dx: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_element_loss_backward::<Self>(&x, &target, &dloss, &dx)?;
        let (n, kind) = (x.len() as u64, kind_code(kind));
        let (x, target) = (x.pointer().cast(), target.pointer().cast());
        let (dloss, dx, stream) = (dloss.pointer().cast(), dx.pointer().cast(), self.stream()?);
        // SAFETY: `x`, `target` and `dx` hold `n` scalars, `dloss` one.
        let code = unsafe {
            ffi::cohop_element_loss_backward(dtype::<S>(), kind, n, x, target, factor, dloss, dx, stream)
        };
        self.check("element_loss_backward", code)
    }
}

/// A launcher's name for a loss.
fn kind_code(kind: ElementLoss) -> ffi::cohop_element_loss {
    match kind {
        ElementLoss::BinaryCrossEntropy => ffi::cohop_element_loss::COHOP_BINARY_CROSS_ENTROPY,
        ElementLoss::SquaredError => ffi::cohop_element_loss::COHOP_SQUARED_ERROR,
    }
}
