//! R-GCN (Schlichtkrull et al. 2018).

use std::sync::Arc;

use super::relation_weight::{Decomposition, RelationWeight};
use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::Block;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::tape::Var;

/// `h_t = W_root x_t + Σ_r W_r · mean_{s ∈ N_r(t)} x_s + b`, the mean over the block's in-edges of `t` of relation `r`
/// (0 without any; parallel edges count separately).
///
/// Over a block with estimator weights each relation's mean is weighted by them. The relations' matrices are
/// parameters of their own or decomposed: see [`Decomposition`]. Over one-hot vertex ids a message is the row of `W_r`
/// that the source's id names; rows that a block does not read cost nothing.
#[derive(Debug)]
pub struct Rgcn {
    weight: RelationWeight,
    root: ParameterId,
    bias: ParameterId,
}

impl Rgcn {
    /// Adds the layer's parameters: those of [`RelationWeight`], `root: [in_dim, out_dim]` and `bias: [1, out_dim]`.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        n_relations: usize,
        [in_dim, out_dim]: [usize; 2],
        decomposition: Decomposition,
    ) -> Result<Self> {
        let shape = [in_dim, out_dim];
        Ok(Rgcn {
            weight: RelationWeight::new(device, parameters, (layer, ""), n_relations, shape, decomposition)?,
            root: parameters.add(device, layer, "root", shape, Initializer::Glorot)?,
            bias: parameters.add(device, layer, "bias", [1, out_dim], Initializer::Constant(0.0))?,
        })
    }
}

impl<D: Device> Layer<D> for Rgcn {
    fn forward(&self, pass: &Pass<'_, D>, block: &Arc<Block<D>>, x: &Input<D>) -> Result<Var> {
        let tape = pass.tape;
        let n_relations = self.weight.n_relations();
        let weight = self.weight.on(pass)?;
        let messages = match x {
            Input::Dense(x) => tape.relation_aggregate(block, n_relations, *x, weight)?,
            Input::OneHot(_) => tape.relation_lookup(block, n_relations, weight)?,
            Input::Sparse(_) => return Err(needs_dense()),
        };
        let (root, bias) = (pass.parameter(self.root), pass.parameter(self.bias));
        tape.add(x.project(pass, block.n_dst(), root, Some(bias), None)?, messages)
    }
}

/// The error of relational layers over sparse rows.
pub(super) fn needs_dense() -> Error {
    Error::invalid("input", "sparse features", "dense ones: give the model an input embedding")
}
