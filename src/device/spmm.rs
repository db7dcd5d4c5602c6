//! Kernel family *SpMM*: sparse times dense, the aggregation of every layer.

use crate::device::{Matrix, MatrixMut, Storage, Write, check_matrix, check_matrix_mut, check_same_shape};
use crate::error::{Error, Result, check_length};

/// A sparse pattern in compressed rows: row `i` holds the columns `indices[indptr[i]..indptr[i + 1]]`.
///
/// A block is one with destinations as rows and sources as columns; its transpose has sources as rows and, in
/// `edge`, the position that each entry has in the block. Parallel entries count separately. Valid by construction
/// (`indptr` ascending from 0, `indices < n_cols`): kernels check lengths, and on the CPU an index out of range is a
/// panic, never an out-of-bounds access.
pub struct Csr<'a, D: Storage> {
    /// Number of rows.
    pub n_rows: usize,
    /// Number of columns: an upper bound of `indices`.
    pub n_cols: usize,
    /// `[n_rows + 1]`, ascending from 0 to `n_edge`.
    pub indptr: D::View<'a, u32>,
    /// `[n_edge]`
    pub indices: D::View<'a, u32>,
    /// `[n_edge]`: where an entry's weight stands; `None`: at its own position.
    pub edge: Option<D::View<'a, u32>>,
}

impl<D: Storage> Clone for Csr<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for Csr<'_, D> {}

/// `Ok` if the lengths of `a`'s arrays fit together, as far as they can be known without reading them.
pub(crate) fn check_csr_lengths<D: Storage>(a: &Csr<'_, D>) -> Result<()> {
    check_length("indptr", D::view_len(&a.indptr), a.n_rows + 1)?;
    let n_edge = D::view_len(&a.indices);
    check_length("edge", a.edge.as_ref().map_or(n_edge, |edge| D::view_len(edge)), n_edge)
}

/// `Ok` if `a.edge` is absent.
pub(crate) fn check_no_edge<D: Storage>(a: &Csr<'_, D>) -> Result<()> {
    match a.edge {
        None => Ok(()),
        Some(_) => {
            Err(Error::invalid("edge", "present", "absent: values stand at the entries' own positions"))
        }
    }
}

/// `Ok` if `x: [n_cols, dim]` and `out: [n_rows, dim]`, and the arrays of all fit together.
pub(crate) fn check_product<D: Storage>(
    op: &'static str,
    a: &Csr<'_, D>,
    x: &Matrix<'_, D>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_matrix(x)?;
    check_matrix_mut(out)?;
    check_same_shape(op, "dense operand", x.shape(), "required", [a.n_cols, x.cols])?;
    check_same_shape(op, "out", out.shape(), "required", [a.n_rows, x.cols])
}

/// `Ok` if the factors that are there fit the pattern.
pub(crate) fn check_weights<D: Storage>(a: &Csr<'_, D>, weights: &Weights<'_, D>) -> Result<()> {
    for (name, factor, expected) in [
        ("edge weights", weights.edge, D::view_len(&a.indices)),
        ("row factors", weights.row, a.n_rows),
        ("column factors", weights.column, a.n_cols),
    ] {
        check_length(name, factor.map_or(expected, |factor| D::view_len(&factor)), expected)?;
    }
    Ok(())
}

/// `a.edge`, or an error if it is absent.
pub(crate) fn positions_of_transpose<'a, D: Storage>(a: &Csr<'a, D>) -> Result<D::View<'a, u32>> {
    a.edge.ok_or_else(|| Error::invalid("edge", "absent", "the positions that a transpose has"))
}

/// `Ok` if the arrays of a transpose of `a` have the right lengths.
pub(crate) fn check_transpose<D: Storage>(
    a: &Csr<'_, D>,
    indptr: &D::ViewMut<'_, u32>,
    indices: &D::ViewMut<'_, u32>,
    edge: &D::ViewMut<'_, u32>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_no_edge(a)?;
    let n_edge = D::view_len(&a.indices);
    check_length("indptr of the transpose", D::view_mut_len(indptr), a.n_cols + 1)?;
    check_length("indices of the transpose", D::view_mut_len(indices), n_edge)?;
    check_length("edge of the transpose", D::view_mut_len(edge), n_edge)
}

/// Factors of a sparse matrix with the pattern of a [`Csr`]: entry `e` of row `i` and column `j` has the value
/// `edge[position(e)] * row[i] * column[j]`, where an absent factor is 1 and `position(e)` is `csr.edge[e]` or `e`.
///
/// The mean over in-edges has `row = 1 / degree`; its transpose has the same factors in `column`.
pub struct Weights<'a, D: Storage> {
    /// `[n_edge]`
    pub edge: Option<D::View<'a, D::Scalar>>,
    /// `[n_rows]`
    pub row: Option<D::View<'a, D::Scalar>>,
    /// `[n_cols]`
    pub column: Option<D::View<'a, D::Scalar>>,
}

impl<D: Storage> Clone for Weights<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for Weights<'_, D> {}

impl<D: Storage> Weights<'_, D> {
    /// All entries 1.
    pub const fn ones() -> Self {
        Weights { edge: None, row: None, column: None }
    }
}

/// Aggregation over the entries of each row.
pub trait Spmm: Storage {
    /// `out[i, :] (= | +=) Σ_e weight(e) · x[indices[e], :]` over the entries `e` of row `i`, in their order.
    ///
    /// `x: [n_cols, dim]`, `out: [n_rows, dim]`. A row without entries gives 0. Reads `n_edge · dim` and writes
    /// `n_rows · dim` scalars.
    fn spmm(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// `out[i, c] = max_e x[indices[e], c]` over the entries of row `i`, and `argmax[i, c]` the position `e` of the
    /// first entry that attains it. A row without entries gives 0 and `u32::MAX`. A NaN is never the maximum
    /// unless all entries are NaN, in which case the first is taken.
    ///
    /// `x: [n_cols, dim]`, `out, argmax: [n_rows, dim]`. `a.edge` must be absent.
    fn spmm_max(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
        argmax: Self::ViewMut<'_, u32>,
    ) -> Result<()>;

    /// The gradient of [`spmm_max`](Spmm::spmm_max): `dx[j, c] (= | +=) Σ dout[i, c]` over the entries of row `j` of
    /// the *transpose* `a` (columns `i`, positions `a.edge`) whose position equals `argmax[i, c]`.
    ///
    /// `dout, argmax: [a.n_cols, dim]`, `dx: [a.n_rows, dim]`. `a.edge` must be present.
    fn spmm_max_backward(
        &self,
        a: Csr<'_, Self>,
        argmax: Self::View<'_, u32>,
        dout: Matrix<'_, Self>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// The transpose of `a`: rows become columns. Entries of a row ascend by their position in `a`.
    ///
    /// `indptr: [a.n_cols + 1]`, `indices, edge: [n_edge]` are overwritten; `edge[p]` is the position in `a` of entry
    /// `p`. O(n_cols + n_edge). `a.edge` must be absent.
    fn transpose(
        &self,
        a: Csr<'_, Self>,
        indptr: Self::ViewMut<'_, u32>,
        indices: Self::ViewMut<'_, u32>,
        edge: Self::ViewMut<'_, u32>,
    ) -> Result<()>;

    /// `out[i] = 1 / (d + offset)` where `d` is the number of entries of row `i`, and 0 where `d + offset` is 0.
    ///
    /// `indptr: [out.len + 1]`, `offset ≥ 0`.
    fn inverse_degree(
        &self,
        indptr: Self::View<'_, u32>,
        offset: f64,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;
}
