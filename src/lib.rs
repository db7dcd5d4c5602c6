//! Minibatch training of graph neural networks: samplers, feature slicing, sparse kernels and a small tape autodiff,
//! for the
//! CPU and for NVIDIA GPUs, without libtorch.
//!
//! # Three ways in
//!
//! **Kernels**, on arrays of your own ([`prelude`] has another example):
//!
//! ```
//! use cohop::prelude::*;
//! # fn main() -> cohop::Result<()> {
//! // In-edges by destination: 0 ← 1, 0 ← 2, 2 ← 0.
//! let (indptr, indices) = ([0, 2, 2, 3], [1, 2, 0]);
//! let x = [1.0_f32, 2.0, 3.0]; // [3, 1]
//! let mut sum = [0.0; 3];
//! let (device, a) = (Cpu::new(), Csr::new(&indptr, &indices, 3)?);
//! device.spmm(a, Weights::ones(), Matrix::new(&x, 3, 1)?, MatrixMut::new(&mut sum, 3, 1)?, Write::Assign)?;
//! assert_eq!(sum, [5.0, 0.0, 1.0]);
//! # Ok(())
//! # }
//! ```
//!
//! **Sampling**: neighbourhoods of seed vertices, as blocks, the same on every device and for any number of threads.
//!
//! ```
//! use std::sync::Arc;
//! use cohop::prelude::*;
//! # fn main() -> cohop::Result<()> {
//! let graph = Arc::new(Graph::from_edges(5, &[(1, 0), (2, 0), (3, 1), (4, 2)])?);
//! let sampler = Sampler::new(SamplerConfig { fanouts: Fanouts(vec![10, 10]), ..SamplerConfig::default() })?;
//! let device = Cpu::<f32>::new();
//! let sampled = sampler.sample(&device, &device.load_graph(&graph)?, &[0], 0)?;
//! assert_eq!(sampled.blocks[1].src(), [0, 1, 2]); // one hop: the seed, and where its edges come from
//! assert_eq!(sampled.blocks[0].src(), [0, 1, 2, 3, 4]);
//! # Ok(())
//! # }
//! ```
//!
//! **Training**: a data set, a configuration, a [`Trainer`](train::Trainer).
//!
//! ```
//! use std::sync::Arc;
//! use cohop::data::{Dataset, Features, Split};
//! use cohop::prelude::*;
//! use cohop::train::{TrainConfig, Trainer};
//! # fn main() -> cohop::Result<()> {
//! let graph = Graph::from_edges(6, &[(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)])?.symmetrize()?;
//! let features = Features::dense(vec![1., 0., 1., 0., 0., 1., 0., 1., 1., 1., 0., 0.], 6, 2)?;
//! let split = Split { train: vec![0, 3], val: vec![1, 4], test: vec![2, 5] };
//! let dataset = Arc::new(Dataset::new("triangles", graph, features, vec![0, 0, 0, 1, 1, 1], 2, split)?);
//! let config = TrainConfig { epochs: 20, ..TrainConfig::default() };
//! let outcome = Trainer::new(Cpu::<f32>::new(), dataset, config)?.fit(&mut ())?;
//! assert!(outcome.test_acc.is_finite());
//! # Ok(())
//! # }
//! ```
//!
//! # What is where
//!
//! | module | what it has |
//! |---|---|
//! | [`prelude`] | what most programs name |
//! | [`graph`] | the graph, its builders, generators and partitions |
//! | [`device`] | memory, a trait for each family of kernels; [`Cpu`](device::Cpu), with the feature `cuda` the GPU |
//! | [`array`](mod@array) | arrays in memory, mapped from a file, or owned by somebody else |
//! | [`rng`] | counter-based randomness: every draw is a function of a seed and of what is drawn |
//! | [`pattern`], [`block`], [`tensor`] | sparse patterns, sampled bipartite layers, matrices |
//! | [`tape`] | automatic differentiation; [`tape::Op`] for operations of your own |
//! | [`data`] | data sets: files, generators, features |
//! | [`sample`] | samplers, and seeds in batches |
//! | [`comm`] | communicators: threads, MPI, NCCL |
//! | [`cache`] | caches of feature rows |
//! | [`coop`] | cooperative minibatching |
//! | [`batch`] | minibatches, and the sources that make them |
//! | [`nn`] | layers, models, parameters, optimisers; [`nn::Layer`] and [`nn::Model`] for those of your own |
//! | [`train`] | the training loop, predictions, checkpoints, batches prepared ahead |
//! | [`study`] | the experiments of Cooperative Minibatching |
//!
//! `ARCHITECTURE.md` says how these stand on each other and follows a batch through them; `CONTRIBUTING.md` has recipes
//! for adding an operation, a layer, a sampler and a data format; `examples/` has short programs.

pub mod array;
pub mod batch;
pub mod block;
pub mod cache;
pub mod comm;
pub mod coop;
pub mod data;
pub mod device;
mod error;
pub mod graph;
mod huge_pages;
pub mod nn;
pub mod pattern;
pub mod prelude;
pub mod rng;
pub mod sample;
pub mod signals;
pub mod study;
pub mod tape;
pub mod tensor;
#[cfg(test)]
mod testing;
pub mod train;

pub use error::{Error, Result};

/// The examples of the README are compiled and run as those here are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
