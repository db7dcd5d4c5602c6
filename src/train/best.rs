//! The best epoch by validation, and how long there has been no better one.

use serde::{Deserialize, Serialize};

use super::evaluate::Evaluation;
use super::schedule::Plateau;
use super::trainer::Trainer;
use crate::device::Device;
use crate::error::Result;
use crate::nn::Model;
use crate::tensor::Tensor;

/// The best epoch so far.
#[derive(Debug)]
pub(super) struct Best<D: Device> {
    pub epoch: u64,
    pub val: Evaluation,
    pub values: Vec<Tensor<D>>,
}

/// How long validation has not improved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Stall {
    /// Epochs since the best metric or the lowest loss.
    epochs: u64,
    best_metric: Option<f64>,
    lowest_loss: Option<f64>,
    /// For the learning rate.
    #[serde(default)]
    pub plateau: Plateau,
}

impl Stall {
    /// Epochs since the best metric or the lowest loss.
    pub(super) fn epochs(&self) -> u64 {
        self.epochs
    }

    /// The larger of its counts of epochs.
    pub(super) fn longest(&self) -> u64 {
        self.epochs.max(self.plateau.waited())
    }

    /// Either measure counts: loss often still falls long after the metric's first peak.
    fn hear(&mut self, metric: f64, loss: f64) {
        let metric_holds = self.best_metric.is_none_or(|best| metric >= best);
        let loss_holds = self.lowest_loss.is_none_or(|lowest| loss <= lowest);
        if metric_holds {
            self.best_metric = Some(metric);
        }
        if loss_holds {
            self.lowest_loss = Some(loss);
        }
        self.epochs = if metric_holds || loss_holds { 0 } else { self.epochs + 1 };
    }
}

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// How well the parameters of the best epoch so far predict the validation vertices; `None` if no epoch was
    /// validated.
    pub fn best_validation(&self) -> Option<Evaluation> {
        self.best.as_ref().map(|best| best.val)
    }

    /// Gives the model the parameters of the best epoch, if validation chose one.
    ///
    /// Errors: the model's parameters have other shapes than in that epoch.
    pub fn restore_best(&mut self) -> Result<()> {
        if let Some(best) = &self.best {
            let parameters = self.model.parameters_mut();
            let ids: Vec<_> = parameters.iter().map(|(id, _)| id).collect();
            for (id, value) in ids.into_iter().zip(&best.values) {
                parameters.set(id, value.clone())?;
            }
        }
        Ok(())
    }

    /// Keeps the parameters if this epoch is the best so far.
    pub(super) fn hear_of_validation(&mut self, val: Evaluation) {
        let metric = self.config.metric;
        let better = |b: &Best<D>| {
            let (new, old) = (metric.of(&val), metric.of(&b.val));
            new > old || new == old && val.loss < b.val.loss
        };
        self.stall.hear(metric.of(&val), val.loss);
        if self.best.as_ref().is_none_or(better) {
            let values = self.model.parameters().iter().map(|(_, p)| p.value.clone()).collect();
            self.best = Some(Best { epoch: self.epoch, val, values });
        }
    }
}
