//! `out = x + y`; `dx = dy = dout`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `x + y`; same shapes.
    ///
    /// Errors: shapes that differ.
    pub fn add(&self, x: Var, y: Var) -> Result<Var> {
        self.apply(Add, &[x, y])
    }
}

struct Add;

impl<D: Device> Op<D> for Add {
    type Saved = ();

    fn name(&self) -> &'static str {
        "add"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, y) = (inputs[0], inputs[1]);
        crate::device::check_same_shape("add", "x", x.shape(), "y", y.shape())?;
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        device.copy(x.view(), out.make_mut(device)?.data)?;
        device.scale(1.0, y.view(), out.make_mut(device)?.data, Write::Add)?;
        Ok((out, ()))
    }

    fn backward(&self, _: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![step.wanted[0].then(|| step.gradient.clone()), step.wanted[1].then_some(step.gradient)])
    }
}
