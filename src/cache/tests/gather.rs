//! What comes out of a cache is what is in the table.

use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};

use super::*;
use crate::array::Array;
use crate::data::{Dense, Features, SparseFeatures};
use crate::device::{Cpu, FeatureElement, Gather, MatrixMut, Scalar};

/// All finite bit patterns of a half come up, if the table is large enough.
fn table<E: FeatureElement>(n_rows: usize, dim: usize, narrow: impl Fn(f32) -> E) -> Dense<E> {
    let value = |i: usize| f16::from_bits((i.wrapping_mul(40_503) >> 3) as u16).to_f32();
    let data: Vec<E> =
        (0..n_rows * dim).map(|i| narrow(if value(i).is_finite() { value(i) } else { 0.1 })).collect();
    Dense::new(data, n_rows, dim).unwrap()
}

/// Gathers `batches` and compares with the plain kernel, bit for bit, and with a directory asked one id at a time.
fn compare<E: FeatureElement, S: Scalar>(
    cache: &mut FeatureCache<E>,
    capacity: usize,
    batches: &[Vec<u32>],
) -> Result<(), TestCaseError> {
    let (n_rows, dim) = (cache.table().n_rows(), cache.table().dim());
    let mut directory = Directory::new(cache.directory().policy(), capacity, None).unwrap();
    for ids in batches {
        let mut out = vec![S::nan(); ids.len() * dim];
        let mut expected = out.clone();
        let counts = cache.gather(ids, MatrixMut::new(&mut out[..], ids.len(), dim).unwrap()).unwrap();
        let plain = MatrixMut::new(&mut expected[..], ids.len(), dim).unwrap();
        Cpu::<S>::new().gather(cache.table().data(), n_rows, ids, plain).unwrap();
        prop_assert_eq!(bytemuck::cast_slice::<S, u8>(&out), bytemuck::cast_slice::<S, u8>(&expected));
        let before = directory.counts();
        for &id in ids {
            directory.access(id).unwrap();
        }
        prop_assert_eq!(counts, directory.counts() - before);
        prop_assert!(cache.directory().ids().eq(directory.ids().iter().copied()));
    }
    prop_assert_eq!(cache.directory().counts(), directory.counts());
    Ok(())
}

/// `rows_per_chunk` rows at a time, so that small batches take several.
fn cache<E: FeatureElement>(
    policy: Policy,
    capacity: usize,
    table: Dense<E>,
    rows_per_chunk: usize,
) -> FeatureCache<E> {
    FeatureCache::new(policy, capacity, table).unwrap().with_rows_per_chunk(rows_per_chunk)
}

fn batches() -> impl Strategy<Value = Vec<Vec<u32>>> {
    let id = (0..30u32, 0..30u32).prop_map(|(a, b)| a.min(b));
    proptest::collection::vec(proptest::collection::vec(id, 0..40), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(4), ..ProptestConfig::default() })]

    #[test]
    fn rows_and_counts_are_exact(
        batches in batches(),
        capacity in 0..40usize,
        dim in 0..5usize,
        rows_per_chunk in 1..9usize,
        policy in 0..4usize,
    ) {
        let policy = Policy::ALL[policy];
        let n = rows_per_chunk;
        compare::<_, f32>(&mut cache(policy, capacity, table(30, dim, |v| v), n), capacity, &batches)?;
        compare::<_, f64>(&mut cache(policy, capacity, table(30, dim, |v| v), n), capacity, &batches)?;
        compare::<_, f32>(&mut cache(policy, capacity, table(30, dim, f16::from_f32), n), capacity, &batches)?;
        compare::<_, f64>(&mut cache(policy, capacity, table(30, dim, f16::from_f32), n), capacity, &batches)?;
        compare::<_, f32>(&mut cache(policy, capacity, table(30, dim, bf16::from_f32), n), capacity, &batches)?;
        compare::<_, f64>(&mut cache(policy, capacity, table(30, dim, bf16::from_f32), n), capacity, &batches)?;
    }
}

