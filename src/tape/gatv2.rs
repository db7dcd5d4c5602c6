//! `out[t, h] = Σ_s α̃_h(s → t) z_src[s, h]`, `α = softmax_s ⟨a[h], LR(z_src[s, h] + z_dst[t, h])⟩` (Brody, Alon &
//! Yahav 2022), fused.
//!
//! With `u = z_src[s] + z_dst[t]` and `g` the gradient of the scores (see
//! [`Attention`](crate::device::Attention)): `dz_src[s] = Σ_t (α̃ dout[t] + g a ⊙ LR'(u))`,
//! `dz_dst[t] = Σ_s g a ⊙ LR'(u)`, `da = Σ g LR(u)`.

use std::sync::Arc;

use super::attention::{Attend, AttentionOptions};
use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Gatv2Operands, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Attends over a destination's in-edges: `z_src: [n_src, heads · dim]`, `z_dst: [n_dst, heads · dim]`,
    /// `attention: [1, heads · dim]` to `[n_dst, heads · dim]`, 0 for a destination without messages.
    ///
    /// Errors: the number of heads is 0 or does not divide the columns of `z_src`, a dropout probability is not at
    /// least 0 and below 1, or a shape is not as above; more than 2^18 heads with dropout.
    pub fn gatv2(
        &self,
        block: &Arc<Block<D>>,
        z_src: Var,
        z_dst: Var,
        attention: Var,
        options: AttentionOptions,
    ) -> Result<Var> {
        self.apply(Gatv2 { attend: self.attend(block, options)? }, &[z_src, z_dst, attention])
    }
}

struct Gatv2<D: Device> {
    attend: Attend<D>,
}

fn operands<'a, D: Device>(inputs: &[&'a Tensor<D>]) -> Gatv2Operands<'a, D> {
    Gatv2Operands { z_src: inputs[0].matrix(), z_dst: inputs[1].matrix(), attention: inputs[2].view() }
}

impl<D: Device> Op<D> for Gatv2<D> {
    /// `max` and `sum`, each `[n_dst, heads]`.
    type Saved = [Tensor<D>; 2];

    fn name(&self) -> &'static str {
        "gatv2"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, Self::Saved)> {
        let (block, heads) = (&self.attend.block, self.attend.options.heads);
        let n_dst = block.n_dst();
        let mut out = Tensor::allocate(device, n_dst, inputs[0].cols())?;
        let mut max = Tensor::allocate(device, n_dst, heads)?;
        let mut sum = Tensor::allocate(device, n_dst, heads)?;
        device.gatv2(
            block.csr(),
            self.attend.spec(),
            operands(inputs),
            out.make_mut(device)?,
            max.make_mut(device)?.data,
            sum.make_mut(device)?.data,
        )?;
        Ok((out, [max, sum]))
    }

    fn backward(
        &self,
        device: &D,
        [max, sum]: Self::Saved,
        step: BackwardStep<'_, D>,
    ) -> Result<Vec<Option<Tensor<D>>>> {
        let (z_src, z_dst) = (step.inputs[0], step.inputs[1]);
        let (block, options) = (&self.attend.block, self.attend.options);
        let n_message = block.n_edge() + if options.self_loop { block.n_dst() } else { 0 };
        let mut dz_dst = Tensor::allocate(device, z_dst.rows(), z_dst.cols())?;
        let mut da_rows = Tensor::allocate(device, z_dst.rows(), z_dst.cols())?;
        let mut messages = Tensor::allocate(device, n_message, 2 * options.heads)?;
        device.gatv2_backward_destinations(
            block.csr(),
            self.attend.spec(),
            operands(step.inputs),
            max.view(),
            sum.view(),
            step.gradient.matrix(),
            dz_dst.make_mut(device)?,
            da_rows.make_mut(device)?,
            messages.make_mut(device)?.data,
        )?;
        let mut gradients = vec![None, Some(dz_dst), None];
        if step.wanted[0] {
            let mut dz_src = Tensor::allocate(device, z_src.rows(), z_src.cols())?;
            device.gatv2_backward_sources(
                block.transpose(device)?,
                self.attend.spec(),
                operands(step.inputs),
                step.gradient.matrix(),
                messages.view(),
                dz_src.make_mut(device)?,
            )?;
            gradients[0] = Some(dz_src);
        }
        if step.wanted[2] {
            let mut da = Tensor::allocate(device, 1, z_dst.cols())?;
            device.sum_rows(da_rows.matrix(), da.make_mut(device)?.data, Write::Assign)?;
            gradients[2] = Some(da);
        }
        Ok(gradients)
    }
}
