//! Kernel family *attention*: softmax over a destination's in-edges, and the fused layers of GAT and GATv2.
//!
//! Words: a *message* goes from a source `s` to a destination `t`. The messages of row `t` are its entries, preceded
//! by one from source `t` itself if [`AttentionSpec::self_loop`] is set. `LR` is LeakyReLU with slope
//! [`AttentionSpec::slope`]. Vectors over heads are head-major: column `h · dim + d`.
//!
//! For each message and head there is a score; `α` is its softmax over the row's messages, and with dropout the message
//! has the weight `α̃ = α · keep / (1 − p)`:
//!
//! `out[t, h, :] = Σ α̃[s → t, h] · z[s, h, :]`
//!
//! The forward passes keep two numbers per row and head: `max`, the largest score, and `sum = Σ exp(score − max)`. The
//! backward passes compute the scores again. No pass needs memory for `[n_edge, heads, dim]` scalars. Rows without
//! messages give 0 in `out`, `max` and `sum`, and no gradient.

use crate::device::{
    Csr, Matrix, MatrixMut, Storage, Write, check_csr_lengths, check_matrix, check_matrix_mut, check_no_edge,
    check_same_shape,
};
use crate::error::{Error, Result, check_length};

/// Parameters that the fused kernels have in common.
pub struct AttentionSpec<'a, D: Storage> {
    /// Number of heads: at least 1, and a divisor of the columns of `z`.
    pub heads: usize,
    /// LeakyReLU's slope on the negative side.
    pub slope: f64,
    /// Whether each destination `t` gets one more message, from source `t`; then there are at least as many sources as
    /// destinations. An entry `t → t` of the pattern is a message of its own.
    pub self_loop: bool,
    /// Dropout of the attention.
    pub dropout: Option<AttentionDropout<'a, D>>,
}

impl<D: Storage> Clone for AttentionSpec<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for AttentionSpec<'_, D> {}

/// Inverted dropout of attention.
///
/// Head `h` of the message from vertex `s` to vertex `t` is kept iff word `h mod 4` of
/// `Philox(counter = [s, t, low(stream), high(stream) + 2^16 · ⌊h / 4⌋], key = [low(seed), high(seed)])` is at least
/// `⌊p · 2^32⌋`, with the vertices' ids in the whole graph: whether a message is kept does not depend on its place in
/// the batch or on the processing element that computes it. Parallel edges are kept or dropped together, and so are a
/// vertex's own edge and the added self-loop. With `high(stream) < 2^16` and `heads ≤ 2^18` no two heads share a word.
pub struct AttentionDropout<'a, D: Storage> {
    /// `0 ≤ p < 1`
    pub p: f64,
    /// Philox key.
    pub seed: u64,
    /// Tells apart the dropouts that share a seed.
    pub stream: u64,
    /// `[n_src]`: ids of the sources, the first of which are the destinations.
    pub vertices: D::View<'a, u32>,
}

impl<D: Storage> Clone for AttentionDropout<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for AttentionDropout<'_, D> {}

/// What [`Attention::gat_backward`] reads.
pub struct GatSaved<'a, D: Storage> {
    /// `[n_src, heads · dim]`
    pub z: Matrix<'a, D>,
    /// `[n_src, heads]`
    pub score_src: D::View<'a, D::Scalar>,
    /// `[n_dst, heads]`
    pub score_dst: D::View<'a, D::Scalar>,
    /// `[n_dst, heads]`
    pub max: D::View<'a, D::Scalar>,
    /// `[n_dst, heads]`
    pub sum: D::View<'a, D::Scalar>,
    /// `[n_dst, heads · dim]`: the forward pass's output.
    pub out: Matrix<'a, D>,
    /// `[n_dst, heads · dim]`: its gradient.
    pub dout: Matrix<'a, D>,
}

/// What [`Attention::gat_backward`] overwrites.
pub struct GatGradients<'a, D: Storage> {
    /// `[n_src, heads · dim]`: of `z` through the messages.
    pub dz: MatrixMut<'a, D>,
    /// `[n_src, heads]`
    pub dscore_src: D::ViewMut<'a, D::Scalar>,
    /// `[n_dst, heads]`: the self-loop's part of the gradient of `score_dst`; 0 without self-loops.
    pub dscore_dst_own: D::ViewMut<'a, D::Scalar>,
    /// `[n_edge, heads]`: the gradient of `score_src[s] + score_dst[t]`, in the order of the *transpose*'s entries. Its
    /// sum over the entries of a destination is the rest of the gradient of `score_dst`.
    pub dscore_edge: D::ViewMut<'a, D::Scalar>,
}

