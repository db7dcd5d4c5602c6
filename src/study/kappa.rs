//! Misses of the feature cache by κ (Cooperative Minibatching, section 3.2, figure 4).

use std::sync::Arc;

use serde::Serialize;

use super::seeds::{check_batch_size, check_not_empty};
use super::{Listener, method_name, seed_pool};
use crate::cache::{Counts, Directory, Policy};
use crate::data::Dataset;
use crate::device::{Cpu, Method, Sample};
use crate::error::{Error, Result};
use crate::rng::{Dependence, Kappa};
use crate::sample::{Batches, Fanouts, Sampler, SamplerConfig};

/// What to count.
#[derive(Clone, Debug, PartialEq)]
pub struct KappaConfig {
    /// The samplers to compare.
    pub samplers: Vec<Method>,
    /// Fanout of each layer, from the seeds outward.
    pub fanouts: Fanouts,
    /// Numbers of consecutive minibatches that depend on each other.
    pub kappas: Vec<Kappa>,
    /// How they do.
    pub dependence: Dependence,
    /// Capacities of the cache, in rows.
    pub cache_rows: Vec<usize>,
    /// Which rows the cache keeps.
    pub policy: Policy,
    /// Seeds per minibatch.
    pub batch_size: usize,
    /// Passes over the training vertices to count, after one that warms up the cache; both are rounded up to whole
    /// windows of κ minibatches, so that each κ is counted over windows from end to end.
    pub passes: u64,
    /// The seed of the order of seed vertices and of neighbourhoods.
    pub seed: u64,
}

impl Default for KappaConfig {
    /// The paper's κ (figure 4) and fanouts.
    fn default() -> Self {
        let steps = [1, 4, 16, 64, 256].map(|kappa| std::num::NonZeroU64::new(kappa).map(Kappa::Steps));
        KappaConfig {
            samplers: vec![Method::NEIGHBOR, Method::LABOR_0],
            fanouts: Fanouts(vec![10, 10, 10]),
            kappas: steps.into_iter().flatten().chain([Kappa::Infinite]).collect(),
            dependence: Dependence::default(),
            cache_rows: vec![1 << 12],
            policy: Policy::Lru,
            batch_size: 1024,
            passes: 1,
            seed: 0,
        }
    }
}

/// The counts of one sampler, κ and capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KappaRow {
    /// Name of the sampler.
    pub sampler: String,
    /// How many consecutive minibatches depend on each other.
    pub kappa: Kappa,
    /// Which rows the cache keeps.
    pub policy: Policy,
    /// Capacity of the cache, in rows.
    pub cache_rows: usize,
    /// Minibatches before those counted, which warmed up the cache: whole windows of κ.
    pub discarded: u64,
    /// Minibatches counted: whole windows of κ.
    pub batches: u64,
    /// Seeds of these minibatches.
    pub seeds: u64,
    /// Row accesses.
    pub accesses: u64,
    /// Accesses to rows that were not in the cache.
    pub misses: u64,
    /// Misses as a share of accesses.
    pub miss_rate: f64,
    /// Misses per seed: rows loaded from storage. A sampler that needs fewer rows can have a higher miss rate and still
    /// fewer misses.
    pub misses_per_seed: f64,
}

