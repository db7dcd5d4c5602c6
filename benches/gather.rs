//! Gather of random rows; throughput is bytes read plus bytes written, beside that of a plain copy.

use std::hint::black_box;

use crate::support::{Random, assert_close, rounding};
use cohop::device::{Cpu, FeatureElement, Gather, MatrixMut};
use criterion::{Criterion, Throughput, criterion_group};
use half::{bf16, f16};
use rayon::prelude::*;

const N_TABLE: usize = 1 << 17;
const N_OUT: usize = 1 << 16;

/// A copy of more than fits the caches: what gather is measured against.
fn copy(criterion: &mut Criterion) {
    let x = vec![1f32; N_OUT * 256];
    let mut out = vec![0f32; x.len()];
    let mut group = criterion.benchmark_group("gather");
    group.sample_size(20).throughput(Throughput::Bytes(2 * size_of_val(&x[..]) as u64));
    group.bench_function("copy", |bencher| {
        bencher.iter(|| {
            out.par_chunks_mut(1 << 16)
                .zip(x.par_chunks(1 << 16))
                .for_each(|(out, x)| out.copy_from_slice(x));
            black_box(&mut out);
        });
    });
}

fn gather<E: FeatureElement>(criterion: &mut Criterion, name: &str, dim: usize, narrow: impl Fn(f32) -> E) {
    let (device, mut random) = (Cpu::<f32>::new(), Random(1));
    let table: Vec<E> = random.values(N_TABLE * dim).into_iter().map(&narrow).collect();
    let index: Vec<u32> = (0..N_OUT).map(|_| random.index(N_TABLE) as u32).collect();
    let mut out = vec![0f32; N_OUT * dim];

    let rows = 50;
    device
        .gather(&table, N_TABLE, &index[..rows], MatrixMut::new(&mut out[..rows * dim], rows, dim).unwrap())
        .unwrap();
    let expected = index[..rows].iter().flat_map(|&i| &table[i as usize * dim..][..dim]);
    assert_close(
        "out",
        &out[..rows * dim],
        &expected.map(|value| value.widen_f32()).collect::<Vec<_>>(),
        rounding,
    );

    let mut group = criterion.benchmark_group("gather");
    let bytes = N_OUT * dim * (size_of::<E>() + size_of::<f32>());
    group.sample_size(20).throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(format!("{name}/{dim}"), |bencher| {
        bencher.iter(|| {
            let out = MatrixMut::new(&mut out[..], N_OUT, dim).unwrap();
            device.gather(black_box(&table[..]), N_TABLE, &index, out).unwrap();
        });
    });
}

fn bench(criterion: &mut Criterion) {
    copy(criterion);
    for dim in [100, 128, 602] {
        gather(criterion, "f32", dim, |v| v);
        gather(criterion, "f16", dim, f16::from_f32);
        gather(criterion, "bf16", dim, bf16::from_f32);
    }
}

criterion_group!(benches, bench);
