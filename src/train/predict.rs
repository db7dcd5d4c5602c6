//! Predictions of a trainer's model.

use super::evaluate::{Evaluation, infer_batches, infer_full};
use super::{EvalMode, Trainer};
use crate::device::{Device, Method};
use crate::error::Result;
use crate::nn::Model;
use crate::rng::{self, Purpose};
use crate::sample::SamplerConfig;

/// Destinations per block of layer-wise inference.
const FULL_CHUNK: usize = 4096;

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// How well the current parameters predict `vertices` (repeats allowed). Collective if several PEs train together.
    ///
    /// Errors: those of [`predict`](Trainer::predict).
    pub fn evaluate(&self, vertices: &[u32]) -> Result<Evaluation> {
        if vertices.is_empty() {
            return Ok(Evaluation::NONE);
        }
        let labels = self.slicer.labels(vertices)?;
        let scores = self.predict(vertices)?;
        Evaluation::new(&scores, self.model.n_outputs(), &labels)
    }

    /// Scores `[vertices.len(), n_outputs]` of the current parameters, on every processing element (PE). Collective if
    /// several PEs train together.
    ///
    /// Errors: a vertex is out of range, and those of sampling, communication and the device.
    pub fn predict(&self, vertices: &[u32]) -> Result<Vec<D::Scalar>> {
        let workers = self.config.workers;
        // Not the neighbourhoods of training.
        let seed = rng::derive(self.config.sampler.seed, Purpose::Evaluation.stream(0), 0);
        let mut sampler = SamplerConfig { seed, ..self.config.sampler.clone() };
        let mut batch_size = self.config.batch_size.unwrap_or(vertices.len()).max(1);
        if self.config.eval == EvalMode::Full {
            if let (Some(slicer), Some(_)) = (self.source.layer_by_layer(), self.model.layer_by_layer()) {
                let all = infer_full(&self.device, &self.model, slicer, FULL_CHUNK, workers)?;
                return Ok(self.rows_of(vertices, &all));
            }
            sampler.method = Method::Full;
            sampler.fanouts.0.fill(usize::MAX);
            sampler.per_relation = false;
            if self.group.size() > 1 {
                // In one batch of all vertices, cooperating PEs compute each vertex once per layer.
                batch_size = vertices.len().max(1);
            }
        }
        let source = self.source.with_sampler(sampler)?;
        infer_batches(&self.device, &self.model, &source, vertices, batch_size, workers)
    }

    fn rows_of(&self, vertices: &[u32], all: &[D::Scalar]) -> Vec<D::Scalar> {
        let n = self.model.n_outputs();
        vertices.iter().flat_map(|&v| all[v as usize * n..(v as usize + 1) * n].iter().copied()).collect()
    }
}
