//! Attention layers and GraphSAGE-RI as a whole: memory, threads, special rows, layer-wise inference.

use std::sync::Arc;

use approx::assert_abs_diff_eq;
use cohop::batch::Slicer;
use cohop::block::Block;
use cohop::data::{self, Dataset, SbmData};
use cohop::device::{Cpu, Method};
use cohop::graph::Sbm;
use cohop::nn::{Input, Model, ModelConfig, ModelKind, Parameters, Pass, SageRiHead, Stack};
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::tape::{AttentionOptions, Tape};
use cohop::tensor::Tensor;
use cohop::train::{TrainConfig, Trainer, infer_full};

use crate::common::{self, assert_close};

const KINDS: [ModelKind; 3] = [ModelKind::Gat, ModelKind::Gatv2, ModelKind::SageRi];

fn full_batch(model: ModelConfig) -> TrainConfig {
    let base = TrainConfig::default();
    let fanouts = Fanouts(vec![usize::MAX; model.n_layers]);
    TrainConfig {
        model,
        sampler: SamplerConfig { method: Method::Full, fanouts, ..base.sampler },
        batch_size: None,
        epochs: 2,
        ..base
    }
}

fn model(kind: ModelKind) -> ModelConfig {
    ModelConfig {
        kind,
        hidden: 16,
        heads: 4,
        output_heads: 2,
        attention_dropout: 0.3,
        ..TrainConfig::default().model
    }
}

fn small() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 900, n_classes: 4, mean_degree: 8.0, ..SbmData::default().graph };
    Arc::new(SbmData { graph, dim: 12, separation: 1.8 }.generate().unwrap())
}

fn parameters(trainer: &Trainer<Cpu<f32>>) -> Vec<Vec<f32>> {
    trainer.model.parameters.iter().map(|(_, p)| p.value.to_vec(trainer.device()).unwrap()).collect()
}

#[test]
fn training_gat_holds_no_features_per_edge() {
    let Some(path) = common::shared("data/tolokers.npz") else { return };
    let dataset = Arc::new(data::load(path).unwrap());
    let (n_edge, heads, dim) = (dataset.graph.n_edges(), 8, 16);
    for kind in [ModelKind::Gat, ModelKind::Gatv2] {
        let model = ModelConfig { hidden: dim, heads, ..model(kind) };
        let device = Cpu::<f32>::new();
        let config = TrainConfig { epochs: 1, ..full_batch(model) };
        let mut trainer = Trainer::new(device.clone(), dataset.clone(), config).unwrap();
        device.reset_peak_memory();
        trainer.fit(&mut ()).unwrap();
        let largest = device.memory_statistics().largest_bytes;
        // At most two numbers a message and head, self-loops included.
        let messages = n_edge + dataset.n_vertices() as u64;
        assert!(largest <= messages * heads as u64 * 2 * 4, "{kind:?}: a buffer of {largest} bytes");
        assert!(largest < n_edge * (heads * dim) as u64 * 4);
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let dataset = small();
    for kind in KINDS {
        let train = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let config = full_batch(model(kind));
                let mut trainer = Trainer::new(Cpu::new(), dataset.clone(), config).unwrap();
                trainer.fit(&mut ()).unwrap();
                parameters(&trainer)
            })
        };
        let expected = train(1);
        assert_eq!(expected, train(2), "{kind:?}, 2 threads");
        assert_eq!(expected, train(8), "{kind:?}, 8 threads");
    }
}

