//! How often each edge and each subset is kept. False alarm of every assertion: below 1e-8, so of all of them below
//! 1e-6.

use super::*;
use crate::testing::{chi_square_deviation, mean_deviation};

const BATCHES: u64 = 30_000;

/// Counts what one destination keeps, by the set of its edges as a bit mask.
fn subset_counts(graph: &Arc<Graph>, spec: &SampleSpec, variates: impl Fn(u64) -> Variates) -> Vec<u64> {
    let cpu = Cpu::<f64>::new();
    let mut counts = vec![0; 1 << graph.in_degree(0)];
    for number in 0..BATCHES {
        let block = cpu.sample_block(graph, &[0], spec, &variates(number), 0).unwrap();
        let mask: usize = block.edge_id.unwrap().iter().map(|&edge| 1 << edge).sum();
        counts[mask] += 1;
    }
    counts
}

/// Equal shares for the subsets of `size`.
fn uniform_shares(n_subsets: usize, size: u32) -> Vec<f64> {
    (0..n_subsets).map(|mask| if mask.count_ones() == size { 1.0 } else { 0.0 }).collect()
}

#[test]
fn all_subsets_of_a_row_are_equally_likely() {
    let independent: fn(u64) -> Variates = batch;
    let first_steps: fn(u64) -> Variates = |number| dependent_batches(number * 10)[1];
    let later_steps: fn(u64) -> Variates = |number| dependent_batches(number * 10 + 4)[1];
    let renewed: fn(u64) -> Variates = |number| dependent_batches(number * 10 + 4)[0];
    for (name, method, variates) in [
        ("floyd", NEIGHBOR, independent),
        ("first steps", NEIGHBOR, first_steps),
        ("later steps", NEIGHBOR, later_steps),
        ("floyd with draws of two seeds", NEIGHBOR, renewed),
        ("labor of fixed size", labor(LaborIterations::Fixed(0), true), independent),
        ("dependent labor of fixed size", labor(LaborIterations::Converged, true), later_steps),
        ("renewed labor of fixed size", labor(LaborIterations::Converged, true), renewed),
    ] {
        // 6 pairs of 4; each single edge of 7, the last one included; 20 triples of 6; 10 triples of 5.
        for (degree, fanout) in [(4, 2), (7, 1), (6, 3), (5, 3)] {
            let counts = subset_counts(&star(degree), &spec(method, fanout), variates);
            let deviation = chi_square_deviation(&counts, &uniform_shares(counts.len(), fanout as u32));
            assert!(deviation < 6.0, "{name}, {fanout} of {degree}: {counts:?}");
        }
    }
}

fn weighted_star(weight: &[f32]) -> Arc<Graph> {
    let degree = weight.len() as u32;
    let mut indptr = vec![u64::from(degree); degree as usize + 2];
    indptr[0] = 0;
    let graph = Graph::from_csr(indptr, (1..=degree).collect::<Vec<u32>>()).unwrap();
    Arc::new(graph.with_edge_weights(weight.to_vec()).unwrap())
}

#[test]
fn edges_without_weight_are_never_kept() {
    for method in [WEIGHTED, REPLACE_WEIGHTED] {
        for fanout in [2, 3, 4, usize::MAX] {
            for kept in kept_over(&weighted_star(&[0.0, 1.0, 2.0]), &[0], &spec(method, fanout), 2000) {
                assert!(kept.iter().all(|&edge| edge > 0), "{method:?} {fanout}: {kept:?}");
                if method == WEIGHTED || fanout == usize::MAX {
                    assert_eq!(kept, [1, 2]);
                }
            }
            let nothing = weighted_star(&[0.0; 5]);
            assert!(kept_over(&nothing, &[0], &spec(method, fanout), 1).all(|kept| kept.is_empty()));
        }
    }
}

