//! Every method by its definition, one row at a time, with sorted lists and hash maps: what the fast forms must equal.

use std::collections::{BTreeSet, HashMap};

use crate::device::{LaborIterations, Method, SampleSpec};
use crate::graph::Graph;
use crate::rng::{Purpose, Variates, bounded, philox4x32, uniform, uniform_open};

/// A block on the host.
#[derive(Debug, PartialEq)]
pub(super) struct NaiveBlock {
    pub(super) src: Vec<u32>,
    pub(super) indptr: Vec<u32>,
    pub(super) indices: Vec<u32>,
    /// Empty for walks.
    pub(super) edge_id: Vec<u64>,
    /// `None` where all edges of a row have equal weight.
    pub(super) weight: Option<Vec<f64>>,
}

/// What a row keeps: edges, or for walks vertices, each with its weight.
type Row = Vec<(u64, f64)>;

pub(super) fn sample(
    graph: &Graph,
    dst: &[u32],
    spec: &SampleSpec,
    variates: &Variates,
    layer: u32,
) -> NaiveBlock {
    let walks = matches!(spec.method, Method::Walk { .. });
    let probabilities = match spec.method {
        Method::Labor { iterations, layer_dependent: _, fixed_size: _ }
            if iterations != LaborIterations::Fixed(0) && spec.fanout > 0 =>
        {
            Some(labor_probabilities(graph, dst, spec.fanout, iterations))
        }
        _ => None,
    };
    let mut block =
        NaiveBlock { src: dst.to_vec(), indptr: vec![0], indices: vec![], edge_id: vec![], weight: None };
    let mut weight = Vec::new();
    let mut positions: HashMap<u32, u32> = (0..).zip(dst).map(|(position, &id)| (id, position)).collect();
    for (row, &vertex) in dst.iter().enumerate() {
        let kept = match &probabilities {
            Some(probabilities) => labor_row(graph, vertex, spec, variates, layer, &probabilities[row]),
            None => self::row(graph, vertex, spec, variates, layer),
        };
        for &(kept, share) in &kept {
            let source = if walks { kept as u32 } else { graph.indices()[kept as usize] };
            let next = block.src.len() as u32;
            let position = *positions.entry(source).or_insert(next);
            if position == next {
                block.src.push(source);
            }
            block.indices.push(position);
            weight.push(share);
            if !walks {
                block.edge_id.push(kept);
            }
        }
        block.indptr.push(block.indices.len() as u32);
    }
    let weighted = match spec.method {
        Method::Labor { iterations, .. } => iterations != LaborIterations::Fixed(0),
        _ => walks,
    };
    block.weight = weighted.then_some(weight);
    block
}

fn edges(graph: &Graph, vertex: u32) -> Vec<u64> {
    (graph.indptr()[vertex as usize]..graph.indptr()[vertex as usize + 1]).collect()
}

/// The `count` edges of the smallest keys, ascending by id.
fn smallest(edges: &[u64], count: usize, key: impl Fn(u64) -> f64) -> Vec<u64> {
    let mut sorted = edges.to_vec();
    sorted.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
    sorted.truncate(count);
    sorted.sort();
    sorted
}

