//! Graphs from lists of edges, by stable counting sorts.

use std::sync::OnceLock;

use rayon::prelude::*;

use super::{Graph, check_relations, check_vertex_count, check_weights};
use crate::error::{
    Error, Result, check_length, try_capacity, try_collect, try_collect_parallel, try_zeroed,
};

/// The smallest number of items for which another worker pays off in [`group_by_key`].
const ITEMS_PER_WORKER: usize = 1 << 16;

/// Builds a [`Graph`] from edges in any order.
///
/// The edges are sorted by (destination, source); edges with the same ends keep their order. Relations and weights
/// move with their edges. Parallel edges and self-loops are kept. Takes O(n_vertices + n_edges),
/// and about three times the memory of the edges while it runs; the result is the same for any number of threads.
///
/// ```
/// # fn main() -> cohop::Result<()> {
/// use cohop::graph::GraphBuilder;
///
/// let edges = [(2, 0), (1, 0), (0, 2)]; // (source, destination)
/// let graph = GraphBuilder::new(3, &edges).weights(&[0.5, 2.0, 1.0]).build()?;
/// assert_eq!(graph.in_neighbors(0), [1, 2]);
/// assert_eq!(graph.edge_weight(), Some(&[2.0, 0.5, 1.0][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GraphBuilder<'a> {
    n_vertices: u64,
    edges: &'a [(u32, u32)],
    types: Option<(&'a [u16], usize)>,
    weights: Option<&'a [f32]>,
}

impl<'a> GraphBuilder<'a> {
    /// A builder over `edges: [n_edges]`, pairs (source, destination), each below `n_vertices`.
    pub fn new(n_vertices: u64, edges: &'a [(u32, u32)]) -> Self {
        GraphBuilder { n_vertices, edges, types: None, weights: None }
    }

    /// Gives the edges relations, `edge_type: [n_edges]`, each below `n_relations`.
    pub fn types(mut self, edge_type: &'a [u16], n_relations: usize) -> Self {
        self.types = Some((edge_type, n_relations));
        self
    }

    /// Gives the edges weights, `edge_weight: [n_edges]`, finite and not negative.
    pub fn weights(mut self, edge_weight: &'a [f32]) -> Self {
        self.weights = Some(edge_weight);
        self
    }

    /// The graph.
    ///
    /// Errors: more than [`MAX_VERTICES`](super::MAX_VERTICES) vertices, or
    /// [`MAX_RELATIONS`](super::MAX_RELATIONS) relations; an end of an edge not below `n_vertices`; a relation not
    /// below `n_relations`; a weight that is negative or not finite; relations or weights not one per edge; no memory.
    pub fn build(self) -> Result<Graph> {
        if self.types.is_some() || self.weights.is_some() {
            return Ok(self.build_with_order()?.0);
        }
        check_vertex_count(self.n_vertices)?;
        self.check_ends()?;
        let edges = self.edges;
        let (indptr, rows) =
            sort_edges(self.n_vertices as usize, edges.len(), |e| (edges[e].0, edges[e].1, ()))?;
        // In place: `(u32, ())` has the size of `u32`.
        Ok(Graph::from_rows(indptr, rows.into_iter().map(|(source, ())| source).collect()))
    }

