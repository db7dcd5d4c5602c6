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
use crate::train::{TrainConfig, Trainer, accuracy, argmax_rows, macro_f1};

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
/// Errors: a list is empty, there are no epochs, the batch size is 0 or above the number of training vertices, no
/// validation vertex has a label, and those of training.
pub fn convergence(
    dataset: &Arc<Dataset>,
    config: &ConvergenceConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<ConvergenceRow>> {
    check_not_empty("samplers", &config.samplers)?;
    check_not_empty("kappas", &config.kappas)?;
    check_not_empty("seeds", &config.seeds)?;
    check_batch_size(&seed_pool(dataset)?, config.batch_size)?;
    if config.train.epochs == 0 {
        return Err(Error::invalid("epochs", 0, "at least 1"));
    }
    let labelled = |&v: &u32| dataset.labels.get(v as usize).is_some_and(|&label| label != IGNORED);
    let vertices: Vec<u32> = dataset.val_idx.iter().copied().filter(labelled).collect();
    if vertices.is_empty() {
        return Err(Error::invalid("val_idx", "no labelled vertices", "some, to measure the accuracy on"));
    }
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
    let (fanouts, dependence) = (config.fanouts.clone(), config.dependence);
    let mut train = config.train.clone();
    train.sampler = SamplerConfig { method, fanouts, kappa, dependence, seed, ..SamplerConfig::default() };
    train.model.n_layers = config.fanouts.0.len();
    (train.batch_size, train.seed) = (Some(config.batch_size), seed);
    // The trainer's own validation would predict everything a second time.
    train.eval_every = train.epochs.saturating_add(1);
    let epochs = train.epochs;
    let labels: Vec<i32> = vertices.iter().map(|&v| dataset.labels[v as usize]).collect();
    let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), train)?;
    let epoch = |_| {
        trainer.run_epoch(&mut ())?;
        let scores = trainer.predict(vertices)?;
        let predictions = argmax_rows(&scores, scores.len() / vertices.len());
        Ok(Quality { accuracy: accuracy(&predictions, &labels)?, macro_f1: macro_f1(&predictions, &labels)? })
    };
    (0..epochs).map(epoch).collect()
}