/// Samples consecutive training batches, and accesses the vertices whose features they need in caches without data.
/// Returns one row per sampler, κ and capacity; capacity varies fastest.
///
/// The windows of κ that hold the first pass warm up the caches and are not counted. A κ of many passes takes as long
/// as two windows do.
///
/// Errors: a list is empty, `passes` is 0 or makes more batches than 64 bits count, the batch size is 0 or above the
/// number of training vertices, a method cannot rotate (random walks), and those of [`Directory::new`].
pub fn kappa(
    dataset: &Arc<Dataset>,
    config: &KappaConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<KappaRow>> {
    check_not_empty("samplers", &config.samplers)?;
    check_not_empty("kappas", &config.kappas)?;
    check_not_empty("cache_rows", &config.cache_rows)?;
    let pool = seed_pool(dataset)?;
    check_batch_size(&pool, config.batch_size)?;
    if config.passes == 0 {
        return Err(Error::invalid("passes", 0, "at least 1"));
    }
    let batches = Batches::new(pool, config.batch_size, config.seed)?;
    let total = config.samplers.len() * config.kappas.len();
    let mut rows = Vec::with_capacity(total * config.cache_rows.len());
    for (i, &method) in config.samplers.iter().enumerate() {
        for (j, &kappa) in config.kappas.iter().enumerate() {
            let sampler = SamplerConfig {
                method,
                fanouts: config.fanouts.clone(),
                kappa,
                dependence: config.dependence,
                seed: config.seed,
                ..SamplerConfig::default()
            };
            let what = format!("{}, kappa {kappa}", method_name(&method));
            listener.step(i * config.kappas.len() + j, total, &what);
            rows.extend(one(dataset, &batches, sampler, config)?);
        }
    }
    listener.step(total, total, "done");
    Ok(rows)
}

/// The rows of one sampler and κ.
fn one(
    dataset: &Arc<Dataset>,
    batches: &Batches,
    sampler_config: SamplerConfig,
    config: &KappaConfig,
) -> Result<Vec<KappaRow>> {
    let cpu = Cpu::<f32>::new();
    let graph = cpu.load_graph(&dataset.graph)?;
    let n_vertices = Some(dataset.n_vertices());
    let new = |&rows: &usize| Directory::new(config.policy, rows, n_vertices);
    let mut caches: Vec<Directory> = config.cache_rows.iter().map(new).collect::<Result<_>>()?;
    let sampler = Sampler::new(sampler_config.clone())?;
    let (mut n_batches, mut n_seeds) = (0, 0);
    let (discarded, end) = windows(sampler_config.kappa, batches.per_epoch() as u64, config.passes)?;
    'passes: for pass in 0.. {
        for (number, seeds) in batches.epoch(pass).iter() {
            if number == discarded {
                caches.iter_mut().for_each(Directory::reset_counts);
            }
            if number == end {
                break 'passes;
            }
            let batch = sampler.sample(&cpu, &graph, seeds, number)?;
            for cache in &mut caches {
                cache.access_all(batch.input_vertices())?;
            }
            if number >= discarded {
                n_batches += 1;
                n_seeds += seeds.len() as u64;
            }
        }
    }
    let row = |(cache, &cache_rows): (&Directory, &usize)| {
        let counts: Counts = cache.counts();
        KappaRow {
            sampler: method_name(&sampler_config.method),
            kappa: sampler_config.kappa,
            policy: config.policy,
            cache_rows,
            discarded,
            batches: n_batches,
            seeds: n_seeds,
            accesses: counts.accesses(),
            misses: counts.misses,
            miss_rate: counts.miss_rate(),
            misses_per_seed: counts.misses as f64 / n_seeds as f64,
        }
    };
    Ok(caches.iter().zip(&config.cache_rows).map(row).collect())
}

/// The number of the first batch that is counted, and that after the last. With κ = ∞ a window is a pass.
fn windows(kappa: Kappa, per_pass: u64, passes: u64) -> Result<(u64, u64)> {
    let window = match kappa {
        Kappa::Steps(steps) => steps.get(),
        Kappa::Infinite => per_pass,
    };
    let whole = |batches: u64| batches.div_ceil(window).checked_mul(window);
    let first = whole(per_pass);
    let counted = passes.checked_mul(per_pass).and_then(whole);
    let ends = first.zip(counted).and_then(|(first, counted)| Some((first, first.checked_add(counted)?)));
    let expected = "fewer: with kappa, so that 64 bits count the batches";
    ends.ok_or_else(|| Error::invalid("passes", passes, expected))
}

/// How many times the misses of κ = ∞ a recommended κ may have.
pub const NEAR_INFINITE: f64 = 1.05;

/// The κ that [`recommend`] chose for one sampler and capacity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KappaChoice {
    /// Name of the sampler.
    pub sampler: String,
    /// Capacity of the cache, in rows.
    pub cache_rows: usize,
    /// The smallest κ whose misses per seed are at most [`NEAR_INFINITE`] times those of κ = ∞.
    pub recommended_kappa: Kappa,
    /// Its misses per seed, divided by those of κ = ∞.
    pub misses_over_infinite: f64,
}

/// For each sampler and capacity, in the order of `rows`, the smallest κ counted that misses about as rarely as κ = ∞:
/// a larger one makes minibatches more alike and gains next to nothing. None for those without a row of κ = ∞.
pub fn recommend(rows: &[KappaRow]) -> Vec<KappaChoice> {
    let infinite = rows.iter().filter(|row| row.kappa == Kappa::Infinite);
    let choose = |infinite: &KappaRow| {
        let alike = |row: &&KappaRow| {
            row.sampler == infinite.sampler
                && row.cache_rows == infinite.cache_rows
                && row.misses_per_seed <= NEAR_INFINITE * infinite.misses_per_seed
        };
        let steps = |row: &&KappaRow| match row.kappa {
            Kappa::Steps(steps) => steps.get(),
            Kappa::Infinite => u64::MAX,
        };
        let best = rows.iter().filter(alike).min_by_key(steps).unwrap_or(infinite);
        KappaChoice {
            sampler: best.sampler.clone(),
            cache_rows: best.cache_rows,
            recommended_kappa: best.kappa,
            misses_over_infinite: match infinite.misses {
                // Then the chosen one has none either.
                0 => 1.0,
                _ => best.misses_per_seed / infinite.misses_per_seed,
            },
        }
    };
    infinite.map(choose).collect()
}
