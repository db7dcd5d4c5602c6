//! `out[i] = table[index[i]]`; `dtable[index[i]] += dout[i]`.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Rows of `table: [n, dim]` by `index` (`[m]`, repeats allowed): `[m, dim]`.
    ///
    /// Errors: an index at or above `n`.
    pub fn gather_rows(&self, table: Var, index: D::Buffer<u32>) -> Result<Var> {
        self.apply(GatherRows { index }, &[table])
    }
}

struct GatherRows<D: Device> {
    index: D::Buffer<u32>,
}

impl<D: Device> Op<D> for GatherRows<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "gather_rows"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let table = inputs[0];
        let mut out = Tensor::allocate(device, D::len(&self.index), table.cols())?;
        device.gather(table.view(), table.rows(), D::view(&self.index), out.make_mut(device)?)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let mut dtable = Tensor::zeros(device, step.inputs[0].rows(), step.inputs[0].cols())?;
        device.scatter_add(step.gradient.matrix(), D::view(&self.index), dtable.make_mut(device)?)?;
        Ok(vec![Some(dtable)])
    }
}
