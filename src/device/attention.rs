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

mod checks;

pub(crate) use self::checks::{
    check_dot, check_dot_input, check_dot_vector, check_edge_softmax, check_gat, check_gat_backward,
    check_gatv2, check_gatv2_destinations, check_gatv2_sources,
};
use crate::device::{Csr, Matrix, MatrixMut, Storage, Write};
use crate::error::Result;

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
