//! Named parameters and their initialisation.

use std::collections::HashMap;
use std::path::Path;

use super::tensor_file::{self, TensorFile};
use crate::device::{Device, Scalar, Storage, check_same_shape};
use crate::error::{Error, Result};
use crate::rng;
use crate::tape::{BatchStatistics, ParameterId};
use crate::tensor::Tensor;

/// A tensor that a model owns.
#[derive(Debug)]
pub struct Parameter<D: Storage> {
    /// Unique, such as `layers.0.weight`.
    pub name: String,
    /// The layer that it belongs to, from 0 at the input.
    pub layer: usize,
    /// Whether the optimiser changes it; running statistics of batch norms are not trained.
    pub trainable: bool,
    /// The value.
    pub value: Tensor<D>,
}

/// How a new parameter is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initializer {
    /// The same number everywhere.
    Constant(f64),
    /// Uniform in ±√(6 / (rows + columns)) (Glorot & Bengio 2010).
    Glorot,
    /// Uniform in ±bound.
    Bounded {
        /// The largest absolute value.
        bound: f64,
    },
    /// Uniform in ±√(1 / fan-in) with the given fan-in, PyTorch's choice for linear layers.
    Uniform {
        /// Number of inputs of each output.
        fan_in: usize,
    },
}

/// The parameters of a model, in order of creation.
#[derive(Debug)]
pub struct Parameters<D: Storage> {
    entries: Vec<Parameter<D>>,
    seed: u64,
}

impl<D: Device> Parameters<D> {
    /// No parameters yet; initial values will be drawn from `seed`.
    pub fn new(seed: u64) -> Self {
        Parameters { entries: Vec::new(), seed }
    }

    /// Adds a trainable `[rows, cols]` parameter, `layers.{layer}.{name}`. Its initial values are a function of the
    /// seed and of the number of parameters added before it.
    ///
    /// Errors: there is a parameter of this name already, the matrix does not fit in memory, or the device fails.
    pub fn add(
        &mut self,
        device: &D,
        layer: usize,
        name: &str,
        [rows, cols]: [usize; 2],
        initializer: Initializer,
    ) -> Result<ParameterId> {
        let bound = match initializer {
            Initializer::Constant(_) => 0.0,
            Initializer::Glorot => (6.0 / (rows as f64 + cols as f64).max(1.0)).sqrt(),
            Initializer::Bounded { bound } => bound,
            Initializer::Uniform { fan_in } => (1.0 / fan_in.max(1) as f64).sqrt(),
        };
        let name = format!("layers.{layer}.{name}");
        // A checkpoint holds one matrix of each name. Only names of one layer can be equal.
        if self.entries.iter().any(|p| p.layer == layer && p.name == name) {
            return Err(Error::invalid("parameter name", name, "one that no other parameter has"));
        }
        let n_bytes = rows as u128 * cols as u128 * size_of::<D::Scalar>() as u128;
        let mut values: Vec<D::Scalar> = Vec::new();
        if n_bytes > isize::MAX as u128 || values.try_reserve_exact(rows * cols).is_err() {
            let expected = "a matrix that fits in memory";
            let size = format!("a matrix of {rows} × {cols}, {n_bytes} bytes");
            return Err(Error::invalid("a parameter", format!("{name}: {size}"), expected));
        }
        let stream = rng::Purpose::Parameters.stream(self.entries.len() as u32);
        let initial = (0..(rows * cols) as u64)
            .map(|i| match initializer {
                Initializer::Constant(value) => value,
                _ => bound * (2.0 * rng::uniform(self.seed, stream, i) - 1.0),
            })
            .map(D::Scalar::from_f64);
        values.extend(initial);
        self.entries.push(Parameter {
            name,
            layer,
            trainable: true,
            value: Tensor::from_slice(device, rows, cols, &values)?,
        });
        Ok(ParameterId::new(self.entries.len() - 1))
    }

