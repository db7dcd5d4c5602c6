//! `out = x` with other numbers of rows and columns; `dx = dout`, likewise.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The elements of `x`, row after row, as `[rows, cols]`. Neither pass copies anything.
    ///
    /// Errors: `rows * cols` is not the number of elements.
    pub fn reshape(&self, x: Var, rows: usize, cols: usize) -> Result<Var> {
        self.apply(Reshape { rows, cols }, &[x])
    }
}

struct Reshape {
    rows: usize,
    cols: usize,
}

impl<D: Device> Op<D> for Reshape {
    type Saved = ();

    fn name(&self) -> &'static str {
        "reshape"
    }

    fn forward(&self, _: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        Ok((inputs[0].reshape(self.rows, self.cols)?, ()))
    }

    fn backward(&self, _: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let [rows, cols] = step.inputs[0].shape();
        Ok(vec![Some(step.gradient.reshape(rows, cols)?)])
    }
}
