//! The trait of all sources of batches.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Batch, Slicer};
use crate::coop::Group;
use crate::device::Device;
use crate::error::Result;
use crate::sample::SamplerConfig;

/// Makes batches.
///
/// A batch is a pure function of the source, its seeds and its number, whoever makes it, when, and on how many threads.
pub trait BatchSource<D: Device>: Debug + Send + Sync {
    /// The batch number `number` (counted over all epochs) around `seeds`, which may repeat; for a source of several
    /// processing elements this one's part of it. Made by the queue `device`.
    ///
    /// Errors: a seed at or above the number of vertices, and those of sampling and of the device.
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>>;

    /// The same source with other neighbourhoods, as validation needs them.
    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>>;

    /// Who may prepare batches, and how many ahead of the one that is computed.
    fn preparation(&self) -> Preparation {
        Preparation::AnyOrder
    }

    /// The processing elements that share each batch.
    fn group(&self) -> Group<D> {
        Group::alone()
    }

    /// What full neighbourhoods can be read from, a layer at a time, if one processing element predicts all vertices by
    /// itself and has room for each layer's activations of all of them.
    fn layer_by_layer(&self) -> Option<&Slicer<D::Scalar>> {
        None
    }
}

/// Who prepares batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// Any number of workers, each at a batch of its own.
    AnyOrder,
    /// One worker: something (a cache) depends on the order.
    InOrder,
    /// One worker, on a thread of its own, since it waits for those of other processing elements.
    Collective,
    /// Whoever computes, when it needs the batch.
    OnDemand,
}
