//! Minibatch training as in `cohop train`: the next batches are prepared while one is computed.

use std::sync::Arc;

use super::Bench;
use super::check::wrong;
use super::row::Amount;
use super::sampling::{FANOUTS, config as sampler_config};
use super::workload::BATCH;
use cohop::Result;
use cohop::batch::DataOnDevice;
use cohop::data::Dataset;
use cohop::device::{Device, Method};
use cohop::nn::{ModelConfig, ModelKind, OptimizerConfig};
use cohop::train::{TrainConfig, Trainer};

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

fn train<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    work: &'static str,
    kind: ModelKind,
    data_on_device: DataOnDevice,
) -> Result<()> {
    // Only full batches, so that all batches of an epoch are the same work.
    let given = &bench.workload.dataset;
    let batch_size = BATCH.min(given.train_idx.len());
    let n_batches = (given.train_idx.len() / batch_size.max(1)).min(MAX_BATCHES);
    let train_idx = given.train_idx[..n_batches * batch_size].to_vec();
    let dataset = Arc::new(Dataset { train_idx, ..Dataset::clone(given) });
    let n_classes = dataset.n_classes;

    let defaults = TrainConfig::default();
    let config = TrainConfig {
        model: ModelConfig { kind, hidden: HIDDEN, n_layers: FANOUTS.len(), dropout: 0.0, ..defaults.model },
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
    let mut trainer = Trainer::new(bench.device.clone(), dataset, config)?;
    let report = trainer.run_epoch(&mut ())?;
    // Labels are random: at best, an epoch learns that all classes are equally likely.
    let chance = (n_classes.max(2) as f64).ln();
    let is_plausible = report.loss <= 1.5 * chance;
    if report.batches != n_batches as u64 || !is_plausible {
        let found = format!("a loss of {} after {} batches", report.loss, report.batches);
        return wrong(work, found, format!("about {chance} after {n_batches}"));
    }
    let edges = report.edges as f64 / n_batches as f64;
    let amount = Amount { parts: n_batches, edges: Some(edges), ..Amount::new(1.0, "batches/s") };
    bench.time(work, bench.workload.name.clone(), amount, || trainer.run_epoch(&mut ()).map(drop))
}
