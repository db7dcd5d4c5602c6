//! `out[t, :] = Σ_e c_e · x[e, :]` over the in-edges of `t`, with constant factors `c`;
//! `dx[e, :] = c_e · dout[t(e), :]`.

use std::sync::Arc;

use super::{Aggregate, BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Csr, Device, Weights, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Aggregates rows of edges, `x: [n_edge, dim]`, over the in-edges of each destination: `[n_dst, dim]`, 0 without
    /// edges. Both are weighted by the block's edge weights, and [`Aggregate::Mean`] by its estimator weights, if it
    /// has any.
    ///
    /// Errors: `x` does not have one row per edge, or `aggregate` is neither [`Aggregate::Sum`] nor
    /// [`Aggregate::Mean`].
    pub fn aggregate_edges(&self, block: &Arc<Block<D>>, x: Var, aggregate: Aggregate) -> Result<Var> {
        if !matches!(aggregate, Aggregate::Sum | Aggregate::Mean) {
            return Err(Error::invalid("aggregate", format!("{aggregate:?}"), "Sum or Mean"));
        }
        self.apply(AggregateEdges { block: block.clone(), aggregate }, &[x])
    }
}

struct AggregateEdges<D: Device> {
    block: Arc<Block<D>>,
    aggregate: Aggregate,
}

/// `A · x`
fn product<D: Device>(
    device: &D,
    a: Csr<'_, D>,
    weights: Weights<'_, D>,
    x: &Tensor<D>,
) -> Result<Tensor<D>> {
    let mut out = Tensor::allocate(device, a.n_rows, x.cols())?;
    device.spmm(a, weights, x.matrix(), out.make_mut(device)?, Write::Assign)?;
    Ok(out)
}

impl<D: Device> Op<D> for AggregateEdges<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "aggregate_edges"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        let weights = self.aggregate.weights(device, &self.block)?;
        let out = product(device, self.block.edges(device)?.csr(), weights, inputs[0])?;
        Ok((out, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        let Weights { edge, row, column } = self.aggregate.weights(device, &self.block)?;
        let transposed = Weights { edge, row: column, column: row };
        let transpose = self.block.edges(device)?.transpose(device)?;
        Ok(vec![Some(product(device, transpose, transposed, &step.gradient)?)])
    }
}
