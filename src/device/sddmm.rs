//! Kernel family *SDDMM*: a value per edge from the rows at its two ends.

use crate::device::{
    Csr, Matrix, Storage, Write, check_csr_lengths, check_matrix, check_no_edge, check_same_shape,
};
use crate::error::{Error, Result, check_length};

/// Values per edge.
pub trait Sddmm: Storage {
    /// `out[e, h] (= | +=) ⟨x[indices[e], h, :], y[i, h, :]⟩` for the entries `e` of row `i`.
    ///
    /// `x: [n_cols, heads · dim]`, `y: [n_rows, heads · dim]`, `out: [n_edge, heads]`; `x.cols` must be a multiple of
    /// `heads`. The value is stored at the entry's own position; `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, `heads` is 0 or does not divide `x.cols`, `x`, `y` or `out` does not have its
    /// shape, or the device fails.
    fn sddmm_dot(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        y: Matrix<'_, Self>,
        heads: usize,
        out: Self::ViewMut<'_, Self::Scalar>,
        write: Write,
    ) -> Result<()>;

    /// `out[e, c] (= | +=) x[indices[e], c] + y[i, c]` for the entries `e` of row `i`.
    ///
    /// `x: [n_cols, cols]`, `y: [n_rows, cols]`, `out: [n_edge, cols]`. The value is stored at the entry's own
    /// position; `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, `x`, `y` or `out` does not have its shape, or the device fails.
    fn sddmm_add(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        y: Matrix<'_, Self>,
        out: Self::ViewMut<'_, Self::Scalar>,
        write: Write,
    ) -> Result<()>;
}

/// `Ok` if the arguments of [`Sddmm::sddmm_dot`] fit together.
pub(crate) fn check_sddmm_dot<D: Storage>(
    a: &Csr<'_, D>,
    x: &Matrix<'_, D>,
    y: &Matrix<'_, D>,
    heads: usize,
    out: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_ends("sddmm_dot", a, x, y)?;
    if heads == 0 || !x.cols.is_multiple_of(heads) {
        return Err(Error::invalid("heads", heads, format!("a divisor of the {} columns", x.cols)));
    }
    check_length("out", D::view_mut_len(out), D::view_len(&a.indices) * heads)
}

/// `Ok` if the arguments of [`Sddmm::sddmm_add`] fit together.
pub(crate) fn check_sddmm_add<D: Storage>(
    a: &Csr<'_, D>,
    x: &Matrix<'_, D>,
    y: &Matrix<'_, D>,
    out: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_ends("sddmm_add", a, x, y)?;
    check_length("out", D::view_mut_len(out), D::view_len(&a.indices) * x.cols)
}

/// `Ok` if `x: [n_cols, cols]` and `y: [n_rows, cols]`, and the pattern has no positions.
fn check_ends<D: Storage>(
    op: &'static str,
    a: &Csr<'_, D>,
    x: &Matrix<'_, D>,
    y: &Matrix<'_, D>,
) -> Result<()> {
    check_csr_lengths(a)?;
    check_no_edge(a)?;
    check_matrix(x)?;
    check_matrix(y)?;
    check_same_shape(op, "x", x.shape(), "required", [a.n_cols, x.cols])?;
    check_same_shape(op, "y", y.shape(), "required", [a.n_rows, x.cols])
}
