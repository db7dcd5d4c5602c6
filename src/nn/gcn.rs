//! GCN (Kipf & Welling 2017).

use std::sync::Arc;

use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::Block;
use crate::coop::InputTerms;
use crate::device::{Activation, Device};
use crate::error::{Error, Result};
use crate::tape::{Aggregate, Var};

/// `h_t = W (own_t x_t + Σ_s a_ts x_s) + b`, in one of two normalisations, both with a self-loop added:
///
/// * [`Aggregate::Symmetric`]: `a_ts = 1 / √((d_s + 1)(d_t + 1))`, `own_t = 1 / (d_t + 1)` with in-degrees `d` in the
///   whole graph: the paper's, for full neighbourhoods. Over a sampled block each of `k` sampled edges stands for
///   `d_t / k`, so that the expectation is the full sum. Needs blocks with degrees.
/// * [`Aggregate::MeanWithSelf`]: the mean over the block's `k` in-edges and the vertex itself.
///
/// Over blocks with edge weights `w`, degrees under the roots are sums of weights, and `a_ts` has the factor `w`: the
/// self-loop has weight 1 ([`Block::symmetric_weights`], [`Block::mean_with_self_weights`]).
///
/// Self-loops that the graph already has count in addition to the added one: remove them first
/// ([`Graph::remove_self_loops`](crate::graph::Graph::remove_self_loops)).
#[derive(Debug)]
pub struct Gcn {
    weight: ParameterId,
    bias: ParameterId,
    in_dim: usize,
    out_dim: usize,
    aggregate: Aggregate,
}

impl Gcn {
    /// Adds the layer's parameters: `weight: [in_dim, out_dim]`, `bias: [1, out_dim]`.
    ///
    /// Errors: `aggregate` is neither [`Aggregate::Symmetric`] nor [`Aggregate::MeanWithSelf`], or the device is out of
    /// memory.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        out_dim: usize,
        aggregate: Aggregate,
    ) -> Result<Self> {
        if !matches!(aggregate, Aggregate::Symmetric | Aggregate::MeanWithSelf) {
            return Err(Error::invalid("aggregate", format!("{aggregate:?}"), "Symmetric or MeanWithSelf"));
        }
        Ok(Gcn {
            weight: parameters.add(device, layer, "weight", [in_dim, out_dim], Initializer::Glorot)?,
            bias: parameters.add(device, layer, "bias", [1, out_dim], Initializer::Constant(0.0))?,
            in_dim,
            out_dim,
            aggregate,
        })
    }
}

impl<D: Device> Layer<D> for Gcn {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let (weight, bias) = (pass.parameter(self.weight), pass.parameter(self.bias));
        if let Some(x) = x.aggregated(Some(self.aggregate))? {
            return tape.linear(&[(x, weight)], Some(bias), activation);
        }
        let terms = Some(InputTerms::Aggregate(self.aggregate));
        if let Some(out) = x.sliced_product(tape, terms, || Ok(vec![weight]), Some(bias), activation)? {
            return Ok(out);
        }
        let combine = |x: Var| -> Result<Var> {
            let own = tape.own_part(block, x, self.aggregate)?;
            tape.add(own, tape.aggregate(block, x, self.aggregate)?)
        };
        if let Some(x) = x.aggregate_first(tape, self.out_dim) {
            return tape.linear(&[(combine(x)?, weight)], Some(bias), activation);
        }
        let messages = x.project(pass, block.n_src(), weight, None, None)?;
        tape.add_bias(combine(messages)?, bias, activation)
    }

    fn needs_degrees(&self) -> bool {
        self.aggregate == Aggregate::Symmetric
    }

    fn input_terms(&self) -> Option<InputTerms> {
        Some(InputTerms::Aggregate(self.aggregate))
    }

    fn input_aggregate(&self) -> Option<Aggregate> {
        (self.in_dim <= self.out_dim).then_some(self.aggregate)
    }
}
