//! `out = x[:, begin..end]`; `dx` is `dout` in these columns and 0 in the others.

use std::ops::Range;

use super::{BackwardStep, Op, Tape, Var};
use crate::device::{Device, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Columns `range` of `x: [rows, cols]`: `[rows, range.len()]`. Takes apart what [`concatenate`](Tape::concatenate)
    /// puts side by side.
    ///
    /// Errors: `range` is not inside `0..cols`, or its end is before its start.
    pub fn columns(&self, x: Var, range: Range<usize>) -> Result<Var> {
        self.apply(Columns { range }, &[x])
    }
}

struct Columns {
    range: Range<usize>,
}

impl<D: Device> Op<D> for Columns {
    type Saved = ();

    fn name(&self) -> &'static str {
        "columns"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, Range { start, end }) = (inputs[0], self.range.clone());
        if start > end || end > x.cols() {
            let expected = format!("a range within 0..{}", x.cols());
            return Err(Error::invalid("range", format!("{start}..{end}"), expected));
        }
        let mut out = Tensor::allocate(device, x.rows(), end - start)?;
        device.copy_columns(x.matrix(), start, out.make_mut(device)?, 0, end - start, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, dout) = (step.inputs[0], &step.gradient);
        let mut dx = Tensor::zeros(device, x.rows(), x.cols())?;
        let (start, out) = (self.range.start, dx.make_mut(device)?);
        device.copy_columns(dout.matrix(), 0, out, start, dout.cols(), Write::Assign)?;
        Ok(vec![Some(dx)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;

    #[test]
    fn columns_are_those_of_the_range() {
        let cpu = Cpu::<f64>::new();
        let tape = Tape::training(&cpu, 0);
        let x = tape.leaf(Tensor::from_slice(&cpu, 2, 3, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap());
        let out = tape.value(tape.columns(x, 1..3).unwrap());
        assert_eq!((out.shape(), out.to_vec(&cpu).unwrap()), ([2, 2], vec![2.0, 3.0, 5.0, 6.0]));
        assert_eq!(tape.shape(tape.columns(x, 3..3).unwrap()), [2, 0]);
        for (start, end) in [(2, 4), (2, 1), (0, usize::MAX)] {
            assert!(matches!(tape.columns(x, start..end), Err(Error::InvalidArgument { .. })));
        }
    }
}
