//! What a training step asks of a device beside its kernels: waits, launches, copies.
#![cfg(feature = "emulate")]

use std::sync::Arc;

use cohop::batch::DataOnDevice;
use cohop::data::{Dataset, SbmData};
use cohop::device::Cuda;
use cohop::device::cuda::Activity;
use cohop::graph::Sbm;
use cohop::nn::ModelKind;
use cohop::sample::Fanouts;
use cohop::train::{TrainConfig, Trainer};

fn dataset() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 900, n_classes: 4, mean_degree: 6.0, ..SbmData::default().graph };
    let dataset = SbmData { graph, dim: 10, separation: 1.8 }.generate().unwrap();
    let types: Vec<u16> = (0..dataset.graph.n_edges()).map(|e| (e % 3) as u16).collect();
    let graph = Arc::new(dataset.graph.as_ref().clone().with_edge_types(types, 3).unwrap());
    // No validation: only steps are counted.
    Arc::new(Dataset { graph, val_idx: Vec::new(), ..dataset })
}

/// The activity of an epoch after the first, and its number of steps.
fn epoch(kind: ModelKind, n_layers: usize, data: DataOnDevice) -> (Activity, u64) {
    let mut config = TrainConfig { batch_size: Some(30), data_on_device: data, ..TrainConfig::default() };
    (config.model.kind, config.model.hidden, config.model.heads) = (kind, 6, 2);
    config.model.n_layers = n_layers;
    config.sampler.fanouts = Fanouts(vec![3; n_layers]);
    let device = Cuda::<f32>::new(0).unwrap();
    let mut trainer = Trainer::new(device.clone(), dataset(), config).unwrap();
    trainer.run_epoch(&mut ()).unwrap();
    let before = device.activity();
    let steps = trainer.run_epoch(&mut ()).unwrap().batches;
    (device.activity() - before, steps)
}

/// Each step waits once, at its end, and losses are read twice an epoch (16 batches, if it has so many); the labels are
/// copied to the device, and nothing else where batches are made beside the steps. What R-GCN's layers group by
/// relation they read back, twice a layer.
#[test]
fn what_a_step_asks_of_the_device() {
    let cases = [
        (ModelKind::Sage, 3, 0, 60),
        (ModelKind::Gcn, 3, 0, 61),
        (ModelKind::Gat, 2, 0, 61),
        (ModelKind::Rgcn, 2, 4, 77),
    ];
    for (kind, n_layers, waits_of_layers, launches) in cases {
        for data in [DataOnDevice::Nothing, DataOnDevice::Graph, DataOnDevice::All] {
            let (activity, steps) = epoch(kind, n_layers, data);
            let what = format!("{kind:?} {data:?}: {activity:?} in {steps} steps");
            assert_eq!(activity.waits, (1 + waits_of_layers) * steps + 2, "{what}");
            assert_eq!(activity.bytes_to_device, 4 * dataset().train_idx.len() as u64, "{what}");
            assert!(activity.bytes_to_host <= steps * 8 + 64 * waits_of_layers * steps, "{what}");
            assert!(activity.launches <= launches * steps + 3, "{what}");
        }
    }
}
