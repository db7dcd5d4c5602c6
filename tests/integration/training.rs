//! Whole training runs on small built-in data: what may and what may not change a result.

use std::sync::Arc;

use cohop::Error;
use cohop::batch::DataOnDevice;
use cohop::data::{Dataset, Features, SbmData, Split};
use cohop::device::{Cpu, Method};
use cohop::graph::{Graph, Sbm};
use cohop::nn::{ModelKind, OptimizerConfig};
use cohop::sample::Fanouts;
use cohop::train::{EpochReport, EvalMode, Observer, TrainConfig, Trainer, read_info};

fn dataset() -> Arc<Dataset> {
    dataset_of(1200)
}

fn dataset_of(n_vertices: u64) -> Arc<Dataset> {
    let graph = Sbm { n_vertices, n_classes: 4, mean_degree: 8.0, ..SbmData::default().graph };
    Arc::new(SbmData { graph, dim: 12, separation: 1.8 }.generate().unwrap())
}

fn config(kind: ModelKind) -> TrainConfig {
    let mut config = TrainConfig { epochs: 3, batch_size: Some(37), ..TrainConfig::default() };
    config.model.kind = kind;
    config.model.hidden = 10;
    config.sampler.fanouts = Fanouts(vec![5, 3]);
    config
}

fn parameters(trainer: &Trainer<Cpu<f32>>) -> Vec<Vec<f32>> {
    trainer.model.parameters.iter().map(|(_, p)| p.value.to_vec(trainer.device()).unwrap()).collect()
}

fn trained(config: TrainConfig) -> Trainer<Cpu<f32>> {
    let mut trainer = Trainer::new(Cpu::new(), dataset(), config).unwrap();
    trainer.fit(&mut ()).unwrap();
    trainer
}

#[test]
fn results_do_not_depend_on_workers_or_threads() {
    let expected = parameters(&trained(TrainConfig { workers: 0, ..config(ModelKind::Sage) }));
    for workers in [1, 2, 5] {
        assert_eq!(expected, parameters(&trained(TrainConfig { workers, ..config(ModelKind::Sage) })));
    }
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(
            expected,
            pool.install(|| parameters(&trained(config(ModelKind::Sage)))),
            "{threads} threads"
        );
    }
    assert_ne!(expected, parameters(&trained(TrainConfig { seed: 1, ..config(ModelKind::Sage) })));
}

#[test]
fn a_resumed_run_continues_to_the_bit() {
    for kind in [ModelKind::Sage, ModelKind::Gin, ModelKind::GcnMean] {
        let folder = tempfile::tempdir().unwrap();
        let straight = trained(TrainConfig { epochs: 4, ..config(kind) });
        let first = trained_until(2, config(kind));
        first.save(folder.path()).unwrap();
        let info = read_info(folder.path()).unwrap();
        assert_eq!((info.epoch, info.config.model.kind, info.best.is_some()), (2, kind, true));
        let mut resumed =
            Trainer::resume(Cpu::<f32>::new(), dataset(), folder.path(), |c| c.epochs = 4).unwrap();
        assert_eq!(parameters(&first), parameters(&resumed));
        resumed.fit(&mut ()).unwrap();
        assert_eq!(parameters(&straight), parameters(&resumed), "{kind:?}");
    }
}

/// Without `fit`'s return to the best epoch.
fn trained_until(epochs: u64, config: TrainConfig) -> Trainer<Cpu<f32>> {
    let mut trainer = Trainer::new(Cpu::new(), dataset(), config).unwrap();
    for _ in 0..epochs {
        trainer.run_epoch(&mut ()).unwrap();
    }
    trainer
}

#[test]
fn damaged_checkpoints_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Trainer::resume(Cpu::<f32>::new(), dataset(), folder.path(), |_| ());
    assert!(matches!(missing, Err(Error::Io { .. })));
    trained_until(1, config(ModelKind::Sage)).save(folder.path()).unwrap();
    let file = folder.path().join(cohop::train::CHECKPOINT_FILE);
    let bytes = std::fs::read(&file).unwrap();
    for keep in [0, 7, 100, bytes.len() - 1] {
        std::fs::write(&file, &bytes[..keep]).unwrap();
        let error = Trainer::resume(Cpu::<f32>::new(), dataset(), folder.path(), |_| ()).unwrap_err();
        assert!(matches!(error, Error::Format { .. }), "{keep} bytes: {error}");
    }
    // A checkpoint of f32 values is no checkpoint of f64 values.
    std::fs::write(&file, &bytes).unwrap();
    let error = Trainer::resume(Cpu::<f64>::new(), dataset(), folder.path(), |_| ()).unwrap_err();
    assert!(error.to_string().contains("F64"), "{error}");
}

