//! Preparing a minibatch on the host: sampling, feature slicing, labels.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::block::Block;
use crate::cache::{AnyFeatureCache, Counts, Policy};
use crate::coop::ExchangePlan;
use crate::data::{Dataset, Features};
use crate::device::{
    Cpu, CpuBuffer, Device, FeatureElement, Gather, IndexedRows, Sample, SampleSpec, Scalar, Storage,
};
use crate::error::{Error, Result};
use crate::nn::{Input, OneHot};
use crate::pattern::Pattern;
use crate::rng::Variates;
use crate::sample::{Sampler, SamplerConfig};
use crate::tape::{Aggregate, SparseRows, Tape};
use crate::tensor::Tensor;

/// Makes minibatches of one data set. Cheap to share between worker threads.
#[derive(Clone, Debug)]
pub struct Preparer<S: Scalar> {
    cpu: Cpu<S>,
    dataset: Arc<Dataset>,
    with_degrees: bool,
    aggregate: Option<Aggregate>,
    cache: Option<Arc<Mutex<AnyFeatureCache>>>,
}

/// A prepared minibatch in host memory.
#[derive(Debug)]
pub struct HostBatch<S: Scalar> {
    /// In model order.
    pub blocks: Vec<Arc<Block<Cpu<S>>>>,
    /// In model order: how the blocks' source rows come from the processing elements that own them. Empty where one
    /// element has all.
    pub plans: Vec<ExchangePlan<Cpu<S>>>,
    /// The last block's destinations.
    pub seeds: Vec<u32>,
    /// Feature rows that were loaded: from the cache, and from storage.
    pub loaded: Counts,
    /// Where seeds were repeated: for each one asked for, its row among the last block's destinations.
    pub seed_row: Option<Vec<u32>>,
    /// Rows of the first block's sources.
    pub input: HostInput<S>,
    /// `[n_seeds]`: the last block's destinations' classes.
    pub labels: CpuBuffer<i32>,
    /// Seconds spent sampling.
    pub sample_seconds: f64,
    /// Seconds spent slicing features.
    pub gather_seconds: f64,
}

/// Feature rows in host memory.
#[derive(Debug)]
pub enum HostInput<S: Scalar> {
    /// `[n_src, dim]`
    Dense(Tensor<Cpu<S>>),
    /// `[n_src, dim]`
    Sparse(SparseRows<Cpu<S>>),
    /// Rows that are aggregated over the first block: see [`Input::Aggregated`].
    Aggregated(Tensor<Cpu<S>>, Aggregate),
    /// No features: the vertices' ids stand in.
    Ids {
        /// `[n_src]`
        ids: CpuBuffer<u32>,
        /// Number of vertices in all.
        n_vertices: usize,
    },
}

/// A prepared minibatch on a device.
#[derive(Debug)]
pub struct Batch<D: Device> {
    /// In model order.
    pub blocks: Vec<Arc<Block<D>>>,
    /// As in [`HostBatch`].
    pub plans: Vec<Arc<ExchangePlan<D>>>,
    /// Feature rows that were loaded: from the cache, and from storage.
    pub loaded: Counts,
    /// Rows of the first block's sources.
    pub input: BatchInput<D>,
    /// `[n_seeds]` on the host.
    pub labels: CpuBuffer<i32>,
}

/// Feature rows on a device.
#[derive(Clone, Debug)]
pub enum BatchInput<D: Device> {
    /// `[n_src, dim]`
    Dense(Tensor<D>),
    /// `[n_src, dim]`
    Sparse(SparseRows<D>),
    /// Rows that are aggregated over the first block: see [`Input::Aggregated`].
    Aggregated(Tensor<D>, Aggregate),
    /// No features: the vertices' ids stand in, one-hot.
    OneHot(OneHot<D>),
}

impl<D: Device> BatchInput<D> {
    /// Moves rows to `device` (on the CPU: the same memory).
    pub fn from_host(device: &D, host: HostInput<D::Scalar>) -> Result<Self> {
        Ok(match host {
            HostInput::Dense(x) => BatchInput::Dense(Tensor::from_host(device, x)?),
            HostInput::Sparse(x) => BatchInput::Sparse(SparseRows::from_host(device, x)?),
            HostInput::Aggregated(x, aggregate) => {
                BatchInput::Aggregated(Tensor::from_host(device, x)?, aggregate)
            }
            HostInput::Ids { ids, n_vertices } => {
                BatchInput::OneHot(OneHot::new(device.adopt(ids)?, n_vertices))
            }
        })
    }

    /// The rows as a model takes them.
    pub fn on(&self, tape: &Tape<D>) -> Input<D> {
        match self {
            BatchInput::Dense(x) => Input::Dense(tape.constant(x.clone())),
            BatchInput::Sparse(x) => Input::Sparse(x.clone()),
            BatchInput::Aggregated(x, aggregate) => Input::Aggregated(tape.constant(x.clone()), *aggregate),
            BatchInput::OneHot(x) => Input::OneHot(x.clone()),
        }
    }
}

