//! Dependent minibatches: what the cache gains, and that each minibatch by itself is distributed as ever.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::sampler;
use crate::cache::Policy;
use crate::data::{Dataset, SbmData};
use crate::device::{Cpu, Method, Sample};
use crate::graph::{Graph, Rmat, Sbm};
use crate::rng::{Dependence, Kappa};
use crate::sample::{Batches, Fanouts, Sampler, SamplerConfig};
use crate::study::{ConvergenceConfig, KappaConfig, KappaRow, Runs, convergence, kappa, recommend};
use crate::testing::{chi_square_deviation, mean_deviation};
use crate::train::{LrSchedule, TrainConfig, Trainer};

fn dataset() -> Arc<Dataset> {
    let graph = Sbm { n_vertices: 1500, mean_degree: 40.0, ..SbmData::default().graph };
    Arc::new(SbmData { graph, dim: 4, ..SbmData::default() }.generate().unwrap())
}

fn steps(kappa: u64) -> Kappa {
    Kappa::steps(kappa).unwrap()
}

#[test]
fn misses_fall_with_kappa_and_are_those_of_a_naive_cache() {
    let dataset = dataset();
    let fanouts = Fanouts(vec![4, 4]);
    let config = KappaConfig {
        fanouts: fanouts.clone(),
        kappas: vec![steps(1), steps(64), Kappa::Infinite],
        cache_rows: vec![100, 500],
        batch_size: 8,
        passes: 2,
        seed: 3,
        ..KappaConfig::default()
    };
    let rows = kappa(&dataset, &config, &mut ()).unwrap();
    assert_eq!(rows.len(), 12);
    for rows in rows.chunks(6) {
        for capacity in 0..2 {
            let [one, many, all] = [0, 2, 4].map(|i| &rows[i + capacity]);
            // A cache smaller than a batch holds next to nothing of the last one.
            assert!(many.miss_rate < one.miss_rate || capacity == 0, "{one:?} {many:?}");
            assert!(all.miss_rate < one.miss_rate, "{one:?} {all:?}");
            assert!(many.misses_per_seed < one.misses_per_seed, "{one:?} {many:?}");
        }
        assert!(rows[1].misses < rows[0].misses, "a larger LRU cache holds what a smaller one does");
    }
    // By hand: the least recently used leaves a list.
    let row = rows.iter().find(|row| row.kappa == steps(64)).unwrap();
    let cpu = Cpu::<f32>::new();
    let graph = cpu.load_graph(&dataset.graph).unwrap();
    let sampler = Sampler::new(sampler(Method::NEIGHBOR, &fanouts, steps(64), 3)).unwrap();
    let batches = Batches::new(dataset.train_idx.clone(), 8, 3).unwrap();
    let (mut recent, mut misses, mut accesses): (Vec<u32>, u64, u64) = (Vec::new(), 0, 0);
    // A pass has 19 batches, two have 38: each fits in one window of 64.
    let mut seeds_counted = 0;
    for epoch in 0..7 {
        for (number, seeds) in batches.epoch(epoch).iter().filter(|&(number, _)| number < 128) {
            seeds_counted += if number < 64 { 0 } else { seeds.len() as u64 };
            let batch = sampler.sample(&cpu, &graph, seeds, number).unwrap();
            for &vertex in batch.input_vertices() {
                let found = recent.iter().position(|&v| v == vertex);
                found.map(|at| recent.remove(at));
                recent.push(vertex);
                if recent.len() > 100 {
                    recent.remove(0);
                }
                if number >= 64 {
                    accesses += 1;
                    misses += u64::from(found.is_none());
                }
            }
        }
    }
    assert_eq!((row.cache_rows, row.accesses, row.misses), (100, accesses, misses));
    assert_eq!((row.discarded, row.batches, row.seeds), (64, 64, seeds_counted));
    // With κ = 1 and ∞, passes are whole.
    for row in rows.iter().filter(|row| row.kappa != steps(64)) {
        assert_eq!((row.discarded, row.batches, row.seeds), (19, 38, 300), "{row:?}");
    }
    assert_eq!(row.misses_per_seed, misses as f64 / row.seeds as f64);
}

