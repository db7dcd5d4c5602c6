//! `out = [x_0 | x_1 | …]`, or one below the other; the gradient of each is its columns, or rows, of `dout`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Puts matrices of the same number of rows side by side.
    ///
    /// Errors: `parts` is empty, or their numbers of rows differ.
    pub fn concatenate(&self, parts: &[Var]) -> Result<Var> {
        if parts.is_empty() {
            return Err(Error::invalid("parts", "empty", "at least one matrix"));
        }
        self.apply(Concatenate, parts)
    }

    /// Puts matrices of the same number of columns one below the other.
    ///
    /// Errors: `parts` is empty, or their numbers of columns differ.
    pub fn stack(&self, parts: &[Var]) -> Result<Var> {
        if parts.is_empty() {
            return Err(Error::invalid("parts", "empty", "at least one matrix"));
        }
        self.apply(Stack, parts)
    }
}

struct Concatenate;

impl<D: Device> Op<D> for Concatenate {
    type Saved = ();

    fn name(&self) -> &'static str {
        "concatenate"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let rows = inputs[0].rows();
        let mut out = Tensor::allocate(device, rows, inputs.iter().map(|x| x.cols()).sum())?;
        let mut column = 0;
        for x in inputs {
            crate::device::check_same_shape("concatenate", "part", x.shape(), "required", [rows, x.cols()])?;
            device.copy_columns(x.matrix(), 0, out.make_mut(device)?, column, x.cols(), Write::Assign)?;
            column += x.cols();
        }
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut column = 0;
        let mut gradients = Vec::with_capacity(step.inputs.len());
        for (x, &wanted) in step.inputs.iter().zip(step.wanted) {
            gradients.push(if wanted {
                let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
                device.copy_columns(
                    step.gradient.matrix(),
                    column,
                    dx.make_mut(device)?,
                    0,
                    x.cols(),
                    Write::Assign,
                )?;
                Some(dx)
            } else {
                None
            });
            column += x.cols();
        }
        Ok(gradients)
    }
}

struct Stack;

impl<D: Device> Op<D> for Stack {
    type Saved = ();

    fn name(&self) -> &'static str {
        "stack"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let cols = inputs[0].cols();
        let mut out = Tensor::allocate(device, inputs.iter().map(|x| x.rows()).sum(), cols)?;
        let mut begin = 0;
        for x in inputs {
            crate::device::check_same_shape("stack", "part", x.shape(), "required", [x.rows(), cols])?;
            let end = begin + x.rows() * cols;
            device.copy(x.view(), D::slice_mut(out.make_mut(device)?.data, begin..end))?;
            begin = end;
        }
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut begin = 0;
        let mut gradients = Vec::with_capacity(step.inputs.len());
        for (x, &wanted) in step.inputs.iter().zip(step.wanted) {
            let end = begin + x.rows() * x.cols();
            gradients.push(if wanted {
                let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
                device.copy(D::slice(step.gradient.view(), begin..end), dx.make_mut(device)?.data)?;
                Some(dx)
            } else {
                None
            });
            begin = end;
        }
        Ok(gradients)
    }
}
