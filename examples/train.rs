//! The library in one page: an own data set, a sampler, a model, a training loop.
//!
//! `cargo run --release --example train`

use std::sync::Arc;

use cohop::batch::{Batch, BatchSource, HostSampling, Slicer};
use cohop::data::{Dataset, SbmData, Split};
use cohop::device::{Cpu, Sample, Storage};
use cohop::nn::{Model, Optimizer, Stack};
use cohop::sample::{Batches, Sampler};
use cohop::tape::Tape;
use cohop::train::{TrainConfig, infer_full};

pub(crate) fn main() -> cohop::Result<()> {
    // Any graph, features, labels and split will do; these are from the built-in generator.
    let sbm = SbmData::default().generate()?;
    let split = Split { train: sbm.train_idx.clone(), val: sbm.val_idx.clone(), test: sbm.test_idx.clone() };
    let graph = Arc::unwrap_or_clone(sbm.graph);
    let dataset = Dataset::new("mine", graph, sbm.features, sbm.labels.to_vec(), sbm.n_classes, split)?;
    let dataset = Arc::new(dataset);

    let cpu = Cpu::<f32>::new();
    let mut config = TrainConfig::default();
    config.model.n_features = dataset.features.dim();
    config.model.n_classes = dataset.n_classes;
    let mut model = Stack::new(&cpu, &config.model, 0)?;
    let mut optimizer = Optimizer::new(&cpu, config.optimizer, &model.parameters)?;
    let sampler = Sampler::new(config.sampler.clone())?;
    let slicer = Slicer::new(cpu.clone(), dataset.clone(), model.needs());
    let source = HostSampling::new(slicer.clone(), config.sampler.clone())?;
    println!("{} trainable numbers, on {}", model.parameters.n_trainable(), cpu.describe());

    // One batch by hand: what a sampler returns.
    let sampled = sampler.sample(&cpu, &cpu.load_graph(&dataset.graph)?, &dataset.train_idx[..4], 0)?;
    println!("4 seeds reach {} vertices over {} edges", sampled.input_vertices().len(), sampled.n_edges());

    let batches = Batches::new(dataset.train_idx.clone(), 512, 0)?;
    for epoch in 0..10 {
        let mut mean = 0.0;
        for (number, seeds) in batches.epoch(epoch).iter() {
            let batch: Batch<Cpu> = source.batch(&cpu, seeds, number)?;
            let tape = Tape::training(&cpu, number);
            let logits = model.forward(&tape, &batch)?;
            let loss = tape.log_softmax_nll(logits, batch.labels, 1.0 / seeds.len() as f64)?;
            mean += tape.value(loss).item(&cpu)? / batches.per_epoch() as f32;
            let gradients = tape.backward(loss)?;
            optimizer.step(&cpu, &mut model.parameters, &gradients)?;
        }
        println!("epoch {epoch}: loss {mean:.4}");
    }
    let logits = infer_full(&cpu, &model, &slicer, &[0], 4096, 0)?;
    println!("scores of vertex 0: {logits:.2?}");
    Ok(())
}
