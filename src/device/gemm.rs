//! Kernel family *GEMM*: dense times dense.

use crate::device::{Matrix, MatrixMut, Storage, Write, check_matrix, check_matrix_mut};
use crate::error::{Error, Result};

/// Dense matrix product.
pub trait Gemm: Storage {
    /// `out (= | +=) op(a) · op(b)`, where `op` transposes if the flag beside the operand is set.
    ///
    /// With `op(a): [m, k]` and `op(b): [k, n]`, `out: [m, n]`. `k = 0` gives zeros (or leaves `out` with
    /// [`Write::Add`]).
    fn gemm(
        &self,
        a: Matrix<'_, Self>,
        transpose_a: bool,
        b: Matrix<'_, Self>,
        transpose_b: bool,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;
}

/// `[m, k, n]` of a product; an error if the shapes do not fit.
pub(crate) fn check_gemm<D: Storage>(
    a: &Matrix<'_, D>,
    transpose_a: bool,
    b: &Matrix<'_, D>,
    transpose_b: bool,
    out: &MatrixMut<'_, D>,
) -> Result<[usize; 3]> {
    check_matrix(a)?;
    check_matrix(b)?;
    check_matrix_mut(out)?;
    let shape = |x: &Matrix<'_, D>, transpose| if transpose { [x.cols, x.rows] } else { [x.rows, x.cols] };
    let (a, b) = (shape(a, transpose_a), shape(b, transpose_b));
    let mismatch = |left_name, left, right_name, right| {
        Err(Error::ShapeMismatch { op: "gemm", left_name, left, right_name, right })
    };
    if a[1] != b[0] {
        return mismatch("op(a)", a, "op(b)", b);
    }
    if out.shape() != [a[0], b[1]] {
        return mismatch("out", out.shape(), "op(a) · op(b)", [a[0], b[1]]);
    }
    Ok([a[0], a[1], b[1]])
}
