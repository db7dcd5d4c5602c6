//! Vertices without features, and features per vertex type.

use std::sync::Arc;

use cohop::batch::{Batch, BatchSource, HostSampling, Slicer};
use cohop::data::{self, Dataset, Features, Split};
use cohop::device::{Cpu, Method, Storage};
use cohop::graph::Graph;
use cohop::nn::{Model, ModelConfig, ModelKind, Optimizer, OptimizerConfig, Stack};
use cohop::pattern::Pattern;
use cohop::rng;
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::tape::{Gradient, SparseRows, Tape};
use cohop::tensor::Tensor;
use cohop::train::{EvalMode, TrainConfig, Trainer};

use crate::common;

/// Two communities that only edges tell apart: vertices of equal parity.
fn communities(n: u32) -> Arc<Dataset> {
    let edge = |v: u32, i: u64| (2 * rng::bounded(1, u64::from(v), i, u64::from(n / 2)) as u32 + v % 2, v);
    let edges: Vec<(u32, u32)> = (0..n).flat_map(|v| (0..6).map(move |i| edge(v, i))).collect();
    let graph = Graph::from_edges(u64::from(n), &edges).unwrap();
    let labels: Vec<i32> = (0..n).map(|v| (v % 2) as i32).collect();
    let part = |k: u32| (0..n).filter(|v| v / 2 % 3 == k).collect();
    let split = Split { train: part(0), val: part(1), test: part(2) };
    Arc::new(Dataset::new("communities", graph, Features::None, labels, 2, split).unwrap())
}

fn config(embedding: usize) -> TrainConfig {
    let default = TrainConfig::default();
    TrainConfig {
        model: ModelConfig { kind: ModelKind::Sage, hidden: 16, embedding, ..default.model.clone() },
        batch_size: Some(64),
        epochs: 15,
        ..default
    }
}

#[test]
fn embeddings_learn_what_only_edges_tell() {
    for embedding in [0, 8] {
        let mut trainer = Trainer::new(Cpu::<f32>::new(), communities(600), config(embedding)).unwrap();
        let outcome = trainer.fit(&mut ()).unwrap();
        // Of the vertices' own rows alone, those of the test vertices say nothing.
        assert!(outcome.test_acc > 0.8, "embedding {embedding}: {outcome:?}");
        assert!(outcome.test_auc.unwrap() > 0.85, "embedding {embedding}: {outcome:?}");
    }
}

#[test]
fn a_step_changes_the_rows_that_the_batch_read_and_no_others() {
    let (cpu, dataset) = (Cpu::<f32>::new(), communities(600));
    let model = ModelConfig {
        n_features: 600,
        n_classes: 2,
        dropout: 0.0,
        embedding: 8,
        ..TrainConfig::default().model
    };
    let mut model = Stack::new(&cpu, &model, 0).unwrap();
    let adam =
        OptimizerConfig::Adam { lr: 0.1, weight_decay: 0.1, decoupled: false, first_layer_only: false };
    let mut optimizer = Optimizer::new(&cpu, adam, &model.parameters).unwrap();
    let slicer = Slicer::new(cpu.clone(), dataset, model.needs());
    let sampler = SamplerConfig {
        method: Method::NEIGHBOR,
        fanouts: Fanouts(vec![3, 3]),
        ..TrainConfig::default().sampler
    };
    let source = HostSampling::new(slicer, sampler).unwrap();
    let batch: Batch<Cpu> = source.batch(&cpu, &[5, 17, 300, 5], 0).unwrap();
    let read: Vec<u32> = batch.blocks[0].src().to_vec();
    let table = model.parameters.find("layers.0.embedding").unwrap();
    let before = model.parameters.get(table).value.to_vec(&cpu).unwrap();

    let tape = Tape::training(&cpu, 0);
    let logits = model.forward(&tape, &batch).unwrap();
    let labels = cpu.upload(&batch.labels).unwrap();
    let loss = tape.log_softmax_nll(logits, labels, 1.0).unwrap();
    let gradients = tape.backward(loss).unwrap();
    let Some(Gradient::Rows(rows)) = gradients.get_parameter(table) else {
        panic!("the table's gradient is row-sparse");
    };
    let mut expected = read.clone();
    expected.sort_unstable();
    assert_eq!(rows.index(), expected, "exactly the batch's input vertices");
    assert!(gradients.of_parameter(table).is_none());
    optimizer.step(&cpu, &mut model.parameters, &gradients).unwrap();
    let after = model.parameters.get(table).value.to_vec(&cpu).unwrap();
    for (v, (old, new)) in before.chunks(8).zip(after.chunks(8)).enumerate() {
        assert_eq!(old != new, read.contains(&(v as u32)), "row {v}");
    }
}

