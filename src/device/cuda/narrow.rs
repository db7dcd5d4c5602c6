//! Rows of 16 bits on CUDA; see `cuda/narrow.cu`, `cuda/spmm.cu` and `cuda/spmm_max.cu`.

use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::{
    Csr, Elementwise, Half, Matrix, MatrixMut, Narrow, Scalar, Weights, Write, check_narrow,
    check_spmm_max_backward_narrow, check_spmm_max_narrow, check_spmm_narrow,
};
use crate::error::{Result, check_length};

impl<S: Scalar> Narrow for Cuda<S> {
    fn narrow<E: Half>(
        &self,
        x: Matrix<'_, Self>,
        out: CudaViewMut<'_, E>,
        factor: Option<CudaViewMut<'_, S>>,
    ) -> Result<()> {
        check_narrow::<Self, E>(&x, &out, factor.as_ref())?;
        let (rows, cols) = (x.rows as u64, x.cols as u64);
        let (scalar, element, stream) = (dtype::<S>(), dtype::<E>(), self.stream()?);
        let factor = factor.map_or(std::ptr::null_mut(), |factor| factor.pointer().cast());
        let (x, out) = (x.data.pointer().cast(), out.pointer().cast());
        // SAFETY: `x` holds `rows * cols` scalars, `out` as many elements; `factor` is null or holds `rows` scalars.
        let code = unsafe { ffi::cohop_narrow(scalar, element, rows, cols, x, out, factor, stream) };
        self.check("narrow", code)
    }

    fn widen<E: Half>(&self, x: CudaView<'_, E>, out: CudaViewMut<'_, S>) -> Result<()> {
        check_length("out", out.len(), x.len())?;
        let (scalar, element, n, stream) = (dtype::<S>(), dtype::<E>(), x.len() as u64, self.stream()?);
        let (x, out) = (x.pointer().cast(), out.pointer().cast());
        // SAFETY: `x` holds `n` elements, `out` as many scalars.
        let code = unsafe { ffi::cohop_widen(scalar, element, n, x, out, stream) };
        self.check("widen", code)
    }

    fn spmm_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: CudaView<'_, E>,
        factor: Option<CudaView<'_, S>>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_spmm_narrow(&a, &weights, &x, factor.as_ref(), &out)?;
        let (Some(factor), Some(column)) = (factor, weights.column) else {
            let Weights { edge, row, column } = weights;
            let weights = Weights { edge, row, column: column.or(factor) };
            return self.multiply_rows("spmm_narrow", a, weights, x, out, write);
        };
        let mut product = self.scratch(factor.len())?;
        self.multiply(factor, column, product.view_mut(), Write::Assign)?;
        let weights = Weights { edge: weights.edge, row: weights.row, column: Some(product.view()) };
        self.multiply_rows("spmm_narrow", a, weights, x, out, write)
    }

    fn spmm_max_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        x: CudaView<'_, E>,
        factor: Option<CudaView<'_, S>>,
        out: MatrixMut<'_, Self>,
        argmax: CudaViewMut<'_, u32>,
    ) -> Result<()> {
        check_spmm_max_narrow(&a, &x, factor.as_ref(), &out, &argmax)?;
        self.max_of_rows("spmm_max_narrow", a, x, factor, out, argmax)
    }

    fn spmm_max_backward_narrow<E: Half>(
        &self,
        a: Csr<'_, Self>,
        argmax: CudaView<'_, u32>,
        dout: CudaView<'_, E>,
        factor: Option<CudaView<'_, S>>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        let edge = check_spmm_max_backward_narrow(&a, &argmax, &dout, factor.as_ref(), &dx)?;
        self.max_gradient_of_rows("spmm_max_backward_narrow", (a, edge), argmax, dout, factor, dx, write)
    }
}
