//! Graphs made from graphs: reverse edges, self-loops, parallel edges.
//!
//! All of them work row by row, in parallel, in O(n_vertices + n_edges) (times the logarithm of the number of parallel
//! edges between two vertices), and return a graph in memory. Relations and weights stay with their edges.

use rayon::prelude::*;

use super::build::group_by_key;
use super::{Graph, ROWS_PER_TASK, check_relation_count, check_weights};
use crate::error::{Error, Result, try_capacity, try_extend, try_filled};

/// One in-edge of a row. Absent relations are 0, absent weights 1.
#[derive(Clone, Copy, Debug, Default)]
struct InEdge {
    source: u32,
    relation: u16,
    weight: f32,
}

impl Graph {
    /// Adds each missing reverse edge: where s→t of relation r exists but no t→s of relation r, it is added with the
    /// weight of s→t (one for each parallel s→t). Edges that exist stay as they are, so a symmetric graph is unchanged,
    /// even if its two directions have different weights.
    ///
    /// Errors: there is no memory for the new graph.
    pub fn symmetrize(&self) -> Result<Graph> {
        let reverse = self.reverse()?;
        self.map_rows(self.n_relations, |vertex, row| {
            let given = row.len();
            let mut relations = Vec::new();
            let mut next = 0;
            let mut group_source = None;
            for &added in reverse.row(vertex) {
                if group_source != Some(added.source) {
                    group_source = Some(added.source);
                    next += row[next..given].partition_point(|e| e.source < added.source);
                    let group = row[next..given].partition_point(|e| e.source == added.source);
                    relations.clear();
                    relations.extend(row[next..next + group].iter().map(|e| e.relation));
                    relations.sort_unstable();
                }
                if relations.binary_search(&added.relation).is_err() {
                    row.push(added);
                }
            }
            row.sort_by_key(|e| e.source);
        })
    }

    /// Merges parallel edges: one edge remains for each (source, destination, relation), with the sum of their weights.
    /// Edges between the same vertices end up in order of relation.
    ///
    /// Errors: a sum of weights overflows `f32`, or there is no memory for the new graph.
    pub fn deduplicate(&self) -> Result<Graph> {
        let graph = self.map_rows(self.n_relations, |_, row| {
            row.sort_by_key(|e| (e.source, e.relation));
            row.dedup_by(|later, kept| {
                let same = (later.source, later.relation) == (kept.source, kept.relation);
                if same {
                    kept.weight += later.weight;
                }
                same
            });
        })?;
        graph.edge_weight().map_or(Ok(()), check_weights)?;
        Ok(graph)
    }

    /// Adds a self-loop of weight 1 to each vertex that has none. In a graph with relations they are of a new relation,
    /// `n_relations`.
    ///
    /// Errors: the graph has [`MAX_RELATIONS`](super::MAX_RELATIONS) relations already, or there is no memory for the
    /// new one.
    pub fn add_self_loops(&self) -> Result<Graph> {
        let n_relations = match self.edge_type {
            Some(_) => self.n_relations + 1,
            None => 0,
        };
        check_relation_count(n_relations)?;
        self.map_rows(n_relations, |vertex, row| {
            let position = row.partition_point(|e| e.source < vertex);
            if row.get(position).is_none_or(|e| e.source != vertex) {
                let relation = self.n_relations as u16;
                row.insert(position, InEdge { source: vertex, relation, weight: 1.0 });
            }
        })
    }

    /// Removes all self-loops.
    ///
    /// Errors: there is no memory for the new graph.
    pub fn remove_self_loops(&self) -> Result<Graph> {
        self.map_rows(self.n_relations, |vertex, row| {
            row.retain(|e| e.source != vertex);
        })
    }

    /// Adds to every edge s→t of relation r the edge t→s of relation r + R, where R is the number of relations, with
    /// the same weight: messages then flow both ways, with separate parameters.
    ///
    /// Errors: the graph has no edge types, 2 R is above [`MAX_RELATIONS`](super::MAX_RELATIONS), or there is no memory
    /// for the new graph.
    pub fn add_inverse_relations(&self) -> Result<Graph> {
        if self.edge_type.is_none() {
            return Err(Error::invalid("graph", "without edge types", "a graph with relations to invert"));
        }
        let n_relations = self.n_relations.saturating_mul(2);
        check_relation_count(n_relations)?;
        let reverse = self.reverse()?;
        self.map_rows(n_relations, |vertex, row| {
            // Below 2 R <= 65536.
            let inverse = |r: u16| (usize::from(r) + self.n_relations) as u16;
            let added = reverse.row(vertex).iter().map(|e| InEdge { relation: inverse(e.relation), ..*e });
            row.extend(added);
            row.sort_by_key(|e| e.source);
        })
    }

