//! Predictions of a saved model, for a graph that it was not trained on.
//!
//! `cargo run --release --example inference`

use std::sync::Arc;

use cohop::batch::{BatchSource, HostSampling, Slicer};
use cohop::data::{Dataset, SbmData};
use cohop::device::Cpu;
use cohop::graph::{Graph, Sbm};
use cohop::nn::{Model, Stack};
use cohop::train::{TrainConfig, Trainer, argmax_rows, infer_batches, infer_full, read_info};

pub(crate) fn main() -> cohop::Result<()> {
    let folder = std::env::temp_dir().join(format!("cohop-inference-{}", std::process::id()));
    let graph = Sbm { n_vertices: 3000, ..SbmData::default().graph };
    let trained = Arc::new(SbmData { graph, ..SbmData::default() }.generate()?);
    let config = TrainConfig { epochs: 5, batch_size: Some(256), ..TrainConfig::default() };
    let mut trainer = Trainer::new(Cpu::<f32>::new(), trained.clone(), config)?;
    trainer.fit(&mut ())?;
    trainer.save(&folder)?;
    trainer.model.parameters.save(trainer.device(), &folder.join("model.safetensors"))?;

    // Elsewhere: the checkpoint says what the model is made of, its file of parameters what they are.
    let cpu = Cpu::<f32>::new();
    let config = read_info(&folder)?.config;
    let mut model = Stack::new(&cpu, &config.model, 0)?;
    model.parameters.load(&cpu, &folder.join("model.safetensors"))?;

    let graph = thinned(&trained)?;
    let slicer = Slicer::new(cpu.clone(), graph.clone(), model.needs());

    // All vertices, over all of their neighbours: each is computed once a layer.
    let all: Vec<u32> = (0..graph.n_vertices() as u32).collect();
    let scores = infer_full(&cpu, &model, &slicer, &all, 1024, 2)?;
    let classes = argmax_rows(&scores, model.n_outputs());
    let n_right = classes.iter().zip(graph.labels.iter()).filter(|(a, b)| a == b).count();
    println!("full neighbourhoods: {n_right} of {} right", graph.n_vertices());

    // Some vertices, over sampled neighbours.
    let some: Vec<u32> = (0..graph.n_vertices() as u32).step_by(10).collect();
    let source: Arc<dyn BatchSource<Cpu>> = Arc::new(HostSampling::new(slicer, config.sampler)?);
    let scores = infer_batches(&cpu, &model, &source, &some, 100, 2)?;
    let classes = argmax_rows(&scores, model.n_outputs());
    let n_sampled =
        some.iter().zip(&classes).filter(|(v, class)| graph.labels[**v as usize] == **class).count();
    println!("sampled neighbourhoods: {n_sampled} of {} right", some.len());
    assert!(n_right * 2 > graph.n_vertices() && n_sampled * 2 > some.len());
    std::fs::remove_dir_all(&folder).map_err(|e| cohop::Error::io(&folder, e))
}

/// The same vertices without every fifth edge, as they are known elsewhere or at another time.
fn thinned(dataset: &Dataset) -> cohop::Result<Arc<Dataset>> {
    let n = dataset.n_vertices();
    let in_edges = |t: u32| dataset.graph.in_neighbors(t).iter().map(move |&s| (s, t));
    let edges = (0..n as u32).flat_map(in_edges).enumerate().filter(|(i, _)| i % 5 != 0);
    let edges: Vec<(u32, u32)> = edges.map(|(_, edge)| edge).collect();
    let graph = Arc::new(Graph::from_edges(n as u64, &edges)?);
    Ok(Arc::new(Dataset { graph, ..dataset.clone() }))
}
