//! Sampling throughput, in edges a second, on one thread: three layers of fanouts 15, 10, 5 around 1024 seeds.

use std::hint::black_box;
use std::sync::Arc;

use cohop::device::{Cpu, Method, Sample, SampleSpec, SampledBlock};
use cohop::graph::{Graph, Rmat};
use cohop::rng::{Dependence, Kappa, Purpose, Variates, bounded};
use criterion::{Criterion, Throughput, criterion_group};

const FANOUTS: [usize; 3] = [15, 10, 5];
const BATCH: usize = 1024;

const METHODS: [(&str, Method); 3] =
    [("neighbor", Method::NEIGHBOR), ("labor-0", Method::LABOR_0), ("labor-star", Method::LABOR_STAR)];

/// All layers of a batch.
fn minibatch(cpu: &Cpu, graph: &Arc<Graph>, method: Method, number: u64) -> Vec<SampledBlock<Cpu>> {
    let variates = Variates::new(0, number, Kappa::INDEPENDENT, Dependence::default());
    let n = graph.n_vertices() as u64;
    let mut seeds: Vec<u32> =
        (0..BATCH as u64 * 2).map(|i| bounded(number, Purpose::Split.stream(0), i, n) as u32).collect();
    seeds.sort_unstable();
    seeds.dedup();
    seeds.truncate(BATCH);
    let mut blocks: Vec<SampledBlock<Cpu>> = Vec::new();
    for (layer, fanout) in FANOUTS.into_iter().enumerate() {
        let spec = SampleSpec { method, fanout, per_relation: false, edge_ids: false, edge_weights: false };
        let dst = blocks.last().map_or(&seeds[..], |block| &block.src);
        let block = cpu.sample_block(graph, dst, &spec, &variates, layer as u32);
        blocks.push(block.expect("valid seeds"));
    }
    blocks
}

fn n_edges(blocks: &[SampledBlock<Cpu>]) -> u64 {
    blocks.iter().map(|block| block.indices.len() as u64).sum()
}

/// Every edge is an edge of the graph, and rows have the size that the method promises.
fn check(graph: &Graph, method: Method, blocks: &[SampledBlock<Cpu>]) {
    let (mut kept, mut expected) = (0, 0);
    for (block, fanout) in blocks.iter().zip(FANOUTS) {
        for (row, &vertex) in block.src[..block.n_dst].iter().enumerate() {
            let edges = &block.indices[block.indptr[row] as usize..block.indptr[row + 1] as usize];
            let neighbors = graph.in_neighbors(vertex);
            let size = neighbors.len().min(fanout);
            (kept, expected) = (kept + edges.len(), expected + size);
            if matches!(method, Method::Neighbor { .. }) {
                assert_eq!(edges.len(), size);
            }
            for &position in edges {
                assert!(neighbors.binary_search(&block.src[position as usize]).is_ok());
            }
        }
    }
    // LABOR's sizes are right on average: shared variates make a batch's sum spread by some percent. LABOR-* keeps
    // more edges, those that bring in no new source.
    let ratio = kept as f64 / expected as f64;
    let at_most = if method == Method::LABOR_STAR { f64::INFINITY } else { 1.2 };
    assert!(ratio > 0.8 && ratio < at_most, "{kept} edges, expected {expected}");
}

fn sampling(criterion: &mut Criterion) {
    // 2^17 vertices and about 2 million edges, some of them hubs.
    let graph = Arc::new(Rmat::graph500(17, 8, 1).generate().expect("valid parameters"));
    let cpu = Cpu::<f32>::new();
    let mut group = criterion.benchmark_group("sampling");
    for (name, method) in METHODS {
        let blocks = minibatch(&cpu, &graph, method, 0);
        check(&graph, method, &blocks);
        group.throughput(Throughput::Elements(n_edges(&blocks)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| minibatch(&cpu, black_box(&graph), method, 0));
        });
    }
    group.finish();
}

criterion_group!(benches, sampling);
