//! Accuracy and time of sampled inference (SALIENT: Kaler et al., MLSys 2022).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;

use super::Listener;
use crate::data::Dataset;
use crate::device::{Cpu, IGNORED, Method};
use crate::error::{Error, Result};
use crate::train::{EvalMode, Trainer, accuracy, argmax_rows, macro_f1, read_info};

/// What to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferenceConfig {
    /// Fanouts to compare; each is that of every layer.
    pub fanouts: Vec<usize>,
    /// Vertices per batch of sampled neighbourhoods.
    pub batch_size: usize,
}

impl Default for InferenceConfig {
    /// Fanouts of 5, 10 and 20, batches of 1024.
    fn default() -> Self {
        InferenceConfig { fanouts: vec![5, 10, 20], batch_size: 1024 }
    }
}

/// The predictions of the test vertices with one fanout.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InferenceRow {
    /// Fanout of every layer; `None`: full neighbourhoods, layer by layer where the model can.
    pub fanout: Option<usize>,
    /// Labelled test vertices.
    pub vertices: usize,
    /// Share of them whose prediction is correct.
    pub accuracy: f64,
    /// Mean of F1 over classes ([`macro_f1`]).
    pub macro_f1: f64,
    /// Wall-clock seconds of predicting the test vertices.
    pub seconds: f64,
    /// Accuracy by in-degree, in ascending order; only bins with vertices.
    pub by_degree: Vec<DegreeBin>,
}

/// The labelled test vertices whose in-degrees are between two powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct DegreeBin {
    /// The least in-degree of the bin: 0 or a power of two.
    pub least: u64,
    /// The largest one: 0, or one less than the next power of two.
    pub most: u64,
    /// Number of vertices.
    pub vertices: usize,
    /// Share of them whose prediction is correct.
    pub accuracy: f64,
}

/// Predicts the test vertices with the best parameters of the checkpoint in the folder `checkpoint`, on the CPU, from
/// sampled neighbourhoods of each fanout and then from full ones. Returns one row per fanout; the last one is of full
/// neighbourhoods.
///
/// The sampler is that of training; a model trained on full neighbourhoods has neighbour sampling. In-degrees are
/// those of the graph that the model sees, with inverse relations if it was trained with them. A first batch that is
/// not counted warms up the features.
///
/// Errors: a fanout or the batch size is 0, no test vertex has a label, and those of [`Trainer::to_predict`] and
/// [`Trainer::predict`].
pub fn inference(
    dataset: &Arc<Dataset>,
    checkpoint: &Path,
    config: &InferenceConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<InferenceRow>> {
    if config.batch_size == 0 {
        return Err(Error::invalid("batch_size", 0, "at least 1"));
    }
    if config.fanouts.contains(&0) {
        return Err(Error::invalid("fanouts", 0, "at least 1 each"));
    }
    let labelled = |&v: &u32| dataset.labels.get(v as usize).is_some_and(|&label| label != IGNORED);
    let vertices: Vec<u32> = dataset.test_idx.iter().copied().filter(labelled).collect();
    if vertices.is_empty() {
        return Err(Error::invalid("test_idx", "no labelled vertices", "some, to measure the accuracy on"));
    }
    let labels: Vec<i32> = vertices.iter().map(|&v| dataset.labels[v as usize]).collect();
    let n_classes = read_info(checkpoint)?.config.model.n_classes;
    let fanouts: Vec<Option<usize>> = config.fanouts.iter().copied().map(Some).chain([None]).collect();
    let mut rows = Vec::with_capacity(fanouts.len());
    for &fanout in &fanouts {
        let what = fanout.map_or_else(|| "full".to_owned(), |fanout| format!("fanout {fanout}"));
        listener.step(rows.len(), fanouts.len(), &what);
        let trainer = Trainer::to_predict(Cpu::<f32>::new(), dataset.clone(), checkpoint, |train| {
            train.batch_size = Some(config.batch_size);
            train.eval = EvalMode::Full;
            if let Some(fanout) = fanout {
                train.eval = EvalMode::Sampled;
                train.sampler.fanouts.0 = vec![fanout; train.model.n_layers];
                if train.sampler.method == Method::Full {
                    train.sampler.method = Method::NEIGHBOR;
                }
            }
        })?;
        if rows.is_empty() {
            trainer.predict(&vertices[..config.batch_size.min(vertices.len())])?;
        }
        let start = Instant::now();
        let scores = trainer.predict(&vertices)?;
        let seconds = start.elapsed().as_secs_f64();
        let predictions = argmax_rows(&scores, n_classes);
        let degrees = vertices.iter().map(|&v| trainer.dataset().graph.in_degree(v));
        rows.push(InferenceRow {
            fanout,
            vertices: vertices.len(),
            accuracy: accuracy(&predictions, &labels)?,
            macro_f1: macro_f1(&predictions, &labels)?,
            seconds,
            by_degree: by_degree(degrees, predictions.iter().zip(&labels).map(|(p, l)| p == l)),
        });
    }
    listener.step(fanouts.len(), fanouts.len(), "done");
    Ok(rows)
}

/// The bins of vertices with these in-degrees, which are predicted right or not.
fn by_degree(degrees: impl Iterator<Item = u64>, right: impl Iterator<Item = bool>) -> Vec<DegreeBin> {
    // By number of binary digits of the degree: how many vertices, and how many of them are right.
    let mut bins: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for (degree, right) in degrees.zip(right) {
        let bin = bins.entry(u64::BITS - degree.leading_zeros()).or_default();
        *bin = (bin.0 + 1, bin.1 + usize::from(right));
    }
    let bin = |(digits, (vertices, right)): (u32, (usize, usize))| DegreeBin {
        least: digits.checked_sub(1).map_or(0, |power| 1 << power),
        most: if digits == 0 { 0 } else { u64::MAX >> (u64::BITS - digits) },
        vertices,
        accuracy: right as f64 / vertices as f64,
    };
    bins.into_iter().map(bin).collect()
}
