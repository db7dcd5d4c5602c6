//! Whole runs on a CUDA device (the emulator is one) against the CPU's.
#![cfg(any(feature = "cuda", feature = "emulate"))]

use std::path::Path;
use std::sync::Arc;

use cohop::batch::DataOnDevice;
use cohop::comm::{Communicator, threads};
use cohop::coop::{FirstLayer, Mode, RowTransport};
use cohop::data::{self, Dataset, FeatureDtype, SbmData};
use cohop::device::{Cpu, Cuda, Device, Method};
use cohop::graph::{PartitionMethod, Sbm};
use cohop::nn::{ModelKind, OptimizerConfig};
use cohop::sample::Fanouts;
use cohop::train::{ParallelConfig, TrainConfig, Trainer};

use crate::common::{self, assert_close};

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

/// With three relations, so that every model can be trained.
fn typed(dataset: Dataset) -> Arc<Dataset> {
    let types: Vec<u16> = (0..dataset.graph.n_edges()).map(|e| (e % 3) as u16).collect();
    let graph = Arc::new(dataset.graph.as_ref().clone().with_edge_types(types, 3).unwrap());
    Arc::new(Dataset { graph, ..dataset })
}

fn small() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 300, n_classes: 4, mean_degree: 6.0, ..SbmData::default().graph };
    typed(SbmData { graph, dim: 10, separation: 1.8 }.generate().unwrap())
}

fn config(kind: ModelKind) -> TrainConfig {
    let mut config = TrainConfig { batch_size: Some(60), ..TrainConfig::default() };
    config.model.kind = kind;
    config.model.hidden = 6;
    config.model.heads = 2;
    config.model.input_dropout = 0.1;
    config.sampler.fanouts = Fanouts(vec![4, 3]);
    config
}

/// Loss and validation accuracy of each epoch.
fn curve<D: Device>(device: D, dataset: &Arc<Dataset>, config: &TrainConfig, epochs: usize) -> Vec<[f64; 2]> {
    let mut trainer = Trainer::new(device, dataset.clone(), config.clone()).unwrap();
    let epoch = |_| trainer.run_epoch(&mut ()).map(|report| [report.loss, report.val_acc.unwrap()]);
    (0..epochs).map(epoch).collect::<cohop::Result<_>>().unwrap()
}

fn assert_same_curve(dataset: &Arc<Dataset>, config: &TrainConfig, epochs: usize, what: &str) {
    let on_cpu = curve(Cpu::<f32>::new(), dataset, config, epochs);
    let on_cuda = curve(Cuda::<f32>::new(0).unwrap(), dataset, config, epochs);
    let column = |curve: &[[f64; 2]], i: usize| curve.iter().map(|epoch| epoch[i]).collect::<Vec<_>>();
    let [losses, accuracies] = [0, 1].map(|i| (column(&on_cuda, i), column(&on_cpu, i)));
    assert_close(&format!("{what}: loss"), &losses.0, &losses.1, |_, loss| 1e-4 * loss);
    assert_close(&format!("{what}: accuracy"), &accuracies.0, &accuracies.1, |_, _| 0.02);
}

#[test]
fn every_model_trains_as_on_the_cpu() {
    if !common::has_cuda() {
        return;
    }
    let dataset = small();
    for kind in KINDS {
        assert_same_curve(&dataset, &config(kind), 2, &format!("{kind:?}"));
    }
}

#[test]
fn every_sampler_feeds_it() {
    if !common::has_cuda() {
        return;
    }
    for method in [
        Method::LABOR_0,
        Method::LABOR_STAR,
        Method::Walk { walks: 4, length: 3, restart: 0.5 },
        Method::Full,
    ] {
        let mut config = config(ModelKind::Sage);
        config.sampler.method = method;
        assert_same_curve(&small(), &config, 1, &format!("{method:?}"));
    }
}

/// Graph and features in the device's memory: the same samples, and so the same curve.
#[test]
fn minibatches_made_on_the_device_are_those_of_the_host() {
    if !common::has_cuda() {
        return;
    }
    for method in [Method::NEIGHBOR, Method::LABOR_STAR] {
        let mut config = config(ModelKind::Sage);
        config.sampler.method = method;
        config.data_on_device = DataOnDevice::All;
        assert_same_curve(&small(), &config, 2, &format!("{method:?}"));
    }
}

/// Losses and accuracies, bit for bit.
#[test]
fn where_features_lie_changes_nothing() {
    if !common::has_cuda() {
        return;
    }
    for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16] {
        let dataset = Arc::into_inner(small()).unwrap();
        let features = dataset.features.to_dtype(dtype).unwrap();
        let dataset = Arc::new(Dataset { features, ..dataset });
        let run = |data_on_device| {
            let config = TrainConfig { data_on_device, ..config(ModelKind::Sage) };
            curve(Cuda::<f32>::new(0).unwrap(), &dataset, &config, 2)
        };
        let expected = run(DataOnDevice::All);
        assert_eq!(run(DataOnDevice::Graph), expected, "{dtype}");
        assert_eq!(run(DataOnDevice::Nothing), expected, "{dtype}");
    }
}

