//! Runs on small data.

use std::sync::Arc;

use super::{
    ClassWeights, EpochReport, EvalMode, LrSchedule, Observer, ParallelConfig, TrainConfig, Trainer,
};
use crate::batch::{Batch, BatchSource, Preparation};
use crate::comm::threads;
use crate::coop::{FirstLayer, Group, Mode, RowTransport};
use crate::data::{Dataset, Features, Split};
use crate::device::{Cpu, Method, Storage};
use crate::error::Error;
use crate::graph::{Graph, PartitionMethod};
use crate::nn::{Model, ModelKind, OptimizerConfig};
use crate::rng;
use crate::sample::{Fanouts, SamplerConfig};
use crate::tape::Tape;
use crate::tensor::Tensor;

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
    let with = |mode, partition| ParallelConfig {
        mode,
        partition,
        first_layer: FirstLayer::Whole,
        row_transport: RowTransport::Auto,
    };
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

/// The report of each epoch.
#[derive(Default)]
struct Reports(Vec<EpochReport>);

impl<M> Observer<Cpu<f64>, M> for Reports {
    fn epoch_done(&mut self, _: &Trainer<Cpu<f64>, M>, report: &EpochReport) -> crate::Result<()> {
        self.0.push(report.clone());
        Ok(())
    }
}

fn trained(data: &Arc<Dataset>, config: TrainConfig) -> (Trainer<Cpu<f64>>, Vec<EpochReport>) {
    let mut trainer = Trainer::new(Cpu::<f64>::new(), data.clone(), config).unwrap();
    let mut reports = Reports::default();
    trainer.fit(&mut reports).unwrap();
    (trainer, reports.0)
}

/// A run that is stopped after each epoch gives the bits of one that never stopped, whatever the schedule.
#[test]
fn schedules_and_clipping_resume_to_the_bit() {
    let data = dataset(8, 4);
    for schedule in ["step:2:0.5", "cosine", "plateau:1:0.5"] {
        let config = TrainConfig {
            epochs: 6,
            eval_every: 2,
            lr_schedule: schedule.parse().unwrap(),
            clip_norm: Some(0.5),
            class_weights: ClassWeights::Balanced,
            optimizer: OptimizerConfig::Sgd { lr: 2.0, momentum: 0.9, weight_decay: 0.0 },
            batch_size: Some(5),
            ..config(ModelKind::Sage)
        };
        let (whole, reports) = trained(&data, config.clone());
        if schedule != "plateau:1:0.5" {
            let expected = if schedule == "cosine" { 0.75 * 2.0 } else { 1.0 };
            assert!((reports[2].lr - expected).abs() < 1e-12, "{schedule}: {}", reports[2].lr);
        }
        let folder = tempfile::tempdir().unwrap();
        let mut trainer = Trainer::new(Cpu::<f64>::new(), data.clone(), config).unwrap();
        for report in &reports {
            let found = trainer.run_epoch(&mut ()).unwrap();
            assert_eq!(
                (found.lr.to_bits(), found.loss.to_bits()),
                (report.lr.to_bits(), report.loss.to_bits())
            );
            trainer.save(folder.path()).unwrap();
            trainer = Trainer::resume(Cpu::<f64>::new(), data.clone(), folder.path(), |_| {}).unwrap();
        }
        trainer.restore_best().unwrap();
        assert_eq!(parameters(&trainer), parameters(&whole), "{schedule}");
    }
}

/// Only epochs 2, 4, 6, … are validated; patience counts these.
#[test]
fn evaluation_is_every_n_epochs() {
    let data = dataset(8, 4);
    let config = TrainConfig { epochs: 50, eval_every: 2, patience: Some(3), ..config(ModelKind::Sage) };
    let still = OptimizerConfig::Sgd { lr: 0.0, momentum: 0.0, weight_decay: 0.0 };
    let (trainer, reports) = trained(&data, TrainConfig { epochs: 5, optimizer: still, ..config.clone() });
    let validated: Vec<bool> = reports.iter().map(|report| report.val_acc.is_some()).collect();
    assert_eq!(validated, [false, true, false, true, false]);
    assert_eq!(trainer.best.unwrap().epoch, 1);
    // A loss that only grows: the first evaluation is the best, and three more end the run.
    let growing = OptimizerConfig::Sgd { lr: 50.0, momentum: 0.0, weight_decay: 0.0 };
    let (_, reports) = trained(&data, TrainConfig { optimizer: growing, ..config });
    assert!(reports.len().is_multiple_of(2) && reports.len() < 50, "{}", reports.len());
}

