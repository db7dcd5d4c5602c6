//! `out = f(x)`; `dx = f'(x) ⊙ dout`, where `f'` follows from `out`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `f(x)` for each element. After a [`linear`](Tape::linear), give the activation to `linear` instead, which saves
    /// a copy.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn activate(&self, x: Var, activation: Activation) -> Result<Var> {
        self.apply(Activate(activation), &[x])
    }

    /// `f(x + bias)`; `bias: [1, x.cols]`.
    ///
    /// Errors: `bias` does not have one element per column of `x`.
    pub fn add_bias(&self, x: Var, bias: Var, activation: Option<Activation>) -> Result<Var> {
        self.apply(AddBias(activation), &[x, bias])
    }
}

fn copy<D: Device>(device: &D, x: &Tensor<D>) -> Result<Tensor<D>> {
    let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
    device.copy(x.view(), out.make_mut(device)?.data)?;
    Ok(out)
}

struct Activate(Activation);

impl<D: Device> Op<D> for Activate {
    type Saved = ();

    fn name(&self) -> &'static str {
        "activate"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let mut out = copy(device, inputs[0])?;
        device.add_bias_activate(None, Some(self.0), out.make_mut(device)?)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut dx = step.gradient;
        device.activate_backward(self.0, step.output.view(), dx.make_mut(device)?.data)?;
        Ok(vec![Some(dx)])
    }
}

struct AddBias(Option<Activation>);

impl<D: Device> Op<D> for AddBias {
    type Saved = ();

    fn name(&self) -> &'static str {
        "add_bias"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let mut out = copy(device, inputs[0])?;
        device.add_bias_activate(Some(inputs[1].view()), self.0, out.make_mut(device)?)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut dx = step.gradient;
        if let Some(activation) = self.0 {
            device.activate_backward(activation, step.output.view(), dx.make_mut(device)?.data)?;
        }
        let mut db = Tensor::allocate(device, 1, dx.cols())?;
        device.sum_rows(dx.matrix(), db.make_mut(device)?.data, crate::device::Write::Assign)?;
        Ok(vec![Some(dx), Some(db)])
    }
}
