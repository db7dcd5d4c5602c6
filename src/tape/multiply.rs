//! `out = x ⊙ y`; `dx = dout ⊙ y`, `dy = dout ⊙ x`. And `out = x ⊙ x`; `dx = 2 · x ⊙ dout`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `x ⊙ y`, element by element; same shapes.
    ///
    /// Errors: shapes that differ.
    pub fn multiply(&self, x: Var, y: Var) -> Result<Var> {
        self.apply(Multiply, &[x, y])
    }

    /// `x ⊙ x`, of the shape of `x`.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn square(&self, x: Var) -> Result<Var> {
        self.apply(Square, &[x])
    }
}

/// `x ⊙ y` in new memory.
fn product<D: Device>(device: &D, x: &Tensor<D>, y: &Tensor<D>) -> Result<Tensor<D>> {
    let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
    device.multiply(x.view(), y.view(), out.make_mut(device)?.data, Write::Assign)?;
    Ok(out)
}

struct Multiply;

impl<D: Device> Op<D> for Multiply {
    type Saved = ();

    fn name(&self) -> &'static str {
        "multiply"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, y) = (inputs[0], inputs[1]);
        check_same_shape("multiply", "x", x.shape(), "y", y.shape())?;
        let out = product(device, x, y)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, y, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        let dx = step.wanted[0].then(|| product(device, dout, y)).transpose()?;
        let dy = step.wanted[1].then(|| product(device, dout, x)).transpose()?;
        Ok(vec![dx, dy])
    }
}

struct Square;

impl<D: Device> Op<D> for Square {
    type Saved = ();

    fn name(&self) -> &'static str {
        "square"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let out = product(device, inputs[0], inputs[0])?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, dout) = (step.inputs[0], &step.gradient);
        let mut dx = product(device, dout, x)?;
        device.multiply(dout.view(), x.view(), dx.make_mut(device)?.data, Write::Add)?;
        Ok(vec![Some(dx)])
    }
}
