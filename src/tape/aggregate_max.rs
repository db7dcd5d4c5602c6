//! `out[t, c] = max_s x[s, c]` over the in-edges of `t`; the first edge that attains it gets the whole gradient. `x`
//! and `dout` are read in the device's precision.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Rows, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The largest value of each column over a destination's in-edges: `[n_dst, dim]`; 0 without edges.
    ///
    /// Errors: `x` does not have one row per source.
    pub fn aggregate_max(&self, block: &Arc<Block<D>>, x: Var) -> Result<Var> {
        self.apply(AggregateMax { block: block.clone() }, &[x])
    }
}

struct AggregateMax<D: Device> {
    block: Arc<Block<D>>,
}

impl<D: Device> Op<D> for AggregateMax<D> {
    /// `[n_dst, dim]`: the edge that attained the maximum.
    type Saved = D::Buffer<u32>;

    fn name(&self) -> &'static str {
        "aggregate_max"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, Self::Saved)> {
        let mut out = Tensor::allocate(device, self.block.n_dst(), inputs[0].cols())?;
        let mut argmax = device.allocate(self.block.n_dst() * inputs[0].cols())?;
        let x = Rows::of(device, inputs[0].matrix())?;
        x.spmm_max(device, self.block.csr(), out.make_mut(device)?, D::view_mut(&mut argmax))?;
        Ok((out, argmax))
    }

    fn backward(
        &self,
        device: &D,
        argmax: Self::Saved,
        step: BackwardStep<'_, D>,
    ) -> Result<Vec<Option<Tensor<D>>>> {
        let mut dx = Tensor::allocate(device, self.block.n_src(), step.gradient.cols())?;
        let (transpose, dout) = (self.block.transpose(device)?, Rows::of(device, step.gradient.matrix())?);
        dout.spmm_max_backward(device, transpose, D::view(&argmax), dx.make_mut(device)?, Write::Assign)?;
        Ok(vec![Some(dx)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;
    use crate::tape::Aggregate;

    /// Destination 0 has the sources 1, 2 and 1 again, all equal; destination 1 has none.
    fn block(cpu: &Cpu<f64>) -> Arc<Block<Cpu<f64>>> {
        Arc::new(Block::from_csr(cpu, 3, &[0, 3, 3], &[1, 2, 1]).unwrap())
    }

    #[test]
    fn among_equals_the_lowest_edge_gets_the_gradient() {
        let cpu = Cpu::new();
        let tape = Tape::training(&cpu, 0);
        let x = tape.leaf(Tensor::from_slice(&cpu, 3, 1, &[9.0, 5.0, 5.0]).unwrap());
        let out = tape.aggregate_max(&block(&cpu), x).unwrap();
        assert_eq!(tape.value(out).to_vec(&cpu).unwrap(), [5.0, 0.0]);
        let loss = tape.dot(out, Tensor::from_slice(&cpu, 2, 1, &[2.0, 7.0]).unwrap()).unwrap();
        assert_eq!(tape.backward(loss).unwrap().of(x).unwrap().to_vec(&cpu).unwrap(), [0.0, 2.0, 0.0]);
    }

    #[test]
    fn no_neighbours_give_zero_and_take_no_gradient() {
        let cpu = Cpu::new();
        for mean in [false, true] {
            let tape = Tape::training(&cpu, 0);
            let x = tape.leaf(Tensor::from_slice(&cpu, 3, 1, &[-9.0, -5.0, -5.0]).unwrap());
            let block = block(&cpu);
            let out =
                if mean { tape.aggregate(&block, x, Aggregate::Mean) } else { tape.aggregate_max(&block, x) };
            let out = out.unwrap();
            assert_eq!(tape.value(out).to_vec(&cpu).unwrap(), [-5.0, 0.0]);
            let loss = tape.dot(out, Tensor::from_slice(&cpu, 2, 1, &[0.0, 7.0]).unwrap()).unwrap();
            assert_eq!(tape.backward(loss).unwrap().of(x).unwrap().to_vec(&cpu).unwrap(), [0.0; 3]);
        }
    }
}
