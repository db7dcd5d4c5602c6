//! `out = (1 + ε) · x` with a trainable number ε; `dx = (1 + ε) · dout`, `dε = ⟨x, dout⟩`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, FeatureElement, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `(1 + epsilon) · x`; `epsilon: [1, 1]` (GIN's weight of the vertex itself).
    pub fn scale_by_one_plus(&self, x: Var, epsilon: Var) -> Result<Var> {
        self.apply(ScaleByOnePlus { factor: 1.0 }, &[x, epsilon])
    }
}

struct ScaleByOnePlus {
    factor: f64,
}

impl<D: Device> Op<D> for ScaleByOnePlus {
    fn name(&self) -> &'static str {
        "scale_by_one_plus"
    }

    fn forward(&mut self, device: &D, inputs: &[&Tensor<D>]) -> Result<Tensor<D>> {
        self.factor = 1.0 + inputs[1].item(device)?.widen_f64();
        let mut out = Tensor::allocate(device, inputs[0].rows(), inputs[0].cols())?;
        device.scale(self.factor, inputs[0].view(), out.make_mut(device)?.data, Write::Assign)?;
        Ok(out)
    }

    fn backward(&mut self, device: &D, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut depsilon = Tensor::allocate(device, 1, 1)?;
        device.dot(step.inputs[0].view(), Some(step.gradient.view()), depsilon.make_mut(device)?.data)?;
        let mut dx = Tensor::allocate(device, step.gradient.rows(), step.gradient.cols())?;
        device.scale(self.factor, step.gradient.view(), dx.make_mut(device)?.data, Write::Assign)?;
        Ok(vec![Some(dx), Some(depsilon)])
    }
}