fn row(graph: &Graph, vertex: u32, spec: &SampleSpec, variates: &Variates, layer: u32) -> Row {
    let edges = edges(graph, vertex);
    let source = |edge: u64| u64::from(graph.indices()[edge as usize]);
    let weight = |edge: u64| f64::from(graph.edge_weight().unwrap()[edge as usize]);
    let seeds = variates.seeds();
    let fanout = spec.fanout;
    let kept = match spec.method {
        Method::Full => edges,
        Method::Neighbor { replace: true, weighted } if fanout < usize::MAX => {
            let stream = Purpose::Replacement.stream(layer);
            let counters = (0..fanout as u64).map(|draw| u64::from(vertex) | draw << 32);
            let total: f64 = if weighted { edges.iter().map(|&edge| weight(edge)).sum() } else { 0.0 };
            let mut kept: Vec<u64> = if edges.is_empty() || weighted && total == 0.0 {
                vec![]
            } else if weighted {
                counters
                    .map(|counter| {
                        let target = uniform(seeds.of(stream, counter), stream, counter) * total;
                        let mut sum = 0.0;
                        let lifts = |&&edge: &&u64| {
                            sum += weight(edge);
                            sum > target
                        };
                        *edges.iter().find(lifts).unwrap()
                    })
                    .collect()
            } else {
                let place = |counter| bounded(seeds.of(stream, counter), stream, counter, edges.len() as u64);
                counters.map(|counter| edges[place(counter) as usize]).collect()
            };
            kept.sort();
            kept
        }
        Method::Neighbor { weighted: true, .. } => {
            let positive: Vec<u64> = edges.into_iter().filter(|&edge| weight(edge) > 0.0).collect();
            let stream = Purpose::Key.stream(layer);
            let key = |edge| -uniform_open(seeds.of(stream, edge), stream, edge).ln() / weight(edge);
            smallest(&positive, fanout, key)
        }
        Method::Neighbor { .. } if spec.per_relation => {
            let relation = |edge: u64| graph.edge_type().unwrap()[edge as usize];
            let relations: BTreeSet<u16> = edges.iter().map(|&edge| relation(edge)).collect();
            let word = |edge| f64::from(variates.word(Purpose::Edge.stream(layer), edge));
            let of = |r: u16| edges.iter().copied().filter(|&edge| relation(edge) == r).collect::<Vec<u64>>();
            let mut kept: Vec<u64> =
                relations.into_iter().flat_map(|r| smallest(&of(r), fanout, word)).collect();
            kept.sort();
            kept
        }
        Method::Neighbor { .. } if variates.rotates() => {
            smallest(&edges, fanout, |edge| f64::from(variates.word(Purpose::Edge.stream(layer), edge)))
        }
        Method::Neighbor { .. } => floyd(&edges, fanout, |draw, n| {
            let block = u64::from(vertex) | (draw as u64 / 4) << 32;
            let seed = seeds.of_word(Purpose::Subset.stream(layer), block, draw % 4);
            let counter = [vertex, draw as u32 / 4, layer, (Purpose::Subset.stream(0) >> 32) as u32];
            let words = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
            let product = u64::from(words[draw % 4]) * n;
            if product % (1 << 32) < (1 << 32) % n {
                let counter = u64::from(vertex) | (draw as u64) << 32;
                return bounded(seed, Purpose::SubsetAgain.stream(layer), counter, n);
            }
            product >> 32
        }),
        Method::Labor { fixed_size, layer_dependent, .. } => {
            let stream = Purpose::Source.stream(if layer_dependent { 0 } else { layer });
            let word = |edge| variates.word(stream, source(edge));
            let degree = edges.len() as u128;
            if fixed_size || fanout >= edges.len() {
                smallest(&edges, fanout, |edge| f64::from(word(edge)))
            } else {
                let is_kept = |&edge: &u64| u128::from(word(edge)) * degree < (fanout as u128) << 32;
                edges.into_iter().filter(is_kept).collect()
            }
        }
        Method::Walk { walks, length, restart } => {
            let mut counts = HashMap::<u32, u32>::new();
            for walk in 0..walks {
                let mut at = vertex;
                for step in 0..length {
                    let counter = u64::from(vertex) | u64::from(walk * length + step) << 32;
                    let stream = Purpose::WalkRestart.stream(layer);
                    if uniform(seeds.of(stream, counter), stream, counter) < restart {
                        at = vertex;
                    }
                    let sources = graph.in_neighbors(at);
                    if sources.is_empty() {
                        break;
                    }
                    let stream = Purpose::WalkStep.stream(layer);
                    let place = bounded(seeds.of(stream, counter), stream, counter, sources.len() as u64);
                    at = sources[place as usize];
                    *counts.entry(at).or_default() += 1;
                }
            }
            counts.remove(&vertex);
            let mut ranked: Vec<(u32, u32)> = counts.into_iter().collect();
            ranked.sort_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
            ranked.truncate(fanout);
            ranked.sort();
            let total: u32 = ranked.iter().map(|&(_, count)| count).sum();
            let share = |count| f64::from(count) / f64::from(total);
            return ranked.into_iter().map(|(id, count)| (u64::from(id), share(count))).collect();
        }
    };
    let share = 1.0 / kept.len() as f64;
    kept.into_iter().map(|edge| (edge, share)).collect()
}

