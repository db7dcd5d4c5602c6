//! P³: processing elements that share the first layer by columns train as those that do not.

use std::sync::Arc;

use cohop::batch::{BatchInput, BatchNeeds, BatchSource, Cooperative, Slicer};
use cohop::comm::{Stage, threads};
use cohop::coop::{FirstBlock, FirstLayer, Group, InputTerms, Mode, p3_bytes};
use cohop::data::{Dataset, FeatureDtype};
use cohop::device::{Cpu, Method, Scalar};
use cohop::graph::{Partition, PartitionMethod};
use cohop::nn::{Decomposition, ModelKind};
use cohop::tape::{Aggregate, Tape};
use cohop::train::{CacheConfig, EvalMode, ParallelConfig, TrainConfig, Trainer};

use crate::common::assert_close;
use crate::cooperation::{
    COOPERATIVE, INDEPENDENT, alone, assert_same_parameters, config as dropping, dataset, together,
};

const P3: [ParallelConfig; 2] = [
    ParallelConfig { first_layer: FirstLayer::P3, ..COOPERATIVE },
    ParallelConfig { first_layer: FirstLayer::P3, ..INDEPENDENT },
];

const KINDS: [ModelKind; 5] =
    [ModelKind::Sage, ModelKind::Gcn, ModelKind::GcnMean, ModelKind::Gin, ModelKind::Rgcn];

/// With dropout between the layers, and none of the input.
fn config(kind: ModelKind) -> TrainConfig {
    let mut config = dropping(kind);
    config.model.input_dropout = 0.0;
    config
}

/// Cooperative runs equal the serial one, independent ones those that get whole rows.
fn compare<S: Scalar>(
    what: &str,
    dataset: &Arc<Dataset>,
    config: &TrainConfig,
    pes: &[usize],
    tolerance: f64,
) {
    let start = alone::<S>(dataset, config, 0);
    for &n_pes in pes {
        for p3 in P3 {
            let expected = match p3.mode {
                Mode::Cooperative => alone::<S>(dataset, config, 2),
                _ => together::<S>(dataset, config, INDEPENDENT, n_pes, 2),
            };
            let found = together::<S>(dataset, config, p3, n_pes, 2);
            let what = format!("{what}, {} on {n_pes} elements", p3.mode);
            assert_same_parameters(&what, &expected, &found, &start, tolerance);
            assert_close(&what, &found.losses, &expected.losses, |_, loss| tolerance * loss);
            assert_eq!(found.val_acc, expected.val_acc, "{what}");
            assert_eq!((found.edges, found.input_vertices), (expected.edges, expected.input_vertices));
        }
    }
}

#[test]
fn every_linear_first_layer_can_be_shared_by_columns() {
    for kind in KINDS {
        // 10 elements for 7 columns: three have none.
        compare::<f64>(&format!("{kind:?}"), &dataset(7), &config(kind), &[1, 2, 3, 4, 10], 1e-9);
    }
    compare::<f32>("f32", &dataset(7), &config(ModelKind::Sage), &[3], 1e-3);
    for (decomposition, features) in [(Decomposition::Basis(2), 7), (Decomposition::BlockDiagonal(2), 8)] {
        let mut config = config(ModelKind::Rgcn);
        config.model.decomposition = decomposition;
        config.model.hidden = 6;
        compare::<f64>(&format!("{decomposition:?}"), &dataset(features), &config, &[3], 1e-9);
    }
}

#[test]
fn every_sampler_evaluation_and_form_of_features_can_be_shared_by_columns() {
    let walk = Method::Walk { walks: 5, length: 3, restart: 0.5 };
    for method in [Method::Full, Method::LABOR_0, Method::LABOR_STAR, walk] {
        for eval in [EvalMode::Sampled, EvalMode::Full] {
            let mut config = config(ModelKind::Sage);
            (config.sampler.method, config.eval) = (method, eval);
            compare::<f64>(&format!("{method:?} {eval:?}"), &dataset(5), &config, &[3], 1e-9);
        }
    }
    let plain = dataset(5);
    for dtype in [FeatureDtype::F16, FeatureDtype::Bf16] {
        let features = plain.features.to_dtype(dtype).unwrap();
        let stored = Arc::new(Dataset { features, ..Dataset::clone(&plain) });
        compare::<f64>(&format!("{dtype:?}"), &stored, &config(ModelKind::Gcn), &[2], 1e-9);
    }
    let weights: Vec<f32> = (0..plain.graph.n_edges()).map(|e| (e % 5) as f32 * 0.7).collect();
    let graph = Arc::new(plain.graph.as_ref().clone().with_edge_weights(weights).unwrap());
    let weighted = Arc::new(Dataset { graph, ..Dataset::clone(&plain) });
    for kind in KINDS {
        let mut config = config(kind);
        config.model.weighted = true;
        compare::<f64>(&format!("{kind:?} with edge weights"), &weighted, &config, &[3], 1e-9);
    }
    // The last batch has fewer seeds than there are elements.
    let mut config = config(ModelKind::Sage);
    config.batch_size = Some(59);
    compare::<f64>("few seeds", &plain, &config, &[4], 1e-9);
}

