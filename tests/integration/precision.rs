//! Training in lower precisions: gradients and accuracies beside those of f32.

use std::sync::Arc;

use cohop::data::{self, Dataset, SbmData};
use cohop::device::{Cpu, Device, Method, Precision, Storage};
use cohop::graph::Sbm;
use cohop::nn::{ModelKind, OptimizerConfig};
use cohop::sample::Fanouts;
use cohop::train::{TrainConfig, Trainer};

use crate::{accuracy, common};

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

fn dataset() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 300, n_classes: 4, mean_degree: 8.0, ..SbmData::default().graph };
    let dataset = SbmData { graph, dim: 16, separation: 1.8 }.generate().unwrap();
    let types: Vec<u16> = (0..dataset.graph.n_edges()).map(|e| (e % 3) as u16).collect();
    let graph = Arc::new(dataset.graph.as_ref().clone().with_edge_types(types, 3).unwrap());
    Arc::new(Dataset { graph, val_idx: Vec::new(), ..dataset })
}

/// The gradient of the whole training loss in all parameters: what a step of plain gradient descent with rate 1 takes
/// away. Dropout of the input makes all layers aggregate what depends on something, and so on the tape.
fn gradient<D: Device<Scalar = f32>>(
    device: &D,
    kind: ModelKind,
    precision: Precision,
    seed: u64,
) -> Vec<f64> {
    let optimizer = OptimizerConfig::Sgd { lr: 1.0, momentum: 0.0, weight_decay: 0.0 };
    let mut config = TrainConfig { batch_size: None, optimizer, precision, seed, ..TrainConfig::default() };
    config.sampler.method = Method::Full;
    config.sampler.fanouts = Fanouts(vec![usize::MAX; 3]);
    let model = &mut config.model;
    (model.kind, model.n_layers, model.hidden, model.heads) = (kind, 3, 16, 2);
    (model.dropout, model.input_dropout) = (0.0, 0.1);
    let mut trainer = Trainer::new(device.clone(), dataset(), config).unwrap();
    let values = |trainer: &Trainer<D>| -> Vec<f32> {
        trainer.model.parameters.iter().flat_map(|(_, p)| p.value.to_vec(device).unwrap()).collect()
    };
    let before = values(&trainer);
    trainer.run_epoch(&mut ()).unwrap();
    before.into_iter().zip(values(&trainer)).map(|(before, after)| f64::from(before - after)).collect()
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}

const SEEDS: std::ops::Range<u64> = 0..5;

/// For each seed: the norm of the difference of the gradient to that of f32, divided by the norm of the latter.
fn deviations<D: Device<Scalar = f32>>(
    device: &D,
    kind: ModelKind,
    exact: &[Vec<f64>],
    precision: Precision,
) -> Vec<f64> {
    let deviation = |(seed, exact): (u64, &Vec<f64>)| {
        let found = gradient(device, kind, precision, seed);
        assert!(found.iter().all(|value| value.is_finite()), "{kind:?} {precision}");
        norm(exact.iter().zip(&found).map(|(exact, found)| exact - found)) / norm(exact.iter().copied())
    };
    SEEDS.zip(exact).map(deviation).collect()
}

/// Checks the gradients of every model: the median over the seeds. Where rounding switches a `relu`, the gradient is
/// another one, and no rounding bounds by how much.
fn check<D: Device<Scalar = f32>>(device: &D, products: bool) {
    for kind in KINDS {
        let exact: Vec<Vec<f64>> = SEEDS.map(|seed| gradient(device, kind, Precision::F32, seed)).collect();
        for precision in [Precision::Tf32, Precision::Bf16, Precision::F16] {
            let mut deviations = deviations(device, kind, &exact, precision);
            deviations.sort_by(f64::total_cmp);
            eprintln!("{}, {kind:?} {precision}: {deviations:.5?}", device.describe());
            let median = deviations[2];
            assert!(median <= bound(precision, products), "{kind:?} {precision}: {deviations:?}");
            // Not the rows of attention, nor of relations.
            let rounds_rows = precision != Precision::Tf32 && !kind.attends() && !kind.relates();
            assert_eq!(median > 0.0, products || rounds_rows, "{kind:?} {precision}");
        }
    }
}

