//! Graphs: in-edges in compressed rows over destinations, with validated builders and generators.
//!
//! ```
//! use cohop::graph::Graph;
//!
//! let graph = Graph::from_edges(3, &[(2, 0), (1, 0), (0, 2)])?; // (source, destination)
//! assert_eq!(graph.in_neighbors(0), [1, 2]);
//! assert_eq!(graph.symmetrize()?.n_edges(), 4); // adds 0 → 1
//! # Ok::<(), cohop::Error>(())
//! ```

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use crate::array::{Array, Bytes};
use crate::error::{Error, Result, check_length, try_zeroed};

mod build;
mod degrees;
mod edge_set;
mod edge_statistics;
mod generate;
mod in_edges;
mod metis;
mod partition;
mod transform;

pub use build::GraphBuilder;
pub(crate) use build::sort_rows;
pub use degrees::DegreeStatistics;
pub use edge_set::EdgeSet;
pub(crate) use edge_set::Remaining;
pub use edge_statistics::EdgeStatistics;
pub use generate::{Rmat, Sbm, SbmGraph};
pub(crate) use in_edges::{Held, InEdges};
pub use partition::{MAX_PES, Partition, PartitionMethod, Shard};

/// The smallest number of rows for which a parallel task is worth its overhead.
const ROWS_PER_TASK: usize = 4096;

/// A directed graph, stored by destination: row `t` lists the sources of `t`'s in-edges.
///
/// An edge's id is its position in `indices`; edge ids are 64-bit, vertex ids 32-bit. Parallel edges and self-loops are
/// kept as given.
#[derive(Clone, Debug)]
pub struct Graph {
    indptr: Array<u64>,
    indices: Array<u32>,
    edge_type: Option<Array<u16>>,
    edge_weight: Option<Array<f32>>,
    /// Sums of the rows of `edge_weight`, once they were asked for.
    weighted_in_degrees: OnceLock<Arc<Vec<f64>>>,
    n_relations: usize,
}

/// The largest number of vertices: ids are `u32`, and `u32::MAX` marks "none".
pub const MAX_VERTICES: u64 = u32::MAX as u64;

/// The largest number of relations: their ids are `u16`.
pub const MAX_RELATIONS: usize = 1 << 16;

impl Graph {
    /// A graph from its compressed rows.
    ///
    /// `indptr: [n_vertices + 1]` must ascend from 0 to `indices.len()`; `indices: [n_edges]` must be below
    /// `n_vertices` and ascend within each row. Everything is read and checked, in parallel: O(n_vertices + n_edges).
    /// For a memory-mapped `indices` that is one pass over the file; [`Graph::from_csr_trusted`] avoids it.
    ///
    /// Errors: those of [`Graph::from_csr_trusted`], a source not below `n_vertices`, or a row that does not ascend.
    pub fn from_csr(indptr: impl Into<Array<u64>>, indices: impl Into<Array<u32>>) -> Result<Self> {
        let graph = Self::from_csr_trusted(indptr, indices)?;
        let n_vertices = graph.n_vertices() as u64;
        let indices = graph.indices();
        // In an ascending row the last source is the largest: one comparison checks the range of all.
        let bad_row = graph.indptr.par_windows(2).with_min_len(ROWS_PER_TASK).find_map_first(|ends| {
            let row = &indices[ends[0] as usize..ends[1] as usize];
            let good = row.is_sorted() && row.last().is_none_or(|&s| u64::from(s) < n_vertices);
            (!good).then_some((ends[0], row))
        });
        match bad_row {
            Some((first, row)) => Err(row_error(first, row, n_vertices)),
            None => Ok(graph),
        }
    }

