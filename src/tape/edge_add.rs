//! `out[e] = x[s(e)] + y[t(e)]`; `dx[s]` and `dy[t]` are the sums of `dout` over the edges of `s` and of `t`.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Weights, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// A value per edge from `x: [n_src, cols]` and `y: [n_dst, cols]` at its ends: `[n_edge, cols]`.
    ///
    /// Errors: `x` does not have one row per source, `y` one per destination, or their numbers of columns differ.
    pub fn edge_add(&self, block: &Arc<Block<D>>, x: Var, y: Var) -> Result<Var> {
        self.apply(EdgeAdd { block: block.clone() }, &[x, y])
    }
}

struct EdgeAdd<D: Device> {
    block: Arc<Block<D>>,
}

impl<D: Device> Op<D> for EdgeAdd<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "edge_add"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, y) = (inputs[0], inputs[1]);
        let mut out = Tensor::allocate(device, self.block.n_edge(), x.cols())?;
        let data = out.make_mut(device)?.data;
        device.sddmm_add(self.block.csr(), x.matrix(), y.matrix(), data, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (n_edge, dout) = (self.block.n_edge(), &step.gradient);
        let sum = |a: Csr<'_, D>| -> Result<Tensor<D>> {
            let mut out = Tensor::allocate(device, a.n_rows, dout.cols())?;
            device.spmm(a, Weights::ones(), dout.matrix(), out.make_mut(device)?, Write::Assign)?;
            Ok(out)
        };
        let mut gradients = vec![None, None];
        if step.wanted[0] {
            let transpose = self.block.transpose(device)?;
            let indices = transpose.edge.unwrap_or(transpose.indices);
            gradients[0] = Some(sum(Csr { n_cols: n_edge, indices, edge: None, ..transpose })?);
        }
        if step.wanted[1] {
            let own: Vec<u32> = (0..n_edge as u32).collect();
            let own = device.upload(&own)?;
            gradients[1] = Some(sum(Csr { n_cols: n_edge, indices: D::view(&own), ..self.block.csr() })?);
        }
        Ok(gradients)
    }
}
