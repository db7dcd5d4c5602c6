//! The trait of sources of batches.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Batch, Slicer};
use crate::coop::Group;
use crate::device::Device;
use crate::error::Result;
use crate::sample::SamplerConfig;

/// The rest of a batch that was begun ([`BatchSource::begin`]): makes it on the queue that it is given.
pub type BatchRest<D> = Box<dyn FnOnce(&D) -> Result<Batch<D>> + Send>;

/// Makes batches.
///
/// A batch is a pure function of the source, its seeds and its number: it does not matter which thread makes it, when,
/// and on how many threads.
pub trait BatchSource<D: Device>: Debug + Send + Sync {
    /// Batch number `number` (counted over all epochs) around `seeds`; if several processing elements share it, this
    /// one's part of it. Made on the queue `device`.
    ///
    /// Seeds may repeat: the batch then has each once in [`Batch::seeds`], and [`Batch::seed_row`] says where each
    /// seed that was given is. Only the list of a prediction or an evaluation, which a caller makes, can repeat a
    /// vertex. The lists of a valid data set do not, and training, validation and test have no others.
    ///
    /// Errors: a seed is not below the number of vertices, and those of sampling and of the device.
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>>;

    /// Does what a batch needs whatever came before it, and returns what does the rest. `None`: nothing was done, and
    /// [`batch`](BatchSource::batch) makes it. Asked only if [`preparation`](BatchSource::preparation) is
    /// [`Preparation::InOrder`].
    ///
    /// Errors: those of [`batch`](BatchSource::batch).
    fn begin(&self, _seeds: &[u32], _number: u64) -> Result<Option<BatchRest<D>>> {
        Ok(None)
    }

    /// The same source with another sampler: for validation, test and predictions, and for each processing element of
    /// [`Independent`](super::Independent).
    ///
    /// All draws come from `sampler.seed` from now on: that is what tells evaluation from training, and one processing
    /// element from another. Method and fanouts (one for each layer) are either those of training, or
    /// [`Method::Full`](crate::device::Method::Full) with fanouts of `usize::MAX`, which asks for whole neighbourhoods.
    /// A source with a way of its own to sample may leave the first unread. Asked for whole neighbourhoods it has to
    /// make them, or return an error; it is not asked if evaluation is sampled, or if it has
    /// [`layer_by_layer`](BatchSource::layer_by_layer) and the model computes one layer after the other.
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
    /// Something, like a cache, depends on the order: any number of workers [`begin`](BatchSource::begin) different
    /// batches, but the rests are made in order, one after the other.
    InOrder,
    /// One worker, on its own thread, since it waits for the workers of other processing elements.
    Collective,
    /// No workers: the computing thread makes each batch when it needs it.
    OnDemand,
}
