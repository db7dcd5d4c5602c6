//! Edge softmax and fused graph attention on an R-MAT graph; throughput is edges.

use std::hint::black_box;
use std::sync::Arc;

use crate::support::{Random, assert_close, rmat, rounding};
use cohop::block::Block;
use cohop::device::{Attention, Cpu, Csr};
use cohop::tape::{AttentionOptions, Tape};
use cohop::tensor::Tensor;
use criterion::{Criterion, Throughput, criterion_group};

type Device = Cpu<f32>;

const SCALE: u32 = 16;
const N: usize = 1 << SCALE;
const N_EDGE: usize = 1 << 20;

fn bench_softmax(criterion: &mut Criterion) {
    let (device, mut random) = (Device::new(), Random(5));
    let (indptr, indices) = rmat(SCALE, N_EDGE, &mut random);
    let a = Csr::new(&indptr, &indices, N).unwrap();
    let mut group = criterion.benchmark_group("edge-softmax");
    group.sample_size(20).throughput(Throughput::Elements(N_EDGE as u64));
    for heads in [1, 8] {
        let (x, dout) = (random.values(N_EDGE * heads), random.values(N_EDGE * heads));
        let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
        device.edge_softmax(a, heads, &x, &mut y).unwrap();
        let mut expected = vec![0.0; x.len()];
        for ends in indptr.windows(2) {
            for h in 0..heads {
                let row = || (ends[0] as usize..ends[1] as usize).map(|e| e * heads + h);
                let sum: f32 = row().map(|i| x[i].exp()).sum();
                row().for_each(|i| expected[i] = x[i].exp() / sum);
            }
        }
        assert_close("out", &y, &expected, rounding);
        group.bench_function(format!("forward/{heads}"), |bencher| {
            bencher.iter(|| device.edge_softmax(a, heads, black_box(&x), &mut y).unwrap());
        });
        group.bench_function(format!("backward/{heads}"), |bencher| {
            bencher.iter(|| {
                device.edge_softmax_backward(a, heads, black_box(&y), &dout, &mut dx).unwrap();
            });
        });
    }
}

/// Attention over `z: [n, heads · dim]`, as a layer has it after its projection, and with the projection from 128.
fn bench_attention(criterion: &mut Criterion) {
    let (device, mut random) = (Device::new(), Random(6));
    let (indptr, indices) = rmat(SCALE, N_EDGE, &mut random);
    let block = Arc::new(Block::from_csr(&device, N, &indptr, &indices).unwrap());
    let (heads, dim, in_dim) = (8, 16, 128);
    let width = heads * dim;
    let options = AttentionOptions { heads, slope: 0.2, self_loop: true, dropout: 0.0 };
    let mut tensor = |rows, cols: usize, scale: f32| {
        let values: Vec<f32> = random.values(rows * cols).iter().map(|v| scale * v).collect();
        Tensor::from_slice(&device, rows, cols, &values).unwrap()
    };
    let (x, weight) = (tensor(N, in_dim, 1.0), tensor(in_dim, width, 0.2));
    let vectors = [tensor(1, width, 0.5), tensor(1, width, 0.5)];
    let cotangent = tensor(N, width, 1.0);

    for kind in ["gat", "gatv2"] {
        let forward = |projected: bool| {
            let tape = Tape::training(&device, 0);
            let x = tape.leaf(x.clone());
            let z = if projected {
                tape.linear(&[(x, tape.leaf(weight.clone()))], None, None).unwrap()
            } else {
                x
            };
            let [first, second] = vectors.each_ref().map(|v| tape.leaf(v.clone()));
            let out = if kind == "gat" {
                tape.gat(&block, z, first, second, options).unwrap()
            } else {
                tape.gatv2(&block, z, z, first, options).unwrap()
            };
            (tape, out)
        };
        let both = |projected: bool| {
            let (tape, out) = forward(projected);
            let loss = tape.dot(out, cotangent.clone()).unwrap();
            black_box(tape.backward(loss).unwrap());
        };
        let (tape, out) = forward(false);
        check_rows(kind, &tape.value(out).to_vec(&device).unwrap(), &x, &vectors, &indptr, &indices);
        drop(tape);

        let mut group = criterion.benchmark_group(format!("{kind}/8x16"));
        group.sample_size(10).throughput(Throughput::Elements(N_EDGE as u64));
        group.bench_function("forward", |bencher| bencher.iter(|| black_box(forward(false))));
        group.bench_function("forward+backward", |bencher| bencher.iter(|| both(false)));
        group.bench_function("128 -> 8x16, forward", |bencher| bencher.iter(|| black_box(forward(true))));
        group.bench_function("128 -> 8x16, forward+backward", |bencher| bencher.iter(|| both(true)));
    }
}

/// Panics unless some rows are as the plain formulas have them.
fn check_rows(
    kind: &str,
    out: &[f32],
    x: &Tensor<Device>,
    vectors: &[Tensor<Device>; 2],
    indptr: &[u32],
    indices: &[u32],
) {
    let (device, width) = (Device::new(), x.cols());
    let (x, heads) = (x.to_vec(&device).unwrap(), 8);
    let [first, second] = vectors.each_ref().map(|v| v.to_vec(&device).unwrap());
    let leaky = |v: f32| if v > 0.0 { v } else { 0.2 * v };
    let dim = width / heads;
    for t in (0..N).step_by(N / 50) {
        let mut sources = vec![t];
        sources.extend(indices[indptr[t] as usize..indptr[t + 1] as usize].iter().map(|&s| s as usize));
        for h in 0..heads {
            let columns = h * dim..(h + 1) * dim;
            let score = |s: usize| -> f32 {
                let (src, dst) = (&x[s * width..], &x[t * width..]);
                if kind == "gat" {
                    leaky(columns.clone().map(|c| first[c] * src[c] + second[c] * dst[c]).sum())
                } else {
                    columns.clone().map(|c| first[c] * leaky(src[c] + dst[c])).sum()
                }
            };
            let weights: Vec<f32> = sources.iter().map(|&s| score(s).exp()).collect();
            let sum: f32 = weights.iter().sum();
            let expected: Vec<f32> = columns
                .clone()
                .map(|c| sources.iter().zip(&weights).map(|(&s, w)| w / sum * x[s * width + c]).sum())
                .collect();
            assert_close("out", &out[t * width..][columns], &expected, rounding);
        }
    }
}

criterion_group!(benches, bench_softmax, bench_attention);
