//! Samplers of minibatches: seed vertices in, the layers of their neighbourhoods out.
//!
//! A minibatch is a pure function of the graph, the configuration, the seed vertices and the batch's number. What one
//! layer's methods do is documented at [`Method`](crate::device::Method) and [`Sample`](crate::device::Sample); here
//! they are stacked, and training vertices cut into batches.

mod batches;
mod fanouts;
mod sampler;

pub use batches::{Batches, Epoch};
pub use fanouts::Fanouts;
pub use sampler::{MiniBatch, Sampler, SamplerConfig};
