//! Layers, models and their optimisation.

mod config;
mod gat;
mod gcn;
mod gin;
pub mod gradcheck;
mod input;
mod model;
mod optimizer;
mod parameters;
mod relation_weight;
mod rgat;
mod rgcn;
mod sage;
mod sage_ri;
mod stack;
pub(crate) mod tensor_file;

pub use config::{MAX_LAYERS, MAX_WIDTH, ModelConfig, ModelKind};
pub use gat::{Gat, Gatv2, Heads};
pub use gcn::Gcn;
pub use gin::Gin;
pub use input::{Aggregated, Input, Sliced};
pub use model::{LayerByLayer, Model};
pub use optimizer::{Optimizer, OptimizerConfig};
pub use parameters::{Initializer, Parameter, Parameters};
pub use relation_weight::{Decomposition, RelationWeight, Root};
pub use rgat::{Rgat, RgatOptions};
pub use rgcn::Rgcn;
pub use sage::{Aggregator, GraphSage};
pub use sage_ri::{SageRi, SageRiHead};
pub use stack::{Between, Stack};

pub use crate::tape::ParameterId;

use std::sync::Arc;

use crate::block::{Block, RelationNeeds};
use crate::coop::InputTerms;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::{Aggregate, Tape, Var};

/// A graph layer: from the features of a block's sources to those of its destinations.
pub trait Layer<D: Device>: std::fmt::Debug + Send + Sync {
    /// From `x: [n_src, in]` to `[n_dst, out]`, with the `activation` applied to each element of the result.
    ///
    /// Errors: `x` is of a kind or shape that the layer does not take, `block` lacks what the layer needs, or an
    /// operation fails.
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var>;

    /// Whether its blocks must hold their sources' in-degrees in the graph.
    fn needs_degrees(&self) -> bool {
        false
    }

    /// Whether its blocks must hold their edges' numbers in the graph.
    fn needs_edge_ids(&self) -> bool {
        false
    }

    /// What it needs of its blocks' edges by relation, to be made while batches are prepared. `None`: nothing.
    fn relation_needs(&self) -> Option<RelationNeeds> {
        None
    }

    /// The aggregation with which the layer begins on dense rows. A source of batches may then aggregate while it
    /// gathers the rows, and the layer must accept the result instead of the rows ([`Input::aggregated`]). `None`: the
    /// layer does not begin with a linear aggregation, or a product first moves fewer bytes.
    fn input_aggregate(&self) -> Option<Aggregate> {
        None
    }

    /// The linear aggregates of dense rows with which the layer begins, if each is followed by a product with a weight.
    /// Processing elements may then share it by columns of the features (P³), and the layer must accept
    /// [`Input::Sliced`] by [`Input::sliced_product`].
    fn input_terms(&self) -> Option<InputTerms> {
        None
    }
}

/// `f(x)`, or `x` itself without an activation.
fn activate<D: Device>(tape: &Tape<D>, x: Var, activation: Option<Activation>) -> Result<Var> {
    activation.map_or(Ok(x), |activation| tape.activate(x, activation))
}

/// What a layer works with: the tape it records on and the parameters it reads.
#[derive(Clone, Copy)]
pub struct Pass<'a, D: Device> {
    /// Records the operations.
    pub tape: &'a Tape<D>,
    /// Holds the layer's parameters.
    pub parameters: &'a Parameters<D>,
}

impl<D: Device> Pass<'_, D> {
    /// A parameter on the tape. Panics if `parameters` has none with this id.
    pub fn parameter(&self, id: ParameterId) -> Var {
        self.tape.parameter(id, &self.parameters.get(id).value)
    }
}