/// The weighted loss and its gradient against sums in plain arithmetic; all processing elements get the same.
#[test]
fn class_weights_are_those_of_the_formula() {
    let data = dataset(8, 4);
    let weights = ClassWeights::Balanced.by_class(&data, 3).unwrap().unwrap();
    // Labels 0, 1, 2, 0, 1, 2, 0, 1.
    assert_eq!(weights, [8.0 / 9.0, 8.0 / 9.0, 8.0 / 6.0]);
    let device = Cpu::<f64>::new();
    let values: Vec<f64> = (0..12).map(|i| rng::normal(5, 0, i)).collect();
    let (labels, rows) = ([2, -1, 0, 1], [4.0 / 3.0, 0.0, 0.5, 2.0]);
    let loss = |values: &[f64]| {
        let nll =
            |row: &[f64], label: i32| row.iter().map(|x| x.exp()).sum::<f64>().ln() - row[label as usize];
        let terms = values.chunks(3).zip(labels).zip(rows).filter(|((_, label), _)| *label >= 0);
        0.25 * terms.map(|((row, label), w)| w * nll(row, label)).sum::<f64>()
    };
    let tape = Tape::training(&device, 0);
    let logits = tape.leaf(Tensor::from_slice(&device, 4, 3, &values).unwrap());
    let w = Tensor::from_slice(&device, 4, 1, &rows).unwrap();
    let out = tape.weighted_log_softmax_nll(logits, device.upload(&labels[..]).unwrap(), w, 0.25).unwrap();
    assert!((tape.value(out).item(&device).unwrap() - loss(&values)).abs() < 1e-12);
    let gradient = tape.backward(out).unwrap().of(logits).unwrap().to_vec(&device).unwrap();
    for i in 0..values.len() {
        let moved = |by: f64| {
            let mut values = values.clone();
            values[i] += by;
            loss(&values)
        };
        let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((gradient[i] - expected).abs() < 1e-8, "{i}: {} {expected}", gradient[i]);
    }
}

/// Two cooperating elements end where one alone does, with weights, clipping and a schedule.
#[test]
fn options_cooperate() {
    let data = dataset(8, 4);
    let mut config = config(ModelKind::Sage);
    config.class_weights = ClassWeights::Given(vec![1.0, 0.0, 3.0]);
    config.clip_norm = Some(0.1);
    config.lr_schedule = LrSchedule::Step { every: 1, factor: 0.5 };
    let parallel = ParallelConfig {
        mode: Mode::Cooperative,
        partition: PartitionMethod::Random,
        first_layer: FirstLayer::Whole,
        row_transport: RowTransport::Auto,
    };
    let runs = together(&data, &config, parallel, 2);
    let alone = parameters(&trained(&data, config.clone()).0);
    assert_eq!(runs[0], runs[1]);
    let pairs = runs[0].iter().flatten().zip(alone.iter().flatten());
    assert!(pairs.clone().all(|(a, b)| (a - b).abs() < 1e-9));
    config.clip_norm = None;
    let free = parameters(&trained(&data, config).0);
    assert!(pairs.zip(free.iter().flatten()).any(|((a, _), c)| (a - c).abs() > 1e-3), "nothing was clipped");
}

