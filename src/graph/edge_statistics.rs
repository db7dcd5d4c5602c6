//! What may be odd about a graph's edges: self-loops, duplicates, missing reverse edges.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Graph, InEdges, ROWS_PER_TASK};
use crate::error::{Error, Result};
use crate::rng::{Purpose, bounded};

/// Counts of a graph's edges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EdgeStatistics {
    /// Edges from a vertex to itself.
    pub self_loops: u64,
    /// Edges that repeat another one: of each (source, destination, relation), all but one.
    pub duplicates: u64,
    /// The share of the edges, self-loops not counted, without an edge from their destination to their source (of any
    /// relation); 0 if there are none.
    pub without_reverse: f64,
    /// How many edges `without_reverse` is a share of: all that are no self-loops, or in a large graph some of them.
    pub looked_at: u64,
}

/// The stream of the edges that are drawn.
const SAMPLE: u64 = Purpose::Graph.stream(8 << 16);
/// Reverse edges are looked for one by one in graphs of up to this many edges.
const MOST_EDGES: u64 = 1 << 26;
/// Of a larger graph, for this many edges, drawn at random: a share is then right to about 0.001. Not for more: each
/// touches a few pages of `indptr` and `indices`, here and there, and where these are mapped from a file that is larger
/// than memory, every page is read from the disk: 14 KB an edge, hence about 4 GB in all.
const SAMPLED_EDGES: u64 = 1 << 18;

impl Graph {
    /// Counts self-loops, duplicates and edges without a reverse edge, in parallel. Reads `indices` once, and looks for
    /// the reverse of all edges, or of 2^18 if there are more than 2^26: O(n_edges), and O(log of the in-degree) for
    /// each that is looked for.
    ///
    /// Errors: a trusted graph's sources are out of range, or a mapped graph has been changed.
    pub fn edge_statistics(&self) -> Result<EdgeStatistics> {
        self.edge_statistics_of(MOST_EDGES, SAMPLED_EDGES)
    }

    fn edge_statistics_of(&self, most: u64, sampled: u64) -> Result<EdgeStatistics> {
        let edges = self.in_edges();
        let all = self.n_edges() <= most;
        let add = |(a, b, c): (u64, u64, u64), (d, e, f)| Ok((a + d, b + e, c + f));
        let (self_loops, duplicates, one_way) = (0..self.n_vertices() as u32)
            .into_par_iter()
            .with_min_len(ROWS_PER_TASK)
            .map(|vertex| {
                let sources = edges.sources(vertex)?;
                edges.check_sources(sources)?;
                let loops = sources.iter().filter(|&&source| source == vertex).count() as u64;
                let mut one_way = 0;
                if all {
                    for &source in sources {
                        one_way += u64::from(source != vertex && !has_edge(edges, vertex, source)?);
                    }
                }
                Ok((loops, self.repeated(vertex, sources)?, one_way))
            })
            .try_reduce(|| (0, 0, 0), add)?;
        let (one_way, looked_at) = match all {
            true => (one_way, self.n_edges() - self_loops),
            false => self.sample_one_way(sampled)?,
        };
        let without_reverse = if looked_at == 0 { 0.0 } else { one_way as f64 / looked_at as f64 };
        Ok(EdgeStatistics { self_loops, duplicates, without_reverse, looked_at })
    }

    /// How many edges of a row repeat one before them.
    fn repeated(&self, vertex: u32, sources: &[u32]) -> Result<u64> {
        let Some(types) = self.edge_type() else {
            return Ok(sources.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64);
        };
        let positions = self.in_edges().checked_positions(vertex)?;
        let mut types = &types[positions.start as usize..positions.end as usize];
        let mut repeated = 0;
        for group in sources.chunk_by(|a, b| a == b) {
            let (own, rest) = types.split_at(group.len());
            types = rest;
            if own.len() > 1 {
                let mut own = own.to_vec();
                own.sort_unstable();
                repeated += own.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
            }
        }
        Ok(repeated)
    }

    /// Of `n` edges, one drawn from each of as many equal ranges: how many have no reverse edge, and how many are no
    /// self-loops.
    fn sample_one_way(&self, n: u64) -> Result<(u64, u64)> {
        let edges = self.in_edges();
        let first = |range: u64| (u128::from(range) * u128::from(self.n_edges()) / u128::from(n)) as u64;
        (0..n)
            .into_par_iter()
            .map(|range| {
                let width = first(range + 1) - first(range);
                let id = first(range) + bounded(0, SAMPLE, range, width);
                // The last row that begins at or before the edge: empty rows before it begin there too.
                let row = self.indptr().partition_point(|&start| start <= id).clamp(1, self.n_vertices()) - 1;
                let (vertex, source) = (row as u32, self.indices()[id as usize]);
                edges.check_sources(&[source])?;
                match source == vertex {
                    true => Ok((0, 0)),
                    false => Ok((u64::from(!has_edge(edges, vertex, source)?), 1)),
                }
            })
            .try_reduce(|| (0, 0), |(a, b), (c, d)| Ok((a + c, b + d)))
    }
}

