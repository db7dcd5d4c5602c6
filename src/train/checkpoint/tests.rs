//! Checkpoints: what they keep, and which are refused.

// A panic is how these fail.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{CheckpointLock, EpochReport, Observer, StopAt};
use super::*;
use crate::comm::threads;
use crate::coop::RowTransport;
use crate::data::{Features, Split};
use crate::device::Cpu;
use crate::graph::Graph;
use crate::nn::OptimizerConfig;
use crate::train::ParallelConfig;

/// A ring of 40 vertices, whose class is in their features.
fn ring() -> Dataset {
    let edges: Vec<(u32, u32)> = (0..40).map(|v| (v, (v + 1) % 40)).collect();
    let graph = Graph::from_edges(40, &edges).unwrap();
    let features = (0..80u8).map(|i| f32::from(i % 4 == 0 || i % 4 == 3)).collect::<Vec<_>>();
    let labels = (0..40).map(|v| v % 2).collect::<Vec<_>>();
    let split = |shift: u32| Split {
        train: (shift..shift + 20).collect(),
        val: (shift + 20..40).collect(),
        test: (0..shift).collect(),
    };
    let features = Features::dense(features, 40, 2).unwrap();
    let mut ring = Dataset::new("ring", graph, features, labels, 2, split(0)).unwrap();
    ring.splits = vec![split(0), split(10)];
    ring
}

fn config() -> TrainConfig {
    TrainConfig { batch_size: Some(8), epochs: 4, ..TrainConfig::default() }
}

fn trainer(dataset: Dataset, config: TrainConfig) -> Trainer<Cpu<f32>> {
    Trainer::new(Cpu::new(), Arc::new(dataset), config).unwrap()
}

fn resumed(dataset: Dataset, folder: &Path) -> Result<Trainer<Cpu<f32>>> {
    Trainer::resume(Cpu::new(), Arc::new(dataset), folder, |_| {})
}

#[test]
fn a_checkpoint_knows_its_run_and_goes_with_its_data_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut set = ring();
    set.select_split(1).unwrap();
    let mut first = trainer(set.clone(), config());
    first.run_epoch(&mut ()).unwrap();
    first.notes.insert("whose".to_owned(), "mine".to_owned());
    first.save(folder.path()).unwrap();
    let info = read_info(folder.path()).unwrap();
    assert_eq!((info.data.split, &*info.data.features, info.parallel), (Some(1), "f32", None));
    assert_eq!(resumed(set.clone(), folder.path()).unwrap().notes["whose"], "mine");
    let refused = |other: Dataset, message: &str| {
        let error = resumed(other, folder.path()).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    };
    refused(ring(), "another split (split 0)");
    set.labels = vec![0; 40].into();
    refused(set.clone(), "other labels");
    Trainer::resume_on_other_data(Cpu::<f32>::new(), Arc::new(set), folder.path(), |_| {}).unwrap();
}

#[test]
fn processing_elements_are_known_too() {
    let folder = tempfile::tempdir().unwrap();
    let parallel = ParallelConfig {
        mode: Mode::Independent,
        partition: PartitionMethod::Hash,
        first_layer: FirstLayer::P3,
        row_transport: RowTransport::Auto,
    };
    threads::run(2, |communicator| {
        let rank = communicator.rank();
        let mut one = trainer(ring(), config()).join(parallel, communicator)?;
        one.run_epoch(&mut ())?;
        if rank == 0 { one.save(folder.path()) } else { Ok(()) }
    })
    .unwrap();
    let expected = ParallelInfo {
        mode: Mode::Independent,
        partition: PartitionMethod::Hash,
        first_layer: FirstLayer::P3,
        pes: 2,
    };
    assert_eq!(read_info(folder.path()).unwrap().parallel, Some(expected));
    // Checkpoints from before do not say how the first layer was shared.
    let old: ParallelInfo =
        serde_json::from_str(r#"{"mode": "cooperative", "partition": "hash", "pes": 3}"#).unwrap();
    assert_eq!(old.first_layer, FirstLayer::Whole);
}

#[test]
fn what_is_not_finite_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = trainer(ring(), config());
    one.run_epoch(&mut ()).unwrap();
    one.save(folder.path()).unwrap();
    let before = std::fs::read(path_of(folder.path())).unwrap();
    // A measure.
    one.best.as_mut().unwrap().val.loss = f64::INFINITY;
    let error = one.save(folder.path()).unwrap_err().to_string();
    assert!(error.contains("not finite"), "{error}");
    one.best.as_mut().unwrap().val.loss = 1.0;
    one.save(folder.path()).unwrap();
    // A setting.
    let optimizer = one.config.optimizer;
    one.config.optimizer =
        OptimizerConfig::Adam { lr: f64::NAN, weight_decay: 0.0, decoupled: false, first_layer_only: false };
    assert!(one.save(folder.path()).is_err());
    one.config.optimizer = optimizer;
    // A parameter.
    std::fs::write(path_of(folder.path()), &before).unwrap();
    let (id, shape) = one.model.parameters().iter().next().map(|(id, p)| (id, p.value.shape())).unwrap();
    let mut values = vec![0.0; shape[0] * shape[1]];
    values[1] = f32::NAN;
    let value = Tensor::from_slice(&one.device, shape[0], shape[1], &values).unwrap();
    one.model.parameters_mut().set(id, value).unwrap();
    let error = one.save(folder.path()).unwrap_err().to_string();
    assert!(error.contains("NaN") && error.contains("row 0, column 1"), "{error}");
    assert_eq!(std::fs::read(path_of(folder.path())).unwrap(), before);
    // And nothing is predicted with it.
    assert!(matches!(one.predict(&[0]), Err(Error::NotFinite { array: "scores", .. })));
}