    /// The graph, and for each of its edges the position in the given list: use it to put your own edge data in the
    /// graph's order.
    ///
    /// ```
    /// # fn main() -> cohop::Result<()> {
    /// use cohop::graph::GraphBuilder;
    ///
    /// let (edges, cost) = ([(2, 0), (0, 2), (1, 0)], [20, 2, 10]);
    /// let (graph, order) = GraphBuilder::new(3, &edges).build_with_order()?;
    /// assert_eq!(order, [2, 0, 1]);
    /// let cost: Vec<i32> = order.iter().map(|&e| cost[e as usize]).collect();
    /// assert_eq!(cost[graph.edge_ids(2, 0).start as usize], 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Errors: those of [`build`](GraphBuilder::build).
    pub fn build_with_order(self) -> Result<(Graph, Vec<u64>)> {
        check_vertex_count(self.n_vertices)?;
        self.check_ends()?;
        let edges = self.edges;
        let n_vertices = self.n_vertices as usize;
        // Checked before the sort, so that the position in a message is the caller's.
        if let Some((edge_type, n_relations)) = self.types {
            check_length("edge_type", edge_type.len(), edges.len())?;
            check_relations(edge_type, n_relations)?;
        }
        if let Some(edge_weight) = self.weights {
            check_length("edge_weight", edge_weight.len(), edges.len())?;
            check_weights(edge_weight)?;
        }
        let (indptr, rows) = sort_edges(n_vertices, edges.len(), |e| (edges[e].0, edges[e].1, e as u64))?;
        let asked = format_args!("{} edges", edges.len());
        let sources = rows.par_iter().map(|&(source, _)| source);
        let mut graph = Graph::from_rows(indptr, try_collect_parallel("the edges' sources", sources, asked)?);
        if let Some((edge_type, n_relations)) = self.types {
            let types = rows.par_iter().map(|&(_, e)| edge_type[e as usize]);
            let sorted = try_collect_parallel("the edges' relations", types, asked)?;
            (graph.edge_type, graph.n_relations) = (Some(sorted.into()), n_relations);
        }
        if let Some(edge_weight) = self.weights {
            let weights = rows.par_iter().map(|&(_, e)| edge_weight[e as usize]);
            let sorted = try_collect_parallel("the edges' weights", weights, asked)?;
            graph.edge_weight = Some(sorted.into());
        }
        let order = rows.par_iter().map(|&(_, e)| e);
        Ok((graph, try_collect_parallel("the edges' order", order, asked)?))
    }

    fn check_ends(&self) -> Result<()> {
        let n = self.n_vertices;
        let good = |vertex: u32| u64::from(vertex) < n;
        let bad = self
            .edges
            .par_iter()
            .position_first(|&(source, destination)| !(good(source) && good(destination)));
        let Some(position) = bad else { return Ok(()) };
        let (source, destination) = self.edges[position];
        let (array, value) =
            if good(source) { ("edge destinations", destination) } else { ("edge sources", source) };
        Err(Error::IndexOutOfRange { array, position: position as u64, value: i64::from(value), limit: n })
    }
}

impl Graph {
    /// A graph from (source, destination) pairs in any order: see [`GraphBuilder`], which also takes relations and
    /// weights.
    ///
    /// Errors: more than [`MAX_VERTICES`](super::MAX_VERTICES) vertices, or an end of an edge not below `n_vertices`.
    pub fn from_edges(n_vertices: u64, edges: &[(u32, u32)]) -> Result<Self> {
        GraphBuilder::new(n_vertices, edges).build()
    }

    /// A graph of rows that are valid by construction.
    pub(super) fn from_rows(indptr: Vec<u64>, indices: Vec<u32>) -> Self {
        debug_assert_eq!(indptr.last(), Some(&(indices.len() as u64)));
        debug_assert!(indptr.windows(2).all(|ends| {
            let row = &indices[ends[0] as usize..ends[1] as usize];
            row.is_sorted() && row.last().is_none_or(|&s| (s as usize) < indptr.len() - 1)
        }));
        Graph {
            indptr: indptr.into(),
            indices: indices.into(),
            edge_type: None,
            edge_weight: None,
            weighted_in_degrees: OnceLock::new(),
            n_relations: 0,
        }
    }
}

/// Where each key's values begin, and the values.
type Grouped<T> = (Vec<u64>, Vec<T>);

/// Sorts `edge(i) = (source, destination, tag)` by (destination, source), ties in order of `i`. Returns where each
/// destination's edges begin, and the (source, tag) of each edge.
///
/// Two counting sorts, the less significant key first. Ends must be below `n_vertices`.
pub(super) fn sort_edges<T: Copy + Default + Send + Sync>(
    n_vertices: usize,
    n_edges: usize,
    edge: impl Fn(usize) -> (u32, u32, T) + Sync,
) -> Result<Grouped<(u32, T)>> {
    let (_, by_source) = group_by_key(n_vertices, n_edges, |i| {
        let (source, destination, tag) = edge(i);
        (source, (source, destination, tag))
    })?;
    group_by_key(n_vertices, n_edges, |i| {
        let (source, destination, tag) = by_source[i];
        (destination, (source, tag))
    })
}