/// Whether there is an edge from `source` to `destination`.
fn has_edge(edges: InEdges<'_>, source: u32, destination: u32) -> Result<bool, Error> {
    Ok(edges.sources(destination)?.binary_search(&source).is_ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::graph::{GraphBuilder, Rmat};

    #[test]
    fn counts_of_a_graph_spelled_out() {
        // 0 ⇄ 1 (twice from 0 to 1), 1 → 2, a self-loop at 2, and a vertex without edges.
        let edges = [(0, 1), (1, 0), (0, 1), (1, 2), (2, 2)];
        let graph = Graph::from_edges(4, &edges).unwrap();
        let expected = EdgeStatistics { self_loops: 1, duplicates: 1, without_reverse: 0.25, looked_at: 4 };
        assert_eq!(graph.edge_statistics().unwrap(), expected);
        // Of another relation an edge is no duplicate.
        let graph = GraphBuilder::new(4, &edges).types(&[0, 0, 1, 0, 0], 2).build().unwrap();
        assert_eq!(graph.edge_statistics().unwrap(), EdgeStatistics { duplicates: 0, ..expected });
        let none = EdgeStatistics { self_loops: 0, duplicates: 0, without_reverse: 0.0, looked_at: 0 };
        assert_eq!(Graph::from_edges(0, &[]).unwrap().edge_statistics().unwrap(), none);
    }

    /// A graph of billions of edges, mapped from a file: looking up edges that are drawn reads no more than a few
    /// gigabytes, as each took 14 KB.
    #[test]
    fn a_sample_reads_little_of_a_mapped_graph() {
        let bytes = SAMPLED_EDGES * (14 << 10);
        assert!(bytes <= 4 << 30, "{bytes}");
        // And the share of all edges that it stands for is right to one in a thousand.
        assert!(0.5 / (SAMPLED_EDGES as f64).sqrt() <= 1e-3);
    }

    #[test]
    fn a_source_out_of_range_is_an_error() {
        let graph = Graph::from_csr_trusted(vec![0, 1, 2], vec![1, 2]).unwrap();
        for most in [0, 10] {
            let error = graph.edge_statistics_of(most, 2).unwrap_err().to_string();
            assert!(error.starts_with("indices[1] = 2 is out of range"), "{error}");
        }
    }

    #[test]
    fn a_sampled_share_is_near_that_of_all_edges() {
        let model = Rmat { symmetric: false, ..Rmat::graph500(10, 12, 3) };
        let graph = model.generate().unwrap();
        let exact = graph.edge_statistics().unwrap();
        let sampled = graph.edge_statistics_of(0, 5000).unwrap();
        assert!(sampled.looked_at < 5000 && sampled.looked_at > 4500, "{sampled:?}");
        // Six standard deviations: a false alarm below 1e-8.
        let tolerance = 6.0 * (exact.without_reverse * (1.0 - exact.without_reverse) / 4500.0).sqrt();
        let difference = (sampled.without_reverse - exact.without_reverse).abs();
        assert!(exact.without_reverse > 0.1 && difference < tolerance, "{exact:?} {sampled:?}");
        assert_eq!((sampled.self_loops, sampled.duplicates), (exact.self_loops, exact.duplicates));
        // One edge from each range of one edge: all edges.
        let every = graph.edge_statistics_of(0, graph.n_edges()).unwrap();
        assert_eq!(every, exact);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(5), ..ProptestConfig::default() })]

        /// By looking at all pairs of edges.
        #[test]
        fn counts_are_naive_ones(
            n in 1u32..8,
            list in proptest::collection::vec((0u32..8, 0u32..8, 0u16..3), 0..40),
            typed in any::<bool>(),
        ) {
            let list: Vec<_> = list.into_iter().map(|(s, t, r)| (s % n, t % n, if typed { r } else { 0 })).collect();
            let edges: Vec<(u32, u32)> = list.iter().map(|&(s, t, _)| (s, t)).collect();
            let types: Vec<u16> = list.iter().map(|&(.., r)| r).collect();
            let mut builder = GraphBuilder::new(n.into(), &edges);
            if typed {
                builder = builder.types(&types, 3);
            }
            let found = builder.build().unwrap().edge_statistics().unwrap();
            let loops = edges.iter().filter(|(s, t)| s == t).count();
            let repeated = (0..list.len()).filter(|&i| list[..i].contains(&list[i])).count();
            let one_way = edges.iter().filter(|&&(s, t)| s != t && !edges.contains(&(t, s))).count();
            prop_assert_eq!((found.self_loops, found.duplicates), (loops as u64, repeated as u64));
            prop_assert_eq!(found.looked_at, (edges.len() - loops) as u64);
            let share = one_way as f64 / found.looked_at.max(1) as f64;
            prop_assert!((found.without_reverse - share).abs() <= 1e-12);
        }
    }
}
