//! Feature rows of a batch.

use std::sync::Arc;

use super::NarrowRows;
use crate::coop::SlicedRows;
use crate::device::{Cpu, Device, Scalar};
use crate::error::Result;
use crate::tape::{Aggregate, SparseRows};
use crate::tensor::Tensor;

/// Feature rows of the first block's sources, on a device.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BatchInput<D: Device> {
    /// `[n_src, dim]`
    Dense(Tensor<D>),
    /// `[n_src, dim]`, in the type of 16 bits in which features are stored; widened when a model begins with them.
    Narrow(NarrowRows<D>),
    /// `[n_src, dim]`
    Sparse(SparseRows<D>),
    /// No features: the vertices' ids, one-hot.
    OneHot(OneHot<D>),
    /// The aggregate that [`BatchNeeds::input_aggregate`](super::BatchNeeds::input_aggregate) names, computed while the
    /// rows were gathered. If the [`Aggregate`] includes the destination itself: `[n_dst, dim]`; else the destination's
    /// own row and the aggregate side by side, `[n_dst, 2 · dim]`.
    Aggregated(Tensor<D>, Aggregate),
    /// This processing element's columns of what the first layer aggregates, for the destinations of all of them (P³).
    Sliced(SlicedRows<D>),
}

/// One-hot rows of vertex ids. Cloning shares them.
#[derive(Debug)]
pub struct OneHot<D: Device> {
    ids: Arc<D::Buffer<u32>>,
    n_vertices: usize,
}

impl<D: Device> Clone for OneHot<D> {
    fn clone(&self) -> Self {
        OneHot { ids: self.ids.clone(), n_vertices: self.n_vertices }
    }
}

impl<D: Device> OneHot<D> {
    /// One row per id; `ids` are global and below `n_vertices`.
    pub fn new(ids: D::Buffer<u32>, n_vertices: usize) -> Self {
        OneHot { ids: Arc::new(ids), n_vertices }
    }

    /// `[n_rows]`: the vertices' ids.
    pub fn ids(&self) -> &Arc<D::Buffer<u32>> {
        &self.ids
    }

    /// `[n_rows, n_vertices]`
    pub fn shape(&self) -> [usize; 2] {
        [D::len(&self.ids), self.n_vertices]
    }
}

impl<D: Device> BatchInput<D> {
    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        match self {
            BatchInput::Dense(x) | BatchInput::Aggregated(x, _) => x.rows(),
            BatchInput::Narrow(x) => x.shape()[0],
            BatchInput::Sparse(x) => x.shape()[0],
            BatchInput::Sliced(x) => x.share().shape()[0],
            BatchInput::OneHot(x) => x.shape()[0],
        }
    }

    /// The same, with rows of 16 bits in the device's scalar.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn widened(self, device: &D) -> Result<Self> {
        match self {
            BatchInput::Narrow(x) => Ok(BatchInput::Dense(x.widened(device)?)),
            other => Ok(other),
        }
    }

    /// Whether there is a row for each destination of the first block, instead of each source.
    pub fn is_aggregated(&self) -> bool {
        matches!(self, BatchInput::Aggregated(..) | BatchInput::Sliced(_))
    }
}

impl<S: Scalar> BatchInput<Cpu<S>> {
    /// Moves rows from the host to `device` (on the CPU: the same memory, unless it is shared).
    ///
    /// Errors: the device fails or is out of memory.
    pub fn to_device<D: Device<Scalar = S>>(self, device: &D) -> Result<BatchInput<D>> {
        Ok(match self {
            BatchInput::Dense(x) => BatchInput::Dense(Tensor::from_host(device, x)?),
            BatchInput::Narrow(x) => BatchInput::Narrow(x.to_device(device)?),
            BatchInput::Sparse(x) => BatchInput::Sparse(SparseRows::from_host(device, x)?),
            BatchInput::Aggregated(x, aggregate) => {
                BatchInput::Aggregated(Tensor::from_host(device, x)?, aggregate)
            }
            BatchInput::Sliced(x) => BatchInput::Sliced(SlicedRows::from_host(device, x)?),
            BatchInput::OneHot(OneHot { ids, n_vertices }) => {
                let ids = match Arc::try_unwrap(ids) {
                    Ok(ids) => device.adopt(ids)?,
                    Err(shared) => device.upload(&shared)?,
                };
                BatchInput::OneHot(OneHot::new(ids, n_vertices))
            }
        })
    }
}
