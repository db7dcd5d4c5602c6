//! How good predictions are, and predictions in batches.

use std::sync::Arc;

use super::loader::{Loader, telling_others};
use super::metrics::{accuracy, argmax_rows, mean_nll, roc_auc};
use super::pace::Pace;
use super::pipeline::computing;
use crate::batch::{Batch, BatchSource};
use crate::device::{Device, Scalar};
use crate::error::{Error, Result};
use crate::nn::Model;
use crate::tape::Tape;
use crate::tensor::Tensor;

/// How good predictions are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evaluation {
    /// Mean negative log-likelihood; NaN without labelled vertices.
    pub loss: f64,
    /// Share of correct predictions; NaN without labelled vertices.
    pub accuracy: f64,
    /// Area under the ROC curve; NaN unless there are two classes and both occur among the labels.
    pub auc: f64,
}

impl Evaluation {
    /// The evaluation of no vertices.
    pub const NONE: Evaluation = Evaluation { loss: f64::NAN, accuracy: f64::NAN, auc: f64::NAN };

    /// The evaluation of `logits: [labels.len(), n_classes]`.
    ///
    /// Errors: `logits` does not have `labels.len() * n_classes` elements.
    pub fn new<S: Scalar>(logits: &[S], n_classes: usize, labels: &[i32]) -> Result<Self> {
        let auc = if n_classes == 2 {
            let score = |row: &[S]| row[1].widen_f64() - row[0].widen_f64();
            roc_auc(&logits.chunks_exact(2).map(score).collect::<Vec<f64>>(), labels)?
        } else {
            f64::NAN
        };
        Ok(Evaluation {
            loss: mean_nll(logits, n_classes, labels)?,
            accuracy: accuracy(&argmax_rows(logits, n_classes), labels)?,
            auc,
        })
    }

    /// The area under the ROC curve, if there is one.
    pub(super) fn measured_auc(&self) -> Option<f64> {
        (!self.auc.is_nan()).then_some(self.auc)
    }
}

/// Scores of `vertices`, in batches of `batch_size` from `source`: `[vertices.len(), n_outputs]`, on every processing
/// element of the source's group. Repeated vertices in a batch get the same prediction. Up to `workers` workers prepare
/// batches ahead (0: none is prepared ahead).
///
/// Errors: `batch_size` is 0, and those of the source and the model.
pub fn infer_batches<D: Device>(
    device: &D,
    model: &dyn Model<D>,
    source: &Arc<dyn BatchSource<D>>,
    vertices: &[u32],
    batch_size: usize,
    workers: usize,
) -> Result<Vec<D::Scalar>> {
    if batch_size == 0 {
        return Err(Error::invalid("batch_size", 0, "at least 1"));
    }
    let (group, n_outputs) = (source.group(), model.n_outputs());
    let mut loader = batches(device, source, vertices, batch_size, workers)?;
    let (mut ids, mut rows) = (Vec::new(), Vec::with_capacity(vertices.len() * n_outputs));
    telling_others(&group, || {
        for batch in &mut loader {
            let batch = batch?;
            let values = computing(&group, || scores(device, model, &batch)?.to_vec(device))?;
            let (asked, of_asked) = batch.rows_asked_for(&values, n_outputs);
            ids.extend(asked);
            rows.extend(of_asked);
        }
        group.gather_rows(vertices, &ids, rows, n_outputs)
    })
}

/// Calls `take` with the scores of `vertices`, batch by batch, in their order: `[n, n_outputs]`, on the device. For a
/// source without a group.
///
/// Errors: those of [`infer_batches`] and of `take`.
pub(super) fn score_batches<D: Device>(
    device: &D,
    model: &dyn Model<D>,
    source: &Arc<dyn BatchSource<D>>,
    vertices: &[u32],
    batch_size: usize,
    workers: usize,
    mut take: impl FnMut(&Tensor<D>) -> Result<()>,
) -> Result<()> {
    let mut pace = Pace::new();
    for batch in batches(device, source, vertices, batch_size, workers)? {
        let batch = batch?;
        let mut scores = computing(&source.group(), || scores(device, model, &batch))?;
        if let Some(rows) = batch.seed_row.clone() {
            let index = device.send(rows)?;
            let mut asked = Tensor::allocate(device, D::len(&index), scores.cols())?;
            device.gather(scores.view(), scores.rows(), D::view(&index), asked.make_mut(device)?)?;
            scores = asked;
        }
        take(&scores)?;
        pace.keep(device)?;
    }
    Ok(())
}

/// The batches of `vertices`, in their order.
fn batches<D: Device>(
    device: &D,
    source: &Arc<dyn BatchSource<D>>,
    vertices: &[u32],
    batch_size: usize,
    workers: usize,
) -> Result<Loader<D>> {
    let batches = (0..).zip(vertices.chunks(batch_size).map(<[u32]>::to_vec)).collect();
    Loader::new(device, source.clone(), workers, batches)
}

/// The model's scores for a batch.
fn scores<D: Device>(device: &D, model: &dyn Model<D>, batch: &Batch<D>) -> Result<Tensor<D>> {
    let tape = Tape::inference(device);
    let scores = model.forward(&tape, batch)?;
    Ok(tape.value(scores))
}
