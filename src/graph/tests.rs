//! Builders and transformations, compared with naive forms over ordered collections; and every error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use approx::abs_diff_eq;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;
use crate::testing::Random;

/// (destination, source, relation, weight), in the order of the graph.
type Edge = (u32, u32, u16, f32);

fn edges_of(graph: &Graph) -> Vec<Edge> {
    let mut edges = Vec::new();
    for vertex in 0..graph.n_vertices() as u32 {
        for id in graph.indptr()[vertex as usize]..graph.indptr()[vertex as usize + 1] {
            let id = id as usize;
            let relation = graph.edge_type().map_or(0, |types| types[id]);
            let weight = graph.edge_weight().map_or(1.0, |weights| weights[id]);
            edges.push((vertex, graph.indices()[id], relation, weight));
        }
    }
    edges
}

/// What a random graph is made of: few vertices, so that loops, parallel edges and empty rows are common.
#[derive(Clone, Debug)]
struct Parts {
    n_vertices: u32,
    ends: Vec<(u32, u32)>,
    types: Option<Vec<u16>>,
    weights: Option<Vec<f32>>,
}

const N_RELATIONS: usize = 3;

impl Parts {
    fn graph(&self) -> Graph {
        let mut builder = GraphBuilder::new(u64::from(self.n_vertices), &self.ends);
        if let Some(types) = &self.types {
            builder = builder.types(types, N_RELATIONS);
        }
        if let Some(weights) = &self.weights {
            builder = builder.weights(weights);
        }
        let graph = builder.build().unwrap();
        // The public constructor agrees that it is valid.
        Graph::from_csr(graph.indptr().to_vec(), graph.indices().to_vec()).unwrap();
        graph
    }