#[test]
fn the_smallest_kappa_near_infinity_is_recommended() {
    let row = |sampler: &str, cache_rows: usize, kappa: Kappa, misses: u64| KappaRow {
        sampler: sampler.to_owned(),
        kappa,
        policy: Policy::Lru,
        cache_rows,
        discarded: 0,
        batches: 1,
        seeds: 10,
        accesses: 10_000,
        misses,
        miss_rate: misses as f64 / 10_000.0,
        misses_per_seed: misses as f64 / 10.0,
    };
    let rows = [
        row("a", 5, Kappa::Infinite, 1000),
        row("a", 5, steps(256), 1010),
        row("a", 5, steps(16), 1051),
        row("a", 5, steps(64), 1049),
        // All miss far more often than infinity.
        row("a", 9, steps(4), 1060),
        row("a", 9, Kappa::Infinite, 500),
        // Nothing misses.
        row("b", 5, steps(1), 0),
        row("b", 5, Kappa::Infinite, 0),
        // Nothing to compare with.
        row("c", 5, steps(1), 7),
    ];
    let choices = recommend(&rows);
    let found: Vec<_> = choices
        .iter()
        .map(|c| (c.sampler.as_str(), c.cache_rows, c.recommended_kappa, c.misses_over_infinite))
        .collect();
    let expected =
        [("a", 5, steps(64), 104.9 / 100.0), ("a", 9, Kappa::Infinite, 1.0), ("b", 5, steps(1), 1.0)];
    assert_eq!(found, expected);
}

#[test]
fn kappa_infinite_repeats_neighbourhoods() {
    let graph = Arc::new(Rmat::graph500(8, 10, 2).generate().unwrap());
    let cpu = Cpu::<f32>::new();
    let loaded = cpu.load_graph(&graph).unwrap();
    let seeds: Vec<u32> = (0..20).collect();
    for method in [Method::NEIGHBOR, Method::LABOR_0] {
        let inputs = |kappa, batch| {
            let sampler = Sampler::new(sampler(method, &Fanouts(vec![3, 3]), kappa, 8)).unwrap();
            let batch = sampler.sample(&cpu, &loaded, &seeds, batch).unwrap();
            batch.input_vertices().iter().copied().collect::<BTreeSet<u32>>()
        };
        assert_eq!(inputs(Kappa::Infinite, 0), inputs(Kappa::Infinite, 12_345), "{method:?}");
        assert_ne!(inputs(Kappa::INDEPENDENT, 0), inputs(Kappa::INDEPENDENT, 12_345), "{method:?}");
    }
}

/// Minibatches of different seeds, at the middle of a window, where κ mixes most. Each neighbour is in a vertex's
/// sample with probability min(1, k/d), independently of other draws; within a draw the counts vary less than a
/// multinomial's, so that Pearson's statistic errs to the safe side. 2 · 6 · 3 statistics of each kind, each beyond 6
/// deviations with probability below 1e-8: a false alarm has a probability below 1e-6.
#[test]
fn a_minibatch_is_distributed_as_with_kappa_1() {
    const DRAWS: u64 = 1500;
    const FANOUT: usize = 3;
    let degrees = [5u32, 12, 40];
    let mut edges = Vec::new();
    for (destination, &degree) in (0..).zip(&degrees) {
        edges.extend((0..degree).map(|source| (3 + source, destination)));
    }
    let graph = Arc::new(Graph::from_edges(43, &edges).unwrap());
    let cpu = Cpu::<f32>::new();
    let loaded = cpu.load_graph(&graph).unwrap();
    let draw = |method: Method, kappa: Kappa, dependence: Dependence| {
        let middle = match kappa {
            Kappa::Steps(steps) => steps.get() / 2,
            Kappa::Infinite => 77,
        };
        let mut counts: Vec<Vec<u64>> = degrees.iter().map(|&degree| vec![0; degree as usize]).collect();
        let mut sampled = vec![Vec::new(); degrees.len()];
        for seed in 0..DRAWS {
            let config = sampler(method, &Fanouts(vec![FANOUT]), kappa, seed);
            let sampler = Sampler::new(SamplerConfig { dependence, ..config }).unwrap();
            let batch = sampler.sample(&cpu, &loaded, &[0, 1, 2], middle).unwrap();
            let (block, src) = (batch.blocks[0].csr(), batch.blocks[0].src());
            for vertex in 0..degrees.len() {
                let row = &block.indices[block.indptr[vertex] as usize..block.indptr[vertex + 1] as usize];
                row.iter().for_each(|&at| counts[vertex][src[at as usize] as usize - 3] += 1);
                sampled[vertex].push(row.len() as f64);
            }
        }
        (counts, sampled)
    };
    for method in [Method::NEIGHBOR, Method::LABOR_0] {
        let kappas = [steps(1), steps(4), steps(16), steps(64), steps(256), Kappa::Infinite];
        let renewed = kappas.map(|kappa| (kappa, Dependence::Renew));
        let rotated = [4, 64].map(|kappa| (steps(kappa), Dependence::Rotate));
        for (kappa, dependence) in renewed.into_iter().chain(rotated) {
            let (counts, sampled) = draw(method, kappa, dependence);
            for (counts, sampled) in counts.iter().zip(&sampled) {
                let deviation = chi_square_deviation(counts, &vec![1.0; counts.len()]);
                assert!(deviation < 6.0, "{method:?}, kappa {kappa}: {deviation} of {counts:?}");
                let deviation = mean_deviation(sampled, FANOUT as f64);
                assert!(deviation < 6.0, "{method:?}, kappa {kappa}: degrees off by {deviation}");
            }
        }
    }
}

