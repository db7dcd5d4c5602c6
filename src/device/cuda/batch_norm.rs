//! Batch norm on CUDA; see `cuda/batch_norm.cu`.

use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::batch_norm::check_vectors;
use crate::device::{BatchNorm, Matrix, MatrixMut, Scalar, check_matrix, check_matrix_mut, check_same_shape};
use crate::error::{Result, check_length};

impl<S: Scalar> BatchNorm for Cuda<S> {
    fn moments(
        &self,
        x: Matrix<'_, Self>,
        mean: CudaViewMut<'_, S>,
        squares: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_vectors(x.cols, [("mean", mean.len()), ("squares", squares.len())])?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        // SAFETY: a function of its arguments.
        let n_parts = unsafe { ffi::cohop_sum_rows_parts(rows, cols) };
        let scratch = self.scratch::<S>(3 * n_parts as usize * x.cols)?;
        let (x, parts) = (x.data.pointer().cast(), scratch.pointer().cast());
        let (mean, squares, stream) = (mean.pointer().cast(), squares.pointer().cast(), self.stream()?);
        // SAFETY: `x` holds `rows * cols` scalars, `mean` and `squares` `cols`, the scratch memory
        // `3 * n_parts * cols`.
        let code = unsafe { ffi::cohop_moments(dtype::<S>(), rows, cols, x, parts, mean, squares, stream) };
        self.check("moments", code)
    }

    fn sum_squared_deviation(
        &self,
        x: Matrix<'_, Self>,
        center: CudaView<'_, S>,
        out: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_vectors(x.cols, [("center", center.len()), ("out", out.len())])?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        // SAFETY: a function of its arguments.
        let n_parts = unsafe { ffi::cohop_sum_rows_parts(rows, cols) };
        let scratch = self.scratch::<S>(n_parts as usize * x.cols)?;
        let (x, center, out) = (x.data.pointer().cast(), center.pointer().cast(), out.pointer().cast());
        let (parts, stream) = (scratch.pointer().cast(), self.stream()?);
        // SAFETY: `x` holds `rows * cols` scalars, `center` and `out` `cols`, the scratch memory `n_parts * cols`.
        let code = unsafe {
            ffi::cohop_sum_squared_deviation(dtype::<S>(), rows, cols, x, center, parts, out, stream)
        };
        self.check("sum_squared_deviation", code)
    }

    fn inverse_square_root(
        &self,
        x: CudaView<'_, S>,
        factor: f64,
        epsilon: f64,
        out: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_length("out", out.len(), x.len())?;
        let (n, x, out, stream) = (x.len() as u64, x.pointer().cast(), out.pointer().cast(), self.stream()?);
        // SAFETY: `x` and `out` hold `n` scalars.
        let code =
            unsafe { ffi::cohop_inverse_square_root(dtype::<S>(), n, x, factor, epsilon, out, stream) };
        self.check("inverse_square_root", code)
    }

    fn normalize(
        &self,
        x: Matrix<'_, Self>,
        mean: CudaView<'_, S>,
        inverse_std: CudaView<'_, S>,
        gain: CudaView<'_, S>,
        bias: CudaView<'_, S>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_matrix_mut(&out)?;
        check_same_shape("normalize", "x", x.shape(), "out", out.shape())?;
        check_vectors(x.cols, [("mean", mean.len()), ("inverse_std", inverse_std.len())])?;
        check_vectors(x.cols, [("gain", gain.len()), ("bias", bias.len())])?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        let (x, out) = (x.data.pointer().cast(), out.data.pointer().cast());
        let [mean, inverse_std, gain, bias] =
            [mean, inverse_std, gain, bias].map(|vector| vector.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` and `out` hold `rows * cols` scalars, the vectors `cols`.
        let code = unsafe {
            ffi::cohop_normalize(dtype::<S>(), rows, cols, x, mean, inverse_std, gain, bias, out, stream)
        };
        self.check("normalize", code)
    }

    fn normalize_backward_parameters(
        &self,
        x: Matrix<'_, Self>,
        mean: CudaView<'_, S>,
        inverse_std: CudaView<'_, S>,
        dout: Matrix<'_, Self>,
        dgain: CudaViewMut<'_, S>,
        dbias: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_matrix(&dout)?;
        check_same_shape("normalize_backward_parameters", "x", x.shape(), "dout", dout.shape())?;
        check_vectors(x.cols, [("mean", mean.len()), ("inverse_std", inverse_std.len())])?;
        check_vectors(x.cols, [("dgain", dgain.len()), ("dbias", dbias.len())])?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        // SAFETY: a function of its arguments.
        let n_parts = unsafe { ffi::cohop_sum_rows_parts(rows, cols) };
        let scratch = self.scratch::<S>(2 * n_parts as usize * x.cols)?;
        let (x, dout, parts) =
            (x.data.pointer().cast(), dout.data.pointer().cast(), scratch.pointer().cast());
        let [mean, inverse_std] = [mean, inverse_std].map(|vector| vector.pointer().cast());
        let [dgain, dbias] = [dgain, dbias].map(|vector| vector.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` and `dout` hold `rows * cols` scalars, the vectors `cols`, and the scratch memory
        // `2 * n_parts * cols`.
        let code = unsafe {
            ffi::cohop_normalize_backward_parameters(
                dtype::<S>(),
                rows,
                cols,
                x,
                mean,
                inverse_std,
                dout,
                parts,
                dgain,
                dbias,
                stream,
            )
        };
        self.check("normalize_backward_parameters", code)
    }

    fn normalize_backward(
        &self,
        x: Matrix<'_, Self>,
        mean: CudaView<'_, S>,
        inverse_std: CudaView<'_, S>,
        gain: CudaView<'_, S>,
        dout: Matrix<'_, Self>,
        dgain: CudaView<'_, S>,
        dbias: CudaView<'_, S>,
        n_total: usize,
        dx: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_matrix(&dout)?;
        check_matrix_mut(&dx)?;
        check_same_shape("normalize_backward", "x", x.shape(), "dout", dout.shape())?;
        check_same_shape("normalize_backward", "x", x.shape(), "dx", dx.shape())?;
        check_vectors(x.cols, [("mean", mean.len()), ("inverse_std", inverse_std.len())])?;
        check_vectors(x.cols, [("gain", gain.len()), ("dgain", dgain.len()), ("dbias", dbias.len())])?;
        let share = if n_total == 0 { 0.0 } else { 1.0 / n_total as f64 };
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        let (x, dout, dx) = (x.data.pointer().cast(), dout.data.pointer().cast(), dx.data.pointer().cast());
        let [mean, inverse_std, gain, dgain, dbias] =
            [mean, inverse_std, gain, dgain, dbias].map(|vector| vector.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x`, `dout` and `dx` hold `rows * cols` scalars, the vectors `cols`.
        let code = unsafe {
            ffi::cohop_normalize_backward(
                dtype::<S>(),
                rows,
                cols,
                x,
                mean,
                inverse_std,
                gain,
                dout,
                dgain,
                dbias,
                share,
                dx,
                stream,
            )
        };
        self.check("normalize_backward", code)
    }
}