    /// For each vertex its out-edges turned around: in-edges from their destinations, ascending.
    fn reverse(&self) -> Result<Reverse> {
        let n_edges = self.indices.len();
        let mut destination = try_filled("the edges' destinations", 0, n_edges, self.size())?;
        for (vertex, ends) in self.indptr.windows(2).enumerate() {
            destination[ends[0] as usize..ends[1] as usize].fill(vertex as u32);
        }
        let indices = self.indices();
        let (indptr, edges) = group_by_key(self.n_vertices(), indices.len(), |e| {
            (indices[e], InEdge { source: destination[e], ..self.edge(e) })
        })?;
        Ok(Reverse { indptr, edges })
    }

    /// For messages about memory.
    pub(super) fn size(&self) -> String {
        format!("the graph has {} vertices and {} edges", self.n_vertices(), self.n_edges())
    }

    fn edge(&self, id: usize) -> InEdge {
        InEdge {
            source: self.indices[id],
            relation: self.edge_type.as_ref().map_or(0, |types| types[id]),
            weight: self.edge_weight.as_ref().map_or(1.0, |weights| weights[id]),
        }
    }

    /// A graph of the rows that `change` has modified: it must leave sources below `n_vertices`, ascending.
    fn map_rows(&self, n_relations: usize, change: impl Fn(u32, &mut Vec<InEdge>) + Sync) -> Result<Graph> {
        let starts: Vec<usize> = (0..self.n_vertices()).step_by(ROWS_PER_TASK).collect();
        let size = self.size();
        let what = "a graph's new rows";
        let pieces: Vec<Piece> = starts
            .into_par_iter()
            .map(|start| {
                let mut piece = Piece::default();
                let mut row = Vec::new();
                for vertex in start..(start + ROWS_PER_TASK).min(self.n_vertices()) {
                    row.clear();
                    let ids = self.indptr[vertex] as usize..self.indptr[vertex + 1] as usize;
                    row.extend(ids.map(|id| self.edge(id)));
                    change(vertex as u32, &mut row);
                    piece.lengths.push(row.len() as u64);
                    try_extend(&mut piece.sources, what, row.iter().map(|e| e.source), &size)?;
                    if self.edge_type.is_some() {
                        try_extend(&mut piece.relations, what, row.iter().map(|e| e.relation), &size)?;
                    }
                    if self.edge_weight.is_some() {
                        try_extend(&mut piece.weights, what, row.iter().map(|e| e.weight), &size)?;
                    }
                }
                Ok(piece)
            })
            .collect::<Result<_>>()?;
        let mut indptr = try_capacity(what, self.n_vertices() + 1, &size)?;
        let mut end = 0;
        indptr.push(0);
        for length in pieces.iter().flat_map(|piece| &piece.lengths) {
            end += length;
            indptr.push(end);
        }
        let mut graph = Graph::from_rows(indptr, concat(&pieces, |piece| &piece.sources, &size)?);
        if self.edge_type.is_some() {
            graph.edge_type = Some(concat(&pieces, |piece| &piece.relations, &size)?.into());
            graph.n_relations = n_relations;
        }
        if self.edge_weight.is_some() {
            graph.edge_weight = Some(concat(&pieces, |piece| &piece.weights, &size)?.into());
        }
        Ok(graph)
    }
}

/// Compressed rows of a reversed graph.
struct Reverse {
    indptr: Vec<u64>,
    edges: Vec<InEdge>,
}

impl Reverse {
    fn row(&self, vertex: u32) -> &[InEdge] {
        let vertex = vertex as usize;
        &self.edges[self.indptr[vertex] as usize..self.indptr[vertex + 1] as usize]
    }
}

/// Some consecutive rows of a new graph.
#[derive(Default)]
struct Piece {
    lengths: Vec<u64>,
    sources: Vec<u32>,
    relations: Vec<u16>,
    weights: Vec<f32>,
}

fn concat<T: Copy>(pieces: &[Piece], part: impl Fn(&Piece) -> &Vec<T>, size: &str) -> Result<Vec<T>> {
    let len = pieces.iter().map(|piece| part(piece).len()).sum();
    let mut all = try_capacity("a graph's new edges", len, size)?;
    pieces.iter().for_each(|piece| all.extend_from_slice(part(piece)));
    Ok(all)
}
