//! `out[i] = table[index[i]]`, with a row-sparse gradient: rows that are not read cost nothing.

use std::sync::Arc;

use super::{BackwardStep, Op, RowGradient, Tape, Var};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Rows of `table: [n, dim]` by `index` (`[m]`, repeats allowed): `[m, dim]`. As
    /// [`gather_rows`](Tape::gather_rows), but the gradient of a leaf is a [`RowGradient`].
    ///
    /// Errors: an index at or above `n`.
    pub fn lookup(&self, table: Var, index: &Arc<D::Buffer<u32>>) -> Result<Var> {
        self.apply(Lookup { index: index.clone() }, &[table])
    }
}

struct Lookup<D: Device> {
    index: Arc<D::Buffer<u32>>,
}

impl<D: Device> Op<D> for Lookup<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "lookup"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let table = inputs[0];
        let mut out = Tensor::allocate(device, D::len(&self.index), table.cols())?;
        device.gather(table.view(), table.rows(), D::view(&self.index), out.make_mut(device)?)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let index = device.download(D::view(&self.index))?;
        let rows = RowGradient::new(device, step.inputs[0].rows(), &index, step.gradient)?;
        step.rows.push((0, rows));
        Ok(vec![None])
    }
}
