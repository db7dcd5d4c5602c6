//! Published accuracies, on data sets beside the repository (skipped loudly where they are absent).
//!
//! `COHOP_LONG=1` runs ten seeds, as the figures in the README are; otherwise fewer, against bounds that are as much
//! lower as the spread of a smaller mean demands.

use std::sync::Arc;

use approx::assert_abs_diff_eq;
use cohop::data::{self, Dataset};
use cohop::device::{Cpu, Method};
use cohop::nn::{ModelConfig, ModelKind, OptimizerConfig};
use cohop::rng::{Dependence, Kappa};
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::train::{EvalMode, TrainConfig, Trainer};

use crate::common;

fn load(name: &str) -> Option<Arc<Dataset>> {
    Some(Arc::new(data::load(common::shared(format!("data/{name}.npz"))?).unwrap()))
}

/// The settings of Kipf & Welling (2017), with the test accuracy of the epoch that validates best.
pub(crate) fn gcn(seed: u64) -> TrainConfig {
    TrainConfig {
        row_normalize: true,
        model: ModelConfig {
            kind: ModelKind::Gcn,
            hidden: 16,
            dropout: 0.5,
            input_dropout: 0.5,
            ..TrainConfig::default().model
        },
        optimizer: OptimizerConfig::Adam {
            lr: 0.01,
            weight_decay: 5e-4,
            decoupled: false,
            first_layer_only: true,
        },
        sampler: sampler(Method::Full, &[usize::MAX; 2]),
        batch_size: None,
        epochs: 200,
        seed,
        ..TrainConfig::default()
    }
}

/// The settings of Veličković et al. (2018): two layers, 8 heads of 8, then one head.
fn gat(seed: u64) -> TrainConfig {
    TrainConfig {
        model: ModelConfig {
            kind: ModelKind::Gat,
            hidden: 8,
            heads: 8,
            output_heads: 1,
            dropout: 0.6,
            input_dropout: 0.6,
            attention_dropout: 0.6,
            ..TrainConfig::default().model
        },
        optimizer: OptimizerConfig::Adam {
            lr: 0.005,
            weight_decay: 5e-4,
            decoupled: false,
            first_layer_only: false,
        },
        epochs: 1000,
        patience: Some(100),
        ..gcn(seed)
    }
}

fn sampler(method: Method, fanouts: &[usize]) -> SamplerConfig {
    SamplerConfig {
        method,
        fanouts: Fanouts(fanouts.to_vec()),
        per_relation: false,
        kappa: Kappa::INDEPENDENT,
        dependence: Dependence::default(),
        seed: 0,
        edge_ids: false,
        edge_weights: false,
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Checks the mean over ten seeds, or over `short.0` against `short.1`.
fn reaches(name: &str, config: fn(u64) -> TrainConfig, bound: f64, short: (u64, f64)) {
    let Some(dataset) = load(name) else { return };
    let (seeds, bound) = if common::long() { (10, bound) } else { short };
    let run = |seed| {
        let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config(seed)).unwrap();
        trainer.fit(&mut ()).unwrap().test_acc
    };
    let accuracies: Vec<f64> = (0..seeds).map(run).collect();
    let kind = config(0).model.kind;
    eprintln!("{name}, {kind:?}: mean {:.4} of {accuracies:.4?}", mean(&accuracies));
    assert!(mean(&accuracies) >= bound, "{name}: {accuracies:?}");
}

#[test]
fn gcn_on_cora() {
    reaches("cora", gcn, 0.81, (3, 0.80));
}

#[test]
fn gcn_on_citeseer() {
    reaches("citeseer", gcn, 0.695, (3, 0.685));
}

#[test]
fn gat_on_cora() {
    reaches("cora", gat, 0.823, (1, 0.81));
}

#[test]
fn gat_on_citeseer() {
    reaches("citeseer", gat, 0.715, (1, 0.69));
}

/// SALIENT's finding: training on samples loses nothing against full batches, and neither does inference on samples
/// of 20 against full neighbourhoods.
#[test]
fn sampled_training_and_inference_match_full_ones() {
    let Some(dataset) = load("coauthor_physics") else { return };
    let seeds = if common::long() { 5 } else { 2 };
    let mut means = [0.0; 3];
    for seed in 0..seeds {
        let base = TrainConfig {
            row_normalize: true,
            model: ModelConfig {
                kind: ModelKind::Sage,
                hidden: 64,
                dropout: 0.5,
                ..TrainConfig::default().model
            },
            optimizer: OptimizerConfig::Adam {
                lr: 0.01,
                weight_decay: 5e-4,
                decoupled: false,
                first_layer_only: false,
            },
            epochs: 40,
            seed,
            ..TrainConfig::default()
        };
        let full = TrainConfig {
            sampler: sampler(Method::Full, &[usize::MAX; 2]),
            batch_size: None,
            ..base.clone()
        };
        let neighbor = Method::NEIGHBOR;
        let sampled = TrainConfig {
            sampler: SamplerConfig { seed, ..sampler(neighbor, &[20, 20]) },
            batch_size: Some(50),
            ..base
        };
        let fit = |config: TrainConfig| {
            let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap();
            let accuracy = trainer.fit(&mut ()).unwrap().test_acc;
            (trainer, accuracy)
        };
        let (_, full_training) = fit(full);
        let (trainer, sampled_training) = fit(sampled);
        // The same parameters, evaluated on samples.
        let folder = tempfile::tempdir().unwrap();
        trainer.save(folder.path()).unwrap();
        let mut on_samples = Trainer::resume(Cpu::<f32>::new(), dataset.clone(), folder.path(), |config| {
            config.eval = EvalMode::Sampled;
            config.batch_size = Some(2048);
        })
        .unwrap();
        on_samples.restore_best().unwrap();
        let sampled_inference = on_samples.evaluate(&dataset.test_idx).unwrap().accuracy;
        for (mean, value) in means.iter_mut().zip([full_training, sampled_training, sampled_inference]) {
            *mean += value / seeds as f64;
        }
    }
    let [full_training, sampled_training, sampled_inference] = means;
    eprintln!(
        "coauthor_physics: full-batch training {full_training:.4}, sampled training {sampled_training:.4}, \
         sampled inference {sampled_inference:.4}"
    );
    assert!(full_training > 0.9, "full-batch training reaches only {full_training}");
    assert!(sampled_training >= full_training - 0.005, "{means:?}");
    assert_abs_diff_eq!(sampled_inference, sampled_training, epsilon = 0.005);
}
