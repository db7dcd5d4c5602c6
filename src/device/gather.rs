//! Kernel family *gather*: rows of a table by index, and the reverse.

use crate::device::{FeatureElement, Matrix, MatrixMut, Storage};
use crate::error::Result;

/// Gather and scatter of rows.
pub trait Gather: Storage {
    /// `out[i, :] = table[index[i], :]`, widened to the device's scalar.
    ///
    /// `table: [n_table, dim]` with `dim = out.cols`, `index: [out.rows]`. An index at or above `n_table` is
    /// [`IndexOutOfRange`](crate::Error::IndexOutOfRange) and leaves `out` unspecified. Reads and writes
    /// `out.rows * dim` elements.
    fn gather<E: FeatureElement>(
        &self,
        table: Self::View<'_, E>,
        n_table: usize,
        index: Self::View<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `out[index[i], :] += x[i, :]`; rows of `x` with the same index are added in ascending order of `i`.
    ///
    /// `index: [x.rows]`. An index at or above `out.rows` is
    /// [`IndexOutOfRange`](crate::Error::IndexOutOfRange), and then nothing is written.
    fn scatter_add(
        &self,
        x: Matrix<'_, Self>,
        index: Self::View<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;
}
