//! Samplers of minibatches: seed vertices in, the layers of their neighbourhoods out.
//!
//! A minibatch is a pure function of the graph, the configuration, the seed vertices and the batch's number.
//! [`Method`](crate::device::Method) and [`Sample`](crate::device::Sample) document how one layer is sampled; this
//! module stacks layers, and cuts training vertices into batches.
//!
//! # Your own sampler
//!
//! Read rows from a [`Graph`](crate::graph::Graph) ([`in_neighbors`](crate::graph::Graph::in_neighbors)), draw from
//! [`Variates`](crate::rng::Variates) by stream ([`Purpose`](crate::rng::Purpose)) and counter, and make a
//! [`Block`](crate::block::Block) of a [`SampledBlock`](crate::device::SampledBlock), whose sources begin with the
//! destinations (each once), followed by each new source:
//!
//! ```
//! use std::collections::HashMap;
//!
//! use cohop::prelude::*;
//!
//! /// Keeps each in-edge with the given probability, whatever else is sampled.
//! fn bernoulli(
//!     device: &Cpu,
//!     graph: &Graph,
//!     dst: &[u32],
//!     probability: f64,
//!     variates: &Variates,
//!     layer: u32,
//! ) -> Result<Block<Cpu>> {
//!     let stream = Purpose::Edge.stream(layer);
//!     let limit = (probability * 2f64.powi(32)) as u64;
//!     let mut src = dst.to_vec();
//!     let mut position: HashMap<u32, u32> = (0..).zip(dst).map(|(i, &v)| (v, i)).collect();
//!     let (mut indptr, mut indices) = (vec![0], vec![]);
//!     for &t in dst {
//!         // An edge's number names its draw: the same for any number of threads, and in any order.
//!         let first_edge = graph.indptr()[t as usize];
//!         for (edge, &s) in (first_edge..).zip(graph.in_neighbors(t)) {
//!             if u64::from(variates.word(stream, edge)) < limit {
//!                 indices.push(*position.entry(s).or_insert_with(|| {
//!                     src.push(s);
//!                     src.len() as u32 - 1
//!                 }));
//!             }
//!         }
//!         indptr.push(indices.len() as u32);
//!     }
//!     let parts =
//!         SampledBlock::new(device.upload(&src)?, device.upload(&indptr)?, device.upload(&indices)?);
//!     Block::new(device, parts)
//! }
//!
//! # fn main() -> Result<()> {
//! let graph = Graph::from_edges(4, &[(1, 0), (2, 0), (3, 0), (0, 1)])?;
//! let variates = Variates::new(7, 0, Kappa::INDEPENDENT, Dependence::default());
//! let all = bernoulli(&Cpu::new(), &graph, &[0, 1], 1.0, &variates, 0)?;
//! assert_eq!((all.src(), all.csr().indices()), (&[0, 1, 2, 3][..], &[1, 2, 3, 0][..]));
//! let none = bernoulli(&Cpu::new(), &graph, &[0, 1], 0.0, &variates, 0)?;
//! assert_eq!((none.n_src(), none.n_edge()), (2, 0));
//! # Ok(())
//! # }
//! ```
//!
//! To train with it, implement [`BatchSource`](crate::batch::BatchSource).

mod batches;
mod fanouts;
mod sampler;

pub use batches::{Batches, Epoch};
pub use fanouts::Fanouts;
pub use sampler::{MiniBatch, Sampler, SamplerConfig};
