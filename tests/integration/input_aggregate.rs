//! Features aggregated while they are gathered: the same scores and gradients as from the sources' rows.

use std::sync::Arc;

use cohop::batch::{Batch, BatchInput, BatchNeeds, BatchSource, HostSampling, Slicer};
use cohop::block::Block;
use cohop::data::{Dataset, FeatureDtype, SbmData};
use cohop::device::{Cpu, LaborIterations, Method};
use cohop::graph::Sbm;
use cohop::nn::{Model, ModelConfig, ModelKind, Stack};
use cohop::sample::Fanouts;
use cohop::tape::{Aggregate, Tape};
use cohop::tensor::Tensor;
use cohop::train::{TrainConfig, infer_full};

use crate::common::assert_close;

/// Blocks without weights, with them, and whole.
const METHODS: [Method; 3] = [
    Method::NEIGHBOR,
    Method::Labor { iterations: LaborIterations::Fixed(0), fixed_size: false, layer_dependent: true },
    Method::Full,
];

fn data() -> Dataset {
    let SbmData { graph, dim, separation } = SbmData::default();
    SbmData { graph: Sbm { n_vertices: 1200, ..graph }, dim, separation }.generate().unwrap()
}

fn config(dataset: &Dataset, kind: ModelKind) -> ModelConfig {
    ModelConfig {
        kind,
        n_features: dataset.features.dim(),
        hidden: dataset.features.dim() + 3,
        n_classes: dataset.n_classes,
        n_layers: 2,
        dropout: 0.25,
        input_dropout: 0.0,
        ..TrainConfig::default().model
    }
}

/// Scores of a batch, and the gradients of all parameters.
fn run(
    cpu: &Cpu<f64>,
    model: &Stack<Cpu<f64>>,
    slicer: &Slicer<f64>,
    method: Method,
) -> (bool, Vec<Vec<f64>>) {
    let mut sampler = TrainConfig::default().sampler;
    (sampler.method, sampler.fanouts) = (method, Fanouts(vec![4, 3]));
    let source = HostSampling::new(slicer.clone(), sampler).unwrap();
    let seeds: Vec<u32> = slicer.dataset().train_idx[..60].to_vec();
    let batch: Batch<Cpu<f64>> = source.batch(cpu, &seeds, 5).unwrap();
    let is_aggregated = batch.input.is_aggregated();
    assert_eq!(batch.loaded.misses, batch.blocks[0].n_src() as u64);
    let tape = Tape::training(cpu, 1);
    let logits = model.forward(&tape, &batch).unwrap();
    let mut values = vec![tape.value(logits).to_vec(cpu).unwrap()];
    let loss = tape.log_softmax_nll(logits, batch.labels, 1.0 / seeds.len() as f64).unwrap();
    let gradients = tape.backward(loss).unwrap();
    for (id, _) in model.parameters.iter() {
        if let Some(gradient) = gradients.of_parameter(id) {
            values.push(gradient.to_vec(cpu).unwrap());
        }
    }
    (is_aggregated, values)
}

#[test]
fn scores_and_gradients_are_those_of_the_rows() {
    let cpu = Cpu::<f64>::new();
    let plain = data();
    for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16] {
        let features = plain.features.to_dtype(dtype).unwrap();
        let dataset = Arc::new(Dataset { features, ..plain.clone() });
        for kind in [ModelKind::Sage, ModelKind::Gcn, ModelKind::GcnMean] {
            for method in METHODS {
                let model = Stack::new(&cpu, &config(&dataset, kind), 3).unwrap();
                let slicer = |needs| Slicer::new(cpu.clone(), dataset.clone(), needs);
                let aggregated = slicer(model.needs());
                let rows = slicer(BatchNeeds { input_aggregate: None, ..model.needs() });
                let (is_aggregated, expected) = run(&cpu, &model, &rows, method);
                assert!(!is_aggregated);
                let (is_aggregated, values) = run(&cpu, &model, &aggregated, method);
                assert!(is_aggregated);
                assert!(values.len() > 4, "scores and a gradient for each parameter");
                assert_eq!(values.len(), expected.len());
                let tolerance = |_, expected: f64| 1e-11 * (1.0 + expected.abs());
                for (values, expected) in values.iter().zip(&expected) {
                    assert_close(&format!("{kind:?} {method:?}"), values, expected, tolerance);
                }
                let all: Vec<u32> = (0..dataset.n_vertices() as u32).collect();
                let expected = infer_full(&cpu, &model, &rows, &all, 500, 1).unwrap();
                let values = infer_full(&cpu, &model, &aggregated, &all, 500, 1).unwrap();
                assert_close(&format!("{kind:?}, all vertices"), &values, &expected, tolerance);
            }
        }
    }
}

#[test]
fn only_what_is_linear_in_narrow_dense_features_is_asked_for() {
    let cpu = Cpu::<f32>::new();
    let dataset = data();
    let sage = config(&dataset, ModelKind::Sage);
    let asked = |config: ModelConfig| Stack::new(&cpu, &config, 0).unwrap().needs().input_aggregate;
    assert_eq!(asked(sage.clone()), Some(Aggregate::Mean));
    assert_eq!(asked(config(&dataset, ModelKind::Gcn)), Some(Aggregate::Symmetric));
    assert_eq!(asked(config(&dataset, ModelKind::GcnMean)), Some(Aggregate::MeanWithSelf));
    for kind in [ModelKind::Gin, ModelKind::Gat, ModelKind::Gatv2, ModelKind::SageRi] {
        assert_eq!(asked(config(&dataset, kind)), None);
    }
    assert_eq!(asked(ModelConfig { input_dropout: 0.1, ..sage.clone() }), None);
    assert_eq!(asked(ModelConfig { embedding: 8, ..sage.clone() }), None);
    assert_eq!(asked(ModelConfig { hidden: sage.n_features - 1, ..sage }), None);
}

/// An aggregate of another kind or shape than the first layer takes is an error, as is one for a layer that needs rows.
#[test]
fn an_aggregate_that_does_not_fit_is_an_error() {
    let cpu = Cpu::<f32>::new();
    let dataset = data();
    let dim = dataset.features.dim();
    let block = Arc::new(Block::from_csr(&cpu, 3, &[0, 1, 3], &[2, 0, 1]).unwrap());
    let forward = |kind, aggregate, cols| {
        let model = Stack::new(&cpu, &ModelConfig { n_layers: 1, ..config(&dataset, kind) }, 0).unwrap();
        let tape = Tape::inference(&cpu);
        let rows = Tensor::zeros(&cpu, 2, cols).unwrap();
        let input = BatchInput::Aggregated(rows, aggregate);
        model.forward(&tape, &Batch::from_blocks(&cpu, vec![block.clone()], input).unwrap()).map(drop)
    };
    forward(ModelKind::Sage, Aggregate::Mean, 2 * dim).unwrap();
    forward(ModelKind::GcnMean, Aggregate::MeanWithSelf, dim).unwrap();
    assert!(forward(ModelKind::Sage, Aggregate::Mean, dim).is_err());
    assert!(forward(ModelKind::Sage, Aggregate::Sum, 2 * dim).is_err());
    assert!(forward(ModelKind::Gcn, Aggregate::MeanWithSelf, dim).is_err());
    for kind in [ModelKind::Gin, ModelKind::Gat, ModelKind::Gatv2, ModelKind::SageRi] {
        assert!(forward(kind, Aggregate::Sum, 2 * dim).is_err(), "{kind:?}");
    }
}
