//! The result of a backward pass: the gradients of a tape's leaves.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Gradient, ParameterId, RowGradient, Var};
use crate::device::{Device, FeatureElement, Storage, Write, check_same_shape};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What [`Tape::backward`](super::Tape::backward) returns.
#[derive(Debug)]
pub struct Gradients<D: Storage> {
    pub(super) leaves: HashMap<Var, Gradient<D>>,
    pub(super) parameters: HashMap<ParameterId, Var>,
}

impl<D: Device> Gradients<D> {
    /// Gradients of parameters, made without a tape.
    pub(crate) fn of_parameters(gradients: impl IntoIterator<Item = (ParameterId, Gradient<D>)>) -> Self {
        let (mut leaves, mut parameters) = (HashMap::new(), HashMap::new());
        for (id, gradient) in gradients {
            let var = Var { tape: Var::NO_TAPE, index: id.index() };
            leaves.insert(var, gradient);
            parameters.insert(id, var);
        }
        Gradients { leaves, parameters }
    }

    /// The gradient of a leaf; `None` if the loss does not depend on it, or if the gradient is row-sparse because the
    /// leaf is only read by [`lookup`](super::Tape::lookup) and the like ([`get`](Gradients::get) returns it then).
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
    ///
    /// Errors: the device fails or is out of memory.
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

    /// Multiplies all gradients by `factor`.
    ///
    /// Errors: `factor` is not finite, and those of the device.
    pub fn scale(&mut self, device: &D, factor: f64) -> Result<()> {
        if !factor.is_finite() {
            return Err(Error::invalid("factor", factor, "a finite number"));
        }
        for gradient in self.leaves.values_mut() {
            let values = gradient.values_mut();
            let mut scaled = Tensor::allocate(device, values.rows(), values.cols())?;
            device.scale(factor, values.view(), scaled.make_mut(device)?.data, Write::Assign)?;
            *values = scaled;
        }
        Ok(())
    }

    /// The Euclidean norm of all parameters' gradients together, added up in `f64` in order of their ids.
    ///
    /// Errors: those of the device.
    pub fn norm(&self, device: &D) -> Result<f64> {
        let parameters = self.parameters();
        let columns = |gradient: &Gradient<D>| gradient.values().cols();
        // All are read together, as a read may mean a wait.
        let n = parameters.iter().map(|(_, gradient)| columns(gradient)).sum();
        let mut squares = Tensor::allocate(device, 1, n)?;
        let mut end = 0;
        for (_, gradient) in &parameters {
            let (values, start) = (gradient.values(), end);
            end += values.cols();
            let zeros = Tensor::zeros(device, 1, values.cols())?;
            let out = D::slice_mut(squares.make_mut(device)?.data, start..end);
            device.sum_squared_deviation(values.matrix(), zeros.view(), out)?;
        }
        let squares = squares.to_vec(device)?;
        let (mut sum, mut rest) = (0.0, &squares[..]);
        for (_, gradient) in &parameters {
            let (own, later) = rest.split_at(columns(gradient));
            sum += own.iter().map(|square| square.widen_f64()).sum::<f64>();
            rest = later;
        }
        Ok(sum.sqrt())
    }

    /// Scales all gradients so that their [`norm`](Gradients::norm) is at most `max_norm`, and returns the norm that
    /// they had before.
    ///
    /// Errors: `max_norm` is not a positive number, the norm is not finite (the gradients are left as they are), and
    /// those of the device.
    pub fn clip_norm(&mut self, device: &D, max_norm: f64) -> Result<f64> {
        if !(max_norm.is_finite() && max_norm > 0.0) {
            return Err(Error::invalid("max_norm", max_norm, "a positive number"));
        }
        let norm = self.norm(device)?;
        if !norm.is_finite() {
            return Err(Error::invalid("norm of the gradients", norm, "a finite number"));
        }
        if norm > max_norm {
            self.scale(device, max_norm / norm)?;
        }
        Ok(norm)
    }

    /// Adds the parameters' gradients of another backward pass, such as that of the next part of a large batch. Other
    /// leaves' gradients are left alone.
    ///
    /// Errors: a parameter has gradients of different shapes (nothing is changed then), and those of the device.
    pub fn accumulate(&mut self, device: &D, other: Self) -> Result<()> {
        let Gradients { mut leaves, parameters } = other;
        let mut parameters: Vec<_> = parameters.into_iter().collect();
        parameters.sort_unstable_by_key(|&(id, _)| id);
        for (id, var) in &parameters {
            if let (Some(own), Some(new)) = (self.get_parameter(*id), leaves.get(var)) {
                check_same_shape("accumulate", "gradient", own.shape(), "other", new.shape())?;
            }
        }
        for (id, var) in parameters {
            let Some(new) = leaves.remove(&var) else { continue };
            let own = *self.parameters.entry(id).or_insert(Var { tape: Var::NO_TAPE, index: id.index() });
            match self.leaves.entry(own) {
                Entry::Vacant(place) => _ = place.insert(new),
                Entry::Occupied(mut sum) => sum.get_mut().add(device, new)?,
            }
        }
        Ok(())
    }
}

impl<D: Device> Gradient<D> {
    /// The numbers that it holds: all of them, or those of the rows that are not zero.
    fn values(&self) -> &Tensor<D> {
        match self {
            Gradient::Dense(values) => values,
            Gradient::Rows(rows) => rows.values(),
        }
    }

    fn values_mut(&mut self) -> &mut Tensor<D> {
        match self {
            Gradient::Dense(values) => values,
            Gradient::Rows(rows) => rows.values_mut(),
        }
    }

    /// Adds a gradient of the same shape. An error leaves this one as it was, as far as the device does.
    fn add(&mut self, device: &D, other: Self) -> Result<()> {
        let add_rows = |sum: &mut Tensor<D>, rows: &RowGradient<D>| {
            device.scatter_add(rows.values().matrix(), rows.index(), sum.make_mut(device)?)
        };
        match (&mut *self, other) {
            (Gradient::Dense(sum), Gradient::Dense(x)) => {
                device.scale(1.0, x.view(), sum.make_mut(device)?.data, Write::Add)?;
            }
            (Gradient::Dense(sum), Gradient::Rows(rows)) => add_rows(sum, &rows)?,
            (Gradient::Rows(rows), Gradient::Rows(more)) => *rows = rows.merge(device, &more)?,
            (Gradient::Rows(rows), Gradient::Dense(mut sum)) => {
                add_rows(&mut sum, rows)?;
                *self = Gradient::Dense(sum);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
