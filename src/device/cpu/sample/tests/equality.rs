//! Fast equals naive, table equals hash table, one thread equals many.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rayon::prelude::*;

use super::*;
use crate::testing::assert_close;

/// Edge for edge; weights within rounding, since the naive forms add in another order.
fn assert_same(found: &NaiveBlock, expected: &NaiveBlock, what: &str) {
    assert_eq!(found.indptr, expected.indptr, "{what}");
    assert_eq!(found.src, expected.src, "{what}");
    assert_eq!(found.indices, expected.indices, "{what}");
    assert_eq!(found.edge_id, expected.edge_id, "{what}");
    match (&found.weight, &expected.weight) {
        (None, None) => {}
        (Some(found), Some(expected)) => {
            assert_close(&format!("{what}: weight"), found, expected, |_, _| 1e-12);
        }
        _ => panic!("{what}: weights on one side only"),
    }
}

#[test]
fn fast_samplers_equal_the_naive_ones_by_either_table() {
    for (graph, n_dst) in [(skewed(300, 20, 1), 70), (skewed(60, 100, 2), 60), (skewed(2000, 4, 3), 300)] {
        let dst: Vec<u32> = (0..n_dst).map(|i| (i * 7 % graph.n_vertices()) as u32).collect();
        for (method, rotates) in methods() {
            for fanout in [0, 1, 5, 20, 90, usize::MAX] {
                for variates in [batch(3)].into_iter().chain([0, 7].into_iter().flat_map(dependent_batches)) {
                    if variates.rotates() && !rotates {
                        continue;
                    }
                    let spec = &spec(method, fanout);
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
                    let what = format!("{spec:?} {variates:?}");
                    assert_same(&fast_by(true, &job).unwrap(), &expected, &what);
                    assert_same(&fast_by(false, &job).unwrap(), &expected, &what);
                }
            }
        }
    }
}

/// Degrees around the sizes where Floyd's set changes its form, and large fanouts.
#[test]
fn subsets_equal_floyd_at_every_size() {
    for degree in [63, 64, 65, 127, 128, 129, 1023, 1024, 1025, 5000, 70_000] {
        let graph = star(degree);
        for fanout in [1, 2, 3, 4, 5, 15, 16, 17, 64, 1000, 4999] {
            for number in 0..3 {
                let (spec, variates) = (spec(NEIGHBOR, fanout), batch(number));
                let expected = naive::sample(&graph, &[0], &spec, &variates, 1);
                assert_same(&fast(&graph, &[0], &spec, &variates), &expected, &format!("{degree} {fanout}"));
            }
        }
    }
}

#[test]
fn a_batch_is_the_same_from_any_number_of_threads() {
    let graph = skewed(3000, 12, 5);
    let cpu = Cpu::<f64>::new();
    for (method, _) in methods() {
        let one = |number: u64| {
            let dst: Vec<u32> = (0..200).map(|i| ((i * 13 + number * 5) % 3000) as u32).collect();
            to_host(cpu.sample_block(&graph, &dst, &spec(method, 6), &batch(number), 0).unwrap())
        };
        let expected: Vec<NaiveBlock> = (0..24).map(one).collect();
        for n_threads in [1, 2, 8] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
            let found: Vec<NaiveBlock> = pool.install(|| (0..24).into_par_iter().map(one).collect());
            assert_eq!(found, expected, "{method:?} with {n_threads} threads");
        }
    }
}

/// A workspace that has served other graphs, layers and methods gives the same block as a new one.
#[test]
fn used_workspaces_leave_no_trace() {
    let graphs = [skewed(500, 30, 7), skewed(90, 8, 8), skewed(800, 3, 9)];
    let (mut workspace, mut served) = (Workspace::default(), BTreeSet::new());
    for round in 0..60u64 {
        let graph = &graphs[(round / 2) as usize % 3];
        // Every method, and most of them after different ones: 7 and the number of methods have no common divisor.
        let (method, _) = methods()[(round * 7) as usize % methods().len()];
        served.insert(format!("{method:?}"));
        let dst: Vec<u32> = (0..60).map(|i| (i * 11 % graph.n_vertices()) as u32).collect();
        let (spec, variates) = (spec(method, 1 + round as usize % 9), batch(round));
        for by_table in [true, false] {
            let job = Job {
                graph: graph.in_edges(),
                dst: &dst,
                spec: &spec,
                variates: &variates,
                layer: 0,
                walked: None,
                numbers: None,
            };
            let found = sample(&Cpu::<f64>::new(), &mut workspace, by_table, &job, &mut Alone).unwrap();
            assert_eq!(to_host(found), fast_by(by_table, &job).unwrap(), "{spec:?}");
        }
    }
    assert_eq!(served.len(), methods().len(), "{served:?}");
}

proptest! {
    /// So that a batch by renewal, in which about one draw of κ is new, exchanges about one neighbour of κ.
    #[test]
    fn floyds_subsets_of_draws_that_differ_in_one_differ_in_at_most_one_element(
        degree in 2usize..60,
        share in 0.0..1.0f64,
        draws in prop::collection::vec(any::<u32>(), 60),
        (changed, other) in (0usize..60, any::<u32>()),
    ) {
        let fanout = ((degree as f64 * share) as usize).max(1);
        let edges: Vec<u64> = (0..degree as u64).collect();
        let subset = |draw_of: &dyn Fn(usize) -> u32| {
            naive::floyd(&edges, fanout, |draw, n| u64::from(draw_of(draw)) % n)
        };
        let first = subset(&|draw| draws[draw]);
        let second = subset(&|draw| if draw == changed % fanout { other } else { draws[draw] });
        let gone = first.iter().filter(|edge| !second.contains(edge)).count();
        prop_assert!(first.len() == fanout && second.len() == fanout && gone <= 1, "{first:?} {second:?}");
    }
}
