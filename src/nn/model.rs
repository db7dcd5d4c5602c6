//! What a trainer trains.

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
/// [`Stack`](super::Stack) is the built-in one. For one of one's own two methods are the heart:
/// [`forward`](Model::forward) records on a tape what becomes of a batch, and [`parameters`](Model::parameters) holds
/// what the optimiser changes.
pub trait Model<D: Device>: Debug + Send + Sync {
    /// The parameters.
    fn parameters(&self) -> &Parameters<D>;

    /// The parameters, to be changed.
    fn parameters_mut(&mut self) -> &mut Parameters<D>;

    /// Number of layers, which is that of the blocks of a batch.
    fn n_layers(&self) -> usize;

    /// Number of columns of the scores: classes.
    fn n_outputs(&self) -> usize;

    /// Scores of the seeds: `[n_dst of the last block, n_outputs]`.
    ///
    /// Between two layers, activations pass through [`Batch::sources`]. Where processing elements cooperate, that is
    /// collective, so a model must do the same on each of them, whatever its batch holds. Errors: a batch that does not
    /// fit the model, and those of the operations.
    fn forward(&self, tape: &Tape<D>, batch: &Batch<D>) -> Result<Var>;

    /// What batches must hold for it.
    fn needs(&self) -> BatchNeeds {
        BatchNeeds::default()
    }

    /// The same model as one layer after the other, if it is such a thing: predictions over full neighbourhoods then
    /// compute each vertex once a layer, instead of once for every batch that reaches it.
    fn layer_by_layer(&self) -> Option<&dyn LayerByLayer<D>> {
        None
    }
}

/// A model that all vertices can go through one layer at a time.
pub trait LayerByLayer<D: Device>: Send + Sync {
    /// Layer `layer` with all that stands between it and its neighbours: `x: [n_src, in]` to `[n_dst, out]`. Errors: as
    /// of [`Model::forward`].
    fn forward_layer(&self, tape: &Tape<D>, layer: usize, block: &Arc<Block<D>>, x: &Input<D>)
    -> Result<Var>;

    /// Whether scores come not from the last layer but from [`forward_head`](LayerByLayer::forward_head).
    fn has_head(&self) -> bool {
        false
    }

    /// Scores `[rows, n_outputs]` of the vertices that the first `rows` rows of each of `stages` belong to: the input,
    /// and what [`forward_layer`](LayerByLayer::forward_layer) gave for each layer. Errors: a model without a head.
    fn forward_head(&self, _tape: &Tape<D>, _rows: usize, _stages: &[Input<D>]) -> Result<Var> {
        Err(no_head())
    }
}

/// The error for a model whose last layer gives the scores.
pub(super) fn no_head() -> crate::Error {
    crate::Error::invalid("model", "without a head", "one whose layers feed a head")
}
