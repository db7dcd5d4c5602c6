//! `out = x / y`; `dx = dout / y`, `dy = −dout ⊙ out / y`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `x / y`, element by element; same shapes.
    ///
    /// Where `y` is 0, values and gradients are what IEEE arithmetic says: infinite, or NaN for `0 / 0`. This is not an
    /// error: if `y` can be 0, add a small number to it first.
    ///
    /// Errors: shapes that differ.
    pub fn divide(&self, x: Var, y: Var) -> Result<Var> {
        self.apply(Divide, &[x, y])
    }
}

/// `alpha · x / y` in new memory.
fn quotient<D: Device>(device: &D, alpha: f64, x: &Tensor<D>, y: &Tensor<D>) -> Result<Tensor<D>> {
    let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
    device.divide(alpha, x.view(), y.view(), out.make_mut(device)?.data, Write::Assign)?;
    Ok(out)
}

struct Divide;

impl<D: Device> Op<D> for Divide {
    type Saved = ();

    fn name(&self) -> &'static str {
        "divide"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, y) = (inputs[0], inputs[1]);
        check_same_shape("divide", "x", x.shape(), "y", y.shape())?;
        let out = quotient(device, 1.0, x, y)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (y, out, dout) = (step.inputs[1], step.output, &step.gradient);
        let dx = step.wanted[0].then(|| quotient(device, 1.0, dout, y)).transpose()?;
        let mut dy = None;
        if step.wanted[1] {
            let mut product = Tensor::allocate(device, out.rows(), out.cols())?;
            device.multiply(dout.view(), out.view(), product.make_mut(device)?.data, Write::Assign)?;
            dy = Some(quotient(device, -1.0, &product, y)?);
        }
        Ok(vec![dx, dy])
    }
}
