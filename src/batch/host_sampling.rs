//! Batches that are sampled and sliced on the host, and moved to the device.

use std::sync::Arc;
use std::time::Instant;

use super::{Batch, BatchRest, BatchSource, Preparation, Slicer};
use crate::device::{Cpu, Device, Sample, Scalar};
use crate::error::Result;
use crate::sample::{MiniBatch, Sampler, SamplerConfig};

/// Samples and slices on the host (SALIENT's batch preparation).
#[derive(Clone, Debug)]
pub struct HostSampling<S: Scalar> {
    slicer: Slicer<S>,
    sampler: Sampler,
}

impl<S: Scalar> HostSampling<S> {
    /// A source of batches of the slicer's data set.
    ///
    /// Errors: `config` has no layers.
    pub fn new(slicer: Slicer<S>, config: SamplerConfig) -> Result<Self> {
        Ok(HostSampling { sampler: slicer.sampler(config)?, slicer })
    }

    fn sample(&self, seeds: &[u32], number: u64) -> Result<Sampled<S>> {
        let start = Instant::now();
        let cpu = self.slicer.cpu();
        let graph = cpu.load_graph(&self.slicer.dataset().graph)?;
        let batch = self.sampler.sample(cpu, &graph, seeds, number)?;
        Ok(Sampled { batch, seconds: start.elapsed().as_secs_f64() })
    }
}

/// The neighbourhoods of a batch.
struct Sampled<S: Scalar> {
    batch: MiniBatch<Cpu<S>>,
    seconds: f64,
}

impl<S: Scalar> Sampled<S> {
    /// The batch on a device, with what `slicer` slices.
    fn on_device<D: Device<Scalar = S>>(self, slicer: &Slicer<S>, device: &D) -> Result<Batch<D>> {
        self.slice(slicer)?.to_device(device)?.grouped(device, slicer)
    }

    /// The batch in host memory, with what `slicer` slices.
    fn slice(self, slicer: &Slicer<S>) -> Result<Batch<Cpu<S>>> {
        let Sampled { batch: sampled, seconds: sample_seconds } = self;
        let start = Instant::now();
        // A sampler has at least one layer.
        let (input, loaded) = slicer.cached_input(&sampled.blocks[0])?;
        let labels = slicer.labels(&sampled.seeds)?;
        Ok(Batch {
            blocks: sampled.blocks,
            input,
            seeds: sampled.seeds,
            seed_row: sampled.seed_row,
            labels,
            exchange: None,
            loaded,
            sample_seconds,
            gather_seconds: start.elapsed().as_secs_f64(),
        })
    }
}

impl<D: Device> BatchSource<D> for HostSampling<D::Scalar> {
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>> {
        self.sample(seeds, number)?.on_device(&self.slicer, device)
    }

    fn begin(&self, seeds: &[u32], number: u64) -> Result<Option<BatchRest<D>>> {
        let (sampled, slicer) = (self.sample(seeds, number)?, self.slicer.clone());
        Ok(Some(Box::new(move |device| sampled.on_device(&slicer, device))))
    }

    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>> {
        Ok(Arc::new(HostSampling::new(self.slicer.clone(), sampler)?))
    }

    fn preparation(&self) -> Preparation {
        if self.slicer.has_cache() { Preparation::InOrder } else { Preparation::AnyOrder }
    }

    fn layer_by_layer(&self) -> Option<&Slicer<D::Scalar>> {
        Some(&self.slicer)
    }
}
