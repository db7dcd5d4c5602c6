//! `out[t] = Σ_e w_e · x[s(e)]` with differentiable edge weights.
//!
//! `dx = Aᵀ · dout` by the block's transpose; `dw_e = ⟨dout[t(e)], x[s(e)]⟩`. Both sums read `x` and `dout` in the
//! device's precision, `dw` in its scalar.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Rows, Weights, Write};
use crate::error::{Result, check_length};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The sum over a destination's in-edges of `x: [n_src, dim]` times `weight: [n_edge, 1]`: `[n_dst, dim]`.
    ///
    /// Errors: `x` does not have one row per source, or `weight` does not have one element per edge.
    pub fn aggregate_weighted(&self, block: &Arc<Block<D>>, x: Var, weight: Var) -> Result<Var> {
        self.apply(AggregateWeighted { block: block.clone() }, &[x, weight])
    }
}

struct AggregateWeighted<D: Device> {
    block: Arc<Block<D>>,
}

impl<D: Device> Op<D> for AggregateWeighted<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "aggregate_weighted"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, weight) = (inputs[0], inputs[1]);
        check_length("weight", weight.rows() * weight.cols(), self.block.n_edge())?;
        let mut out = Tensor::allocate(device, self.block.n_dst(), x.cols())?;
        let weights = Weights { edge: Some(weight.view()), row: None, column: None };
        let x = Rows::of(device, x.matrix())?;
        x.spmm(device, self.block.csr(), weights, out.make_mut(device)?, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, weight) = (step.inputs[0], step.inputs[1]);
        let mut gradients = vec![None, None];
        if step.wanted[0] {
            let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
            let weights = Weights { edge: Some(weight.view()), row: None, column: None };
            let transpose = self.block.transpose(device)?;
            let dout = Rows::of(device, step.gradient.matrix())?;
            dout.spmm(device, transpose, weights, dx.make_mut(device)?, Write::Assign)?;
            gradients[0] = Some(dx);
        }
        if step.wanted[1] {
            let mut dw = Tensor::allocate(device, weight.rows(), weight.cols())?;
            device.sddmm_dot(
                self.block.csr(),
                x.matrix(),
                step.gradient.matrix(),
                1,
                dw.make_mut(device)?.data,
                Write::Assign,
            )?;
            gradients[1] = Some(dw);
        }
        Ok(gradients)
    }
}
