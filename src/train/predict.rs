//! Predictions of a trainer's model.

use std::path::Path;
use std::sync::Arc;

use super::checkpoint::Opened;
use super::evaluate::{Evaluation, infer_batches, score_batches};
use super::fingerprint::Fingerprint;
use super::full_inference::{full_logits, infer_full};
use super::tally::Tally;
use super::{ClassWeights, EvalMode, TrainConfig, Trainer};
use crate::batch::{BatchSource, Slicer};
use crate::data::{Dataset, Features};
use crate::device::{Device, FeatureElement, Method};
use crate::error::{Error, Result, check_ids};
use crate::nn::{Model, Stack};
use crate::rng::{self, Purpose};
use crate::sample::SamplerConfig;
use crate::tensor::Tensor;

/// What scores are called in errors.
pub(super) const SCORES: &str = "scores";

/// Destinations per block of layer-wise inference.
const FULL_CHUNK: usize = 4096;

/// Rows of scores that are evaluated at once, where all of them are there.
const TALLIED: usize = 1 << 16;

impl<D: Device, M: Model<D>> Trainer<D, M> {
    /// How well the current parameters predict `vertices` (repeats allowed). Collective if several PEs train together.
    ///
    /// Errors: those of [`predict`](Trainer::predict).
    pub fn evaluate(&self, vertices: &[u32]) -> Result<Evaluation> {
        if vertices.is_empty() {
            return Ok(Evaluation::NONE);
        }
        let labels = self.slicer.labels(vertices)?;
        if let Some(evaluation) = self.evaluate_there(vertices, &labels)? {
            return Ok(evaluation);
        }
        let scores = self.predict(vertices)?;
        Evaluation::new(&scores, self.model.n_outputs(), &labels)
    }

    /// Scores `[vertices.len(), n_outputs]` of the current parameters, on every processing element (PE). Collective if
    /// several PEs train together.
    ///
    /// Errors: a vertex is out of range, a score is NaN or infinite ([`Error::NotFinite`]), and those of sampling,
    /// communication and the device.
    pub fn predict(&self, vertices: &[u32]) -> Result<Vec<D::Scalar>> {
        check_ids("vertices", vertices, self.dataset().n_vertices())?;
        let scores = self.scores(vertices)?;
        if let Some(at) = scores.iter().position(|s| !s.widen_f64().is_finite()) {
            let n_outputs = self.model.n_outputs();
            let (row, column) = ((at / n_outputs) as u64, (at % n_outputs) as u64);
            return Err(Error::NotFinite { array: SCORES, row, column, value: scores[at].widen_f64() });
        }
        Ok(scores)
    }

    fn scores(&self, vertices: &[u32]) -> Result<Vec<D::Scalar>> {
        let workers = self.config.workers;
        match self.inference(vertices)? {
            Inference::LayerByLayer(slicer) => {
                infer_full(&self.device, &self.model, slicer, vertices, FULL_CHUNK, workers)
            }
            Inference::Batches(source, batch_size) => {
                infer_batches(&self.device, &self.model, &source, vertices, batch_size, workers)
            }
        }
    }

    /// The evaluation of `vertices` by scores that stay on the device. `None`: the host has to read them, as they are
    /// in its memory, or on several processing elements, or may not be finite, or as they are to be ranked.
    ///
    /// Errors: those of [`evaluate`](Trainer::evaluate).
    fn evaluate_there(&self, vertices: &[u32], labels: &[i32]) -> Result<Option<Evaluation>> {
        let (device, model, workers) = (&self.device, &self.model, self.config.workers);
        let at_hand = D::as_host(D::view(&device.allocate::<u32>(0)?)).is_some();
        if at_hand || self.group.size() > 1 || model.n_outputs() == 2 {
            return Ok(None);
        }
        check_ids("vertices", vertices, self.dataset().n_vertices())?;
        let mut tally = Tally::new(device)?;
        match self.inference(vertices)? {
            Inference::LayerByLayer(slicer) => {
                let logits = full_logits(device, model, slicer, vertices, FULL_CHUNK, workers)?;
                let Some((logits, rows)) = logits else { return Ok(None) };
                for (rows, labels) in rows.chunks(TALLIED).zip(labels.chunks(TALLIED)) {
                    let index = device.send(rows.to_vec())?;
                    let mut scores = Tensor::allocate(device, rows.len(), logits.cols())?;
                    device.gather(logits.view(), logits.rows(), D::view(&index), scores.make_mut(device)?)?;
                    tally.add(device, &scores, labels.to_vec())?;
                }
            }
            Inference::Batches(source, batch_size) => {
                let mut labels = labels.chunks(batch_size);
                score_batches(device, model, &source, vertices, batch_size, workers, |scores| {
                    tally.add(device, scores, labels.next().unwrap_or_default().to_vec())
                })?;
            }
        }
        tally.read(device)
    }

