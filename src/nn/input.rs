//! What a layer is given: dense or sparse rows, the vertices' ids, or rows that are aggregated already.

use std::sync::Arc;

use super::{Pass, activate};
use crate::batch::{BatchInput, OneHot};
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::{Error, Result};
use crate::tape::{Aggregate, SparseRows, Tape, Var};

/// Rows that a layer is given: features of a block's sources, or what the layer before made of them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Input<D: Device> {
    /// `[n_src, dim]` on the tape.
    Dense(Var),
    /// `[n_src, dim]` sparse, constant.
    Sparse(SparseRows<D>),
    /// Vertices without features: one-hot rows of their ids, `[n_src, n_vertices]`. A product with a weight is the rows
    /// of the weight that the ids name: a trainable embedding.
    OneHot(OneHot<D>),
    /// Rows that the source has aggregated already. Only a layer that asked for it
    /// ([`Layer::input_aggregate`](super::Layer::input_aggregate)) meets it, and takes it by
    /// [`aggregated`](Input::aggregated).
    Aggregated(Aggregated),
}

/// Rows aggregated over the first block, as [`BatchInput::Aggregated`] says.
#[derive(Clone, Copy, Debug)]
pub struct Aggregated {
    rows: Var,
    aggregate: Aggregate,
}

impl<D: Device> Input<D> {
    /// A batch's rows, on a tape.
    pub fn new(tape: &Tape<D>, rows: &BatchInput<D>) -> Self {
        match rows {
            BatchInput::Dense(x) => Input::Dense(tape.constant(x.clone())),
            BatchInput::Sparse(x) => Input::Sparse(x.clone()),
            BatchInput::OneHot(x) => Input::OneHot(x.clone()),
            BatchInput::Aggregated(x, aggregate) => {
                Input::Aggregated(Aggregated { rows: tape.constant(x.clone()), aggregate: *aggregate })
            }
        }
    }

    /// What the source has made of the rows, if it aggregated them, for the layer that takes `aggregate` first of all.
    /// `None`: the rows are as they were. Errors: rows aggregated in another way.
    pub fn aggregated(&self, aggregate: Option<Aggregate>) -> Result<Option<Var>> {
        let Input::Aggregated(x) = self else { return Ok(None) };
        if aggregate == Some(x.aggregate) {
            return Ok(Some(x.rows));
        }
        let expected = aggregate.map_or("the sources' rows".to_owned(), |needed| format!("{needed:?}"));
        Err(Error::invalid("input aggregated by", format!("{:?}", x.aggregate), expected))
    }

    /// `[n_src, dim]`; of an aggregate as [`BatchInput::Aggregated`] says.
    pub fn shape(&self, tape: &Tape<D>) -> [usize; 2] {
        match self {
            Input::Dense(x) | Input::Aggregated(Aggregated { rows: x, .. }) => tape.shape(*x),
            Input::Sparse(x) => x.shape(),
            Input::OneHot(x) => x.shape(),
        }
    }

    /// The shape that this kind of input has over `block` where rows have `width` columns.
    pub(super) fn required_shape(&self, block: &Block<D>, width: usize) -> [usize; 2] {
        match self {
            Input::Aggregated(x) if x.aggregate.includes_self() => [block.n_dst(), width],
            Input::Aggregated(_) => [block.n_dst(), 2 * width],
            _ => [block.n_src(), width],
        }
    }

    /// Drops elements with probability `p` (see [`Tape::dropout`]). An error for one-hot rows and for aggregates,
    /// unless `p` is 0.
    pub fn dropout(&self, tape: &Tape<D>, p: f64, block: &Arc<Block<D>>) -> Result<Self> {
        Ok(match self {
            Input::Dense(x) => Input::Dense(tape.dropout(*x, p, Some(block))?),
            Input::Sparse(x) => Input::Sparse(tape.sparse_dropout(x, p)?),
            Input::OneHot(_) if p > 0.0 => {
                let expected = "0 for vertices without features (or an input embedding)";
                return Err(Error::invalid("input_dropout", p, expected));
            }
            Input::Aggregated(..) if p > 0.0 => return Err(aggregated()),
            Input::OneHot(_) => self.clone(),
            // Counted, so that later dropouts are those of a model that is given rows.
            Input::Aggregated(x) => {
                Input::Aggregated(Aggregated { rows: tape.dropout(x.rows, p, None)?, ..*x })
            }
        })
    }

    /// The first `rows` rows; sparse and one-hot ones stay whole, since [`project`](Input::project) takes as many as it
    /// is asked for.
    pub fn prefix(&self, tape: &Tape<D>, rows: usize) -> Result<Self> {
        Ok(match self {
            Input::Dense(x) => Input::Dense(tape.prefix(*x, rows)?),
            Input::Sparse(_) | Input::OneHot(_) => self.clone(),
            Input::Aggregated(..) => return Err(aggregated()),
        })
    }

    /// `f(x · W + b)` for the first `rows` rows.
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
            Input::Aggregated(..) => Err(aggregated()),
        }
    }

    /// The rows to aggregate before they are transformed to `out_dim` columns: dense and not wider than the result.
    /// `None`: transforming first moves fewer bytes.
    pub fn aggregate_first(&self, tape: &Tape<D>, out_dim: usize) -> Option<Var> {
        match self {
            Input::Dense(x) if tape.shape(*x)[1] <= out_dim => Some(*x),
            _ => None,
        }
    }
}

/// The error for an aggregate where rows are needed.
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
