//! `out[i, :] = 1/heads · Σ_h x[i, h, :]`; `dx[i, h, :] = dout[i, :] / heads`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The mean over heads: `x: [n, heads · dim]` to `[n, dim]`.
    ///
    /// Errors: `heads` is 0 or does not divide the columns of `x`.
    pub fn head_mean(&self, x: Var, heads: usize) -> Result<Var> {
        let [_, cols] = self.shape_of(x)?;
        if heads == 0 || !cols.is_multiple_of(heads) {
            return Err(Error::invalid("heads", heads, format!("a divisor of the {cols} columns")));
        }
        if heads == 1 { Ok(x) } else { self.apply(HeadMean { heads }, &[x]) }
    }
}

struct HeadMean {
    heads: usize,
}

impl HeadMean {
    fn scaled<D: Device>(&self, device: &D, x: &Tensor<D>) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        device.scale(1.0 / self.heads as f64, x.view(), out.make_mut(device)?.data, Write::Assign)?;
        Ok(out)
    }
}

impl<D: Device> Op<D> for HeadMean {
    type Saved = ();

    fn name(&self) -> &'static str {
        "head_mean"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let x = inputs[0];
        let dim = x.cols() / self.heads;
        let mut sum = Tensor::allocate(device, x.rows(), dim)?;
        for h in 0..self.heads {
            let write = if h == 0 { Write::Assign } else { Write::Add };
            device.copy_columns(x.matrix(), h * dim, sum.make_mut(device)?, 0, dim, write)?;
        }
        Ok((self.scaled(device, &sum)?, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let part = self.scaled(device, &step.gradient)?;
        let mut dx = Tensor::allocate(device, part.rows(), part.cols() * self.heads)?;
        for h in 0..self.heads {
            let (column, out) = (h * part.cols(), dx.make_mut(device)?);
            device.copy_columns(part.matrix(), 0, out, column, part.cols(), Write::Assign)?;
        }
        Ok(vec![Some(dx)])
    }
}
