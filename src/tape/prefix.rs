//! `out = x[..n, :]`; `dx = dout`, and zero in the remaining rows.

use super::{BackwardStep, Op, Tape, Var};
use crate::device::Device;
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The first `rows` rows of `x`, such as those of a block's destinations among its sources. Neither pass copies
    /// anything.
    ///
    /// Errors: `x` has fewer rows.
    pub fn prefix(&self, x: Var, rows: usize) -> Result<Var> {
        if self.shape_of(x)?[0] == rows {
            return Ok(x);
        }
        self.apply(Prefix { rows }, &[x])
    }
}

struct Prefix {
    rows: usize,
}

impl<D: Device> Op<D> for Prefix {
    type Saved = ();

    fn name(&self) -> &'static str {
        "prefix"
    }

    fn forward(&self, _: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        Ok((inputs[0].prefix(self.rows)?, ()))
    }

    fn backward(&self, _: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![Some(step.gradient)])
    }
}
