//! Inverted dropout: `out = mask ⊙ x / (1 − p)`; `dx = mask ⊙ dout / (1 − p)`, the mask drawn again.

use std::sync::Arc;

use super::{BackwardStep, Op, Tape, Var};
use crate::block::Block;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::rng;
use crate::tensor::Tensor;

impl<D: Device> Tape<D> {
    /// Drops each element of `x` with probability `p`; the identity on an inference tape and for `p = 0`.
    ///
    /// With a block, row `i` is its source `i`. Whether an element is dropped is then a function of the tape's seed,
    /// the number of dropouts before this one, the vertex's global id and the column: it does not depend on the
    /// vertex's place in the batch.
    ///
    /// Errors: `p` is not at least 0 and below 1; where elements are dropped, more rows than the block has sources.
    pub fn dropout(&self, x: Var, p: f64, block: Option<&Arc<Block<D>>>) -> Result<Var> {
        let Some(stream) = self.next_dropout(p)? else { return Ok(x) };
        self.apply(Dropout { p, seed: self.seed, stream, block: block.cloned() }, &[x])
    }

    /// The random stream of the tape's next dropout, or `None` if it is the identity; it is counted in either case.
    pub(super) fn next_dropout(&self, p: f64) -> Result<Option<u64>> {
        if !(0.0..1.0).contains(&p) {
            return Err(Error::invalid("p", p, "a dropout probability of at least 0 and below 1"));
        }
        let count = self.n_dropout.get();
        self.n_dropout.set(count + 1);
        Ok((self.training && p > 0.0).then_some(rng::Purpose::Dropout.stream(count)))
    }
}

struct Dropout<D: Device> {
    p: f64,
    seed: u64,
    stream: u64,
    block: Option<Arc<Block<D>>>,
}

impl<D: Device> Dropout<D> {
    fn mask(&self, device: &D, x: &Tensor<D>) -> Result<Tensor<D>> {
        let mut out = Tensor::allocate(device, x.rows(), x.cols())?;
        let rows = match &self.block {
            Some(block) if block.n_src() < x.rows() => {
                return Err(Error::ShapeMismatch {
                    op: "dropout",
                    left_name: "x",
                    left: x.shape(),
                    right_name: "the block's sources",
                    right: [block.n_src(), x.cols()],
                });
            }
            Some(block) => Some(D::slice(block.src(), 0..x.rows())),
            None => None,
        };
        device.dropout(self.p, self.seed, self.stream, rows, x.matrix(), out.make_mut(device)?)?;
        Ok(out)
    }
}

impl<D: Device> Op<D> for Dropout<D> {
    type Saved = ();

    fn name(&self) -> &'static str {
        "dropout"
    }

    fn forward(&self, device: &D, inputs: &[&Tensor<D>]) -> Result<(Tensor<D>, ())> {
        Ok((self.mask(device, inputs[0])?, ()))
    }

    fn backward(&self, device: &D, (): (), step: BackwardStep<'_, D>) -> Result<Vec<Option<Tensor<D>>>> {
        Ok(vec![Some(self.mask(device, &step.gradient)?)])
    }
}