/// Half of a unit in the last place is 2^-9 in bf16, and 2^-12 in f16 and TF32. Three layers forwards and three
/// backwards make a few of these; more where products are rounded too.
fn bound(precision: Precision, products: bool) -> f64 {
    match (precision, products) {
        (Precision::F32, _) | (Precision::Tf32, false) => 0.0,
        (Precision::Bf16, false) => 2f64.powi(-7),
        (Precision::Bf16, true) => 2f64.powi(-6),
        (Precision::F16, false) => 2f64.powi(-10),
        (Precision::Tf32 | Precision::F16, true) => 2f64.powi(-9),
    }
}

#[test]
fn gradients_on_the_cpu_are_those_of_f32_up_to_the_rounding_of_rows() {
    check(&Cpu::<f32>::new(), false);
}

#[cfg(any(feature = "cuda", feature = "emulate"))]
#[test]
fn gradients_on_cuda_are_those_of_f32_up_to_the_rounding_of_rows_and_products() {
    if common::has_cuda() {
        check(&cohop::device::Cuda::<f32>::new(0).unwrap(), true);
    }
}

/// What a trainer is given decides, and a checkpoint keeps it.
#[test]
fn checkpoints_know_the_precision() {
    let config = |precision| TrainConfig { precision, epochs: 1, ..TrainConfig::default() };
    let device = Cpu::<f32>::new().with_precision(Precision::F16);
    let trainer = Trainer::new(device.clone(), dataset(), config(Precision::F32)).unwrap();
    assert_eq!(trainer.device().precision(), Precision::F32);
    let mut trainer = Trainer::new(device, dataset(), config(Precision::Bf16)).unwrap();
    trainer.run_epoch(&mut ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    trainer.save(folder.path()).unwrap();
    let resumed = Trainer::resume(Cpu::<f32>::new(), dataset(), folder.path(), |_| {}).unwrap();
    assert_eq!(
        (resumed.config().precision, resumed.device().precision()),
        (Precision::Bf16, Precision::Bf16)
    );
    let all: Vec<u32> = (0..300).collect();
    let predict = |precision: Option<Precision>| {
        let adjust = |config: &mut TrainConfig| config.precision = precision.unwrap_or(config.precision);
        let trainer = Trainer::to_predict(Cpu::<f32>::new(), dataset(), folder.path(), adjust).unwrap();
        trainer.predict(&all).unwrap()
    };
    assert_eq!(predict(None), predict(Some(Precision::Bf16)));
    assert_ne!(predict(None), predict(Some(Precision::F32)));
}

/// The mean accuracy over seeds is that of f32 within .3 points; over the fewer seeds of the short form, within 1.
#[test]
fn accuracy_on_cora_is_that_of_f32() {
    let Some(path) = common::shared("data/cora.npz") else { return };
    let dataset = Arc::new(data::load(path).unwrap());
    let (seeds, tolerance) = if common::long() { (20, 0.003) } else { (3, 0.01) };
    let mean = |precision| {
        let run = |seed| {
            let config = TrainConfig { precision, ..accuracy::gcn(seed) };
            Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap().fit(&mut ()).unwrap().test_acc
        };
        (0..seeds).map(run).sum::<f64>() / seeds as f64
    };
    let exact = mean(Precision::F32);
    for precision in [Precision::Bf16, Precision::F16] {
        let found = mean(precision);
        eprintln!("cora, {seeds} seeds: f32 {exact:.4}, {precision} {found:.4}");
        assert!((found - exact).abs() <= tolerance, "{precision}: {found} beside {exact}");
    }
}
