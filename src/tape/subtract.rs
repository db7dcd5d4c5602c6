//! `out = x − y`; `dx = dout`, `dy = −dout`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `x − y`, element by element; same shapes.
    ///
    /// Errors: shapes that differ.
    pub fn subtract(&self, x: Var, y: Var) -> Result<Var> {
        self.apply(Subtract, &[x, y])
    }
}

struct Subtract;

impl<D: Device> Op<D> for Subtract {
    type Saved = ();

    fn name(&self) -> &'static str {
        "subtract"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, y) = (inputs[0], inputs[1]);
        check_same_shape("subtract", "x", x.shape(), "y", y.shape())?;
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        device.copy(x.view(), out.make_mut(device)?.data)?;
        device.scale(-1.0, y.view(), out.make_mut(device)?.data, Write::Add)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let dout = step.gradient;
        let mut dy = None;
        if step.wanted[1] {
            let mut negative = Tensor::allocate(device, dout.rows(), dout.cols())?;
            device.scale(-1.0, dout.view(), negative.make_mut(device)?.data, Write::Assign)?;
            dy = Some(negative);
        }
        Ok(vec![Some(dout), dy])
    }
}
