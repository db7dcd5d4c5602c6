//! One batch that several processing elements sample and compute together.

use std::sync::Arc;
use std::time::Instant;

use super::independent::seeds_of;
use super::{Batch, BatchInput, BatchSource, Exchange, OneHot, Preparation, Slicer};
use crate::cache::Counts;
use crate::comm::{Communicator, Stage};
use crate::coop::{CooperativeBatch, CooperativeSampler, ExchangePlan, Group, Peers};
use crate::device::{Cpu, Device, Scalar, Storage};
use crate::error::{Error, Result};
use crate::graph::{Partition, Shard};
use crate::pattern::Pattern;
use crate::sample::SamplerConfig;
use crate::tape::SparseRows;

/// Each processing element (PE) samples and slices its part of every batch, on the host (Cooperative Minibatching).
#[derive(Clone, Debug)]
pub struct Cooperative<D: Device> {
    slicer: Slicer<D::Scalar>,
    shard: Arc<Shard>,
    sampler: Arc<CooperativeSampler<D::Scalar>>,
    group: Group<D>,
    /// For the workers that prepare batches while steps run.
    preparing: Communicator,
}

impl<D: Device> Cooperative<D> {
    /// This PE's source, where `partition` says which vertices it owns. Collective.
    ///
    /// Errors: `partition` is for another number of PEs or vertices, `group` is one PE alone, or `config` has no
    /// layers.
    pub fn new(
        slicer: Slicer<D::Scalar>,
        config: SamplerConfig,
        partition: &Arc<Partition>,
        group: Group<D>,
    ) -> Result<Self> {
        let shard = Arc::new(Shard::new(&slicer.dataset().graph, partition, group.rank())?);
        let preparing = group.preparing()?.clone();
        Cooperative::over(slicer, config, shard, group, preparing)
    }

    fn over(
        slicer: Slicer<D::Scalar>,
        config: SamplerConfig,
        shard: Arc<Shard>,
        group: Group<D>,
        preparing: Communicator,
    ) -> Result<Self> {
        let (config, degrees) = (slicer.completed(config), slicer.needs().degrees);
        let sampler =
            CooperativeSampler::new(slicer.cpu().clone(), shard.clone(), preparing.clone(), config, degrees)?;
        Ok(Cooperative { slicer, shard, sampler: Arc::new(sampler), group, preparing })
    }

    fn on_host(&self, seeds: &[u32], number: u64) -> Result<Batch<Cpu<D::Scalar>>> {
        let start = Instant::now();
        // All PEs know all seeds: each sends a part of them to the owners.
        let share = seeds_of(seeds.len(), self.group.rank(), self.group.size());
        let sampled = self.sampler.sample(&seeds[share], number)?;
        let sample_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let cpu = self.slicer.cpu();
        let (input, loaded) = self.input(&sampled)?;
        let labels = self.slicer.labels(&sampled.seeds)?;
        let plans = sampled.plans.into_iter().map(Arc::new).collect();
        // Steps have a separate communicator, since workers prepare batches at the same time.
        let peers = Peers::new(cpu, self.group.peers()?.communicator().clone());
        Ok(Batch {
            blocks: sampled.blocks,
            input,
            seeds: sampled.seeds,
            seed_row: None,
            labels,
            exchange: Some(Exchange { peers, plans }),
            loaded,
            sample_seconds,
            gather_seconds: start.elapsed().as_secs_f64(),
        })
    }

    /// The sources' rows, and how many were loaded.
    fn input(&self, sampled: &CooperativeBatch<D::Scalar>) -> Result<(BatchInput<Cpu<D::Scalar>>, Counts)> {
        let (vertices, plan, block) = (&sampled.input_vertices, &sampled.plans[0], &sampled.blocks[0]);
        if self.slicer.has_column_slices() {
            return Ok((self.slicer.input(block)?, Counts { hits: 0, misses: vertices.len() as u64 }));
        }
        if let Some(bytes) = self.bytes_of_row().filter(|_| self.preparing.shares_memory()) {
            // Each row is read straight from its owner's table, as one PE alone would read it.
            let input = self.slicer.input(block)?;
            self.preparing.count_read(Stage::Feature, plan.send_counts(), bytes);
            return Ok((input, Counts { hits: 0, misses: vertices.len() as u64 }));
        }
        let (owned, loaded) = self.slicer.rows_to_send(vertices)?;
        let preparing = Peers::new(self.slicer.cpu(), self.preparing.clone());
        let rows = fetch(&preparing, plan, owned, block.src())?;
        Ok((self.slicer.input_of(rows, block)?, loaded))
    }

    /// Bytes of a feature row, if rows are dense and are not read through a cache.
    fn bytes_of_row(&self) -> Option<usize> {
        let dense = self.slicer.dataset().features.bytes_of_row();
        dense.filter(|_| !self.slicer.has_cache())
    }
}

