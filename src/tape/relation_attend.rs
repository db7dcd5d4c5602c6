//! Attention over typed edges. Scores: `out[e] = q[g(e)] + k[h(e)]`, where `g(e)` is the group of the edge's relation
//! and destination and `h(e)` that of its relation and source; messages: `out[t, i, :] = Σ_e α[e, i] z[h(e), i, :]`
//! over the in-edges of `t`, for every head `i`.
//!
//! `dz[h, i, :] = Σ_e α[e, i] dout[t(e), i, :]` over the edges of group `h`,
//! `dα[e, i] = ⟨dout[t(e), i, :], z[h(e), i, :]⟩`.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Write};
use crate::error::{Error, Result};
use crate::pattern::Pattern;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// A score per edge and head, in the block's order, from `query` at the edge's relation and destination and `key`
    /// at its relation and source (`[n_group, heads]` each): `[n_edge, heads]`.
    ///
    /// Errors: a block without edge types or with one at or above `n_relations`; `query` or `key` has fewer rows than
    /// there are groups, or their numbers of columns differ.
    pub fn relation_scores(
        &self,
        block: &Arc<Block<D>>,
        n_relations: usize,
        query: Var,
        key: Var,
    ) -> Result<Var> {
        let device = self.device();
        let edges = block.relations(device, n_relations)?;
        let copy = |group: &D::Buffer<u32>| -> Result<D::Buffer<u32>> {
            let mut out = device.allocate(D::len(group))?;
            device.copy(D::view(group), D::view_mut(&mut out))?;
            Ok(out)
        };
        let query = self.gather_rows(query, copy(&edges.destination_group)?)?;
        self.add(query, self.gather_rows(key, copy(&edges.source_group)?)?)
    }

    /// Sums of messages `z: [n_group, heads · dim]`, one for each relation and source, over a destination's in-edges
    /// with the factors `attention: [n_edge, heads]`: `[n_dst, heads · dim]`.
    ///
    /// Errors: a block without edge types or with one at or above `n_relations`; `z` does not have one row per group or
    /// `attention` one per edge; the number of heads is 0 or does not divide the columns of `z`.
    pub fn relation_attend(
        &self,
        block: &Arc<Block<D>>,
        n_relations: usize,
        z: Var,
        attention: Var,
    ) -> Result<Var> {
        let ([n_edge, heads], [_, cols]) = (self.shape_of(attention)?, self.shape_of(z)?);
        let edges = block.relations(self.device(), n_relations)?;
        let required = [edges.n_edge(), heads];
        crate::device::check_same_shape("attend", "attention", [n_edge, heads], "required", required)?;
        if heads == 0 || !cols.is_multiple_of(heads) {
            return Err(Error::invalid("heads", heads, format!("a divisor of the {cols} columns")));
        }
        self.apply(RelationAttend { block: block.clone(), n_relations, heads }, &[z, attention])
    }
}

struct RelationAttend<D: Device> {
    block: Arc<Block<D>>,
    n_relations: usize,
    heads: usize,
}

impl<D: Device> RelationAttend<D> {
    fn messages(&self, device: &D) -> Result<&Pattern<D>> {
        self.block.relation_messages(device, self.n_relations)
    }

    /// `out[i, h, :] = Σ_e attention[e, h] x[indices[e], h, :]` over the entries of `a`.
    fn sum(&self, device: &D, a: Csr<'_, D>, x: &Tensor<D>, attention: &Tensor<D>) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, a.n_rows, x.cols())?;
        let (attention, to) = (attention.view(), out.make_mut(device)?);
        device.spmm_heads(a, attention, self.heads, x.matrix(), to, Write::Assign)?;
        Ok(out)
    }
}

impl<D: Device> Op<D> for RelationAttend<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "relation_attend"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        Ok((self.sum(device, self.messages(device)?.csr(), inputs[0], inputs[1])?, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (z, attention, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        let (messages, mut gradients) = (self.messages(device)?, vec![None, None]);
        if step.wanted[0] {
            gradients[0] = Some(self.sum(device, messages.transpose(device)?, dout, attention)?);
        }
        if step.wanted[1] {
            let mut dattention = Tensor::allocate(device, attention.rows(), self.heads)?;
            let out = dattention.make_mut(device)?.data;
            let (z, dout) = (z.matrix(), dout.matrix());
            device.sddmm_dot(messages.csr(), z, dout, self.heads, out, Write::Assign)?;
            gradients[1] = Some(dattention);
        }
        Ok(gradients)
    }
}
