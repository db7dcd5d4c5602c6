//! GraphSAGE (Hamilton, Ying & Leskovec 2017).

use std::sync::Arc;

use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::Block;
use crate::device::Device;
use crate::error::Result;
use crate::tape::{Aggregate, Var};

/// `h_t = W_self x_t + W_neighbor · mean_s x_s + b`, the mean over the block's in-edges of `t` (0 without any).
///
/// Over a block with estimator weights (LABOR) the mean is weighted by them. The mean is taken before or after the
/// product with `W_neighbor`, whichever is narrower.
#[derive(Debug)]
pub struct GraphSage {
    weight_self: ParameterId,
    weight_neighbor: ParameterId,
    bias: ParameterId,
    out_dim: usize,
}

impl GraphSage {
    /// Adds the layer's parameters: `weight_self, weight_neighbor: [in_dim, out_dim]` and `bias: [1, out_dim]`.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        out_dim: usize,
    ) -> Result<Self> {
        let shape = [in_dim, out_dim];
        Ok(GraphSage {
            weight_self: parameters.add(device, layer, "weight_self", shape, Initializer::Glorot)?,
            weight_neighbor: parameters.add(device, layer, "weight_neighbor", shape, Initializer::Glorot)?,
            bias: parameters.add(device, layer, "bias", [1, out_dim], Initializer::Constant(0.0))?,
            out_dim,
        })
    }
}

impl<D: Device> Layer<D> for GraphSage {
    fn forward(&self, pass: &Pass<'_, D>, block: &Arc<Block<D>>, x: &Input<D>) -> Result<Var> {
        let tape = pass.tape;
        let (w_self, w_neighbor) = (pass.parameter(self.weight_self), pass.parameter(self.weight_neighbor));
        let bias = Some(pass.parameter(self.bias));
        if let Some(x) = x.aggregate_first(tape, self.out_dim) {
            let mean = tape.aggregate(block, x, Aggregate::Mean)?;
            let own = tape.prefix(x, block.n_dst())?;
            return tape.linear(&[(own, w_self), (mean, w_neighbor)], bias, None);
        }
        let own = x.project(pass, block.n_dst(), w_self, bias, None)?;
        let messages = x.project(pass, block.n_src(), w_neighbor, None, None)?;
        tape.add(own, tape.aggregate(block, messages, Aggregate::Mean)?)
    }
}
