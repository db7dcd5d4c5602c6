//! Minibatches, and where they come from.
//!
//! A [`Batch`] holds everything that a model needs for a step: sampled blocks, rows of features, labels. A
//! [`BatchSource`] makes one from seed vertices and a batch number. There are five sources:
//!
//! * [`WholeGraph`]: one batch of all vertices and edges, made once;
//! * [`HostSampling`]: sampled and sliced on the host, by workers that run ahead of the device;
//! * [`DeviceSampling`]: sampled and sliced by the device itself;
//! * [`Independent`]: each processing element has a batch of its share of the seeds, from its own source;
//! * [`Cooperative`]: all processing elements make and compute one batch together.
//!
//! To write your own source, implement the trait; a trainer takes it like these.
//!
//! ```
//! use std::sync::Arc;
//! use cohop::batch::{BatchNeeds, BatchSource, HostSampling, Slicer};
//! use cohop::{data, device::Cpu, sample::SamplerConfig};
//! # fn main() -> cohop::Result<()> {
//! let cpu = Cpu::<f32>::new();
//! let dataset = Arc::new(data::load("sbm")?);
//! let slicer = Slicer::new(cpu.clone(), dataset.clone(), BatchNeeds::default());
//! let source = HostSampling::new(slicer, SamplerConfig::default())?;
//! let batch = source.batch(&cpu, &dataset.train_idx[..16], 0)?;
//! assert_eq!(batch.blocks.len(), 2);
//! assert_eq!(batch.blocks[1].n_dst(), 16);
//! # Ok(())
//! # }
//! ```

mod column_slices;
mod cooperative;
mod device_sampling;
mod host_sampling;
mod independent;
mod input;
mod narrow_rows;
mod slicer;
mod source;
mod whole_graph;

use std::sync::Arc;

use crate::block::Block;
use crate::cache::Counts;
use crate::coop::{ExchangePlan, Peers, exchange};
use crate::device::{Cpu, CpuBuffer, Device, IGNORED, Storage};
use crate::error::{Error, Result, check_length};
use crate::tape::{Tape, Var};

pub use cooperative::Cooperative;
pub use device_sampling::{DataOnDevice, DeviceSampling};
pub use host_sampling::HostSampling;
pub use independent::Independent;
pub(crate) use independent::{independent_sampler, seeds_of};
pub use input::{BatchInput, OneHot};
pub use narrow_rows::NarrowRows;
pub use slicer::{BatchNeeds, Slicer};
pub use source::{BatchRest, BatchSource, Preparation};
pub use whole_graph::WholeGraph;

/// A minibatch on a device. On the host it is a `Batch<Cpu<S>>`, which [`to_device`](Batch::to_device) moves.
///
/// Where several processing elements (PEs) cooperate, each has its part of one batch: blocks whose destinations it
/// owns.
#[derive(Debug)]
pub struct Batch<D: Device> {
    /// In model order: the sources of the first are the vertices whose features are needed, the destinations of the
    /// last the seeds.
    pub blocks: Vec<Arc<Block<D>>>,
    /// Rows of the first block's sources.
    pub input: BatchInput<D>,
    /// `[n_dst of the last block]`: global ids of its destinations, each once.
    pub seeds: Vec<u32>,
    /// For each requested seed, its row in `seeds`. `None`: the requested seeds are `seeds`, in this order.
    pub seed_row: Option<Vec<u32>>,
    /// `[n_dst of the last block]`, on the host: classes; [`IGNORED`] for vertices without a class or not requested.
    pub labels: CpuBuffer<i32>,
    /// How rows come from the PEs that own them. `None` if this PE has all rows.
    pub exchange: Option<Exchange<D>>,
    /// Feature rows that were loaded: from the cache, and from storage.
    pub loaded: Counts,
    /// Seconds spent sampling.
    pub sample_seconds: f64,
    /// Seconds spent slicing features and labels.
    pub gather_seconds: f64,
}

/// How the source rows of each block come from the processing elements that own them.
#[derive(Clone, Debug)]
pub struct Exchange<D: Device> {
    /// The others, and how to reach them.
    pub peers: Peers<D>,
    /// One plan for each block, in model order.
    pub plans: Vec<Arc<ExchangePlan<D>>>,
}

