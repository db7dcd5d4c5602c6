//! Measured seconds of a training step, one processing element (PE) alone, and several in each mode, beside what the
//! model of [`cost`](super::cost()) predicts.
//!
//! What is timed is training as [`Trainer`] does it, with the sources of batches that it takes, on this machine's
//! threads: P PEs have an equal part of them each. A step goes from the end of the one before it (the first of an
//! epoch from the epoch's beginning) to where its parameters are updated. It contains waiting for the batch, which
//! workers prepare ahead while other steps run, and waiting for other PEs. There is no validation. The first
//! [`warm_up`](StepConfig::warm_up) steps do not count: memory is allocated in them, and caches fill. Of a step, and of
//! each of its parts, the time is that of the PE that takes longest; over the steps, what is given is the median.
//!
//! Parts are those of the trainer's reports. They do not add up to the step: a batch is sampled and gathered while
//! another is computed, and exchange is a part of both.
//!
//! The first layer `p3` ([`FirstLayer::P3`]) is timed too, in both modes, if the model and the data allow it.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::seeds::check_batch_size;
use super::{CostConfig, Listener, ModesConfig, ModesRow, predict_model, seed_pool, sizes};
use crate::cache::Policy;
use crate::comm::{Communicator, threads};
use crate::coop::{FirstLayer, Mode, RowTransport};
use crate::data::Dataset;
use crate::device::Cpu;
use crate::error::{Error, Result};
use crate::nn::{Model, ModelConfig};
use crate::sample::{Batches, SamplerConfig};
use crate::train::{CacheConfig, EpochReport, Observer, ParallelConfig, TrainConfig, Trainer};

/// What to time.
#[derive(Clone, Debug, PartialEq)]
pub struct StepConfig {
    /// The training. Its sampler, number of layers, batch size, cache and seed are taken from the counts' configuration
    /// instead, so that the batches are of the same kind.
    pub train: TrainConfig,
    /// Steps before those that are timed.
    pub warm_up: usize,
    /// Number of steps that are timed.
    pub steps: usize,
}

impl Default for StepConfig {
    /// The trainer's own defaults; 5 steps to warm up, and 20 that are timed.
    fn default() -> Self {
        StepConfig { train: TrainConfig::default(), warm_up: 5, steps: 20 }
    }
}

/// Seconds of a step's parts, each the median over the steps of the longest of all PEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct StepParts {
    /// Sampling, summed over workers.
    pub sample: f64,
    /// Slicing features and labels, summed over workers.
    pub gather: f64,
    /// Forward and backward passes and optimiser, with exchange between them.
    pub compute: f64,
    /// Exchange between PEs, in all of these.
    pub exchange: f64,
    /// Waiting for the batch.
    pub wait: f64,
}

/// The time of a training step in one way to share it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepRow {
    /// Number of PEs.
    pub n_pes: usize,
    /// How they share a batch.
    pub mode: Mode,
    /// How they share the first layer.
    pub first_layer: FirstLayer,
    /// Number of steps timed.
    pub steps: usize,
    /// Seconds of a step: the median.
    pub measured_seconds: f64,
    /// Seconds of its parts.
    pub parts: StepParts,
    /// Measured seconds of the same number of PEs in independent mode, divided by those of this row. `None` for one PE
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measured_speedup: Option<f64>,
    /// Seconds that [`predict_model`] predicts.
    pub predicted_seconds: f64,
    /// The same ratio of predicted seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_speedup: Option<f64>,
    /// Destination vertices of all layers and PEs, mean over the steps timed.
    pub vertices: f64,
    /// Edges of all layers and PEs, likewise.
    pub edges: f64,
    /// Feature rows that all PEs need, likewise.
    pub inputs: f64,
}

