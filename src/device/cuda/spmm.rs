//! Sparse times dense on CUDA; see `cuda/spmm.cu` and `cuda/spmm_max.cu`.

use super::memory::pointer_or_null;
use super::{Cuda, CudaView, CudaViewMut, adds, dtype, ffi};
use crate::device::{
    Csr, Matrix, MatrixMut, Scalar, Spmm, Weights, Write, check_no_edge, check_product, check_spmm_heads,
    check_weights, positions_of_transpose,
};
use crate::error::{Result, check_length};

/// The most entries of a row, as launchers take it.
pub(super) fn longest_row<S: Scalar>(a: &Csr<'_, Cuda<S>>) -> u64 {
    a.longest_row.unwrap_or_else(|| a.n_edge()) as u64
}

impl<S: Scalar> Spmm for Cuda<S> {
    fn spmm(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_product("spmm", &a, &x, &out)?;
        check_weights(&a, &weights)?;
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, x.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (indptr, indices, positions) = (a.indptr.pointer(), a.indices.pointer(), pointer_or_null(a.edge));
        let [edge, row, column] =
            [weights.edge, weights.row, weights.column].map(|factor| pointer_or_null(factor).cast());
        let (x, part, out) = (x.data.pointer().cast(), scratch.pointer().cast(), out.data.pointer().cast());
        let (scalar, add, stream) = (dtype::<S>(), adds(write), self.stream()?);
        // SAFETY: the pattern is valid: `indptr` holds `n_rows + 1` offsets up to `n_edge`, `indices` and `positions`
        // hold `n_edge` each, `x` `cols` scalars for each column of the pattern, `out` `n_rows * cols`; factors are
        // null or hold one scalar for each entry, row or column, and the scratch memory as many bytes as were asked
        // for.
        let code = unsafe {
            ffi::cohop_spmm(
                scalar, n_rows, n_edge, longest, cols, indptr, indices, positions, edge, row, column, x,
                part, out, add, stream,
            )
        };
        self.check("spmm", code)
    }

    fn spmm_heads(
        &self,
        a: Csr<'_, Self>,
        weight: CudaView<'_, S>,
        heads: usize,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_spmm_heads(&a, &weight, heads, &x, &out)?;
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, x.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (heads, dim) = (heads as u64, cols / heads as u64);
        let (indptr, indices, positions) = (a.indptr.pointer(), a.indices.pointer(), pointer_or_null(a.edge));
        let (weight, x) = (weight.pointer().cast(), x.data.pointer().cast());
        let (part, out) = (scratch.pointer().cast(), out.data.pointer().cast());
        let (scalar, add, stream) = (dtype::<S>(), adds(write), self.stream()?);
        // SAFETY: as for `spmm`; `weight` holds `n_edge * heads` scalars, and `x` `heads * dim` for each column.
        let code = unsafe {
            ffi::cohop_spmm_heads(
                scalar, n_rows, n_edge, longest, heads, dim, indptr, indices, positions, weight, x, part,
                out, add, stream,
            )
        };
        self.check("spmm_heads", code)
    }

    fn spmm_max(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        argmax: CudaViewMut<'_, u32>,
    ) -> Result<()> {
        check_product("spmm_max", &a, &x, &out)?;
        check_no_edge(&a)?;
        check_length("argmax", argmax.len(), out.data.len())?;
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, x.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_max_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (indptr, indices, argmax) = (a.indptr.pointer(), a.indices.pointer(), argmax.pointer());
        let (x, part, out) = (x.data.pointer().cast(), scratch.pointer().cast(), out.data.pointer().cast());
        let (scalar, stream) = (dtype::<S>(), self.stream()?);
        // SAFETY: as for `spmm`; `argmax` holds `n_rows * cols` positions.
        let code = unsafe {
            ffi::cohop_spmm_max(
                scalar, n_rows, n_edge, longest, cols, indptr, indices, x, part, out, argmax, stream,
            )
        };
        self.check("spmm_max", code)
    }

    fn spmm_max_backward(
        &self,
        a: Csr<'_, Self>,
        argmax: CudaView<'_, u32>,
        dout: Matrix<'_, Self>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        check_product("spmm_max_backward", &a, &dout, &dx)?;
        check_length("argmax", argmax.len(), dout.data.len())?;
        let edge = positions_of_transpose(&a)?.pointer();
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, dout.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (indptr, indices, argmax) = (a.indptr.pointer(), a.indices.pointer(), argmax.pointer());
        let (dout, part, dx) =
            (dout.data.pointer().cast(), scratch.pointer().cast(), dx.data.pointer().cast());
        let (scalar, add, stream) = (dtype::<S>(), adds(write), self.stream()?);
        // SAFETY: as for `spmm`; `argmax` holds one position for each scalar of `dout`.
        let code = unsafe {
            ffi::cohop_spmm_max_backward(
                scalar, n_rows, n_edge, longest, cols, indptr, indices, edge, argmax, dout, part, dx, add,
                stream,
            )
        };
        self.check("spmm_max_backward", code)
    }
}