    /// How predictions of `vertices` are made.
    fn inference(&self, vertices: &[u32]) -> Result<Inference<'_, D>> {
        // Not the neighbourhoods of training.
        let seed = rng::derive(self.config.sampler.seed, Purpose::Evaluation.stream(0), 0);
        let mut sampler = SamplerConfig { seed, ..self.config.sampler.clone() };
        let mut batch_size = self.config.batch_size.unwrap_or(vertices.len()).max(1);
        if self.config.eval == EvalMode::Full {
            if let (Some(slicer), Some(_)) = (self.source.layer_by_layer(), self.model.layer_by_layer()) {
                return Ok(Inference::LayerByLayer(slicer));
            }
            sampler.method = Method::Full;
            sampler.fanouts.0.fill(usize::MAX);
            sampler.per_relation = false;
            if self.group.size() > 1 {
                // In one batch of all vertices, cooperating PEs compute each vertex once per layer.
                batch_size = vertices.len().max(1);
            }
        }
        Ok(Inference::Batches(self.source.with_sampler(sampler)?, batch_size))
    }
}

/// How predictions are made.
enum Inference<'a, D: Device> {
    /// Over whole neighbourhoods, of the slicer's data set.
    LayerByLayer(&'a Slicer<D::Scalar>),
    /// In batches of the source, of this size.
    Batches(Arc<dyn BatchSource<D>>, usize),
}

impl<D: Device> Trainer<D> {
    /// The built-in model that [`save`](Trainer::save) wrote to `folder`, with the parameters of its best epoch, to
    /// [`predict`](Trainer::predict) on a data set that need not be the one it was trained on: it needs neither labels
    /// nor splits. `adjust` may change how predictions are made.
    ///
    /// Errors: the file cannot be read, is no checkpoint or is damaged; the data set has no features and that of
    /// training had some, or the other way round; it has another number of feature columns or relations than the model
    /// (without features: of vertices); settings of the sampler, or numbers of workers or seeds per batch, that cannot
    /// be; and those of the source of batches and the device.
    pub fn to_predict(
        device: D,
        dataset: Arc<Dataset>,
        folder: &Path,
        adjust: impl FnOnce(&mut TrainConfig),
    ) -> Result<Self> {
        let opened = Opened::read(folder)?;
        let mut config = opened.info.config.clone();
        // A matter of training, which may need labels.
        config.class_weights = ClassWeights::Equal;
        opened.info.data.check_features(&dataset)?;
        adjust(&mut config);
        let fingerprint = Fingerprint::of(&dataset);
        let dataset = config.transformed(dataset)?;
        let fits = |name: &'static str, found: usize, of_model: usize| {
            let expected = || format!("{of_model} in the data set, as the checkpoint's model has it");
            if found == of_model { Ok(()) } else { Err(Error::invalid(name, found, expected())) }
        };
        // Without features, vertices are known by their numbers.
        let (name, inputs) = match &dataset.features {
            Features::None => ("n_vertices", dataset.n_vertices()),
            features => ("n_features", features.dim()),
        };
        fits(name, inputs, config.model.n_features)?;
        fits("n_relations", dataset.graph.n_relations(), config.model.n_relations)?;
        config.check_batches(config.model.n_layers)?;
        let mut model = Stack::new(&device, &config.model, config.seed)?;
        let values = opened.best_parameters(&device, &model)?;
        let ids: Vec<_> = model.parameters().iter().map(|(id, _)| id).collect();
        for (id, value) in ids.into_iter().zip(values) {
            model.parameters_mut().set(id, value)?;
        }
        Trainer::unchecked(device, dataset, config, model, fingerprint)
    }
}
