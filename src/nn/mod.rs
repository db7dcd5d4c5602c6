//! Layers, models and their optimisation.

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

pub use gat::{Gat, Gatv2, Heads};
pub use gcn::Gcn;
pub use gin::Gin;
pub use input::{Input, OneHot};
pub use model::{Model, ModelConfig, ModelKind};
pub use optimizer::{Optimizer, OptimizerConfig};
pub use parameters::{Initializer, Parameter, ParameterId, Parameters};
pub use relation_weight::{Decomposition, RelationWeight, Root};
pub use rgat::{Rgat, RgatOptions};
pub use rgcn::Rgcn;
pub use sage::{Aggregator, GraphSage};
pub use sage_ri::{SageRi, SageRiHead};

use std::sync::Arc;

use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::{Tape, Var};

/// A graph layer: from the features of a block's sources to those of its destinations.
pub trait Layer<D: Device>: std::fmt::Debug + Send + Sync {
    /// `x: [n_src, in]` to `[n_dst, out]`, of whose elements the `activation` is taken.
    fn forward(
        &self,
        pass: &Pass<'_, D>,
        block: &Arc<Block<D>>,
        x: &Input<D>,
        activation: Option<Activation>,
    ) -> Result<Var>;
}

/// `f(x)`, if there is an activation.
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
    /// A parameter on the tape.
    pub fn parameter(&self, id: ParameterId) -> Var {
        self.tape.parameter(id.index(), &self.parameters.get(id).value)
    }
}
