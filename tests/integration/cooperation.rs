//! Several processing elements train as one does: losses, gradients and accuracies.

use std::collections::HashMap;
use std::sync::Arc;

use cohop::comm::{Communicator, threads};
use cohop::coop::{FirstLayer, Mode, RowTransport};
use cohop::data::{Dataset, Features, Split};
use cohop::device::{Cpu, Method, Scalar, Storage};
use cohop::graph::{Graph, PartitionMethod, Rmat};
use cohop::nn::{ModelKind, OptimizerConfig};
use cohop::rng::{self, Purpose};
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::train::{EvalMode, ParallelConfig, TrainConfig, Trainer};

use crate::common::assert_close;

const KINDS: [ModelKind; 9] = [
    ModelKind::Sage,
    ModelKind::Gcn,
    ModelKind::GcnMean,
    ModelKind::Gin,
    ModelKind::Gat,
    ModelKind::Gatv2,
    ModelKind::SageRi,
    ModelKind::Rgcn,
    ModelKind::Rgat,
];

/// 200 vertices, some isolated; three relations; `features` a vertex, or none.
pub(crate) fn dataset(features: usize) -> Arc<Dataset> {
    let n = 200u32;
    let end = |which: u64, e: u64| rng::bounded(1, which, e, 190) as u32;
    let edges: Vec<(u32, u32)> = (0..900).map(|e| (end(1, e), end(2, e))).collect();
    let graph = Graph::from_edges(u64::from(n), &edges).unwrap();
    let types: Vec<u16> = (0..graph.n_edges()).map(|e| (e % 3) as u16).collect();
    let graph = graph.with_edge_types(types, 3).unwrap();
    let features = match features {
        0 => Features::None,
        dim => {
            let values =
                (0..u64::from(n) * dim as u64).map(|i| rng::normal(2, 0, i) as f32).collect::<Vec<_>>();
            Features::dense(values, n as usize, dim).unwrap()
        }
    };
    let labels: Vec<i32> = (0..u64::from(n)).map(|v| rng::bounded(3, 0, v, 4) as i32).collect();
    let split = Split { train: (0..120).collect(), val: (120..160).collect(), test: (160..200).collect() };
    Arc::new(Dataset::new("small", graph, features, labels, 4, split).unwrap())
}

pub(crate) fn config(kind: ModelKind) -> TrainConfig {
    let mut config = TrainConfig::default();
    config.model.kind = kind;
    config.model.hidden = 6;
    config.model.heads = 2;
    config.model.dropout = 0.3;
    config.model.input_dropout = 0.2;
    if kind != ModelKind::Rgat && kind.attends() {
        config.model.attention_dropout = 0.2;
    }
    config.optimizer = OptimizerConfig::Sgd { lr: 1.0, momentum: 0.0, weight_decay: 0.0 };
    config.sampler =
        SamplerConfig { method: Method::NEIGHBOR, fanouts: Fanouts(vec![4, 3]), seed: 9, ..config.sampler };
    config.batch_size = Some(200);
    config.seed = 4;
    config
}

pub(crate) const COOPERATIVE: ParallelConfig = ParallelConfig {
    mode: Mode::Cooperative,
    partition: PartitionMethod::Random,
    first_layer: FirstLayer::Whole,
    row_transport: RowTransport::Auto,
};
pub(crate) const INDEPENDENT: ParallelConfig = ParallelConfig {
    mode: Mode::Independent,
    partition: PartitionMethod::Random,
    first_layer: FirstLayer::Whole,
    row_transport: RowTransport::Auto,
};

/// What a run of some epochs leaves: losses, validation accuracies, and every parameter.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub losses: Vec<f64>,
    pub val_acc: Vec<f64>,
    pub parameters: Vec<(String, Vec<f64>)>,
    pub edges: u64,
    pub input_vertices: u64,
}

fn run<S: Scalar>(mut trainer: Trainer<Cpu<S>>, epochs: u64) -> cohop::Result<Run> {
    let (mut losses, mut val_acc, mut edges, mut input_vertices) = (Vec::new(), Vec::new(), 0, 0);
    for _ in 0..epochs {
        let report = trainer.run_epoch(&mut ())?;
        losses.push(report.loss);
        val_acc.push(report.val_acc.unwrap());
        edges += report.edges;
        input_vertices += report.input_vertices;
    }
    let device = trainer.device().clone();
    let values = |p: &cohop::nn::Parameter<Cpu<S>>| {
        p.value.to_vec(&device).map(|v| v.iter().map(|x| x.widen_f64()).collect::<Vec<_>>())
    };
    let parameters: Vec<_> = trainer
        .model
        .parameters
        .iter()
        .map(|(_, p)| Ok((p.name.clone(), values(p)?)))
        .collect::<cohop::Result<_>>()?;
    let finite = |(_, values): &(String, Vec<f64>)| values.iter().all(|v| v.is_finite());
    assert!(parameters.iter().all(finite), "a parameter is not finite");
    Ok(Run { losses, val_acc, parameters, edges, input_vertices })
}

