//! Aggregation and its kin on an R-MAT graph; throughput is edges.

use std::hint::black_box;
use std::ops::Range;

use crate::support::{Random, assert_close, rmat, rounding};
use cohop::device::{Cpu, Csr, Matrix, MatrixMut, Narrow, Sddmm, Spmm, Structure, Weights, Write};
use criterion::{Criterion, Throughput, criterion_group};
use half::bf16;

type Device = Cpu<f32>;

const SCALE: u32 = 16;
const N: usize = 1 << SCALE;
const N_EDGE: usize = 1 << 20;

/// `Σ weight[e] x[indices[e], :]` of some rows.
fn naive(a: Csr<'_, Device>, weight: &[f32], x: &[f32], dim: usize, rows: Range<usize>) -> Vec<f32> {
    let mut out = vec![0.0; rows.len() * dim];
    for (k, i) in rows.enumerate() {
        for e in a.indptr()[i] as usize..a.indptr()[i + 1] as usize {
            for c in 0..dim {
                out[k * dim + c] += weight[e] * x[a.indices()[e] as usize * dim + c];
            }
        }
    }
    out
}

fn bench(criterion: &mut Criterion) {
    let (device, mut random) = (Device::new(), Random(2));
    let (indptr, indices) = rmat(SCALE, N_EDGE, &mut random);
    let a = Csr::<Device>::new(&indptr, &indices, N).unwrap();
    let weight = random.values(N_EDGE);
    let column = random.values(N);
    let mut group = criterion.benchmark_group("spmm");
    group.sample_size(20).throughput(Throughput::Elements(N_EDGE as u64));

    for dim in [16, 47, 100, 128, 256] {
        let x = random.values(N * dim);
        let x = Matrix::<Device>::new(&x, N, dim).unwrap();
        let mut out = vec![0f32; N * dim];
        let sum = |out: &mut [f32], weights| {
            let out = MatrixMut::new(out, N, dim).unwrap();
            device.spmm(black_box(a), weights, x, out, Write::Assign).unwrap();
        };
        let by_edge = Weights { edge: Some(&weight[..]), row: None, column: None };
        let by_column = Weights { edge: None, row: None, column: Some(&column[..]) };
        sum(&mut out, by_edge);
        // The last rows; the first are hubs, whose sums are rounded more.
        let last = N - 1000..N;
        assert_close("out", &out[last.start * dim..], &naive(a, &weight, x.data(), dim, last), rounding);

        group.bench_function(format!("sum/{dim}"), |b| b.iter(|| sum(&mut out, Weights::ones())));
        group.bench_function(format!("edge-weighted/{dim}"), |b| b.iter(|| sum(&mut out, by_edge)));
        group.bench_function(format!("column-weighted/{dim}"), |b| b.iter(|| sum(&mut out, by_column)));
        let mut narrow = vec![bf16::ZERO; N * dim];
        device.narrow(x, &mut narrow, None).unwrap();
        group.bench_function(format!("sum-bf16/{dim}"), |bencher| {
            bencher.iter(|| {
                let out = MatrixMut::new(&mut out[..], N, dim).unwrap();
                device.spmm_narrow(black_box(a), Weights::ones(), &narrow, None, out, Write::Assign).unwrap();
            });
        });
        group.bench_function(format!("narrow/{dim}"), |bencher| {
            bencher.iter(|| device.narrow(black_box(x), &mut narrow, None).unwrap());
        });
        let mut argmax = vec![0; N * dim];
        group.bench_function(format!("max/{dim}"), |bencher| {
            bencher.iter(|| {
                let out = MatrixMut::new(&mut out[..], N, dim).unwrap();
                device.spmm_max(black_box(a), x, out, &mut argmax).unwrap();
            });
        });
        let mut per_edge = vec![0f32; N_EDGE];
        group.bench_function(format!("sddmm/{dim}"), |bencher| {
            bencher.iter(|| device.sddmm_dot(black_box(a), x, x, 1, &mut per_edge, Write::Assign).unwrap());
        });
    }

    let (mut to_indptr, mut to_indices, mut edge) = (vec![0; N + 1], vec![0; N_EDGE], vec![0; N_EDGE]);
    group.bench_function("transpose", |bencher| {
        bencher.iter(|| device.transpose(black_box(a), &mut to_indptr, &mut to_indices, &mut edge).unwrap());
    });
}

criterion_group!(benches, bench);
