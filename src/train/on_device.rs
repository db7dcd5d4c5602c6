//! Minibatches made on the device. The graph lies in its memory. The features do too, and then nothing but seeds and
//! labels travels; or they stay on the host, and the gather kernel reads the rows of a batch from there.

use std::time::Instant;

use half::{bf16, f16};

use super::prepare::{Batch, BatchInput};
use super::{DataOnDevice, Preparer};
use crate::cache::Counts;
use crate::data::Features;
use crate::device::{Device, Element, Storage};
use crate::error::{Error, Result};
use crate::nn::OneHot;
use crate::sample::Sampler;
use crate::tensor::Tensor;

/// A data set that a device's kernels reach.
#[derive(Debug)]
pub(super) struct OnDevice<D: Device> {
    graph: D::Graph,
    features: Table<D>,
}

/// Feature rows, `[n_rows, dim]`.
#[derive(Debug)]
enum Table<D: Storage> {
    None,
    F32(D::Buffer<f32>),
    F16(D::Buffer<f16>),
    Bf16(D::Buffer<bf16>),
}

/// A batch, and the seconds that its parts took to be asked for.
pub(super) struct Made<D: Device> {
    pub batch: Batch<D>,
    pub sample_seconds: f64,
    pub gather_seconds: f64,
}

impl<D: Device> OnDevice<D> {
    /// Copies the preparer's data set: the graph to `device`, the features to where `data` says. An error for sparse
    /// features.
    pub(super) fn new(device: &D, preparer: &Preparer<D::Scalar>, data: DataOnDevice) -> Result<Self> {
        let dataset = preparer.dataset();
        let features = match &dataset.features {
            Features::None => Table::None,
            Features::F32(x) => Table::F32(copied(device, x.data(), data)?),
            Features::F16(x) => Table::F16(copied(device, x.data(), data)?),
            Features::Bf16(x) => Table::Bf16(copied(device, x.data(), data)?),
            Features::Sparse(_) => {
                let expected = "dense features (--feature-dtype makes them so), or none";
                return Err(Error::invalid("features on the device", "sparse", expected));
            }
        };
        Ok(OnDevice { graph: device.load_graph(&dataset.graph)?, features })
    }

    /// The minibatch number `number` of `seeds`.
    pub(super) fn minibatch(
        &self,
        device: &D,
        preparer: &Preparer<D::Scalar>,
        sampler: &Sampler,
        seeds: &[u32],
        number: u64,
    ) -> Result<Made<D>> {
        let start = Instant::now();
        let sampled = sampler.sample(device, &self.graph, seeds, number)?;
        let sample_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let input = self.rows(device, preparer, sampled.input_vertices())?;
        let labels = preparer.labels(&sampled.seeds)?;
        let loaded = Counts { hits: 0, misses: sampled.blocks[0].n_src() as u64 };
        let batch = Batch { blocks: sampled.blocks, plans: Vec::new(), loaded, input, labels };
        Ok(Made { batch, sample_seconds, gather_seconds: start.elapsed().as_secs_f64() })
    }

    fn rows(
        &self,
        device: &D,
        preparer: &Preparer<D::Scalar>,
        vertices: D::View<'_, u32>,
    ) -> Result<BatchInput<D>> {
        let dataset = preparer.dataset();
        let (n_rows, dim, n) = (dataset.features.n_rows(), dataset.features.dim(), D::view_len(&vertices));
        let mut out = Tensor::allocate(device, n, dim)?;
        let to = out.make_mut(device)?;
        match &self.features {
            Table::None => {
                let mut ids = device.allocate::<u32>(n)?;
                device.copy(vertices, D::view_mut(&mut ids))?;
                return Ok(BatchInput::OneHot(OneHot::new(ids, dataset.n_vertices())));
            }
            Table::F32(x) => device.gather(D::view(x), n_rows, vertices, to)?,
            Table::F16(x) => device.gather(D::view(x), n_rows, vertices, to)?,
            Table::Bf16(x) => device.gather(D::view(x), n_rows, vertices, to)?,
        }
        Ok(BatchInput::Dense(out))
    }
}

fn copied<D: Storage, T: Element>(device: &D, rows: &[T], data: DataOnDevice) -> Result<D::Buffer<T>> {
    if data == DataOnDevice::All { device.upload(rows) } else { device.upload_to_host(rows) }
}
