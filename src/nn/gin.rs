//! GIN (Xu, Hu, Leskovec & Jegelka 2019).

use std::sync::Arc;

use super::{Initializer, Input, Layer, ParameterId, Parameters, Pass};
use crate::block::Block;
use crate::coop::InputTerms;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::{Aggregate, Var};

/// `h_t = MLP((1 + ε) x_t + Σ_s x_s)` with a trainable ε; the MLP is linear, batch norm, ReLU, linear.
///
/// The sum is over the block's in-edges, weighted by their weights if the block has these. Over a sampled block it is
/// the sum of what was sampled, as in SALIENT, so evaluate such a model with the fanouts that it was trained with.
#[derive(Debug)]
pub struct Gin {
    epsilon: ParameterId,
    weight_1: ParameterId,
    bias_1: ParameterId,
    gain: ParameterId,
    shift: ParameterId,
    running_mean: ParameterId,
    running_variance: ParameterId,
    weight_2: ParameterId,
    bias_2: ParameterId,
    hidden: usize,
}

impl Gin {
    /// Adds the layer's parameters, with an MLP `in_dim → hidden → out_dim`.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        hidden: usize,
        out_dim: usize,
    ) -> Result<Self> {
        use Initializer::{Constant, Glorot};
        let mut add =
            |name: &str, shape, initializer| parameters.add(device, layer, name, shape, initializer);
        let epsilon = add("epsilon", [1, 1], Constant(0.0))?;
        let weight_1 = add("weight_1", [in_dim, hidden], Glorot)?;
        let bias_1 = add("bias_1", [1, hidden], Constant(0.0))?;
        let gain = add("gain", [1, hidden], Constant(1.0))?;
        let shift = add("shift", [1, hidden], Constant(0.0))?;
        let weight_2 = add("weight_2", [hidden, out_dim], Glorot)?;
        let bias_2 = add("bias_2", [1, out_dim], Constant(0.0))?;
        let running_mean = parameters.add_statistic(device, layer, "running_mean", hidden, 0.0)?;
        let running_variance = parameters.add_statistic(device, layer, "running_variance", hidden, 1.0)?;
        Ok(Gin {
            epsilon,
            weight_1,
            bias_1,
            gain,
            shift,
            running_mean,
            running_variance,
            weight_2,
            bias_2,
            hidden,
        })
    }
}

impl<D: Device> Layer<D> for Gin {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let epsilon = pass.parameter(self.epsilon);
        let (w_1, b_1) = (pass.parameter(self.weight_1), pass.parameter(self.bias_1));
        let combine = |x: Var| -> Result<Var> {
            let own = tape.scale_by_one_plus(tape.prefix(x, block.n_dst())?, epsilon)?;
            tape.add(own, tape.aggregate(block, x, Aggregate::Sum)?)
        };
        // The MLP's first product is linear, so it may come before the sum.
        // Of sliced rows each element has some columns, and so ε's gradient over these: they too add up to the whole.
        let terms = <Self as Layer<D>>::input_terms(self);
        let weights = || Ok(vec![tape.scale_by_one_plus(w_1, epsilon)?, w_1]);
        let sliced = x.sliced_product(tape, terms, weights, Some(b_1), None)?;
        let first = match (sliced, x.aggregate_first(tape, self.hidden)) {
            (Some(product), _) => product,
            (None, Some(x)) => tape.linear(&[(combine(x)?, w_1)], Some(b_1), None)?,
            (None, None) => {
                tape.add_bias(combine(x.project(pass, block.n_src(), w_1, None, None)?)?, b_1, None)?
            }
        };
        let running =
            [self.running_mean, self.running_variance].map(|id| (id, &pass.parameters.get(id).value));
        let (gain, shift) = (pass.parameter(self.gain), pass.parameter(self.shift));
        let normal = tape.batch_norm(first, gain, shift, running)?;
        let active = tape.activate(normal, Activation::Relu)?;
        let (w_2, b_2) = (pass.parameter(self.weight_2), pass.parameter(self.bias_2));
        tape.linear(&[(active, w_2)], Some(b_2), activation)
    }

    fn input_terms(&self) -> Option<InputTerms> {
        Some(InputTerms::Aggregate(Aggregate::Sum))
    }
}
