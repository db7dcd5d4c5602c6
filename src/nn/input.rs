//! What the first layer is given: dense or sparse rows.

use std::sync::Arc;

use super::Pass;
use crate::block::Block;
use crate::device::{Activation, Device};
use crate::error::Result;
use crate::tape::{SparseRows, Tape, Var};

/// Features of a block's sources.
#[derive(Clone, Debug)]
pub enum Input<D: Device> {
    /// `[n_src, dim]` on the tape.
    Dense(Var),
    /// `[n_src, dim]` sparse, constant.
    Sparse(SparseRows<D>),
}

impl<D: Device> Input<D> {
    /// `[n_src, dim]`
    pub fn shape(&self, tape: &Tape<D>) -> [usize; 2] {
        match self {
            Input::Dense(x) => tape.shape(*x),
            Input::Sparse(x) => x.shape(),
        }
    }

    /// Drops elements with probability `p` (see [`Tape::dropout`]).
    pub fn dropout(&self, tape: &Tape<D>, p: f64, block: &Arc<Block<D>>) -> Result<Self> {
        Ok(match self {
            Input::Dense(x) => Input::Dense(tape.dropout(*x, p, Some(block))?),
            Input::Sparse(x) => Input::Sparse(tape.sparse_dropout(x, p)?),
        })
    }

    /// The first `rows` rows; sparse ones stay whole, since [`project`](Input::project) takes as many as it is asked for.
    pub fn prefix(&self, tape: &Tape<D>, rows: usize) -> Result<Self> {
        Ok(match self {
            Input::Dense(x) => Input::Dense(tape.prefix(*x, rows)?),
            Input::Sparse(x) => Input::Sparse(x.clone()),
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
                let projected = tape.prefix(tape.sparse_linear(x, weight)?, rows)?;
                match (bias, activation) {
                    (Some(bias), _) => tape.add_bias(projected, bias, activation),
                    (None, Some(activation)) => tape.activate(projected, activation),
                    (None, None) => Ok(projected),
                }
            }
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
