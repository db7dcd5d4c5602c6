//! `out[g] = x[row(g)] · W_{r(g)}` for groups `g` of one relation and one source (or destination) each.
//!
//! `dx[s] = Σ_{g of s} dout[g] · W_{r(g)}ᵀ`, `dW_r = Σ_{g of r} x[row(g)]ᵀ · dout[g]`: the relation kernels over a
//! block whose destinations are the groups, each with one in-edge.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Direction, Order, RelationEdges, Write, check_same_shape};
use crate::error::Result;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// `x[v] · W_r` for every pair of a relation `r` and a vertex `v` that is a source ([`Direction::Backward`]) or a
    /// destination ([`Direction::Forward`]) of an edge of this relation, in the order of the block's groups.
    /// `x: [n_src, k]`, `weight: [n_relations · k, n]`, out: `[n_group, n]`.
    ///
    /// Errors: a block without edge types or with one at or above `n_relations`; `x` or `weight` of another shape.
    pub fn relation_transform(
        &self,
        block: &Arc<Block<D>>,
        n_relations: usize,
        direction: Direction,
        x: Var,
        weight: Var,
    ) -> Result<Var> {
        let [n_rows, k] = self.shape_of(x)?;
        // The kernels take the rows that the groups name for granted.
        check_same_shape("relation transform", "x", [n_rows, k], "required", [block.n_src(), k])?;
        block.relation_ends(self.device(), n_relations, direction)?;
        self.apply(RelationTransform { block: block.clone(), n_relations, direction }, &[x, weight])
    }
}

struct RelationTransform<D: Device> {
    block: Arc<Block<D>>,
    n_relations: usize,
    direction: Direction,
}

impl<D: Device> RelationTransform<D> {
    fn edges(&self, device: &D) -> Result<&RelationEdges<D>> {
        self.block.relation_ends(device, self.n_relations, self.direction)
    }
}

impl<D: Device> Op<D> for RelationTransform<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "relation_transform"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let (x, weight) = (inputs[0], inputs[1]);
        let edges = self.edges(device)?;
        let mut out = Tensor::allocate(device, edges.n_dst, weight.cols())?;
        device.relation_product(
            edges,
            Direction::Forward,
            Order::AggregateFirst,
            weight.view(),
            x.matrix(),
            out.make_mut(device)?,
            Write::Assign,
        )?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let (x, weight, dout) = (step.inputs[0], step.inputs[1], &step.gradient);
        let edges = self.edges(device)?;
        let mut gradients = vec![None, None];
        if step.wanted[0] {
            let mut dx = Tensor::allocate(device, x.rows(), x.cols())?;
            let out = dx.make_mut(device)?;
            let (direction, order) = (Direction::Backward, Order::AggregateFirst);
            let (weight, dout) = (weight.view(), dout.matrix());
            device.relation_product(edges, direction, order, weight, dout, out, Write::Assign)?;
            gradients[0] = Some(dx);
        }
        if step.wanted[1] {
            let mut dweight = Tensor::allocate(device, weight.rows(), weight.cols())?;
            let out = dweight.make_mut(device)?.data;
            let (x, dout) = (x.matrix(), dout.matrix());
            device.relation_weight_gradient(edges, Direction::Forward, x, dout, out)?;
            gradients[1] = Some(dweight);
        }
        Ok(gradients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::test_kernels::test_f64_devices;

    test_f64_devices! { shapes_that_do_not_fit_are_errors }

    fn shapes_that_do_not_fit_are_errors<D: Device<Scalar = f64>>(device: &D) {
        let block = Block::from_csr(device, 3, &[0, 2, 3], &[0, 2, 1]).unwrap();
        let block = Arc::new(block.with_edge_types(device.upload(&[0u16, 1, 0]).unwrap()).unwrap());
        let tape = Tape::inference(device);
        let zeros = |rows, cols| tape.constant(Tensor::zeros(device, rows, cols).unwrap());
        for direction in [Direction::Forward, Direction::Backward] {
            let shape = |n_x, n_weight| {
                tape.relation_transform(&block, 2, direction, zeros(n_x, 2), zeros(n_weight, 5))
            };
            assert!(shape(3, 4).is_ok());
            for (n_x, n_weight) in [(2, 4), (4, 4), (0, 4), (3, 5), (3, 3), (3, 0)] {
                assert!(shape(n_x, n_weight).is_err(), "{direction:?}: {n_x} rows, weight of {n_weight}");
            }
        }
    }
}