impl<D: Device> BatchSource<D> for Cooperative<D> {
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>> {
        let mut batch = self.on_host(seeds, number)?.to_device(device)?.grouped(device, &self.slicer)?;
        if let Some(exchange) = &mut batch.exchange {
            // The way of the steps' rows.
            exchange.peers = self.group.peers()?.clone();
        }
        Ok(batch)
    }

    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>> {
        let Cooperative { slicer, shard, group, preparing, .. } = self.clone();
        Ok(Arc::new(Cooperative::over(slicer, sampler, shard, group, preparing)?))
    }

    fn preparation(&self) -> Preparation {
        Preparation::Collective
    }

    fn group(&self) -> Group<D> {
        self.group.clone()
    }
}

/// Gets the feature rows of a PE's sources from their owners.
fn fetch<S: Scalar>(
    peers: &Peers<Cpu<S>>,
    plan: &ExchangePlan<Cpu<S>>,
    owned: BatchInput<Cpu<S>>,
    sources: &[u32],
) -> Result<BatchInput<Cpu<S>>> {
    let cpu = peers.host();
    let (stage, communicator) = (Stage::Feature, peers.communicator());
    Ok(match owned {
        BatchInput::Dense(x) => BatchInput::Dense(plan.fetch(cpu, peers, stage, &x)?),
        BatchInput::Narrow(x) => BatchInput::Narrow(x.fetch(peers, plan, stage)?),
        BatchInput::Sparse(x) => {
            let (indptr, indices, values, names) = x.parts();
            let (needed, indices) = plan.fetch_lists(communicator, stage, (indptr, indices))?;
            let (_, values) = plan.fetch_lists(communicator, stage, (indptr, values))?;
            let (_, names) = plan.fetch_lists(communicator, stage, (indptr, names))?;
            let pattern = Pattern::from_host(cpu, x.shape()[1], &needed, &indices)?;
            BatchInput::Sparse(SparseRows::new(pattern, cpu.upload(&values)?, cpu.upload(&names)?)?)
        }
        // Every PE has the embeddings, since they are parameters.
        BatchInput::OneHot(x) => {
            let n_vertices = x.shape()[1];
            BatchInput::OneHot(OneHot::new(cpu.upload(sources)?, n_vertices))
        }
        BatchInput::Aggregated(..) | BatchInput::Sliced(_) => {
            return Err(Error::invalid("input", "aggregated", "the rows that a processing element owns"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchNeeds;
    use crate::cache::Policy;
    use crate::comm::threads::{self, packed::run_packed};
    use crate::coop::Mode;
    use crate::data::{Dataset, FeatureDtype, SbmData};
    use crate::graph::{PartitionMethod, Sbm};
    use crate::tape::Aggregate;

    /// Threads read feature rows from their owners' tables, processes send them, caches keep some: the first layer is
    /// given the same bits.
    #[test]
    fn the_way_of_rows_does_not_show_in_the_input() {
        let graph = Sbm { n_vertices: 1500, ..SbmData::default().graph };
        let dataset = SbmData { graph, dim: 4, ..SbmData::default() }.generate().unwrap();
        for dtype in [FeatureDtype::F32, FeatureDtype::F16] {
            let features = dataset.features.to_dtype(dtype).unwrap();
            check_ways(&Arc::new(Dataset { features, ..dataset.clone() }));
        }
    }

    fn check_ways(dataset: &Arc<Dataset>) {
        let partition =
            Arc::new(Partition::new(PartitionMethod::Random, dataset.n_vertices(), 3, 1).unwrap());
        let config = SamplerConfig::default();
        for aggregate in [None, Some(Aggregate::Mean), Some(Aggregate::Symmetric)] {
            let input = |communicator: Communicator, cached: bool| {
                let degrees = aggregate == Some(Aggregate::Symmetric);
                let needs = BatchNeeds { input_aggregate: aggregate, degrees, ..BatchNeeds::default() };
                let mut slicer = Slicer::new(Cpu::<f32>::new(), dataset.clone(), needs);
                if cached {
                    slicer = slicer.with_cache(Policy::Lru, 100)?;
                }
                let group = Group::new(&Cpu::new(), Mode::Cooperative, communicator)?;
                let source = Cooperative::new(slicer, config.clone(), &partition, group)?;
                let input = source.on_host(&[5, 1, 7, 1000, 3], 0)?.input;
                assert_eq!(input.is_aggregated(), aggregate.is_some());
                // Whether rows are read or sent, they count the same.
                let sent = source.preparing.statistics().stage(Stage::Feature).bytes;
                match input {
                    BatchInput::Dense(x) | BatchInput::Aggregated(x, _) => {
                        Ok((x.shape(), x.view().to_vec(), sent))
                    }
                    other => panic!("{other:?}"),
                }
            };
            let read = threads::run(3, |communicator| input(communicator, false)).unwrap();
            for cached in [false, true] {
                assert!(
                    run_packed(3, |communicator| input(communicator, cached)).unwrap() == read,
                    "{aggregate:?}"
                );
            }
            assert!(
                threads::run(3, |communicator| input(communicator, true)).unwrap() == read,
                "{aggregate:?}"
            );
        }
    }
}
