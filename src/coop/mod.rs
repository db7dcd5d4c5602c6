//! Cooperative minibatching: P processing elements (PEs) sample, load and train one minibatch together, exchanging ids,
//! rows, activations and gradients, instead of P smaller ones that duplicate each other's work (Balın, LaSalle &
//! Çatalyürek, "Cooperative Minibatching in Graph Neural Networks", TMLR 2025).
//!
//! Each vertex has an owner ([`Partition`](crate::graph::Partition)), which holds its in-edges, its features and its
//! label ([`Shard`](crate::graph::Shard)) and computes its activations. [`CooperativeSampler`] makes, for every layer,
//! a block whose destinations the PE owns, and an [`ExchangePlan`] by which the sources' rows come from their owners.
//! Layers know nothing of it: between two of them stands [`exchange`].

mod gradients;
mod group;
mod mode;
mod plan;
mod sample;
mod walk;

pub use gradients::sum_gradients;
pub use group::Group;
pub use mode::Mode;
pub use plan::{ExchangePlan, Peers, exchange};
pub use sample::{CooperativeBatch, CooperativeSampler};

#[cfg(test)]
mod tests;