#[test]
fn layer_wise_inference_is_the_model_on_the_whole_graph() {
    let dataset = small();
    for kind in KINDS {
        let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), full_batch(model(kind))).unwrap();
        trainer.fit(&mut ()).unwrap();
        let all: Vec<u32> = (0..dataset.n_vertices() as u32).collect();
        let whole = trainer.predict(&all).unwrap();
        let slicer = Slicer::new(Cpu::new(), dataset.clone(), trainer.model.needs());
        let by_layer = infer_full(trainer.device(), &trainer.model, &slicer, &all, 128, 1).unwrap();
        assert_close(&format!("{kind:?}"), &by_layer, &whole, |_, whole| 1e-4 * (1.0 + whole.abs()));
        // Few vertices, one of them twice, have the scores that they have among all.
        let few = [7, 3, 7, all.len() as u32 - 1];
        let n = trainer.model.n_outputs();
        let expected: Vec<f32> = few.iter().flat_map(|&v| whole[v as usize * n..][..n].to_vec()).collect();
        let found = infer_full(trainer.device(), &trainer.model, &slicer, &few, 2, 1).unwrap();
        assert_close(&format!("{kind:?}"), &found, &expected, |_, whole| 1e-4 * (1.0 + whole.abs()));
    }
}

#[test]
fn minibatches_train_every_model() {
    let dataset = small();
    for kind in KINDS {
        let config =
            TrainConfig { epochs: 6, batch_size: Some(50), model: model(kind), ..TrainConfig::default() };
        let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap();
        let outcome = trainer.fit(&mut ()).unwrap();
        assert!(outcome.test_acc > 0.5, "{kind:?}: {outcome:?}, chance is 0.25");
    }
}

/// A destination without messages gives 0 and has no gradient; parallel edges count separately.
#[test]
fn isolated_destinations_and_parallel_edges() {
    let device = Cpu::<f64>::new();
    // Destination 0 has no edges, 1 has source 2 twice and source 3 once.
    let block = Arc::new(Block::from_csr(&device, 4, &[0, 0, 3], &[2, 2, 3]).unwrap());
    let options = AttentionOptions { heads: 1, slope: 0.2, self_loop: false, dropout: 0.0 };
    let tape = Tape::training(&device, 0);
    let z = tape.leaf(Tensor::from_slice(&device, 4, 1, &[5.0, 7.0, 3.0, 6.0]).unwrap());
    let zero = tape.leaf(Tensor::zeros(&device, 1, 1).unwrap());
    let z_dst = tape.leaf(Tensor::from_slice(&device, 2, 1, &[1.0, 2.0]).unwrap());
    let out = tape.gat(&block, z, zero, zero, options).unwrap();
    let out_v2 = tape.gatv2(&block, z, z_dst, zero, options).unwrap();
    // All scores are 0: the mean of 3, 3 and 6.
    for out in [out, out_v2] {
        let values = tape.value(out).to_vec(&device).unwrap();
        assert_eq!(values[0], 0.0);
        assert_abs_diff_eq!(values[1], 4.0, epsilon = 1e-12);
    }
    let both = tape.add(out, out_v2).unwrap();
    let loss = tape.dot(both, Tensor::from_slice(&device, 2, 1, &[1.0, 1.0]).unwrap()).unwrap();
    let gradients = tape.backward(loss).unwrap();
    let dz = gradients.of(z).unwrap().to_vec(&device).unwrap();
    assert_close("dz", &dz, &[0.0, 0.0, 4.0 / 3.0, 2.0 / 3.0], |_, _| 1e-12);
    assert_eq!(gradients.of(z_dst).unwrap().to_vec(&device).unwrap(), [0.0, 0.0]);
}

