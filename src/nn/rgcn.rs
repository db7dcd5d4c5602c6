//! R-GCN (Schlichtkrull et al. 2018).

use std::sync::Arc;

use super::relation_weight::{Decomposition, RelationWeight, Root};
use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::{Block, RelationNeeds};
use crate::coop::InputTerms;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::Var;

/// `h_t = W_root x_t + Σ_r W_r · mean_{s ∈ N_r(t)} x_s + b`, the mean over the block's in-edges of `t` of relation `r`
/// (0 without any; parallel edges count separately).
///
/// Over a block with estimator or edge weights each relation's mean is weighted by them. The relations' matrices are
/// parameters of their own or decomposed: see [`Decomposition`]. Over one-hot vertex ids a message is the row of `W_r`
/// at the source's id; rows that a block does not read cost nothing.
#[derive(Debug)]
pub struct Rgcn {
    weight: RelationWeight,
    root: Root,
    bias: ParameterId,
}

impl Rgcn {
    /// Adds the layer's parameters: those of [`RelationWeight`]; `root: [in_dim, out_dim]` or, if it shares the bases
    /// (as the paper's self-loop relation does), `root_coefficients: [1, n_bases]`; `bias: [1, out_dim]`.
    ///
    /// Errors: those of [`RelationWeight::new`].
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        n_relations: usize,
        [in_dim, out_dim]: [usize; 2],
        decomposition: Decomposition,
        root_shares_bases: bool,
    ) -> Result<Self> {
        let shape = [in_dim, out_dim];
        let weight = RelationWeight::new(device, parameters, (layer, ""), n_relations, shape, decomposition)?;
        Ok(Rgcn {
            root: weight.add_root(device, parameters, layer, root_shares_bases)?,
            weight,
            bias: parameters.add(device, layer, "bias", [1, out_dim], Initializer::Constant(0.0))?,
        })
    }
}

impl<D: Device> Layer<D> for Rgcn {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let (tape, bias) = (pass.tape, pass.parameter(self.bias));
        if let Input::Dense(x) = *x {
            let weights = [x, self.weight.on(pass)?];
            let root = Some(self.root.on(pass)?);
            let n_relations = self.weight.n_relations();
            return tape.relation_aggregate(block, n_relations, weights, root, Some(bias), activation);
        }
        let terms = <Self as Layer<D>>::input_terms(self);
        let weights = || Ok(vec![self.root.on(pass)?, self.weight.on(pass)?]);
        if let Some(out) = x.sliced_product(tape, terms, weights, Some(bias), activation)? {
            return Ok(out);
        }
        let messages = self.weight.aggregate_ids(pass, block, x)?;
        let sum = tape.add(self.root.project(pass, block, x)?, messages)?;
        tape.add_bias(sum, bias, activation)
    }

    fn relation_needs(&self) -> Option<RelationNeeds> {
        Some(RelationNeeds { n_relations: self.weight.n_relations(), ends: false })
    }

    fn input_terms(&self) -> Option<InputTerms> {
        Some(InputTerms::Relations(self.weight.n_relations()))
    }
}