/// Times steps of one PE alone, then of each number of PEs of `counts`: independent, cooperative, and both with the
/// first layer p3 where that is possible.
///
/// `counts` are those of [`modes()`](super::modes()) by `modes`; of one PE there must be a row too. `modes` and `cost`
/// are what they were counted with, and what the machine's prediction is made of.
///
/// Errors: `steps` is 0, there is no row of one PE, the features are not dense, the batch size is 0 or above the number
/// of training vertices, and those of [`sizes`], of [`predict_model`] and of training.
pub fn step_seconds(
    dataset: &Arc<Dataset>,
    modes: &ModesConfig,
    counts: &[ModesRow],
    cost: &CostConfig,
    config: &StepConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<StepRow>> {
    if config.steps == 0 {
        return Err(Error::invalid("steps", 0, "at least 1"));
    }
    if dataset.features.bytes_of_row().is_none() {
        let found = if dataset.features.is_none() { "absent" } else { "sparse" };
        return Err(Error::invalid("features", found, "dense ones, for which the model of a machine is"));
    }
    let Some(alone) = counts.iter().find(|row| row.n_pes == 1) else {
        return Err(Error::invalid("counts", "without those of one processing element", "a row of them"));
    };
    let bench = Bench::new(dataset, modes, config)?;
    let takes_p3 = bench.takes_p3()?;
    let first_layers = if takes_p3 { &[FirstLayer::Whole, FirstLayer::P3][..] } else { &[FirstLayer::Whole] };
    let several = || counts.iter().filter(|row| row.n_pes > 1);
    let total = 1 + 2 * first_layers.len() * several().count();
    let model = bench.model();
    let sizes = sizes(&dataset.graph, &seed_pool(dataset)?, modes, model.n_relations > 0, listener)?;
    let predictions = |n_pes: usize, first_layers: &[FirstLayer]| {
        let sizes = sizes.iter().find(|row| row.n_pes == n_pes);
        let sizes = sizes.ok_or_else(|| Error::invalid("pes", "others", format!("{n_pes} among them")))?;
        predict_model(sizes, &model, first_layers, cost)
    };
    listener.step(0, total, "one PE alone");
    // A PE alone is the same in both modes.
    let predicted_seconds = predictions(alone.n_pes, &[FirstLayer::Whole])?[0].seconds;
    let mut rows = vec![StepRow { predicted_seconds, ..bench.serial()? }];
    for counts in several() {
        let n_pes = counts.n_pes;
        let predictions = predictions(n_pes, first_layers)?;
        let mut independent = f64::NAN;
        for (&first_layer, predictions) in first_layers.iter().zip(predictions.chunks_exact(2)) {
            for prediction in predictions {
                let mode = prediction.mode;
                let what = format!("{n_pes} PEs, {mode}, first layer {first_layer}");
                listener.step(rows.len(), total, &what);
                let row = bench.together(n_pes, mode, first_layer)?;
                if (mode, first_layer) == (Mode::Independent, FirstLayer::Whole) {
                    independent = row.measured_seconds;
                }
                rows.push(StepRow {
                    measured_speedup: Some(independent / row.measured_seconds),
                    predicted_seconds: prediction.seconds,
                    predicted_speedup: Some(prediction.speedup),
                    ..row
                });
            }
        }
    }
    listener.step(total, total, "done");
    Ok(rows)
}

/// What all ways to share a step have in common.
struct Bench<'a> {
    /// With as many training vertices as an epoch of the steps needs.
    dataset: Arc<Dataset>,
    train: TrainConfig,
    modes: &'a ModesConfig,
    config: &'a StepConfig,
}

impl<'a> Bench<'a> {
    /// The model that is trained, with what it takes from the data.
    fn model(&self) -> ModelConfig {
        let relates = self.train.model.kind.relates();
        ModelConfig {
            n_features: self.dataset.features.dim(),
            n_classes: self.dataset.n_classes,
            n_relations: if relates { self.dataset.graph.n_relations() } else { 0 },
            ..self.train.model.clone()
        }
    }

    fn new(dataset: &Arc<Dataset>, modes: &'a ModesConfig, config: &'a StepConfig) -> Result<Self> {
        let pool = seed_pool(dataset)?;
        check_batch_size(&pool, modes.batch_size)?;
        let wanted = config.warm_up.checked_add(config.steps);
        let wanted = wanted.ok_or_else(|| Error::invalid("steps", config.steps, "fewer"))?;
        let n_steps = wanted.min(pool.len() / modes.batch_size);
        let train_idx = first_batches(pool, modes, n_steps)?;
        // Nothing is validated.
        let (val_idx, test_idx) = (Vec::new(), Vec::new());
        let dataset = Arc::new(Dataset { train_idx, val_idx, test_idx, ..Dataset::clone(dataset) });
        let mut train = config.train.clone();
        train.model.n_layers = modes.fanouts.0.len();
        train.sampler = SamplerConfig {
            method: modes.sampler,
            fanouts: modes.fanouts.clone(),
            kappa: modes.kappa,
            seed: modes.seed,
            ..SamplerConfig::default()
        };
        (train.batch_size, train.seed) = (Some(modes.batch_size), modes.seed);
        train.cache = modes.cache_rows.map(|rows| CacheConfig { policy: Policy::Lru, rows });
        (train.epochs, train.eval_every) = (u64::MAX, u64::MAX);
        Ok(Bench { dataset, train, modes, config })
    }

    fn trainer(&self) -> Result<Trainer<Cpu<f32>>> {
        Trainer::new(Cpu::new(), self.dataset.clone(), self.train.clone())
    }

    /// Whether PEs can share the first layer by columns.
    fn takes_p3(&self) -> Result<bool> {
        Ok(self.train.cache.is_none() && self.trainer()?.model.needs().input_terms.is_some())
    }