    /// A graph from its compressed rows, whose `indices` the caller vouches for: they are not read.
    ///
    /// `indptr` is checked as by [`Graph::from_csr`], so that every row lies inside `indices`: O(n_vertices). So a
    /// memory-mapped graph of billions of edges opens at once, if it has been checked before (or was written by this
    /// crate). A source out of range does not break memory safety: each kernel checks an id before it follows it
    /// ([`Error::IndexOutOfRange`]), and safe code that indexes by it panics. A row that does not ascend gives wrong
    /// samples.
    ///
    /// Errors: `indptr` is empty or does not ascend from 0 to `indices.len()`, or there are more than [`MAX_VERTICES`]
    /// vertices.
    pub fn from_csr_trusted(indptr: impl Into<Array<u64>>, indices: impl Into<Array<u32>>) -> Result<Self> {
        let (indptr, indices) = (indptr.into(), indices.into());
        let Some((&last, _)) = indptr.split_last() else {
            return Err(Error::WrongLength { array: "indptr", actual: 0, expected: 1 });
        };
        check_vertex_count(indptr.len() as u64 - 1)?;
        if indptr[0] != 0 {
            return Err(Error::invalid("indptr[0]", indptr[0], "0"));
        }
        let drop = indptr
            .par_windows(2)
            .with_min_len(ROWS_PER_TASK)
            .position_first(|ends| ends[1] < ends[0])
            .map(|row| row + 1);
        if let Some(position) = drop {
            return Err(Error::NotMonotone {
                array: "indptr",
                position: position as u64,
                value: indptr[position],
                previous: indptr[position - 1],
            });
        }
        if last != indices.len() as u64 {
            return Err(Error::WrongLength {
                array: "indices",
                actual: indices.len() as u64,
                expected: last,
            });
        }
        let (edge_type, edge_weight) = (None, None);
        Ok(Graph {
            indptr,
            indices,
            edge_type,
            edge_weight,
            weighted_in_degrees: OnceLock::new(),
            n_relations: 0,
        })
    }

    /// Adds a relation to every edge: `edge_type: [n_edges]`.
    ///
    /// Errors: `edge_type` does not have one element per edge, one is not below `n_relations`, or `n_relations` is
    /// above [`MAX_RELATIONS`].
    pub fn with_edge_types(mut self, edge_type: impl Into<Array<u16>>, n_relations: usize) -> Result<Self> {
        let edge_type = edge_type.into();
        check_length("edge_type", edge_type.len(), self.indices.len())?;
        check_relations(&edge_type, n_relations)?;
        self.edge_type = Some(edge_type);
        self.n_relations = n_relations;
        Ok(self)
    }

    /// Adds a weight to every edge: `edge_weight: [n_edges]`.
    ///
    /// Errors: `edge_weight` does not have one element per edge, or one is negative or not finite.
    pub fn with_edge_weights(mut self, edge_weight: impl Into<Array<f32>>) -> Result<Self> {
        let edge_weight = edge_weight.into();
        check_length("edge_weight", edge_weight.len(), self.indices.len())?;
        check_weights(&edge_weight)?;
        self.edge_weight = Some(edge_weight);
        self.weighted_in_degrees = OnceLock::new();
        Ok(self)
    }

    /// Number of vertices.
    pub fn n_vertices(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of edges.
    pub fn n_edges(&self) -> u64 {
        self.indices.len() as u64
    }

    /// Number of relations; 0 without edge types.
    pub fn n_relations(&self) -> usize {
        self.n_relations
    }

    /// `[n_vertices + 1]`: where each destination's in-edges begin.
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// `[n_edges]`: sources.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// `[n_edges]`: relations, if any.
    pub fn edge_type(&self) -> Option<&[u16]> {
        self.edge_type.as_deref()
    }

    /// `[n_edges]`: weights, if any.
    pub fn edge_weight(&self) -> Option<&[f32]> {
        self.edge_weight.as_deref()
    }

    /// Bytes of all arrays.
    pub(crate) fn bytes(&self) -> Bytes {
        let mut bytes = Bytes::default();
        bytes.add(&self.indptr);
        bytes.add(&self.indices);
        self.edge_type.iter().for_each(|types| bytes.add(types));
        self.edge_weight.iter().for_each(|weights| bytes.add(weights));
        bytes
    }

    /// Number of in-edges of a vertex. Panics if the vertex is out of range.
    pub fn in_degree(&self, vertex: u32) -> u64 {
        let vertex = vertex as usize;
        // Of a mapped graph that somebody changes, anything is possible.
        self.indptr[vertex + 1].saturating_sub(self.indptr[vertex])
    }

    /// `[n_vertices]`: the sum of the weights of each vertex's in-edges; `None` without weights. The first call adds
    /// them up; the sums are kept.
    ///
    /// Errors: no memory for `8 · n_vertices` bytes, or the graph is mapped and its `indptr` has been changed
    /// meanwhile.
    pub fn weighted_in_degrees(&self) -> Result<Option<&[f64]>> {
        let Some(weights) = &self.edge_weight else { return Ok(None) };
        if let Some(sums) = self.weighted_in_degrees.get() {
            return Ok(Some(sums));
        }
        let asked = format_args!("{} vertices", self.n_vertices());
        let mut sums: Vec<f64> = try_zeroed("sums of edge weights", self.n_vertices(), asked)?;
        let in_edges = self.in_edges();
        sums.par_iter_mut().with_min_len(ROWS_PER_TASK).enumerate().try_for_each(|(vertex, out)| {
            let positions = in_edges.checked_positions(vertex as u32)?;
            *out = sum(&weights[positions.start as usize..positions.end as usize]);
            Ok(())
        })?;
        Ok(Some(self.weighted_in_degrees.get_or_init(|| Arc::new(sums))))
    }

    /// Numbers of the edges from `source` to `destination`, which are consecutive: several for parallel edges, none if
    /// there is no such edge or vertex. O(log of the in-degree).
    ///
    /// ```
    /// # fn main() -> cohop::Result<()> {
    /// let graph = cohop::graph::Graph::from_edges(3, &[(0, 1), (2, 1), (2, 1)])?;
    /// assert_eq!(graph.edge_ids(2, 1), 1..3);
    /// assert!(graph.edge_ids(1, 2).is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn edge_ids(&self, source: u32, destination: u32) -> Range<u64> {
        if destination as usize >= self.n_vertices() {
            return 0..0;
        }
        let row = self.in_neighbors(destination);
        let first = self.indptr[destination as usize];
        let place = |end: usize| first + end as u64;
        place(row.partition_point(|&s| s < source))..place(row.partition_point(|&s| s <= source))
    }

