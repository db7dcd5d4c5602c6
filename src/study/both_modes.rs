//! The same batches of seeds, sampled in both modes.

use std::sync::Arc;

use super::ModesConfig;
use super::seeds::{check_not_empty, for_full_batches};
use crate::batch::{independent_sampler, seeds_of};
use crate::cache::{Directory, Policy};
use crate::comm::{Stage, threads};
use crate::coop::{CooperativeBatch, CooperativeSampler};
use crate::device::{Cpu, Sample};
use crate::error::{Error, Result};
use crate::graph::{Graph, Partition, Shard};
use crate::sample::{MiniBatch, Sampler, SamplerConfig};

/// What both modes sample.
pub(super) struct BothModes<'a> {
    graph: &'a Arc<Graph>,
    config: &'a ModesConfig,
    /// A number and the seeds of all PEs.
    batches: Vec<(u64, Vec<u32>)>,
    /// Batches that only fill the caches.
    n_before: usize,
    sampler: SamplerConfig,
}

/// A batch of several PEs, as one of them has it.
pub(super) struct Together<'a> {
    pub(super) rank: usize,
    pub(super) batch: &'a CooperativeBatch<f32>,
    /// Feature rows that it loads.
    pub(super) loaded: u64,
    /// Bytes that it has sent to sample.
    pub(super) sample_bytes: u64,
}

impl<'a> BothModes<'a> {
    /// Errors: `pes` is empty, the batch size is 0 or above `pool.len()`, or `batches` is 0.
    pub(super) fn new(graph: &'a Arc<Graph>, pool: &[u32], config: &'a ModesConfig) -> Result<Self> {
        check_not_empty("pes", &config.pes)?;
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
        Ok(BothModes { graph, config, batches, n_before, sampler })
    }

    /// Which PE of `n_pes` owns which vertex.
    pub(super) fn partition(&self, n_pes: usize) -> Result<Partition> {
        // `Partition` checks the number of PEs.
        Partition::of_graph(self.config.partition, self.graph, n_pes, self.config.seed)
    }

    /// What `take` makes of each PE's minibatch of its share of the seeds, and of the number of rows that it loads; by
    /// batch, then by PE.
    pub(super) fn independent<T>(
        &self,
        n_pes: usize,
        mut take: impl FnMut(&Cpu<f32>, &MiniBatch<Cpu<f32>>, u64) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        let cpu = Cpu::<f32>::new();
        let loaded_graph = cpu.load_graph(self.graph)?;
        let mut caches: Vec<Cache> = (0..n_pes).map(|_| self.cache()).collect::<Result<_>>()?;
        let mut all = Vec::with_capacity(self.batches.len());
        for (number, seeds) in &self.batches {
            let share = |(rank, cache): (usize, &mut Cache)| {
                // One PE alone samples what cooperating PEs sample.
                let config =
                    if n_pes == 1 { self.sampler.clone() } else { independent_sampler(&self.sampler, rank) };
                let seeds = &seeds[seeds_of(seeds.len(), rank, n_pes)];
                let batch = Sampler::new(config)?.sample(&cpu, &loaded_graph, seeds, *number)?;
                take(&cpu, &batch, cache.load(batch.input_vertices())?)
            };
            all.push(caches.iter_mut().enumerate().map(share).collect::<Result<_>>()?);
        }
        Ok(all.split_off(self.n_before))
    }

    /// What `take` makes of each PE's part of a minibatch that all process together; by batch, then by PE.
    pub(super) fn cooperative<T: Send>(
        &self,
        partition: Partition,
        take: impl Fn(&Cpu<f32>, Together<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<Vec<T>>> {
        let partition = Arc::new(partition);
        let by_pe = threads::run(partition.n_pes(), |communicator| {
            let (cpu, rank) = (Cpu::new(), communicator.rank());
            let shard = Arc::new(Shard::new(self.graph, &partition, rank)?);
            let sampler = self.sampler.clone();
            let own = CooperativeSampler::new(cpu.clone(), shard, communicator.clone(), sampler, false)?;
            let mut cache = self.cache()?;
            let one = |(number, seeds): &(u64, Vec<u32>)| {
                communicator.reset_statistics();
                let batch = own.sample(&seeds[seeds_of(seeds.len(), rank, partition.n_pes())], *number)?;
                let sample_bytes = communicator.statistics().stage(Stage::Sample).bytes;
                let loaded = cache.load(&batch.input_vertices)?;
                take(&cpu, Together { rank, batch: &batch, loaded, sample_bytes })
            };
            self.batches.iter().map(one).collect::<Result<Vec<T>>>()
        })?;
        let mut by_pe: Vec<_> = by_pe.into_iter().map(Vec::into_iter).collect();
        let of_batch = |_| by_pe.iter_mut().filter_map(Iterator::next).collect();
        let mut all: Vec<Vec<T>> = (0..self.batches.len()).map(of_batch).collect();
        Ok(all.split_off(self.n_before))
    }

    fn cache(&self) -> Result<Cache> {
        let new = |rows| Directory::new(Policy::Lru, rows, Some(self.graph.n_vertices()));
        Ok(Cache(self.config.cache_rows.map(new).transpose()?))
    }
}

/// One PE's cache, if it has one, without rows.
struct Cache(Option<Directory>);

impl Cache {
    /// The number of rows of `vertices` to load.
    fn load(&mut self, vertices: &[u32]) -> Result<u64> {
        match &mut self.0 {
            None => Ok(vertices.len() as u64),
            Some(directory) => Ok(directory.access_all(vertices)?.misses),
        }
    }
}
