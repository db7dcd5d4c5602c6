//! Which steps are timed, and that they are those that are counted. What the times are is not tested.

use std::sync::Arc;

use approx::assert_relative_eq;

use crate::coop::{FirstLayer, Mode};
use crate::data::{Dataset, Features, SbmData};
use crate::graph::Sbm;
use crate::nn::{ModelConfig, ModelKind};
use crate::rng::Kappa;
use crate::sample::Fanouts;
use crate::study::{
    CostConfig, Machine, ModeRow, ModesConfig, ModesRow, Spread, StepConfig, StepRow, modes, predict_model,
    seed_pool, sizes, step_seconds,
};

/// 600 vertices, 60 of them to train on.
fn dataset() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 600, ..SbmData::default().graph };
    Arc::new(SbmData { graph, dim: 4, ..SbmData::default() }.generate().unwrap())
}

fn modes_config(batches: usize) -> ModesConfig {
    ModesConfig {
        fanouts: Fanouts(vec![3, 3]),
        pes: vec![1, 2, 3],
        batch_size: 20,
        batches,
        widths: vec![4, 8, 8],
        seed: 5,
        ..ModesConfig::default()
    }
}

fn cost_config() -> CostConfig {
    let machine = Machine::preset("8xA100").unwrap();
    let (independent_miss_rate, cooperative_miss_rate) = (1.0, 1.0);
    CostConfig { machine, independent_miss_rate, cooperative_miss_rate, row_bytes: 16, widths: vec![4, 8, 8] }
}

fn step_config(kind: ModelKind, warm_up: usize, steps: usize) -> StepConfig {
    let mut config = StepConfig { warm_up, steps, ..StepConfig::default() };
    (config.train.model.kind, config.train.model.hidden, config.train.model.heads) = (kind, 4, 2);
    config
}

fn counts(dataset: &Arc<Dataset>, config: &ModesConfig) -> Vec<ModesRow> {
    modes(&dataset.graph, &seed_pool(dataset).unwrap(), config, &mut ()).unwrap()
}

fn ways(rows: &[StepRow]) -> Vec<(usize, Mode, FirstLayer)> {
    rows.iter().map(|row| (row.n_pes, row.mode, row.first_layer)).collect()
}

/// An epoch of three full batches, all of them timed: they are the batches that `modes` counts.
#[test]
fn the_steps_that_are_timed_are_those_that_are_counted() {
    let (dataset, modes_config, cost_config) = (dataset(), modes_config(3), cost_config());
    let counts = counts(&dataset, &modes_config);
    let step_config = step_config(ModelKind::Sage, 0, 3);
    let rows = step_seconds(&dataset, &modes_config, &counts, &cost_config, &step_config, &mut ()).unwrap();
    let both = [FirstLayer::Whole, FirstLayer::P3];
    let mut expected = vec![(1, Mode::Serial, FirstLayer::Whole)];
    for n_pes in [2, 3] {
        for layer in both {
            expected.extend([(n_pes, Mode::Independent, layer), (n_pes, Mode::Cooperative, layer)]);
        }
    }
    assert_eq!(ways(&rows), expected);
    let sum = |spreads: &[Spread]| spreads.iter().map(|spread| spread.total).sum::<f64>();
    for row in &rows {
        let counted = counts.iter().find(|counted| counted.n_pes == row.n_pes).unwrap();
        let counted: &ModeRow = match row.mode {
            Mode::Cooperative => &counted.cooperative,
            Mode::Serial | Mode::Independent => &counted.independent,
        };
        assert_relative_eq!(row.vertices, sum(&counted.vertices[..2]), max_relative = 1e-12);
        assert_relative_eq!(row.edges, sum(&counted.edges), max_relative = 1e-12);
        assert_relative_eq!(row.inputs, counted.inputs.total, max_relative = 1e-12);
    }
    // Predictions are those of the study of costs for this model.
    let pool = seed_pool(&dataset).unwrap();
    let sizes = sizes(&dataset.graph, &pool, &modes_config, false, &mut ()).unwrap();
    let model = ModelConfig {
        n_features: 4,
        n_classes: dataset.n_classes,
        n_layers: 2,
        ..step_config.train.model.clone()
    };
    let predict = |sizes| predict_model(sizes, &model, &both, &cost_config).unwrap();
    let predicted: Vec<_> = sizes.iter().flat_map(predict).collect();
    for row in &rows {
        let same = |other: &&crate::study::CostRow| {
            let mode = if row.mode == Mode::Serial { Mode::Independent } else { row.mode };
            let first_layer = other.model.as_ref().unwrap().first_layer;
            (other.n_pes, other.mode, first_layer) == (row.n_pes, mode, row.first_layer)
        };
        let predicted = predicted.iter().find(same).unwrap();
        assert_eq!(row.predicted_seconds, predicted.seconds);
        let is_alone = row.mode == Mode::Serial;
        assert_eq!(row.predicted_speedup, (!is_alone).then_some(predicted.speedup));
        assert_eq!(row.measured_speedup.is_none(), is_alone);
        if (row.mode, row.first_layer) == (Mode::Independent, FirstLayer::Whole) {
            assert_eq!(row.measured_speedup, Some(1.0));
        }
        let parts = row.parts;
        let parts = [parts.sample, parts.gather, parts.compute, parts.exchange, parts.wait];
        assert!(parts.iter().all(|seconds| seconds.is_finite() && *seconds >= 0.0), "{row:?}");
        assert!(!is_alone || row.parts.exchange == 0.0, "{row:?}");
        assert_eq!(row.steps, 3);
    }
}

