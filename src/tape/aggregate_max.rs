//! `out[t, c] = max_s x[s, c]` over the in-edges of `t`; the first edge that attains it gets the whole gradient.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The largest value of each column over a destination's in-edges: `[n_dst, dim]`; 0 without edges.
    pub fn aggregate_max(&self, block: &Arc<Block<D>>, x: Var) -> Result<Var> {
        self.apply(AggregateMax { block: block.clone(), argmax: None }, &[x])
    }
}

struct AggregateMax<D: Device> {
    block: Arc<Block<D>>,
    /// `[n_dst, dim]`: the edge that attained the maximum.
    argmax: Option<D::Buffer<u32>>,
}

impl<D: Device> Op<D> for AggregateMax<D> {
    fn name(&self) -> &'static str {
        "aggregate_max"
    }

    fn forward(&mut self, device: &D, inputs: &[&Tensor<D>]) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, self.block.n_dst(), inputs[0].cols())?;
        let mut argmax = device.allocate(self.block.n_dst() * inputs[0].cols())?;
        device.spmm_max(
            self.block.csr(),
            inputs[0].matrix(),
            out.make_mut(device)?,
            D::view_mut(&mut argmax),
        )?;
        self.argmax = Some(argmax);
        Ok(out)
    }

    fn backward(&mut self, device: &D, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let Some(argmax) = &self.argmax else { return Ok(vec![None]) };
        let mut dx = Tensor::allocate(device, self.block.n_src(), step.gradient.cols())?;
        device.spmm_max_backward(
            self.block.transpose(device)?,
            D::view(argmax),
            step.gradient.matrix(),
            dx.make_mut(device)?,
            Write::Assign,
        )?;
        Ok(vec![Some(dx)])
    }
}
