//! Sizes of the blocks that each processing element holds, of the batches that [`modes()`](super::modes()) counts: what
//! the work of a model's layers and the memory of a batch follow from.

use std::sync::Arc;

use serde::Serialize;

use super::seeds::{check_not_empty, for_full_batches};
use super::{Listener, ModeRow, ModesConfig, Spread};
use crate::batch::{independent_sampler, seeds_of};
use crate::block::Block;
use crate::cache::{Directory, Policy};
use crate::comm::threads;
use crate::coop::{CooperativeBatch, CooperativeSampler};
use crate::device::{Cpu, Direction, Sample};
use crate::error::{Error, Result, try_collect};
use crate::graph::{Graph, MAX_RELATIONS, Partition, Shard};
use crate::rng;
use crate::sample::{MiniBatch, Sampler, SamplerConfig};

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
    check_not_empty("pes", &config.pes)?;
    if relations && graph.n_relations() == 0 {
        return Err(Error::invalid("graph", "without edge types", "one with relations, to count these"));
    }
    let n_before = if config.cache_rows.is_some() { config.batches } else { 0 };
    let n_batches = n_before.checked_add(config.batches);
    let n_batches = n_batches.ok_or_else(|| Error::invalid("batches", config.batches, "fewer"))?;
    let mut batches: Vec<(u64, Vec<u32>)> = Vec::new();
    for_full_batches(pool, config.batch_size, n_batches, config.seed, |number, seeds| {
        batches.push((number, seeds.to_vec()));
        Ok(())
    })?;
    let sampler = SamplerConfig {
        method: config.sampler,
        fanouts: config.fanouts.clone(),
        kappa: config.kappa,
        seed: config.seed,
        ..SamplerConfig::default()
    };
    let n_relations = if relations { graph.n_relations() } else { 0 };
    let cache_rows = config.cache_rows;
    let all = Batches { graph, batches: &batches, n_before, sampler: &sampler, cache_rows, n_relations };
    let total = 2 * config.pes.len();
    let mut rows = Vec::with_capacity(config.pes.len());
    for (i, &n_pes) in config.pes.iter().enumerate() {
        listener.step(2 * i, total, &format!("{n_pes} PEs, independent"));
        // `Partition` checks the number of PEs.
        let partition = Partition::of_graph(config.partition, graph, n_pes, config.seed)?;
        let independent = all.independent(n_pes)?;
        listener.step(2 * i + 1, total, &format!("{n_pes} PEs, cooperative"));
        rows.push(SizesRow { n_pes, independent, cooperative: all.cooperative(partition)? });
    }
    listener.step(total, total, "done");
    Ok(rows)
}

/// What both modes sample.
struct Batches<'a> {
    graph: &'a Arc<Graph>,
    /// A number and the seeds of all PEs.
    batches: &'a [(u64, Vec<u32>)],
    /// Batches that only fill the caches.
    n_before: usize,
    sampler: &'a SamplerConfig,
    cache_rows: Option<usize>,
    /// 0: they are not counted.
    n_relations: usize,
}

impl Batches<'_> {
    fn independent(&self, n_pes: usize) -> Result<Vec<Vec<PeSizes>>> {
        let cpu = Cpu::<f32>::new();
        let loaded_graph = cpu.load_graph(self.graph)?;
        let mut caches: Vec<_> = (0..n_pes).map(|_| self.cache()).collect::<Result<_>>()?;
        let mut one = |(number, seeds): &(u64, Vec<u32>)| {
            let share = |(rank, cache): (usize, &mut Option<Directory>)| {
                // One PE alone samples what cooperating PEs sample.
                let config =
                    if n_pes == 1 { self.sampler.clone() } else { independent_sampler(self.sampler, rank) };
                let seeds = &seeds[seeds_of(seeds.len(), rank, n_pes)];
                let batch = Sampler::new(config)?.sample(&cpu, &loaded_graph, seeds, *number)?;
                self.alone(&cpu, &batch, cache)
            };
            caches.iter_mut().enumerate().map(share).collect::<Result<Vec<_>>>()
        };
        let mut all: Vec<Vec<PeSizes>> = self.batches.iter().map(&mut one).collect::<Result<_>>()?;
        Ok(all.split_off(self.n_before))
    }

    fn cooperative(&self, partition: Partition) -> Result<Vec<Vec<PeSizes>>> {
        let partition = Arc::new(partition);
        let by_pe = threads::run(partition.n_pes(), |communicator| {
            let (cpu, rank) = (Cpu::new(), communicator.rank());
            let shard = Arc::new(Shard::new(self.graph, &partition, rank)?);
            let sampler = self.sampler.clone();
            let own = CooperativeSampler::new(cpu.clone(), shard, communicator.clone(), sampler, false)?;
            let mut cache = self.cache()?;
            let one = |(number, seeds): &(u64, Vec<u32>)| {
                let batch = own.sample(&seeds[seeds_of(seeds.len(), rank, partition.n_pes())], *number)?;
                self.together(&cpu, &batch, rank, &mut cache)
            };
            self.batches.iter().map(one).collect::<Result<Vec<_>>>()
        })?;
        let of_batch = |batch: usize| by_pe.iter().map(|sizes| sizes[batch].clone()).collect();
        Ok((self.n_before..self.batches.len()).map(of_batch).collect())
    }

    fn alone(
        &self,
        cpu: &Cpu<f32>,
        batch: &MiniBatch<Cpu<f32>>,
        cache: &mut Option<Directory>,
    ) -> Result<PeSizes> {
        let size = |block: &Arc<Block<Cpu<f32>>>| {
            Ok(BlockSize { owned: block.n_src() as u64, ..self.block(cpu, block)? })
        };
        let blocks = batch.blocks.iter().rev().map(size).collect::<Result<_>>()?;
        Ok(PeSizes { blocks, loaded: load(cache, batch.input_vertices())? })
    }

    fn together(
        &self,
        cpu: &Cpu<f32>,
        batch: &CooperativeBatch<f32>,
        rank: usize,
        cache: &mut Option<Directory>,
    ) -> Result<PeSizes> {
        let mut blocks = Vec::with_capacity(batch.blocks.len());
        for (block, plan) in batch.blocks.iter().zip(&batch.plans).rev() {
            let sent = plan.send_counts();
            blocks.push(BlockSize {
                owned: plan.n_owned() as u64,
                received: plan.n_received(rank) as u64,
                sent: (sent.iter().sum::<usize>() - sent[rank]) as u64,
                ..self.block(cpu, block)?
            });
        }
        Ok(PeSizes { blocks, loaded: load(cache, &batch.input_vertices)? })
    }

    fn block(&self, cpu: &Cpu<f32>, block: &Block<Cpu<f32>>) -> Result<BlockSize> {
        let [destination_groups, source_groups] = match self.n_relations {
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

    /// One PE's cache, if it has one, without rows.
    fn cache(&self) -> Result<Option<Directory>> {
        let new = |rows| Directory::new(Policy::Lru, rows, Some(self.graph.n_vertices()));
        self.cache_rows.map(new).transpose()
    }
}

/// The number of rows of `vertices` to load.
fn load(cache: &mut Option<Directory>, vertices: &[u32]) -> Result<u64> {
    match cache {
        None => Ok(vertices.len() as u64),
        Some(directory) => Ok(directory.access_all(vertices)?.misses),
    }
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
