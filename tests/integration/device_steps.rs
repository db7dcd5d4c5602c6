//! What a training step asks of a device beside its kernels: waits, launches, copies.
#![cfg(feature = "emulate")]

use std::sync::Arc;

use cohop::batch::DataOnDevice;
use cohop::comm::{Communicator, threads};
use cohop::coop::{FirstLayer, Mode, RowTransport};
use cohop::data::{Dataset, SbmData};
use cohop::device::cuda::Activity;
use cohop::device::{Cuda, LaborIterations, Method, Sample};
use cohop::graph::{PartitionMethod, Sbm};
use cohop::nn::ModelKind;
use cohop::sample::{Fanouts, Sampler, SamplerConfig};
use cohop::train::{EvalMode, Evaluation, ParallelConfig, TrainConfig, Trainer};

/// Without validation: where steps are counted, nothing else happens.
fn dataset() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 900, n_classes: 4, mean_degree: 6.0, ..SbmData::default().graph };
    let dataset = SbmData { graph, dim: 10, separation: 1.8 }.generate().unwrap();
    let types: Vec<u16> = (0..dataset.graph.n_edges()).map(|e| (e % 3) as u16).collect();
    let graph = Arc::new(dataset.graph.as_ref().clone().with_edge_types(types, 3).unwrap());
    Arc::new(Dataset { graph, val_idx: Vec::new(), ..dataset })
}

fn config(kind: ModelKind, n_layers: usize) -> TrainConfig {
    let mut config = TrainConfig { batch_size: Some(30), ..TrainConfig::default() };
    (config.model.kind, config.model.hidden, config.model.heads) = (kind, 6, 2);
    config.model.n_layers = n_layers;
    config.sampler.fanouts = Fanouts(vec![3; n_layers]);
    config
}

fn trainer(
    kind: ModelKind,
    n_layers: usize,
    data: DataOnDevice,
    change: impl FnOnce(&mut TrainConfig),
) -> Trainer<Cuda<f32>> {
    let mut config = TrainConfig { data_on_device: data, ..config(kind, n_layers) };
    change(&mut config);
    Trainer::new(Cuda::new(0).unwrap(), dataset(), config).unwrap()
}

/// The activity of an epoch after the first, and its number of steps.
fn epoch(kind: ModelKind, n_layers: usize, data: DataOnDevice) -> (Activity, u64) {
    let mut trainer = trainer(kind, n_layers, data, |_| ());
    trainer.run_epoch(&mut ()).unwrap();
    let before = trainer.device().activity();
    let steps = trainer.run_epoch(&mut ()).unwrap().batches;
    (trainer.device().activity() - before, steps)
}

/// No step waits: losses and right predictions are read once an epoch (of 16 batches, if it has so many), and the host
/// waits for the step before the last one. The labels are copied to the device, and nothing else where batches are made
/// beside the steps.
#[test]
fn what_a_step_asks_of_the_device() {
    let cases = [
        (ModelKind::Sage, 3, 50),
        (ModelKind::Gcn, 3, 54),
        (ModelKind::Gat, 2, 52),
        (ModelKind::Rgcn, 2, 32),
        (ModelKind::Rgat, 2, 99),
    ];
    for (kind, n_layers, launches) in cases {
        for data in [DataOnDevice::Nothing, DataOnDevice::Graph, DataOnDevice::All] {
            let (activity, steps) = epoch(kind, n_layers, data);
            let what = format!("{kind:?} {data:?}: {activity:?} in {steps} steps");
            println!("{what}");
            assert_eq!((activity.waits, activity.waits_for_events), (2, steps - 2), "{what}");
            assert_eq!(activity.bytes_to_device, 4 * dataset().train_idx.len() as u64, "{what}");
            assert!(activity.bytes_to_host <= steps * 8, "{what}");
            // And some at the epoch's beginning and end.
            assert!(activity.launches <= launches * steps + 4, "{what}");
        }
    }
}