pub(crate) fn alone<S: Scalar>(dataset: &Arc<Dataset>, config: &TrainConfig, epochs: u64) -> Run {
    run(Trainer::new(Cpu::<S>::new(), dataset.clone(), config.clone()).unwrap(), epochs).unwrap()
}

pub(crate) fn together<S: Scalar>(
    dataset: &Arc<Dataset>,
    config: &TrainConfig,
    parallel: ParallelConfig,
    n_pes: usize,
    epochs: u64,
) -> Run {
    let one = |communicator: Communicator| {
        run(
            Trainer::parallel(Cpu::<S>::new(), dataset.clone(), config.clone(), parallel, communicator)?,
            epochs,
        )
    };
    let runs = threads::run(n_pes, one).unwrap();
    for other in &runs[1..] {
        assert_eq!(other.parameters, runs[0].parameters, "parameters differ between processing elements");
        assert_eq!(other.losses, runs[0].losses);
    }
    runs[0].clone()
}

/// Panics unless the parameters of two runs agree up to a share, the tolerance, of the largest change of each; or,
/// where that should be nothing (a bias before a batch norm), of a hundredth of the largest change of all.
#[track_caller]
pub(crate) fn assert_same_parameters(what: &str, a: &Run, b: &Run, start: &Run, tolerance: f64) {
    let largest = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
    let changes: Vec<f64> =
        a.parameters.iter().zip(&start.parameters).map(|((_, x), (_, s))| largest(x, s)).collect();
    let floor = changes.iter().fold(0.0, |m: f64, &c| m.max(c)) / 100.0;
    assert!(floor > 0.0, "nothing has changed");
    for (((name, x), (_, y)), change) in a.parameters.iter().zip(&b.parameters).zip(changes) {
        assert_close(&format!("{what}: {name}"), y, x, |_, _| tolerance * change.max(floor));
    }
}

/// One step of SGD with learning rate 1 changes each parameter by its gradient.
fn gradients_agree<S: Scalar>(tolerance: f64) {
    for kind in KINDS {
        let dataset = dataset(7);
        let config = config(kind);
        let start = alone::<S>(&dataset, &config, 0);
        let serial = alone::<S>(&dataset, &config, 1);
        for n_pes in [1, 2, 3, 4, 8] {
            let cooperative = together::<S>(&dataset, &config, COOPERATIVE, n_pes, 1);
            let what = format!("{kind:?} on {n_pes} elements");
            assert_same_parameters(&what, &serial, &cooperative, &start, tolerance);
            assert_close(
                &format!("{what}: loss"),
                &cooperative.losses[..1],
                &serial.losses[..1],
                |_, loss| tolerance * loss,
            );
            // The same work, shared.
            assert_eq!(
                (cooperative.edges, cooperative.input_vertices),
                (serial.edges, serial.input_vertices)
            );
        }
    }
}

#[test]
fn cooperative_gradients_are_serial_ones_in_f64() {
    gradients_agree::<f64>(1e-10);
}

#[test]
fn cooperative_gradients_are_serial_ones_in_f32() {
    gradients_agree::<f32>(1e-4);
}

#[test]
fn every_partition_and_sampler_gives_the_serial_gradient() {
    let dataset = dataset(5);
    for method in [
        Method::Full,
        Method::LABOR_0,
        Method::LABOR_STAR,
        Method::Walk { walks: 5, length: 3, restart: 0.5 },
    ] {
        for partition in [PartitionMethod::Random, PartitionMethod::Contiguous, PartitionMethod::Hash] {
            let mut config = config(ModelKind::Sage);
            config.sampler.method = method;
            let start = alone::<f64>(&dataset, &config, 0);
            let serial = alone::<f64>(&dataset, &config, 1);
            let parallel = ParallelConfig { partition, ..COOPERATIVE };
            let cooperative = together::<f64>(&dataset, &config, parallel, 3, 1);
            let what = format!("{method:?} {partition:?}");
            assert_same_parameters(&what, &serial, &cooperative, &start, 1e-10);
        }
    }
}