#[test]
fn nothing_to_learn_from_is_an_error() {
    let without = |range: std::ops::Range<usize>| {
        let mut data = Dataset::clone(&dataset(8, 4));
        let mut labels = data.labels.to_vec();
        labels[range].fill(-1);
        data.labels = labels.into();
        Arc::new(data)
    };
    let fit = |data, config| Trainer::new(Cpu::<f64>::new(), data, config)?.fit(&mut ());
    let message = fit(without(0..8), config(ModelKind::Sage)).unwrap_err().to_string();
    assert!(message.contains("labels of the training vertices is -1 everywhere"), "{message}");
    // One label is enough; without labels to validate by, the last epoch counts.
    fit(without(0..7), config(ModelKind::Sage)).unwrap();
    let outcome = fit(without(8..14), config(ModelKind::Sage)).unwrap();
    assert!(outcome.best_val_acc.is_nan() && outcome.best_epoch == 1);
}

#[test]
fn impossible_settings_are_named() {
    let data = dataset(8, 4);
    let refused = |change: &dyn Fn(&mut TrainConfig), name: &str| {
        let mut config = config(ModelKind::Gat);
        change(&mut config);
        let error = Trainer::new(Cpu::<f64>::new(), data.clone(), config).unwrap_err();
        assert!(error.to_string().contains(name), "{name}: {error}");
    };
    refused(&|c| c.model.hidden = 1 << 31, "hidden");
    refused(&|c| c.model.hidden = usize::MAX, "hidden");
    refused(&|c| (c.model.hidden, c.model.heads) = (1 << 19, 3), "hidden");
    refused(&|c| c.model.heads = usize::MAX, "heads");
    refused(&|c| c.model.output_heads = usize::MAX, "output_heads");
    refused(&|c| c.model.embedding = usize::MAX, "embedding");
    refused(&|c| c.model.n_layers = usize::MAX, "layers");
    let deep = |c: &mut TrainConfig| {
        (c.model.n_layers, c.sampler.fanouts) = (1001, Fanouts(vec![1; 1001]));
    };
    refused(&deep, "n_layers");
    refused(&|c| c.model.decomposition = crate::nn::Decomposition::Basis(usize::MAX), "bases");
    refused(&|c| c.workers = 30_000_000, "workers");
    refused(&|c| c.eval_every = 0, "eval_every");
    refused(&|c| c.clip_norm = Some(f64::NAN), "clip_norm");
    refused(&|c| c.class_weights = ClassWeights::Given(vec![1.0; 2]), "class_weights");
    refused(&|c| c.class_weights = ClassWeights::Given(vec![1.0, -1.0, 1.0]), "class_weights");
    refused(&|c| c.lr_schedule = LrSchedule::Step { every: 0, factor: 0.5 }, "lr_schedule");
    let sgd = OptimizerConfig::Sgd { lr: 0.1, momentum: 1.0, weight_decay: 0.0 };
    refused(&|c| c.optimizer = sgd, "momentum");
    let labor = Method::labor(crate::device::LaborIterations::Fixed(u32::MAX));
    refused(&|c| c.sampler.method = labor, "LABOR iterations");
    let walk = Method::Walk { walks: 1, length: u32::MAX, restart: 0.5 };
    refused(&|c| c.sampler.method = walk, "visit list");
    // Wide layers that are allowed, but whose 2⁴⁰ weights of 8 bytes do not fit in memory.
    let wide = |c: &mut TrainConfig| {
        (c.model.kind, c.model.hidden, c.model.n_layers) = (ModelKind::Rgcn, 1 << 20, 3);
        c.model.decomposition = crate::nn::Decomposition::Basis(1 << 20);
        c.model.n_features = 4;
        c.sampler.fanouts = Fanouts(vec![2; 3]);
        c.model.embedding = 1 << 20;
    };
    refused(&wide, "a parameter");
}

/// Elements with other settings, data or progress get the same error, before anything else is exchanged.
/// A source that has no memory for one batch.
#[derive(Debug)]
struct Failing {
    source: Arc<dyn BatchSource<Cpu<f64>>>,
    number: u64,
}

impl BatchSource<Cpu<f64>> for Failing {
    fn batch(&self, device: &Cpu<f64>, seeds: &[u32], number: u64) -> crate::Result<Batch<Cpu<f64>>> {
        if number == self.number {
            let asked = "this test".to_owned();
            return Err(Error::OutOfMemory { what: "a batch", bytes: 1, asked });
        }
        if number > self.number {
            // Where the others are in the middle of the batch that failed: another collective than theirs.
            self.group().preparing()?.barrier()?;
        }
        self.source.batch(device, seeds, number)
    }