    /// Sources of a vertex's in-edges, ascending. Panics if the vertex is out of range.
    pub fn in_neighbors(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.indices[self.indptr[vertex] as usize..self.indptr[vertex + 1] as usize]
    }
}

/// The sum of a row's weights, in their order.
fn sum(weights: &[f32]) -> f64 {
    weights.iter().fold(0.0, |sum, &w| sum + f64::from(w))
}

fn check_vertex_count(n_vertices: u64) -> Result<()> {
    if n_vertices > MAX_VERTICES {
        return Err(Error::TooLarge { what: "the vertex set", count: n_vertices, limit: MAX_VERTICES });
    }
    Ok(())
}

fn check_relation_count(n_relations: usize) -> Result<()> {
    if n_relations > MAX_RELATIONS {
        let (count, limit) = (n_relations as u64, MAX_RELATIONS as u64);
        return Err(Error::TooLarge { what: "the set of relations", count, limit });
    }
    Ok(())
}

fn check_relations(edge_type: &[u16], n_relations: usize) -> Result<()> {
    check_relation_count(n_relations)?;
    let bad =
        edge_type.par_iter().with_min_len(ROWS_PER_TASK).position_first(|&r| usize::from(r) >= n_relations);
    match bad {
        None => Ok(()),
        Some(position) => Err(Error::IndexOutOfRange {
            array: "edge_type",
            position: position as u64,
            value: i64::from(edge_type[position]),
            limit: n_relations as u64,
        }),
    }
}

/// `Ok` if all weights are finite and not negative.
fn check_weights(edge_weight: &[f32]) -> Result<()> {
    let bad =
        edge_weight.par_iter().with_min_len(ROWS_PER_TASK).position_first(|w| !(w.is_finite() && *w >= 0.0));
    match bad {
        None => Ok(()),
        Some(position) => Err(Error::invalid(
            "edge_weight",
            format!("{} at position {position}", edge_weight[position]),
            "a finite number of at least 0",
        )),
    }
}

/// The error for the first bad entry of a row that begins at position `first` of `indices`.
fn row_error(first: u64, row: &[u32], n_vertices: u64) -> Error {
    let mut previous = 0;
    for (position, &value) in (first..).zip(row) {
        if u64::from(value) >= n_vertices {
            return Error::IndexOutOfRange {
                array: "indices",
                position,
                value: i64::from(value),
                limit: n_vertices,
            };
        }
        if value < previous {
            return Error::invalid(
                "indices",
                format!("{previous}, {value} at positions {}, {position}", position - 1),
                "ascending sources within a row",
            );
        }
        previous = value;
    }
    Error::invalid("indices", format!("a row at position {first}"), "ascending sources within a row")
}

#[cfg(test)]
mod tests;
