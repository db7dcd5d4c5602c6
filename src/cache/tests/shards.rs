//! A cache in shards, against naive forms of them, and on any number of threads.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::naive::{Naive, naive};
use super::*;
use crate::data::Dense;
use crate::device::MatrixMut;
use crate::testing::Random;

const DIM: usize = 3;

/// Row `i` is `i, i + 0.25, i + 0.5`.
fn table(n_rows: usize) -> Dense<f32> {
    let data = (0..n_rows * DIM).map(|i| (i / DIM) as f32 + (i % DIM) as f32 / 4.0).collect::<Vec<_>>();
    Dense::new(data, n_rows, DIM).unwrap()
}

/// Gathers on a pool of `n_threads` threads, and checks the rows. Returns the counts of each batch, and what is cached
/// at the end.
fn gathered(mut cache: FeatureCache<f32>, batches: &[Vec<u32>], n_threads: usize) -> (Vec<Counts>, Vec<u32>) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(n_threads).build().unwrap();
    pool.install(|| {
        let gather = |ids: &Vec<u32>| {
            let mut out = vec![f32::NAN; ids.len() * DIM];
            let counts = cache.gather(ids, MatrixMut::new(&mut out[..], ids.len(), DIM).unwrap()).unwrap();
            for (&id, row) in ids.iter().zip(out.chunks(DIM)) {
                assert_eq!(row, cache.table().row(id as usize));
            }
            counts
        };
        let counts = batches.iter().map(gather).collect();
        (counts, cache.directory().ids().collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(16), ..ProptestConfig::default() })]

    /// The same hits, misses and rows for 1, 2 and 4 threads, which are those of a naive cache for each shard.
    #[test]
    fn shards_are_naive_caches_on_any_number_of_threads(
        batches in proptest::collection::vec(proptest::collection::vec(0..60u32, 0..90), 0..5),
        capacity in 0..70usize,
        n_rows in 60..64usize,
        bits in 0..5u32,
        policy in 0..4usize,
    ) {
        let policy = Policy::ALL[policy];
        let new = || FeatureCache::with_shards(policy, capacity, table(n_rows), 1 << bits).unwrap();
        let cache = new();
        let mut models: Vec<Option<Box<dyn Naive>>> = (0..1 << bits).map(|_| None).collect();
        let counted = |ids: &Vec<u32>| {
            let hits = ids.iter().filter(|&&id| {
                let (shard, n_slots) = cache.directory().shard_of(id);
                n_slots > 0 && models[shard].get_or_insert_with(|| naive(policy, n_slots)).access(id).0
            });
            let hits = hits.count() as u64;
            Counts { hits, misses: ids.len() as u64 - hits }
        };
        let expected: Vec<Counts> = batches.iter().map(counted).collect();
        let (counts, ids) = gathered(new(), &batches, 1);
        prop_assert_eq!(&counts, &expected);
        for n_threads in [2, 4] {
            prop_assert_eq!(&gathered(new(), &batches, n_threads), &(counts.clone(), ids.clone()));
        }
    }
}

/// Batches of several chunks, of a cache as it is made for so many rows.
#[test]
fn large_batches_are_the_same_on_any_number_of_threads() {
    let n_rows = 60_000;
    let mut random = Random(3);
    let batches: Vec<Vec<u32>> =
        (0..4).map(|_| (0..20_000).map(|_| random.index(n_rows) as u32).collect()).collect();
    for policy in Policy::ALL {
        let new = || FeatureCache::new(policy, 9000, table(n_rows)).unwrap();
        assert_eq!((new().directory().n_shards(), new().directory().n_slots()), (8, 9000));
        let one = gathered(new(), &batches, 1);
        assert!(one.0[3].hits > 0);
        for n_threads in [2, 4] {
            assert!(gathered(new(), &batches, n_threads) == one, "{policy}, {n_threads} threads");
        }
    }
}

/// Nothing leaves a cache that has room for all.
#[test]
fn a_cache_of_all_rows_loads_each_once() {
    for n_rows in [4096, 5001, 16_399] {
        let ids: Vec<u32> = (0..n_rows as u32).rev().collect();
        let cache = FeatureCache::new(Policy::Lru, n_rows + 5, table(n_rows)).unwrap();
        assert!(cache.directory().n_shards() > 1);
        let (counts, cached) = gathered(cache, &[ids.clone(), ids], 2);
        let n = n_rows as u64;
        assert_eq!(counts, [Counts { hits: 0, misses: n }, Counts { hits: n, misses: 0 }]);
        assert_eq!(cached.len(), n_rows);
    }
}