    fn serial(&self) -> Result<StepRow> {
        let steps = self.steps(self.trainer()?)?;
        Ok(self.row(1, Mode::Serial, FirstLayer::Whole, &[steps]))
    }

    fn together(&self, n_pes: usize, mode: Mode, first_layer: FirstLayer) -> Result<StepRow> {
        let parallel = ParallelConfig {
            mode,
            partition: self.modes.partition,
            first_layer,
            row_transport: RowTransport::Auto,
        };
        let one = |communicator: Communicator| self.steps(self.trainer()?.join(parallel, communicator)?);
        Ok(self.row(n_pes, mode, first_layer, &threads::run(n_pes, one)?))
    }

    /// The steps of one PE that are timed.
    fn steps(&self, mut trainer: Trainer<Cpu<f32>>) -> Result<Vec<Step>> {
        let (warm_up, steps) = (self.config.warm_up, self.config.steps);
        let mut watch = Watch { last: Instant::now(), before: EpochReport::default(), steps: Vec::new() };
        // All PEs have as many steps.
        while watch.steps.len() < warm_up + steps {
            trainer.run_epoch(&mut watch)?;
        }
        Ok(watch.steps.drain(warm_up..warm_up + steps).collect())
    }

    fn row(&self, n_pes: usize, mode: Mode, first_layer: FirstLayer, by_pe: &[Vec<Step>]) -> StepRow {
        let n_steps = self.config.steps;
        let of_step = |step: usize| by_pe.iter().map(move |steps| &steps[step]);
        let seconds = |of: fn(&Step) -> f64| {
            median((0..n_steps).map(|step| of_step(step).map(of).fold(0.0, f64::max)).collect())
        };
        let count = |of: fn(&Step) -> u64| {
            by_pe.iter().flatten().map(|step| of(step) as f64).sum::<f64>() / n_steps as f64
        };
        StepRow {
            n_pes,
            mode,
            first_layer,
            steps: n_steps,
            measured_seconds: seconds(|step| step.seconds),
            parts: StepParts {
                sample: seconds(|step| step.parts.sample),
                gather: seconds(|step| step.parts.gather),
                compute: seconds(|step| step.parts.compute),
                exchange: seconds(|step| step.parts.exchange),
                wait: seconds(|step| step.parts.wait),
            },
            measured_speedup: None,
            predicted_seconds: f64::NAN,
            predicted_speedup: None,
            vertices: count(|step| step.vertices),
            edges: count(|step| step.edges),
            inputs: count(|step| step.inputs),
        }
    }
}

/// The seeds of the first `n_batches` batches of training, in the order of `pool`: if they are all of it, training on
/// them has the batches that are counted.
fn first_batches(pool: Vec<u32>, modes: &ModesConfig, n_batches: usize) -> Result<Vec<u32>> {
    let n = n_batches * modes.batch_size;
    if n == pool.len() {
        return Ok(pool);
    }
    let epoch = Batches::new(pool.clone(), modes.batch_size, modes.seed)?.epoch(0);
    let seeds = epoch.iter().take(n_batches).flat_map(|(_, seeds)| seeds.iter().copied());
    let mut chosen: Vec<u32> = seeds.collect();
    chosen.sort_unstable();
    Ok(pool.into_iter().filter(|seed| chosen.binary_search(seed).is_ok()).collect())
}

/// One PE's step.
struct Step {
    seconds: f64,
    parts: StepParts,
    vertices: u64,
    edges: u64,
    inputs: u64,
}

/// Takes the times of steps.
struct Watch {
    /// When the last step ended, or the epoch began.
    last: Instant,
    /// The epoch's sums up to then.
    before: EpochReport,
    steps: Vec<Step>,
}

impl Observer<Cpu<f32>> for Watch {
    fn epoch_begins(&mut self, _: u64, _: usize) {
        (self.last, self.before) = (Instant::now(), EpochReport::default());
    }

    fn batch_done(&mut self, _: usize, report: &EpochReport) {
        let (now, before) = (Instant::now(), &self.before);
        self.steps.push(Step {
            seconds: (now - self.last).as_secs_f64(),
            parts: StepParts {
                sample: report.sample_seconds - before.sample_seconds,
                gather: report.gather_seconds - before.gather_seconds,
                compute: report.compute_seconds - before.compute_seconds,
                exchange: report.exchange_seconds - before.exchange_seconds,
                wait: report.wait_seconds - before.wait_seconds,
            },
            vertices: report.vertices - before.vertices,
            edges: report.edges - before.edges,
            inputs: report.input_vertices - before.input_vertices,
        });
        (self.last, self.before) = (now, report.clone());
    }
}

/// The median; 0 of nothing.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}
