//! `out = ⟨x, c⟩` for a constant `c`; `dx = dout · c`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, FeatureElement, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The sum of `x ⊙ cotangent`, a number: what a gradient check differentiates.
    ///
    /// Errors: shapes that differ.
    pub fn dot(&self, x: Var, cotangent: Tensor<D>) -> Result<Var> {
        self.apply(Dot { cotangent }, &[x])
    }
}

struct Dot<D: Device> {
    cotangent: Tensor<D>,
}

impl<D: Device> Op<D> for Dot<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "dot"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        crate::device::check_same_shape("dot", "x", inputs[0].shape(), "cotangent", self.cotangent.shape())?;
        let mut out = Tensor::allocate(device, 1, 1)?;
        device.dot(inputs[0].view(), Some(self.cotangent.view()), out.make_mut(device)?.data)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let factor = step.gradient.item(device)?.widen_f64();
        let mut dx = Tensor::allocate(device, self.cotangent.rows(), self.cotangent.cols())?;
        device.scale(factor, self.cotangent.view(), dx.make_mut(device)?.data, Write::Assign)?;
        Ok(vec![Some(dx)])
    }
}
