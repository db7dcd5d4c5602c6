//! Minibatch training as in `cohop train`: the next batches are prepared while one is computed.

use std::sync::Arc;

use super::Bench;
use super::check::wrong;
use super::row::Amount;
use super::sampling::{FANOUTS, config as sampler_config};
use super::workload::{BATCH, Workload};
use cohop::Result;
use cohop::batch::DataOnDevice;
use cohop::data::Dataset;
use cohop::device::{Device, Method};
use cohop::nn::{ModelConfig, ModelKind, OptimizerConfig};
use cohop::train::{EpochReport, TrainConfig, Trainer};

const HIDDEN: usize = 256;
const MAX_BATCHES: usize = 40;

pub(super) fn all<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    let (sage, gcn) = (ModelKind::Sage, ModelKind::GcnMean);
    let works = [
        ("train_sage", sage, DataOnDevice::Nothing),
        ("train_gcn", gcn, DataOnDevice::Nothing),
        ("train_sage_on_device", sage, DataOnDevice::All),
        ("train_sage_graph_on_device", sage, DataOnDevice::Graph),
        ("train_gcn_on_device", gcn, DataOnDevice::All),
    ];
    for (work, kind, data_on_device) in works {
        // On the CPU, host and device are the same place.
        if bench.wants(work) && (data_on_device == DataOnDevice::Nothing || !bench.on_host) {
            train(bench, work, kind, data_on_device)?;
        }
    }
    Ok(())
}

/// A run on the workload, with the number of batches of an epoch.
pub(super) struct Run {
    pub config: TrainConfig,
    pub dataset: Arc<Dataset>,
    pub n_batches: usize,
}

impl Run {
    /// `kind` with three layers of 256, trained by neighbour sampling.
    pub(super) fn new(workload: &Workload, kind: ModelKind, data_on_device: DataOnDevice) -> Self {
        // Only full batches, so that all batches of an epoch are the same work.
        let given = &workload.dataset;
        let batch_size = BATCH.min(given.train_idx.len());
        let n_batches = (given.train_idx.len() / batch_size.max(1)).min(MAX_BATCHES);
        let train_idx = given.train_idx[..n_batches * batch_size].to_vec();
        let dataset = Arc::new(Dataset { train_idx, ..Dataset::clone(given) });

        let defaults = TrainConfig::default();
        let model =
            ModelConfig { kind, hidden: HIDDEN, n_layers: FANOUTS.len(), dropout: 0.0, ..defaults.model };
        let config = TrainConfig {
            model,
            optimizer: OptimizerConfig::Adam {
                lr: 3e-3,
                weight_decay: 0.0,
                decoupled: false,
                first_layer_only: false,
            },
            sampler: sampler_config(Method::NEIGHBOR),
            batch_size: Some(batch_size),
            data_on_device,
            ..defaults
        };
        Run { config, dataset, n_batches }
    }

    /// `Ok` if an epoch is as one of random labels can be.
    pub(super) fn check(&self, work: &str, report: &EpochReport) -> Result<()> {
        // At best, an epoch learns that all classes are equally likely.
        let chance = (self.dataset.n_classes.max(2) as f64).ln();
        let is_plausible = report.loss <= 1.5 * chance;
        if report.batches == self.n_batches as u64 && is_plausible {
            return Ok(());
        }
        let found = format!("a loss of {} after {} batches", report.loss, report.batches);
        wrong(work, found, format!("about {chance} after {}", self.n_batches))
    }
}

fn train<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    work: &'static str,
    kind: ModelKind,
    data_on_device: DataOnDevice,
) -> Result<()> {
    let run = Run::new(bench.workload, kind, data_on_device);
    let mut trainer = Trainer::new(bench.device.clone(), run.dataset.clone(), run.config.clone())?;
    let report = trainer.run_epoch(&mut ())?;
    run.check(work, &report)?;
    let edges = report.edges as f64 / run.n_batches as f64;
    let amount = Amount { parts: run.n_batches, edges: Some(edges), ..Amount::new(1.0, "batches/s") };
    bench.time(work, bench.workload.name.clone(), amount, || trainer.run_epoch(&mut ()).map(drop))
}
