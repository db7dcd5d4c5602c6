//! The number of vertices reached, enumerated exactly on a small graph: E|S^l| is concave in |S^0|, and E|S^l|/|S^0|
//! never rises, for neighbour sampling and for LABOR-0; and the samplers have these expectations.

use super::*;
use crate::testing::mean_deviation;

const N: usize = 9;
const FANOUT: usize = 2;

/// A probability for each set of vertices, a bit mask.
type Distribution = Vec<f64>;

/// Degrees from 0 to 6, no parallel edges, one self-loop.
fn small_graph() -> Arc<Graph> {
    graph_of(vec![
        vec![1, 2, 3, 4, 5, 6],
        vec![0],
        vec![0, 1, 4],
        vec![],
        vec![0, 3, 4, 8],
        vec![6, 7],
        vec![0, 1, 2, 7, 8],
        vec![2, 5, 6],
        vec![7, 0, 5, 1],
    ])
}

fn members(set: usize) -> impl Iterator<Item = u32> {
    (0..N as u32).filter(move |v| set >> v & 1 == 1)
}

/// S^{l+1} given S^l under neighbour sampling: each destination adds one of its fanout-subsets.
fn neighbor_step(graph: &Graph, set: usize) -> Distribution {
    let mut distribution = vec![0.0; 1 << N];
    distribution[set] = 1.0;
    for vertex in members(set) {
        let neighbors: usize = graph.in_neighbors(vertex).iter().map(|&s| 1 << s).sum();
        let size = neighbors.count_ones().min(FANOUT as u32);
        let subsets: Vec<usize> =
            (0..1 << N).filter(|s: &usize| s & !neighbors == 0 && s.count_ones() == size).collect();
        let mut next = vec![0.0; 1 << N];
        for (from, p) in distribution.iter().enumerate().filter(|&(_, &p)| p > 0.0) {
            subsets.iter().for_each(|subset| next[from | subset] += p / subsets.len() as f64);
        }
        distribution = next;
    }
    distribution
}

/// S^{l+1} given S^l under LABOR-0: a source joins iff its variate is below the largest of its rows' k/d, and sources
/// are independent.
fn labor_step(graph: &Graph, set: usize) -> Distribution {
    let joins = |source: u32| {
        let rows = members(set).filter(|&t| graph.in_neighbors(t).contains(&source));
        let p = rows.map(|t| (FANOUT as f64 / graph.in_degree(t) as f64).min(1.0)).fold(0.0, f64::max);
        if set >> source & 1 == 1 { 1.0 } else { p }
    };
    let probability: Vec<f64> = (0..N as u32).map(joins).collect();
    let of_set = |next: usize| {
        let factor = |(v, p): (usize, &f64)| if next >> v & 1 == 1 { *p } else { 1.0 - p };
        probability.iter().enumerate().map(factor).product()
    };
    (0..1 << N).map(of_set).collect()
}

/// `[layer][set]`: E|S^l| given S^0 = set, for l = 0, 1, 2.
fn expected_sizes(step: impl Fn(usize) -> Distribution) -> [Vec<f64>; 3] {
    let transitions: Vec<Distribution> = (0..1 << N).map(step).collect();
    let sizes: Vec<f64> = (0..1usize << N).map(|set| f64::from(set.count_ones())).collect();
    let before = |sizes: &[f64]| -> Vec<f64> {
        let expectation = |next: &Distribution| next.iter().zip(sizes).map(|(p, size)| p * size).sum();
        transitions.iter().map(expectation).collect()
    };
    let one = before(&sizes);
    let two = before(&one);
    [sizes, one, two]
}

fn methods() -> [(Method, [Vec<f64>; 3]); 2] {
    let graph = small_graph();
    [
        (NEIGHBOR, expected_sizes(|set| neighbor_step(&graph, set))),
        (LABOR_0, expected_sizes(|set| labor_step(&graph, set))),
    ]
}

#[test]
fn expected_sizes_are_concave_in_the_number_of_seeds() {
    for (method, sizes) in methods() {
        for layer in [1, 2] {
            let mean = |n_seeds: u32| {
                let sets: Vec<usize> = (0..1usize << N).filter(|set| set.count_ones() == n_seeds).collect();
                sets.iter().map(|&set| sizes[layer][set]).sum::<f64>() / sets.len() as f64
            };
            let means: Vec<f64> = (0..=N as u32).map(mean).collect();
            for n in 1..N {
                let second_difference = means[n + 1] - 2.0 * means[n] + means[n - 1];
                assert!(second_difference <= 1e-12, "{method:?} {layer} {n}: {means:?}");
                assert!(means[n + 1] / (n + 1) as f64 <= means[n] / n as f64 + 1e-12, "{means:?}");
            }
            // Not for the trivial reason that every set is reached.
            assert!(means[1] > 1.5 && means[N - 1] < N as f64, "{means:?}");
        }
    }
}

/// 6 standard errors for each of 2 · 2 · 6 means: false alarm below 1e-7.
#[test]
fn samplers_reach_the_expected_number_of_vertices() {
    let graph = small_graph();
    let cpu = Cpu::<f64>::new();
    for (method, sizes) in methods() {
        for set in [0b1, 0b1000, 0b100_0101, 0b1_0001_0000, 0b1_1110_1011, (1 << N) - 1] {
            let dst: Vec<u32> = members(set).collect();
            let mut reached = [vec![], vec![]];
            for number in 0..20_000 {
                let mut src = dst.clone();
                for (layer, reached) in reached.iter_mut().enumerate() {
                    let spec = spec(method, FANOUT);
                    let block = cpu.sample_block(&graph, &src, &spec, &batch(number), layer as u32);
                    src = block.unwrap().src.to_vec();
                    reached.push(src.len() as f64);
                }
            }
            for (layer, reached) in reached.iter().enumerate() {
                let deviation = mean_deviation(reached, sizes[layer + 1][set]);
                assert!(deviation < 6.0, "{method:?}, layer {layer}, seeds {set:b}: {deviation}");
            }
        }
    }
}