#[test]
fn every_model_learns_in_every_mode() {
    let dataset = dataset_of(6000);
    let config = |kind| {
        let mut config = config(kind);
        config.model.hidden = 32;
        config
    };
    let mut whole = config(ModelKind::Gcn);
    whole.batch_size = None;
    whole.sampler.method = Method::Full;
    whole.epochs = 60;
    let mut runs = vec![("gcn, whole graph", whole.clone())];
    whole.model.kind = ModelKind::Sage;
    whole.epochs = 30;
    runs.push(("sage, whole graph", whole));
    for kind in [ModelKind::Sage, ModelKind::GcnMean, ModelKind::Gcn, ModelKind::Gin] {
        for eval in [EvalMode::Sampled, EvalMode::Full] {
            // GIN sums over what it is given: full sums are not what it was trained on.
            if kind != ModelKind::Gin || eval == EvalMode::Sampled {
                runs.push(("minibatches", TrainConfig { epochs: 30, eval, ..config(kind) }));
            }
        }
    }
    for (name, mut config) in runs {
        config.optimizer =
            OptimizerConfig::Adam { lr: 0.01, weight_decay: 0.0, decoupled: false, first_layer_only: false };
        let kind = config.model.kind;
        let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap();
        let outcome = trainer.fit(&mut ()).unwrap();
        eprintln!("{name}, {kind:?}: {outcome:?}");
        // Chance is 0.25.
        assert!(outcome.test_acc > 0.6, "{name}, {kind:?}: {outcome:?}");
    }
}

#[test]
fn counts_are_exact() {
    struct Last(Option<cohop::train::EpochReport>);
    impl Observer<Cpu<f32>> for Last {
        fn epoch_done(
            &mut self,
            _: &Trainer<Cpu<f32>>,
            report: &cohop::train::EpochReport,
        ) -> cohop::Result<()> {
            self.0 = Some(report.clone());
            Ok(())
        }
    }
    let data = dataset();
    let mut config = TrainConfig { epochs: 1, ..config(ModelKind::Sage) };
    config.sampler.method = Method::Full;
    config.batch_size = Some(data.train_idx.len());
    let mut last = Last(None);
    Trainer::new(Cpu::new(), data.clone(), config).unwrap().fit(&mut last).unwrap();
    let report = last.0.unwrap();
    // Counted anew: all in-edges of the seeds, then all in-edges of those and their neighbours.
    let mut known: Vec<u32> = data.train_idx.clone();
    let mut counts = (0, 0);
    for _ in 0..2 {
        counts.0 += known.len() as u64;
        counts.1 += known.iter().map(|&v| data.graph.in_degree(v)).sum::<u64>();
        let mut next: Vec<u32> =
            known.iter().flat_map(|&v| data.graph.in_neighbors(v)).chain(&known).copied().collect();
        next.sort_unstable();
        next.dedup();
        known = next;
    }
    assert_eq!((report.vertices, report.edges, report.batches), (counts.0, counts.1, 1));
    assert_eq!((report.input_vertices, report.cache_misses), (known.len() as u64, known.len() as u64));
}

