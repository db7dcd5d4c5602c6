//! Work by batch size (Cooperative Minibatching, theorems 3.1 and 3.2, figure 2).

use std::sync::Arc;

use serde::Serialize;

use super::seeds::{check_batch_size, check_not_empty, for_full_batches};
use super::{Estimate, Listener, method_name};
use crate::device::{Cpu, Method, Sample};
use crate::error::Result;
use crate::graph::Graph;
use crate::sample::{Fanouts, MiniBatch, Sampler, SamplerConfig};

/// What to count.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkConfig {
    /// The samplers to compare.
    pub samplers: Vec<Method>,
    /// Fanout of each layer, from the seeds outward.
    pub fanouts: Fanouts,
    /// Numbers of seeds per batch.
    pub batch_sizes: Vec<usize>,
    /// Number of batches of each size to average over.
    pub batches: usize,
    /// The seed of seed vertices and neighbourhoods.
    pub seed: u64,
}

impl Default for WorkConfig {
    /// The paper's samplers (figure 2) and fanouts; batches of 1 to 1024 seeds.
    fn default() -> Self {
        WorkConfig {
            samplers: vec![Method::NEIGHBOR, Method::LABOR_0, Method::LABOR_STAR, Method::PINSAGE_WALK],
            fanouts: Fanouts(vec![10, 10, 10]),
            batch_sizes: (0..=10).map(|exponent| 1 << exponent).collect(),
            batches: 10,
            seed: 0,
        }
    }
}

/// The size of batches of one sampler with one number of seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkRow {
    /// Name of the sampler.
    pub sampler: String,
    /// Number of seeds.
    pub batch_size: usize,
    /// Number of sampled batches.
    pub batches: usize,
    /// `[n_layers + 1]`: `|S^l|`, vertices from the seeds outward; features of the last ones are loaded.
    pub vertices: Vec<Estimate>,
    /// `[n_layers]`: `|E^l|`, edges from the seeds outward.
    pub edges: Vec<Estimate>,
    /// `W(B)`: the sum over layers of sources and edges.
    pub work: Estimate,
    /// `W(B) / B`, which never rises with `B` in expectation.
    pub work_per_seed: Estimate,
    /// `|S^L| / B`: feature rows loaded per seed.
    pub inputs_per_seed: Estimate,
}

/// Vertices `[n_layers + 1]` and edges `[n_layers]` of a batch, from the seeds outward.
type LayerCounts = (Vec<u64>, Vec<u64>);

/// The counts of `batch`.
pub(super) fn counts<S: crate::device::Scalar>(batch: &MiniBatch<Cpu<S>>) -> LayerCounts {
    let vertices = std::iter::once(batch.seeds.len() as u64)
        .chain(batch.blocks.iter().rev().map(|block| block.n_src() as u64))
        .collect();
    (vertices, batch.blocks.iter().rev().map(|block| block.n_edge() as u64).collect())
}

/// Samples batches of every size with every sampler and counts what they hold. Returns one row per sampler and batch
/// size; batch size varies fastest. Every sampler has the same seeds.
///
/// Errors: `samplers` or `batch_sizes` is empty, a batch size is 0 or above `pool.len()`, `batches` is 0, and those of
/// [`Sampler::sample`].
pub fn work(
    graph: &Arc<Graph>,
    pool: &[u32],
    config: &WorkConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<WorkRow>> {
    check_not_empty("samplers", &config.samplers)?;
    check_not_empty("batch_sizes", &config.batch_sizes)?;
    config.batch_sizes.iter().try_for_each(|&size| check_batch_size(pool, size))?;
    let cpu = Cpu::<f32>::new();
    let loaded = cpu.load_graph(graph)?;
    let total = config.samplers.len() * config.batch_sizes.len();
    let mut rows = Vec::with_capacity(total);
    for method in &config.samplers {
        let name = method_name(method);
        let sampler = Sampler::new(SamplerConfig {
            method: *method,
            fanouts: config.fanouts.clone(),
            seed: config.seed,
            ..SamplerConfig::default()
        })?;
        for &batch_size in &config.batch_sizes {
            listener.step(rows.len(), total, &format!("{name}, batches of {batch_size}"));
            let mut samples = Vec::with_capacity(config.batches);
            for_full_batches(pool, batch_size, config.batches, config.seed, |number, seeds| {
                samples.push(counts(&sampler.sample(&cpu, &loaded, seeds, number)?));
                Ok(())
            })?;
            rows.push(row(name.clone(), batch_size, &samples));
        }
    }
    listener.step(total, total, "done");
    Ok(rows)
}

fn row(sampler: String, batch_size: usize, samples: &[LayerCounts]) -> WorkRow {
    let estimate =
        |of: &dyn Fn(&LayerCounts) -> f64| Estimate::of(&samples.iter().map(of).collect::<Vec<f64>>());
    let n_layers = samples.first().map_or(0, |(_, edges)| edges.len());
    let work = |(vertices, edges): &LayerCounts| {
        (vertices[1..].iter().sum::<u64>() + edges.iter().sum::<u64>()) as f64
    };
    let per_seed = 1.0 / batch_size as f64;
    WorkRow {
        sampler,
        batch_size,
        batches: samples.len(),
        vertices: (0..=n_layers).map(|l| estimate(&|(vertices, _)| vertices[l] as f64)).collect(),
        edges: (0..n_layers).map(|l| estimate(&|(_, edges)| edges[l] as f64)).collect(),
        work: estimate(&work),
        work_per_seed: estimate(&|sample| work(sample) * per_seed),
        inputs_per_seed: estimate(&|(vertices, _)| vertices[n_layers] as f64 * per_seed),
    }
}
