//! R-GAT (Busbridge, Sherburn, Cavallo & Hammerla 2019).

use std::sync::Arc;

use super::gat::Heads;
use super::relation_weight::{Decomposition, RelationWeight};
use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::{Block, RelationNeeds};
use crate::device::{Activation, Device, Direction};
use crate::error::Result;
use crate::tape::Var;

/// Heads and scores of an [`Rgat`] layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RgatOptions {
    /// Number of heads.
    pub n_heads: usize,
    /// How their outputs are combined.
    pub heads: Heads,
    /// LeakyReLU's slope on the negative side.
    pub slope: f64,
}

/// `h_t[h] = x_t W_root[h] + Σ_r Σ_{s ∈ N_r(t)} α_r[h](s → t) · x_s W_r[h]`, then concatenation or mean of the heads,
/// plus a bias.
///
/// `α` is the softmax of `LeakyReLU(x_t Q_r[h] + x_s K_r[h])` over *all* in-edges of `t`, whatever their relation: the
/// paper's ARGAT with additive scores, where relations compete. (Its other form, WIRGAT, takes the softmax within each
/// relation.) The paper's query and key kernels act on `x W_r`; `Q_r` and `K_r: [in_dim, 1]` are their products with
/// `W_r`, as parameters of their own. The root term, which is a relation in the paper, takes no part in the softmax: a
/// vertex without in-edges keeps it. Estimator weights of a block are not used: attention is over what was sampled.
#[derive(Debug)]
pub struct Rgat {
    weight: RelationWeight,
    query: RelationWeight,
    key: RelationWeight,
    root: ParameterId,
    bias: ParameterId,
    options: RgatOptions,
}

impl Rgat {
    /// Adds the layer's parameters: those of [`RelationWeight`] for `W`, with `heads · dim` columns; `query_weight` and
    /// `key_weight`, not decomposed, with one column per head; `root: [in_dim, heads · dim]`; and
    /// `bias: [1, heads · dim]`, or `[1, dim]` with [`Heads::Mean`].
    ///
    /// Errors: those of [`RelationWeight::new`]. The number of heads is checked by [`forward`](Layer::forward).
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        n_relations: usize,
        [in_dim, dim]: [usize; 2],
        options: RgatOptions,
        decomposition: Decomposition,
    ) -> Result<Self> {
        let (n_heads, width) = (options.n_heads, options.n_heads * dim);
        let scores = [in_dim, n_heads];
        let mut relations = |name, shape, decomposition| {
            RelationWeight::new(device, parameters, (layer, name), n_relations, shape, decomposition)
        };
        let weight = relations("", [in_dim, width], decomposition)?;
        let query = relations("query_", scores, Decomposition::Full)?;
        let key = relations("key_", scores, Decomposition::Full)?;
        let out_dim = options.heads.width(n_heads, dim);
        Ok(Rgat {
            weight,
            query,
            key,
            root: parameters.add(device, layer, "root", [in_dim, width], Initializer::Glorot)?,
            bias: parameters.add(device, layer, "bias", [1, out_dim], Initializer::Constant(0.0))?,
            options,
        })
    }
}

impl<D: Device> Layer<D> for Rgat {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let n_relations = self.weight.n_relations();
        let messages = self.weight.transform(pass, block, Direction::Backward, x)?;
        let keys = self.key.transform(pass, block, Direction::Backward, x)?;
        let queries = self.query.transform(pass, block, Direction::Forward, x)?;
        let scores = tape.relation_scores(block, n_relations, queries, keys)?;
        let scores = tape.activate(scores, Activation::LeakyRelu { slope: self.options.slope })?;
        let attention = tape.edge_softmax(block, scores)?;
        let attended = tape.relation_attend(block, n_relations, messages, attention)?;
        let own = x.project(pass, block.n_dst(), pass.parameter(self.root), None, None)?;
        let out = self.options.heads.combine(tape, tape.add(own, attended)?, self.options.n_heads)?;
        tape.add_bias(out, pass.parameter(self.bias), activation)
    }

    fn relation_needs(&self) -> Option<RelationNeeds> {
        Some(RelationNeeds { n_relations: self.weight.n_relations(), ends: true })
    }
}