/// Two processing elements, each with its share of every batch. The curve is that of the CPU; where the data lies, on
/// the device or the host, changes no bit.
#[test]
fn independent_elements_make_their_batches_on_the_device() {
    if !common::has_cuda() {
        return;
    }
    let on_cuda = |data| parallel_losses(Cuda::<f32>::new(0).unwrap(), Mode::Independent, data).unwrap();
    let expected = on_cuda(DataOnDevice::Nothing);
    for data in [DataOnDevice::Graph, DataOnDevice::All] {
        assert_eq!(on_cuda(data), expected, "{data:?}");
    }
    let on_cpu = parallel_losses(Cpu::<f32>::new(), Mode::Independent, DataOnDevice::Nothing).unwrap();
    assert_close("loss", &expected, &on_cpu, |_, loss| 1e-4 * loss);
}

#[test]
fn data_on_the_device_is_refused_where_elements_cooperate() {
    if !common::has_cuda() {
        return;
    }
    for data in [DataOnDevice::Graph, DataOnDevice::All] {
        let error = parallel_losses(Cuda::<f32>::new(0).unwrap(), Mode::Cooperative, data).unwrap_err();
        assert!(error.to_string().contains("data_on_device"), "{error}");
    }
}

/// Rows go from device to device: four emulated ones (on a machine with one GPU, one for all) give the bits of two
/// elements' exchange through one device's memory, and the loss of the CPU.
#[test]
fn elements_cooperate_on_devices_of_their_own() {
    if !common::has_cuda() {
        return;
    }
    let dataset = small();
    for kind in [ModelKind::Sage, ModelKind::Gcn, ModelKind::Gat, ModelKind::Gin, ModelKind::Rgcn] {
        let config = config(kind);
        let parallel = ParallelConfig {
            mode: Mode::Cooperative,
            partition: PartitionMethod::Random,
            first_layer: FirstLayer::Whole,
            row_transport: RowTransport::Auto,
        };
        let one = Cuda::<f32>::new(0).unwrap();
        let losses = |n_devices: usize| {
            let body = |communicator: Communicator| {
                let number = communicator.rank() % n_devices;
                let device = if number == 0 { one.clone() } else { Cuda::new(number)? };
                let mut trainer =
                    Trainer::parallel(device, dataset.clone(), config.clone(), parallel, communicator)?;
                (0..2).map(|_| Ok(trainer.run_epoch(&mut ())?.loss)).collect()
            };
            threads::run(4, body).map(|losses: Vec<Vec<f64>>| losses[0].clone())
        };
        let shared = losses(1).unwrap();
        let serial: Vec<f64> =
            curve(Cpu::<f32>::new(), &dataset, &config, 2).iter().map(|epoch| epoch[0]).collect();
        assert_close(&format!("{kind:?}: loss"), &shared, &serial, |_, loss| 1e-4 * loss);
        if cfg!(feature = "emulate") {
            assert_eq!(losses(4).unwrap(), shared, "{kind:?}");
        }
    }
}

/// The losses of two epochs on two processing elements, which share one device.
fn parallel_losses<D: Device>(
    device: D,
    mode: Mode,
    data_on_device: DataOnDevice,
) -> cohop::Result<Vec<f64>> {
    let (dataset, parallel) = (
        small(),
        ParallelConfig {
            mode,
            partition: PartitionMethod::Contiguous,
            first_layer: FirstLayer::Whole,
            row_transport: RowTransport::Auto,
        },
    );
    let config = TrainConfig { data_on_device, ..config(ModelKind::Sage) };
    let one = |communicator: Communicator| {
        let (device, dataset) = (device.clone(), dataset.clone());
        let mut trainer = Trainer::parallel(device, dataset, config.clone(), parallel, communicator)?;
        (0..2).map(|_| Ok(trainer.run_epoch(&mut ())?.loss)).collect()
    };
    let losses: Vec<Vec<f64>> = threads::run(2, one)?;
    assert_eq!(losses[0], losses[1], "all elements report the loss of the whole batch");
    Ok(losses[0].clone())
}

/// The whole graph at once; longer with `COHOP_LONG`.
#[test]
fn every_model_trains_on_cora_as_on_the_cpu() {
    let Some(path) = common::shared(Path::new("data").join("cora.npz")) else { return };
    if !common::has_cuda() {
        return;
    }
    let mut dataset = data::load(&path).unwrap();
    dataset.features = dataset.features.row_normalize().unwrap();
    let dataset = typed(dataset);
    let epochs = if common::long() { 20 } else { 2 };
    for kind in KINDS {
        let mut config = config(kind);
        config.batch_size = None;
        config.sampler.method = Method::Full;
        config.sampler.fanouts = Fanouts(vec![usize::MAX; 2]);
        if kind.relates() {
            config.model.embedding = 8;
        }
        if kind == ModelKind::Gin {
            // The gradient of a bias before a batch norm is 0 but for rounding, of which Adam makes whole steps: the
            // running means, and so the first epochs' validation, would depend on it.
            config.optimizer = OptimizerConfig::Sgd { lr: 0.5, momentum: 0.0, weight_decay: 0.0 };
        }
        assert_same_curve(&dataset, &config, epochs, &format!("{kind:?}"));
    }
}
