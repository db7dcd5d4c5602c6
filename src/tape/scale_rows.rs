//! `out[t] = own[t] · x[t]`, a destination's own part in a GCN aggregation; `dx[t] = own[t] · dout[t]`.

use std::sync::Arc;

use super::{Aggregate, BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::{Device, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// The destinations' own part of an [`Aggregate::MeanWithSelf`] or [`Aggregate::Symmetric`] aggregation of
    /// `x: [n_src, dim]`: `[n_dst, dim]`.
    ///
    /// Errors: another aggregation, [`Aggregate::Symmetric`] over a block without degrees, or fewer rows of `x` than
    /// destinations.
    pub fn own_part(&self, block: &Arc<Block<D>>, x: Var, aggregate: Aggregate) -> Result<Var> {
        let x = self.prefix(x, block.n_dst())?;
        self.apply(OwnPart { block: block.clone(), aggregate }, &[x])
    }
}

struct OwnPart<D: Device> {
    block: Arc<Block<D>>,
    aggregate: Aggregate,
}

impl<D: Device> OwnPart<D> {
    fn scale(&self, device: &D, x: &Tensor<D>) -> Result<Tensor<D>> {
        let factor = self.aggregate.own_factors(device, &self.block)?.ok_or_else(|| {
            Error::invalid("aggregate", format!("{:?}", self.aggregate), "MeanWithSelf or Symmetric")
        })?;
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        device.scale_rows(factor, x.matrix(), out.make_mut(device)?, Write::Assign)?;
        Ok(out)
    }
}

impl<D: Device> Op<D> for OwnPart<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "own_part"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        Ok((self.scale(device, inputs[0])?, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![Some(self.scale(device, &step.gradient)?)])
    }
}