    fn edges(&self) -> Vec<Edge> {
        let relation = |e: usize| self.types.as_ref().map_or(0, |types| types[e]);
        let weight = |e: usize| self.weights.as_ref().map_or(1.0, |weights| weights[e]);
        (0..self.ends.len()).map(|e| (self.ends[e].1, self.ends[e].0, relation(e), weight(e))).collect()
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    (0u32..9, any::<bool>(), any::<bool>()).prop_flat_map(|(n_vertices, typed, weighted)| {
        let n_edges = if n_vertices == 0 { 0 } else { 40 };
        let end = 0..n_vertices.max(1);
        let edge = ((end.clone(), end), 0..N_RELATIONS as u16, 0u32..5);
        proptest::collection::vec(edge, 0..=n_edges).prop_map(move |edges| Parts {
            n_vertices,
            ends: edges.iter().map(|e| e.0).collect(),
            types: typed.then(|| edges.iter().map(|e| e.1).collect()),
            weights: weighted.then(|| edges.iter().map(|e| e.2 as f32).collect()),
        })
    })
}

/// Stable, by (destination, source).
fn sorted(mut edges: Vec<Edge>) -> Vec<Edge> {
    edges.sort_by_key(|e| (e.0, e.1));
    edges
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

    #[test]
    fn built_graphs_hold_the_edges_in_stable_order(parts in parts()) {
        let graph = parts.graph();
        prop_assert_eq!(edges_of(&graph), sorted(parts.edges()));
        prop_assert_eq!(graph.edge_type().is_some(), parts.types.is_some());
        prop_assert_eq!(graph.edge_weight().is_some(), parts.weights.is_some());
        let degrees: Vec<u64> = (0..parts.n_vertices).map(|v| graph.in_degree(v)).collect();
        let expected: Vec<u64> = (0..parts.n_vertices)
            .map(|v| parts.ends.iter().filter(|e| e.1 == v).count() as u64)
            .collect();
        prop_assert_eq!(degrees, expected);
    }

    #[test]
    fn symmetrize_adds_missing_reverse_edges(parts in parts()) {
        let graph = parts.graph();
        let given = edges_of(&graph);
        let present: BTreeSet<(u32, u32, u16)> = given.iter().map(|e| (e.0, e.1, e.2)).collect();
        let mut expected = given.clone();
        for &(t, s, r, w) in &given {
            if !present.contains(&(s, t, r)) {
                expected.push((s, t, r, w));
            }
        }
        let symmetric = graph.symmetrize().unwrap();
        prop_assert_eq!(edges_of(&symmetric), sorted(expected));
        prop_assert_eq!(edges_of(&symmetric.symmetrize().unwrap()), edges_of(&symmetric));
        prop_assert_eq!(symmetric.n_relations(), graph.n_relations());
    }

    #[test]
    fn deduplicate_sums_the_weights_of_each_relation(parts in parts()) {
        let graph = parts.graph();
        let mut merged: BTreeMap<(u32, u32, u16), f32> = BTreeMap::new();
        for (t, s, r, w) in edges_of(&graph) {
            *merged.entry((t, s, r)).or_default() += w;
        }
        let weighted = graph.edge_weight().is_some();
        let expected: Vec<Edge> =
            merged.into_iter().map(|((t, s, r), w)| (t, s, r, if weighted { w } else { 1.0 })).collect();
        prop_assert_eq!(edges_of(&graph.deduplicate().unwrap()), expected);
    }

    #[test]
    fn self_loops_come_and_go(parts in parts()) {
        let graph = parts.graph();
        let given = edges_of(&graph);
        let bare: Vec<Edge> = given.iter().copied().filter(|e| e.0 != e.1).collect();
        prop_assert_eq!(edges_of(&graph.remove_self_loops().unwrap()), bare);

        let relation = graph.n_relations() as u16;
        let mut expected = given.clone();
        for v in 0..parts.n_vertices {
            if !given.iter().any(|e| (e.0, e.1) == (v, v)) {
                expected.push((v, v, relation, 1.0));
            }
        }
        let looped = graph.add_self_loops().unwrap();
        prop_assert_eq!(edges_of(&looped), sorted(expected));
        prop_assert_eq!(looped.n_relations(), graph.n_relations() + usize::from(parts.types.is_some()));
    }

    #[test]
    fn inverse_relations_double_the_edges(parts in parts()) {
        let graph = parts.graph();
        if parts.types.is_none() {
            let error = graph.add_inverse_relations().unwrap_err().to_string();
            prop_assert!(error.contains("without edge types"), "{}", error);
            return Ok(());
        }
        let mut expected = edges_of(&graph);
        for (t, s, r, w) in edges_of(&graph) {
            expected.push((s, t, r + N_RELATIONS as u16, w));
        }
        let doubled = graph.add_inverse_relations().unwrap();
        prop_assert_eq!(edges_of(&doubled), sorted(expected));
        prop_assert_eq!(doubled.n_relations(), 2 * N_RELATIONS);
    }

    #[test]
    fn degree_statistics_count_every_vertex(parts in parts()) {
        let graph = parts.graph();
        let degrees: Vec<u64> = (0..parts.n_vertices).map(|v| graph.in_degree(v)).collect();
        let statistics = graph.degree_statistics();
        prop_assert_eq!(statistics.min, degrees.iter().copied().min().unwrap_or(0));
        prop_assert_eq!(statistics.max, degrees.iter().copied().max().unwrap_or(0));
        prop_assert_eq!(statistics.without_in_edges, degrees.iter().filter(|d| **d == 0).count() as u64);
        let mean = parts.ends.len() as f64 / f64::from(parts.n_vertices.max(1));
        prop_assert!(abs_diff_eq!(statistics.mean, mean, epsilon = 1e-12));
        for (class, &count) in statistics.histogram.iter().enumerate() {
            let inside = |d: &&u64| if class == 0 { **d == 0 } else { (1 << (class - 1)..1 << class).contains(*d) };
            prop_assert_eq!(count, degrees.iter().filter(inside).count() as u64);
        }
        prop_assert_eq!(statistics.histogram.iter().sum::<u64>(), u64::from(parts.n_vertices));
        let touched: BTreeSet<u32> = parts.ends.iter().flat_map(|e| [e.0, e.1]).collect();
        prop_assert_eq!(graph.count_isolated().unwrap(), u64::from(parts.n_vertices) - touched.len() as u64);
    }
}

#[test]
fn large_lists_sort_alike_for_any_number_of_threads() {
    // Enough items for several workers, with a giant row and many empty ones.
    let n = 5000u32;
    let mut random = Random(1);
    let mut below = |limit: u32| random.index(limit as usize) as u32;
    let edges: Vec<(u32, u32)> =
        (0..300_000).map(|_| (below(n), if below(3) == 0 { 17 } else { below(n / 2) })).collect();
    let weights: Vec<f32> = (0..edges.len()).map(|e| e as f32).collect();
    let mut expected: Vec<Edge> = edges.iter().zip(&weights).map(|(e, &w)| (e.1, e.0, 0, w)).collect();
    expected.sort_by_key(|e| (e.0, e.1));
    for threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let graph =
            pool.install(|| GraphBuilder::new(u64::from(n), &edges).weights(&weights).build().unwrap());
        assert!(edges_of(&graph) == expected, "{threads} threads");
    }
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn bad_rows_are_named_by_array_position_and_value() {
    let csr = |indptr: &[u64], indices: &[u32]| message(Graph::from_csr(indptr.to_vec(), indices.to_vec()));
    assert_eq!(csr(&[], &[]), "indptr has 0 elements, expected 1");
    assert_eq!(csr(&[1, 1], &[0]), "indptr[0] is 1: expected 0");
    assert!(csr(&[0, 2, 1, 2], &[0, 0]).starts_with("indptr[2] = 1 is below the entry before it (2)"));
    assert_eq!(csr(&[0, 1, 3], &[0, 1]), "indices has 2 elements, expected 3");
    assert!(csr(&[0, 0, 2], &[0, 2]).starts_with("indices[1] = 2 is out of range: expected a value below 2"));
    assert!(csr(&[0, 0, 2], &[1, 0]).contains("1, 0 at positions 0, 1"));
    // Of several bad rows the first is named; an id out of range before a smaller one is what it is.
    assert!(csr(&[0, 2, 4], &[9, 0, 1, 0]).starts_with("indices[0] = 9"));
    let trusted =
        |indptr: &[u64], indices: &[u32]| Graph::from_csr_trusted(indptr.to_vec(), indices.to_vec());
    assert!(trusted(&[0, 0, 2], &[1, 7]).is_ok());
    assert!(message(trusted(&[0, 2, 1, 2], &[0, 0])).starts_with("indptr[2] = 1"));
    assert_eq!(message(trusted(&[0, 1, 3], &[0, 1])), "indices has 2 elements, expected 3");
}

#[test]
fn the_first_bad_row_of_many_is_named() {
    let n = 50_000usize;
    let indptr: Vec<u64> = (0..=n as u64).collect();
    let mut indices: Vec<u32> = (0..n as u32).collect();
    indices[31_007] = 60_000;
    indices[40_001] = 50_000;
    let error = message(Graph::from_csr(indptr, indices));
    assert!(error.starts_with("indices[31007] = 60000 is out of range"), "{error}");
}

#[test]
fn bad_edges_are_named_by_array_position_and_value() {
    let edges = [(0, 1), (1, 0), (1, 1)];
    let error = message(Graph::from_edges(2, &[(0, 1), (2, 0)]));
    assert_eq!(error, "edge sources[1] = 2 is out of range: expected a value below 2");
    let error = message(Graph::from_edges(2, &[(0, 1), (1, 1), (0, 5)]));
    assert_eq!(error, "edge destinations[2] = 5 is out of range: expected a value below 2");
    let error = message(Graph::from_edges(0, &[(0, 0)]));
    assert_eq!(error, "edge sources[0] = 0 is out of range: expected none, as there is nothing to refer to");

    let builder = GraphBuilder::new(2, &edges);
    assert_eq!(message(builder.types(&[0, 1], 2).build()), "edge_type has 2 elements, expected 3");
    assert_eq!(message(builder.weights(&[1.0; 4]).build()), "edge_weight has 4 elements, expected 3");
    let error = message(builder.types(&[0, 2, 1], 2).build());
    assert_eq!(error, "edge_type[1] = 2 is out of range: expected a value below 2");
    for (weight, printed) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-1.0, "-1")] {
        let error = message(builder.weights(&[1.0, weight, 0.0]).build());
        assert!(error.starts_with(&format!("edge_weight is {printed} at position 1")), "{error}");
    }
    let error = message(builder.types(&[0; 3], 65_537).build());
    assert!(error.contains("the set of relations has 65537"), "{error}");

    let graph = builder.build().unwrap();
    assert_eq!(message(graph.clone().with_edge_types(vec![0u16], 1)), "edge_type has 1 element, expected 3");
    let error = message(graph.clone().with_edge_types(vec![0, 0, 3], 3));
    assert!(error.starts_with("edge_type[2] = 3 is out of range"), "{error}");
    let error = message(graph.with_edge_weights(vec![0.0, 0.0, f32::NAN]));
    assert!(error.starts_with("edge_weight is NaN at position 2"), "{error}");
}

