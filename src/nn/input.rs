//! What a layer is given: dense or sparse rows, the vertices' ids, or rows that have already been aggregated.

use std::sync::Arc;

use super::stack::check_probability;
use super::{Pass, activate};
use crate::batch::{BatchInput, OneHot};
use crate::block::Block;
use crate::coop::{InputTerms, Share, sliced_linear};
use crate::device::{Activation, Device};
use crate::error::{Error, Result};
use crate::tape::{Aggregate, SparseRows, Tape, Var};

/// The rows that a layer is given: features of a block's sources, or the output of the layer before.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input<D: Device> {
    /// `[n_src, dim]` on the tape.
    Dense(Var),
    /// `[n_src, dim]` sparse, constant.
    Sparse(SparseRows<D>),
    /// Vertices without features: one-hot rows of their ids, `[n_src, n_vertices]`. Their product with a weight is the
    /// weight's rows at these ids: a trainable embedding.
    OneHot(OneHot<D>),
    /// Rows that the source of batches has already aggregated. Only a layer that asks for this
    /// ([`Layer::input_aggregate`](super::Layer::input_aggregate)) is given such rows; it gets them from
    /// [`aggregated`](Input::aggregated).
    Aggregated(Aggregated),
    /// One processing element's columns of what the layer aggregates ([`BatchInput::Sliced`]). Only a layer that can
    /// begin so ([`Layer::input_terms`](super::Layer::input_terms)) is given it.
    Sliced(Sliced<D>),
}

/// Columns of aggregates over the first block, with the destinations of all processing elements.
#[derive(Clone, Debug)]
pub struct Sliced<D: Device> {
    rows: Var,
    share: Share<D>,
}

/// Rows aggregated over the first block, as described at [`BatchInput::Aggregated`].
#[derive(Clone, Copy, Debug)]
pub struct Aggregated {
    rows: Var,
    aggregate: Aggregate,
}

impl<D: Device> Input<D> {
    /// A batch's rows, on a tape.
    ///
    /// Errors: rows are to be widened, and the device fails or is out of memory.
    pub fn new(tape: &Tape<D>, rows: &BatchInput<D>) -> Result<Self> {
        Ok(match rows {
            BatchInput::Dense(x) => Input::Dense(tape.constant(x.clone())),
            BatchInput::Narrow(x) => Input::Dense(tape.constant(x.widened(tape.device())?)),
            BatchInput::Sparse(x) => Input::Sparse(x.clone()),
            BatchInput::OneHot(x) => Input::OneHot(x.clone()),
            BatchInput::Aggregated(x, aggregate) => {
                Input::Aggregated(Aggregated { rows: tape.constant(x.clone()), aggregate: *aggregate })
            }
            BatchInput::Sliced(x) => {
                Input::Sliced(Sliced { rows: tape.constant(x.rows().clone()), share: x.share().clone() })
            }
        })
    }

    /// The aggregated rows, if the source of batches has already aggregated them. `aggregate` is the aggregation with
    /// which the calling layer begins. `None`: the rows have not been aggregated.
    ///
    /// Errors: the rows have been aggregated in another way than `aggregate`.
    pub fn aggregated(&self, aggregate: Option<Aggregate>) -> Result<Option<Var>> {
        let Input::Aggregated(x) = self else { return Ok(None) };
        if aggregate == Some(x.aggregate) {
            return Ok(Some(x.rows));
        }
        let expected = aggregate.map_or("the sources' rows".to_owned(), |needed| format!("{needed:?}"));
        Err(Error::invalid("input aggregated by", format!("{:?}", x.aggregate), expected))
    }

    /// `f(Σ_k A_k x W_k + bias)` for this processing element's destinations, if the input is columns of the aggregates
    /// `A_k x`, of which `terms` says what they are; `weights` has the `W_k`, stacked or one by one. `None`: the input
    /// is of another kind. Collective.
    ///
    /// Errors: the aggregates are others than `terms`, the shapes do not fit, and those of communication.
    pub fn sliced_product(
        &self,
        tape: &Tape<D>,
        terms: Option<InputTerms>,
        weights: impl FnOnce() -> Result<Vec<Var>>,
        bias: Option<Var>,
        activation: Option<Activation>,
    ) -> Result<Option<Var>> {
        let Input::Sliced(Sliced { rows, share }) = self else { return Ok(None) };
        if terms != Some(share.terms()) {
            let expected = terms.map_or("the sources' rows".to_owned(), |needed| format!("{needed:?}"));
            return Err(Error::invalid("input sliced for", format!("{:?}", share.terms()), expected));
        }
        let product = sliced_linear(tape, share, *rows, tape.stack(&weights()?)?)?;
        finish(tape, product, bias, activation).map(Some)
    }

    /// `[n_src, dim]`; for aggregated rows, the shape that [`BatchInput::Aggregated`] gives. Panics if the rows are
    /// values of another tape.
    pub fn shape(&self, tape: &Tape<D>) -> [usize; 2] {
        match self {
            Input::Dense(x) | Input::Aggregated(Aggregated { rows: x, .. }) => tape.shape(*x),
            Input::Sparse(x) => x.shape(),
            Input::Sliced(x) => x.share.shape(),
            Input::OneHot(x) => x.shape(),
        }
    }

