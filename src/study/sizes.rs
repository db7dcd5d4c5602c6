//! Sizes of the blocks that each processing element holds, of the batches that [`modes()`](super::modes()) counts: what
//! the work of a model's layers and the memory of a batch follow from.

use std::sync::Arc;

use serde::Serialize;

use super::both_modes::{BothModes, Together};
use super::{Listener, ModeRow, ModesConfig, Spread};
use crate::block::Block;
use crate::device::{Cpu, Direction};
use crate::error::{Error, Result, try_collect};
use crate::graph::{Graph, MAX_RELATIONS};
use crate::rng;
use crate::sample::MiniBatch;

/// One processing element's (PE's) block of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BlockSize {
    /// Destinations; in cooperative mode all are the PE's own.
    pub destinations: u64,
    /// Sources, destinations included; in cooperative mode of any owner.
    pub sources: u64,
    /// Edges.
    pub edges: u64,
    /// Sources that the PE owns and that it or another PE needs; in independent mode all its sources.
    pub owned: u64,
    /// Sources that other PEs own.
    pub received: u64,
    /// Rows that the PE sends to others.
    pub sent: u64,
    /// Pairs of a relation and a destination with an edge between them; 0 if relations were not counted.
    pub destination_groups: u64,
    /// Pairs of a relation and a source with an edge between them; 0 if relations were not counted.
    pub source_groups: u64,
    /// Whether the edges have estimator weights, as those of LABOR and of random walks have.
    pub weighted: bool,
}

/// One PE's part of one batch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeSizes {
    /// `[n_layers]`, from the seeds outward.
    pub blocks: Vec<BlockSize>,
    /// Feature rows loaded: those needed that the cache does not hold; without a cache, all.
    pub loaded: u64,
}

/// The sizes of some batches in both modes, with one number of PEs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SizesRow {
    /// Number of PEs.
    pub n_pes: usize,
    /// By batch, then by PE: each PE has a minibatch of its share of the seeds.
    pub independent: Vec<Vec<PeSizes>>,
    /// By batch, then by PE: all PEs process one minibatch together.
    pub cooperative: Vec<Vec<PeSizes>>,
}

/// Samples the batches of [`modes()`](super::modes()) in both modes, with each number of PEs (threads), and takes the
/// sizes of their blocks. Counts pairs of relations and vertices if `relations` is set. Returns one row per number.
///
/// Errors: `pes` is empty, the batch size is 0 or above `pool.len()`, `batches` is 0, relations are to be counted in a
/// graph without edge types, and those of partitions, samplers and caches.
pub fn sizes(
    graph: &Arc<Graph>,
    pool: &[u32],
    config: &ModesConfig,
    relations: bool,
    listener: &mut dyn Listener,
) -> Result<Vec<SizesRow>> {
    if relations && graph.n_relations() == 0 {
        return Err(Error::invalid("graph", "without edge types", "one with relations, to count these"));
    }
    let n_relations = if relations { graph.n_relations() } else { 0 };
    let all = BothModes::new(graph, pool, config)?;
    let total = 2 * config.pes.len();
    let mut rows = Vec::with_capacity(config.pes.len());
    for (i, &n_pes) in config.pes.iter().enumerate() {
        listener.step(2 * i, total, &format!("{n_pes} PEs, independent"));
        let partition = all.partition(n_pes)?;
        let independent =
            all.independent(n_pes, |cpu, batch, loaded| alone(cpu, n_relations, batch, loaded))?;
        listener.step(2 * i + 1, total, &format!("{n_pes} PEs, cooperative"));
        let cooperative = all.cooperative(partition, |cpu, batch| together(cpu, n_relations, &batch))?;
        rows.push(SizesRow { n_pes, independent, cooperative });
    }
    listener.step(total, total, "done");
    Ok(rows)
}

