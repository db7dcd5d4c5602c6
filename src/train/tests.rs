//! Runs on small data.

use std::sync::Arc;

use super::{EvalMode, ParallelConfig, TrainConfig, Trainer};
use crate::comm::threads;
use crate::coop::Mode;
use crate::data::{Dataset, Features, Split};
use crate::device::{Cpu, Method};
use crate::graph::{Graph, PartitionMethod};
use crate::nn::{Model, ModelKind, OptimizerConfig};
use crate::rng;
use crate::sample::{Fanouts, SamplerConfig};

const KINDS: [ModelKind; 9] = [
    ModelKind::Sage,
    ModelKind::Gcn,
    ModelKind::GcnMean,
    ModelKind::Gin,
    ModelKind::Rgcn,
    ModelKind::Rgat,
    ModelKind::Gat,
    ModelKind::Gatv2,
    ModelKind::SageRi,
];

const N: u32 = 24;

/// Vertices 0 to 23 with 3 classes and 3 relations, of which the first is isolated; the first `n_train` are trained on.
fn dataset(n_train: u32, dim: usize) -> Arc<Dataset> {
    let end = |which: u64, e: u64| 1 + rng::bounded(1, which, e, u64::from(N) - 1) as u32;
    let edges: Vec<(u32, u32)> = (0..60).map(|e| (end(1, e), end(2, e))).collect();
    let graph = Graph::from_edges(u64::from(N), &edges).unwrap();
    let types: Vec<u16> = (0..graph.n_edges()).map(|e| (e % 3) as u16).collect();
    let graph = graph.with_edge_types(types, 3).unwrap();
    let features = match dim {
        0 => Features::None,
        _ => {
            let values =
                (0..u64::from(N) * dim as u64).map(|i| rng::normal(2, 0, i) as f32).collect::<Vec<_>>();
            Features::dense(values, N as usize, dim).unwrap()
        }
    };
    let labels: Vec<i32> = (0..N as i32).map(|v| v % 3).collect();
    let split = Split { train: (0..n_train).collect(), val: (8..14).collect(), test: (14..N).collect() };
    Arc::new(Dataset::new("small", graph, features, labels, 3, split).unwrap())
}

fn config(kind: ModelKind) -> TrainConfig {
    let mut config = TrainConfig { epochs: 2, eval: EvalMode::Sampled, ..TrainConfig::default() };
    config.model.kind = kind;
    config.model.hidden = 5;
    config.model.heads = 2;
    config.optimizer = OptimizerConfig::Sgd { lr: 0.1, momentum: 0.0, weight_decay: 0.0 };
    config.sampler =
        SamplerConfig { method: Method::NEIGHBOR, fanouts: Fanouts(vec![3, 2]), ..config.sampler };
    config
}

/// Every parameter, statistics of batch norms included.
fn parameters<M: Model<Cpu<f64>>>(trainer: &Trainer<Cpu<f64>, M>) -> Vec<Vec<f64>> {
    let values = trainer.model.parameters().iter().map(|(_, p)| p.value.to_vec(&trainer.device).unwrap());
    values.collect()
}

/// The parameters of each processing element after the last epoch.
fn together(
    data: &Arc<Dataset>,
    config: &TrainConfig,
    parallel: ParallelConfig,
    n_pes: usize,
) -> Vec<Vec<Vec<f64>>> {
    threads::run(n_pes, |communicator| {
        let (device, config) = (Cpu::<f64>::new(), config.clone());
        let mut trainer = Trainer::parallel(device, data.clone(), config, parallel, communicator)?;
        trainer.fit(&mut ())?;
        Ok(parameters(&trainer))
    })
    .unwrap_or_else(|error| panic!("{:?} {parallel:?} {n_pes}: {error}", config.model.kind))
}

/// Processing elements call the same collectives, whether they have 0, 1, 2 or more of a batch's seeds.
#[test]
fn elements_agree_whatever_each_has_of_a_batch() {
    let with = |mode, partition| ParallelConfig { mode, partition };
    let modes = [
        with(Mode::Independent, PartitionMethod::Random),
        with(Mode::Cooperative, PartitionMethod::Random),
        with(Mode::Cooperative, PartitionMethod::Contiguous),
    ];
    for (n_pes, n_train) in [(2, 1), (2, 2), (2, 3), (3, 2), (3, 4), (2, 4)] {
        for dim in [4, 0] {
            let data = dataset(n_train, dim);
            for kind in KINDS {
                let mut config = config(kind);
                // Vertices without features: dense models read rows of a table, whose gradients are row-sparse.
                config.model.embedding = if dim == 0 { 3 } else { 0 };
                for parallel in modes {
                    let runs = together(&data, &config, parallel, n_pes);
                    assert!(
                        runs.iter().all(|run| *run == runs[0]),
                        "{kind:?} {parallel:?} {n_pes} {n_train}"
                    );
                    assert!(runs[0].iter().flatten().all(|x| x.is_finite()), "{kind:?} {parallel:?}");
                }
            }
        }
    }
}