    /// Adds a `[1, dim]` running statistic, which is saved but not trained; all its elements are `value` at first.
    ///
    /// Errors: there is a parameter of this name already, or the device fails or is out of memory.
    pub fn add_statistic(
        &mut self,
        device: &D,
        layer: usize,
        name: &str,
        dim: usize,
        value: f64,
    ) -> Result<ParameterId> {
        let id = self.add(device, layer, name, [1, dim], Initializer::Constant(value))?;
        self.entries[id.index()].trainable = false;
        Ok(id)
    }

    /// The parameter with this id. Panics if there is none, as for the id of a larger model.
    pub fn get(&self, id: ParameterId) -> &Parameter<D> {
        &self.entries[id.index()]
    }

    /// All, in order of creation.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (ParameterId, &Parameter<D>)> {
        self.entries.iter().enumerate().map(|(i, p)| (ParameterId::new(i), p))
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Number of elements of all trainable parameters.
    pub fn n_trainable(&self) -> usize {
        self.entries.iter().filter(|p| p.trainable).map(|p| p.value.rows() * p.value.cols()).sum()
    }

    /// Replaces a parameter's value.
    ///
    /// Errors: there is no parameter with this id, or `value` has another shape than it.
    pub fn set(&mut self, id: ParameterId, value: Tensor<D>) -> Result<()> {
        self.check_shape("set parameter", id, &value)?;
        self.entries[id.index()].value = value;
        Ok(())
    }

    /// `Ok` if there is a parameter with this id, and `value` has its shape.
    fn check_shape(&self, op: &'static str, id: ParameterId, value: &Tensor<D>) -> Result<()> {
        let Some(entry) = self.entries.get(id.index()) else {
            let expected = format!("below the model's number of parameters, {}", self.entries.len());
            return Err(Error::invalid("parameter id", id.index(), expected));
        };
        check_same_shape(op, "parameter", entry.value.shape(), "value", value.shape())
    }

    /// The parameter with this name, such as `layers.0.weight`.
    ///
    /// Errors: there is none.
    pub fn find(&self, name: &str) -> Result<ParameterId> {
        let position = self.entries.iter().position(|p| p.name == name);
        position.map(ParameterId::new).ok_or_else(|| {
            let names: Vec<&str> = self.entries.iter().map(|p| p.name.as_str()).collect();
            Error::invalid("parameter name", name, format!("one of {}", names.join(", ")))
        })
    }

    /// Writes all values, statistics included, to a safetensors file under the parameters' names.
    ///
    /// Errors: the file cannot be written, or the device fails.
    pub fn save(&self, device: &D, path: &Path) -> Result<()> {
        let named = self.entries.iter().map(|p| (p.name.clone(), &p.value));
        tensor_file::write(device, path, named, HashMap::new())
    }

    /// Reads what [`save`](Parameters::save) wrote.
    ///
    /// Errors: the file cannot be read or is not safetensors, it has other matrices than the model has parameters, or
    /// one of another shape or number type; nothing is changed then.
    pub fn load(&mut self, device: &D, path: &Path) -> Result<()> {
        let file = TensorFile::read(path)?;
        let tensors = file.tensors()?;
        if tensors.len() != self.entries.len() {
            let problem =
                format!("has {} matrices, the model {} parameters", tensors.len(), self.entries.len());
            return Err(Error::format(path, problem));
        }
        let values = self.entries.iter().map(|p| tensors.get(device, &p.name, p.value.shape()));
        let values: Vec<Tensor<D>> = values.collect::<Result<_>>()?;
        for (entry, value) in self.entries.iter_mut().zip(values) {
            entry.value = value;
        }
        Ok(())
    }

    /// All values, in order of creation.
    pub(super) fn values_mut(&mut self) -> impl ExactSizeIterator<Item = &mut Tensor<D>> {
        self.entries.iter_mut().map(|p| &mut p.value)
    }

    fn value_mut(&mut self, id: ParameterId) -> &mut Tensor<D> {
        &mut self.entries[id.index()].value
    }