/// Enough for several tasks and chunks, from a file.
#[test]
fn mapped_tables_are_read_in_parallel() {
    let (n_rows, dim) = (5000, 67);
    let in_memory = table(n_rows, dim, f16::from_f32);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("features");
    std::fs::write(&path, bytemuck::cast_slice(in_memory.data())).unwrap();
    let mapped: Dense<f16> = Dense::new(Array::map(&path, 0, n_rows * dim).unwrap(), n_rows, dim).unwrap();
    assert!(mapped.array().is_mapped());
    let batches: Vec<Vec<u32>> = (0..4u32)
        .map(|batch| (0..3000).map(|i| (i * i + 977 * batch * i) % n_rows as u32).collect())
        .collect();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    for policy in Policy::ALL {
        let mut cache = cache(policy, 1000, mapped.clone(), 700);
        pool.install(|| compare::<_, f32>(&mut cache, 1000, &batches)).unwrap();
        assert!(cache.directory().counts().hits > 0);
    }
}

/// What was in the cache before a refused call, and the counts, are there after it.
#[test]
fn refused_calls_change_nothing() {
    let mut cache = FeatureCache::new(Policy::Lru, 2, table(4, 3, |v| v)).unwrap();
    let mut out = [-1f32; 6];
    let mut gather = |cache: &mut FeatureCache<f32>, ids: &[u32], rows: usize, cols: usize| {
        let out = MatrixMut::<Cpu>::new(&mut out[..rows * cols], rows, cols).unwrap();
        cache.gather(ids, out).map_err(|error| error.to_string())
    };
    gather(&mut cache, &[3, 1], 2, 3).unwrap();
    let message = gather(&mut cache, &[0, 4], 2, 3).unwrap_err();
    assert!(message.contains("ids[1] = 4"), "{message}");
    for (rows, cols) in [(1, 3), (2, 2)] {
        let message = gather(&mut cache, &[0, 2], rows, cols).unwrap_err();
        assert!(message.contains("shape mismatch"), "{message}");
    }
    assert!(cache.directory().ids().eq([3, 1]));
    assert_eq!(cache.directory().counts(), Counts { hits: 0, misses: 2 });
    assert_eq!(gather(&mut cache, &[3, 1], 2, 3).unwrap(), Counts { hits: 2, misses: 0 });
    cache.reset_counts();
    cache.clear();
    assert_eq!(gather(&mut cache, &[3, 3], 2, 3).unwrap(), Counts { hits: 1, misses: 1 });
    assert_eq!(out, [cache.table().row(3), cache.table().row(3)].concat()[..]);
}

#[test]
fn features_of_any_dense_type_are_cached() {
    let cpu = Cpu::<f32>::new();
    let (ids, dim) = ([5u32, 2, 5, 0], 3);
    let expected: Vec<f32> = {
        let table = table(6, dim, f16::from_f32);
        ids.iter().flat_map(|&id| table.row(id as usize).iter().map(|v| v.to_f32())).collect()
    };
    for features in [
        Features::F32(table(6, dim, |v| v)),
        Features::F16(table(6, dim, f16::from_f32)),
        // Bf16 keeps fewer bits.
        Features::Bf16(table(6, dim, bf16::from_f32)),
    ] {
        let mut cache = AnyFeatureCache::new(Policy::S3Fifo, 4, &features).unwrap();
        for (hits, misses) in [(1, 3), (4, 0)] {
            let (rows, counts) = cache.gather(&cpu, &ids).unwrap();
            assert_eq!((rows.shape(), counts), ([4, dim], Counts { hits, misses }));
            let rounded = |v: &f32| match &features {
                Features::Bf16(_) => bf16::from_f32(*v).to_f32(),
                _ => *v,
            };
            assert_eq!(rows.view(), expected.iter().map(rounded).collect::<Vec<_>>());
        }
        assert_eq!(cache.directory().counts(), Counts { hits: 5, misses: 3 });
        assert!(cache.gather(&cpu, &[6]).is_err());
        cache.clear();
        cache.reset_counts();
        assert_eq!(cache.gather(&cpu, &ids).unwrap().1, Counts { hits: 1, misses: 3 });
    }
    let sparse = SparseFeatures::new(vec![0, 0], vec![], vec![], 3).unwrap();
    for (features, name) in [(Features::Sparse(sparse), "sparse"), (Features::None, "none")] {
        let error = AnyFeatureCache::new(Policy::Lru, 4, &features).unwrap_err().to_string();
        let expected = "expected dense features: f32, f16 or bf16";
        assert_eq!(error, format!("features to cache is {name}: {expected}"));
    }
}
