//! Gather and scatter of rows on CUDA; see `cuda/gather.cu`.

use super::{Cuda, CudaView, dtype, ffi};
use crate::device::{FeatureElement, Gather, Matrix, MatrixMut, Scalar, check_gather, check_scatter_add};
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
}
