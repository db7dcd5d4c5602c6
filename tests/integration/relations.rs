//! Relational models on real data: shorter forms of the published settings.

use std::sync::Arc;

use cohop::data::{self, Dataset};
use cohop::device::{Cpu, Method};
use cohop::nn::{Decomposition, ModelConfig, ModelKind, OptimizerConfig};
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::train::{EvalMode, TrainConfig, Trainer};

use crate::common;

fn typed(file: &str) -> Option<Arc<Dataset>> {
    Some(Arc::new(data::load(common::shared(format!("data/{file}"))?).unwrap()))
}

/// Schlichtkrull's settings, full-batch: inverse relations, two layers, hidden 16, 50 epochs, lr 0.01.
fn rgcn(seed: u64) -> TrainConfig {
    let default = TrainConfig::default();
    TrainConfig {
        inverse_relations: true,
        model: ModelConfig { kind: ModelKind::Rgcn, hidden: 16, dropout: 0.0, ..default.model.clone() },
        optimizer: OptimizerConfig::Adam {
            lr: 0.01,
            weight_decay: 0.0,
            decoupled: false,
            first_layer_only: true,
        },
        sampler: SamplerConfig {
            method: Method::Full,
            fanouts: Fanouts(vec![usize::MAX; 2]),
            ..default.sampler.clone()
        },
        batch_size: None,
        epochs: 50,
        seed,
        ..default
    }
}

fn test_accuracy(dataset: &Arc<Dataset>, config: TrainConfig) -> f64 {
    let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), config).unwrap();
    trainer.fit(&mut ()).unwrap().test_acc
}

/// The mean over seeds `0..n` of what a run of each gives.
fn mean(n: u64, run: impl Fn(u64) -> f64) -> f64 {
    (0..n).map(run).sum::<f64>() / n as f64
}

/// Ten seeds, about a second each: the whole of the published protocol.
#[test]
fn rgcn_on_aifb() {
    let Some(dataset) = typed("aifb.npz") else { return };
    let accuracy = mean(10, |seed| test_accuracy(&dataset, rgcn(seed)));
    eprintln!("aifb, R-GCN: mean {accuracy:.4}");
    assert!(accuracy >= 0.95, "mean of ten seeds: {accuracy}");
}

/// Neighbourhoods of 20 edges a relation, in minibatches; tested on full neighbourhoods.
#[test]
fn sampled_rgcn_on_aifb_is_as_good_as_full_batch() {
    let Some(dataset) = typed("aifb.npz") else { return };
    let sampled = |seed| {
        let full = rgcn(seed);
        let sampler = SamplerConfig {
            method: Method::NEIGHBOR,
            fanouts: Fanouts(vec![20, 20]),
            per_relation: true,
            seed,
            ..full.sampler.clone()
        };
        TrainConfig { sampler, batch_size: Some(1024), eval: EvalMode::Full, ..full }
    };
    let of = |config: &dyn Fn(u64) -> TrainConfig| mean(3, |seed| test_accuracy(&dataset, config(seed)));
    let (full, sampled) = (of(&rgcn), of(&sampled));
    eprintln!("aifb, R-GCN on the same seeds: sampled {sampled:.4}, full-batch {full:.4}");
    assert!(sampled >= full - 0.015, "sampled {sampled}, full-batch {full}");
}

/// 30 bases, decay on the first layer.
#[test]
fn rgcn_with_bases_on_mutag() {
    let Some(dataset) = typed("mutag.npz") else { return };
    let config = |seed| {
        let mut config = rgcn(seed);
        config.model.decomposition = Decomposition::Basis(30);
        config.optimizer =
            OptimizerConfig::Adam { lr: 0.01, weight_decay: 5e-4, decoupled: false, first_layer_only: true };
        config
    };
    if common::long() {
        let accuracy = mean(10, |seed| test_accuracy(&dataset, config(seed)));
        eprintln!("mutag, R-GCN: mean {accuracy:.4}");
        assert!(accuracy >= 0.725, "mean of ten seeds: {accuracy}");
        return;
    }
    let mut trainer =
        Trainer::new(Cpu::<f32>::new(), dataset, TrainConfig { epochs: 12, ..config(0) }).unwrap();
    let first = trainer.run_epoch(&mut ()).unwrap().loss;
    let outcome = trainer.fit(&mut ()).unwrap();
    let last = trainer.run_epoch(&mut ()).unwrap().loss;
    assert!(last < 0.3 * first, "loss {first} → {last}");
    assert!(outcome.test_acc >= 0.6 && outcome.test_auc.is_some(), "{outcome:?}");
}

#[test]
fn rgat_runs_on_both() {
    for (file, bases, bound) in [("aifb.npz", 0, 0.8), ("mutag.npz", 30, 0.6)] {
        let Some(dataset) = typed(file) else { return };
        let mut config = rgcn(0);
        config.model.kind = ModelKind::Rgat;
        (config.model.hidden, config.model.heads) = (8, 2);
        if bases > 0 {
            config.model.decomposition = Decomposition::Basis(bases);
        }
        config.epochs = if file == "aifb.npz" || common::long() { 50 } else { 8 };
        let accuracy = test_accuracy(&dataset, config);
        eprintln!("{file}, R-GAT, one seed: {accuracy:.4}");
        assert!(accuracy >= bound, "{file}: {accuracy}");
    }
}
