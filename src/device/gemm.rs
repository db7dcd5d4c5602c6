//! Kernel family *GEMM*: dense times dense.

use crate::device::{Matrix, MatrixMut, Storage, Write};
use crate::error::Result;

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
