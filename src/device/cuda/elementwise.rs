//! Elementwise kernels on CUDA; see `cuda/elementwise.cu` and `cuda/reduce.cu`.

use super::memory::pointer_or_null;
use super::{Cuda, CudaView, CudaViewMut, adds, dtype, ffi};
use crate::device::{
    Activation, Elementwise, Function, Matrix, MatrixMut, Scalar, Write, check_columns, check_matrix,
    check_matrix_mut, check_probability, check_same_shape,
};
use crate::error::{Result, check_length};

impl<S: Scalar> Elementwise for Cuda<S> {
    fn scale(&self, alpha: f64, x: CudaView<'_, S>, out: CudaViewMut<'_, S>, write: Write) -> Result<()> {
        check_length("out", out.len(), x.len())?;
        let (n, x, out, stream) = (x.len() as u64, x.pointer().cast(), out.pointer().cast(), self.stream()?);
        // SAFETY: `x` and `out` hold `n` scalars.
        let code = unsafe { ffi::cohop_scale(dtype::<S>(), n, alpha, x, out, adds(write), stream) };
        self.check("scale", code)
    }

    fn multiply(
        &self,
        x: CudaView<'_, S>,
        y: CudaView<'_, S>,
        out: CudaViewMut<'_, S>,
        write: Write,
    ) -> Result<()> {
        check_length("y", y.len(), x.len())?;
        check_length("out", out.len(), x.len())?;
        let n = x.len() as u64;
        let (x, y, out) = (x.pointer().cast(), y.pointer().cast(), out.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x`, `y` and `out` hold `n` scalars.
        let code = unsafe { ffi::cohop_multiply(dtype::<S>(), n, x, y, out, adds(write), stream) };
        self.check("multiply", code)
    }

    fn divide(
        &self,
        alpha: f64,
        x: CudaView<'_, S>,
        y: CudaView<'_, S>,
        out: CudaViewMut<'_, S>,
        write: Write,
    ) -> Result<()> {
        check_length("y", y.len(), x.len())?;
        check_length("out", out.len(), x.len())?;
        let n = x.len() as u64;
        let (x, y, out) = (x.pointer().cast(), y.pointer().cast(), out.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x`, `y` and `out` hold `n` scalars.
        let code = unsafe { ffi::cohop_divide(dtype::<S>(), n, alpha, x, y, out, adds(write), stream) };
        self.check("divide", code)
    }

    fn map(&self, function: Function, x: CudaView<'_, S>, out: CudaViewMut<'_, S>) -> Result<()> {
        check_length("out", out.len(), x.len())?;
        let kind = match function {
            Function::SquareRoot => ffi::cohop_function::COHOP_SQUARE_ROOT,
            Function::Exponential => ffi::cohop_function::COHOP_EXPONENTIAL,
            Function::Logarithm => ffi::cohop_function::COHOP_LOGARITHM,
        };
        let (n, x, out, stream) = (x.len() as u64, x.pointer().cast(), out.pointer().cast(), self.stream()?);
        // SAFETY: `x` and `out` hold `n` scalars.
        let code = unsafe { ffi::cohop_map(dtype::<S>(), n, kind, x, out, stream) };
        self.check("map", code)
    }

    fn add_bias_activate(
        &self,
        bias: Option<CudaView<'_, S>>,
        activation: Option<Activation>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix_mut(&out)?;
        check_length("bias", bias.map_or(out.cols, |bias| bias.len()), out.cols)?;
        let (rows, cols) = (out.rows as u64, out.cols as u64);
        let (kind, slope) = activation.map_or((ffi::cohop_activation::COHOP_IDENTITY, 0.0), activation_code);
        let (bias, data, stream) = (pointer_or_null(bias).cast(), out.data.pointer().cast(), self.stream()?);
        // SAFETY: `bias` is null or holds `cols` scalars, `out` holds `rows * cols`.
        let code = unsafe {
            ffi::cohop_add_bias_activate(dtype::<S>(), rows, cols, bias, kind, slope, data, stream)
        };
        self.check("add_bias_activate", code)
    }

    fn sum_rows(&self, x: Matrix<'_, Self>, out: CudaViewMut<'_, S>, write: Write) -> Result<()> {
        check_matrix(&x)?;
        check_length("out", out.len(), x.cols)?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        // SAFETY: a function of its arguments.
        let n_parts = unsafe { ffi::cohop_sum_rows_parts(rows, cols) };
        let scratch = self.scratch::<S>(n_parts as usize * x.cols)?;
        let (x, sums, out) = (x.data.pointer().cast(), scratch.pointer().cast(), out.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` holds `rows * cols` scalars, `out` `cols`, and the scratch memory `n_parts * cols`.
        let code =
            unsafe { ffi::cohop_sum_rows(dtype::<S>(), rows, cols, x, sums, out, adds(write), stream) };
        self.check("sum_rows", code)
    }

    fn dot(&self, x: CudaView<'_, S>, y: Option<CudaView<'_, S>>, out: CudaViewMut<'_, S>) -> Result<()> {
        check_length("y", y.map_or(x.len(), |y| y.len()), x.len())?;
        check_length("out", out.len(), 1)?;
        let n = x.len() as u64;
        // SAFETY: a function of its argument.
        let n_parts = unsafe { ffi::cohop_dot_parts(n) };
        let scratch = self.scratch::<f64>(n_parts as usize)?;
        let (x, y, out) = (x.pointer().cast(), pointer_or_null(y).cast(), out.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` holds `n` scalars, `y` as many or it is null, `out` one, the scratch memory `n_parts` doubles.
        let code = unsafe { ffi::cohop_dot(dtype::<S>(), n, x, y, scratch.pointer(), out, stream) };
        self.check("dot", code)
    }

    fn scale_rows(
        &self,
        factor: CudaView<'_, S>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_matrix_mut(&out)?;
        check_same_shape("scale_rows", "x", x.shape(), "out", out.shape())?;
        check_length("factor", factor.len(), x.rows)?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        let (factor, x, out) = (factor.pointer().cast(), x.data.pointer().cast(), out.data.pointer().cast());
        let stream = self.stream()?;
        // SAFETY: `x` and `out` hold `rows * cols` scalars, `factor` holds `rows`.
        let code =
            unsafe { ffi::cohop_scale_rows(dtype::<S>(), rows, cols, factor, x, out, adds(write), stream) };
        self.check("scale_rows", code)
    }

    fn copy_columns(
        &self,
        x: Matrix<'_, Self>,
        x_column: usize,
        out: MatrixMut<'_, Self>,
        out_column: usize,
        n_columns: usize,
        write: Write,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_matrix_mut(&out)?;
        check_length("rows of out", out.rows, x.rows)?;
        check_columns("x_column", x_column, n_columns, x.cols)?;
        check_columns("out_column", out_column, n_columns, out.cols)?;
        let (rows, columns) = (x.rows as u64, n_columns as u64);
        let (x_cols, out_cols) = (x.cols as u64, out.cols as u64);
        let from = x.data.pointer().wrapping_add(x_column).cast();
        let to = out.data.pointer().wrapping_add(out_column).cast();
        let stream = self.stream()?;
        // SAFETY: each row of `x` and of `out` has `n_columns` columns from the one that its pointer points to.
        let code = unsafe {
            ffi::cohop_copy_columns(
                dtype::<S>(),
                rows,
                columns,
                from,
                x_cols,
                to,
                out_cols,
                adds(write),
                stream,
            )
        };
        self.check("copy_columns", code)
    }

    fn activate_backward(
        &self,
        activation: Activation,
        y: CudaView<'_, S>,
        dx: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_length("dx", dx.len(), y.len())?;
        let (kind, slope) = activation_code(activation);
        let (n, y, dx, stream) = (y.len() as u64, y.pointer().cast(), dx.pointer().cast(), self.stream()?);
        // SAFETY: `y` and `dx` hold `n` scalars.
        let code = unsafe { ffi::cohop_activate_backward(dtype::<S>(), n, kind, slope, y, dx, stream) };
        self.check("activate_backward", code)
    }

    fn dropout(
        &self,
        p: f64,
        seed: u64,
        stream: u64,
        rows: Option<CudaView<'_, u32>>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_matrix(&x)?;
        check_matrix_mut(&out)?;
        check_same_shape("dropout", "x", x.shape(), "out", out.shape())?;
        check_length("rows", rows.map_or(x.rows, |rows| rows.len()), x.rows)?;
        check_probability("p", p)?;
        let (threshold, factor) = ((p * 2f64.powi(32)) as u32, 1.0 / (1.0 - p));
        let (n_rows, cols) = (x.rows as u64, x.cols as u64);
        let (rows, x, out) = (pointer_or_null(rows), x.data.pointer().cast(), out.data.pointer().cast());
        let on = self.stream()?;
        // SAFETY: `x` and `out` hold `n_rows * cols` scalars; `rows` is null or holds `n_rows` ids.
        let code = unsafe {
            ffi::cohop_dropout(dtype::<S>(), n_rows, cols, threshold, factor, seed, stream, rows, x, out, on)
        };
        self.check("dropout", code)
    }
}

/// A launcher's name for an activation, and its slope.
fn activation_code(activation: Activation) -> (ffi::cohop_activation, f64) {
    match activation {
        Activation::Relu => (ffi::cohop_activation::COHOP_RELU, 0.0),
        Activation::LeakyRelu { slope } => (ffi::cohop_activation::COHOP_LEAKY_RELU, slope),
        Activation::Elu => (ffi::cohop_activation::COHOP_ELU, 0.0),
    }
}