/// Edges that weigh differently: each element has the weights of its own vertices' in-edges, and asks for the sums of
/// the others'.
#[test]
fn weighted_models_cooperate() {
    let plain = dataset(7);
    let weights: Vec<f32> = (0..plain.graph.n_edges()).map(|e| (e % 5) as f32 * 0.7).collect();
    let graph = Arc::new(plain.graph.as_ref().clone().with_edge_weights(weights).unwrap());
    let weighted = Arc::new(Dataset { graph, ..Dataset::clone(&plain) });
    for kind in KINDS.into_iter().filter(|kind| kind.takes_edge_weights()) {
        for method in [Method::NEIGHBOR, Method::LABOR_STAR, Method::Full] {
            let mut config = config(kind);
            config.sampler.method = method;
            let unweighted = alone::<f64>(&weighted, &config, 1);
            config.model.weighted = true;
            let start = alone::<f64>(&weighted, &config, 0);
            let serial = alone::<f64>(&weighted, &config, 1);
            let what = format!("{kind:?} {method:?}");
            assert!((serial.losses[0] - unweighted.losses[0]).abs() > 1e-4, "{what}: weights are not used");
            let cooperative = together::<f64>(&weighted, &config, COOPERATIVE, 3, 1);
            assert_same_parameters(&what, &serial, &cooperative, &start, 1e-10);
            assert_eq!(serial.val_acc, cooperative.val_acc, "{what}");
            together::<f64>(&weighted, &config, INDEPENDENT, 2, 1);
        }
    }
}

/// Without features, embeddings are learned: their gradients are rows that several elements have.
#[test]
fn embeddings_and_sparse_features_cooperate() {
    let mut config = config(ModelKind::Rgcn);
    config.model.input_dropout = 0.0;
    let dense = dataset(0);
    let start = alone::<f64>(&dense, &config, 0);
    let serial = alone::<f64>(&dense, &config, 1);
    let cooperative = together::<f64>(&dense, &config, COOPERATIVE, 3, 1);
    assert_same_parameters("embeddings", &serial, &cooperative, &start, 1e-10);

    let indptr: Vec<u64> = (0..=200).map(|v| v * 2).collect();
    let indices: Vec<u32> = (0..200u32).flat_map(|v| [v % 5, 5 + v % 4]).collect();
    let values: Vec<f32> = (0..400).map(|i| 1.0 + i as f32 / 100.0).collect();
    let sparse = cohop::data::SparseFeatures::new(indptr, indices, values, 9).unwrap();
    let sparse = Arc::new(Dataset { features: Features::Sparse(sparse), ..Dataset::clone(&dense) });
    let config = self::config(ModelKind::Gcn);
    let start = alone::<f64>(&sparse, &config, 0);
    let serial = alone::<f64>(&sparse, &config, 1);
    let cooperative = together::<f64>(&sparse, &config, COOPERATIVE, 3, 1);
    assert_same_parameters("sparse features", &serial, &cooperative, &start, 1e-10);
}

#[test]
fn a_cooperative_run_ends_where_a_serial_one_does() {
    let dataset = dataset(7);
    for workers in [0, 1] {
        let mut config = config(ModelKind::Sage);
        config.optimizer =
            OptimizerConfig::Adam { lr: 0.01, weight_decay: 0.0, decoupled: false, first_layer_only: false };
        config.batch_size = Some(50);
        config.workers = workers;
        for eval in [EvalMode::Sampled, EvalMode::Full] {
            config.eval = eval;
            let serial = alone::<f64>(&dataset, &config, 5);
            let cooperative = together::<f64>(&dataset, &config, COOPERATIVE, 3, 5);
            assert_eq!(serial.val_acc, cooperative.val_acc, "{eval:?}");
            assert_close("losses", &cooperative.losses, &serial.losses, |_, loss| 1e-9 * loss);
        }
    }
}

/// The gradient of independent elements is the mean of those of their minibatches, weighted by their seeds.
#[test]
fn independent_gradients_are_the_mean_of_serial_ones() {
    for kind in [ModelKind::Sage, ModelKind::Gat, ModelKind::Rgcn] {
        let dataset = dataset(7);
        let config = config(kind);
        let start = alone::<f64>(&dataset, &config, 0);
        let n_pes = 3;
        let parallel = together::<f64>(&dataset, &config, INDEPENDENT, n_pes, 1);
        let order = cohop::sample::Batches::new(dataset.train_idx.clone(), 200, config.seed).unwrap();
        let (_, seeds) = order.epoch(0).iter().next().map(|(n, s)| (n, s.to_vec())).unwrap();
        let mut mean: HashMap<String, Vec<f64>> = HashMap::new();
        for rank in 0..n_pes {
            let share = &seeds[seeds.len() * rank / n_pes..seeds.len() * (rank + 1) / n_pes];
            let part = Arc::new(Dataset { train_idx: share.to_vec(), ..Dataset::clone(&dataset) });
            let mut config = config.clone();
            config.sampler.seed =
                rng::derive(config.sampler.seed, Purpose::ProcessingElement.stream(0), rank as u64);
            let serial = alone::<f64>(&part, &config, 1);
            let weight = share.len() as f64 / seeds.len() as f64;
            for ((name, end), (_, start)) in serial.parameters.iter().zip(&start.parameters) {
                let sum = mean.entry(name.clone()).or_insert_with(|| start.clone());
                sum.iter_mut().zip(end.iter().zip(start)).for_each(|(m, (e, s))| *m += weight * (e - s));
            }
        }
        for (name, value) in &parallel.parameters {
            assert_close(&format!("{kind:?} {name}"), value, &mean[name], |_, expected| {
                1e-10 * (1.0 + expected.abs())
            });
        }
    }
}

