//! `out[i, h] = ⟨x[i, h, :], a[h, :]⟩`; `dx[i, h, :] = dout[i, h] · a[h, :]`, `da[h, :] = Σ_i dout[i, h] · x[i, h, :]`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Products of each row's heads with a vector per head: `x: [n, heads · dim]`, `a: [1, heads · dim]` to
    /// `[n, heads]`.
    ///
    /// Errors: `heads` is 0 or does not divide the columns of `x`, or `a` does not have one element per column.
    pub fn head_dot(&self, x: Var, a: Var, heads: usize) -> Result<Var> {
        self.apply(HeadDot { heads }, &[x, a])
    }
}

struct HeadDot {
    heads: usize,
}

impl<D: Device> Op<D> for HeadDot {
    type Saved = ();

    fn name(&self) -> &'static str {
        "head_dot"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, a) = (inputs[0], inputs[1]);
        let mut out = Tensor::allocate(device, x.rows(), self.heads)?;
        device.head_dot(x.matrix(), a.view(), self.heads, out.make_mut(device)?.data)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, a, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        let mut gradients = vec![None, None];
        if step.wanted[0] {
            let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
            let out = dx.make_mut(device)?;
            device.head_dot_backward_input(a.view(), self.heads, dout.view(), out, Write::Assign)?;
            gradients[0] = Some(dx);
        }
        if step.wanted[1] {
            let mut da = Tensor::allocate(device, a.rows(), a.cols())?;
            let out = da.make_mut(device)?.data;
            device.head_dot_backward_vector(x.matrix(), self.heads, dout.view(), out)?;
            gradients[1] = Some(da);
        }
        Ok(gradients)
    }
}
