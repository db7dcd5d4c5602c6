//! A training epoch: preparation alone, computation alone, and both overlapped, in sampled edges a second.

use std::hint::black_box;
use std::sync::Arc;

use cohop::batch::{Batch, BatchNeeds, BatchSource, HostSampling, Slicer};
use cohop::data::{Dataset, Features, Split};
use cohop::device::Cpu;
use cohop::graph::Rmat;
use cohop::nn::{ModelConfig, ModelKind};
use cohop::rng;
use cohop::sample::{Batches, Fanouts};
use cohop::train::{TrainConfig, Trainer};
use criterion::{Criterion, Throughput, criterion_group};

const BATCH: usize = 1024;
const BATCHES: usize = 8;

/// An R-MAT graph of 2^15 vertices with random features and labels: speed, not accuracy.
fn dataset() -> Arc<Dataset> {
    let graph = Rmat::graph500(15, 8, 1).generate().unwrap();
    let n = graph.n_vertices();
    let features: Vec<f32> = (0..n * 100).map(|i| rng::uniform(1, 1, i as u64) as f32).collect();
    let labels = (0..n).map(|i| rng::bounded(1, 2, i as u64, 47) as i32).collect::<Vec<_>>();
    let split = Split { train: (0..(BATCH * BATCHES) as u32).collect(), ..Split::default() };
    let features = Features::dense(features, n, 100).unwrap();
    Arc::new(Dataset::new("rmat", graph, features, labels, 47, split).unwrap())
}

fn config(kind: ModelKind, workers: usize) -> TrainConfig {
    let mut config = TrainConfig { batch_size: Some(BATCH), workers, ..TrainConfig::default() };
    config.model = ModelConfig { kind, hidden: 256, n_layers: 3, ..config.model };
    config.sampler.fanouts = Fanouts(vec![15, 10, 5]);
    config
}

fn epoch(c: &mut Criterion) {
    let dataset = dataset();
    let slicer = Slicer::new(Cpu::<f32>::new(), dataset.clone(), BatchNeeds::default());
    let source = HostSampling::new(slicer, config(ModelKind::Sage, 0).sampler).unwrap();
    let batches = Batches::new(dataset.train_idx.clone(), BATCH, 0).unwrap();
    let prepare = || {
        let epoch = batches.epoch(0);
        let edges = |(number, seeds): (u64, &[u32])| -> u64 {
            let batch: Batch<Cpu> = source.batch(&Cpu::new(), seeds, number).unwrap();
            batch.blocks.iter().map(|b| b.n_edge() as u64).sum()
        };
        epoch.iter().map(edges).sum::<u64>()
    };
    let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config(ModelKind::Sage, 0)).unwrap();
    let report = trainer.run_epoch(&mut ()).unwrap();
    assert_eq!(report.edges, prepare(), "the trainer must see the sampler's edges");

    let mut group = c.benchmark_group("epoch");
    group.sample_size(10).throughput(Throughput::Elements(report.edges));
    group.bench_function("prepare", |b| b.iter(|| black_box(prepare())));
    for (name, kind) in [("sage", ModelKind::Sage), ("gcn", ModelKind::GcnMean), ("gin", ModelKind::Gin)] {
        for workers in [0, 1] {
            let mut trainer =
                Trainer::new(Cpu::<f32>::new(), dataset.clone(), config(kind, workers)).unwrap();
            group.bench_function(format!("{name}, {workers} workers"), |b| {
                b.iter(|| trainer.run_epoch(&mut ()).unwrap());
            });
        }
    }
    group.finish();
}

criterion_group!(benches, epoch);
