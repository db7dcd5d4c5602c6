//! `out[t] = f(x[t] · W_root + Σ_r mean_{e: s→t of relation r} x[s] · W_r + b)`.
//!
//! With `g = f'(·) ⊙ dout` and `f_e` one over the number of `t`'s in-edges of relation `r`:
//! `dx[s] = g[s] · W_rootᵀ + Σ_r Σ_{e: s→t} f_e g[t] · W_rᵀ`, `dW_r = Σ_e f_e x[s(e)]ᵀ · g[t(e)]`, both by gathers over
//! the edges grouped by source or destination, `dW_root = Σ_t x[t]ᵀ · g[t]` and `db = Σ_t g[t]`.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Activation, Device, Direction, MatrixMut, Write};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `f(x[t] · root + Σ_r mean_s x[s] · W_r + bias)` with the `activation` `f`, where the mean of relation `r` is
    /// over the destination's in-edges of this relation (0 without any). `x: [n_src, k]`,
    /// `weight: [n_relations · k, n]` (one matrix below the other), `root: [k, n]`, `bias: [1, n]`, out: `[n_dst, n]`.
    ///
    /// Over a block with estimator or edge weights, each relation's mean is weighted by them. Messages are never
    /// stored; sums or products come first, whichever is cheaper.
    ///
    /// Errors: a block without edge types or with one at or above `n_relations`; shapes that do not fit.
    pub fn relation_aggregate(
        &self,
        block: &Arc<Block<D>>,
        n_relations: usize,
        [x, weight]: [Var; 2],
        root: Option<Var>,
        bias: Option<Var>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let mut inputs = vec![x, weight];
        inputs.extend(root);
        inputs.extend(bias);
        let (block, has_root, has_bias) = (block.clone(), root.is_some(), bias.is_some());
        self.apply(RelationAggregate { block, n_relations, has_root, has_bias, activation }, &inputs)
    }
}

struct RelationAggregate<D: Device> {
    block: Arc<Block<D>>,
    n_relations: usize,
    /// Whether input 2 is the root. The bias, if there is one, is the last input.
    has_root: bool,
    has_bias: bool,
    activation: Option<Activation>,
}

impl<D: Device> Op<D> for RelationAggregate<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "relation_aggregate"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, weight) = (inputs[0], inputs[1]);
        let edges = self.block.relations(device, self.n_relations)?;
        let mut out = Tensor::allocate(device, edges.n_dst, weight.cols())?;
        let mut write = Write::Assign;
        if self.has_root {
            let own = x.prefix(edges.n_dst)?;
            device.gemm(own.matrix(), false, inputs[2].matrix(), false, out.make_mut(device)?, write)?;
            write = Write::Add;
        }
        device.relation_product(
            edges,
            Direction::Forward,
            edges.cheaper_order(Direction::Forward, x.cols(), weight.cols()),
            weight.view(),
            x.matrix(),
            out.make_mut(device)?,
            write,
        )?;
        let bias = if self.has_bias { inputs.last() } else { None };
        if bias.is_some() || self.activation.is_some() {
            device.add_bias_activate(bias.map(|b| b.view()), self.activation, out.make_mut(device)?)?;
        }
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, weight, mut g) = (step.inputs[0], step.inputs[1], step.gradient);
        if let Some(activation) = self.activation {
            device.activate_backward(activation, step.output.view(), g.make_mut(device)?.data)?;
        }
        let edges = self.block.relations(device, self.n_relations)?;
        let mut gradients = vec![None; step.inputs.len()];
        let mut dweight =
            if step.wanted[1] { Some(Tensor::allocate(device, weight.rows(), weight.cols())?) } else { None };
        if step.wanted[0] {
            let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
            let mut write = Write::Assign;
            if self.has_root {
                own_gradient(device, &g, step.inputs[2], &mut dx)?;
                write = Write::Add;
            }
            let (weight, out) = (weight.view(), dx.make_mut(device)?);
            match &mut dweight {
                Some(dweight) => {
                    let dweight = dweight.make_mut(device)?.data;
                    device.relation_gradients(edges, weight, x.matrix(), g.matrix(), out, write, dweight)?;
                }
                None => {
                    let order = edges.cheaper_order(Direction::Backward, g.cols(), x.cols());
                    let direction = Direction::Backward;
                    device.relation_product(edges, direction, order, weight, g.matrix(), out, write)?;
                }
            }
            gradients[0] = Some(dx);
        } else if let Some(dweight) = &mut dweight {
            let aggregated = Direction::of_cheaper_sum(x.cols(), g.cols());
            let dweight = dweight.make_mut(device)?.data;
            device.relation_weight_gradient(edges, aggregated, x.matrix(), g.matrix(), dweight)?;
        }
        gradients[1] = dweight;
        if self.has_root && step.wanted[2] {
            let mut droot = Tensor::allocate(device, x.cols(), g.cols())?;
            let own = x.prefix(g.rows())?;
            device.gemm(own.matrix(), true, g.matrix(), false, droot.make_mut(device)?, Write::Assign)?;
            gradients[2] = Some(droot);
        }
        if self.has_bias {
            let mut db = Tensor::allocate(device, 1, g.cols())?;
            device.sum_rows(g.matrix(), db.make_mut(device)?.data, Write::Assign)?;
            let last = gradients.len() - 1;
            gradients[last] = Some(db);
        }
        Ok(gradients)
    }
}

/// `dx = g · rootᵀ`, and 0 in the rows beyond those of `g`.
fn own_gradient<D: Device>(device: &D, g: &Tensor<D>, root: &Tensor<D>, dx: &mut Tensor<D>) -> Result<()> {
    let (own, all) = (g.rows() * dx.cols(), dx.rows() * dx.cols());
    let (rows, cols) = (g.rows(), dx.cols());
    let data = D::slice_mut(dx.make_mut(device)?.data, 0..own);
    device.gemm(g.matrix(), false, root.matrix(), true, MatrixMut { data, rows, cols }, Write::Assign)?;
    device.fill(num_traits::Zero::zero(), D::slice_mut(dx.make_mut(device)?.data, own..all))
}
