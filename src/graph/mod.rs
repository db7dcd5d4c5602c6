//! Graphs: in-edges in compressed rows over destinations, with validated builders and generators.

use crate::array::Array;
use crate::error::{Error, Result, check_length};

/// A directed graph, stored by destination: row `t` lists the sources of `t`'s in-edges.
///
/// An edge's id is its position in `indices`; ids are 64-bit, vertex ids 32-bit. Parallel edges and self-loops are
/// kept as given.
#[derive(Clone, Debug)]
pub struct Graph {
    indptr: Array<u64>,
    indices: Array<u32>,
    edge_type: Option<Array<u16>>,
    edge_weight: Option<Array<f32>>,
    n_relations: usize,
}

/// The largest number of vertices: ids are `u32`, and `u32::MAX` marks "none".
pub const MAX_VERTICES: u64 = u32::MAX as u64;

impl Graph {
    /// A graph from its compressed rows.
    ///
    /// `indptr: [n_vertices + 1]` must ascend from 0 to `indices.len()`; `indices: [n_edges]` must be below
    /// `n_vertices` and ascend within each row. O(n_vertices + n_edges).
    pub fn from_csr(indptr: impl Into<Array<u64>>, indices: impl Into<Array<u32>>) -> Result<Self> {
        let (indptr, indices) = (indptr.into(), indices.into());
        let Some((&last, _)) = indptr.split_last() else {
            return Err(Error::WrongLength { array: "indptr", actual: 0, expected: 1 });
        };
        let n_vertices = indptr.len() as u64 - 1;
        if n_vertices > MAX_VERTICES {
            return Err(Error::TooLarge { what: "the vertex set", count: n_vertices, limit: MAX_VERTICES });
        }
        if indptr[0] != 0 {
            return Err(Error::invalid("indptr[0]", indptr[0], "0"));
        }
        for (position, pair) in indptr.windows(2).enumerate() {
            if pair[1] < pair[0] {
                return Err(Error::NotMonotone {
                    array: "indptr",
                    position: position as u64 + 1,
                    value: pair[1],
                    previous: pair[0],
                });
            }
        }
        if last != indices.len() as u64 {
            return Err(Error::WrongLength {
                array: "indices",
                actual: indices.len() as u64,
                expected: last,
            });
        }
        for row in indptr.windows(2) {
            let mut previous = 0;
            for position in row[0]..row[1] {
                let value = indices[position as usize];
                if u64::from(value) >= n_vertices {
                    return Err(Error::IndexOutOfRange {
                        array: "indices",
                        position,
                        value: i64::from(value),
                        limit: n_vertices,
                    });
                }
                if value < previous {
                    return Err(Error::invalid(
                        "indices",
                        format!("{previous}, {value} at positions {}, {position}", position - 1),
                        "ascending sources within a row",
                    ));
                }
                previous = value;
            }
        }
        Ok(Graph { indptr, indices, edge_type: None, edge_weight: None, n_relations: 0 })
    }

    /// Adds a relation to every edge; `edge_type: [n_edges]`, each below `n_relations`.
    pub fn with_edge_types(mut self, edge_type: impl Into<Array<u16>>, n_relations: usize) -> Result<Self> {
        let edge_type = edge_type.into();
        check_length("edge_type", edge_type.len(), self.indices.len())?;
        if let Some(position) = edge_type.iter().position(|&r| usize::from(r) >= n_relations) {
            return Err(Error::IndexOutOfRange {
                array: "edge_type",
                position: position as u64,
                value: i64::from(edge_type[position]),
                limit: n_relations as u64,
            });
        }
        self.edge_type = Some(edge_type);
        self.n_relations = n_relations;
        Ok(self)
    }

    /// Adds a weight to every edge; `edge_weight: [n_edges]`, finite and not negative.
    pub fn with_edge_weights(mut self, edge_weight: impl Into<Array<f32>>) -> Result<Self> {
        let edge_weight = edge_weight.into();
        check_length("edge_weight", edge_weight.len(), self.indices.len())?;
        if let Some(position) = edge_weight.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            return Err(Error::invalid(
                "edge_weight",
                format!("{} at position {position}", edge_weight[position]),
                "a finite number of at least 0",
            ));
        }
        self.edge_weight = Some(edge_weight);
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

    /// Number of in-edges of a vertex. Panics if it is out of range.
    pub fn in_degree(&self, vertex: u32) -> u64 {
        let vertex = vertex as usize;
        self.indptr[vertex + 1] - self.indptr[vertex]
    }

    /// Sources of a vertex's in-edges, ascending. Panics if it is out of range.
    pub fn in_neighbors(&self, vertex: u32) -> &[u32] {
        let vertex = vertex as usize;
        &self.indices[self.indptr[vertex] as usize..self.indptr[vertex + 1] as usize]
    }
}