/// Floyd's algorithm: for j = d − k .. d − 1, a place drawn from 0..=j, or j if that is taken.
pub(super) fn floyd(edges: &[u64], fanout: usize, draw: impl Fn(usize, u64) -> u64) -> Vec<u64> {
    let mut places = BTreeSet::new();
    if fanout >= edges.len() {
        return edges.to_vec();
    }
    for (number, last) in (edges.len() - fanout..edges.len()).enumerate() {
        let place = draw(number, last as u64 + 1) as usize;
        if !places.insert(place) {
            places.insert(last);
        }
    }
    places.into_iter().map(|place| edges[place]).collect()
}

/// `min(1, c_t π_s)` for every in-edge of every destination. c is found by sorting, not by iteration.
pub(super) fn labor_probabilities(
    graph: &Graph,
    dst: &[u32],
    fanout: usize,
    iterations: LaborIterations,
) -> Vec<Vec<f64>> {
    let rows: Vec<&[u32]> = dst.iter().map(|&vertex| graph.in_neighbors(vertex)).collect();
    let mut pi: HashMap<u32, f64> =
        rows.iter().flat_map(|row| row.iter().map(|&source| (source, 1.0))).collect();
    let (mut done, mut expected_before) = (0, f64::INFINITY);
    loop {
        let scales: Vec<f64> = rows.iter().map(|row| labor_scale(row, &pi, fanout)).collect();
        let mut largest = HashMap::<u32, f64>::new();
        for (row, &scale) in rows.iter().zip(&scales) {
            for source in *row {
                let entry = largest.entry(*source).or_insert(0.0);
                *entry = entry.max(scale * pi[source]);
            }
        }
        let expected: f64 = largest.values().map(|p| p.min(1.0)).sum();
        let is_last = match iterations {
            LaborIterations::Fixed(count) => done == count,
            LaborIterations::Converged => done > 0 && expected >= expected_before * (1.0 - 1e-4),
        };
        if is_last {
            let probability = |scale: f64, source: &u32| (scale * pi[source]).min(1.0);
            let of_row = |(row, &scale): (&&[u32], &f64)| row.iter().map(|s| probability(scale, s)).collect();
            return rows.iter().zip(&scales).map(of_row).collect();
        }
        (done, expected_before, pi) = (done + 1, expected, largest);
    }
}

/// The c with `Σ 1/min(1, c π) = d²/k`: the m largest π are the ones cut at 1.
pub(super) fn labor_scale(row: &[u32], pi: &HashMap<u32, f64>, fanout: usize) -> f64 {
    let mut sorted: Vec<f64> = row.iter().map(|source| pi[source]).collect();
    sorted.sort_by(|a, b| b.total_cmp(a));
    if row.len() <= fanout {
        return sorted.last().map_or(1.0, |least| 1.0 / least);
    }
    let target = (row.len() * row.len()) as f64 / fanout as f64;
    (0..row.len())
        .map(|m| sorted[m..].iter().map(|pi| 1.0 / pi).sum::<f64>() / (target - m as f64))
        .enumerate()
        .find(|&(m, scale)| scale * sorted[m] < 1.0)
        .map_or_else(|| unreachable!("d > k leaves an edge that is not certain"), |(_, scale)| scale)
}

fn labor_row(
    graph: &Graph,
    vertex: u32,
    spec: &SampleSpec,
    variates: &Variates,
    layer: u32,
    probabilities: &[f64],
) -> Row {
    let Method::Labor { fixed_size, layer_dependent, .. } = spec.method else { unreachable!() };
    let stream = Purpose::Source.stream(if layer_dependent { 0 } else { layer });
    let edges = edges(graph, vertex);
    let word = |edge: u64| f64::from(variates.word(stream, u64::from(graph.indices()[edge as usize])));
    let probability = |edge: u64| probabilities[(edge - edges[0]) as usize];
    let kept: Vec<u64> = if edges.len() <= spec.fanout {
        edges.clone()
    } else if fixed_size {
        smallest(&edges, spec.fanout, |edge| word(edge) / probability(edge))
    } else {
        let r = |edge| word(edge) / 2f64.powi(32);
        edges.iter().copied().filter(|&edge| r(edge) < probability(edge)).collect()
    };
    let sum: f64 = kept.iter().map(|&edge| 1.0 / probability(edge)).sum();
    kept.iter().map(|&edge| (edge, 1.0 / probability(edge) / sum)).collect()
}