#[test]
fn bad_input_is_an_error() {
    let data = dataset();
    let new = |config: TrainConfig| Trainer::new(Cpu::<f32>::new(), data.clone(), config).map(|_| ());
    let mut wrong = config(ModelKind::Sage);
    wrong.sampler.fanouts = Fanouts(vec![5]);
    let mut width = config(ModelKind::Sage);
    width.model.n_features = 5;
    let mut dropout = config(ModelKind::Sage);
    dropout.model.dropout = 1.0;
    let mut lr = config(ModelKind::Sage);
    lr.optimizer = OptimizerConfig::Sgd { lr: f64::NAN, momentum: 0.0, weight_decay: 0.0 };
    for (config, named) in [
        (wrong, "fanouts"),
        (width, "n_features"),
        (dropout, "dropout"),
        (lr, "lr"),
        (TrainConfig { batch_size: Some(0), ..config(ModelKind::Sage) }, "batch_size"),
    ] {
        let error = new(config).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let graph = Graph::from_edges(3, &[(0, 1), (1, 2)]).unwrap();
    let features = Features::dense(vec![0.0; 6], 3, 2).unwrap();
    let split = Split { train: vec![], val: vec![], test: vec![0] };
    let unsplit = Dataset::new("tiny", graph, features, vec![0, 1, 0], 2, split).unwrap();
    let error = Trainer::new(Cpu::<f32>::new(), Arc::new(unsplit), TrainConfig::default()).unwrap_err();
    assert!(error.to_string().contains("train_idx"), "{error}");
}

/// Validation accuracy and loss of each epoch.
struct Validation(Vec<(f64, f64)>);

impl Observer<Cpu<f32>> for Validation {
    fn epoch_done(&mut self, _: &Trainer<Cpu<f32>>, report: &EpochReport) -> cohop::Result<()> {
        self.0.push((report.val_acc.unwrap(), report.val_loss.unwrap()));
        Ok(())
    }
}

#[test]
fn patience_ends_a_run_when_neither_accuracy_nor_loss_improves() {
    let config = TrainConfig { epochs: 300, patience: Some(4), ..config(ModelKind::Sage) };
    let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset(), config).unwrap();
    let mut seen = Validation(Vec::new());
    let outcome = trainer.fit(&mut seen).unwrap();
    // The last epoch that equalled or bettered either record.
    let record = |i: usize| {
        let (before, (acc, loss)) = (&seen.0[..i], seen.0[i]);
        before.iter().all(|b| acc >= b.0) || before.iter().all(|b| loss <= b.1)
    };
    let last = (0..seen.0.len()).rev().find(|&i| record(i)).unwrap();
    assert_eq!(trainer.epochs_done() as usize, last + 1 + 4);
    assert!(outcome.best_epoch as usize <= last);
    // The model is the best epoch's again.
    let val = trainer.evaluate(&trainer.dataset().val_idx).unwrap().accuracy;
    assert_eq!(val, outcome.best_val_acc);
}

#[test]
fn a_diverging_run_says_so() {
    let mut config = config(ModelKind::Sage);
    config.optimizer = OptimizerConfig::Sgd { lr: 1e30, momentum: 0.0, weight_decay: 0.0 };
    let error = Trainer::new(Cpu::<f32>::new(), dataset(), config).unwrap().fit(&mut ()).unwrap_err();
    assert!(matches!(error, Error::Diverged { .. }), "{error}");
}

#[test]
fn isolated_vertices_single_vertices_and_empty_layers_train() {
    // Vertex 3 has no edges; the graph of one vertex has none at all.
    for (n, edges) in [(4usize, vec![(0u32, 1u32), (1, 2), (2, 0)]), (1, vec![])] {
        let graph = Graph::from_edges(n as u64, &edges).unwrap();
        let features = Features::dense((0..n * 2).map(|i| i as f32).collect::<Vec<_>>(), n, 2).unwrap();
        let split = Split { train: (0..n as u32).collect(), ..Split::default() };
        let labels = (0..n as i32).map(|v| v % 2).collect::<Vec<_>>();
        let data = Arc::new(Dataset::new("tiny", graph, features, labels, 2, split).unwrap());
        for kind in [ModelKind::Sage, ModelKind::GcnMean, ModelKind::Gcn, ModelKind::Gin] {
            for fanouts in [vec![0, 0], vec![2, usize::MAX]] {
                let mut config = TrainConfig { batch_size: Some(1), ..config(kind) };
                config.sampler.fanouts = Fanouts(fanouts);
                let mut trainer = Trainer::new(Cpu::<f32>::new(), data.clone(), config).unwrap();
                let outcome = trainer.fit(&mut ()).unwrap();
                assert!(outcome.test_acc.is_nan() && outcome.best_val_acc.is_nan());
                let logits = trainer.predict(&[0, 0]).unwrap();
                assert!(logits.iter().all(|v| v.is_finite()) && logits[..2] == logits[2..]);
            }
        }
    }
}

/// Batches made on the device are those made on the host.
#[test]
fn where_batches_are_made_changes_nothing() {
    for kind in [ModelKind::Sage, ModelKind::Gcn] {
        let expected = parameters(&trained(config(kind)));
        for data_on_device in [DataOnDevice::Graph, DataOnDevice::All] {
            assert_eq!(expected, parameters(&trained(TrainConfig { data_on_device, ..config(kind) })));
        }
    }
    let dtype = cohop::data::FeatureDtype::F16;
    let narrow = Arc::new(Dataset {
        features: dataset().features.to_dtype(dtype).unwrap(),
        ..Dataset::clone(&dataset())
    });
    let run = |data_on_device| {
        let config = TrainConfig { data_on_device, ..config(ModelKind::Sage) };
        let mut trainer = Trainer::new(Cpu::new(), narrow.clone(), config).unwrap();
        trainer.fit(&mut ()).unwrap();
        parameters(&trainer)
    };
    let expected = run(DataOnDevice::Nothing);
    assert_eq!(run(DataOnDevice::Graph), expected);
    assert_eq!(run(DataOnDevice::All), expected);
}