impl<D: Device> Batch<D> {
    /// Moves a minibatch to `device` (on the CPU: the same memory).
    pub fn from_host(device: &D, host: HostBatch<D::Scalar>) -> Result<Self> {
        let moved = |block: Arc<Block<Cpu<D::Scalar>>>| {
            let block = Arc::into_inner(block)
                .ok_or_else(|| Error::invalid("blocks", "shared", "blocks that nobody else holds"))?;
            Block::from_host(device, block).map(Arc::new)
        };
        let plan = |plan| ExchangePlan::from_host(device, plan).map(Arc::new);
        Ok(Batch {
            blocks: host.blocks.into_iter().map(moved).collect::<Result<_>>()?,
            plans: host.plans.into_iter().map(plan).collect::<Result<_>>()?,
            loaded: host.loaded,
            input: BatchInput::from_host(device, host.input)?,
            labels: host.labels,
        })
    }
}

impl<S: Scalar> Preparer<S> {
    /// A preparer over `dataset`, whose batches are in the memory of `cpu` (for a GPU, that of its
    /// [`host`](Storage::host)); with `with_degrees` its blocks know their sources' in-degrees.
    pub fn new(cpu: Cpu<S>, dataset: Arc<Dataset>, with_degrees: bool) -> Self {
        Preparer { cpu, dataset, with_degrees, aggregate: None, cache: None }
    }

    /// Aggregates dense features over a minibatch's first block while it gathers them, if the model asks for it
    /// ([`Model::input_aggregate`](crate::nn::Model::input_aggregate)): the sources' rows, which are the largest matrix
    /// of a minibatch, are then never written or moved to a device. With a cache, rows are gathered as without this.
    pub fn with_input_aggregate(mut self, aggregate: Option<Aggregate>) -> Self {
        self.aggregate = aggregate;
        self
    }

    /// With a cache of feature rows. What it holds, and so the counts of hits, depend on the order of batches: one
    /// thread must prepare them. Errors: sparse features, or none.
    pub fn with_cache(mut self, policy: Policy, n_rows: usize) -> Result<Self> {
        let cache = AnyFeatureCache::new(policy, n_rows, &self.dataset.features)?;
        self.cache = Some(Arc::new(Mutex::new(cache)));
        Ok(self)
    }

    /// The memory that batches are in.
    pub fn cpu(&self) -> &Cpu<S> {
        &self.cpu
    }

    /// The data set.
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Whether blocks know their sources' in-degrees.
    pub(super) fn with_degrees(&self) -> bool {
        self.with_degrees
    }

    /// A sampler whose blocks are as the model needs them.
    pub fn sampler(&self, config: SamplerConfig) -> Result<Sampler> {
        let sampler = Sampler::new(config)?;
        Ok(if self.with_degrees { sampler.with_degrees(self.dataset.graph.clone()) } else { sampler })
    }

    /// The minibatch number `batch` for `seeds`.
    pub fn minibatch(&self, sampler: &Sampler, seeds: &[u32], batch: u64) -> Result<HostBatch<S>> {
        let start = Instant::now();
        let graph = self.cpu.load_graph(&self.dataset.graph)?;
        let sampled = sampler.sample(&self.cpu, &graph, seeds, batch)?;
        let sample_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let (input, loaded) = match (&sampled.blocks[..], &self.cache) {
            ([first, ..], None) => (self.input(first)?, Counts { hits: 0, misses: first.n_src() as u64 }),
            _ => self.cached_rows(sampled.input_vertices())?,
        };
        let labels = self.labels(&sampled.seeds)?;
        let gather_seconds = start.elapsed().as_secs_f64();
        Ok(HostBatch {
            loaded,
            blocks: sampled.blocks,
            plans: Vec::new(),
            seeds: sampled.seeds,
            seed_row: sampled.seed_row,
            input,
            labels,
            sample_seconds,
            gather_seconds,
        })
    }

    /// The block of all in-edges of `dst` (unique ids).
    pub fn full_block(&self, dst: &[u32]) -> Result<Block<Cpu<S>>> {
        let graph = self.cpu.load_graph(&self.dataset.graph)?;
        let method = crate::device::Method::Full;
        let spec = SampleSpec { method, fanout: usize::MAX, per_relation: false, edge_ids: false };
        let variates = Variates::new(0, 0, crate::rng::Kappa::INDEPENDENT);
        let block = Block::new(self.cpu.sample_block(&graph, dst, &spec, &variates, 0)?)?;
        if self.with_degrees {
            block.with_degrees(&self.cpu, |v| self.dataset.graph.in_degree(v))
        } else {
            Ok(block)
        }
    }

