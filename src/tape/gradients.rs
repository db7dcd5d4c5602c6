//! What a backward pass finds: the gradients of a tape's leaves.

use std::collections::HashMap;

use super::{Gradient, ParameterId, Var};
use crate::device::{Device, Storage};
use crate::error::Result;
use crate::tensor::Tensor;

/// What [`Tape::backward`](super::Tape::backward) returns.
#[derive(Debug)]
pub struct Gradients<D: Storage> {
    pub(super) leaves: HashMap<Var, Gradient<D>>,
    pub(super) parameters: HashMap<ParameterId, Var>,
}

impl<D: Device> Gradients<D> {
    /// Gradients of parameters that are on no tape.
    pub(crate) fn of_parameters(gradients: impl IntoIterator<Item = (ParameterId, Gradient<D>)>) -> Self {
        let (mut leaves, mut parameters) = (HashMap::new(), HashMap::new());
        for (id, gradient) in gradients {
            let var = Var { tape: Var::NO_TAPE, index: id.index() };
            leaves.insert(var, gradient);
            parameters.insert(id, var);
        }
        Gradients { leaves, parameters }
    }

    /// The gradient of a leaf; `None` if the loss does not depend on it, or does so by a
    /// [`lookup`](super::Tape::lookup) alone ([`get`](Gradients::get) has it then).
    pub fn of(&self, leaf: Var) -> Option<&Tensor<D>> {
        match self.get(leaf) {
            Some(Gradient::Dense(gradient)) => Some(gradient),
            Some(Gradient::Rows(_)) | None => None,
        }
    }

    /// The gradient of a leaf, dense or row-sparse; `None` if the loss does not depend on it.
    pub fn get(&self, leaf: Var) -> Option<&Gradient<D>> {
        self.leaves.get(&leaf)
    }

    /// The gradient of a leaf as a matrix, whatever form it has; `None` if the loss does not depend on it.
    pub fn dense(&self, device: &D, leaf: Var) -> Result<Option<Tensor<D>>> {
        self.get(leaf)
            .map(|gradient| match gradient {
                Gradient::Dense(gradient) => Ok(gradient.clone()),
                Gradient::Rows(rows) => rows.to_dense(device),
            })
            .transpose()
    }

    /// The dense gradient of a parameter, as [`of`](Gradients::of).
    pub fn of_parameter(&self, id: ParameterId) -> Option<&Tensor<D>> {
        self.parameters.get(&id).and_then(|&var| self.of(var))
    }

    /// The gradient of a parameter, as [`get`](Gradients::get).
    pub fn get_parameter(&self, id: ParameterId) -> Option<&Gradient<D>> {
        self.parameters.get(&id).and_then(|&var| self.get(var))
    }

    /// The gradients of all parameters that the loss depends on, in order of their ids.
    pub fn parameters(&self) -> Vec<(ParameterId, &Gradient<D>)> {
        let gradients = self.parameters.iter().filter_map(|(&id, &var)| Some((id, self.get(var)?)));
        let mut gradients: Vec<_> = gradients.collect();
        gradients.sort_unstable_by_key(|&(id, _)| id);
        gradients
    }
}
