//! `out = (1 + ε) · x` with a trainable number ε; `dx = (1 + ε) · dout`, `dε = ⟨x, dout⟩`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, FeatureElement, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `(1 + epsilon) · x`; `epsilon: [1, 1]` (GIN's weight of the vertex itself).
    ///
    /// Errors: `epsilon` is not `[1, 1]`.
    pub fn scale_by_one_plus(&self, x: Var, epsilon: Var) -> Result<Var> {
        self.apply(ScaleByOnePlus, &[x, epsilon])
    }
}

struct ScaleByOnePlus;

impl<D: Device> Op<D> for ScaleByOnePlus {
    /// `1 + ε`
    type Saved = f64;

    fn name(&self) -> &'static str {
        "scale_by_one_plus"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, Self::Saved)> {
        let factor = 1.0 + inputs[1].item(device)?.widen_f64();
        let mut out = Tensor::allocate(device, inputs[0].rows(), inputs[0].cols())?;
        device.scale(factor, inputs[0].view(), out.make_mut(device)?.data, Write::Assign)?;
        Ok((out, factor))
    }

    fn backward(&self, device: &D, factor: f64, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut depsilon = Tensor::allocate(device, 1, 1)?;
        device.dot(step.inputs[0].view(), Some(step.gradient.view()), depsilon.make_mut(device)?.data)?;
        let mut dx = Tensor::allocate(device, step.gradient.rows(), step.gradient.cols())?;
        device.scale(factor, step.gradient.view(), dx.make_mut(device)?.data, Write::Assign)?;
        Ok(vec![Some(dx), Some(depsilon)])
    }
}
