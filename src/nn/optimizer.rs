//! Optimisers over all parameters of a model.

use serde::{Deserialize, Serialize};

use super::Parameters;
use crate::device::{AdamStep, Device, SgdStep, check_same_shape};
use crate::error::{Error, Result, check_length};
use crate::tape::{Gradient, Gradients};
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
    /// others cost nothing. SGD, whose velocity moves all rows, makes such a gradient dense. Panics if a parameter that
    /// was added after this optimiser was made has a gradient.
    ///
    /// Errors: a gradient does not have the size of its parameter, or the device fails. Some parameters may have
    /// changed by then.
    pub fn step(
        &mut self,
        device: &D,
        parameters: &mut Parameters<D>,
        gradients: &Gradients<D>,
    ) -> Result<()> {
        self.step += 1;
        let ids: Vec<_> = parameters.iter().map(|(id, p)| (id, p.layer)).collect();
        for (id, layer) in ids {
            let Some(gradient) = gradients.get_parameter(id) else { continue };
            let Some((first, rest)) = self.state[id.index()].split_first_mut() else { continue };
            let parameter = parameters.value_mut(id).make_mut(device)?;
            match (self.config, rest.first_mut()) {
                (OptimizerConfig::Adam { lr, weight_decay, decoupled, first_layer_only }, Some(second)) => {
                    let step = AdamStep {
                        lr,
                        beta1: 0.9,
                        beta2: 0.999,
                        epsilon: 1e-8,
                        weight_decay: if first_layer_only && layer > 0 { 0.0 } else { weight_decay },
                        decoupled,
                        step: self.step,
                    };
                    let (m, v) = (first.make_mut(device)?.data, second.make_mut(device)?.data);
                    match gradient {
                        Gradient::Dense(gradient) => {
                            device.adam(step, gradient.view(), m, v, parameter.data)?
                        }
                        Gradient::Rows(rows) => {
                            device.adam_rows(step, rows.index(), rows.values().matrix(), m, v, parameter)?;
                        }
                    }
                }
                (OptimizerConfig::Sgd { lr, momentum, weight_decay }, _) => {
                    let step = SgdStep { lr, momentum, weight_decay };
                    let velocity = first.make_mut(device)?.data;
                    let parameter = parameter.data;
                    match gradient {
                        Gradient::Dense(gradient) => {
                            device.sgd(step, gradient.view(), velocity, parameter)?;
                        }
                        Gradient::Rows(rows) => {
                            device.sgd(step, rows.to_dense(device)?.view(), velocity, parameter)?;
                        }
                    }
                }
                (OptimizerConfig::Adam { .. }, None) => {}
            }
        }
        Ok(())
    }
}

/// `Ok` if `value` is finite and not negative.
fn check_rate(name: &'static str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(Error::invalid(name, value, "a finite number of at least 0"))
}