/// The dense operands of GATv2.
pub struct Gatv2Operands<'a, D: Storage> {
    /// `[n_src, heads · dim]`
    pub z_src: Matrix<'a, D>,
    /// `[n_dst, heads · dim]`
    pub z_dst: Matrix<'a, D>,
    /// `[heads · dim]`
    pub attention: D::View<'a, D::Scalar>,
}

impl<D: Storage> Clone for Gatv2Operands<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for Gatv2Operands<'_, D> {}

/// Softmax over in-edges, and fused graph attention.
pub trait Attention: Storage {
    /// `out[e, h] = exp(x[e, h] − m) / Σ exp(x[e', h] − m)` over the entries `e'` of the row that holds `e`, where `m`
    /// is their maximum.
    ///
    /// `x, out: [n_edge, heads]`. Of the pattern `a` only the rows count, not their columns; `a.edge` must be absent.
    ///
    /// Errors: `heads` is 0, `a.edge` is present, `x` or `out` does not have `n_edge * heads` elements, or the device
    /// fails.
    fn edge_softmax(
        &self,
        a: Csr<'_, Self>,
        heads: usize,
        x: Self::View<'_, Self::Scalar>,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `dx[e, h] = y[e, h] · (dout[e, h] − Σ_{e'} y[e', h] · dout[e', h])` from the *output* `y` of
    /// [`edge_softmax`](Attention::edge_softmax); all `[n_edge, heads]`.
    ///
    /// Errors: as [`edge_softmax`](Attention::edge_softmax), for `y`, `dout` and `dx`.
    fn edge_softmax_backward(
        &self,
        a: Csr<'_, Self>,
        heads: usize,
        y: Self::View<'_, Self::Scalar>,
        dout: Self::View<'_, Self::Scalar>,
        dx: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `out[i, h] = ⟨x[i, h, :], a[h, :]⟩`; `x: [n, heads · dim]`, `a: [heads · dim]`, `out: [n, heads]`.
    ///
    /// Errors: `heads` is 0 or does not divide `x.cols`, `a` does not have `x.cols` elements, `out` does not have
    /// `x.rows * heads`, or the device fails.
    fn head_dot(
        &self,
        x: Matrix<'_, Self>,
        a: Self::View<'_, Self::Scalar>,
        heads: usize,
        out: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// `dx[i, h, :] (= | +=) dout[i, h] · a[h, :]`; `dout: [n, heads]`, `a: [heads · dim]`, `dx: [n, heads · dim]`.
    ///
    /// Errors: `heads` is 0 or does not divide `dx.cols`, `a` does not have `dx.cols` elements, `dout` does not have
    /// `dx.rows * heads`, or the device fails.
    fn head_dot_backward_input(
        &self,
        a: Self::View<'_, Self::Scalar>,
        heads: usize,
        dout: Self::View<'_, Self::Scalar>,
        dx: MatrixMut<'_, Self>,
        write: Write,
    ) -> Result<()>;

    /// `da[h, :] = Σ_i dout[i, h] · x[i, h, :]`; shapes as in [`head_dot`](Attention::head_dot).
    ///
    /// Errors: `heads` is 0 or does not divide `x.cols`, `da` does not have `x.cols` elements, `dout` does not have
    /// `x.rows * heads`, or the device fails.
    fn head_dot_backward_vector(
        &self,
        x: Matrix<'_, Self>,
        heads: usize,
        dout: Self::View<'_, Self::Scalar>,
        da: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// GAT: the score of a message is `LR(score_src[s, h] + score_dst[t, h])`.
    ///
    /// `z: [n_src, heads · dim]`, `score_src: [n_src, heads]`, `score_dst, max, sum: [n_dst, heads]`,
    /// `out: [n_dst, heads · dim]`. `a.edge` must be absent. Reads `n_edge · heads · (dim + 1)` scalars.
    ///
    /// Errors: `a.edge` is present, a field of `spec` has a value that its documentation does not allow, an array has
    /// another shape than stated above, or the device fails.
    #[allow(clippy::too_many_arguments)]
    fn gat(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        z: Matrix<'_, Self>,
        score_src: Self::View<'_, Self::Scalar>,
        score_dst: Self::View<'_, Self::Scalar>,
        out: MatrixMut<'_, Self>,
        max: Self::ViewMut<'_, Self::Scalar>,
        sum: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// The gradient of [`gat`](Attention::gat), by the *transpose*, whose `edge` must be present: each source gathers
    /// `dout` of its destinations once. With `δ[t, h] = ⟨dout[t, h, :], out[t, h, :]⟩` and
    /// `g[s → t, h] = (α̃ · ⟨dout[t, h, :], z[s, h, :]⟩ − α · δ[t, h]) · LR'`:
    ///
    /// `dz[s] = Σ_t α̃ · dout[t]`, `dscore_src[s] = Σ_t g`, `dscore_edge = g`.
    ///
    /// Errors: `transpose.edge` is absent, a field of `spec` has a value that its documentation does not allow, an
    /// array of `saved` or `gradients` does not have its shape, or the device fails.
    fn gat_backward(
        &self,
        transpose: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        saved: GatSaved<'_, Self>,
        gradients: GatGradients<'_, Self>,
    ) -> Result<()>;

    /// GATv2: the score of a message is `⟨attention[h, :], LR(z_src[s, h, :] + z_dst[t, h, :])⟩`.
    ///
    /// `out: [n_dst, heads · dim]`, `max, sum: [n_dst, heads]`. `a.edge` must be absent.
    ///
    /// Errors: `a.edge` is present, a field of `spec` has a value that its documentation does not allow, an array of
    /// `operands`, `out`, `max` or `sum` does not have its shape, or the device fails.
    fn gatv2(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        out: MatrixMut<'_, Self>,
        max: Self::ViewMut<'_, Self::Scalar>,
        sum: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// The destinations' half of the gradient of [`gatv2`](Attention::gatv2), row by row of `a`.
    ///
    /// With `u = z_src[s] + z_dst[t]`, `α̃` and `α` as above and
    /// `g = α̃ · ⟨dout[t, h, :], z_src[s, h, :]⟩ − α · Σ_{s'} α̃ · ⟨dout[t, h, :], z_src[s', h, :]⟩`:
    /// `dz_dst[t] = Σ_s g · attention ⊙ LR'(u)` and `dattention[t] = Σ_s g · LR(u)`, whose sum over rows is the
    /// attention vector's gradient; both `[n_dst, heads · dim]`. `messages: [n_message, 2 · heads]` gets `α̃` and then
    /// `g` of each message, which [`gatv2_backward_sources`](Attention::gatv2_backward_sources) needs: first those of
    /// the `n_edge` entries, then those of the `n_dst` self-loops, if there are any.
    ///
    /// Errors: `a.edge` is present, a field of `spec` has a value that its documentation does not allow, an array does
    /// not have its shape (`dout: [n_dst, heads · dim]`, the others as above), or the device fails.
    #[allow(clippy::too_many_arguments)]
    fn gatv2_backward_destinations(
        &self,
        a: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        max: Self::View<'_, Self::Scalar>,
        sum: Self::View<'_, Self::Scalar>,
        dout: Matrix<'_, Self>,
        dz_dst: MatrixMut<'_, Self>,
        dattention: MatrixMut<'_, Self>,
        messages: Self::ViewMut<'_, Self::Scalar>,
    ) -> Result<()>;

    /// The sources' half: `dz_src[s] = Σ_t (α̃ · dout[t] + g · attention ⊙ LR'(u))` over the *transpose*, whose `edge`
    /// must be present; `dz_src: [n_src, heads · dim]`.
    ///
    /// Errors: `transpose.edge` is absent, a field of `spec` has a value that its documentation does not allow, an
    /// array does not have its shape (`messages` as
    /// [`gatv2_backward_destinations`](Attention::gatv2_backward_destinations) left them), or the device fails.
    fn gatv2_backward_sources(
        &self,
        transpose: Csr<'_, Self>,
        spec: AttentionSpec<'_, Self>,
        operands: Gatv2Operands<'_, Self>,
        dout: Matrix<'_, Self>,
        messages: Self::View<'_, Self::Scalar>,
        dz_src: MatrixMut<'_, Self>,
    ) -> Result<()>;
}

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