#[test]
fn a_run_that_diverges_says_so() {
    for lr in [1e10, 1e20, 1e30] {
        for batch_size in [8, 20] {
            let optimizer =
                OptimizerConfig::Adam { lr, weight_decay: 0.0, decoupled: false, first_layer_only: false };
            let mut one =
                trainer(ring(), TrainConfig { optimizer, batch_size: Some(batch_size), ..config() });
            match one.fit(&mut ()) {
                Err(Error::Diverged { epoch, .. } | Error::DivergedInValidation { epoch }) => {
                    assert!(epoch < 4)
                }
                // Large, but finite.
                Ok(_) if lr < 1e20 => {}
                other => panic!("{lr}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_flag_stops_the_run_where_it_may() {
    struct SetsIt(Arc<AtomicBool>, u64);
    impl Observer<Cpu<f32>> for SetsIt {
        fn batch_done(&mut self, index: usize, report: &EpochReport) {
            if (index, report.epoch) == (0, 1) {
                self.0.store(true, Ordering::Relaxed);
            }
            self.1 += 1;
        }
    }
    for (at, batches) in [(StopAt::Batch, 4), (StopAt::Epoch, 6)] {
        let flag = Arc::new(AtomicBool::new(false));
        let mut one = trainer(ring(), config());
        one.stop_when(flag.clone(), at);
        let mut observer = SetsIt(flag, 0);
        let error = one.fit(&mut observer).unwrap_err();
        let epochs = u64::from(at == StopAt::Epoch) + 1;
        assert!(matches!(error, Error::Interrupted { epochs: e } if e == epochs), "{error}");
        assert_eq!((observer.1, one.epochs_done()), (batches, epochs));
    }
    // Only one of two processing elements is asked: both stop.
    let parallel = ParallelConfig {
        mode: Mode::Independent,
        partition: PartitionMethod::Hash,
        first_layer: FirstLayer::Whole,
        row_transport: RowTransport::Auto,
    };
    for at in [StopAt::Batch, StopAt::Epoch] {
        let stopped = threads::run(2, |communicator| {
            let asked = Arc::new(AtomicBool::new(communicator.rank() == 1));
            let mut one = trainer(ring(), config()).join(parallel, communicator)?;
            one.stop_when(asked, at);
            Ok((one.fit(&mut ()).unwrap_err(), one.epochs_done()))
        });
        let epochs = u64::from(at == StopAt::Epoch);
        for (error, done) in stopped.unwrap() {
            assert!(matches!(error, Error::Interrupted { .. }), "{error}");
            assert_eq!(done, epochs);
        }
    }
}

#[test]
fn predictions_need_neither_labels_nor_splits_nor_the_same_graph() {
    let folder = tempfile::tempdir().unwrap();
    let _lock = CheckpointLock::take(folder.path()).unwrap();
    let mut one = trainer(ring(), config());
    one.fit(&mut ()).unwrap();
    one.save(folder.path()).unwrap();
    let expected = one.predict(&[3, 7]).unwrap();
    let bare = |n_classes, labels: Vec<i32>| {
        let set = ring();
        Dataset::new("bare", set.graph.clone(), set.features, labels, n_classes, Split::default()).unwrap()
    };
    for set in [bare(0, vec![-1; 40]), bare(1, vec![0; 40]), bare(9, vec![8; 40])] {
        let predictor = Trainer::to_predict(Cpu::<f32>::new(), Arc::new(set), folder.path(), |_| {}).unwrap();
        assert_eq!(predictor.predict(&[3, 7]).unwrap(), expected);
        let range = predictor.predict(&[3, 40]).unwrap_err();
        assert!(matches!(range, Error::IndexOutOfRange { position: 1, value: 40, limit: 40, .. }), "{range}");
    }
    // Another graph, in samples.
    let features = Features::dense(vec![1.0, 0.0, 0.0, 1.0], 2, 2).unwrap();
    let graph = Graph::from_edges(2, &[(0, 1)]).unwrap();
    let set = Dataset::new("new", graph, features, vec![-1; 2], 0, Split::default()).unwrap();
    let sampled = |c: &mut TrainConfig| c.eval = super::super::EvalMode::Sampled;
    let predictor = Trainer::to_predict(Cpu::<f32>::new(), Arc::new(set), folder.path(), sampled).unwrap();
    assert_eq!(predictor.predict(&[1, 0, 1]).unwrap().len(), 6);
    // One that does not fit.
    let features = Features::dense(vec![1.0; 6], 2, 3).unwrap();
    let graph = Graph::from_edges(2, &[(0, 1)]).unwrap();
    let set = Dataset::new("wide", graph, features, vec![-1; 2], 0, Split::default()).unwrap();
    let error = Trainer::to_predict(Cpu::<f32>::new(), Arc::new(set), folder.path(), |_| {}).unwrap_err();
    assert!(error.to_string().contains("n_features is 3: expected 2"), "{error}");
    // Two vertices without features are no two columns of features.
    let graph = Graph::from_edges(2, &[(0, 1)]).unwrap();
    let set = Dataset::new("bare", graph, Features::None, vec![-1; 2], 0, Split::default()).unwrap();
    let error = Trainer::to_predict(Cpu::<f32>::new(), Arc::new(set), folder.path(), |_| {}).unwrap_err();
    let expected = "data set is bare, which has no features: expected features of 2 columns";
    assert!(error.to_string().starts_with(expected), "{error}");
    // Settings that cannot be, as a file may have them.
    type Adjust = fn(&mut TrainConfig);
    let wrong: [(&str, Adjust); 4] = [
        ("a matrix that fits in memory", |c| c.model.n_classes = usize::MAX),
        ("workers is 1099511627776", |c| c.workers = 1 << 40),
        ("batch_size is 0", |c| c.batch_size = Some(0)),
        ("fanouts", |c| c.sampler.fanouts = "5".parse().unwrap()),
    ];
    for (named, adjust) in wrong {
        let set = bare(0, vec![-1; 40]);
        let error = Trainer::to_predict(Cpu::<f32>::new(), Arc::new(set), folder.path(), adjust);
        let error = error.map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn counts_that_no_run_reaches_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = trainer(ring(), config());
    one.run_epoch(&mut ()).unwrap();
    let step = one.optimizer.n_steps();
    for (epoch, step, named) in [(u64::MAX, step, "epoch 18446744073709551615"), (1, u64::MAX, "step 18")] {
        one.epoch = epoch;
        let state = one.optimizer.state().to_vec();
        one.optimizer.load_state(step, state).unwrap();
        one.save(folder.path()).unwrap();
        let error = resumed(ring(), folder.path()).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn every_bit_matters() {
    let folder = tempfile::tempdir().unwrap();
    let mut one = trainer(ring(), config());
    one.run_epoch(&mut ()).unwrap();
    one.save(folder.path()).unwrap();
    let path = path_of(folder.path());
    let bytes = std::fs::read(&path).unwrap();
    for k in 0..200u64 {
        let bit = (crate::rng::derive(7, 0, k) % (8 * bytes.len() as u64)) as usize;
        let mut changed = bytes.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, changed).unwrap();
        assert!(resumed(ring(), folder.path()).is_err(), "bit {bit}");
    }
    std::fs::write(&path, bytes).unwrap();
    resumed(ring(), folder.path()).unwrap();
}
