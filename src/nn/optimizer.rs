//! Optimisers over all parameters of a model.

use serde::{Deserialize, Serialize};

use super::{Parameter, Parameters};
use crate::device::{AdamParameter, AdamStep, Device, SgdParameter, SgdStep, check_same_shape};
use crate::error::{Error, Result, check_length};
use crate::tape::{Gradient, Gradients, ParameterId};
use crate::tensor::Tensor;

/// An optimiser and its constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "method", rename_all = "kebab-case")]
pub enum OptimizerConfig {
    /// Adam (Kingma & Ba 2015) with β = (0.9, 0.999), ε = 10⁻⁸.
    Adam {
        /// Learning rate.
        lr: f64,
        /// Weight decay.
        weight_decay: f64,
        /// Whether the decay shrinks parameters directly (AdamW) instead of being added to the gradient.
        decoupled: bool,
        /// Whether only the first layer's parameters decay (Kipf & Welling's GCN).
        first_layer_only: bool,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Learning rate.
        lr: f64,
        /// Momentum.
        momentum: f64,
        /// Weight decay, added to the gradient.
        weight_decay: f64,
    },
}

impl OptimizerConfig {
    /// The learning rate.
    pub fn lr(self) -> f64 {
        match self {
            OptimizerConfig::Adam { lr, .. } | OptimizerConfig::Sgd { lr, .. } => lr,
        }
    }
}

impl Default for OptimizerConfig {
    /// Adam with a learning rate of 0.01, without weight decay.
    fn default() -> Self {
        OptimizerConfig::Adam { lr: 0.01, weight_decay: 0.0, decoupled: false, first_layer_only: false }
    }
}

/// An optimiser with its state.
#[derive(Debug)]
pub struct Optimizer<D: Device> {
    config: OptimizerConfig,
    /// Number of steps taken.
    step: u64,
    /// By parameter: Adam's two moments, or SGD's velocity; empty for what is not trained.
    state: Vec<Vec<Tensor<D>>>,
}

impl<D: Device> Optimizer<D> {
    /// An optimiser for `parameters`, with zero state.
    ///
    /// Errors: the learning rate or the weight decay is negative or not finite, the momentum is not at least 0 and
    /// below 1, or the device is out of memory.
    pub fn new(device: &D, config: OptimizerConfig, parameters: &Parameters<D>) -> Result<Self> {
        let (lr, decay) = match config {
            OptimizerConfig::Adam { lr, weight_decay, .. }
            | OptimizerConfig::Sgd { lr, weight_decay, .. } => (lr, weight_decay),
        };
        check_rate("lr", lr)?;
        check_rate("weight_decay", decay)?;
        if let OptimizerConfig::Sgd { momentum, .. } = config {
            super::stack::check_probability("momentum", momentum)?;
        }
        let n_moments = match config {
            OptimizerConfig::Adam { .. } => 2,
            OptimizerConfig::Sgd { .. } => 1,
        };
        let state = parameters
            .iter()
            .map(|(_, p)| {
                let n = if p.trainable { n_moments } else { 0 };
                (0..n).map(|_| Tensor::zeros(device, p.value.rows(), p.value.cols())).collect()
            })
            .collect::<Result<_>>()?;
        Ok(Optimizer { config, step: 0, state })
    }

    /// The configuration.
    pub fn config(&self) -> OptimizerConfig {
        self.config
    }

    /// The learning rate.
    pub fn lr(&self) -> f64 {
        self.config.lr()
    }

    /// Sets the learning rate of later steps.
    ///
    /// Errors: `new` is negative or not finite.
    pub fn set_lr(&mut self, new: f64) -> Result<()> {
        check_rate("lr", new)?;
        match &mut self.config {
            OptimizerConfig::Adam { lr, .. } | OptimizerConfig::Sgd { lr, .. } => *lr = new,
        }
        Ok(())
    }

    /// Number of steps taken.
    pub fn n_steps(&self) -> u64 {
        self.step
    }

