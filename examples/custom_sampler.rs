//! A sampler of one's own under the trainer: every in-edge is kept with the same probability, whatever else is kept.
//!
//! `cargo run --release --example custom_sampler`

use std::collections::HashMap;
use std::sync::Arc;

use cohop::batch::{Batch, BatchSource, Slicer};
use cohop::prelude::*;
use cohop::train::{EvalMode, TrainConfig, Trainer};
use cohop::{data::SbmData, graph::Sbm, nn::Model};

#[derive(Clone, Debug)]
struct Bernoulli {
    slicer: Slicer<f32>,
    probability: f64,
    n_layers: usize,
    seed: u64,
}

impl Bernoulli {
    fn block(&self, device: &Cpu, dst: &[u32], variates: &Variates, layer: u32) -> Result<Block<Cpu>> {
        let graph = &self.slicer.dataset().graph;
        let (stream, limit) = (Purpose::Edge.stream(layer), (self.probability * 2f64.powi(32)) as u64);
        // Destinations come first, then each new source is appended.
        let mut src = dst.to_vec();
        let mut position: HashMap<u32, u32> = (0..).zip(dst).map(|(i, &v)| (v, i)).collect();
        let (mut indptr, mut indices) = (vec![0], vec![]);
        for &t in dst {
            // An edge's number names its draw, so the batch is the same on any number of threads.
            for (edge, &s) in (graph.indptr()[t as usize]..).zip(graph.in_neighbors(t)) {
                if u64::from(variates.word(stream, edge)) < limit {
                    indices.push(*position.entry(s).or_insert_with(|| {
                        src.push(s);
                        src.len() as u32 - 1
                    }));
                }
            }
            indptr.push(indices.len() as u32);
        }
        let [src, indptr, indices] = [&src, &indptr, &indices].map(|ids| device.upload(ids));
        Block::new(device, SampledBlock::new(src?, indptr?, indices?))
    }
}

impl BatchSource<Cpu> for Bernoulli {
    fn batch(&self, device: &Cpu, seeds: &[u32], number: u64) -> Result<Batch<Cpu>> {
        let variates = Variates::new(self.seed, number, Kappa::INDEPENDENT, Dependence::default());
        let mut dst = seeds.to_vec();
        let mut blocks = Vec::new();
        for layer in 0..self.n_layers as u32 {
            let block = self.block(device, &dst, &variates, layer)?;
            dst = block.src().to_vec();
            blocks.insert(0, Arc::new(block)); // in model order: from the inputs to the seeds
        }
        let input = self.slicer.input(&blocks[0])?;
        let mut batch = Batch::from_blocks(device, blocks, input)?;
        batch.labels = self.slicer.labels(seeds)?;
        Ok(batch)
    }

    /// For validation, test and predictions: other draws, of all in-edges where whole neighbourhoods are asked for.
    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<Cpu>>> {
        let probability = if sampler.method == Method::Full { 1.0 } else { self.probability };
        Ok(Arc::new(Bernoulli { seed: sampler.seed, probability, ..self.clone() }))
    }
}

pub(crate) fn main() -> Result<()> {
    let graph = Sbm { n_vertices: 3000, ..SbmData::default().graph };
    let dataset = Arc::new(SbmData { graph, ..SbmData::default() }.generate()?);
    let config = TrainConfig { batch_size: Some(256), eval: EvalMode::Sampled, ..TrainConfig::default() };
    let trainer = Trainer::new(Cpu::new(), dataset.clone(), config)?;
    let slicer = Slicer::new(Cpu::new(), dataset, trainer.model.needs());
    let source = Bernoulli { slicer, probability: 0.5, n_layers: 2, seed: 0 };
    // Predictions over whole neighbourhoods ask for every in-edge.
    let whole = SamplerConfig { method: Method::Full, ..trainer.config().sampler.clone() };
    let batch = source.with_sampler(whole)?.batch(&Cpu::new(), &[0, 1], 0)?;
    let graph = &source.slicer.dataset().graph;
    let n_in_edges: usize = [0, 1].map(|v| graph.in_neighbors(v).len()).iter().sum();
    assert_eq!(batch.blocks[1].n_edge(), n_in_edges);

    let outcome = trainer.with_source(Arc::new(source)).fit(&mut ())?;
    println!("test accuracy {:.3}", outcome.test_acc);
    assert!(outcome.test_acc > 0.5, "there are 8 classes");
    Ok(())
}
