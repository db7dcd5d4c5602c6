//! The trait of sources of batches.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Batch, Slicer};
use crate::coop::Group;
use crate::device::Device;
use crate::error::Result;
use crate::sample::SamplerConfig;

/// Makes batches.
///
/// A batch is a pure function of the source, its seeds and its number: it does not matter which thread makes it, when,
/// and on how many threads.
pub trait BatchSource<D: Device>: Debug + Send + Sync {
    /// Batch number `number` (counted over all epochs) around `seeds`, which may repeat; if several processing elements
    /// share it, this one's part of it. Made on the queue `device`.
    ///
    /// Errors: a seed is not below the number of vertices, and those of sampling and of the device.
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>>;

    /// The same source with another sampler, for example for validation.
    ///
    /// Errors: `sampler` has no layers, or is one that the source cannot use.
    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>>;

    /// Who may prepare batches ahead of the one that is computed.
    fn preparation(&self) -> Preparation {
        Preparation::AnyOrder
    }

    /// The processing elements that share each batch.
    fn group(&self) -> Group<D> {
        Group::alone()
    }

    /// A slicer to predict all vertices with, layer by layer over full neighbourhoods; `None` if this processing
    /// element cannot do that alone, with memory for one layer's activations of all vertices.
    fn layer_by_layer(&self) -> Option<&Slicer<D::Scalar>> {
        None
    }
}

/// Who prepares batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Any number of workers, each on a different batch.
    AnyOrder,
    /// One worker: something, like a cache, depends on the order.
    InOrder,
    /// One worker, on its own thread, since it waits for the workers of other processing elements.
    Collective,
    /// No workers: the computing thread makes each batch when it needs it.
    OnDemand,
}
