//! Log-softmax and negative log-likelihood on CUDA; see `cuda/loss.cu`.

use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::{Loss, Matrix, MatrixMut, Scalar, check_matrix, check_matrix_mut, check_same_shape};
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
}
