//! Fanouts per relation.

use approx::abs_diff_eq;
use rayon::prelude::*;

use super::*;

fn per_relation(fanout: usize) -> SampleSpec {
    SampleSpec { per_relation: true, ..spec(NEIGHBOR, fanout) }
}

/// One destination with sources 1..=60: relation 0 has 40 edges, relation 1 none, relation 2 has 2, relation 3 has 18.
fn typed_star() -> Arc<Graph> {
    let relation: Vec<u16> = (0..60)
        .map(|e| {
            if e % 3 != 0 {
                0
            } else if e < 6 {
                2
            } else {
                3
            }
        })
        .collect();
    let mut indptr = vec![60u64; 62];
    indptr[0] = 0;
    let graph = Graph::from_csr(indptr, (1..=60).collect::<Vec<u32>>()).unwrap();
    Arc::new(graph.with_edge_types(relation, 4).unwrap())
}

#[test]
fn a_typed_star_gives_each_relation_its_fanout_and_the_same_sample_to_any_number_of_threads() {
    let graph = typed_star();
    let cpu = Cpu::<f64>::new();
    let sample = |number: u64| {
        let block = cpu.sample_block(&graph, &[0], &per_relation(3), &batch(number), 0).unwrap();
        (block.edge_id.unwrap().to_vec(), block.edge_type.unwrap().to_vec())
    };
    let expected: Vec<_> = (0..32).map(sample).collect();
    // The seed's sample, once and for all.
    assert_eq!(expected[0].0, STAR_SAMPLE);
    for (edges, types) in &expected {
        let of = |r: u16| types.iter().filter(|&&t| t == r).count();
        assert_eq!([of(0), of(1), of(2), of(3)], [3, 0, 2, 3]);
        let types_of_edges: Vec<u16> =
            edges.iter().map(|&e| graph.edge_type().unwrap()[e as usize]).collect();
        assert_eq!(*types, types_of_edges);
        assert!(edges.is_sorted_by(|a, b| a < b));
    }
    for n_threads in [1, 2, 8] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
        let found: Vec<_> = pool.install(|| (0..32).into_par_iter().map(sample).collect());
        assert_eq!(found, expected, "{n_threads} threads");
    }
}

const STAR_SAMPLE: [u64; 8] = [0, 3, 9, 18, 34, 42, 47, 53];

#[test]
fn fanouts_per_relation_equal_the_naive_ones() {
    for (graph, n_dst) in [(skewed(300, 20, 1), 70), (skewed(60, 100, 2), 60), (skewed(2000, 4, 3), 300)] {
        let dst: Vec<u32> = (0..n_dst).map(|i| (i * 7 % graph.n_vertices()) as u32).collect();
        for fanout in [0, 1, 5, 20, usize::MAX] {
            for variates in [batch(3)].into_iter().chain([0, 7].into_iter().flat_map(dependent_batches)) {
                let spec = &per_relation(fanout);
                let job = Job {
                    graph: graph.in_edges(),
                    dst: &dst,
                    spec,
                    variates: &variates,
                    layer: 2,
                    walked: None,
                    numbers: None,
                };
                let expected = naive::sample(&graph, &dst, spec, &variates, 2);
                assert_eq!(fast_by(true, &job).unwrap(), expected, "{spec:?} {variates:?}");
                assert_eq!(fast_by(false, &job).unwrap(), expected, "{spec:?} {variates:?}");
            }
        }
    }
}

/// What a relation keeps does not depend on the edges of other relations.
#[test]
fn edges_of_a_relation_are_equally_likely() {
    let graph = typed_star();
    let n = 4000;
    let mut counts = [0u32; 60];
    for kept in kept_over(&graph, &[0], &per_relation(3), n) {
        kept.iter().for_each(|&e| counts[e as usize] += 1);
    }
    for (e, &count) in counts.iter().enumerate() {
        let degree = match graph.edge_type().unwrap()[e] {
            0 => 40.0,
            2 => 2.0,
            _ => 18.0,
        };
        let p = f64::min(1.0, 3.0 / degree);
        // 5.5 standard deviations: false alarm below 60 · 4e-8.
        let deviation = 5.5 * (n as f64 * p * (1.0 - p)).sqrt();
        assert!(abs_diff_eq!(f64::from(count), n as f64 * p, epsilon = deviation), "edge {e}: {count}");
    }
}

#[test]
fn graphs_without_relations_and_other_methods_are_refused() {
    let cpu = Cpu::<f64>::new();
    let plain = Arc::new(Graph::from_csr(vec![0u64, 1, 1], vec![1u32]).unwrap());
    let error = cpu.sample_block(&plain, &[0], &per_relation(3), &batch(0), 0).unwrap_err().to_string();
    assert!(error.contains("expected a graph with edge types"), "{error}");
    for method in [LABOR_0, WALK, REPLACE, WEIGHTED] {
        let spec = SampleSpec { method, ..per_relation(3) };
        let error = cpu.sample_block(&typed_star(), &[0], &spec, &batch(0), 0).unwrap_err().to_string();
        assert!(error.contains("with a fanout per relation"), "{error}");
    }
}
