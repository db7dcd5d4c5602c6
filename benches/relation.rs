//! Relation-typed aggregation on an R-MAT graph: 8 relations, 128 → 128 columns, forward and with the backward pass.
//!
//! `COHOP_BENCH_SCALE` (default 15) is the logarithm of the number of vertices. The answer is checked against plain
//! sums before anything is timed.

use std::hint::black_box;
use std::time::Duration;

use crate::support::assert_close;
use cohop::block::Block;
use cohop::device::{Cpu, Direction, Matrix, MatrixMut, Order, Relation, RelationEdges, Write};
use cohop::graph::Rmat;
use cohop::rng;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group};

const N_RELATIONS: usize = 8;

struct Case {
    cpu: Cpu<f32>,
    block: Block<Cpu<f32>>,
    edge_type: Vec<u16>,
    n: usize,
}

fn values(seed: u64, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| 2.0 * rng::uniform(seed, 1, i) as f32 - 1.0).collect()
}

impl Case {
    fn new(scale: u32) -> Self {
        let cpu = Cpu::new();
        let graph = Rmat::graph500(scale, 16, 1).generate().unwrap();
        let n = graph.n_vertices();
        let indptr: Vec<u32> = graph.indptr().iter().map(|&i| i as u32).collect();
        let block = Block::from_csr(&cpu, n, &indptr, graph.indices()).unwrap();
        let n_edges = graph.n_edges();
        let edge_type: Vec<u16> =
            (0..n_edges).map(|e| rng::bounded(3, 2, e, N_RELATIONS as u64) as u16).collect();
        Case { cpu, block, edge_type, n }
    }

    fn group(&self) -> RelationEdges<Cpu<f32>> {
        self.cpu.group_relations(self.block.csr(), &self.edge_type, N_RELATIONS, None).unwrap()
    }

    fn product(
        &self,
        edges: &RelationEdges<Cpu<f32>>,
        direction: Direction,
        order: Order,
        weight: &[f32],
        [x, out]: [(&[f32], usize); 2],
        buffer: &mut [f32],
    ) {
        let x = Matrix::new(x.0, self.n, x.1).unwrap();
        let out = MatrixMut::new(buffer, self.n, out.1).unwrap();
        self.cpu.relation_product(edges, direction, order, weight, x, out, Write::Assign).unwrap();
    }

    /// Some rows of the forward pass by plain sums in f64.
    fn check(&self, k: usize, n: usize, x: &[f32], weight: &[f32], out: &[f32]) {
        let csr = self.block.csr();
        for t in (0..self.n).step_by(self.n / 16) {
            let row = csr.indptr()[t] as usize..csr.indptr()[t + 1] as usize;
            let mut counts = [0.0f64; N_RELATIONS];
            row.clone().for_each(|e| counts[usize::from(self.edge_type[e])] += 1.0);
            let mut sums = vec![0.0f64; N_RELATIONS * k];
            for e in row {
                let (r, s) = (usize::from(self.edge_type[e]), csr.indices()[e] as usize);
                (0..k).for_each(|i| sums[r * k + i] += f64::from(x[s * k + i]) / counts[r]);
            }
            let product = |j: usize| -> f64 {
                sums.iter().zip(weight.iter().skip(j).step_by(n)).map(|(a, &b)| a * f64::from(b)).sum()
            };
            let expected: Vec<f64> = (0..n).map(product).collect();
            assert_close(&format!("row {t}"), &out[t * n..][..n], &expected, |_, expected| {
                1e-3 * (1.0 + expected.abs())
            });
        }
    }
}

fn relation(c: &mut Criterion) {
    let scale = std::env::var("COHOP_BENCH_SCALE").ok().and_then(|s| s.parse().ok()).unwrap_or(15);
    let case = Case::new(scale);
    let edges = case.group();
    let mut group = c.benchmark_group("relation");
    group.sample_size(10).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    group.throughput(Throughput::Elements(edges.n_edge() as u64));
    group.bench_function("group", |b| b.iter(|| black_box(case.group())));
    for (k, n) in [(128, 128), (128, 16), (16, 128)] {
        let (x, weight, dout) =
            (values(1, case.n * k), values(2, N_RELATIONS * k * n), values(3, case.n * n));
        let (mut out, mut dx, mut dw) =
            (vec![0.0; case.n * n], vec![0.0; case.n * k], vec![0.0; weight.len()]);
        for order in [Order::AggregateFirst, Order::TransformFirst] {
            case.product(&edges, Direction::Forward, order, &weight, [(&x, k), (&dout, n)], &mut out);
            case.check(k, n, &x, &weight, &out);
            let name = format!("{k} to {n}, {order:?}");
            group.bench_function(BenchmarkId::new("forward", &name), |b| {
                b.iter(|| {
                    case.product(&edges, Direction::Forward, order, &weight, [(&x, k), (&dout, n)], &mut out);
                });
            });
            group.bench_function(BenchmarkId::new("backward to x", &name), |b| {
                b.iter(|| {
                    case.product(&edges, Direction::Backward, order, &weight, [(&dout, n), (&x, k)], &mut dx);
                });
            });
        }
        for aggregated in [Direction::Forward, Direction::Backward] {
            let name = format!("{k} to {n}, sums {aggregated:?}");
            group.bench_function(BenchmarkId::new("backward to W", &name), |b| {
                b.iter(|| {
                    let (x, dout) = (Matrix::new(&x[..], case.n, k), Matrix::new(&dout[..], case.n, n));
                    let (x, dout) = (x.unwrap(), dout.unwrap());
                    case.cpu.relation_weight_gradient(&edges, aggregated, x, dout, &mut dw).unwrap();
                });
            });
        }
        // What the tape does: the cheaper order each way, and both gradients.
        let forward = edges.cheaper_order(Direction::Forward, k, n);
        let backward = edges.cheaper_order(Direction::Backward, n, k);
        let aggregated = if k <= n { Direction::Forward } else { Direction::Backward };
        let name = format!("{k} to {n}, {forward:?} and {backward:?}");
        group.bench_function(BenchmarkId::new("forward and backward", &name), |b| {
            b.iter(|| {
                case.product(&edges, Direction::Forward, forward, &weight, [(&x, k), (&dout, n)], &mut out);
                case.product(&edges, Direction::Backward, backward, &weight, [(&dout, n), (&x, k)], &mut dx);
                let (x, dout) = (Matrix::new(&x[..], case.n, k), Matrix::new(&dout[..], case.n, n));
                let (x, dout) = (x.unwrap(), dout.unwrap());
                case.cpu.relation_weight_gradient(&edges, aggregated, x, dout, &mut dw).unwrap();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, relation);
