//! Batches made on the device. The graph is in its memory. If the features are too, only seeds and labels are copied
//! per batch; else they stay on the host, and the gather kernel reads a batch's rows from there.

use std::sync::Arc;
use std::time::Instant;

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::{Batch, BatchInput, BatchSource, OneHot, Preparation, Slicer};
use crate::cache::Counts;
use crate::data::Features;
use crate::device::{Device, Element, FeatureElement, Storage};
use crate::error::{Error, Result};
use crate::sample::{Sampler, SamplerConfig};
use crate::tensor::Tensor;

/// Which parts of a data set are in the device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataOnDevice {
    /// Nothing: minibatches are made on the host.
    #[default]
    Nothing,
    /// The graph. The device reads feature rows from page-locked host memory, which holds a copy of them.
    Graph,
    /// Graph and features.
    All,
}

/// Samples and slices with the device's own kernels.
#[derive(Clone, Debug)]
pub struct DeviceSampling<D: Device> {
    data: Arc<Data<D>>,
    slicer: Slicer<D::Scalar>,
    sampler: Sampler,
}

/// A data set that a device's kernels can read.
#[derive(Debug)]
struct Data<D: Device> {
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

impl<D: Device> DeviceSampling<D> {
    /// Copies the slicer's data set: the graph to `device`, the features to where `data` says.
    ///
    /// Errors: the features are sparse or not finite, `config` has no layers, or the device fails or is out of memory.
    pub fn new(
        device: &D,
        slicer: Slicer<D::Scalar>,
        config: SamplerConfig,
        data: DataOnDevice,
    ) -> Result<Self> {
        let dataset = slicer.dataset();
        // All rows are read here, and none on the host afterwards.
        if dataset.features.are_unchecked() {
            dataset.features.check_finite()?;
        }
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
        let data = Arc::new(Data { graph: device.load_graph(&dataset.graph)?, features });
        Ok(DeviceSampling { data, sampler: slicer.sampler(config)?, slicer })
    }

    fn rows(&self, device: &D, vertices: D::View<'_, u32>) -> Result<BatchInput<D>> {
        match &self.data.features {
            Table::None => {
                let mut ids = device.allocate::<u32>(D::view_len(&vertices))?;
                device.copy(vertices, D::view_mut(&mut ids))?;
                Ok(BatchInput::OneHot(OneHot::new(ids, self.slicer.dataset().n_vertices())))
            }
            Table::F32(x) => self.gathered(device, x, vertices),
            Table::F16(x) => self.gathered(device, x, vertices),
            Table::Bf16(x) => self.gathered(device, x, vertices),
        }
    }

    fn gathered<E: FeatureElement>(
        &self,
        device: &D,
        table: &D::Buffer<E>,
        vertices: D::View<'_, u32>,
    ) -> Result<BatchInput<D>> {
        let features = &self.slicer.dataset().features;
        let mut out = Tensor::allocate(device, D::view_len(&vertices), features.dim())?;
        device.gather(D::view(table), features.n_rows(), vertices, out.make_mut(device)?)?;
        Ok(BatchInput::Dense(out))
    }
}

impl<D: Device> BatchSource<D> for DeviceSampling<D> {
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>> {
        let start = Instant::now();
        let sampled = self.sampler.sample(device, &self.data.graph, seeds, number)?;
        let sample_seconds = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let input = self.rows(device, sampled.input_vertices())?;
        let labels = self.slicer.labels(&sampled.seeds)?;
        let batch = Batch {
            loaded: Counts { hits: 0, misses: sampled.blocks[0].n_src() as u64 },
            blocks: sampled.blocks,
            input,
            seeds: sampled.seeds,
            seed_row: sampled.seed_row,
            labels,
            exchange: None,
            sample_seconds,
            gather_seconds: start.elapsed().as_secs_f64(),
        };
        batch.grouped(device, &self.slicer)
    }

    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>> {
        let (data, slicer) = (self.data.clone(), self.slicer.clone());
        Ok(Arc::new(DeviceSampling { data, sampler: slicer.sampler(sampler)?, slicer }))
    }

    fn preparation(&self) -> Preparation {
        // All are made in one queue, beside that of the steps.
        Preparation::InOrder
    }

    fn layer_by_layer(&self) -> Option<&Slicer<D::Scalar>> {
        Some(&self.slicer)
    }
}

fn copied<D: Storage, T: Element>(device: &D, rows: &[T], data: DataOnDevice) -> Result<D::Buffer<T>> {
    if data == DataOnDevice::All { device.upload(rows) } else { device.upload_to_host(rows) }
}