impl<D: Device> Batch<D> {
    /// A batch of blocks in model order and the rows of the first one's sources, without labels.
    ///
    /// Errors: `blocks` is empty, `input` has another number of rows than the first block has sources (destinations, if
    /// it is aggregated), or the device fails.
    pub fn from_blocks(device: &D, blocks: Vec<Arc<Block<D>>>, input: BatchInput<D>) -> Result<Self> {
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else {
            return Err(Error::invalid("blocks", "empty", "one for each layer"));
        };
        let expected = if input.is_aggregated() { first.n_dst() } else { first.n_src() };
        check_length("rows of the input", input.n_rows(), expected)?;
        let seeds = device.download(D::slice(last.src(), 0..last.n_dst()))?;
        let mut labels = device.host().allocate::<i32>(seeds.len())?;
        labels.fill(IGNORED);
        Ok(Batch {
            blocks,
            input,
            seeds,
            seed_row: None,
            labels,
            exchange: None,
            loaded: Counts::default(),
            sample_seconds: 0.0,
            gather_seconds: 0.0,
        })
    }

    /// The batch with what layers over relations need, made on the queue `device`.
    ///
    /// Errors: the blocks have no edge types or one that is too large, or the device fails.
    pub(crate) fn grouped(self, device: &D, slicer: &Slicer<D::Scalar>) -> Result<Self> {
        if let Some(needs) = slicer.needs().relations {
            // Over aggregates of all processing elements the first layer has no use for its block.
            let first = usize::from(slicer.has_column_slices());
            for block in self.blocks.iter().skip(first) {
                block.group_relations(device, needs)?;
            }
        }
        Ok(self)
    }

    /// Number of labels that are not [`IGNORED`].
    pub fn n_labelled(&self) -> u64 {
        self.labels.iter().filter(|&&label| label != IGNORED).count() as u64
    }

    /// The source rows of block `layer`, `[n_src, dim]`, given the output `x` of the layer before it: `x` itself,
    /// unless other PEs own some of the rows. Every model must pass its activations through here between two layers.
    /// Collective if PEs cooperate.
    ///
    /// Errors: `layer` is 0 or not below the number of blocks, and those of communication and of the device.
    pub fn sources(&self, tape: &Tape<D>, layer: usize, x: Var) -> Result<Var> {
        if layer == 0 || layer >= self.blocks.len() {
            return Err(Error::invalid("layer", layer, format!("1 to {}", self.blocks.len().max(1) - 1)));
        }
        match &self.exchange {
            Some(Exchange { peers, plans }) => exchange(tape, peers, &plans[layer], x),
            None => Ok(x),
        }
    }

    /// The requested seeds, and their rows of `rows: [n_dst of the last block, cols]`.
    pub fn rows_asked_for<T: Copy>(&self, rows: &[T], cols: usize) -> (Vec<u32>, Vec<T>) {
        let Some(seed_row) = &self.seed_row else { return (self.seeds.clone(), rows.to_vec()) };
        let row = |&r: &u32| &rows[r as usize * cols..(r as usize + 1) * cols];
        let seeds = seed_row.iter().map(|&r| self.seeds[r as usize]).collect();
        (seeds, seed_row.iter().flat_map(row).copied().collect())
    }
}

impl<S: crate::device::Scalar> Batch<Cpu<S>> {
    /// Moves a batch from the host to `device` (on the CPU: the same memory).
    ///
    /// Errors: other clones of a block's or plan's `Arc` exist, or the device fails or is out of memory.
    pub fn to_device<D: Device<Scalar = S>>(self, device: &D) -> Result<Batch<D>> {
        let exchange = self.exchange.map(|Exchange { peers, plans }| {
            let plan = |plan| ExchangePlan::from_host(device, owned("plans", plan)?).map(Arc::new);
            Ok::<_, Error>(Exchange {
                peers: Peers::new(device, peers.communicator().clone()),
                plans: plans.into_iter().map(plan).collect::<Result<_>>()?,
            })
        });
        let block = |block| Block::from_host(device, owned("blocks", block)?).map(Arc::new);
        Ok(Batch {
            blocks: self.blocks.into_iter().map(block).collect::<Result<_>>()?,
            input: self.input.to_device(device)?,
            seeds: self.seeds,
            seed_row: self.seed_row,
            labels: self.labels,
            exchange: exchange.transpose()?,
            loaded: self.loaded,
            sample_seconds: self.sample_seconds,
            gather_seconds: self.gather_seconds,
        })
    }
}

/// The contents of `shared`, if there is no other clone of it.
fn owned<T>(name: &'static str, shared: Arc<T>) -> Result<T> {
    Arc::into_inner(shared).ok_or_else(|| Error::invalid(name, "shared", "what nobody else holds"))
}