#[test]
fn what_cannot_be_shared_by_columns_is_an_error() {
    let refused = |config: &TrainConfig, dataset: &Arc<Dataset>| {
        let one = |communicator| {
            Trainer::parallel(Cpu::<f32>::new(), dataset.clone(), config.clone(), P3[1], communicator)
                .map(|_| ())
        };
        threads::run(2, one).unwrap_err().to_string()
    };
    for kind in [ModelKind::Gat, ModelKind::Gatv2, ModelKind::Rgat, ModelKind::SageRi] {
        assert!(refused(&config(kind), &dataset(7)).contains("first layer is p3"), "{kind:?}");
    }
    assert!(refused(&dropping(ModelKind::Sage), &dataset(7)).contains("without input_dropout"));
    let mut cached = config(ModelKind::Sage);
    cached.cache = Some(CacheConfig { policy: cohop::cache::Policy::Lru, rows: 5 });
    assert!(refused(&cached, &dataset(7)).contains("cache"));
    assert!(refused(&config(ModelKind::Rgcn), &dataset(0)).contains("features"));
}

/// The bytes by formula are those that the transport counts.
#[test]
fn bytes_are_those_that_were_sent() {
    let (cpu, dataset, n_pes) = (Cpu::<f64>::new(), dataset(7), 3);
    let config = config(ModelKind::Sage);
    let terms = InputTerms::Aggregate(Aggregate::Mean);
    let found = threads::run(n_pes, |communicator| {
        let partition = Partition::of_graph(PartitionMethod::Random, &dataset.graph, n_pes, 4)?;
        let group = Group::new(&cpu, Mode::Cooperative, communicator.clone())?;
        let needs = BatchNeeds { input_terms: Some(terms), ..BatchNeeds::default() };
        let slicer = Slicer::new(cpu.clone(), dataset.clone(), needs).with_column_slices(&group)?;
        let source = Cooperative::new(slicer, config.sampler.clone(), &Arc::new(partition), group)?;
        communicator.reset_statistics();
        let batch = source.batch(&cpu, &dataset.train_idx[..50], 0)?;
        assert!(matches!(batch.input, BatchInput::Sliced(_)));
        let sent = |stage| communicator.statistics().stage(stage).bytes;
        let blocks = sent(Stage::Feature);
        let BatchInput::Sliced(x) = &batch.input else { unreachable!() };
        let tape = Tape::training(&cpu, 0);
        let weight = cohop::tensor::Tensor::zeros(&cpu, 14, 6)?;
        let weight = tape.leaf(weight);
        let out = cohop::coop::sliced_linear(&tape, x.share(), tape.constant(x.rows().clone()), weight)?;
        let ones = cohop::tensor::Tensor::zeros(&cpu, batch.blocks[0].n_dst(), 6)?;
        let loss = tape.dot(out, ones)?;
        tape.backward(loss)?;
        let block = &batch.blocks[0];
        let first = FirstBlock { n_dst: block.n_dst() as u64, n_edge: block.n_edge() as u64 };
        Ok((first, [blocks, sent(Stage::Forward), sent(Stage::Backward)]))
    })
    .unwrap();
    let firsts: Vec<FirstBlock> = found.iter().map(|(first, _)| *first).collect();
    let sums = |stage: usize| found.iter().map(|(_, sent)| sent[stage]).sum::<u64>();
    let bytes = p3_bytes(&firsts, terms, 6, 8);
    assert_eq!([bytes.blocks, bytes.forward, bytes.backward], [0, 1, 2].map(sums));
    assert!(bytes.forward > 0);
}