#[test]
fn training_is_that_of_the_trainer_with_mean_and_deviation_by_hand() {
    let dataset = dataset();
    let config = ConvergenceConfig {
        samplers: vec![Method::LABOR_0],
        fanouts: Fanouts(vec![4, 4]),
        kappas: vec![steps(4), Kappa::Infinite],
        dependence: Dependence::default(),
        batch_size: 32,
        seeds: vec![5, 9],
        train: TrainConfig { epochs: 2, ..TrainConfig::default() },
    };
    let rows = convergence(&dataset, &config, &mut ()).unwrap();
    let found: Vec<_> = rows.iter().map(|row| (row.kappa, row.epochs, row.runs)).collect();
    let infinite = Kappa::Infinite;
    assert_eq!(found, [(steps(4), 1, 2), (steps(4), 2, 2), (infinite, 1, 2), (infinite, 2, 2)]);
    // The trainer's own validation.
    let [a, b] = [5, 9].map(|seed| {
        let sampler = sampler(Method::LABOR_0, &config.fanouts, steps(4), seed);
        let train = TrainConfig { sampler, seed, batch_size: Some(32), ..config.train.clone() };
        let mut trainer = Trainer::new(Cpu::<f32>::new(), dataset.clone(), train).unwrap();
        trainer.run_epoch(&mut ()).unwrap();
        trainer.run_epoch(&mut ()).unwrap().val_acc.unwrap()
    });
    let Runs { mean, deviation } = rows[1].val_acc;
    assert!((mean - (a + b) / 2.0).abs() <= 1e-12, "{mean}: {a} {b}");
    assert!((deviation - (a - b).abs() / 2f64.sqrt()).abs() <= 1e-12, "{deviation}: {a} {b}");
    assert!(rows.iter().all(|row| (0.0..=1.0).contains(&row.val_macro_f1.mean)), "{rows:?}");
    let refused =
        |config: ConvergenceConfig| convergence(&dataset, &config, &mut ()).unwrap_err().to_string();
    assert!(refused(ConvergenceConfig { seeds: vec![], ..config.clone() }).contains("seeds"));
    let plateau = LrSchedule::Plateau { patience: 1, factor: 0.5 };
    let train = TrainConfig { lr_schedule: plateau, ..config.train.clone() };
    assert!(refused(ConvergenceConfig { train, ..config.clone() }).contains("lr_schedule is plateau"));
    let train = TrainConfig { epochs: 0, ..config.train.clone() };
    assert!(refused(ConvergenceConfig { train, ..config.clone() }).contains("epochs is 0"));
}

#[test]
fn wrong_arguments_are_refused() {
    let dataset = dataset();
    let refused = |config: KappaConfig| kappa(&dataset, &config, &mut ()).unwrap_err().to_string();
    let config = KappaConfig { batch_size: 16, ..KappaConfig::default() };
    assert!(refused(KappaConfig { kappas: vec![], ..config.clone() }).contains("kappas"));
    assert!(refused(KappaConfig { cache_rows: vec![], ..config.clone() }).contains("cache_rows"));
    assert!(refused(KappaConfig { passes: 0, ..config.clone() }).contains("passes is 0"));
    assert!(refused(KappaConfig { passes: u64::MAX, ..config.clone() }).contains("passes is 1844"));
    assert!(refused(KappaConfig { batch_size: 151, ..config.clone() }).contains("batch_size is 151"));
    let walk = Method::Walk { walks: 2, length: 2, restart: 0.5 };
    assert!(
        refused(KappaConfig {
            samplers: vec![walk],
            kappas: vec![steps(4)],
            dependence: Dependence::Rotate,
            ..config
        })
        .contains("dependence")
    );
}
