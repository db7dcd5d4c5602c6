//! `out = alpha · x` for a constant `alpha`; `dx = alpha · dout`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `alpha · x`, of the shape of `x`.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn scale(&self, x: Var, alpha: f64) -> Result<Var> {
        self.apply(Scale { alpha }, &[x])
    }
}

struct Scale {
    alpha: f64,
}

impl Scale {
    fn scaled<D: Device>(&self, device: &D, x: &Tensor<D>) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        device.scale(self.alpha, x.view(), out.make_mut(device)?.data, Write::Assign)?;
        Ok(out)
    }
}

impl<D: Device> Op<D> for Scale {
    type Saved = ();

    fn name(&self) -> &'static str {
        "scale"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let out = self.scaled(device, inputs[0])?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![Some(self.scaled(device, &step.gradient)?)])
    }
}
