//! `out[t] = Σ_r mean_{e: s→t of relation r} x[s] · W_r`.
//!
//! With `f_e` one over the number of `t`'s in-edges of relation `r`: `dx[s] = Σ_r Σ_{e: s→t} f_e dout[t] · W_rᵀ` and
//! `dW_r = Σ_e f_e x[s(e)]ᵀ · dout[t(e)]`, both by gathers over the edges grouped by source or destination.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Direction, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The sum over relations of the mean over a destination's in-edges of the relation of `x · W_r`: `x: [n_src, k]`,
    /// `weight: [n_relations · k, n]` (one matrix below the other), out: `[n_dst, n]`.
    ///
    /// Over a block with estimator weights, each relation's mean is weighted by them. Messages are never written; sums
    /// or products come first, whichever is cheaper. Errors: a block without edge types or with one at or above
    /// `n_relations`; shapes that do not fit.
    pub fn relation_aggregate(
        &self,
        block: &Arc<Block<D>>,
        n_relations: usize,
        x: Var,
        weight: Var,
    ) -> Result<Var> {
        self.apply(RelationAggregate { block: block.clone(), n_relations }, &[x, weight])
    }
}

struct RelationAggregate<D: Device> {
    block: Arc<Block<D>>,
    n_relations: usize,
}

impl<D: Device> Op<D> for RelationAggregate<D> {
    fn name(&self) -> &'static str {
        "relation_aggregate"
    }

    fn forward(&mut self, device: &D, inputs: &[&Tensor<D>]) -> Result<Tensor<D>> {
        let (x, weight) = (inputs[0], inputs[1]);
        let edges = self.block.relations(device, self.n_relations)?;
        let mut out = Tensor::allocate(device, edges.n_dst, weight.cols())?;
        let order = edges.cheaper_order(Direction::Forward, x.cols(), weight.cols());
        device.relation_product(
            edges,
            Direction::Forward,
            order,
            weight.view(),
            x.matrix(),
            out.make_mut(device)?,
            Write::Assign,
        )?;
        Ok(out)
    }

    fn backward(&mut self, device: &D, step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, weight) = (step.inputs[0], step.inputs[1]);
        let (k, n) = (x.cols(), weight.cols());
        let edges = self.block.relations(device, self.n_relations)?;
        let mut gradients = vec![None, None];
        if step.wanted[0] {
            let mut dx = Tensor::allocate(device, x.rows(), k)?;
            device.relation_product(
                edges,
                Direction::Backward,
                edges.cheaper_order(Direction::Backward, n, k),
                weight.view(),
                step.gradient.matrix(),
                dx.make_mut(device)?,
                Write::Assign,
            )?;
            gradients[0] = Some(dx);
        }
        if step.wanted[1] {
            let mut dweight = Tensor::allocate(device, weight.rows(), n)?;
            // The narrower operand is the cheaper one to sum.
            let aggregated = if k <= n { Direction::Forward } else { Direction::Backward };
            let out = dweight.make_mut(device)?.data;
            device.relation_weight_gradient(edges, aggregated, x.matrix(), step.gradient.matrix(), out)?;
            gradients[1] = Some(dweight);
        }
        Ok(gradients)
    }
}
