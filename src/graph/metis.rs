//! METIS partitions of vertices (Karypis & Kumar 1998).

use super::Graph;
use crate::error::Result;

/// Without the feature: an error that says how to get it.
#[cfg(not(feature = "metis"))]
pub(super) fn owners(_: &Graph, _: usize, _: u64) -> Result<Vec<u16>> {
    let remedy = "build with the feature `metis`".to_owned();
    Err(crate::error::Error::Unavailable { what: "partition metis".to_owned(), remedy })
}

/// Each vertex's owner: parts of about equal numbers of vertices, with few edges between them.
#[cfg(feature = "metis")]
pub(super) fn owners(graph: &Graph, n_pes: usize, seed: u64) -> Result<Vec<u16>> {
    use std::sync::{Mutex, PoisonError};

    use metis::option::Seed;
    use rayon::prelude::*;

    use super::{Partition, PartitionMethod};
    use crate::error::{Error, try_collect, try_collect_parallel, try_filled};

    /// METIS draws from the C library's `rand`, which the whole process shares: two calls at once would each see a part
    /// of the other's numbers, and PEs that are threads would disagree on who owns what.
    static TURN: Mutex<()> = Mutex::new(());

    let failed = |problem: String| Error::Worker { worker: "METIS".to_owned(), problem };
    // METIS wants every edge in both directions, once, and none from a vertex to itself.
    let plain = Graph { edge_type: None, edge_weight: None, n_relations: 0, ..graph.clone() };
    let undirected = plain.deduplicate()?.symmetrize()?.remove_self_loops()?;
    let n_vertices = graph.n_vertices();
    let limit = metis::Idx::MAX as u64;
    for (what, count) in [
        ("the vertex set, for METIS,", n_vertices as u64 + 1),
        ("the edge list in both directions, for METIS,", undirected.n_edges()),
    ] {
        if count > limit {
            return Err(Error::TooLarge { what, count, limit });
        }
    }
    // METIS does not promise to handle these.
    if n_pes == 1 || n_vertices <= n_pes || undirected.n_edges() == 0 {
        let partition = Partition::new(PartitionMethod::Contiguous, n_vertices, n_pes, seed)?;
        return Ok(partition.into_owners());
    }
    let (what, size) = ("a copy of the graph for METIS", undirected.size());
    let positions = undirected.indptr().par_iter().map(|&position| position as metis::Idx);
    let xadj = try_collect_parallel(what, positions, &size)?;
    let neighbors = undirected.indices().par_iter().map(|&vertex| vertex as metis::Idx);
    let adjncy = try_collect_parallel(what, neighbors, &size)?;
    let mut part = try_filled("the vertices' parts", 0, n_vertices, &size)?;
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    metis::Graph::new(1, n_pes as metis::Idx, &xadj, &adjncy)
        .map_err(|error| failed(error.to_string()))?
        .set_option(Seed((seed % limit) as metis::Idx))
        .part_kway(&mut part)
        .map_err(|error| failed(error.to_string()))?;
    drop(turn);
    try_collect("the vertices' owners", part.into_iter().map(|pe| pe as u16), size)
}

#[cfg(all(test, feature = "metis"))]
mod tests {
    use crate::graph::{Graph, Partition, PartitionMethod};

    /// Two cliques of 20 with one edge between them, and some self-loops and one-way edges: METIS must find the
    /// cliques.
    #[test]
    fn two_cliques_are_two_parts() {
        let mut edges = vec![(3, 3), (5, 25), (25, 25)];
        for clique in [0, 20] {
            for a in 0..20u32 {
                edges.extend((0..a).map(|b| (clique + a, clique + b)));
            }
        }
        let graph = Graph::from_edges(40, &edges).unwrap();
        for seed in 0..4 {
            let partition = Partition::of_graph(PartitionMethod::Metis, &graph, 2, seed).unwrap();
            let first = partition.owner(0);
            assert!((0..40).all(|v| (partition.owner(v) == first) == (v < 20)), "{partition:?}");
        }
    }

    #[test]
    fn threads_that_partition_at_once_agree() {
        let graph = crate::graph::Rmat::graph500(9, 8, 3).generate().unwrap();
        let owners = || {
            let partition = Partition::of_graph(PartitionMethod::Metis, &graph, 5, 7).unwrap();
            (0..5).map(|pe| partition.vertices(pe)).collect::<Vec<_>>()
        };
        let expected = owners();
        std::thread::scope(|scope| {
            let runs: Vec<_> = (0..4).map(|_| scope.spawn(owners)).collect();
            assert!(runs.into_iter().all(|run| run.join().unwrap() == expected));
        });
    }
}

#[cfg(all(test, not(feature = "metis")))]
mod tests {
    use crate::graph::{Partition, PartitionMethod, Rmat};

    #[test]
    fn without_the_feature_the_error_names_it() {
        let graph = Rmat::graph500(4, 2, 0).generate().unwrap();
        let error = Partition::of_graph(PartitionMethod::Metis, &graph, 2, 0).unwrap_err().to_string();
        assert!(error.contains("feature `metis`"), "{error}");
        assert!(Partition::new(PartitionMethod::Metis, 4, 2, 0).is_err());
    }
}
