//! `out[e] = exp(x[e]) / Σ_{e'} exp(x[e'])` over the in-edges `e'` of `e`'s destination, per column.
//!
//! `dx[e] = out[e] · (dout[e] − Σ_{e'} out[e'] · dout[e'])`.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Softmax of `x: [n_edge, heads]` over each destination's in-edges: `[n_edge, heads]`.
    ///
    /// Errors: `x` does not have one row per edge, or has no columns.
    pub fn edge_softmax(&self, block: &Arc<Block<D>>, x: Var) -> Result<Var> {
        let [n_rows, heads] = self.shape_of(x)?;
        check_same_shape("edge softmax", "x", [n_rows, heads], "required", [block.n_edge(), heads])?;
        self.apply(EdgeSoftmax { block: block.clone() }, &[x])
    }
}

struct EdgeSoftmax<D: Device> {
    block: Arc<Block<D>>,
}

impl<D: Device> Op<D> for EdgeSoftmax<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "edge_softmax"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let x = inputs[0];
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        let data = out.make_mut(device)?.data;
        device.edge_softmax(self.block.csr(), x.cols(), x.view(), data)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (y, dout) = (step.output, &step.gradient);
        let mut dx = Tensor::allocate(device, y.rows(), y.cols())?;
        let data = dx.make_mut(device)?.data;
        device.edge_softmax_backward(self.block.csr(), y.cols(), y.view(), dout.view(), data)?;
        Ok(vec![Some(dx)])
    }
}