    /// What is kept for each parameter, in order of their ids: Adam's two moments or SGD's velocity, of the parameter's
    /// shape; nothing for what is not trained.
    pub fn state(&self) -> &[Vec<Tensor<D>>] {
        &self.state
    }

    /// Continues from the [`state`](Optimizer::state) of another optimiser that has taken `n_steps` steps.
    ///
    /// Errors: `state` has other numbers of matrices or other shapes than this optimiser's; nothing is changed then.
    pub fn load_state(&mut self, n_steps: u64, state: Vec<Vec<Tensor<D>>>) -> Result<()> {
        check_length("optimiser state", state.len(), self.state.len())?;
        for (new, old) in state.iter().zip(&self.state) {
            check_length("moments of a parameter", new.len(), old.len())?;
            for (new, old) in new.iter().zip(old) {
                check_same_shape("load state", "moment", new.shape(), "parameter", old.shape())?;
            }
        }
        (self.step, self.state) = (n_steps, state);
        Ok(())
    }

    /// Changes every trainable parameter that has a gradient.
    ///
    /// If a table's gradient is row-sparse, Adam changes only the rows that were read (and decays only these), so the
    /// others cost nothing. SGD, whose velocity moves all rows, makes such a gradient dense.
    ///
    /// Errors: a gradient does not have the shape of its parameter, or a parameter that was added after this optimiser
    /// was made has a gradient; nothing is changed then. Or the device fails: some parameters may have changed by then,
    /// but the step is not counted.
    pub fn step(
        &mut self,
        device: &D,
        parameters: &mut Parameters<D>,
        gradients: &Gradients<D>,
    ) -> Result<()> {
        let layers = self.layers_to_change(parameters, gradients)?;
        let number = self.step + 1;
        let tensors = parameters.values_mut().zip(&mut self.state).enumerate();
        let changing = tensors.filter_map(|(i, (value, state))| {
            let layer = (*layers.get(i)?)?;
            Some((value, state, gradients.get_parameter(ParameterId::new(i))?, layer))
        });
        match self.config {
            OptimizerConfig::Adam { lr, weight_decay, decoupled, first_layer_only } => {
                let mut dense = Vec::new();
                for (value, state, gradient, layer) in changing {
                    let [first, second] = &mut state[..] else { continue };
                    let step = AdamStep {
                        lr,
                        beta1: 0.9,
                        beta2: 0.999,
                        epsilon: 1e-8,
                        weight_decay: if first_layer_only && layer > 0 { 0.0 } else { weight_decay },
                        decoupled,
                        step: number,
                    };
                    let parameter = value.make_mut(device)?;
                    let (m, v) = (first.make_mut(device)?.data, second.make_mut(device)?.data);
                    match gradient {
                        Gradient::Dense(gradient) => dense.push(AdamParameter {
                            step,
                            grad: gradient.view(),
                            first_moment: m,
                            second_moment: v,
                            parameter: parameter.data,
                        }),
                        Gradient::Rows(rows) => {
                            device.adam_rows(step, rows.index(), rows.values().matrix(), m, v, parameter)?;
                        }
                    }
                }
                device.adam_all(dense)?;
            }
            OptimizerConfig::Sgd { lr, momentum, weight_decay } => {
                let step = SgdStep { lr, momentum, weight_decay };
                let (mut gradients, mut rest) = (Vec::new(), Vec::new());
                for (value, state, gradient, _) in changing {
                    let [velocity] = &mut state[..] else { continue };
                    gradients.push(match gradient {
                        Gradient::Dense(gradient) => gradient.clone(),
                        Gradient::Rows(rows) => rows.to_dense(device)?,
                    });
                    rest.push((velocity.make_mut(device)?.data, value.make_mut(device)?.data));
                }
                let mut dense = Vec::new();
                for (gradient, (velocity, parameter)) in gradients.iter().zip(rest) {
                    dense.push(SgdParameter { grad: gradient.view(), velocity, parameter });
                }
                device.sgd_all(step, dense)?;
            }
        }
        self.step = number;
        Ok(())
    }

