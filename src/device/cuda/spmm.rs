//! Sparse times dense on CUDA; see `cuda/spmm.cu` and `cuda/spmm_max.cu`.

use super::memory::pointer_or_null;
use super::{Cuda, CudaView, CudaViewMut, adds, dtype, ffi};
use crate::device::{
    Csr, FeatureElement, Matrix, MatrixMut, Scalar, Spmm, Weights, Write, check_no_edge, check_product,
    check_spmm_heads, check_weights, positions_of_transpose,
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
        self.multiply_rows("spmm", a, weights, x.data, out, write)
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
        self.max_of_rows("spmm_max", a, x.data, None, out, argmax)
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
        let edge = positions_of_transpose(&a)?;
        self.max_gradient_of_rows("spmm_max_backward", (a, edge), argmax, dout.data, None, dx, write)
    }
}

/// The kernels for rows of any type that they are compiled for; arguments have been checked.
impl<S: Scalar> Cuda<S> {
    /// `out (= | +=) A · x`
    pub(super) fn multiply_rows<E: FeatureElement>(
        &self,
        operation: &'static str,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: CudaView<'_, E>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, out.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (indptr, indices, positions) = (a.indptr.pointer(), a.indices.pointer(), pointer_or_null(a.edge));
        let [edge, row, column] =
            [weights.edge, weights.row, weights.column].map(|factor| pointer_or_null(factor).cast());
        let (x, part, out) = (x.pointer().cast(), scratch.pointer().cast(), out.data.pointer().cast());
        let (scalar, element, add, stream) = (dtype::<S>(), dtype::<E>(), adds(write), self.stream()?);
        // SAFETY: the pattern is valid: `indptr` holds `n_rows + 1` offsets up to `n_edge`, `indices` and `positions`
        // hold `n_edge` each, `x` `cols` elements for each column of the pattern, `out` `n_rows * cols` scalars;
        // factors are null or hold one scalar for each entry, row or column, and the scratch memory as many bytes as
        // were asked for.
        let code = unsafe {
            ffi::cohop_spmm(
                scalar, element, n_rows, n_edge, longest, cols, indptr, indices, positions, edge, row,
                column, x, part, out, add, stream,
            )
        };
        self.check(operation, code)
    }

    /// The maximum over the rows of `x`, each times its factor.
    pub(super) fn max_of_rows<E: FeatureElement>(
        &self,
        operation: &'static str,
        a: Csr<'_, Self>,
        x: CudaView<'_, E>,
        factor: Option<CudaView<'_, S>>,
        out: MatrixMut<'_, Self>,
        argmax: CudaViewMut<'_, u32>,
    ) -> Result<()> {
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, out.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_max_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (indptr, indices, argmax) = (a.indptr.pointer(), a.indices.pointer(), argmax.pointer());
        let (x, factor) = (x.pointer().cast(), pointer_or_null(factor).cast());
        let (part, out) = (scratch.pointer().cast(), out.data.pointer().cast());
        let (scalar, element, stream) = (dtype::<S>(), dtype::<E>(), self.stream()?);
        // SAFETY: as for `multiply_rows`; `argmax` holds `n_rows * cols` positions, and `factor` is null or holds a
        // scalar for each column of the pattern.
        let code = unsafe {
            ffi::cohop_spmm_max(
                scalar, element, n_rows, n_edge, longest, cols, indptr, indices, x, factor, part, out,
                argmax, stream,
            )
        };
        self.check(operation, code)
    }

    /// The gradient of the maximum from the rows of `dout`, each times its factor; with the transpose's positions.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn max_gradient_of_rows<E: FeatureElement>(
        &self,
        operation: &'static str,
        (a, edge): (Csr<'_, Self>, CudaView<'_, u32>),
        argmax: CudaView<'_, u32>,
        dout: CudaView<'_, E>,
        factor: Option<CudaView<'_, S>>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()> {
        let (n_rows, n_edge, cols) = (a.n_rows as u64, a.indices.len() as u64, dx.cols as u64);
        let longest = longest_row(&a);
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_bytes(dtype::<S>(), n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (indptr, indices, edge) = (a.indptr.pointer(), a.indices.pointer(), edge.pointer());
        let (argmax, dout, factor) =
            (argmax.pointer(), dout.pointer().cast(), pointer_or_null(factor).cast());
        let (part, dx) = (scratch.pointer().cast(), dx.data.pointer().cast());
        let (scalar, element, add, stream) = (dtype::<S>(), dtype::<E>(), adds(write), self.stream()?);
        // SAFETY: as for `max_of_rows`; `argmax` holds one position for each element of `dout`, and `edge` one for each
        // entry.
        let code = unsafe {
            ffi::cohop_spmm_max_backward(
                scalar, element, n_rows, n_edge, longest, cols, indptr, indices, edge, argmax, dout, factor,
                part, dx, add, stream,
            )
        };
        self.check(operation, code)
    }
}

#[cfg(all(test, feature = "emulate"))]
mod tests {
    use super::*;
    use crate::device::Storage;

    /// Of a row of 600 entries, as a hub or as a row that is known to be short.
    #[test]
    fn where_no_row_is_a_hub_nothing_is_launched_and_kept_for_hubs() {
        let device = Cuda::<f32>::new(0).unwrap();
        let (ends, indices) = (device.upload(&[0, 600]).unwrap(), device.upload(&[0; 600]).unwrap());
        let x = device.upload(&[1.0f32]).unwrap();
        let mut out = device.upload(&[0.0f32]).unwrap();
        let mut launches = |longest_row| {
            let x = Matrix::from_view(x.view(), 1, 1).unwrap();
            let to = MatrixMut::from_view(out.view_mut(), 1, 1).unwrap();
            let a = Csr::from_views(&device, ends.view(), indices.view(), 1).unwrap();
            let before = device.activity().launches;
            device.spmm(Csr { longest_row, ..a }, Weights::ones(), x, to, Write::Assign).unwrap();
            assert_eq!(device.download(out.view()).unwrap(), [600.0]);
            device.activity().launches - before
        };
        assert_eq!([None, Some(600), Some(25)].map(&mut launches), [2, 2, 1]);
        // SAFETY: a function of its arguments.
        let bytes = |longest| unsafe { ffi::cohop_spmm_bytes(dtype::<f32>(), 1 << 30, longest, 64) };
        assert_eq!((bytes(25), bytes(512)), (0, 0));
        // A row of 64 sums, and which row it is of, for every 512 entries.
        assert_eq!(bytes(1 << 30), (1 << 30) / 512 * (4 + 4 * 64));
    }
}