#[test]
fn one_weighted_edge_is_kept_in_proportion_to_its_weight() {
    let weight = [1.0, 2.0, 0.0, 3.0, 0.25, 4.0];
    for method in [WEIGHTED, REPLACE_WEIGHTED] {
        let counts = subset_counts(&weighted_star(&weight), &spec(method, 1), batch);
        let mut shares = vec![0.0; counts.len()];
        for (edge, weight) in weight.into_iter().enumerate() {
            shares[1 << edge] = f64::from(weight);
        }
        assert!(chi_square_deviation(&counts, &shares) < 6.0, "{method:?} {counts:?}");
    }
}

/// As if drawn one after the other, each time in proportion to the weights that are left.
#[test]
fn weighted_pairs_have_the_probabilities_of_successive_draws() {
    let weight = [1.0, 2.0, 3.0, 6.0];
    let counts = subset_counts(&weighted_star(&weight), &spec(WEIGHTED, 2), batch);
    let mut shares = vec![0.0; counts.len()];
    let total: f32 = weight.iter().sum();
    for (a, first) in weight.into_iter().enumerate() {
        for (b, second) in weight.into_iter().enumerate().filter(|&(b, _)| b != a) {
            shares[1 << a | 1 << b] += f64::from(first / total * second / (total - first));
        }
    }
    assert!(chi_square_deviation(&counts, &shares) < 6.0, "{counts:?}");
}

#[test]
fn draws_with_replacement_are_uniform_and_independent() {
    for (method, weight) in [(REPLACE, [1.0; 5]), (REPLACE_WEIGHTED, [1.0, 2.0, 3.0, 4.0, 1.0])] {
        let graph = weighted_star(&weight);
        let mut pairs = [0; 25];
        for kept in kept_over(&graph, &[0], &spec(method, 2), BATCHES) {
            pairs[(kept[0] * 5 + kept[1]) as usize] += 1;
        }
        let share = |pair: usize| match (pair / 5, pair % 5) {
            (a, b) if a == b => f64::from(weight[a] * weight[b]),
            (a, b) if a < b => 2.0 * f64::from(weight[a] * weight[b]),
            _ => 0.0,
        };
        let shares: Vec<f64> = (0..25).map(share).collect();
        assert!(chi_square_deviation(&pairs, &shares) < 6.0, "{method:?} {pairs:?}");
    }
}

/// A 16-bit draw modulo the degree would take the first 25 536 of 40 000 twice as often.
#[test]
fn neighbours_of_a_large_row_are_uniform() {
    let graph = weighted_star(&[2.5; 40_000]);
    for (method, fanout, batches) in [
        (NEIGHBOR, 50, 2000),
        (NEIGHBOR, 5000, 20),
        (REPLACE, 50, 2000),
        (WEIGHTED, 5000, 20),
        (REPLACE_WEIGHTED, 50, 2000),
        (labor(LaborIterations::Fixed(0), true), 5000, 20),
        (LABOR_0, 5000, 20),
    ] {
        let mut counts = [0; 64];
        for kept in kept_over(&graph, &[0], &spec(method, fanout), batches) {
            for edge in kept {
                counts[edge as usize / 625] += 1;
            }
        }
        assert!(chi_square_deviation(&counts, &[1.0; 64]) < 6.0, "{method:?} {counts:?}");
    }
}

#[test]
fn labor_keeps_min_of_fanout_and_degree_in_expectation() {
    let methods = [LABOR_0, LABOR_STAR, labor(LaborIterations::Fixed(2), false)];
    for (degree, fanout) in [(1, 1), (3, 2), (5, 10), (10, 3), (100, 7)] {
        let graph = star(degree);
        for method in methods {
            let sizes: Vec<f64> =
                kept_over(&graph, &[0], &spec(method, fanout), 5000).map(|kept| kept.len() as f64).collect();
            let expected = fanout.min(degree as usize) as f64;
            assert!(mean_deviation(&sizes, expected) < 6.0, "{method:?} {degree} {fanout}");
            if fanout >= degree as usize {
                assert!(sizes.iter().all(|&size| size == expected));
            }
        }
    }
}
