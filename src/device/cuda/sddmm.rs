//! Values per edge on CUDA; see `cuda/sddmm.cu`.

use super::{Cuda, CudaViewMut, adds, dtype, ffi};
use crate::device::{Csr, Matrix, Scalar, Sddmm, Write, check_sddmm_add, check_sddmm_dot};
use crate::error::Result;

impl<S: Scalar> Sddmm for Cuda<S> {
    fn sddmm_dot(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        y: Matrix<'_, Self>,
        heads: usize,
        out: CudaViewMut<'_, S>,
        write: Write,
    ) -> Result<()> {
        check_sddmm_dot(&a, &x, &y, heads, &out)?;
        let (n_rows, n_edge) = (a.n_rows as u64, a.indices.len() as u64);
        let (dim, heads) = ((x.cols / heads) as u64, heads as u64);
        let (indptr, indices) = (a.indptr.pointer(), a.indices.pointer());
        let (x, y, out) = (x.data.pointer().cast(), y.data.pointer().cast(), out.pointer().cast());
        let (scalar, add, stream) = (dtype::<S>(), adds(write), self.stream()?);
        // SAFETY: the pattern is valid: `indptr` holds `n_rows + 1` offsets up to `n_edge`, `indices` `n_edge`; `x` and
        // `y` hold `heads * dim` scalars for each column and each row of the pattern, `out` `n_edge * heads`.
        let code = unsafe {
            ffi::cohop_sddmm_dot(scalar, n_rows, n_edge, heads, dim, indptr, indices, x, y, out, add, stream)
        };
        self.check("sddmm_dot", code)
    }

    fn sddmm_add(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        y: Matrix<'_, Self>,
        out: CudaViewMut<'_, S>,
        write: Write,
    ) -> Result<()> {
        check_sddmm_add(&a, &x, &y, &out)?;
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, x.cols as u64);
        let (indptr, indices) = (a.indptr.pointer(), a.indices.pointer());
        let (x, y, out) = (x.data.pointer().cast(), y.data.pointer().cast(), out.pointer().cast());
        let (scalar, add, stream) = (dtype::<S>(), adds(write), self.stream()?);
        // SAFETY: as for `sddmm_dot`, with `cols` scalars for each column, row and entry.
        let code = unsafe {
            ffi::cohop_sddmm_add(scalar, n_rows, n_edge, cols, indptr, indices, x, y, out, add, stream)
        };
        self.check("sddmm_add", code)
    }
}