/// More steps than an epoch has full batches; attention, and a cache, which p3 does without.
#[test]
fn steps_go_on_over_epochs_and_p3_is_where_it_can_be() {
    let (dataset, cost_config) = (dataset(), cost_config());
    for (kind, cache_rows, has_p3) in [
        (ModelKind::Gat, None, false),
        (ModelKind::Sage, Some(50), false),
        (ModelKind::Gin, None, true),
        (ModelKind::GcnMean, None, true),
    ] {
        let kappa = Kappa::steps(4).unwrap();
        // Two full batches; the 16 seeds that are left are none.
        let modes_config =
            ModesConfig { pes: vec![1, 2], batch_size: 22, cache_rows, kappa, ..modes_config(2) };
        let counts = counts(&dataset, &modes_config);
        let step_config = step_config(kind, 2, 5);
        let rows =
            step_seconds(&dataset, &modes_config, &counts, &cost_config, &step_config, &mut ()).unwrap();
        assert_eq!(rows.len(), if has_p3 { 5 } else { 3 }, "{kind:?}");
        let seeds = |row: &StepRow| row.vertices >= 22.0 && row.edges > 0.0 && row.inputs > 0.0;
        assert!(rows.iter().all(|row| row.steps == 5 && seeds(row)), "{rows:?}");
        // Of one batch, no PE more than needed, whatever the model.
        assert_eq!(rows[0].edges, rows[2].edges);
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let (dataset, cost_config, sage) = (dataset(), cost_config(), ModelKind::Sage);
    let modes_config = modes_config(1);
    let all = counts(&dataset, &modes_config);
    let refused = |dataset: &Arc<Dataset>, modes: &ModesConfig, counts: &[ModesRow], config: &StepConfig| {
        step_seconds(dataset, modes, counts, &cost_config, config, &mut ()).unwrap_err().to_string()
    };
    let good = step_config(sage, 1, 1);
    assert!(refused(&dataset, &modes_config, &all, &step_config(sage, 1, 0)).contains("steps is 0"));
    assert!(refused(&dataset, &modes_config, &all, &step_config(sage, 1, usize::MAX)).contains("steps is"));
    assert!(refused(&dataset, &modes_config, &all[1..], &good).contains("counts is without"));
    let large = ModesConfig { batch_size: 61, ..modes_config.clone() };
    assert!(refused(&dataset, &large, &all, &good).contains("batch_size is 61"));
    let bare = Arc::new(Dataset { features: Features::None, ..Dataset::clone(&dataset) });
    assert!(refused(&bare, &modes_config, &all, &good).contains("features is absent"));
}