/// Groups `item(i) = (key, value)` by key. Returns where each key's values begin, `[n_keys + 1]`, and the values by
/// ascending key, ties in order of `i`. Keys must be below `n_keys`.
///
/// Each worker owns a range of keys, reads all items and writes its own: the scattered writes, which cost the most, are
/// divided among the workers without overlap, and the result does not depend on their number.
pub(super) fn group_by_key<T: Copy + Default + Send + Sync>(
    n_keys: usize,
    n_items: usize,
    item: impl Fn(usize) -> (u32, T) + Sync,
) -> Result<Grouped<T>> {
    let n_workers = rayon::current_num_threads().min(n_items / ITEMS_PER_WORKER + 1);
    let asked = format_args!("{n_keys} vertices and {n_items} edges");
    // One more than a number of vertices, which are `u32`.
    let mut offsets: Vec<u64> = try_zeroed("the vertices' offsets", n_keys + 1, asked)?;
    let keys_per_worker = n_keys.div_ceil(n_workers).max(1);
    offsets[1..].par_chunks_mut(keys_per_worker).enumerate().for_each(|(worker, counts)| {
        let first = worker * keys_per_worker;
        for i in 0..n_items {
            // A key below `first` wraps around to beyond the range.
            if let Some(count) = counts.get_mut((item(i).0 as usize).wrapping_sub(first)) {
                *count += 1;
            }
        }
    });
    let mut sum = 0;
    for offset in &mut offsets {
        sum += *offset;
        *offset = sum;
    }

    let mut values = try_capacity("a list of edges", n_items, asked)?;
    values.resize(n_items, T::default());
    let mut parts = Vec::with_capacity(n_workers);
    let (mut rest, mut first_key) = (&mut values[..], 0);
    for worker in 1..=n_workers {
        // Ranges of about the same number of items, not of keys: degrees are skewed.
        let share = (n_items as u64).div_ceil(n_workers as u64) * worker as u64;
        let end_key = match worker == n_workers {
            true => n_keys,
            false => offsets.partition_point(|&o| o < share).clamp(first_key, n_keys),
        };
        let (part, tail) = rest.split_at_mut((offsets[end_key] - offsets[first_key]) as usize);
        parts.push((first_key..end_key, part));
        (rest, first_key) = (tail, end_key);
    }
    parts.into_par_iter().try_for_each(|(keys, part)| {
        let base = offsets[keys.start];
        let starts = offsets[keys.clone()].iter().map(|&o| o - base);
        let asked = format_args!("{n_keys} vertices and {n_items} edges");
        let mut next: Vec<u64> = try_collect("the vertices' next places", starts, asked)?;
        for i in 0..n_items {
            let (key, value) = item(i);
            if let Some(slot) = next.get_mut((key as usize).wrapping_sub(keys.start)) {
                part[*slot as usize] = value;
                *slot += 1;
            }
        }
        Ok(())
    })?;
    Ok((offsets, values))
}

/// The entries of compressed rows, sorted within each row, ties in the given order; and the position at which each was.
/// `indptr` must be valid for `indices`.
///
/// Errors: there is no memory for 20 bytes per entry.
pub(crate) fn sort_rows(indptr: &[u64], indices: &[u32]) -> Result<(Vec<u32>, Vec<u64>)> {
    let n = indices.len();
    let mut entries: Vec<(u32, u64)> = try_capacity("rows to sort", n, format_args!("{n} entries"))?;
    indices.par_iter().enumerate().map(|(i, &entry)| (entry, i as u64)).collect_into_vec(&mut entries);
    let (mut rest, mut tasks) = (&mut entries[..], Vec::new());
    for ends in indptr.windows(2) {
        let (row, tail) = rest.split_at_mut((ends[1] - ends[0]) as usize);
        rest = tail;
        if !row.is_sorted() {
            tasks.push(row);
        }
    }
    tasks.into_par_iter().for_each(<[(u32, u64)]>::sort_unstable);
    let mut sorted = try_capacity("sorted rows", n, format_args!("{n} entries"))?;
    let mut order = try_capacity("the order of sorted rows", n, format_args!("{n} entries"))?;
    entries.into_par_iter().unzip_into_vecs(&mut sorted, &mut order);
    Ok((sorted, order))
}
