//! Kernel family *structure*: what can be computed from a sparse pattern alone.

use crate::device::{Csr, Storage, check_csr_lengths, check_no_edge};
use crate::error::{Result, check_length};

/// Transposes, their positions, and degrees.
pub trait Structure: Storage {
    /// The transpose of `a`: rows become columns. Entries of a row ascend by their position in `a`.
    ///
    /// `indptr: [a.n_cols + 1]`, `indices, edge: [n_edge]` are overwritten; `edge[p]` is the position in `a` of entry
    /// `p`. O(n_cols + n_edge). `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, `indptr`, `indices` or `edge` does not have its length, or the device fails.
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
    ///
    /// Errors: `indptr` does not have one element more than `out`, or the device fails.
    fn inverse_degree(
        &self,
        indptr: Self::View<'_, u32>,
        offset: f64,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[i] = 1 / (w + offset)` where `w` is the sum of the weights of row `i`'s entries, added up in f64 in their
    /// order, and 0 where `w + offset` is 0.
    ///
    /// `weight: [n_edge]`, `out: [a.n_rows]`, `offset ≥ 0`. `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, `weight` or `out` does not have its length, or the device fails.
    fn inverse_weight_sum(
        &self,
        a: Csr<'_, Self>,
        weight: Self::View<'_, Self::Scalar>,
        offset: f64,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[permutation[i]] = i`; same length.
    ///
    /// Errors: `permutation` and `out` differ in length, an entry is not below their length
    /// ([`IndexOutOfRange`](crate::Error::IndexOutOfRange)), or the device fails.
    fn invert_permutation(&self, permutation: Self::View<'_, u32>, out: Self::ViewMut<'_, u32>)
    -> Result<()>;
}

/// `Ok` if the arguments of [`Structure::inverse_weight_sum`] fit together.
pub(crate) fn check_inverse_weight_sum<D: Storage>(
    a: &Csr<'_, D>,
    weight: &D::View<'_, D::Scalar>,
    out: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_no_edge(a)?;
    check_length("weight", D::view_len(weight), a.n_edge())?;
    check_length("out", D::view_mut_len(out), a.n_rows)
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
