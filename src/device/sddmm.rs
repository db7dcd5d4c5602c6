//! Kernel family *SDDMM*: a value per edge from the rows at its two ends.

use crate::device::{Csr, Matrix, Storage, Write};
use crate::error::Result;

/// Values per edge.
pub trait Sddmm: Storage {
    /// `out[e, h] (= | +=) ⟨x[indices[e], h, :], y[i, h, :]⟩` for the entries `e` of row `i`.
    ///
    /// `x: [n_cols, heads · dim]`, `y: [n_rows, heads · dim]`, `out: [n_edge, heads]`; `x.cols` must be a multiple of
    /// `heads`. The value is stored at the entry's own position; `a.edge` must be absent.
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
    fn sddmm_add(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        y: Matrix<'_, Self>,
        out: Self::ViewMut<'_, Self::Scalar>,
        write: Write,
    ) -> Result<()>;
}
