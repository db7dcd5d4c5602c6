//! The in-edges of some vertices, as samplers read them: those of a whole graph, or of a [`Shard`](super::Shard).

use std::ops::Range;

use super::{Graph, Remaining};
use crate::error::{Error, Result};

/// The in-edges of all vertices of a graph, or of those that a shard holds.
///
/// An edge has a *position* in the arrays here, and a *number* in the whole graph, which names its variates. In a shard
/// the two differ by a shift, which is the same for all edges of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InEdges<'a> {
    /// Number of vertices of the whole graph.
    pub n_vertices: usize,
    /// `[n_rows + 1]`: positions at which rows begin.
    pub indptr: &'a [u64],
    /// `[n_positions]`: sources.
    pub indices: &'a [u32],
    /// `[n_positions]`: relations.
    pub edge_type: Option<&'a [u16]>,
    /// `[n_positions]`: weights.
    pub edge_weight: Option<&'a [f32]>,
    /// Which vertices have rows; `None`: all, in order.
    pub held: Option<Held<'a>>,
    /// What [`sources`](InEdges::sources) reads instead for vertices that have lost edges.
    pub remaining: Option<&'a Remaining>,
}

/// Which vertices have rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held<'a> {
    /// Those of a shard.
    Shard {
        /// `[n_vertices]`: a vertex's row, or something out of range if it has none.
        row_of: &'a [u32],
        /// `[n_rows]`: the number of a row's first edge in the whole graph.
        first_edge: &'a [u64],
    },
    /// One vertex, whichever is given; the caller knows the shift from positions to numbers.
    One,
}

impl<'a> InEdges<'a> {
    /// The row of a vertex that has one. Otherwise panics, here or when the row is used.
    #[inline(always)]
    pub fn row(&self, vertex: u32) -> usize {
        match self.held {
            None => vertex as usize,
            Some(Held::Shard { row_of, .. }) => row_of[vertex as usize] as usize,
            Some(Held::One) => 0,
        }
    }

    /// Positions of a vertex's in-edges.
    #[inline(always)]
    pub fn positions(&self, vertex: u32) -> Range<u64> {
        let row = self.row(vertex);
        self.indptr[row]..self.indptr[row + 1]
    }

    /// [`positions`](InEdges::positions), checked: the arrays may be mapped from files that somebody changes, and then
    /// say anything.
    ///
    /// Errors: the positions are not inside of `indices`.
    #[inline(always)]
    pub fn checked_positions(&self, vertex: u32) -> Result<Range<u64>> {
        let positions = self.positions(vertex);
        if positions.start <= positions.end && positions.end <= self.indices.len() as u64 {
            return Ok(positions);
        }
        Err(self.wrong_positions(vertex, positions))
    }

    #[cold]
    fn wrong_positions(&self, vertex: u32, positions: Range<u64>) -> Error {
        let position = self.row(vertex) as u64 + 1;
        if positions.end < positions.start {
            let (value, previous) = (positions.end, positions.start);
            return Error::NotMonotone { array: "indptr", position, value, previous };
        }
        let value = i64::try_from(positions.end).unwrap_or(i64::MAX);
        let limit = self.indices.len() as u64 + 1;
        Error::IndexOutOfRange { array: "indptr", position, value, limit }
    }

    /// `Ok` if all of `sources`, read from `indices`, are vertices.
    ///
    /// Errors: one is not, which names its first place in `indices`.
    #[inline(always)]
    pub fn check_sources(&self, sources: &[u32]) -> Result<()> {
        let largest = sources.iter().copied().max().unwrap_or(0);
        if sources.is_empty() || (largest as usize) < self.n_vertices {
            return Ok(());
        }
        Err(self.wrong_source(largest))
    }

    #[cold]
    fn wrong_source(&self, source: u32) -> Error {
        let position = self.indices.iter().position(|&s| s == source).unwrap_or_default() as u64;
        let (value, limit) = (source.into(), self.n_vertices as u64);
        Error::IndexOutOfRange { array: "indices", position, value, limit }
    }

    /// What to add to the positions of a vertex's in-edges to get their numbers in the whole graph.
    #[inline(always)]
    pub fn shift(&self, vertex: u32) -> u64 {
        match self.held {
            None | Some(Held::One) => 0,
            Some(Held::Shard { first_edge, .. }) => {
                let row = self.row(vertex);
                // Never negative: no row begins later here than in the whole graph.
                first_edge[row] - self.indptr[row]
            }
        }
    }

    /// Sources of a vertex's in-edges, ascending.
    ///
    /// Errors: those of [`checked_positions`](InEdges::checked_positions).
    #[inline(always)]
    pub fn sources(&self, vertex: u32) -> Result<&'a [u32]> {
        if let Some(sources) = self.remaining.and_then(|remaining| remaining.sources(vertex)) {
            return Ok(sources);
        }
        let positions = self.checked_positions(vertex)?;
        Ok(&self.indices[positions.start as usize..positions.end as usize])
    }
}

impl Graph {
    /// All in-edges.
    pub(crate) fn in_edges(&self) -> InEdges<'_> {
        InEdges {
            n_vertices: self.n_vertices(),
            indptr: self.indptr(),
            indices: self.indices(),
            edge_type: self.edge_type(),
            edge_weight: self.edge_weight(),
            held: None,
            remaining: None,
        }
    }
}