    /// `[vertices.len()]`: classes.
    pub fn labels(&self, vertices: &[u32]) -> Result<CpuBuffer<i32>> {
        let mut labels = self.cpu.allocate::<i32>(vertices.len())?;
        for (label, &v) in labels.iter_mut().zip(vertices) {
            *label = self.dataset.labels[v as usize];
        }
        Ok(labels)
    }

    /// [`rows`](Preparer::rows), from the cache where they are there, and how many were.
    pub(super) fn cached_rows(&self, vertices: &[u32]) -> Result<(HostInput<S>, Counts)> {
        let Some(cache) = &self.cache else {
            let misses = vertices.len() as u64;
            return Ok((self.rows(vertices)?, Counts { hits: 0, misses }));
        };
        // A panic that poisons the lock has ended the run.
        let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
        let (rows, counts) = cache.gather(&self.cpu, vertices)?;
        Ok((HostInput::Dense(rows), counts))
    }

    /// What a model takes of the features over `block`, its first one: the sources' rows, or their aggregate.
    pub fn input(&self, block: &Block<Cpu<S>>) -> Result<HostInput<S>> {
        let Some(aggregate) = self.aggregate else { return self.rows(block.src()) };
        match &self.dataset.features {
            Features::F32(x) => self.aggregated(x.data(), block, aggregate),
            Features::F16(x) => self.aggregated(x.data(), block, aggregate),
            Features::Bf16(x) => self.aggregated(x.data(), block, aggregate),
            Features::Sparse(_) | Features::None => self.rows(block.src()),
        }
    }

    fn aggregated<E: FeatureElement>(
        &self,
        table: &[E],
        block: &Block<Cpu<S>>,
        aggregate: Aggregate,
    ) -> Result<HostInput<S>> {
        let features = &self.dataset.features;
        let rows = IndexedRows { table, n_table: features.n_rows(), index: block.src() };
        let weights = aggregate.weights(&self.cpu, block)?;
        let own = aggregate.own_factors(&self.cpu, block)?;
        let cols = if own.is_some() { features.dim() } else { 2 * features.dim() };
        let mut out = Tensor::allocate(&self.cpu, block.n_dst(), cols)?;
        self.cpu.gather_aggregate(rows, block.csr(), weights, own, out.make_mut(&self.cpu)?)?;
        Ok(HostInput::Aggregated(out, aggregate))
    }

    /// `[vertices.len(), dim]`: feature rows, widened to the scalar.
    pub fn rows(&self, vertices: &[u32]) -> Result<HostInput<S>> {
        let features = &self.dataset.features;
        match features {
            Features::Sparse(x) => return self.sparse_rows(x, vertices),
            Features::None => {
                let ids = self.cpu.upload(vertices)?;
                return Ok(HostInput::Ids { ids, n_vertices: self.dataset.n_vertices() });
            }
            _ => {}
        }
        let n_rows = features.n_rows();
        let mut out = Tensor::allocate(&self.cpu, vertices.len(), features.dim())?;
        let rows = out.make_mut(&self.cpu)?;
        match features {
            Features::F32(x) => self.cpu.gather(x.data(), n_rows, vertices, rows)?,
            Features::F16(x) => self.cpu.gather(x.data(), n_rows, vertices, rows)?,
            Features::Bf16(x) => self.cpu.gather(x.data(), n_rows, vertices, rows)?,
            Features::Sparse(_) | Features::None => {}
        }
        Ok(HostInput::Dense(out))
    }

    fn sparse_rows(&self, x: &crate::data::SparseFeatures, vertices: &[u32]) -> Result<HostInput<S>> {
        let mut indptr = self.cpu.allocate::<u32>(vertices.len() + 1)?;
        let mut n = 0u64;
        indptr[0] = 0;
        for (end, &v) in indptr[1..].iter_mut().zip(vertices) {
            n += x.indptr()[v as usize + 1] - x.indptr()[v as usize];
            *end = u32::try_from(n).map_err(|_| Error::TooLarge {
                what: "the minibatch's sparse features",
                count: n,
                limit: u32::MAX.into(),
            })?;
        }
        let mut indices = self.cpu.allocate::<u32>(n as usize)?;
        let mut values = self.cpu.allocate::<S>(n as usize)?;
        let mut names = self.cpu.allocate::<u32>(n as usize)?;
        for (ends, &v) in indptr.windows(2).zip(vertices) {
            let (to, from) = (ends[0] as usize..ends[1] as usize, x.indptr()[v as usize]);
            let (columns, row) = x.row(v as usize);
            indices[to.clone()].copy_from_slice(columns);
            for (i, at) in to.enumerate() {
                values[at] = S::from_f64(f64::from(row[i]));
                // The entry's position names it; beyond 2^32 entries names repeat, which only correlates dropouts.
                names[at] = (from + i as u64) as u32;
            }
        }
        let pattern = Pattern::new(vertices.len(), x.dim(), indptr, indices)?;
        Ok(HostInput::Sparse(SparseRows::new(pattern, values, names)?))
    }
}
