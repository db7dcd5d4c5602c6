//! `out[t, h] = Σ_s α̃_h(s → t) z[s, h]`, `α = softmax_s LR(⟨a_src[h], z[s, h]⟩ + ⟨a_dst[h], z[t, h]⟩)` (Veličković et
//! al. 2018), fused.
//!
//! With `g` the gradient of the scores before `LR` (see [`Attention::gat_backward`](crate::device::Attention)) and `G`
//! its sums over the messages of a source or destination:
//! `dz[s] = Σ_t α̃ dout[t] + G_src[s] a_src + G_dst[s] a_dst`, `da_src = Σ_s G_src[s] z[s]`,
//! `da_dst = Σ_t G_dst[t] z[t]`.

use std::sync::Arc;

use super::attention::{Attend, AttentionOptions};
use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, GatGradients, GatSaved, MatrixMut, Weights, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Attends over a destination's in-edges: `z: [n_src, heads · dim]`, `a_src, a_dst: [1, heads · dim]` to
    /// `[n_dst, heads · dim]`, 0 for a destination without messages.
    ///
    /// Errors: the number of heads is 0 or does not divide the columns of `z`, a dropout probability is not at least 0
    /// and below 1, `z` does not have one row per source, or `a_src` or `a_dst` one element per column of `z`; more
    /// than 2^18 heads with dropout.
    pub fn gat(
        &self,
        block: &Arc<Block<D>>,
        z: Var,
        a_src: Var,
        a_dst: Var,
        options: AttentionOptions,
    ) -> Result<Var> {
        self.apply(Gat { attend: self.attend(block, options)? }, &[z, a_src, a_dst])
    }
}

struct Gat<D: Device> {
    attend: Attend<D>,
}

/// `[n_src or n_dst, heads]` each.
struct Saved<D: Device> {
    score_src: Tensor<D>,
    score_dst: Tensor<D>,
    max: Tensor<D>,
    sum: Tensor<D>,
}

impl<D: Device> Op<D> for Gat<D> {
    type Saved = Saved<D>;

    fn name(&self) -> &'static str {
        "gat"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, Self::Saved)> {
        let (z, a_src, a_dst) = (inputs[0], inputs[1], inputs[2]);
        let (block, heads) = (&self.attend.block, self.attend.options.heads);
        let n_dst = block.n_dst();
        let z_dst = z.prefix(n_dst)?;
        let mut score_src = Tensor::allocate(device, z.rows(), heads)?;
        device.head_dot(z.matrix(), a_src.view(), heads, score_src.make_mut(device)?.data)?;
        let mut score_dst = Tensor::allocate(device, n_dst, heads)?;
        device.head_dot(z_dst.matrix(), a_dst.view(), heads, score_dst.make_mut(device)?.data)?;
        let mut out = Tensor::allocate(device, n_dst, z.cols())?;
        let mut max = Tensor::allocate(device, n_dst, heads)?;
        let mut sum = Tensor::allocate(device, n_dst, heads)?;
        device.gat(
            block.csr(),
            self.attend.spec(),
            z.matrix(),
            score_src.view(),
            score_dst.view(),
            out.make_mut(device)?,
            max.make_mut(device)?.data,
            sum.make_mut(device)?.data,
        )?;
        Ok((out, Saved { score_src, score_dst, max, sum }))
    }

    fn backward(
        &self,
        device: &D,
        saved: Self::Saved,
        step: BackwardStep<'_, D>,
    ) -> Result<Vec<Option<Tensor<D>>>> {
        let (z, a_src, a_dst) = (step.inputs[0], step.inputs[1], step.inputs[2]);
        let (block, heads) = (&self.attend.block, self.attend.options.heads);
        let n_dst = block.n_dst();
        let mut dz = Tensor::allocate(device, z.rows(), z.cols())?;
        let mut dscore_src = Tensor::allocate(device, z.rows(), heads)?;
        let mut dscore_dst = Tensor::allocate(device, n_dst, heads)?;
        let mut dscore_edge = Tensor::allocate(device, block.n_edge(), heads)?;
        device.gat_backward(
            block.transpose(device)?,
            self.attend.spec(),
            GatSaved {
                z: z.matrix(),
                score_src: saved.score_src.view(),
                score_dst: saved.score_dst.view(),
                max: saved.max.view(),
                sum: saved.sum.view(),
                out: step.output.matrix(),
                dout: step.gradient.matrix(),
            },
            GatGradients {
                dz: dz.make_mut(device)?,
                dscore_src: dscore_src.make_mut(device)?.data,
                dscore_dst_own: dscore_dst.make_mut(device)?.data,
                dscore_edge: dscore_edge.make_mut(device)?.data,
            },
        )?;
        device.spmm(
            block.csr_into_transpose(device)?,
            Weights::ones(),
            dscore_edge.matrix(),
            dscore_dst.make_mut(device)?,
            Write::Add,
        )?;
        if step.wanted[0] {
            let all = dz.make_mut(device)?;
            device.head_dot_backward_input(a_src.view(), heads, dscore_src.view(), all, Write::Add)?;
            let all = dz.make_mut(device)?.data;
            let first = MatrixMut::from_view(D::slice_mut(all, 0..n_dst * z.cols()), n_dst, z.cols())?;
            device.head_dot_backward_input(a_dst.view(), heads, dscore_dst.view(), first, Write::Add)?;
        }
        let vector = |x: &Tensor<D>, dscore: &Tensor<D>| -> Result<Tensor<D>> {
            let mut da = Tensor::allocate(device, 1, x.cols())?;
            device.head_dot_backward_vector(x.matrix(), heads, dscore.view(), da.make_mut(device)?.data)?;
            Ok(da)
        };
        let da_src = step.wanted[1].then(|| vector(z, &dscore_src)).transpose()?;
        let da_dst = step.wanted[2].then(|| vector(&z.prefix(n_dst)?, &dscore_dst)).transpose()?;
        Ok(vec![step.wanted[0].then_some(dz), da_src, da_dst])
    }
}
