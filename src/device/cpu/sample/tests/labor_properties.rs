//! What LABOR promises beyond single rows.

use std::collections::HashMap;

use approx::assert_abs_diff_eq;

use super::*;
use crate::testing::mean_deviation;

/// Sources besides the destinations, summed over batches.
fn n_sources(graph: &Arc<Graph>, dst: &[u32], method: Method, fanout: usize) -> usize {
    let sources = |number| fast(graph, dst, &spec(method, fanout), &batch(number)).src.len() - dst.len();
    (0..10).map(sources).sum()
}

/// Means of ten batches, on which the methods differ by far more than they vary.
#[test]
fn more_iterations_need_fewer_sources() {
    let graph = skewed(4000, 30, 4);
    let dst: Vec<u32> = (0..200).map(|i| i * 17).collect();
    let count = |method| n_sources(&graph, &dst, method, 5);
    let counts =
        [count(NEIGHBOR), count(LABOR_0), count(labor(LaborIterations::Fixed(1), false)), count(LABOR_STAR)];
    assert!(counts.is_sorted_by(|more, fewer| more > fewer), "{counts:?}");
    assert!((counts[3] as f64) < 0.9 * counts[1] as f64, "{counts:?}");
    // The fixed-size forms share sources as well.
    let fixed =
        [count(labor(LaborIterations::Fixed(0), true)), count(labor(LaborIterations::Converged, true))];
    assert!(counts[0] > fixed[0] && fixed[0] > fixed[1], "{counts:?} {fixed:?}");
}

/// With π = 1 everywhere, LABOR-i's first step decides as LABOR-0 does.
#[test]
fn one_row_is_sampled_alike_by_all_iterations() {
    let graph = star(90);
    for number in 0..200 {
        let edges = |method| fast(&graph, &[0], &spec(method, 9), &batch(number)).edge_id;
        assert_eq!(edges(LABOR_0), edges(LABOR_STAR));
        assert_eq!(edges(LABOR_0), edges(labor(LaborIterations::Fixed(1), false)));
    }
}

/// Probabilities of many orders of magnitude, equal ones, and ones above 1.
#[test]
fn the_scale_solves_its_equation_and_equals_the_sorted_solution() {
    for number in 0..300 {
        let degree = 2 + bounded(number, 1, 0, 200) as u32;
        let power = 0.2 + 6.0 * uniform(number, 2, 0);
        let pi: HashMap<u32, f64> = (0..degree)
            .map(|s| (s, (3.0 * uniform(number, 3, u64::from(s) / 2)).powf(power).max(1e-12)))
            .collect();
        let dense: Vec<f64> = (0..degree).map(|s| pi[&s]).collect();
        let row: Vec<u32> = (0..degree).collect();
        for fanout in (1..degree).step_by(1 + degree as usize / 10) {
            let scale = labor::scale(&row, &dense, f64::from(fanout));
            let sum: f64 = dense.iter().map(|pi| 1.0 / (scale * pi).min(1.0)).sum();
            let target = f64::from(degree).powi(2) / f64::from(fanout);
            assert_abs_diff_eq!(sum, target, epsilon = 1e-12 * target);
            let sorted = naive::labor_scale(&row, &pi, fanout as usize);
            assert_abs_diff_eq!(scale, sorted, epsilon = 1e-12 * sorted);
        }
    }
}

#[test]
fn rows_within_the_fanout_keep_everything_and_all_weights_sum_to_one() {
    let graph = skewed(800, 15, 6);
    let dst: Vec<u32> = (0..150).collect();
    for iterations in [1, 2, 10].map(LaborIterations::Fixed).into_iter().chain([LaborIterations::Converged]) {
        for fixed_size in [false, true] {
            for number in 0..5 {
                let spec = spec(labor(iterations, fixed_size), 12);
                let block = fast(&graph, &dst, &spec, &batch(number));
                let weight = block.weight.unwrap();
                for (row, &vertex) in dst.iter().enumerate() {
                    let edges = block.indptr[row] as usize..block.indptr[row + 1] as usize;
                    let degree = graph.in_degree(vertex) as usize;
                    if degree <= 12 {
                        assert_eq!(edges.len(), degree);
                        assert!(weight[edges.clone()].iter().all(|&w| w == 1.0 / degree as f64));
                    }
                    if !edges.is_empty() {
                        let sum: f64 = weight[edges].iter().sum();
                        assert_abs_diff_eq!(sum, 1.0, epsilon = 1e-12);
                    }
                }
            }
        }
    }
}

