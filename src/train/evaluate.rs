//! Predictions: sampled, or layer by layer over full neighbourhoods.

use std::sync::Arc;

use super::loader::{Loader, telling_others};
use super::metrics::{accuracy, argmax_rows, mean_nll, roc_auc};
use super::pipeline::{computing, prepared_ahead};
use crate::batch::{BatchSource, Slicer};
use crate::block::Block;
use crate::coop::Group;
use crate::device::{Device, Scalar};
use crate::error::{Error, Result};
use crate::nn::{Input, Model};
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
    let batches = (0..).zip(vertices.chunks(batch_size).map(<[u32]>::to_vec)).collect();
    let mut loader = Loader::new(device, source.clone(), workers, batches)?;
    let (mut ids, mut rows) = (Vec::new(), Vec::with_capacity(vertices.len() * n_outputs));
    telling_others(&group, || {
        for batch in &mut loader {
            let batch = batch?;
            let values = computing(&group, || {
                let tape = Tape::inference(device);
                let scores = model.forward(&tape, &batch)?;
                tape.value(scores).to_vec(device)
            })?;
            let (asked, of_asked) = batch.rows_asked_for(&values, n_outputs);
            ids.extend(asked);
            rows.extend(of_asked);
        }
        group.gather_rows(vertices, &ids, rows, n_outputs)
    })
}

/// Logits of all vertices, `[n_vertices, n_classes]`, layer by layer over full neighbourhoods: each vertex is computed
/// once per layer, in chunks of `chunk` destinations. Holds two layers' activations of all vertices on the device; for
/// a model with a head, those of all layers.
///
/// Errors: `chunk` is 0, `model` has no [`Model::layer_by_layer`], and those of the layers and the device.
pub fn infer_full<D: Device>(
    device: &D,
    model: &dyn Model<D>,
    slicer: &Slicer<D::Scalar>,
    chunk: usize,
    workers: usize,
) -> Result<Vec<D::Scalar>> {
    if chunk == 0 {
        return Err(Error::invalid("chunk", 0, "at least 1"));
    }
    let n_layers = model.n_layers();
    let Some(model) = model.layer_by_layer() else {
        return Err(Error::invalid("model", "not layer by layer", "one with `Model::layer_by_layer`"));
    };
    let n = slicer.dataset().n_vertices();
    // Activations of all vertices: only the last layer's, unless a head needs those of all layers.
    let mut outputs: Vec<Tensor<D>> = Vec::new();
    for layer in 0..n_layers {
        let slicer = slicer.clone();
        let work = move |i: usize| {
            let vertices: Vec<u32> = ((i * chunk) as u32..((i + 1) * chunk).min(n) as u32).collect();
            let block = slicer.full_block(&vertices)?;
            let rows = if layer == 0 { Some(slicer.input(&block)?) } else { None };
            Ok((block, rows))
        };
        let out = by_chunks(device, n, chunk, workers, work, |tape, (block, rows)| {
            let block = Arc::new(Block::from_host(device, block)?);
            let input = match (rows, outputs.last()) {
                (Some(rows), _) => Input::new(tape, &rows.to_device(device)?),
                (None, Some(h)) => Input::Dense(gather(device, h, &block, tape)?),
                (None, None) => Input::Dense(tape.constant(Tensor::zeros(device, block.n_src(), 0)?)),
            };
            model.forward_layer(tape, layer, &block, &input)
        })?;
        if !model.has_head() {
            outputs.clear();
        }
        outputs.extend(out);
    }
    if model.has_head() && !outputs.is_empty() {
        let slicer = slicer.clone();
        let work = move |i: usize| {
            let vertices: Vec<u32> = ((i * chunk) as u32..((i + 1) * chunk).min(n) as u32).collect();
            let rows = slicer.rows(&vertices)?;
            Ok((vertices, rows))
        };
        let logits = by_chunks(device, n, chunk, workers, work, |tape, (vertices, rows)| {
            let index = device.upload(&vertices)?;
            let mut stages = vec![Input::new(tape, &rows.to_device(device)?)];
            for h in &outputs {
                let mut rows = Tensor::allocate(device, vertices.len(), h.cols())?;
                device.gather(h.view(), h.rows(), D::view(&index), rows.make_mut(device)?)?;
                stages.push(Input::Dense(tape.constant(rows)));
            }
            model.forward_head(tape, vertices.len(), &stages)
        })?;
        outputs.extend(logits);
    }
    outputs.last().map_or_else(|| Ok(Vec::new()), |logits| logits.to_vec(device))
}

/// `[n, cols]`: the rows that `compute` makes of what `work` has prepared, chunk by chunk of at most `chunk` rows.
/// `None` if `n` is 0.
fn by_chunks<D: Device, T: Send + 'static>(
    device: &D,
    n: usize,
    chunk: usize,
    workers: usize,
    work: impl Fn(usize) -> Result<T> + Send + Sync + 'static,
    compute: impl Fn(&Tape<D>, T) -> Result<crate::tape::Var> + Sync,
) -> Result<Option<Tensor<D>>> {
    let mut out: Option<Tensor<D>> = None;
    let mut filled = 0;
    for item in prepared_ahead::<D, _>(workers, n.div_ceil(chunk), work)? {
        let item = item?;
        let h = computing(&Group::<D>::alone(), || {
            let tape = Tape::inference(device);
            compute(&tape, item).map(|h| tape.value(h))
        })?;
        let all = match &mut out {
            Some(all) => all,
            None => out.insert(Tensor::allocate(device, n, h.cols())?),
        };
        let end = filled + h.rows() * h.cols();
        device.copy(h.view(), D::slice_mut(all.make_mut(device)?.data, filled..end))?;
        filled = end;
    }
    Ok(out)
}

fn gather<D: Device>(
    device: &D,
    h: &Tensor<D>,
    block: &Block<D>,
    tape: &Tape<D>,
) -> Result<crate::tape::Var> {
    let mut rows = Tensor::allocate(device, block.n_src(), h.cols())?;
    device.gather(h.view(), h.rows(), block.src(), rows.make_mut(device)?)?;
    Ok(tape.constant(rows))
}
