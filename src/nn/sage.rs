//! GraphSAGE (Hamilton, Ying & Leskovec 2017).

use std::sync::Arc;

use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass, activate};
use crate::block::Block;
use crate::coop::InputTerms;
use crate::device::{Activation, Device};
use crate::error::{Error, Result};
use crate::tape::{Aggregate, Tape, Var};

/// How GraphSAGE combines the neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregator {
    /// Their mean, weighted by the block's estimator weights (as from LABOR) and edge weights if it has any
    /// ([`Block::mean_weights`]).
    Mean,
    /// Their sum, weighted by the block's edge weights if it has any. Over a sampled block it is the sum of what was
    /// sampled.
    Sum,
    /// The largest value of each column. An error over a block with edge weights.
    Max,
}

impl Aggregator {
    fn apply<D: Device>(self, tape: &Tape<D>, block: &Arc<Block<D>>, x: Var) -> Result<Var> {
        match self.linear() {
            Some(aggregate) => tape.aggregate(block, x, aggregate),
            None if block.edge_weight().is_some() => {
                Err(Error::invalid("block", "with edge weights", "one without, to take the maximum over"))
            }
            None => tape.aggregate_max(block, x),
        }
    }

    /// The aggregate, if it is linear.
    fn linear(self) -> Option<Aggregate> {
        match self {
            Aggregator::Mean => Some(Aggregate::Mean),
            Aggregator::Sum => Some(Aggregate::Sum),
            Aggregator::Max => None,
        }
    }
}

/// `h_t = W_self x_t + W_neighbor · aggregate_s x_s + b` over the block's in-edges of `t` (0 without any).
///
/// Mean and sum are taken before or after the product with `W_neighbor`, where there are fewer columns.
#[derive(Debug)]
pub struct GraphSage {
    weight_self: ParameterId,
    weight_neighbor: ParameterId,
    bias: Option<ParameterId>,
    in_dim: usize,
    out_dim: usize,
    aggregator: Aggregator,
}

impl GraphSage {
    /// Adds the parameters of a layer that takes means: `weight_self, weight_neighbor: [in_dim, out_dim]` and
    /// `bias: [1, out_dim]`.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        out_dim: usize,
    ) -> Result<Self> {
        let weights = Initializer::Glorot;
        let mut sage = GraphSage::without_bias(device, parameters, layer, in_dim, out_dim, weights)?;
        sage.bias = Some(parameters.add(device, layer, "bias", [1, out_dim], Initializer::Constant(0.0))?);
        Ok(sage)
    }

    pub(super) fn without_bias<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        out_dim: usize,
        weights: Initializer,
    ) -> Result<Self> {
        let shape = [in_dim, out_dim];
        Ok(GraphSage {
            weight_self: parameters.add(device, layer, "weight_self", shape, weights)?,
            weight_neighbor: parameters.add(device, layer, "weight_neighbor", shape, weights)?,
            bias: None,
            in_dim,
            out_dim,
            aggregator: Aggregator::Mean,
        })
    }

    /// The same layer with another aggregator.
    pub fn with_aggregator(self, aggregator: Aggregator) -> Self {
        GraphSage { aggregator, ..self }
    }

    /// The layer, with the destinations' own rows taken from the first rows of `own` instead of `x`: after two separate
    /// dropouts these differ.
    pub(super) fn forward_with_own<D: Device>(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        own: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let (w_self, w_neighbor) = (pass.parameter(self.weight_self), pass.parameter(self.weight_neighbor));
        let bias = self.bias.map(|bias| pass.parameter(bias));
        if let Some(x) = x.aggregated(self.aggregator.linear())? {
            return tape.linear(&[(x, tape.stack(&[w_self, w_neighbor])?)], bias, activation);
        }
        let terms = self.aggregator.linear().map(InputTerms::Aggregate);
        let weights = || Ok(vec![w_self, w_neighbor]);
        if let Some(out) = x.sliced_product(tape, terms, weights, bias, activation)? {
            return Ok(out);
        }
        let first = match (x, self.aggregator) {
            // A maximum of products is not the product of the maximum.
            (Input::Dense(x), Aggregator::Max) => Some(*x),
            (Input::Sparse(_) | Input::OneHot(_), Aggregator::Max) => {
                let found = if let Input::OneHot(_) = x { "one-hot ids" } else { "sparse" };
                let expected = "dense ones (or an input embedding), to take the maximum of";
                return Err(Error::invalid("features", found, expected));
            }
            _ => x.aggregate_first(tape, self.out_dim),
        };
        match (first, own) {
            (Some(x), Input::Dense(own)) => {
                let neighbors = self.aggregator.apply(tape, block, x)?;
                let own = tape.prefix(*own, block.n_dst())?;
                tape.linear(&[(own, w_self), (neighbors, w_neighbor)], bias, activation)
            }
            _ => {
                let own = own.project(pass, block.n_dst(), w_self, bias, None)?;
                let messages = x.project(pass, block.n_src(), w_neighbor, None, None)?;
                let sum = tape.add(own, self.aggregator.apply(tape, block, messages)?)?;
                activate(tape, sum, activation)
            }
        }
    }
}

impl<D: Device> Layer<D> for GraphSage {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        self.forward_with_own(pass, block, x, x, activation)
    }

    fn input_terms(&self) -> Option<InputTerms> {
        self.aggregator.linear().map(InputTerms::Aggregate)
    }

    fn input_aggregate(&self) -> Option<Aggregate> {
        self.aggregator.linear().filter(|_| self.in_dim <= self.out_dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::OneHot;
    use crate::device::{Cpu, Storage};
    use crate::tape::Tape;
    use crate::tensor::Tensor;

    /// One-hot ids and the same rows written out give the same, or an error.
    #[test]
    fn one_hot_ids_are_aggregated_as_their_rows_or_not_at_all() {
        let cpu = Cpu::<f64>::new();
        let block = Arc::new(Block::from_csr(&cpu, 3, &[0, 3], &[1, 2, 1]).unwrap());
        let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        for (aggregator, works) in
            [(Aggregator::Mean, true), (Aggregator::Sum, true), (Aggregator::Max, false)]
        {
            let mut parameters = Parameters::new(1);
            let layer = GraphSage::new(&cpu, &mut parameters, 0, 3, 2).unwrap().with_aggregator(aggregator);
            let tape = Tape::inference(&cpu);
            let pass = Pass { tape: &tape, parameters: &parameters };
            let one_hot = Input::OneHot(OneHot::new(cpu.upload(&[0, 1, 2]).unwrap(), 3));
            let dense = Input::Dense(tape.constant(Tensor::from_slice(&cpu, 3, 3, &identity).unwrap()));
            let [found, expected] = [one_hot, dense].map(|x| {
                layer.forward(&pass, &block, &x, None).map(|out| tape.value(out).to_vec(&cpu).unwrap())
            });
            let expected = expected.unwrap();
            match found {
                Ok(found) => {
                    assert!(works, "{aggregator:?}");
                    for (found, expected) in found.iter().zip(&expected) {
                        assert!((found - expected).abs() <= 1e-12, "{aggregator:?}: {found} {expected}");
                    }
                }
                Err(error) => assert!(!works, "{aggregator:?}: {error}"),
            }
        }
    }
}
