//! Models: what a trainer trains.

use std::fmt::Debug;
use std::sync::Arc;

use super::{Input, Parameters};
use crate::batch::{Batch, BatchNeeds};
use crate::block::Block;
use crate::device::Device;
use crate::error::Result;
use crate::tape::{Tape, Var};

/// A model: parameters, and scores of a batch's seeds as a function of them.
///
/// [`Stack`](super::Stack) is the built-in one. In a model of your own, two methods matter most:
/// [`forward`](Model::forward) records on a tape how scores follow from a batch, and
/// [`parameters`](Model::parameters) returns what the optimiser changes.
pub trait Model<D: Device>: Debug + Send + Sync {
    /// The parameters.
    fn parameters(&self) -> &Parameters<D>;

    /// The parameters, to be changed.
    fn parameters_mut(&mut self) -> &mut Parameters<D>;

    /// Number of layers; a batch has as many blocks.
    fn n_layers(&self) -> usize;

    /// Number of columns of the scores: one per class.
    fn n_outputs(&self) -> usize;

    /// Scores of the seeds: `[n_dst of the last block, n_outputs]`.
    ///
    /// Between two layers, activations must pass through [`Batch::sources`]. If processing elements cooperate, that
    /// call is collective, so a model must do the same on each of them, whatever its batch holds.
    ///
    /// Errors: the batch does not fit the model, and those of the operations.
    fn forward(&self, tape: &Tape<D>, batch: &Batch<D>) -> Result<Var>;

    /// What its batches must contain.
    fn needs(&self) -> BatchNeeds {
        BatchNeeds::default()
    }

    /// The same model, one layer after the other, if it can be computed like that. Predictions over full neighbourhoods
    /// then compute each vertex once per layer, instead of once for every batch that reaches it.
    fn layer_by_layer(&self) -> Option<&dyn LayerByLayer<D>> {
        None
    }
}

/// A model that can be computed layer by layer: one layer for all vertices, then the next.
pub trait LayerByLayer<D: Device>: Send + Sync {
    /// Layer `layer`, with what comes before it (embedding, dropout) and after it (activation): from `x: [n_src, in]`
    /// to `[n_dst, out]`.
    ///
    /// Errors: `block` or `x` does not fit the layer, and those of the operations.
    fn forward_layer(&self, tape: &Tape<D>, layer: usize, block: &Arc<Block<D>>, x: &Input<D>)
    -> Result<Var>;

    /// Whether scores come not from the last layer but from [`forward_head`](LayerByLayer::forward_head).
    fn has_head(&self) -> bool {
        false
    }

    /// Scores `[rows, n_outputs]` of the vertices in the first `rows` rows of each of `stages`, which are the input and
    /// the output of [`forward_layer`](LayerByLayer::forward_layer) for each layer.
    ///
    /// Errors: the model has no head, or `stages` does not fit it.
    fn forward_head(&self, _tape: &Tape<D>, _rows: usize, _stages: &[Input<D>]) -> Result<Var> {
        Err(no_head())
    }
}

/// The error for a model whose last layer gives the scores.
pub(super) fn no_head() -> crate::Error {
    crate::Error::invalid("model", "without a head", "one whose layers feed a head")
}