    /// Moves running statistics a tenth of the way towards those of a batch.
    ///
    /// Errors: a statistic names a parameter that is not one of these or has another shape than it (nothing is changed
    /// then), or the device fails.
    pub fn update_statistics(&mut self, device: &D, batch: &[BatchStatistics<D>]) -> Result<()> {
        const MOMENTUM: f64 = 0.1;
        use crate::device::Write;
        let pairs = |statistics: &'_ BatchStatistics<D>| {
            let [mean, variance] = statistics.running;
            [(mean, statistics.mean.clone()), (variance, statistics.variance.clone())]
        };
        for (id, new) in batch.iter().flat_map(pairs) {
            self.check_shape("update statistics", id, &new)?;
        }
        for statistics in batch {
            for (id, new) in pairs(statistics) {
                let old = self.get(id).value.clone();
                let mut value = Tensor::allocate(device, old.rows(), old.cols())?;
                device.scale(1.0 - MOMENTUM, old.view(), value.make_mut(device)?.data, Write::Assign)?;
                device.scale(MOMENTUM, new.view(), value.make_mut(device)?.data, Write::Add)?;
                *self.value_mut(id) = value;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;

    type Host = Cpu<f64>;

    fn parameters(cpu: &Host) -> Parameters<Host> {
        let mut parameters = Parameters::new(0);
        parameters.add(cpu, 1, "weight", [2, 3], Initializer::Constant(1.0)).unwrap();
        for name in ["running_mean", "running_variance"] {
            parameters.add_statistic(cpu, 1, name, 3, 1.0).unwrap();
        }
        parameters
    }

    #[test]
    fn a_name_belongs_to_one_parameter() {
        let cpu = Host::new();
        let mut parameters = parameters(&cpu);
        for name in ["weight", "running_mean"] {
            let error = parameters.add(&cpu, 1, name, [1, 1], Initializer::Glorot).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument: "parameter name", .. }), "{error}");
            assert!(parameters.add_statistic(&cpu, 1, name, 1, 0.0).is_err());
        }
        assert_eq!(parameters.len(), 3);
        parameters.add(&cpu, 0, "weight", [1, 1], Initializer::Glorot).unwrap();
    }

    #[test]
    fn values_of_other_parameters_and_shapes_are_errors() {
        let cpu = Host::new();
        let mut parameters = parameters(&cpu);
        let twos = |rows, cols| Tensor::from_slice(&cpu, rows, cols, &vec![2.0; rows * cols]).unwrap();
        assert!(parameters.set(ParameterId::new(3), twos(2, 3)).is_err());
        for (rows, cols) in [(3, 2), (2, 2), (0, 0)] {
            assert!(parameters.set(ParameterId::new(0), twos(rows, cols)).is_err());
        }
        let values = |parameters: &Parameters<Host>| {
            parameters.iter().flat_map(|(_, p)| p.value.to_vec(&cpu).unwrap()).collect::<Vec<f64>>()
        };
        let statistics = |running: [usize; 2], [mean, variance]: [Tensor<Host>; 2]| BatchStatistics {
            running: running.map(ParameterId::new),
            mean,
            variance,
        };
        for wrong in [
            statistics([1, 3], [twos(1, 3), twos(1, 3)]),
            statistics([1, 2], [twos(1, 3), twos(1, 4)]),
            statistics([1, 2], [twos(1, 2), twos(1, 3)]),
            statistics([1, 2], [twos(1, 3), twos(3, 1)]),
        ] {
            assert!(parameters.update_statistics(&cpu, &[wrong]).is_err());
            assert_eq!(values(&parameters), [1.0; 12]);
        }
        parameters.update_statistics(&cpu, &[statistics([1, 2], [twos(1, 3), twos(1, 3)])]).unwrap();
        assert_eq!(values(&parameters)[6..], [0.9 + 0.2; 6]);
    }
}
