//! Gather and scatter of rows on CUDA; see `cuda/gather.cu` and `cuda/gather_aggregate.cu`.

use super::memory::pointer_or_null;
use super::{Cuda, CudaView, CudaViewMut, dtype, ffi};
use crate::device::{
    Csr, FeatureElement, Gather, IndexedRows, Matrix, MatrixMut, Scalar, Weights, check_gather,
    check_gather_aggregate, check_narrow_index, check_scatter_add,
};
use crate::error::Result;

impl<S: Scalar> Gather for Cuda<S> {
    fn gather<E: FeatureElement>(
        &self,
        table: CudaView<'_, E>,
        n_table: usize,
        index: CudaView<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_gather(&table, n_table, &index, &out)?;
        let (rows, cols, n_table) = (out.rows as u64, out.cols as u64, n_table as u64);
        let (scalar, element) = (dtype::<S>(), dtype::<E>());
        let (table, index, out) = (table.pointer().cast(), index.pointer(), out.data.pointer().cast());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: `table` holds `n_table * cols` elements, `index` `rows`, and `out` `rows * cols` scalars.
        let code = unsafe {
            ffi::cohop_gather(scalar, element, rows, cols, table, n_table, index, out, status, stream)
        };
        self.check("gather", code)
    }

    fn narrow_index(&self, index: CudaView<'_, u64>, limit: usize, out: CudaViewMut<'_, u32>) -> Result<()> {
        check_narrow_index::<Self>(&index, limit, &out)?;
        let (n, index, out) = (index.len() as u64, index.pointer(), out.pointer());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: `index` and `out` hold `n` numbers.
        let code = unsafe { ffi::cohop_narrow_index(n, index, limit as u64, out, status, stream) };
        self.check("narrow_index", code)
    }

    fn scatter_add(
        &self,
        x: Matrix<'_, Self>,
        index: CudaView<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_scatter_add(&x, &index, &out)?;
        let (rows, cols, n_out, scalar) = (x.rows as u64, x.cols as u64, out.rows as u64, dtype::<S>());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: a function of its arguments and the thread's device.
        let bytes = unsafe { ffi::cohop_scatter_add_bytes(scalar, rows, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (x, index, out) = (x.data.pointer().cast(), index.pointer(), out.data.pointer().cast());
        let part = scratch.pointer().cast();
        // SAFETY: `x` holds `rows * cols` scalars, `index` `rows`, `out` `n_out * cols` scalars, and the scratch memory
        // as many bytes as were asked for.
        let code =
            unsafe { ffi::cohop_scatter_add(scalar, rows, cols, x, index, n_out, part, out, status, stream) };
        self.check("scatter_add", code)
    }

    fn gather_aggregate<E: FeatureElement>(
        &self,
        x: IndexedRows<'_, Self, E>,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        own: Option<CudaView<'_, S>>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        let dim = check_gather_aggregate(&x, &a, &weights, own.as_ref(), &out)?;
        let (n_rows, n_cols, n_edge) = (a.n_rows as u64, a.n_cols as u64, a.indices.len() as u64);
        let longest = super::spmm::longest_row(&a);
        let (cols, n_table) = (dim as u64, x.n_table as u64);
        let (scalar, element) = (dtype::<S>(), dtype::<E>());
        // SAFETY: a function of its arguments.
        let bytes = unsafe { ffi::cohop_spmm_bytes(scalar, n_edge, longest, cols) };
        let scratch = self.scratch::<u8>(bytes as usize)?;
        let (table, index) = (x.table.pointer().cast(), x.index.pointer());
        let (indptr, indices) = (a.indptr.pointer(), a.indices.pointer());
        let [edge, row, column, own] =
            [weights.edge, weights.row, weights.column, own].map(|factor| pointer_or_null(factor).cast());
        let (part, out) = (scratch.pointer().cast(), out.data.pointer().cast());
        let (status, stream) = (self.status(), self.stream()?);
        // SAFETY: `table` holds `n_table * cols` elements and `index` `n_cols`; the pattern is valid: `indptr` holds
        // `n_rows + 1` offsets up to `n_edge`, `indices` `n_edge` numbers below `n_cols`, and `n_rows <= n_cols`;
        // factors are null or hold one scalar for each entry, row or column; `out` holds `n_rows * cols` scalars, or
        // twice as many without `own`, and the scratch memory as many bytes as were asked for.
        let code = unsafe {
            ffi::cohop_gather_aggregate(
                scalar, element, n_rows, n_cols, n_edge, longest, cols, table, n_table, index, indptr,
                indices, edge, row, column, own, part, out, status, stream,
            )
        };
        self.check("gather_aggregate", code)
    }
}
