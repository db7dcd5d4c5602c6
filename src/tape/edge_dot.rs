//! `out[e, h] = ⟨q[t(e), h, :], k[s(e), h, :]⟩`.
//!
//! `dq[t, h, :] = Σ_e dout[e, h] · k[s(e), h, :]` over the in-edges of `t`,
//! `dk[s, h, :] = Σ_e dout[e, h] · q[t(e), h, :]` over the out-edges of `s`.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The scores of dot-product attention: a product per edge and head of the rows at its ends,
    /// `q: [n_dst, heads · dim]` and `k: [n_src, heads · dim]`, as `[n_edge, heads]`. No pass makes a matrix of
    /// `[n_edge, heads · dim]`.
    ///
    /// Errors: `q` does not have one row per destination, `k` one per source, their numbers of columns differ, or
    /// `heads` is 0 or does not divide them.
    pub fn edge_dot(&self, block: &Arc<Block<D>>, q: Var, k: Var, heads: usize) -> Result<Var> {
        self.apply(EdgeDot { block: block.clone(), heads }, &[q, k])
    }
}

struct EdgeDot<D: Device> {
    block: Arc<Block<D>>,
    heads: usize,
}

impl<D: Device> Op<D> for EdgeDot<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "edge_dot"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (q, k) = (inputs[0], inputs[1]);
        let mut out = Tensor::allocate(device, self.block.n_edge(), self.heads)?;
        let data = out.make_mut(device)?.data;
        device.sddmm_dot(self.block.csr(), k.matrix(), q.matrix(), self.heads, data, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (q, k, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        let sum = |a: Csr<'_, D>, x: &Tensor<D>| -> Result<Tensor<D>> {
            let mut out = Tensor::allocate(device, a.n_rows, x.cols())?;
            let matrix = out.make_mut(device)?;
            device.spmm_heads(a, dout.view(), self.heads, x.matrix(), matrix, Write::Assign)?;
            Ok(out)
        };
        let dq = step.wanted[0].then(|| sum(self.block.csr(), k)).transpose()?;
        let dk = step.wanted[1].then(|| sum(self.block.transpose(device)?, q)).transpose()?;
        Ok(vec![dq, dk])
    }
}