fn alone(cpu: &Cpu<f32>, n_relations: usize, batch: &MiniBatch<Cpu<f32>>, loaded: u64) -> Result<PeSizes> {
    let size = |block: &Arc<Block<Cpu<f32>>>| {
        Ok(BlockSize { owned: block.n_src() as u64, ..block_size(cpu, n_relations, block)? })
    };
    Ok(PeSizes { blocks: batch.blocks.iter().rev().map(size).collect::<Result<_>>()?, loaded })
}

fn together(cpu: &Cpu<f32>, n_relations: usize, of: &Together<'_>) -> Result<PeSizes> {
    let &Together { rank, batch, loaded, .. } = of;
    let mut blocks = Vec::with_capacity(batch.blocks.len());
    for (block, plan) in batch.blocks.iter().zip(&batch.plans).rev() {
        let sent = plan.send_counts();
        blocks.push(BlockSize {
            owned: plan.n_owned() as u64,
            received: plan.n_received(rank) as u64,
            sent: (sent.iter().sum::<usize>() - sent[rank]) as u64,
            ..block_size(cpu, n_relations, block)?
        });
    }
    Ok(PeSizes { blocks, loaded })
}

/// Without relations (0), groups are not counted.
fn block_size(cpu: &Cpu<f32>, n_relations: usize, block: &Block<Cpu<f32>>) -> Result<BlockSize> {
    let [destination_groups, source_groups] = match n_relations {
        0 => [0, 0],
        n => {
            let (to, from) = block.relations(cpu, n)?.groups(Direction::Forward);
            [to.n_groups() as u64, from.n_groups() as u64]
        }
    };
    Ok(BlockSize {
        destinations: block.n_dst() as u64,
        sources: block.n_src() as u64,
        edges: block.n_edge() as u64,
        destination_groups,
        source_groups,
        weighted: block.weight().is_some(),
        ..BlockSize::default()
    })
}

/// What the time of sampling, of features and of exchange follows from; the counts of bytes stay 0.
pub(super) fn mode_row(batches: &[Vec<PeSizes>]) -> ModeRow {
    let n_layers = batches.first().and_then(|pes| pes.first()).map_or(0, |sizes| sizes.blocks.len());
    let spread = |of: &dyn Fn(&PeSizes) -> u64| {
        let counts: Vec<Vec<u64>> = batches.iter().map(|pes| pes.iter().map(of).collect()).collect();
        Spread::of(&counts)
    };
    let list = |of: fn(&BlockSize) -> u64| -> Vec<Spread> {
        (0..n_layers).map(|layer| spread(&|sizes| of(&sizes.blocks[layer]))).collect()
    };
    let owned = list(|block| block.owned);
    let inputs = owned.last().copied().unwrap_or_default();
    let seeds = list(|block| block.destinations);
    ModeRow {
        vertices: seeds.first().copied().into_iter().chain(owned).collect(),
        sources: list(|block| block.sources),
        edges: list(|block| block.edges),
        received: list(|block| block.received),
        inputs,
        loaded: spread(&|sizes| sizes.loaded),
        ..ModeRow::default()
    }
}

/// The stream of relations drawn at random: beyond those of generators, which count theirs from 0.
const RELATIONS: u64 = rng::Purpose::Graph.stream(u32::MAX);

/// The same graph with one of `n_relations` relations for each edge, each equally likely: to study models with
/// relations on graphs that have none.
///
/// Errors: `n_relations` is 0 or above [`MAX_RELATIONS`], or there is no memory for the edges' relations.
pub fn with_random_relations(graph: &Graph, n_relations: usize, seed: u64) -> Result<Graph> {
    if !(1..=MAX_RELATIONS).contains(&n_relations) {
        return Err(Error::invalid("n_relations", n_relations, format!("1 to {MAX_RELATIONS}")));
    }
    let relation = |edge: usize| rng::bounded(seed, RELATIONS, edge as u64, n_relations as u64) as u16;
    let asked = format_args!("there are {} edges", graph.n_edges());
    let types = try_collect("the edges' relations", (0..graph.indices().len()).map(relation), asked)?;
    graph.clone().with_edge_types(types, n_relations)
}