/// 4097 seeds in batches of 1024 on four elements: the last batch has one, and three elements none.
#[test]
fn a_last_batch_smaller_than_the_number_of_elements_is_trained_once() {
    let graph = Rmat::graph500(13, 4, 3).generate().unwrap();
    let n = graph.n_vertices();
    let features = Features::dense(vec![0.5; n * 2], n, 2).unwrap();
    let labels: Vec<i32> = (0..n as i32).map(|v| v % 2).collect();
    let split = Split { train: (0..4097).collect(), val: (4097..4200).collect(), test: vec![] };
    let dataset = Arc::new(Dataset::new("rmat", graph, features, labels, 2, split).unwrap());
    let mut config = config(ModelKind::Sage);
    config.batch_size = Some(1024);
    config.eval = EvalMode::Sampled;
    for parallel in [COOPERATIVE, INDEPENDENT] {
        let reports = threads::run(4, |communicator| {
            let mut trainer = Trainer::parallel(
                Cpu::<f32>::new(),
                dataset.clone(),
                config.clone(),
                parallel,
                communicator,
            )?;
            trainer.run_epoch(&mut ())
        })
        .unwrap();
        for report in reports {
            assert_eq!(report.batches, 5);
            assert!(report.loss.is_finite());
        }
    }
}

/// One element that fails, or panics, in the middle of an epoch ends the run of all with an error.
#[test]
fn a_failing_element_ends_the_run() {
    struct Fails {
        panics: bool,
    }
    impl cohop::train::Observer<Cpu<f32>> for Fails {
        fn batch_done(&mut self, index: usize, _: &cohop::train::EpochReport) {
            assert!(!(self.panics && index == 1), "this element fell over");
        }
        fn epoch_done(&mut self, _: &Trainer<Cpu<f32>>, _: &cohop::train::EpochReport) -> cohop::Result<()> {
            Err(cohop::Error::invalid("disk", "full", "some room"))
        }
    }
    let dataset = dataset(7);
    for workers in [0, 1] {
        for panics in [false, true] {
            let mut config = config(ModelKind::Sage);
            config.batch_size = Some(20);
            config.workers = workers;
            let start = std::time::Instant::now();
            let error = threads::run(3, |communicator| {
                let rank = communicator.rank();
                let (device, dataset, config) = (Cpu::<f32>::new(), dataset.clone(), config.clone());
                let mut trainer = Trainer::parallel(device, dataset, config, COOPERATIVE, communicator)?;
                if rank == 1 { trainer.fit(&mut Fails { panics }) } else { trainer.fit(&mut ()) }
            })
            .unwrap_err();
            assert!(start.elapsed().as_secs() < 10, "it took {:?}", start.elapsed());
            let expected = if panics { "this element fell over" } else { "disk is full" };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}

/// Each element's peak of a cooperative batch is below that of its minibatch in independent mode.
#[test]
fn cooperation_needs_less_memory() {
    let graph = Rmat::graph500(12, 8, 5).generate().unwrap();
    let n = graph.n_vertices();
    let features = Features::dense(vec![0.25; n * 32], n, 32).unwrap();
    let labels: Vec<i32> = (0..n as i32).map(|v| v % 4).collect();
    let split = Split { train: (0..2048).collect(), val: vec![], test: vec![] };
    let dataset = Arc::new(Dataset::new("rmat", graph, features, labels, 4, split).unwrap());
    let mut config = config(ModelKind::Sage);
    config.sampler.fanouts = Fanouts(vec![10, 10]);
    config.model.hidden = 32;
    config.batch_size = Some(1024);
    config.workers = 0;
    let peak = |parallel| {
        let peaks = threads::run(4, |communicator| {
            let cpu = Cpu::<f32>::new();
            let mut trainer =
                Trainer::parallel(cpu.clone(), dataset.clone(), config.clone(), parallel, communicator)?;
            trainer.run_epoch(&mut ())?;
            cpu.synchronize()?;
            Ok(cpu.memory_statistics().peak_bytes)
        });
        peaks.unwrap().into_iter().max().unwrap()
    };
    let (cooperative, independent) = (peak(COOPERATIVE), peak(INDEPENDENT));
    assert!(cooperative < independent, "{cooperative} bytes, independent {independent}");
}
