//! Kernel family *GEMM*: dense times dense.

use crate::device::{
    Activation, Elementwise, Matrix, MatrixMut, Storage, Write, check_matrix, check_matrix_mut,
};
use crate::error::{Error, Result, check_length};

/// Dense matrix product.
pub trait Gemm: Elementwise {
    /// `out (= | +=) op(a) · op(b)`, where `op` transposes if the flag beside the operand is set.
    ///
    /// With `op(a): [m, k]` and `op(b): [k, n]`, `out: [m, n]`. `k = 0` gives zeros (or leaves `out` with
    /// [`Write::Add`]).
    ///
    /// Errors: the shapes of `a`, `b` and `out` do not fit together, cuBLAS cannot be loaded
    /// ([`Unavailable`](crate::Error::Unavailable)), or the device fails.
    fn gemm(
        &self,
        a: Matrix<'_, Self>,
        transpose_a: bool,
        b: Matrix<'_, Self>,
        transpose_b: bool,
        out: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// `out = f(Σ_i a_i · b_i + bias)` over `terms` `(a_i, b_i)`, of which there is at least one.
    ///
    /// `a_i: [m, k_i]`, `b_i: [k_i, n]`, `bias: [n]`, `out: [m, n]`; `activation` absent: identity. Gives the same
    /// numbers as one [`gemm`](Gemm::gemm) per term, followed by [`add_bias_activate`](Elementwise::add_bias_activate).
    ///
    /// Errors: `terms` is empty, the shapes of a term and `out` do not fit together, `bias` does not have `n` elements,
    /// cuBLAS cannot be loaded, or the device fails.
    fn linear(
        &self,
        terms: &[(Matrix<'_, Self>, Matrix<'_, Self>)],
        bias: Option<Self::View<'_, Self::Scalar>>,
        activation: Option<Activation>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        linear_apart(self, terms, bias, activation, out)
    }
}

/// [`Gemm::linear`] by separate kernels, one after the other.
pub(crate) fn linear_apart<D: Gemm>(
    device: &D,
    terms: &[(Matrix<'_, D>, Matrix<'_, D>)],
    bias: Option<D::View<'_, D::Scalar>>,
    activation: Option<Activation>,
    mut out: MatrixMut<'_, D>,
) -> Result<()> {
    check_terms(terms, bias.as_ref(), &out)?;
    let mut write = Write::Assign;
    for &(a, b) in terms {
        device.gemm(a, false, b, false, out.reborrow(), write)?;
        write = Write::Add;
    }
    if bias.is_some() || activation.is_some() {
        device.add_bias_activate(bias, activation, out)?;
    }
    Ok(())
}

/// `Ok` if the arguments of [`Gemm::linear`] fit together.
pub(crate) fn check_terms<D: Storage>(
    terms: &[(Matrix<'_, D>, Matrix<'_, D>)],
    bias: Option<&D::View<'_, D::Scalar>>,
    out: &MatrixMut<'_, D>,
) -> Result<()> {
    if terms.is_empty() {
        return Err(Error::invalid("terms", "empty", "at least one product"));
    }
    check_length("bias", bias.map_or(out.cols, |bias| D::view_len(bias)), out.cols)?;
    terms.iter().try_for_each(|(a, b)| check_gemm(a, false, b, false, out).map(drop))
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