/// Where the fanout bounds the edges, the host reads their number and that of the sources together; else one after the
/// other.
#[test]
fn what_a_sampled_layer_asks_of_the_device() {
    let (device, dataset) = (Cuda::<f32>::new(0).unwrap(), dataset());
    let graph = device.load_graph(&dataset.graph).unwrap();
    let fixed =
        Method::Labor { iterations: LaborIterations::Fixed(0), fixed_size: true, layer_dependent: false };
    for (method, fanout, waits) in
        [(Method::NEIGHBOR, 3, 1), (fixed, 3, 1), (Method::NEIGHBOR, 1000, 2), (Method::LABOR_0, 3, 2)]
    {
        let fanouts = Fanouts(vec![fanout; 3]);
        let sampler = Sampler::new(SamplerConfig { method, fanouts, ..SamplerConfig::default() }).unwrap();
        let before = device.activity();
        sampler.sample(&device, &graph, &dataset.train_idx[..30], 0).unwrap();
        assert_eq!((device.activity() - before).waits, 3 * waits, "{method:?}, {fanout}");
    }
}

/// Losses and right predictions are found on the device, and read once each, whether scores are made layer by layer, in
/// sampled batches, or over the whole graph.
#[test]
fn what_an_evaluation_asks_of_the_device() {
    let vertices: Vec<u32> = (0..dataset().n_vertices() as u32).rev().collect();
    for kind in [ModelKind::Sage, ModelKind::Rgcn, ModelKind::Rgat] {
        for (eval, is_whole) in [(EvalMode::Full, false), (EvalMode::Sampled, false), (EvalMode::Full, true)]
        {
            let trainer = trainer(kind, 2, DataOnDevice::Nothing, |config| {
                config.eval = eval;
                if is_whole {
                    (config.batch_size, config.sampler.method) = (None, Method::Full);
                }
            });
            let before = trainer.device().activity();
            let found = trainer.evaluate(&vertices).unwrap();
            let activity = trainer.device().activity() - before;
            let what = format!("{kind:?} {eval:?}: {activity:?}");
            println!("{what}");
            assert_eq!(activity.waits, 2, "{what}");
            assert!(activity.bytes_to_host < 8 * vertices.len() as u64, "{what}");
            let scores = trainer.predict(&vertices).unwrap();
            let labels: Vec<i32> = vertices.iter().map(|&v| trainer.dataset().labels[v as usize]).collect();
            let expected = Evaluation::new(&scores, 4, &labels).unwrap();
            assert_eq!(found.accuracy, expected.accuracy, "{what}");
            assert!((found.loss - expected.loss).abs() < 1e-5, "{what}: {found:?} {expected:?}");
        }
    }
}

/// What a step of four processing elements asks of each one's device, by the way of rows: also nothing that waits, but
/// where rows pass through the host.
#[test]
fn what_a_cooperative_step_asks_of_the_devices() {
    for (kind, n_layers) in
        [(ModelKind::Sage, 3), (ModelKind::Gcn, 3), (ModelKind::Gat, 2), (ModelKind::Rgcn, 2)]
    {
        for transport in [RowTransport::Read, RowTransport::Copy, RowTransport::Nccl, RowTransport::Host] {
            let parallel = ParallelConfig {
                mode: Mode::Cooperative,
                partition: PartitionMethod::Random,
                first_layer: FirstLayer::Whole,
                row_transport: transport,
            };
            let activities = threads::run(4, |communicator: Communicator| {
                let device = Cuda::<f32>::new(communicator.rank())?;
                let mut trainer = Trainer::parallel(
                    device.clone(),
                    dataset(),
                    config(kind, n_layers),
                    parallel,
                    communicator,
                )?;
                trainer.run_epoch(&mut ())?;
                let before = device.activity();
                let steps = trainer.run_epoch(&mut ())?.batches;
                Ok((device.activity() - before, steps))
            });
            for (rank, (activity, steps)) in activities.unwrap().into_iter().enumerate() {
                let what = format!("{kind:?} by {transport}, {rank}: {activity:?} in {steps} steps");
                println!("{what}");
                if transport == RowTransport::Host {
                    // Each exchange downloads what is sent: forward, backward, and the sum of gradients.
                    assert!(activity.waits > 2 + steps, "{what}");
                } else {
                    assert_eq!((activity.waits, activity.waits_for_events), (2, steps - 2), "{what}");
                    assert!(activity.bytes_to_host <= steps * 8, "{what}");
                }
            }
        }
    }
}
