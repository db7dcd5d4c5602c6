//! Kernel family *gather*: rows of a table by index, and the reverse.

use crate::device::{
    FeatureElement, Matrix, MatrixMut, Storage, check_matrix, check_matrix_length, check_matrix_mut,
};
use crate::error::{Result, check_length};

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

/// `Ok` if the arguments of [`Gather::gather`] fit together.
pub(crate) fn check_gather<D: Storage, E: FeatureElement>(
    table: &D::View<'_, E>,
    n_table: usize,
    index: &D::View<'_, u32>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_matrix_mut(out)?;
    check_length("index", D::view_len(index), out.rows)?;
    check_matrix_length(D::view_len(table), n_table, out.cols)
}

/// `Ok` if the arguments of [`Gather::scatter_add`] fit together.
pub(crate) fn check_scatter_add<D: Storage>(
    x: &Matrix<'_, D>,
    index: &D::View<'_, u32>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_matrix(x)?;
    check_matrix_mut(out)?;
    check_length("index", D::view_len(index), x.rows)?;
    check_length("columns of out", out.cols, x.cols)
}
