//! Whether the arguments of [`Attention`](super::Attention) have the shapes that it asks for.

use super::{AttentionSpec, GatGradients, GatSaved, Gatv2Operands};
use crate::device::{
    Csr, Matrix, MatrixMut, Storage, check_csr_lengths, check_matrix, check_matrix_mut, check_no_edge,
    check_same_shape,
};
use crate::error::{Error, Result, check_length};

/// Number of messages: entries, and self-loops if there are any.
fn n_message<D: Storage>(spec: &AttentionSpec<'_, D>, n_edge: usize, n_dst: usize) -> usize {
    n_edge + if spec.self_loop { n_dst } else { 0 }
}

/// Columns per head; an error if `heads` does not divide `cols`.
fn head_dim(heads: usize, cols: usize) -> Result<usize> {
    if heads == 0 || !cols.is_multiple_of(heads) {
        return Err(Error::invalid("heads", heads, format!("a divisor of the {cols} columns")));
    }
    Ok(cols / heads)
}

/// `Ok` if `heads` divides the columns of a `[rows, cols]` matrix, and there are a vector per head and a number per row
/// and head.
fn check_head_dot(
    [rows, cols]: [usize; 2],
    heads: usize,
    (vector, vector_len): (&'static str, usize),
    (dots, dots_len): (&'static str, usize),
) -> Result<()> {
    head_dim(heads, cols)?;
    check_length(vector, vector_len, cols)?;
    check_length(dots, dots_len, rows * heads)
}

/// `Ok` if the arguments of [`Attention::head_dot`] fit together.
pub(crate) fn check_dot<D: Storage>(
    x: &Matrix<'_, D>,
    a: &D::View<'_, D::Scalar>,
    heads: usize,
    out: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_matrix(x)?;
    check_head_dot(x.shape(), heads, ("a", D::view_len(a)), ("out", D::view_mut_len(out)))
}

/// The same for [`Attention::head_dot_backward_input`].
pub(crate) fn check_dot_input<D: Storage>(
    a: &D::View<'_, D::Scalar>,
    heads: usize,
    dout: &D::View<'_, D::Scalar>,
    dx: &MatrixMut<'_, D>,
) -> Result<()> {
    check_matrix_mut(dx)?;
    check_head_dot(dx.shape(), heads, ("a", D::view_len(a)), ("dout", D::view_len(dout)))
}

/// The same for [`Attention::head_dot_backward_vector`].
pub(crate) fn check_dot_vector<D: Storage>(
    x: &Matrix<'_, D>,
    heads: usize,
    dout: &D::View<'_, D::Scalar>,
    da: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_matrix(x)?;
    check_head_dot(x.shape(), heads, ("da", D::view_mut_len(da)), ("dout", D::view_len(dout)))
}

/// The same for [`Attention::edge_softmax`] and its gradient, whose arrays are `[n_edge, heads]`.
pub(crate) fn check_edge_softmax<D: Storage, const N: usize>(
    a: &Csr<'_, D>,
    heads: usize,
    arrays: [(&'static str, usize); N],
) -> Result<()> {
    check_csr_lengths(a)?;
    check_no_edge(a)?;
    if heads == 0 {
        return Err(Error::invalid("heads", 0, "at least 1"));
    }
    let required = a.n_edge().saturating_mul(heads);
    arrays.into_iter().try_for_each(|(name, len)| check_length(name, len, required))
}

/// The same for [`Attention::gat`], except for the pattern.
#[allow(clippy::too_many_arguments)]
pub(crate) fn check_gat<D: Storage>(
    a: &Csr<'_, D>,
    spec: &AttentionSpec<'_, D>,
    z: &Matrix<'_, D>,
    score_src: &D::View<'_, D::Scalar>,
    score_dst: &D::View<'_, D::Scalar>,
    out: &MatrixMut<'_, D>,
    max: &D::ViewMut<'_, D::Scalar>,
    sum: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_no_edge(a)?;
    check_spec(spec, a.n_rows, a.n_cols, z.cols)?;
    check_same_shape("gat", "z", z.shape(), "required", [a.n_cols, z.cols])?;
    check_same_shape("gat", "out", out.shape(), "required", [a.n_rows, z.cols])?;
    check_matrix(z)?;
    check_matrix_mut(out)?;
    check_length("score_src", D::view_len(score_src), a.n_cols * spec.heads)?;
    check_length("score_dst", D::view_len(score_dst), a.n_rows * spec.heads)?;
    check_length("max", D::view_mut_len(max), a.n_rows * spec.heads)?;
    check_length("sum", D::view_mut_len(sum), a.n_rows * spec.heads)
}

/// The same for [`Attention::gat_backward`].
pub(crate) fn check_gat_backward<D: Storage>(
    transpose: &Csr<'_, D>,
    spec: &AttentionSpec<'_, D>,
    saved: &GatSaved<'_, D>,
    gradients: &GatGradients<'_, D>,
) -> Result<()> {
    let (n_src, n_dst, width) = (transpose.n_rows, transpose.n_cols, saved.z.cols);
    check_edge(transpose)?;
    check_spec(spec, n_dst, n_src, width)?;
    for (name, shape, rows) in [
        ("z", saved.z.shape(), n_src),
        ("dz", gradients.dz.shape(), n_src),
        ("out", saved.out.shape(), n_dst),
        ("dout", saved.dout.shape(), n_dst),
    ] {
        check_same_shape("gat_backward", name, shape, "required", [rows, width])?;
    }
    check_matrix(&saved.z)?;
    check_matrix(&saved.out)?;
    check_matrix(&saved.dout)?;
    check_matrix_mut(&gradients.dz)?;
    for (name, len, rows) in [
        ("score_src", D::view_len(&saved.score_src), n_src),
        ("score_dst", D::view_len(&saved.score_dst), n_dst),
        ("max", D::view_len(&saved.max), n_dst),
        ("sum", D::view_len(&saved.sum), n_dst),
        ("dscore_src", D::view_mut_len(&gradients.dscore_src), n_src),
        ("dscore_dst_own", D::view_mut_len(&gradients.dscore_dst_own), n_dst),
        ("dscore_edge", D::view_mut_len(&gradients.dscore_edge), D::view_len(&transpose.indices)),
    ] {
        check_length(name, len, rows * spec.heads)?;
    }
    Ok(())
}

/// The same for [`Attention::gatv2`], except for the pattern.
pub(crate) fn check_gatv2<D: Storage>(
    a: &Csr<'_, D>,
    spec: &AttentionSpec<'_, D>,
    operands: &Gatv2Operands<'_, D>,
    out: &MatrixMut<'_, D>,
    max: &D::ViewMut<'_, D::Scalar>,
    sum: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    check_no_edge(a)?;
    check_operands(spec, a.n_rows, a.n_cols, operands)?;
    check_same_shape("gatv2", "out", out.shape(), "required", [a.n_rows, operands.z_src.cols])?;
    check_matrix_mut(out)?;
    check_length("max", D::view_mut_len(max), a.n_rows * spec.heads)?;
    check_length("sum", D::view_mut_len(sum), a.n_rows * spec.heads)
}

/// The same for [`Attention::gatv2_backward_destinations`].
#[allow(clippy::too_many_arguments)]
pub(crate) fn check_gatv2_destinations<D: Storage>(
    a: &Csr<'_, D>,
    spec: &AttentionSpec<'_, D>,
    operands: &Gatv2Operands<'_, D>,
    [max, sum]: [&D::View<'_, D::Scalar>; 2],
    dout: &Matrix<'_, D>,
    dz_dst: &MatrixMut<'_, D>,
    dattention: &MatrixMut<'_, D>,
    messages: &D::ViewMut<'_, D::Scalar>,
) -> Result<()> {
    const OP: &str = "gatv2_backward_destinations";
    check_no_edge(a)?;
    check_operands(spec, a.n_rows, a.n_cols, operands)?;
    let required = [a.n_rows, operands.z_src.cols];
    check_same_shape(OP, "dout", dout.shape(), "required", required)?;
    check_matrix(dout)?;
    check_same_shape(OP, "dz_dst", dz_dst.shape(), "required", required)?;
    check_matrix_mut(dz_dst)?;
    check_same_shape(OP, "dattention", dattention.shape(), "required", required)?;
    check_matrix_mut(dattention)?;
    check_length("max", D::view_len(max), a.n_rows * spec.heads)?;
    check_length("sum", D::view_len(sum), a.n_rows * spec.heads)?;
    let n_message = n_message(spec, D::view_len(&a.indices), a.n_rows);
    check_length("messages", D::view_mut_len(messages), n_message * 2 * spec.heads)
}

/// The same for [`Attention::gatv2_backward_sources`].
pub(crate) fn check_gatv2_sources<D: Storage>(
    transpose: &Csr<'_, D>,
    spec: &AttentionSpec<'_, D>,
    operands: &Gatv2Operands<'_, D>,
    dout: &Matrix<'_, D>,
    messages: &D::View<'_, D::Scalar>,
    dz_src: &MatrixMut<'_, D>,
) -> Result<()> {
    const OP: &str = "gatv2_backward_sources";
    let (n_src, n_dst, n_edge) = (transpose.n_rows, transpose.n_cols, D::view_len(&transpose.indices));
    check_edge(transpose)?;
    check_operands(spec, n_dst, n_src, operands)?;
    check_same_shape(OP, "dout", dout.shape(), "required", operands.z_dst.shape())?;
    check_same_shape(OP, "dz_src", dz_src.shape(), "required", operands.z_src.shape())?;
    check_matrix(dout)?;
    check_matrix_mut(dz_src)?;
    check_length("messages", D::view_len(messages), n_message(spec, n_edge, n_dst) * 2 * spec.heads)
}

/// `Ok` if `a.edge` is present, as a transpose has it.
fn check_edge<D: Storage>(a: &Csr<'_, D>) -> Result<()> {
    match a.edge {
        Some(_) => Ok(()),
        None => Err(Error::invalid("edge", "absent", "the positions that a transpose has")),
    }
}

fn check_spec<D: Storage>(
    spec: &AttentionSpec<'_, D>,
    n_dst: usize,
    n_src: usize,
    cols: usize,
) -> Result<()> {
    head_dim(spec.heads, cols)?;
    if spec.self_loop && n_src < n_dst {
        return Err(Error::invalid("self_loop", true, "at least as many sources as destinations"));
    }
    let Some(dropout) = &spec.dropout else { return Ok(()) };
    check_length("vertices", D::view_len(&dropout.vertices), n_src)?;
    if n_src < n_dst {
        return Err(Error::invalid("vertices", n_src, format!("at least the {n_dst} destinations")));
    }
    if spec.heads > 1 << 18 {
        return Err(Error::invalid("heads", spec.heads, "at most 2^18 with dropout"));
    }
    if !(0.0..1.0).contains(&dropout.p) {
        return Err(Error::invalid("p", dropout.p, "a dropout probability of at least 0 and below 1"));
    }
    Ok(())
}

fn check_operands<D: Storage>(
    spec: &AttentionSpec<'_, D>,
    n_dst: usize,
    n_src: usize,
    operands: &Gatv2Operands<'_, D>,
) -> Result<()> {
    let cols = operands.z_src.cols;
    check_spec(spec, n_dst, n_src, cols)?;
    check_same_shape("gatv2", "z_src", operands.z_src.shape(), "required", [n_src, cols])?;
    check_same_shape("gatv2", "z_dst", operands.z_dst.shape(), "required", [n_dst, cols])?;
    check_matrix(&operands.z_src)?;
    check_matrix(&operands.z_dst)?;
    check_length("attention", D::view_len(&operands.attention), cols)
}
