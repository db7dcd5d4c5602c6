//! The model against numbers worked out by hand.

use approx::assert_relative_eq;

use crate::coop::Mode;
use crate::study::{CostConfig, Machine, ModeRow, ModesRow, Spread, Stages, predict, summarize};
use crate::testing::assert_close;

/// Relative: sums by hand and in binary are rounded differently.
const TOLERANCE: f64 = 1e-12;

fn spreads(largest: &[f64]) -> Vec<Spread> {
    largest.iter().map(|&largest| Spread { total: 2.0 * largest, per_pe: largest, largest }).collect()
}

fn mode(vertices: [f64; 3], sources: [f64; 2], edges: [f64; 2], received: [f64; 2]) -> ModeRow {
    let vertices = spreads(&vertices);
    ModeRow {
        inputs: vertices[2],
        loaded: vertices[2],
        vertices,
        sources: spreads(&sources),
        edges: spreads(&edges),
        received: spreads(&received),
        ..ModeRow::default()
    }
}

fn counts() -> ModesRow {
    ModesRow {
        n_pes: 2,
        batch_size: 20,
        independent: mode([10.0, 60.0, 300.0], [60.0, 300.0], [50.0, 400.0], [0.0, 0.0]),
        cooperative: mode([10.0, 50.0, 200.0], [60.0, 240.0], [50.0, 350.0], [30.0, 120.0]),
        vertices_ratio: 1.0,
        edges_ratio: 1.0,
        inputs_ratio: 1.0,
        loaded_ratio: Some(1.0),
    }
}

/// γ = 1000, α = 100, β = 10 bytes per second.
fn config() -> CostConfig {
    let machine = Machine {
        name: "slow".to_owned(),
        n_pes: 2,
        memory: 1000.0,
        interconnect: 100.0,
        storage: 10.0,
        arithmetic: 500.0,
        shared: false,
    };
    CostConfig {
        machine,
        independent_miss_rate: 0.5,
        cooperative_miss_rate: 0.25,
        row_bytes: 6,
        widths: vec![3, 4, 2],
    }
}

fn same(actual: &Stages, expected: &Stages) {
    let numbers = |stages: &Stages| {
        let four = [stages.sample, stages.sample_exchange, stages.feature, stages.feature_exchange];
        [&four[..], &stages.layers, &stages.layer_exchanges].concat()
    };
    assert_close("seconds", &numbers(actual), &numbers(expected), |_, expected| TOLERANCE * expected.abs());
}

#[test]
fn stages_by_hand() {
    let [independent, cooperative] = predict(&counts(), &config()).unwrap();
    let apart = Stages {
        // (16 · (10 + 60) + 4 · (50 + 400)) / 10 = (1120 + 1800) / 10
        sample: 292.0,
        sample_exchange: 0.0,
        // 0.5 · 6 · 300 / 10
        feature: 90.0,
        feature_exchange: 0.0,
        // Seeds' layer, 4 → 2 columns: 12 · (4 · (60 + 50 + 10) + 2 · 10) / 1000 = 12 · 500 / 1000;
        // the other, 3 → 4: 12 · (3 · (300 + 400 + 60) + 4 · 60) / 1000 = 12 · 2520 / 1000.
        layers: vec![6.0, 30.24],
        layer_exchanges: vec![0.0, 0.0],
    };
    same(&independent.stages, &apart);
    assert_relative_eq!(independent.seconds, 418.24, epsilon = 0.0, max_relative = TOLERANCE);
    assert_eq!(
        (independent.mode, independent.speedup, independent.break_even_share),
        (Mode::Independent, 1.0, None)
    );
    let together = Stages {
        // (16 · (10 + 50) + 4 · (50 + 350)) / 10 = (960 + 1600) / 10
        sample: 256.0,
        // 4 · (30 + 120) / 100
        sample_exchange: 6.0,
        // 0.25 · 6 · 200 / 10
        feature: 30.0,
        // 4 · 3 · 120 / 100
        feature_exchange: 14.4,
        // 12 · (4 · (60 + 50 + 10) + 2 · 10) / 1000; 12 · (3 · (240 + 350 + 50) + 4 · 50) / 1000 = 12 · 2120 / 1000
        layers: vec![6.0, 25.44],
        // 2 · 4 · 4 · 30 / 100
        layer_exchanges: vec![9.6, 0.0],
    };
    same(&cooperative.stages, &together);
    // 256 + 30 + 6 + 25.44 = 317.44, and 30 of exchange.
    assert_relative_eq!(cooperative.seconds, 347.44, epsilon = 0.0, max_relative = TOLERANCE);
    assert_relative_eq!(cooperative.speedup, 418.24 / 347.44, epsilon = 0.0, max_relative = TOLERANCE);
    assert_relative_eq!(cooperative.crossing_share, 0.5, epsilon = 0.0, max_relative = TOLERANCE);
    // If all crossed: 4 · 300 / 100 + 4 · 3 · 240 / 100 + 8 · 4 · 60 / 100 = 12 + 28.8 + 19.2 = 60.
    assert_relative_eq!(
        cooperative.break_even_share.unwrap(),
        (418.24 - 317.44) / 60.0,
        epsilon = 0.0,
        max_relative = TOLERANCE
    );
}

#[test]
fn shared_bandwidths_are_divided_and_the_summary_finds_where_it_turns() {
    let mut config = config();
    config.machine.shared = true;
    let [alone, _] = predict(&counts(), &config).unwrap();
    assert_relative_eq!(alone.seconds, 2.0 * 418.24, epsilon = 0.0, max_relative = TOLERANCE);
    config.machine.shared = false;
    let fast = predict(&counts(), &config).unwrap();
    config.machine.interconnect = 10.0;
    let mut slow = predict(&counts(), &config).unwrap();
    slow.iter_mut().for_each(|row| row.n_pes = 4);
    // Ten times 30 of exchange.
    assert_relative_eq!(slow[1].seconds, 617.44, epsilon = 0.0, max_relative = TOLERANCE);
    let summary = summarize(&[&fast[..], &slow[..]].concat());
    assert_eq!(summary.slower_from_pes, Some(4));
    assert_eq!(summary.best, Some((2, fast[1].speedup)));
    assert_eq!(summarize(&fast).slower_from_pes, None);
}

#[test]
fn wrong_arguments_are_refused() {
    let refused = |change: &dyn Fn(&mut CostConfig)| {
        let mut config = config();
        change(&mut config);
        predict(&counts(), &config).unwrap_err().to_string()
    };
    assert!(refused(&|c| c.machine.storage = 0.0).contains("storage bandwidth is 0"));
    assert!(refused(&|c| c.machine.memory = f64::NAN).contains("memory bandwidth is NaN"));
    assert!(refused(&|c| c.cooperative_miss_rate = 1.5).contains("miss rate is 1.5"));
    assert!(refused(&|c| c.widths = vec![1]).contains("widths is 1"));
    assert!(Machine::preset("abacus").unwrap_err().to_string().contains("8xH200"));
    let this = Machine::preset("this-machine").unwrap();
    assert!(this.shared && this.memory > 1e6 && this.memory == 2.0 * this.interconnect);
}
