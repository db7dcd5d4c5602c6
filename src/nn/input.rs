//! What the first layer is given: dense or sparse rows, the vertices' ids, or rows that are aggregated already.

use std::sync::Arc;

use super::{Pass, activate};
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::{Error, Result};
use crate::tape::{Aggregate, SparseRows, Tape, Var};

/// Features of a block's sources.
#[derive(Clone, Debug)]
pub enum Input<D: Device> {
    /// `[n_src, dim]` on the tape.
    Dense(Var),
    /// `[n_src, dim]` sparse, constant.
    Sparse(SparseRows<D>),
    /// Vertices without features: one-hot rows of their ids, `[n_src, n_vertices]`. A product with a weight is the rows
    /// of the weight that the ids name: a trainable embedding.
    OneHot(OneHot<D>),
    /// What [`Model::input_aggregate`](super::Model::input_aggregate) asks for, made where the rows were gathered. Of
    /// an [`Aggregate`] that includes the destination itself: all of it, `[n_dst, dim]`; of another: the destination's
    /// own row and the aggregate beside it, `[n_dst, 2 · dim]`.
    Aggregated(Var, Aggregate),
}

/// One-hot rows. Cloning shares them.
#[derive(Debug)]
pub struct OneHot<D: Device> {
    ids: Arc<D::Buffer<u32>>,
    n_vertices: usize,
}

impl<D: Device> Clone for OneHot<D> {
    fn clone(&self) -> Self {
        OneHot { ids: self.ids.clone(), n_vertices: self.n_vertices }
    }
}

impl<D: Device> OneHot<D> {
    /// A row for each of `ids`, which are global and below `n_vertices`.
    pub fn new(ids: D::Buffer<u32>, n_vertices: usize) -> Self {
        OneHot { ids: Arc::new(ids), n_vertices }
    }
}

impl<D: Device> Input<D> {
    /// `[n_src, dim]`; of an aggregate as it says.
    pub fn shape(&self, tape: &Tape<D>) -> [usize; 2] {
        match self {
            Input::Dense(x) | Input::Aggregated(x, _) => tape.shape(*x),
            Input::Sparse(x) => x.shape(),
            Input::OneHot(x) => [D::len(&x.ids), x.n_vertices],
        }
    }

    /// Drops elements with probability `p` (see [`Tape::dropout`]). An error for one-hot rows and for aggregates, unless
    /// `p` is 0.
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
            Input::Aggregated(x, aggregate) => Input::Aggregated(tape.dropout(*x, p, None)?, *aggregate),
        })
    }

    /// The first `rows` rows; sparse and one-hot ones stay whole, since [`project`](Input::project) takes as many as it is asked for.
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
                let projected = tape.lookup(weight, &x.ids)?;
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

/// `Ok` if an input was aggregated as the layer would do it.
pub(super) fn check_aggregate(given: Aggregate, needed: Option<Aggregate>) -> Result<()> {
    if needed == Some(given) {
        return Ok(());
    }
    let expected = needed.map_or("the sources' rows".to_owned(), |needed| format!("{needed:?}"));
    Err(Error::invalid("input aggregated by", format!("{given:?}"), expected))
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