/// The fused operation against edge softmax and aggregation one by one.
#[test]
fn fused_attention_is_what_its_parts_are() {
    let device = Cpu::<f64>::new();
    let indices = [3, 0, 2, 2, 4, 1, 0, 5, 5, 3];
    let block = Arc::new(Block::from_csr(&device, 6, &[0, 4, 4, 10], &indices).unwrap());
    let values =
        |n: usize, seed: u64| -> Vec<f64> { (0..n as u64).map(|i| cohop::rng::normal(seed, 0, i)).collect() };
    let (dim, options) = (5, AttentionOptions { heads: 1, slope: 0.2, self_loop: false, dropout: 0.0 });
    let run = |fused: bool| {
        let tape = Tape::training(&device, 0);
        let leaf = |rows, seed| {
            tape.leaf(Tensor::from_slice(&device, rows, dim, &values(rows * dim, seed)).unwrap())
        };
        let (z, a_src, a_dst) = (leaf(6, 1), leaf(1, 2), leaf(1, 3));
        let out = if fused {
            tape.gat(&block, z, a_src, a_dst, options).unwrap()
        } else {
            let src = tape.head_dot(z, a_src, 1).unwrap();
            let dst = tape.head_dot(tape.prefix(z, 3).unwrap(), a_dst, 1).unwrap();
            let scores = tape.edge_add(&block, src, dst).unwrap();
            let scores = tape.activate(scores, cohop::device::Activation::LeakyRelu { slope: 0.2 }).unwrap();
            let alpha = tape.edge_softmax(&block, scores).unwrap();
            tape.aggregate_weighted(&block, z, alpha).unwrap()
        };
        let mut all = vec![tape.value(out).to_vec(&device).unwrap()];
        let loss = tape.dot(out, Tensor::from_slice(&device, 3, dim, &values(3 * dim, 4)).unwrap()).unwrap();
        let gradients = tape.backward(loss).unwrap();
        all.extend([z, a_src, a_dst].map(|v| gradients.of(v).unwrap().to_vec(&device).unwrap()));
        all
    };
    assert_close("fused", &run(true).concat(), &run(false).concat(), |_, _| 1e-12);
}

/// The head never makes the concatenation that it is defined by.
#[test]
fn sage_ri_head_is_two_linear_maps_of_the_concatenation() {
    let device = Cpu::<f64>::new();
    let mut parameters = Parameters::new(3);
    let head = SageRiHead::new(&device, &mut parameters, &[3, 4, 4], 2).unwrap();
    let tape = Tape::inference(&device);
    let pass = Pass { tape: &tape, parameters: &parameters };
    let stages = [3, 4, 4].map(|width| {
        let values: Vec<f64> =
            (0..5 * width as u64).map(|i| cohop::rng::normal(width as u64, 0, i)).collect();
        tape.constant(Tensor::from_slice(&device, 5, width, &values).unwrap())
    });
    let out = head.forward(&pass, 2, &stages.map(Input::Dense)).unwrap();
    let by_name = |name: &str| {
        let value = &parameters.get(parameters.find(&format!("layers.2.{name}")).unwrap()).value;
        (value.clone(), value.to_vec(&device).unwrap())
    };
    let stacked: Vec<f64> = (0..3).flat_map(|i| by_name(&format!("head_weight_{i}")).1).collect();
    let stacked = tape.constant(Tensor::from_slice(&device, 11, 4, &stacked).unwrap());
    let [bias, weight_2, bias_2] =
        ["head_bias", "out_weight", "out_bias"].map(|name| tape.constant(by_name(name).0));
    let joined = tape.prefix(tape.concatenate(&stages).unwrap(), 2).unwrap();
    let hidden = tape.linear(&[(joined, stacked)], Some(bias), None).unwrap();
    let expected = tape.linear(&[(hidden, weight_2)], Some(bias_2), None).unwrap();
    let values = |var| tape.value(var).to_vec(&device).unwrap();
    assert_close("out", &values(out), &values(expected), |_, _| 1e-12);
}

/// Configurations written before there were attention models can still be read.
#[test]
fn new_settings_have_defaults() {
    let json = r#"{"kind": "sage", "n_features": 3, "hidden": 4, "n_classes": 2, "n_layers": 2, "dropout": 0.1,
        "input_dropout": 0.0}"#;
    let config: ModelConfig = serde_json::from_str(json).unwrap();
    assert_eq!((config.heads, config.output_heads, config.attention_dropout), (1, 1, 0.0));
    assert!(config.self_loops);
    let device = Cpu::<f32>::new();
    assert!(
        Stack::new(&device, &ModelConfig { heads: 0, kind: ModelKind::Gat, ..config.clone() }, 0).is_err()
    );
    assert!(
        Stack::new(&device, &ModelConfig { attention_dropout: 1.0, kind: ModelKind::Gat, ..config }, 0)
            .is_err()
    );
}