/// A run that stops and goes on from its checkpoint ends in the same bits: tables and their moments are saved.
#[test]
fn a_table_and_its_moments_survive_a_checkpoint() {
    let dataset = communities(300);
    let bits = |trainer: &Trainer<Cpu<f32>>| -> Vec<u32> {
        let values = trainer.model.parameters.iter().map(|(_, p)| p.value.to_vec(trainer.device()).unwrap());
        values.flatten().map(f32::to_bits).collect()
    };
    let config = TrainConfig { epochs: 4, eval: EvalMode::Sampled, ..config(8) };
    let mut whole = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config.clone()).unwrap();
    for _ in 0..4 {
        whole.run_epoch(&mut ()).unwrap();
    }
    let mut first = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap();
    for _ in 0..2 {
        first.run_epoch(&mut ()).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    first.save(folder.path()).unwrap();
    let mut second = Trainer::resume(Cpu::<f32>::new(), dataset, folder.path(), |_| {}).unwrap();
    for _ in 0..2 {
        second.run_epoch(&mut ()).unwrap();
    }
    assert_eq!(bits(&whole), bits(&second));
}

/// Features that are block-diagonal by vertex type: one product with a matrix is a projection per type.
#[test]
fn one_sparse_product_is_a_projection_per_vertex_type() {
    for file in ["data/heco_acm.npz", "data/heco_dblp.npz"] {
        let Some(path) = common::shared(file) else { return };
        let dataset = data::load(path).unwrap();
        let Features::Sparse(x) = &dataset.features else { panic!("{file}: sparse features") };
        let types = dataset.vertex_type.as_ref().unwrap();
        let n_types = dataset.n_vertex_types();
        // Which columns the vertices of each type use: ranges that do not meet.
        let mut ranges = vec![(usize::MAX, 0); n_types];
        for v in 0..x.n_rows() {
            let range = &mut ranges[usize::from(types[v])];
            for &column in x.row(v).0 {
                *range = (range.0.min(column as usize), range.1.max(column as usize + 1));
            }
        }
        let mut used: Vec<(usize, usize)> = ranges.iter().copied().filter(|r| r.1 > 0).collect();
        used.sort_unstable();
        assert!(used.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{file}: {used:?}");
        assert!(used.len() > 1, "{file}: several types have features");

        let (cpu, width) = (Cpu::<f32>::new(), 5);
        let weight: Vec<f32> = (0..x.dim() * width).map(|i| rng::normal(1, 1, i as u64) as f32).collect();
        let product = |rows: &[usize], columns: (usize, usize)| -> Vec<f32> {
            let (mut indptr, mut indices, mut values) = (vec![0u32], Vec::new(), Vec::new());
            for &v in rows {
                let (row, row_values) = x.row(v);
                indices.extend(row.iter().map(|&c| c - columns.0 as u32));
                values.extend_from_slice(row_values);
                indptr.push(indices.len() as u32);
            }
            let names: Vec<u32> = (0..indices.len() as u32).collect();
            let pattern = Pattern::from_host(&cpu, columns.1 - columns.0, &indptr, &indices).unwrap();
            let (values, names) = (cpu.upload(&values).unwrap(), cpu.upload(&names).unwrap());
            let sparse = SparseRows::new(pattern, values, names).unwrap();
            let tape = Tape::inference(&cpu);
            let part = &weight[columns.0 * width..columns.1 * width];
            let part = Tensor::from_slice(&cpu, columns.1 - columns.0, width, part).unwrap();
            let out = tape.sparse_linear(&sparse, tape.constant(part)).unwrap();
            tape.value(out).to_vec(&cpu).unwrap()
        };
        let whole = product(&(0..x.n_rows()).collect::<Vec<_>>(), (0, x.dim()));
        for (kind, &range) in ranges.iter().enumerate().filter(|(_, r)| r.1 > 0) {
            let rows: Vec<usize> = (0..x.n_rows()).filter(|&v| usize::from(types[v]) == kind).collect();
            let own = product(&rows, range);
            for (row, own) in rows.iter().zip(own.chunks(width)) {
                assert_eq!(&whole[row * width..(row + 1) * width], own, "{file}: vertex {row}");
            }
        }
    }
}
