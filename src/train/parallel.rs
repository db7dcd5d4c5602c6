//! Training by several processing elements (PEs), each of which runs its own [`Trainer`] on the same data set.
//!
//! * *Independent*: each PE has a minibatch of its own, of its share of the batch's seeds.
//! * *Cooperative*: all PEs process one minibatch together (see [`coop`](crate::coop)).
//!
//! In both, the loss is the mean over the whole batch, and gradients are added up over PEs, so that parameters stay the
//! same everywhere.

use std::collections::HashMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::Preparer;
use super::prepare::{HostBatch, HostInput};
use crate::comm::{Communicator, Stage, Sum};
use crate::coop::{CooperativeSampler, ExchangePlan, Peers};
use crate::device::{Cpu, Device, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Partition, PartitionMethod, Shard};
use crate::pattern::Pattern;
use crate::rng::{self, Purpose};
use crate::sample::SamplerConfig;
use crate::tape::SparseRows;
use crate::tensor::Tensor;

/// How processing elements share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParallelMode {
    /// A minibatch for each, of its share of the seeds.
    Independent,
    /// One minibatch for all.
    Cooperative,
}

impl FromStr for ParallelMode {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "independent" => Ok(ParallelMode::Independent),
            "cooperative" => Ok(ParallelMode::Cooperative),
            _ => Err(Error::invalid("mode", name, "independent or cooperative")),
        }
    }
}

/// How a run is shared between processing elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelConfig {
    /// How they share a batch.
    pub mode: ParallelMode,
    /// Who owns which vertex, in cooperative mode.
    pub partition: PartitionMethod,
}

/// One PE's place among the others.
#[derive(Debug)]
pub(super) struct Parallel<D: Device> {
    /// For training steps.
    pub peers: Peers<D>,
    /// For preparing batches, which runs beside training.
    pub preparing: Communicator,
    /// What this PE holds, in cooperative mode.
    pub shard: Option<Arc<Shard>>,
}

impl<D: Device> Parallel<D> {
    pub(super) fn new(
        device: &D,
        preparer: &Preparer<D::Scalar>,
        config: ParallelConfig,
        communicator: Communicator,
        seed: u64,
    ) -> Result<Self> {
        let graph = &preparer.dataset().graph;
        let shard = match config.mode {
            ParallelMode::Independent => None,
            ParallelMode::Cooperative => {
                let n_pes = communicator.size();
                let partition = Partition::of_graph(config.partition, graph, n_pes, seed)?;
                Some(Arc::new(Shard::new(graph, &Arc::new(partition), communicator.rank())?))
            }
        };
        let preparing = communicator.duplicate()?;
        Ok(Parallel { peers: Peers::new(device, communicator), preparing, shard })
    }

    /// Adds up counts over all PEs.
    pub(super) fn sum<const N: usize>(&self, mut counts: [u64; N]) -> Result<[u64; N]> {
        self.peers.communicator().all_reduce_sum(Stage::Other, Sum::U64(&mut counts))?;
        Ok(counts)
    }

    /// Makes the other PEs fail too, with `problem` as the reason.
    pub(super) fn abort(&self, problem: &str) {
        self.preparing.abort(problem);
        self.peers.communicator().abort(problem);
    }

    /// Bytes sent to other PEs since the last time, by all PEs, and the seconds that this one spent on it.
    pub(super) fn take_exchanged(&self) -> Result<(u64, f64)> {
        let communicator = self.peers.communicator();
        let total = communicator.statistics().total();
        let [bytes] = self.sum([total.bytes])?;
        communicator.reset_statistics();
        Ok((bytes, total.seconds))
    }

    /// A number added up over all PEs, in rank order.
    pub(super) fn sum_loss(&self, loss: f64) -> Result<f64> {
        let mut loss = [loss];
        self.peers.communicator().all_reduce_sum(Stage::Other, Sum::F64(&mut loss))?;
        Ok(loss[0])
    }

    /// What makes this PE's part of batches.
    pub(super) fn minibatches(
        &self,
        preparer: &Preparer<D::Scalar>,
        sampler: &SamplerConfig,
    ) -> Result<Share<D::Scalar>> {
        let (rank, n_pes) = (self.preparing.rank(), self.preparing.size());
        let Some(shard) = &self.shard else {
            let sampler = preparer.sampler(independent_sampler(sampler, rank))?;
            return Ok(Share::Independent { sampler, preparer: preparer.clone(), rank, n_pes });
        };
        let sampler = CooperativeSampler::new(
            preparer.cpu().clone(),
            shard.clone(),
            self.preparing.clone(),
            sampler.clone(),
            preparer.with_degrees(),
        )?;
        let peers = Peers::new(preparer.cpu(), self.preparing.clone());
        Ok(Share::Cooperative { sampler, preparer: preparer.clone(), peers })
    }

    /// Rows `[ids.len(), cols]` that each PE has for some of `vertices`, for all of them, in their order; the last PE
    /// that has a row counts. Collective.
    pub(super) fn gather_rows(
        &self,
        vertices: &[u32],
        ids: &[u32],
        rows: &[D::Scalar],
        cols: usize,
    ) -> Result<Vec<D::Scalar>> {
        let communicator = self.peers.communicator();
        let (ids, _) = communicator.all_gather_v(Stage::Other, ids)?;
        let (rows, _) = communicator.all_gather_v(Stage::Other, rows)?;
        let row_of: HashMap<u32, usize> = ids.iter().enumerate().map(|(row, &id)| (id, row)).collect();
        let mut out = Vec::with_capacity(vertices.len() * cols);
        for vertex in vertices {
            let row = row_of.get(vertex).ok_or_else(|| Error::Communication {
                rank: communicator.rank(),
                problem: format!("no processing element has a prediction for vertex {vertex}"),
            })?;
            out.extend_from_slice(&rows[row * cols..(row + 1) * cols]);
        }
        Ok(out)
    }
}

