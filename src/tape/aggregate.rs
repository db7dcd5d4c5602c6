//! `out = A · x` for a block's sparse matrix `A` with constant factors; `dx = Aᵀ · dout`, by the block's transpose. `x`
//! and `dout` are read in the device's precision.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Rows, Weights, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How a destination combines its in-edges' messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// `Σ w x_s` with the block's [edge weights](Block::edge_weight) `w`, 1 if it has none. Over a sampled block this
    /// is the sum of what was sampled.
    Sum,
    /// The mean, weighted by the block's edge weights and estimator weights if it has any ([`Block::mean_weights`]); 0
    /// without edges, or if all their weights are 0.
    Mean,
    /// The edges' part of [`Block::mean_with_self_weights`].
    MeanWithSelf,
    /// The edges' part of [`Block::symmetric_weights`].
    Symmetric,
}

impl Aggregate {
    /// Whether the destination's own row has a factor too (see [`Tape::own_part`]).
    pub fn includes_self(self) -> bool {
        matches!(self, Aggregate::MeanWithSelf | Aggregate::Symmetric)
    }

    /// The edges' factors.
    pub(crate) fn weights<'a, D: Device>(self, device: &D, block: &'a Block<D>) -> Result<Weights<'a, D>> {
        match self {
            Aggregate::Sum => Ok(block.sum_weights()),
            Aggregate::Mean => block.mean_weights(device),
            Aggregate::MeanWithSelf => Ok(block.mean_with_self_weights(device)?.0),
            Aggregate::Symmetric => Ok(block.symmetric_weights(device)?.ok_or_else(no_degrees)?.0),
        }
    }

    /// `[n_dst]`: the destinations' own factors; `None` if they have none.
    pub(crate) fn own_factors<'a, D: Device>(
        self,
        device: &D,
        block: &'a Block<D>,
    ) -> Result<Option<D::View<'a, D::Scalar>>> {
        Ok(match self {
            Aggregate::Sum | Aggregate::Mean => None,
            Aggregate::MeanWithSelf => Some(block.mean_with_self_weights(device)?.1),
            Aggregate::Symmetric => Some(block.symmetric_weights(device)?.ok_or_else(no_degrees)?.1),
        })
    }
}

/// The error for a block that lacks the degrees of symmetric normalisation.
fn no_degrees() -> Error {
    Error::invalid("block", "without in-degrees", "one made with `Block::with_degrees`")
}

impl<D: Device> Tape<D> {
    /// Aggregates the rows of `x: [n_src, dim]` over the in-edges of each destination: `[n_dst, dim]`.
    ///
    /// Errors: `x` does not have one row per source; [`Aggregate::Symmetric`] over a block without degrees.
    pub fn aggregate(&self, block: &Arc<Block<D>>, x: Var, aggregate: Aggregate) -> Result<Var> {
        self.apply(AggregateOp { block: block.clone(), aggregate }, &[x])
    }
}

struct AggregateOp<D: Device> {
    block: Arc<Block<D>>,
    aggregate: Aggregate,
}

impl<D: Device> Op<D> for AggregateOp<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "aggregate"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let weights = self.aggregate.weights(device, &self.block)?;
        let mut out = Tensor::allocate(device, self.block.n_dst(), inputs[0].cols())?;
        let x = Rows::of(device, inputs[0].matrix())?;
        x.spmm(device, self.block.csr(), weights, out.make_mut(device)?, Write::Assign)?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let Weights { edge, row, column } = self.aggregate.weights(device, &self.block)?;
        let transposed = Weights { edge, row: column, column: row };
        let mut dx = Tensor::allocate(device, self.block.n_src(), step.gradient.cols())?;
        let (transpose, dout) = (self.block.transpose(device)?, Rows::of(device, step.gradient.matrix())?);
        dout.spmm(device, transpose, transposed, dx.make_mut(device)?, Write::Assign)?;
        Ok(vec![Some(dx)])
    }
}
