//! Cooperative minibatching: P processing elements (PEs) sample, load and train one minibatch together, exchanging ids,
//! rows, activations and gradients, instead of P smaller ones that duplicate each other's work (Balın, LaSalle &
//! Çatalyürek, "Cooperative Minibatching in Graph Neural Networks", TMLR 2025).
//!
//! Each vertex has an owner ([`Partition`](crate::graph::Partition)), which holds its in-edges, its features and its
//! label ([`Shard`](crate::graph::Shard)) and computes its activations. [`CooperativeSampler`] makes, for every layer,
//! a block whose destinations the PE owns, and an [`ExchangePlan`] that brings the sources' rows from their owners.
//! Layers know nothing of this: [`exchange`] runs between two of them.
//!
//! ```
//! # fn main() -> cohop::Result<()> {
//! use std::sync::Arc;
//!
//! use cohop::comm::threads;
//! use cohop::coop::CooperativeSampler;
//! use cohop::device::Cpu;
//! use cohop::graph::{Partition, PartitionMethod, Rmat, Shard};
//! use cohop::sample::SamplerConfig;
//!
//! let graph = Rmat::graph500(8, 8, 1).generate()?;
//! let partition = Arc::new(Partition::new(PartitionMethod::Random, graph.n_vertices(), 2, 1)?);
//! let n_owned = threads::run(2, |communicator| {
//!     let shard = Arc::new(Shard::new(&graph, &partition, communicator.rank())?);
//!     let (cpu, config) = (Cpu::<f32>::new(), SamplerConfig::default());
//!     let sampler = CooperativeSampler::new(cpu, shard, communicator, config, false)?;
//!     Ok(sampler.sample(&[0, 1, 2, 3], 0)?.seeds.len()) // the seeds that this PE owns
//! })?;
//! assert_eq!(n_owned.iter().sum::<usize>(), 4);
//! # Ok(())
//! # }
//! ```

mod first_layer;
mod gradients;
mod group;
mod mode;
mod on_devices;
mod peers;
mod plan;
mod question;
mod sample;
mod walk;

pub use first_layer::{
    FirstBlock, FirstLayer, InputTerms, P3Bytes, Share, SlicedRows, columns_of, p3_bytes, sliced_linear,
};
pub use gradients::sum_gradients;
pub use group::Group;
pub use mode::Mode;
pub use peers::{Peers, RowTransport};
pub use plan::{ExchangePlan, exchange};
pub use sample::{CooperativeBatch, CooperativeSampler};

#[cfg(test)]
mod tests;
