//! What a trainer's model predicts.

use super::evaluate::{Evaluation, infer_full, infer_sampled};
use super::pipeline::computing;
use super::prepare::Batch;
use super::{EvalMode, Trainer};
use crate::device::{Device, Method};
use crate::error::Result;
use crate::rng::{self, Purpose};
use crate::sample::SamplerConfig;
use crate::tape::Tape;

/// Destinations per block of layer-wise inference.
const FULL_CHUNK: usize = 4096;

impl<D: Device> Trainer<D> {
    /// How well the present parameters predict `vertices` (repeats allowed).
    pub fn evaluate(&self, vertices: &[u32]) -> Result<Evaluation> {
        if vertices.is_empty() {
            return Ok(Evaluation::NONE);
        }
        let n_classes = self.config.model.n_classes;
        let labels = self.preparer.labels(vertices)?;
        let logits = self.predict(vertices)?;
        Evaluation::new(&logits, n_classes, &labels)
    }

    /// Logits `[vertices.len(), n_classes]` of the present parameters.
    pub fn predict(&self, vertices: &[u32]) -> Result<Vec<D::Scalar>> {
        if self.parallel.is_some() {
            return self.predict_together(vertices);
        }
        let n_classes = self.config.model.n_classes;
        let (device, workers) = (&self.device, self.config.workers);
        let batch_size = self.config.batch_size.unwrap_or(vertices.len().max(1));
        let all = match (self.config.eval, &self.whole) {
            (EvalMode::Sampled, None) => {
                let sampler = self.preparer.sampler(self.evaluation_sampler())?;
                return infer_sampled(
                    device,
                    &self.model,
                    &self.preparer,
                    &sampler,
                    vertices,
                    batch_size,
                    workers,
                );
            }
            (_, Some(whole)) => computing::<D, _>(|| {
                let tape = Tape::inference(device);
                let logits = self.model.forward(&tape, &whole.blocks, whole.input.on(&tape))?;
                tape.value(logits).to_vec(device)
            })?,
            (EvalMode::Full, None) => infer_full(device, &self.model, &self.preparer, FULL_CHUNK, workers)?,
        };
        let row = |&v: &u32| all[v as usize * n_classes..(v as usize + 1) * n_classes].iter().copied();
        Ok(vertices.iter().flat_map(row).collect())
    }
}

/// Predictions by several processing elements.
impl<D: Device> Trainer<D> {
    /// The training sampler with other neighbourhoods than those trained on.
    fn evaluation_sampler(&self) -> SamplerConfig {
        let seed = rng::derive(self.config.sampler.seed, Purpose::EpochOrder.stream(2), 0);
        SamplerConfig { seed, ..self.config.sampler.clone() }
    }

    /// Logits of `vertices` on every PE. Over full neighbourhoods all vertices are one batch, in which cooperating PEs
    /// compute each vertex once a layer.
    fn predict_together(&self, vertices: &[u32]) -> Result<Vec<D::Scalar>> {
        let Some(parallel) = &self.parallel else { return Ok(Vec::new()) };
        let n_classes = self.config.model.n_classes;
        let mut sampler = self.evaluation_sampler();
        let mut batch_size = self.config.batch_size.unwrap_or(usize::MAX);
        if self.config.eval == EvalMode::Full {
            sampler.method = Method::Full;
            sampler.fanouts.0.fill(usize::MAX);
            sampler.per_relation = false;
            batch_size = usize::MAX;
        }
        let minibatch = self.minibatches(&sampler)?;
        let (mut ids, mut rows) = (Vec::new(), Vec::new());
        for (number, seeds) in vertices.chunks(batch_size.max(1)).enumerate() {
            let host = minibatch(seeds, number as u64)?;
            ids.extend_from_slice(&host.seeds);
            let batch = Batch::from_host(&self.device, host)?;
            let tape = Tape::inference(&self.device);
            let logits = self.forward(&tape, &batch)?;
            rows.extend(tape.value(logits).to_vec(&self.device)?);
        }
        parallel.gather_rows(vertices, &ids, &rows, n_classes)
    }
}