    fn with_sampler(&self, sampler: SamplerConfig) -> crate::Result<Arc<dyn BatchSource<Cpu<f64>>>> {
        self.source.with_sampler(sampler)
    }

    fn preparation(&self) -> Preparation {
        self.source.preparation()
    }

    fn group(&self) -> Group<Cpu<f64>> {
        self.source.group()
    }
}

/// Takes so long for a batch that preparation is always ahead.
struct Slow;

impl Observer<Cpu<f64>> for Slow {
    fn batch_done(&mut self, _: usize, _: &EpochReport) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// It must not go on to the next batch, of which the others would hear in the place of the one that failed.
#[test]
fn an_element_that_cannot_prepare_a_batch_is_the_one_that_is_blamed() {
    let data = dataset(8, 4);
    let mut config = config(ModelKind::Sage);
    config.batch_size = Some(1);
    let parallel = ParallelConfig {
        mode: Mode::Cooperative,
        partition: PartitionMethod::Random,
        first_layer: FirstLayer::Whole,
        row_transport: RowTransport::Auto,
    };
    for workers in [0, 1] {
        config.workers = workers;
        for (number, failing) in [(0, 0), (2, 1), (5, 0), (6, 2)] {
            let outcome = threads::run(3, |communicator| {
                let (device, rank) = (Cpu::<f64>::new(), communicator.rank());
                let mut trainer =
                    Trainer::parallel(device, data.clone(), config.clone(), parallel, communicator)?;
                if rank == failing {
                    let source = trainer.source.clone();
                    trainer = trainer.with_source(Arc::new(Failing { source, number }));
                }
                let outcome = trainer.fit(&mut Slow).map(drop);
                if let (Err(error), false) = (&outcome, rank == failing) {
                    // The others say who it was.
                    assert!(
                        matches!(error, Error::Communication { rank, problem }
                            if *rank == failing && problem.contains("a batch needs 1 bytes")),
                        "{rank}: {error}"
                    );
                }
                outcome
            });
            let error = outcome.unwrap_err();
            let is_its = matches!(&error, Error::OutOfMemory { what: "a batch", .. });
            assert!(is_its, "{workers} workers, batch {number}: {error}");
        }
    }
}

#[test]
fn elements_that_differ_are_told_so() {
    let differing = |change: &(dyn Fn(usize, &mut TrainConfig, &mut Arc<Dataset>) + Sync), part: &str| {
        for mode in [Mode::Independent, Mode::Cooperative] {
            let parallel = ParallelConfig {
                mode,
                partition: PartitionMethod::Random,
                first_layer: FirstLayer::Whole,
                row_transport: RowTransport::Auto,
            };
            let messages = threads::run(3, |communicator| {
                let (mut config, mut data) = (config(ModelKind::Sage), dataset(8, 4));
                change(communicator.rank(), &mut config, &mut data);
                let trainer = Trainer::parallel(Cpu::<f64>::new(), data, config, parallel, communicator);
                Ok(trainer.map(|_| ()).map_err(|error| error.to_string()))
            })
            .unwrap();
            let expected = match part {
                "" => Ok(()),
                _ => Err(format!("processing element 1 failed: {part} other than on processing element 0")),
            };
            assert_eq!(messages, vec![expected; 3]);
        }
    };
    differing(&|_, _, _| (), "");
    differing(&|rank, c, _| c.workers = rank, "");
    differing(&|rank, c, _| c.seed = u64::from(rank == 1), "settings");
    differing(&|rank, c, _| c.sampler.seed = u64::from(rank == 1), "settings");
    differing(&|rank, _, data| *data = dataset(if rank == 1 { 7 } else { 8 }, 4), "data set");
    differing(&|rank, _, data| *data = dataset(8, if rank == 1 { 5 } else { 4 }), "data set");
}