fn without_parallel_edges(graph: &Graph) -> Arc<Graph> {
    let row = |vertex| {
        let mut row = graph.in_neighbors(vertex).to_vec();
        row.dedup();
        row
    };
    graph_of((0..graph.n_vertices() as u32).map(row).collect())
}

/// With the probabilities p of the definition: every edge is kept with frequency p; the Horvitz–Thompson mean
/// `(Σ kept x/p) / d` has the mean over all in-edges as its expectation, and the variance of x = 1 is `1/k − 1/d`,
/// that of neighbour sampling. Hájek's mean, by the block's weights, is off by O(1/k) of x's spread.
///
/// False alarm: 6 standard errors, below 1e-8 each, some hundred of them.
#[test]
fn estimates_are_unbiased() {
    // Parallel edges share a variate, which would add to the variance.
    let graph = without_parallel_edges(&skewed(300, 60, 11));
    let dst: Vec<u32> = (0..40).collect();
    let fanout = 10;
    let batches = 4000;
    let iterations = LaborIterations::Converged;
    let probability = naive::labor_probabilities(&graph, &dst, fanout, iterations);
    let x = |edge: u64| uniform(99, 0, u64::from(graph.indices()[edge as usize]));
    let rows: Vec<usize> = (0..dst.len()).filter(|&row| graph.in_degree(dst[row]) > 20).collect();
    assert!(rows.len() > 5);
    let mut estimates: Vec<[Vec<f64>; 3]> = vec![Default::default(); dst.len()];
    let mut kept_counts = vec![0u64; graph.n_edges() as usize];
    let cpu = Cpu::<f64>::new();
    for number in 0..batches {
        let spec = spec(labor(iterations, false), fanout);
        let block = to_host(cpu.sample_block(&graph, &dst, &spec, &batch(number), 0).unwrap());
        let weight = block.weight.unwrap();
        for &row in &rows {
            let start = graph.indptr()[dst[row] as usize];
            let degree = graph.in_degree(dst[row]) as f64;
            let [mut total, mut count, mut hajek] = [0.0; 3];
            let kept = block.indptr[row] as usize..block.indptr[row + 1] as usize;
            for (&id, &weight) in block.edge_id[kept.clone()].iter().zip(&weight[kept]) {
                let p = probability[row][(id - start) as usize];
                kept_counts[id as usize] += 1;
                total += x(id) / p / degree;
                count += 1.0 / p / degree;
                hajek += weight * x(id);
            }
            for (values, value) in estimates[row].iter_mut().zip([total, count, hajek]) {
                values.push(value);
            }
        }
    }
    for &row in &rows {
        let edges = graph.indptr()[dst[row] as usize]..graph.indptr()[dst[row] as usize + 1];
        let degree = graph.in_degree(dst[row]) as f64;
        let truth = edges.clone().map(x).sum::<f64>() / degree;
        for edge in edges.clone() {
            let p = probability[row][(edge - edges.start) as usize];
            let six_deviations = 6.0 * (batches as f64 * p * (1.0 - p)).sqrt();
            assert_abs_diff_eq!(
                kept_counts[edge as usize] as f64,
                batches as f64 * p,
                epsilon = six_deviations + 1.0
            );
        }
        let [total, count, hajek] = &estimates[row];
        assert!(mean_deviation(total, truth) < 6.0);
        assert!(mean_deviation(count, 1.0) < 6.0);
        let squares: Vec<f64> = count.iter().map(|c| (c - 1.0).powi(2)).collect();
        let variance = 1.0 / fanout as f64 - 1.0 / degree;
        assert!(mean_deviation(&squares, variance) < 6.0, "{degree}");
        let mean = hajek.iter().sum::<f64>() / batches as f64;
        assert_abs_diff_eq!(mean, truth, epsilon = 0.03);
    }
}

#[test]
fn layers_share_variates_only_if_asked() {
    let graph = skewed(500, 30, 3);
    let dst: Vec<u32> = (0..100).collect();
    for layer_dependent in [false, true] {
        for (iterations, fixed_size) in [
            (LaborIterations::Fixed(0), false),
            (LaborIterations::Fixed(0), true),
            (LaborIterations::Converged, false),
        ] {
            let spec = spec(Method::Labor { iterations, fixed_size, layer_dependent }, 4);
            let edges = |layer| {
                let block = Cpu::<f64>::new().sample_block(&graph, &dst, &spec, &batch(0), layer).unwrap();
                to_host(block).edge_id
            };
            assert_eq!(edges(0) == edges(1), layer_dependent);
        }
    }
}