    /// For each parameter that changes, as it is trained and has a gradient, its layer.
    ///
    /// Errors: those of [`step`](Optimizer::step), except for the device's.
    fn layers_to_change(
        &self,
        parameters: &Parameters<D>,
        gradients: &Gradients<D>,
    ) -> Result<Vec<Option<usize>>> {
        let layer = |(id, parameter): (ParameterId, &Parameter<D>)| {
            let Some(gradient) = gradients.get_parameter(id) else { return Ok(None) };
            let Some(state) = self.state.get(id.index()) else {
                let expected = "one that was there when the optimiser was made";
                return Err(Error::invalid("parameter", &parameter.name, expected));
            };
            let Some(moment) = state.first() else { return Ok(None) };
            let (shape, op) = (parameter.value.shape(), "optimiser step");
            check_same_shape(op, "moment", moment.shape(), "parameter", shape)?;
            check_same_shape(op, "gradient", gradient.shape(), "parameter", shape)?;
            Ok(Some(parameter.layer))
        };
        parameters.iter().map(layer).collect()
    }
}

/// `Ok` if `value` is finite and not negative.
fn check_rate(name: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(name, value, "a finite number of at least 0"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;
    use crate::nn::Initializer;

    type Host = Cpu<f64>;

    const SGD: OptimizerConfig = OptimizerConfig::Sgd { lr: 0.5, momentum: 0.0, weight_decay: 0.0 };

    fn ones(shapes: &[(usize, [usize; 2])]) -> Gradients<Host> {
        let cpu = Host::new();
        Gradients::of_parameters(shapes.iter().map(|&(id, [rows, cols])| {
            let ones = Tensor::from_slice(&cpu, rows, cols, &vec![1.0; rows * cols]).unwrap();
            (ParameterId::new(id), Gradient::Dense(ones))
        }))
    }

    #[test]
    fn a_step_that_fails_changes_nothing_and_is_not_counted() {
        let cpu = Host::new();
        for config in [SGD, OptimizerConfig::default()] {
            let mut parameters = Parameters::new(0);
            let add = |parameters: &mut Parameters<Host>, name| {
                parameters.add(&cpu, 0, name, [2, 2], Initializer::Constant(1.0)).unwrap()
            };
            add(&mut parameters, "first");
            add(&mut parameters, "second");
            let mut optimizer = Optimizer::new(&cpu, config, &parameters).unwrap();
            add(&mut parameters, "added later");
            for wrong in [
                ones(&[(0, [2, 2]), (2, [2, 2])]),
                ones(&[(0, [2, 2]), (1, [1, 2])]),
                ones(&[(0, [2, 2]), (1, [4, 1])]),
            ] {
                optimizer.step(&cpu, &mut parameters, &wrong).unwrap_err();
                assert_eq!(optimizer.n_steps(), 0);
                for (_, parameter) in parameters.iter() {
                    assert_eq!(parameter.value.to_vec(&cpu).unwrap(), [1.0; 4], "{}", parameter.name);
                }
            }
            optimizer.step(&cpu, &mut parameters, &ones(&[(0, [2, 2])])).unwrap();
            assert_eq!(optimizer.n_steps(), 1);
            let changed = |i| parameters.get(ParameterId::new(i)).value.to_vec(&cpu).unwrap() != [1.0; 4];
            assert_eq!([0, 1, 2].map(changed), [true, false, false]);
        }
    }

    #[test]
    fn constants_that_make_no_sense_are_errors() {
        let (cpu, parameters) = (Host::new(), Parameters::new(0));
        for wrong in [-0.1, f64::NAN, f64::INFINITY] {
            for config in [
                OptimizerConfig::Sgd { lr: wrong, momentum: 0.0, weight_decay: 0.0 },
                OptimizerConfig::Sgd { lr: 0.1, momentum: wrong, weight_decay: 0.0 },
                OptimizerConfig::Sgd { lr: 0.1, momentum: 1.0, weight_decay: 0.0 },
                OptimizerConfig::Sgd { lr: 0.1, momentum: 0.0, weight_decay: wrong },
            ] {
                assert!(Optimizer::new(&cpu, config, &parameters).is_err(), "{config:?}");
            }
        }
    }
}
