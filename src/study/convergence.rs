//! Validation accuracy and macro F1 against epochs, by κ.

use std::sync::Arc;

use serde::Serialize;

use super::seeds::{check_batch_size, check_not_empty};
use super::{Listener, method_name, seed_pool};
use crate::data::Dataset;
use crate::device::{Cpu, IGNORED, Method};
use crate::error::{Error, Result};
use crate::rng::{Dependence, Kappa};
use crate::sample::{Fanouts, SamplerConfig};
use crate::train::{LrSchedule, TrainConfig, Trainer, accuracy, argmax_rows, macro_f1};

/// What to train.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvergenceConfig {
    /// The samplers to compare.
    pub samplers: Vec<Method>,
    /// Fanout of each layer, from the seeds outward.
    pub fanouts: Fanouts,
    /// Numbers of consecutive minibatches that depend on each other.
    pub kappas: Vec<Kappa>,
    /// How they do.
    pub dependence: Dependence,
    /// Seeds (vertices) per minibatch.
    pub batch_size: usize,
    /// The random seeds; each is a run of its own, of parameters, order of seed vertices and neighbourhoods.
    pub seeds: Vec<u64>,
    /// The rest; its sampler, number of layers, batch size and seed are taken from above instead.
    pub train: TrainConfig,
}

/// Mean and spread over runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Runs {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a run (divisor: runs - 1); 0 for a single run, for which it is unknown.
    pub deviation: f64,
}

impl Runs {
    fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        Runs { mean, deviation: (squares / (n - 1.0).max(1.0)).sqrt() }
    }
}

/// The quality after one epoch, of one sampler and κ.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConvergenceRow {
    /// Name of the sampler.
    pub sampler: String,
    /// How many consecutive minibatches depend on each other.
    pub kappa: Kappa,
    /// Number of epochs trained, from 1.
    pub epochs: u64,
    /// Number of runs, each with a random seed of its own.
    pub runs: usize,
    /// Validation accuracy.
    pub val_acc: Runs,
    /// Mean over classes of the validation F1 ([`macro_f1`]).
    pub val_macro_f1: Runs,
}

/// Trains with each sampler, κ and random seed, and predicts the validation vertices after each epoch. Returns one row
/// per sampler, κ and epoch; the epoch varies fastest.
///
/// Errors: a list is empty, there are no epochs, the batch size is 0 or above the number of training vertices, the
/// learning rate is to fall when the validation loss does not, no validation vertex has a label, and those of training.
pub fn convergence(
    dataset: &Arc<Dataset>,
    config: &ConvergenceConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<ConvergenceRow>> {
    config.check(dataset)?;
    let vertices = labelled(dataset);
    let total = config.samplers.len() * config.kappas.len() * config.seeds.len();
    let (mut done, mut rows) = (0, Vec::new());
    for &method in &config.samplers {
        for &kappa in &config.kappas {
            let mut runs = Vec::with_capacity(config.seeds.len());
            for &seed in &config.seeds {
                let what = format!("{}, kappa {kappa}, seed {seed}", method_name(&method));
                listener.step(done, total, &what);
                runs.push(run(dataset, &vertices, method, kappa, seed, config)?);
                done += 1;
            }
            for epoch in 0..config.train.epochs as usize {
                let over = |of: fn(&Quality) -> f64| {
                    Runs::of(&runs.iter().map(|run| of(&run[epoch])).collect::<Vec<f64>>())
                };
                rows.push(ConvergenceRow {
                    sampler: method_name(&method),
                    kappa,
                    epochs: epoch as u64 + 1,
                    runs: runs.len(),
                    val_acc: over(|quality| quality.accuracy),
                    val_macro_f1: over(|quality| quality.macro_f1),
                });
            }
        }
    }
    listener.step(total, total, "done");
    Ok(rows)
}

impl ConvergenceConfig {
    /// `Ok` if there is something to train and to measure, and a trainer for it: what can be told before.
    ///
    /// Errors: those of [`convergence`], but for what a step of training may find.
    pub fn check(&self, dataset: &Arc<Dataset>) -> Result<()> {
        check_not_empty("samplers", &self.samplers)?;
        check_not_empty("kappas", &self.kappas)?;
        check_not_empty("seeds", &self.seeds)?;
        check_batch_size(&seed_pool(dataset)?, self.batch_size)?;
        if self.train.epochs == 0 {
            return Err(Error::invalid("epochs", 0, "at least 1"));
        }
        if matches!(self.train.lr_schedule, LrSchedule::Plateau { .. }) {
            let expected = "a schedule that does not depend on the validation loss, which is not measured";
            return Err(Error::invalid("lr_schedule", self.train.lr_schedule, expected));
        }
        if labelled(dataset).is_empty() {
            return Err(Error::invalid(
                "val_idx",
                "no labelled vertices",
                "some, to measure the accuracy on",
            ));
        }
        for &method in &self.samplers {
            self.trainer(dataset, method, self.kappas[0], self.seeds[0])?;
        }
        Ok(())
    }

    /// A trainer before its first epoch.
    fn trainer(
        &self,
        dataset: &Arc<Dataset>,
        method: Method,
        kappa: Kappa,
        seed: u64,
    ) -> Result<Trainer<Cpu<f32>>> {
        let (fanouts, dependence) = (self.fanouts.clone(), self.dependence);
        let mut train = self.train.clone();
        train.sampler =
            SamplerConfig { method, fanouts, kappa, dependence, seed, ..SamplerConfig::default() };
        train.model.n_layers = self.fanouts.0.len();
        (train.batch_size, train.seed) = (Some(self.batch_size), seed);
        // The trainer's own validation would predict everything a second time.
        train.eval_every = train.epochs.saturating_add(1);
        Trainer::new(Cpu::new(), dataset.clone(), train)
    }
}

/// The validation vertices that have a class.
fn labelled(dataset: &Dataset) -> Vec<u32> {
    let is_labelled = |&v: &u32| dataset.labels.get(v as usize).is_some_and(|&label| label != IGNORED);
    dataset.val_idx.iter().copied().filter(is_labelled).collect()
}

/// Of one run after one epoch.
struct Quality {
    accuracy: f64,
    macro_f1: f64,
}

/// The quality after each epoch on `vertices`, all of which have labels.
fn run(
    dataset: &Arc<Dataset>,
    vertices: &[u32],
    method: Method,
    kappa: Kappa,
    seed: u64,
    config: &ConvergenceConfig,
) -> Result<Vec<Quality>> {
    let labels: Vec<i32> = vertices.iter().map(|&v| dataset.labels[v as usize]).collect();
    let mut trainer = config.trainer(dataset, method, kappa, seed)?;
    let epoch = |_| {
        trainer.run_epoch(&mut ())?;
        let scores = trainer.predict(vertices)?;
        let predictions = argmax_rows(&scores, scores.len() / vertices.len());
        Ok(Quality { accuracy: accuracy(&predictions, &labels)?, macro_f1: macro_f1(&predictions, &labels)? })
    };
    (0..config.train.epochs).map(epoch).collect()
}
