//! The feature cache: accesses a second by policy, without data; and gathers at fixed hit rates, whose throughput is
//! bytes of the rows asked for, as stored, plus bytes written. Beside it, the plain gather of the same rows.

use std::hint::black_box;

use crate::support::{Random, assert_close, rounding};
use cohop::cache::{Counts, Directory, FeatureCache, Policy};
use cohop::data::Dense;
use cohop::device::{Cpu, FeatureElement, Gather, MatrixMut};
use criterion::{Criterion, Throughput, criterion_group};
use half::f16;

const N_VERTICES: usize = 1 << 20;
const N_ACCESSES: usize = 1 << 17;

/// Ids as often as a power law has it: a vertex at r of the way down the ranks comes with density 1 / (2 sqrt(r)).
fn skewed(random: &mut Random) -> u32 {
    let r = (random.word() >> 40) as f64 / (1 << 24) as f64;
    // Ranks are spread over the ids, so that hot vertices do not share cache lines.
    ((r * r * N_VERTICES as f64) as u32).wrapping_mul(0x9e37_79b1) % N_VERTICES as u32
}

fn access(criterion: &mut Criterion) {
    let mut random = Random(1);
    let trace: Vec<u32> = (0..N_ACCESSES).map(|_| skewed(&mut random)).collect();
    let mut group = criterion.benchmark_group("cache/access");
    group.sample_size(20).throughput(Throughput::Elements(N_ACCESSES as u64));
    for policy in Policy::ALL {
        for (index, n_vertices) in [("array", Some(N_VERTICES)), ("table", None)] {
            let mut directory = Directory::new(policy, N_VERTICES / 16, n_vertices).unwrap();
            let counts = directory.access_all(&trace).unwrap();
            assert_eq!(counts.accesses(), N_ACCESSES as u64);
            group.bench_function(format!("{policy}/{index}"), |bencher| {
                bencher.iter(|| directory.access_all(black_box(&trace)).unwrap());
            });
        }
    }
}

const N_TABLE: usize = 1 << 17;
const N_OUT: usize = 1 << 15;

/// Batches of `N_OUT` ids, the first `n_hot` the same in each, the others from a round of cold ones that is longer than
/// the cache: least recently used, hot ones always hit and cold ones never.
fn batches(n_hot: usize, random: &mut Random) -> Vec<Vec<u32>> {
    let mut cold: Vec<u32> = (N_OUT as u32..N_TABLE as u32).collect();
    for i in (1..cold.len()).rev() {
        cold.swap(i, random.index(i + 1));
    }
    let n_cold = N_OUT - n_hot;
    let rounds = cold.len().checked_div(n_cold).unwrap_or(1);
    (0..rounds)
        .map(|batch| (0..n_hot as u32).chain(cold[batch * n_cold..][..n_cold].to_vec()).collect())
        .collect()
}

fn gather<E: FeatureElement>(criterion: &mut Criterion, name: &str, dim: usize, narrow: impl Fn(f32) -> E) {
    let mut random = Random(1);
    let data: Vec<E> = random.values(N_TABLE * dim).into_iter().map(narrow).collect();
    let table = Dense::new(data, N_TABLE, dim).unwrap();
    let (mut out, mut expected) = (vec![0f32; N_OUT * dim], vec![0f32; N_OUT * dim]);
    let device = Cpu::<f32>::new();
    let mut group = criterion.benchmark_group("cache/gather");
    let bytes = N_OUT * dim * (size_of::<E>() + size_of::<f32>());
    group.sample_size(20).throughput(Throughput::Bytes(bytes as u64));
    for percent in [0, 50, 100] {
        let n_hot = N_OUT * percent / 100;
        let batches = batches(n_hot, &mut random);
        let mut cache = FeatureCache::new(Policy::Lru, N_OUT + N_OUT / 2, table.clone()).unwrap();
        let mut n_batches = 0;
        let mut next = |cache: &mut FeatureCache<E>, out: &mut [f32]| -> Counts {
            let ids = &batches[n_batches % batches.len()];
            n_batches += 1;
            cache.gather(ids, MatrixMut::new(out, N_OUT, dim).unwrap()).unwrap()
        };
        next(&mut cache, &mut out);
        let counts = next(&mut cache, &mut out);
        assert_eq!(counts.hits, n_hot as u64, "{percent} % hits");
        let plain = MatrixMut::new(&mut expected[..], N_OUT, dim).unwrap();
        device.gather(table.data(), N_TABLE, &batches[1 % batches.len()], plain).unwrap();
        assert_close("out", &out, &expected, rounding);
        group.bench_function(format!("{name}/{dim}/{percent}%"), |bencher| {
            bencher.iter(|| black_box(next(&mut cache, &mut out)));
        });
    }
    let ids = &batches(0, &mut random)[0];
    group.bench_function(format!("{name}/{dim}/plain"), |bencher| {
        bencher.iter(|| {
            let out = MatrixMut::new(&mut out[..], N_OUT, dim).unwrap();
            device.gather(black_box(table.data()), N_TABLE, ids, out).unwrap();
        });
    });
}

fn bench(criterion: &mut Criterion) {
    access(criterion);
    for dim in [100, 602] {
        gather(criterion, "f32", dim, |v| v);
        gather(criterion, "f16", dim, f16::from_f32);
    }
}

criterion_group!(benches, bench);