#[test]
fn too_many_vertices_or_relations_are_refused() {
    let error = message(Graph::from_edges(MAX_VERTICES + 1, &[]));
    assert_eq!(error, "the vertex set has 4294967296 elements: at most 4294967295 are supported");
    let typed = GraphBuilder::new(1, &[(0, 0)]).types(&[65_535], MAX_RELATIONS).build().unwrap();
    assert!(message(typed.add_inverse_relations()).contains("the set of relations has 131072"));
    assert!(message(typed.add_self_loops()).contains("the set of relations has 65537"));
    let heavy = GraphBuilder::new(1, &[(0, 0), (0, 0)]).weights(&[f32::MAX; 2]).build().unwrap();
    assert!(message(heavy.deduplicate()).starts_with("edge_weight is inf at position 0"));
}

#[test]
fn a_graph_without_vertices_is_valid() {
    let graph = Graph::from_edges(0, &[]).unwrap();
    assert_eq!((graph.n_vertices(), graph.n_edges()), (0, 0));
    assert_eq!(graph.symmetrize().unwrap().n_edges() + graph.add_self_loops().unwrap().n_edges(), 0);
    assert_eq!(graph.degree_statistics().histogram, Vec::<u64>::new());
}

#[test]
fn a_graph_uses_the_memory_that_it_is_given() {
    let (indptr, indices): (Arc<[u64]>, Arc<[u32]>) = (Arc::new([0, 1, 2]), Arc::new([1, 0]));
    let graph = Graph::from_csr(indptr.clone(), indices.clone()).unwrap();
    assert_eq!((graph.indptr().as_ptr(), graph.indices().as_ptr()), (indptr.as_ptr(), indices.as_ptr()));
    let clone = graph.clone();
    drop(graph);
    assert_eq!((Arc::strong_count(&indptr), Arc::strong_count(&indices)), (2, 2));
    drop(clone);
    assert_eq!((Arc::strong_count(&indptr), Arc::strong_count(&indices)), (1, 1));
}

