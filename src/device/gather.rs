//! Kernel family *gather*: rows of a table by index, and the reverse.

use crate::device::{
    Csr, Element, Elementwise, FeatureElement, Matrix, MatrixMut, Spmm, Storage, Weights, Write,
    check_csr_lengths, check_matrix, check_matrix_length, check_matrix_mut, check_no_edge, check_weights,
};
use crate::error::{Error, Result, check_length};

/// Rows of a table by index: row `i` is `table[index[i], :]`.
pub struct IndexedRows<'a, D: Storage, E: Element> {
    /// `[n_table, dim]`
    pub table: D::View<'a, E>,
    /// Number of rows of the table.
    pub n_table: usize,
    /// `[n]`
    pub index: D::View<'a, u32>,
}

impl<D: Storage, E: Element> Clone for IndexedRows<'_, D, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage, E: Element> Copy for IndexedRows<'_, D, E> {}

/// Gather and scatter of rows.
pub trait Gather: Elementwise + Spmm {
    /// `out[i, :] = table[index[i], :]`, widened to the device's scalar.
    ///
    /// `table: [n_table, dim]` with `dim = out.cols`, `index: [out.rows]`. Reads and writes `out.rows * dim` elements.
    ///
    /// Errors: `table` or `index` does not have its length, an index is not below `n_table`
    /// ([`IndexOutOfRange`](crate::Error::IndexOutOfRange), which leaves `out` unspecified), or the device fails.
    fn gather<E: FeatureElement>(
        &self,
        table: Self::View<'_, E>,
        n_table: usize,
        index: Self::View<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// `out[i] = index[i]`, for an index of 64 bits that [`gather`](Gather::gather) is to read; same length.
    ///
    /// `limit ≤ 2^32`, so that every valid index fits.
    ///
    /// Errors: `index` and `out` differ in length, `limit` is above 2^32 ([`TooLarge`](crate::Error::TooLarge)), an
    /// index is not below `limit` ([`IndexOutOfRange`](crate::Error::IndexOutOfRange), which leaves `out` unspecified),
    /// or the device fails.
    fn narrow_index(
        &self,
        index: Self::View<'_, u64>,
        limit: usize,
        out: Self::ViewMut<'_, u32>,
    ) -> Result<()>;

    /// `out[index[i], :] += x[i, :]`; rows of `x` with the same index are added in ascending order of `i`.
    ///
    /// `index: [x.rows]`.
    ///
    /// Errors: `index` does not have `x.rows` elements, `x` and `out` differ in columns, an index is not below
    /// `out.rows` ([`IndexOutOfRange`](crate::Error::IndexOutOfRange), and then nothing is written), or the device
    /// fails.
    fn scatter_add(
        &self,
        x: Matrix<'_, Self>,
        index: Self::View<'_, u32>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()>;

    /// Gathers rows and aggregates them at once: what a first layer that is linear in the features needs.
    ///
    /// For each row `t` of `a`, where column `j` of `a` stands for row `j` of `x` (the first `a.n_rows` are the
    /// destinations'):
    /// * with `own`: `out[t, :] = own[t] · x[t, :] + Σ_e weight(e) · x[indices[e], :]`, `out: [a.n_rows, dim]`;
    /// * without: `out[t, :] = [x[t, :] | Σ_e weight(e) · x[indices[e], :]]`, `out: [a.n_rows, 2 · dim]`.
    ///
    /// The bits are those of [`gather`](Gather::gather), [`scale_rows`](Elementwise::scale_rows) and
    /// [`spmm`](Spmm::spmm) one after the other, which is what the default does. Devices that override this never write
    /// the gathered rows, which are usually the largest matrix of a minibatch. They read `(n_rows + n_edge) · dim`
    /// elements of the table where a gather reads `n_cols · dim`: if the table is slow to read, such as one in host
    /// memory for a GPU, gather first.
    ///
    /// `x.index: [a.n_cols]`, `own: [a.n_rows]`; `a.edge` must be absent, and `a.n_rows` at most `a.n_cols`.
    ///
    /// Errors: `a.edge` is present, `a` has more rows than columns, an array does not have its shape, an index is not
    /// below `n_table` ([`IndexOutOfRange`](Error::IndexOutOfRange), which leaves `out` unspecified), or the device
    /// fails.
    fn gather_aggregate<E: FeatureElement>(
        &self,
        x: IndexedRows<'_, Self, E>,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        own: Option<Self::View<'_, Self::Scalar>>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        gather_aggregate_apart(self, x, a, weights, own, out)
    }
}

/// [`Gather::gather_aggregate`] by separate kernels, one after the other.
pub(crate) fn gather_aggregate_apart<D: Gather, E: FeatureElement>(
    device: &D,
    x: IndexedRows<'_, D, E>,
    a: Csr<'_, D>,
    weights: Weights<'_, D>,
    own: Option<D::View<'_, D::Scalar>>,
    out: MatrixMut<'_, D>,
) -> Result<()> {
    let dim = check_gather_aggregate(&x, &a, &weights, own.as_ref(), &out)?;
    let mut rows = device.allocate(a.n_cols * dim)?;
    device.gather(
        x.table,
        x.n_table,
        x.index,
        MatrixMut::from_view(D::view_mut(&mut rows), a.n_cols, dim)?,
    )?;
    aggregate_gathered(device, Matrix::from_view(D::view(&rows), a.n_cols, dim)?, a, weights, own, out)
}

/// [`Gather::gather_aggregate`] of rows that have been gathered: `rows: [a.n_cols, dim]`.
pub(crate) fn aggregate_gathered<D: Gather>(
    device: &D,
    rows: Matrix<'_, D>,
    a: Csr<'_, D>,
    weights: Weights<'_, D>,
    own: Option<D::View<'_, D::Scalar>>,
    mut out: MatrixMut<'_, D>,
) -> Result<()> {
    let dim = rows.cols;
    let destinations = Matrix::from_view(D::slice(rows.data, 0..a.n_rows * dim), a.n_rows, dim)?;
    if let Some(own) = own {
        device.scale_rows(own, destinations, out.reborrow(), Write::Assign)?;
        return device.spmm(a, weights, rows, out, Write::Add);
    }
    let mut sums = device.allocate(a.n_rows * dim)?;
    device.spmm(
        a,
        weights,
        rows,
        MatrixMut::from_view(D::view_mut(&mut sums), a.n_rows, dim)?,
        Write::Assign,
    )?;
    let sums = Matrix::from_view(D::view(&sums), a.n_rows, dim)?;
    device.copy_columns(destinations, 0, out.reborrow(), 0, dim, Write::Assign)?;
    device.copy_columns(sums, 0, out, dim, dim, Write::Assign)
}

/// The table's number of columns if the arguments of [`Gather::gather_aggregate`] fit together.
pub(crate) fn check_gather_aggregate<D: Storage, E: FeatureElement>(
    x: &IndexedRows<'_, D, E>,
    a: &Csr<'_, D>,
    weights: &Weights<'_, D>,
    own: Option<&D::View<'_, D::Scalar>>,
    out: &MatrixMut<'_, D>,
) -> Result<usize> {
    check_csr_lengths(a)?;
    check_no_edge(a)?;
    check_weights(a, weights)?;
    check_matrix_mut(out)?;
    check_length("rows of out", out.rows, a.n_rows)?;
    check_length("index", D::view_len(&x.index), a.n_cols)?;
    check_length("own", own.map_or(a.n_rows, |own| D::view_len(own)), a.n_rows)?;
    if a.n_rows > a.n_cols {
        return Err(Error::invalid("n_rows", a.n_rows, format!("at most the {} columns", a.n_cols)));
    }
    let parts = if own.is_some() { 1 } else { 2 };
    let dim = out.cols / parts;
    check_length("columns of out", out.cols, parts * dim)?;
    check_matrix_length(D::view_len(&x.table), x.n_table, dim)?;
    Ok(dim)
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

/// `Ok` if the arguments of [`Gather::narrow_index`] fit together.
pub(crate) fn check_narrow_index<D: Storage>(
    index: &D::View<'_, u64>,
    limit: usize,
    out: &D::ViewMut<'_, u32>,
) -> Result<()> {
    let most = 1u64 << 32;
    if limit as u64 > most {
        return Err(Error::TooLarge { what: "a table", count: limit as u64, limit: most });
    }
    check_length("out", D::view_mut_len(out), D::view_len(index))
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
