//! GraphSAGE-RI: residuals and an inception-like head over all layers (Kaler et al. 2022, "SALIENT").

use std::sync::Arc;

use super::{GraphSage, Initializer, Input, Layer, ParameterId, Parameters, Pass, activate};
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::{Result, check_length};
use crate::tape::Var;

/// Slope of the LeakyReLU: PyTorch's default, which SALIENT uses.
const SLOPE: f64 = 0.01;

/// `h_t = dropout(LeakyReLU(BatchNorm(SAGE(dropout(x), dropout(x_t))))) + R x_t`, where SAGE takes means and has no
/// bias, sources and destinations are dropped out independently, the LeakyReLU's slope is 0.01, and `R` is linear with
/// a bias in the first layer and the identity in all others.
///
/// The last layer is like the others: [`SageRiHead`] makes the class scores.
#[derive(Debug)]
pub struct SageRi {
    sage: GraphSage,
    gain: ParameterId,
    shift: ParameterId,
    running_mean: ParameterId,
    running_variance: ParameterId,
    residual: Option<[ParameterId; 2]>,
    dropout: f64,
}

impl SageRi {
    /// Adds the layer's parameters. `in_dim` must be `out_dim` except for layer 0, which has a linear residual.
    ///
    /// Errors: `layer` is not 0 and `in_dim` is not `out_dim`, or the device is out of memory. `dropout` is checked by
    /// [`forward`](Layer::forward).
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        layer: usize,
        in_dim: usize,
        out_dim: usize,
        dropout: f64,
    ) -> Result<Self> {
        if layer > 0 {
            check_length("input of a residual layer", in_dim, out_dim)?;
        }
        // Glorot's bound times √2, the gain for ReLU.
        let bound = (12.0 / (in_dim + out_dim).max(1) as f64).sqrt();
        let weights = Initializer::Bounded { bound };
        let sage = GraphSage::without_bias(device, parameters, layer, in_dim, out_dim, weights)?;
        let mut add =
            |name: &str, shape, initializer| parameters.add(device, layer, name, shape, initializer);
        let gain = add("gain", [1, out_dim], Initializer::Constant(1.0))?;
        let shift = add("shift", [1, out_dim], Initializer::Constant(0.0))?;
        let uniform = Initializer::Uniform { fan_in: in_dim };
        let residual = if layer == 0 {
            Some([
                add("residual_weight", [in_dim, out_dim], uniform)?,
                add("residual_bias", [1, out_dim], uniform)?,
            ])
        } else {
            None
        };
        let running_mean = parameters.add_statistic(device, layer, "running_mean", out_dim, 0.0)?;
        let running_variance = parameters.add_statistic(device, layer, "running_variance", out_dim, 1.0)?;
        Ok(SageRi { sage, gain, shift, running_mean, running_variance, residual, dropout })
    }
}

impl<D: Device> Layer<D> for SageRi {
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        let own = x.prefix(tape, block.n_dst())?;
        let (sources, destinations) =
            (x.dropout(tape, self.dropout, block)?, own.dropout(tape, self.dropout, block)?);
        let h = self.sage.forward_with_own(pass, block, &sources, &destinations, None)?;
        let running =
            [self.running_mean, self.running_variance].map(|id| (id, &pass.parameters.get(id).value));
        let (gain, shift) = (pass.parameter(self.gain), pass.parameter(self.shift));
        let h = tape.batch_norm(h, gain, shift, running)?;
        let h = tape.activate(h, Activation::LeakyRelu { slope: SLOPE })?;
        let h = tape.dropout(h, self.dropout, Some(block))?;
        let residual = match (self.residual, own) {
            (Some([weight, bias]), own) => {
                let (weight, bias) = (pass.parameter(weight), pass.parameter(bias));
                own.project(pass, block.n_dst(), weight, Some(bias), None)?
            }
            (None, Input::Dense(own)) => own,
            (None, _) => {
                let expected = "a layer's output";
                return Err(crate::Error::invalid("input of a residual layer", "not dense", expected));
            }
        };
        activate(tape, tape.add(h, residual)?, activation)
    }
}

