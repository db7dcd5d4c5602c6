//! `out = f(x)`, element by element. `√x`: `dx = dout / (2 · out)`; `exp(x)`: `dx = dout ⊙ out`; `ln(x)`:
//! `dx = dout / x`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Function, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `√x`, element by element.
    ///
    /// Below 0 both value and gradient are NaN. At 0 the gradient is infinite, as the slope is, and NaN where `dout`
    /// is 0: if `x` can be 0, add a small number to it first.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn square_root(&self, x: Var) -> Result<Var> {
        self.apply(Map(Function::SquareRoot), &[x])
    }

    /// `exp(x)`, element by element; infinite where it overflows.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn exponential(&self, x: Var) -> Result<Var> {
        self.apply(Map(Function::Exponential), &[x])
    }

    /// `ln(x)`, element by element. At 0 the value is `−∞`, and the gradient infinite or NaN; below 0 the value is NaN.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn logarithm(&self, x: Var) -> Result<Var> {
        self.apply(Map(Function::Logarithm), &[x])
    }
}

struct Map(Function);

impl<D: Device> Op<D> for Map {
    type Saved = ();

    fn name(&self) -> &'static str {
        match self.0 {
            Function::SquareRoot => "square_root",
            Function::Exponential => "exponential",
            Function::Logarithm => "logarithm",
        }
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let mut out = Tensor::allocate(device, inputs[0].rows(), inputs[0].cols())?;
        device.map(self.0, inputs[0].view(), out.make_mut(device)?.data)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, out, dout) = (step.inputs[0], step.output, &step.gradient);
        let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
        let data = dx.make_mut(device)?.data;
        match self.0 {
            Function::SquareRoot => device.divide(0.5, dout.view(), out.view(), data, Write::Assign)?,
            Function::Exponential => device.multiply(dout.view(), out.view(), data, Write::Assign)?,
            Function::Logarithm => device.divide(1.0, dout.view(), x.view(), data, Write::Assign)?,
        }
        Ok(vec![Some(dx)])
    }
}
