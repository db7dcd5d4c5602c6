//! Sets of edges, and a graph's rows without them.

use std::collections::HashMap;
use std::ops::Range;

use super::{Graph, Held, InEdges};
use crate::error::{Error, Result};

/// A set of edges of a graph, by their numbers.
///
/// ```
/// # fn main() -> cohop::Result<()> {
/// use cohop::prelude::*;
///
/// let graph = Graph::from_edges(3, &[(1, 0), (2, 0), (1, 0), (0, 1)])?;
/// // All edges from 1 to 0 and from 0 to 1.
/// let pair: EdgeSet = graph.edge_ids(1, 0).chain(graph.edge_ids(0, 1)).collect();
/// assert_eq!(pair.ids(), [0, 1, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeSet {
    ids: Vec<u64>,
}

impl FromIterator<u64> for EdgeSet {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut ids: Vec<u64> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        EdgeSet { ids }
    }
}

impl EdgeSet {
    /// The edges' numbers, ascending, each once.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether the set has an edge: O(log n).
    pub fn contains(&self, id: u64) -> bool {
        self.ids.binary_search(&id).is_ok()
    }
}

/// Copies of the rows that have edges of a set, without these edges.
#[derive(Debug)]
pub(crate) struct Remaining {
    row_of: HashMap<u32, usize>,
    /// `[n_rows + 1]`
    indptr: Vec<u64>,
    /// `[n_remaining]`: sources.
    indices: Vec<u32>,
    edge_type: Option<Vec<u16>>,
    edge_weight: Option<Vec<f32>>,
    /// `[n_remaining]`: numbers in the whole graph.
    numbers: Vec<u64>,
}

impl Remaining {
    /// The rows of `graph` with edges in `excluded`: O(excluded · log n_vertices + these rows' degrees).
    ///
    /// Errors: a number in `excluded` is not below the number of edges.
    pub(crate) fn new(graph: &Graph, excluded: &EdgeSet) -> Result<Self> {
        let mut remaining = Remaining {
            row_of: HashMap::new(),
            indptr: vec![0],
            indices: Vec::new(),
            edge_type: graph.edge_type().map(|_| Vec::new()),
            edge_weight: graph.edge_weight().map(|_| Vec::new()),
            numbers: Vec::new(),
        };
        if let Some(position) = excluded.ids.iter().position(|&id| id >= graph.n_edges()) {
            return Err(Error::IndexOutOfRange {
                array: "excluded edges",
                position: position as u64,
                value: excluded.ids[position] as i64,
                limit: graph.n_edges(),
            });
        }
        let mut rest = &excluded.ids[..];
        while let Some(&first) = rest.first() {
            let vertex = graph.indptr().partition_point(|&start| start <= first) - 1;
            let row = graph.indptr()[vertex]..graph.indptr()[vertex + 1];
            let (own, others) = rest.split_at(rest.partition_point(|&id| id < row.end));
            remaining.push(graph, vertex as u32, row, own);
            rest = others;
        }
        Ok(remaining)
    }

    fn push(&mut self, graph: &Graph, vertex: u32, row: Range<u64>, excluded: &[u64]) {
        let mut next = excluded.iter().peekable();
        let first = self.numbers.len();
        self.numbers.extend(row.filter(|id| next.next_if_eq(&id).is_none()));
        let kept = self.numbers[first..].iter().map(|&id| id as usize);
        self.indices.extend(kept.clone().map(|id| graph.indices()[id]));
        if let (Some(own), Some(all)) = (&mut self.edge_type, graph.edge_type()) {
            own.extend(kept.clone().map(|id| all[id]));
        }
        if let (Some(own), Some(all)) = (&mut self.edge_weight, graph.edge_weight()) {
            own.extend(kept.map(|id| all[id]));
        }
        self.row_of.insert(vertex, self.indptr.len() - 1);
        self.indptr.push(self.numbers.len() as u64);
    }

    /// Whether a vertex has lost edges.
    pub(crate) fn has(&self, vertex: u32) -> bool {
        self.row_of.contains_key(&vertex)
    }

    /// Sources of the edges that remain at a vertex that has lost some.
    pub(super) fn sources(&self, vertex: u32) -> Option<&[u32]> {
        let &row = self.row_of.get(&vertex)?;
        Some(&self.indices[self.indptr[row] as usize..self.indptr[row + 1] as usize])
    }

    /// `[n_remaining]`: the numbers in the whole graph of the edges of [`row`](Remaining::row), by position.
    pub(crate) fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// The in-edges of one vertex that has lost some.
    pub(crate) fn row(&self, vertex: u32, n_vertices: usize) -> InEdges<'_> {
        let row = self.row_of[&vertex];
        InEdges {
            n_vertices,
            indptr: &self.indptr[row..row + 2],
            indices: &self.indices,
            edge_type: self.edge_type.as_deref(),
            edge_weight: self.edge_weight.as_deref(),
            held: Some(Held::One),
            remaining: None,
        }
    }
}
