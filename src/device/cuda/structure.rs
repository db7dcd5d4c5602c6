//! Transposes, degrees and inverse permutations on CUDA; see `cuda/structure.cu`.

use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::{Csr, Scalar, Structure, check_inverse_weight_sum, check_transpose};
use crate::error::{Result, check_length};

impl<S: Scalar> Structure for Cuda<S> {
    fn transpose(
        &self,
        a: Csr<'_, Self>,
        indptr: CudaViewMut<'_, u32>,
        indices: CudaViewMut<'_, u32>,
        edge: CudaViewMut<'_, u32>,
    ) -> Result<()> {
        check_transpose(&a, &indptr, &indices, &edge)?;
        let (n_rows, n_cols, n_edge) = (a.n_rows as u64, a.n_cols as u64, a.indices.len() as u64);
        let stream = self.stream()?;
        // SAFETY: a function of its argument and the thread's device.
        let bytes = unsafe { ffi::cohop_transpose_bytes(n_edge) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (from_indptr, from_indices, part) =
            (a.indptr.pointer(), a.indices.pointer(), scratch.pointer().cast());
        let (indptr, indices, edge) = (indptr.pointer(), indices.pointer(), edge.pointer());
        // SAFETY: the pattern is valid: `from_indptr` holds `n_rows + 1` offsets up to `n_edge`, `from_indices`
        // `n_edge` numbers below `n_cols`; `indptr` holds `n_cols + 1`, `indices` and `edge` `n_edge`, and the scratch
        // memory as many bytes as were asked for.
        let code = unsafe {
            ffi::cohop_transpose(
                n_rows,
                n_cols,
                n_edge,
                from_indptr,
                from_indices,
                part,
                indptr,
                indices,
                edge,
                stream,
            )
        };
        self.check("transpose", code)
    }

    fn inverse_degree(&self, indptr: CudaView<'_, u32>, offset: f64, out: CudaViewMut<'_, S>) -> Result<()> {
        check_length("indptr", indptr.len(), out.len() + 1)?;
        let (n, indptr, out, stream) =
            (out.len() as u64, indptr.pointer(), out.pointer().cast(), self.stream()?);
        // SAFETY: `indptr` holds `n + 1` offsets, `out` `n` scalars.
        let code = unsafe { ffi::cohop_inverse_degree(dtype::<S>(), n, indptr, offset, out, stream) };
        self.check("inverse_degree", code)
    }

    fn inverse_weight_sum(
        &self,
        a: Csr<'_, Self>,
        weight: CudaView<'_, S>,
        offset: f64,
        out: CudaViewMut<'_, S>,
    ) -> Result<()> {
        check_inverse_weight_sum(&a, &weight, &out)?;
        let (n, indptr, stream) = (a.n_rows as u64, a.indptr.pointer(), self.stream()?);
        let (weight, out) = (weight.pointer().cast(), out.pointer().cast());
        // SAFETY: `indptr` holds `n + 1` offsets that ascend to the number of weights, `out` `n` scalars.
        let code =
            unsafe { ffi::cohop_inverse_weight_sum(dtype::<S>(), n, indptr, weight, offset, out, stream) };
        self.check("inverse_weight_sum", code)
    }

    fn invert_permutation(&self, permutation: CudaView<'_, u32>, out: CudaViewMut<'_, u32>) -> Result<()> {
        check_length("out", out.len(), permutation.len())?;
        let (n, permutation, out) = (permutation.len() as u64, permutation.pointer(), out.pointer());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: both hold `n` numbers; entries out of range are reported, not followed.
        let code = unsafe { ffi::cohop_invert_permutation(n, permutation, out, status, stream) };
        self.check("invert_permutation", code)
    }
}
