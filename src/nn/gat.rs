//! GAT (Veličković et al. 2018) and GATv2 (Brody, Alon & Yahav 2022).

use std::sync::Arc;

use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::{AttentionOptions, Tape, Var};

/// How the outputs of a layer's heads are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heads {
    /// Side by side: `heads · dim` columns.
    Concatenate,
    /// Their mean: `dim` columns.
    Mean,
}

impl Heads {
    /// Columns of the output.
    pub fn width(self, heads: usize, dim: usize) -> usize {
        match self {
            Heads::Concatenate => heads * dim,
            Heads::Mean => dim,
        }
    }

    pub(super) fn combine<D: Device>(self, tape: &Tape<D>, x: Var, heads: usize) -> Result<Var> {
        match self {
            Heads::Concatenate => Ok(x),
            Heads::Mean => tape.head_mean(x, heads),
        }
    }
}

/// `out[t, h] = Σ_s α_h(s → t) z[s, h]` with `z = x W`, then concatenation or mean of the heads, plus a bias;
/// `α` is the softmax over the messages to `t` of `LeakyReLU(⟨a_src[h], z[s, h]⟩ + ⟨a_dst[h], z[t, h]⟩)`.
///
/// With [`AttentionOptions::self_loop`] each destination also sends a message to itself, as in the paper and in PyTorch
/// Geometric. PyTorch Geometric removes the graph's own self-loops first; here they count as well, so remove them from
/// the graph to get the same. Estimator weights of a block are not used: attention is over what was sampled.
#[derive(Debug)]
pub struct Gat {
    weight: ParameterId,
    attention_src: ParameterId,
    attention_dst: ParameterId,
    bias: ParameterId,
    options: AttentionOptions,
    heads: Heads,
}

impl Gat {
    /// Adds the layer's parameters: `weight: [in_dim, heads · dim]`, `attention_src, attention_dst: [1, heads · dim]`,
    /// and `bias: [1, heads · dim]`, or `[1, dim]` with [`Heads::Mean`].
    ///
    /// Errors: the device fails or is out of memory. `options` are checked by [`forward`](Layer::forward).
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        dim: usize,
        options: AttentionOptions,
        heads: Heads,
    ) -> Result<Self> {
        let width = options.heads * dim;
        let vector = attention_bound(options.heads, dim);
        let mut add =
            |name: &str, shape, initializer| parameters.add(device, layer, name, shape, initializer);
        Ok(Gat {
            weight: add("weight", [in_dim, width], Initializer::Glorot)?,
            attention_src: add("attention_src", [1, width], vector)?,
            attention_dst: add("attention_dst", [1, width], vector)?,
            bias: add("bias", [1, heads.width(options.heads, dim)], Initializer::Constant(0.0))?,
            options,
            heads,
        })
    }
}

/// Glorot's bound for a `[heads, dim]` matrix.
fn attention_bound(heads: usize, dim: usize) -> Initializer {
    Initializer::Bounded { bound: (6.0 / (heads + dim).max(1) as f64).sqrt() }
}

impl<D: Device> Layer<D> for Gat {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let z = x.project(pass, block.n_src(), pass.parameter(self.weight), None, None)?;
        let (a_src, a_dst) = (pass.parameter(self.attention_src), pass.parameter(self.attention_dst));
        let out = tape.gat(block, z, a_src, a_dst, self.options)?;
        let out = self.heads.combine(tape, out, self.options.heads)?;
        tape.add_bias(out, pass.parameter(self.bias), activation)
    }
}

/// Like [`Gat`], with scores `⟨a[h], LeakyReLU(z_src[s, h] + z_dst[t, h])⟩`, `z_src = x W_src + b_src`,
/// `z_dst = x W_dst + b_dst`, and messages `z_src`. Unlike in GAT, the order of the sources by their scores can differ
/// between destinations.
#[derive(Debug)]
pub struct Gatv2 {
    weight_src: ParameterId,
    bias_src: ParameterId,
    weight_dst: ParameterId,
    bias_dst: ParameterId,
    attention: ParameterId,
    bias: ParameterId,
    options: AttentionOptions,
    heads: Heads,
}

impl Gatv2 {
    /// Adds the layer's parameters: `weight_src, weight_dst: [in_dim, heads · dim]`, `bias_src, bias_dst, attention:
    /// [1, heads · dim]`, and `bias: [1, heads · dim]`, or `[1, dim]` with [`Heads::Mean`].
    ///
    /// Errors: the device fails or is out of memory. `options` are checked by [`forward`](Layer::forward).
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        dim: usize,
        options: AttentionOptions,
        heads: Heads,
    ) -> Result<Self> {
        let width = options.heads * dim;
        let vector = attention_bound(options.heads, dim);
        let zero = Initializer::Constant(0.0);
        let mut add =
            |name: &str, shape, initializer| parameters.add(device, layer, name, shape, initializer);
        Ok(Gatv2 {
            weight_src: add("weight_src", [in_dim, width], Initializer::Glorot)?,
            bias_src: add("bias_src", [1, width], zero)?,
            weight_dst: add("weight_dst", [in_dim, width], Initializer::Glorot)?,
            bias_dst: add("bias_dst", [1, width], zero)?,
            attention: add("attention", [1, width], vector)?,
            bias: add("bias", [1, heads.width(options.heads, dim)], zero)?,
            options,
            heads,
        })
    }
}

impl<D: Device> Layer<D> for Gatv2 {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let [w_src, b_src] = [self.weight_src, self.bias_src].map(|id| pass.parameter(id));
        let [w_dst, b_dst] = [self.weight_dst, self.bias_dst].map(|id| pass.parameter(id));
        let z_src = x.project(pass, block.n_src(), w_src, Some(b_src), None)?;
        let z_dst = x.project(pass, block.n_dst(), w_dst, Some(b_dst), None)?;
        let out = tape.gatv2(block, z_src, z_dst, pass.parameter(self.attention), self.options)?;
        let out = self.heads.combine(tape, out, self.options.heads)?;
        tape.add_bias(out, pass.parameter(self.bias), activation)
    }
}