#[test]
fn edges_are_found_by_their_ends_and_know_their_places_in_the_list() {
    let (n, mut random) = (20u32, Random(1));
    let mut vertex = || random.index(n as usize) as u32;
    let edges: Vec<(u32, u32)> = (0..300).map(|_| (vertex(), vertex())).collect();
    let weights: Vec<f32> = (0..300).map(|e| e as f32).collect();
    let builder = GraphBuilder::new(u64::from(n), &edges);
    let (graph, order) = builder.build_with_order().unwrap();
    let (weighted, same_order) = builder.weights(&weights).build_with_order().unwrap();
    assert_eq!(order, same_order);
    assert_eq!(weighted.edge_weight().unwrap(), order.iter().map(|&e| e as f32).collect::<Vec<_>>());
    assert_eq!(graph.indices(), builder.build().unwrap().indices());
    for (source, destination) in (0..n).flat_map(|s| (0..n).map(move |t| (s, t))) {
        let ids = graph.edge_ids(source, destination);
        let given: Vec<u64> = ids.map(|id| order[id as usize]).collect();
        let expected: Vec<u64> = (0..300).filter(|&e| edges[e as usize] == (source, destination)).collect();
        assert_eq!(given, expected, "{source}, {destination}");
    }
    assert!(graph.edge_ids(0, n).is_empty() && graph.edge_ids(n, 0).is_empty());
}

#[test]
fn weights_are_summed_by_destination() {
    let graph = Graph::from_edges(3, &[(0, 1), (2, 1), (1, 2)]).unwrap();
    assert_eq!(graph.weighted_in_degrees().unwrap(), None);
    let weighted = graph.with_edge_weights(vec![0.5, 2.0, 0.25]).unwrap();
    assert_eq!(weighted.weighted_in_degrees().unwrap(), Some(&[0.0, 2.5, 0.25][..]));
    let again = weighted.with_edge_weights(vec![1.0, 0.0, 3.0]).unwrap();
    assert_eq!(again.weighted_in_degrees().unwrap(), Some(&[0.0, 1.0, 3.0][..]));
}
