//! Samplers of several layers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Fanouts;
use crate::block::Block;
use crate::device::{Device, Method, SampleSpec};
use crate::error::{Error, Result};
use crate::graph::EdgeSet;
use crate::rng::{Dependence, Kappa, Variates};

/// How minibatches are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamplerConfig {
    /// The method, the same in all layers.
    pub method: Method,
    /// Fanout of each layer, from the seeds outward; `usize::MAX` means all neighbours.
    pub fanouts: Fanouts,
    /// Whether fanouts are per relation of each destination (see
    /// [`SampleSpec::per_relation`](crate::device::SampleSpec::per_relation)).
    #[serde(default)]
    pub per_relation: bool,
    /// How many consecutive minibatches depend on each other.
    pub kappa: Kappa,
    /// How they do.
    #[serde(default = "rotation")]
    pub dependence: Dependence,
    /// The seed of all draws.
    pub seed: u64,
    /// Whether blocks record their edges' ids in the graph.
    pub edge_ids: bool,
    /// Whether blocks have their edges' weights in the graph, by which sums and means over them are then weighted. Not
    /// for random walks.
    #[serde(default)]
    pub edge_weights: bool,
}

impl Default for SamplerConfig {
    /// Two layers of ten neighbours without replacement; independent minibatches of seed 0, without edge ids and
    /// weights.
    fn default() -> Self {
        SamplerConfig {
            method: Method::default(),
            fanouts: Fanouts(vec![10, 10]),
            per_relation: false,
            kappa: Kappa::INDEPENDENT,
            dependence: Dependence::default(),
            seed: 0,
            edge_ids: false,
            edge_weights: false,
        }
    }
}

/// What checkpoints from before there was a choice have.
fn rotation() -> Dependence {
    Dependence::Rotate
}

impl SamplerConfig {
    /// What minibatch number `batch` draws from.
    pub fn variates(&self, batch: u64) -> Variates {
        Variates::new(self.seed, batch, self.kappa, self.dependence)
    }
}

/// Samples minibatches.
#[derive(Clone, Debug)]
pub struct Sampler {
    config: SamplerConfig,
    /// Whether blocks get the degrees of their vertices in the graph.
    degrees: bool,
}

/// A sampled minibatch.
#[derive(Debug)]
pub struct MiniBatch<D: Device> {
    /// The seed vertices, each once, in order of first occurrence: the destinations of the last block.
    pub seeds: Vec<u32>,
    /// If seed vertices were repeated: for each requested seed, its row in `seeds`.
    pub seed_row: Option<Vec<u32>>,
    /// In the order in which a model uses them: the sources of the first are the vertices whose features are needed.
    pub blocks: Vec<Arc<Block<D>>>,
}

impl<D: Device> MiniBatch<D> {
    /// Global ids of the vertices whose features are needed.
    pub fn input_vertices(&self) -> D::View<'_, u32> {
        // A sampler has at least one layer.
        self.blocks[0].src()
    }

    /// Number of edges in all blocks.
    pub fn n_edges(&self) -> u64 {
        self.blocks.iter().map(|block| block.n_edge() as u64).sum()
    }
}

impl Sampler {
    /// A sampler.
    ///
    /// Errors: `config` has no layers.
    pub fn new(config: SamplerConfig) -> Result<Self> {
        if config.fanouts.0.is_empty() {
            return Err(Error::invalid("fanouts", "an empty list", "a fanout for each layer, one at least"));
        }
        Ok(Sampler { config, degrees: false })
    }

    /// Gives every block the in-degrees of its vertices in the graph, weighted ones if it has edge weights, for
    /// [`symmetric_weights`](Block::symmetric_weights).
    pub fn with_degrees(mut self) -> Self {
        self.degrees = true;
        self
    }

    /// The configuration of this sampler.
    pub fn config(&self) -> &SamplerConfig {
        &self.config
    }

    /// Samples minibatch number `batch` (counted over all epochs) around `seeds`, which may repeat.
    ///
    /// Errors: a seed at or above the number of vertices, and those of
    /// [`sample_block`](crate::device::Sample::sample_block).
    pub fn sample<D: Device>(
        &self,
        device: &D,
        graph: &D::Graph,
        seeds: &[u32],
        batch: u64,
    ) -> Result<MiniBatch<D>> {
        self.sample_excluding(device, graph, seeds, batch, &EdgeSet::default())
    }

    /// [`sample`](Sampler::sample) as if the edges `excluded` were not in the graph: what that means for each method is
    /// said at [`sample_block_excluding`](crate::device::Sample::sample_block_excluding). In-degrees given to blocks
    /// are still those of the whole graph.
    ///
    /// Errors: those of [`sample`](Sampler::sample), an edge number out of range, a device other than the CPU.
    pub fn sample_excluding<D: Device>(
        &self,
        device: &D,
        graph: &D::Graph,
        seeds: &[u32],
        batch: u64,
        excluded: &EdgeSet,
    ) -> Result<MiniBatch<D>> {
        let (unique, seed_row) = merge_repeats(seeds);
        let variates = self.config.variates(batch);
        let first = device.send(unique.clone())?;
        let mut blocks: Vec<Arc<Block<D>>> = Vec::with_capacity(self.config.fanouts.0.len());
        for (layer, &fanout) in self.config.fanouts.0.iter().enumerate() {
            let SamplerConfig { method, per_relation, edge_ids, edge_weights, .. } = self.config;
            let spec = SampleSpec { method, fanout, per_relation, edge_ids, edge_weights };
            let dst = blocks.last().map_or_else(|| D::view(&first), |block| block.src());
            let sampled = device
                .sample_block_excluding(graph, dst, &spec, &variates, layer as u32, excluded)
                .map_err(|error| as_seed_error(error, seeds))?;
            let mut block = Block::from_valid(sampled)?.with_longest_row(spec.longest_row());
            if self.degrees {
                block = block.with_degrees_in(device, graph)?;
            }
            blocks.push(Arc::new(block));
        }
        blocks.reverse();
        Ok(MiniBatch { seeds: unique, seed_row, blocks })
    }
}

/// Makes the error name the caller's array. Only seeds can be out of range: other vertices come from the graph.
fn as_seed_error(error: Error, seeds: &[u32]) -> Error {
    match error {
        Error::IndexOutOfRange { array: "dst", value, limit, position } => {
            let at = seeds.iter().position(|&seed| i64::from(seed) == value);
            let position = at.map_or(position, |at| at as u64);
            Error::IndexOutOfRange { array: "seeds", position, value, limit }
        }
        other => other,
    }
}

/// The distinct seeds in order of first occurrence, and if any was repeated, the row of each seed.
fn merge_repeats(seeds: &[u32]) -> (Vec<u32>, Option<Vec<u32>>) {
    let mut unique = Vec::with_capacity(seeds.len());
    let mut rows = Vec::with_capacity(seeds.len());
    let mut row_of = HashMap::with_capacity(seeds.len());
    for &seed in seeds {
        let row = match row_of.entry(seed) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                unique.push(seed);
                *entry.insert(unique.len() as u32 - 1)
            }
        };
        rows.push(row);
    }
    let repeated = unique.len() < seeds.len();
    (unique, repeated.then_some(rows))
}

#[cfg(test)]
mod tests;