    /// The shape that an input of this kind must have over `block` if rows have `width` columns.
    pub(super) fn required_shape(&self, block: &Block<D>, width: usize) -> [usize; 2] {
        match self {
            Input::Aggregated(x) if x.aggregate.includes_self() => [block.n_dst(), width],
            Input::Aggregated(_) => [block.n_dst(), 2 * width],
            Input::Sliced(x) => [block.n_dst(), x.share.terms().n_terms() * width],
            _ => [block.n_src(), width],
        }
    }

    /// Drops elements with probability `p` (see [`Tape::dropout`]).
    ///
    /// Errors: `p` is not at least 0 and below 1, or above 0 for one-hot or aggregated rows, or there are more dense
    /// rows than `block` has sources.
    pub fn dropout(&self, tape: &Tape<D>, p: f64, block: &Arc<Block<D>>) -> Result<Self> {
        check_probability("p", p)?;
        Ok(match self {
            Input::Dense(x) => Input::Dense(tape.dropout(*x, p, Some(block))?),
            Input::Sparse(x) => Input::Sparse(tape.sparse_dropout(x, p)?),
            Input::OneHot(_) if p > 0.0 => {
                let expected = "0 for vertices without features (or an input embedding)";
                return Err(Error::invalid("input_dropout", p, expected));
            }
            Input::Aggregated(..) | Input::Sliced(_) if p > 0.0 => return Err(aggregated()),
            Input::OneHot(_) => self.clone(),
            // The identity here, but it counts: later dropouts then draw what they draw in a model that is given rows.
            Input::Aggregated(x) => {
                Input::Aggregated(Aggregated { rows: tape.dropout(x.rows, p, None)?, ..*x })
            }
            Input::Sliced(x) => {
                Input::Sliced(Sliced { rows: tape.dropout(x.rows, p, None)?, share: x.share.clone() })
            }
        })
    }

    /// The first `rows` rows. Sparse and one-hot rows stay whole, since [`project`](Input::project) takes the first
    /// ones itself.
    ///
    /// Errors: the rows are aggregated, or there are fewer than `rows` dense ones.
    pub fn prefix(&self, tape: &Tape<D>, rows: usize) -> Result<Self> {
        Ok(match self {
            Input::Dense(x) => Input::Dense(tape.prefix(*x, rows)?),
            Input::Sparse(_) | Input::OneHot(_) => self.clone(),
            Input::Aggregated(..) | Input::Sliced(_) => return Err(aggregated()),
        })
    }

    /// `f(x · W + b)` for the first `rows` rows `x`, with the given `weight`, `bias` and `activation`.
    ///
    /// Errors: the rows are aggregated, there are fewer than `rows`, the shapes do not fit, or a one-hot id is not
    /// below the number of rows of `weight`.
    pub fn project(
        &self,
        pass: &Pass<'_, D>,
        rows: usize,
        weight: Var,
        bias: Option<Var>,
        activation: Option<Activation>,
    ) -> Result<Var> {
        let tape = pass.tape;
        match self {
            Input::Dense(x) => tape.linear(&[(tape.prefix(*x, rows)?, weight)], bias, activation),
            Input::Sparse(x) => {
                finish(tape, tape.prefix(tape.sparse_linear(x, weight)?, rows)?, bias, activation)
            }
            Input::OneHot(x) => {
                let projected = tape.lookup(weight, x.ids())?;
                finish(tape, tape.prefix(projected, rows)?, bias, activation)
            }
            Input::Aggregated(..) | Input::Sliced(_) => Err(aggregated()),
        }
    }

    /// The rows, if they are to be aggregated before the product with a weight of `out_dim` columns: they are dense and
    /// not wider than the result. `None`: the product comes first. Panics if the rows are values of another tape.
    pub fn aggregate_first(&self, tape: &Tape<D>, out_dim: usize) -> Option<Var> {
        match self {
            Input::Dense(x) if tape.shape(*x)[1] <= out_dim => Some(*x),
            _ => None,
        }
    }
}

/// The error for aggregated rows where the rows themselves are needed.
fn aggregated() -> Error {
    Error::invalid("input", "aggregated", "the sources' rows")
}

/// `f(x + bias)`
fn finish<D: Device>(
    tape: &Tape<D>,
    x: Var,
    bias: Option<Var>,
    activation: Option<Activation>,
) -> Result<Var> {
    match bias {
        Some(bias) => tape.add_bias(x, bias, activation),
        None => activate(tape, x, activation),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Cpu, Storage};
    use crate::tensor::Tensor;

    #[test]
    fn a_dropout_that_is_no_probability_is_an_error_for_every_input() {
        let cpu = Cpu::<f64>::new();
        let block = Arc::new(Block::from_csr(&cpu, 2, &[0, 1], &[1]).unwrap());
        let tape = Tape::training(&cpu, 0);
        let x = tape.constant(Tensor::zeros(&cpu, 2, 3).unwrap());
        let one_hot = Input::OneHot(OneHot::new(cpu.upload(&[0, 1]).unwrap(), 2));
        let aggregated = Input::Aggregated(Aggregated { rows: x, aggregate: Aggregate::Mean });
        for (input, may_drop) in [(Input::Dense(x), true), (one_hot, false), (aggregated, false)] {
            for p in [-0.5, 1.0, 2.0, f64::NAN, f64::INFINITY] {
                assert!(input.dropout(&tape, p, &block).is_err(), "{input:?}: {p}");
            }
            assert!(input.dropout(&tape, 0.0, &block).is_ok());
            assert_eq!(input.dropout(&tape, 0.5, &block).is_ok(), may_drop);
        }
    }
}