/// Makes one PE's part of batches.
pub(super) enum Share<S: Scalar> {
    Independent { sampler: crate::sample::Sampler, preparer: Preparer<S>, rank: usize, n_pes: usize },
    Cooperative { sampler: CooperativeSampler<S>, preparer: Preparer<S>, peers: Peers<Cpu<S>> },
}

impl<S: Scalar> Share<S> {
    /// This PE's part of the batch of `seeds`. In cooperative mode collective.
    pub(super) fn minibatch(&self, seeds: &[u32], number: u64) -> Result<HostBatch<S>> {
        match self {
            Share::Independent { sampler, preparer, rank, n_pes } => {
                preparer.minibatch(sampler, &seeds[share_of(seeds.len(), *rank, *n_pes)], number)
            }
            Share::Cooperative { sampler, preparer, peers } => {
                let start = Instant::now();
                // Each PE sends a part of the seeds, which all know, to their owners.
                let (rank, n_pes) = (peers.communicator().rank(), peers.communicator().size());
                let batch = sampler.sample(&seeds[share_of(seeds.len(), rank, n_pes)], number)?;
                let sample_seconds = start.elapsed().as_secs_f64();
                let start = Instant::now();
                let (owned, loaded) = preparer.cached_rows(&batch.input_vertices)?;
                let sources = batch.blocks[0].src();
                let input = fetch(peers, &batch.plans[0], owned, sources)?;
                let labels = preparer.labels(&batch.seeds)?;
                Ok(HostBatch {
                    loaded,
                    blocks: batch.blocks,
                    plans: batch.plans,
                    seeds: batch.seeds,
                    seed_row: None,
                    input,
                    labels,
                    sample_seconds,
                    gather_seconds: start.elapsed().as_secs_f64(),
                })
            }
        }
    }
}

/// The sampler of PE `rank` in independent mode: two PEs that sample one vertex do so independently.
pub(crate) fn independent_sampler(sampler: &SamplerConfig, rank: usize) -> SamplerConfig {
    let seed = rng::derive(sampler.seed, Purpose::Partition.stream(1), rank as u64);
    SamplerConfig { seed, ..sampler.clone() }
}

/// The part of `n` seeds that is PE `rank`'s in independent mode: contiguous, of about equal lengths.
pub(crate) fn share_of(n: usize, rank: usize, n_pes: usize) -> Range<usize> {
    n * rank / n_pes..n * (rank + 1) / n_pes
}

/// The feature rows of a PE's sources, from their owners.
fn fetch<S: Scalar>(
    peers: &Peers<Cpu<S>>,
    plan: &ExchangePlan<Cpu<S>>,
    owned: HostInput<S>,
    sources: &[u32],
) -> Result<HostInput<S>> {
    let cpu = peers.host();
    let (stage, communicator) = (Stage::Feature, peers.communicator());
    Ok(match owned {
        HostInput::Dense(x) => HostInput::Dense(plan.fetch(cpu, peers, stage, &x)?),
        HostInput::Sparse(x) => {
            let (indptr, indices, values, names) = x.parts();
            let (needed, indices) = plan.fetch_lists(communicator, stage, (indptr, indices))?;
            let (_, values) = plan.fetch_lists(communicator, stage, (indptr, values))?;
            let (_, names) = plan.fetch_lists(communicator, stage, (indptr, names))?;
            let pattern = Pattern::from_host(cpu, x.shape()[1], &needed, &indices)?;
            HostInput::Sparse(SparseRows::new(pattern, upload(cpu, &values)?, upload(cpu, &names)?)?)
        }
        // Embeddings are parameters, which every PE has.
        HostInput::Aggregated(..) => {
            return Err(Error::invalid("input", "aggregated", "the rows that a processing element owns"));
        }
        HostInput::Ids { n_vertices, .. } => HostInput::Ids { ids: upload(cpu, sources)?, n_vertices },
    })
}

fn upload<S: Scalar, T: crate::device::Element>(
    cpu: &Cpu<S>,
    x: &[T],
) -> Result<crate::device::CpuBuffer<T>> {
    crate::device::Storage::upload(cpu, x)
}

/// The unbiased statistics that PEs took of batches of their own, averaged: running averages stay the same everywhere.
pub(super) fn average_statistics<D: Device>(
    device: &D,
    peers: &Peers<D>,
    statistics: Vec<crate::tape::BatchStatistics<D>>,
) -> Result<Vec<crate::tape::BatchStatistics<D>>> {
    use crate::device::Write;
    let factor = 1.0 / peers.communicator().size() as f64;
    let average = |x: &Tensor<D>| -> Result<Tensor<D>> {
        let sum = peers.all_reduce(device, Stage::Parameter, x)?;
        let mut mean = Tensor::allocate(device, sum.rows(), sum.cols())?;
        device.scale(factor, sum.view(), mean.make_mut(device)?.data, Write::Assign)?;
        Ok(mean)
    };
    let averaged = |x: crate::tape::BatchStatistics<D>| {
        Ok(crate::tape::BatchStatistics {
            key: x.key,
            mean: average(&x.mean)?,
            variance: average(&x.variance)?,
        })
    };
    statistics.into_iter().map(averaged).collect()
}