/// Class scores from the rows of some vertices in the input and after every layer: two linear maps of their
/// concatenation, `in + layers · hidden → 2 · classes → classes`, with biases and, as in SALIENT's code, no activation
/// between them.
#[derive(Debug)]
pub struct SageRiHead {
    /// The first map, one matrix per part that it is applied to: the concatenation is never made.
    weights: Vec<ParameterId>,
    bias_1: ParameterId,
    weight_2: ParameterId,
    bias_2: ParameterId,
}

impl SageRiHead {
    /// Adds the head's parameters, as layer number `widths.len() - 1`; `widths` are those of the input and of each
    /// layer.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn new<D: Device>(
        device: &D,
        parameters: &mut Parameters<D>,
        widths: &[usize],
        n_classes: usize,
    ) -> Result<Self> {
        let layer = widths.len().saturating_sub(1);
        let first = Initializer::Uniform { fan_in: widths.iter().sum() };
        let second = Initializer::Uniform { fan_in: 2 * n_classes };
        let mut add =
            |name: &str, shape, initializer| parameters.add(device, layer, name, shape, initializer);
        let weights = (0..)
            .zip(widths)
            .map(|(i, &width): (usize, _)| add(&format!("head_weight_{i}"), [width, 2 * n_classes], first));
        Ok(SageRiHead {
            weights: weights.collect::<Result<_>>()?,
            bias_1: add("head_bias", [1, 2 * n_classes], first)?,
            weight_2: add("out_weight", [2 * n_classes, n_classes], second)?,
            bias_2: add("out_bias", [1, n_classes], second)?,
        })
    }

    /// `[rows, n_classes]` from the first `rows` rows of the input and of each layer's output, in this order.
    ///
    /// Errors: `stages` does not have one element for each of the head's widths, none of them is dense, one is
    /// aggregated, has fewer than `rows` rows, or does not fit its width.
    pub fn forward<D: Device>(&self, pass: &Pass<'_, D>, rows: usize, stages: &[Input<D>]) -> Result<Var> {
        check_length("stages", stages.len(), self.weights.len())?;
        let tape = pass.tape;
        let bias = pass.parameter(self.bias_1);
        let (mut terms, mut products) = (Vec::new(), Vec::new());
        for (stage, &weight) in stages.iter().zip(&self.weights) {
            match stage {
                Input::Dense(x) => terms.push((tape.prefix(*x, rows)?, pass.parameter(weight))),
                Input::Sparse(_) | Input::OneHot(_) | Input::Aggregated(..) | Input::Sliced(_) => {
                    products.push(stage.project(pass, rows, pass.parameter(weight), None, None)?);
                }
            }
        }
        let mut h = tape.linear(&terms, Some(bias), None)?;
        for product in products {
            h = tape.add(h, product)?;
        }
        tape.linear(&[(h, pass.parameter(self.weight_2))], Some(pass.parameter(self.bias_2)), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::OneHot;
    use crate::device::{Cpu, Storage};
    use crate::tape::Tape;
    use crate::tensor::Tensor;

    /// However many stages are one-hot, each counts: the same as their rows written out.
    #[test]
    fn every_stage_counts() {
        let cpu = Cpu::<f64>::new();
        let mut parameters = Parameters::new(1);
        let head = SageRiHead::new(&cpu, &mut parameters, &[3, 3, 3], 2).unwrap();
        let tape = Tape::inference(&cpu);
        let pass = Pass { tape: &tape, parameters: &parameters };
        let identity = [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        let stage = |is_one_hot: bool| {
            if is_one_hot {
                return Input::OneHot(OneHot::new(cpu.upload(&[0, 1, 2]).unwrap(), 3));
            }
            Input::Dense(tape.constant(Tensor::from_slice(&cpu, 3, 3, &identity).unwrap()))
        };
        let scores = |one_hot: [bool; 3]| {
            let out = head.forward(&pass, 2, &one_hot.map(stage)).unwrap();
            tape.value(out).to_vec(&cpu).unwrap()
        };
        let expected = scores([false; 3]);
        for one_hot in [[true, false, false], [true, true, false], [false, true, true]] {
            for (found, expected) in scores(one_hot).iter().zip(&expected) {
                assert!((found - expected).abs() <= 1e-12, "{one_hot:?}: {found} {expected}");
            }
        }
    }
}
