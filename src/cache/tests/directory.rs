//! Every access of every policy, against the naive forms.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestCaseError};

use super::naive::naive;
use super::*;
use crate::error::Error;
use crate::testing::Random;

/// Runs `trace` on both, and follows the slots.
fn compare(
    directory: &mut Directory,
    policy: Policy,
    capacity: usize,
    trace: &[u32],
) -> Result<(), TestCaseError> {
    let mut naive = naive(policy, capacity);
    let mut slots: HashMap<u32, u32> = HashMap::new();
    let before = directory.counts();
    let mut counts = Counts::default();
    for (step, &id) in trace.iter().enumerate() {
        let access = directory.access(id).unwrap();
        if capacity == 0 {
            prop_assert_eq!(access, Access::Miss { slot: None, evicted: None });
            counts.misses += 1;
            continue;
        }
        let (hit, expected) = naive.access(id);
        match access {
            Access::Hit(slot) => {
                prop_assert!(hit, "step {step}: {id} hits");
                prop_assert_eq!(slots[&id], slot);
                counts.hits += 1;
            }
            Access::Miss { slot, evicted } => {
                prop_assert!(!hit, "step {step}: {id} misses");
                prop_assert_eq!(evicted, expected, "step {}: {}", step, id);
                let slot = slot.unwrap();
                match evicted {
                    Some(evicted) => prop_assert_eq!(slots.remove(&evicted), Some(slot)),
                    None => prop_assert!(slots.values().all(|&used| used != slot)),
                }
                slots.insert(id, slot);
                counts.misses += 1;
            }
        }
        prop_assert!((directory.slot(id).unwrap() as usize) < capacity);
        prop_assert_eq!(directory.len(), slots.len());
    }
    prop_assert_eq!(directory.counts() - before, counts);
    for (&id, &slot) in &slots {
        prop_assert_eq!(directory.slot(id), Some(slot));
        prop_assert_eq!(directory.ids()[slot as usize], id);
    }
    Ok(())
}

/// Skewed, so that there are hits at every capacity: the minimum of two draws.
fn trace() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec((0..40u32, 0..40u32), 0..400)
        .prop_map(|draws| draws.into_iter().map(|(a, b)| a.min(b)).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(3), ..ProptestConfig::default() })]

    #[test]
    fn policies_equal_the_naive_ones(trace in trace(), capacity in prop_oneof![0..4usize, 0..50usize]) {
        for policy in Policy::ALL {
            for n_vertices in [Some(40), None] {
                let mut directory = Directory::new(policy, capacity, n_vertices).unwrap();
                compare(&mut directory, policy, capacity, &trace)?;
                prop_assert_eq!(directory.counts().accesses(), trace.len() as u64);
                directory.clear();
                prop_assert!(directory.is_empty());
                compare(&mut directory, policy, capacity, &trace)?;
            }
        }
    }
}

/// S3-FIFO with a small queue of more than one, and hash tables that grow long runs.
#[test]
fn policies_equal_the_naive_ones_at_greater_capacities() {
    let mut random = Random(1);
    for capacity in [29, 100] {
        let trace: Vec<u32> = (0..4000)
            .map(|_| {
                let hot = random.index(2) == 0;
                random.index(if hot { 60 } else { 300 }) as u32 * 13_634_817
            })
            .collect();
        for policy in Policy::ALL {
            let mut directory = Directory::new(policy, capacity, None).unwrap();
            compare(&mut directory, policy, capacity, &trace).unwrap();
            let counts = directory.counts();
            assert!(counts.hits > 100 && counts.misses > 100, "{policy}: {counts:?}");
        }
    }
}

#[test]
fn bad_arguments_are_named() {
    let mut directory = Directory::new(Policy::Sieve, 5, Some(3)).unwrap();
    assert_eq!(directory.n_slots(), 3, "no more slots than vertices");
    let error = directory.access(3).unwrap_err().to_string();
    assert!(error.contains("ids[0] = 3"), "{error}");
    let error = directory.access_all(&[0, 2, 9, 3]).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 2, value: 9, limit: 3, .. }), "{error}");
    assert_eq!((directory.counts(), directory.len()), (Counts::default(), 0));
    assert_eq!(directory.access_all(&[0, 2, 0]).unwrap(), Counts { hits: 1, misses: 2 });
    assert_eq!((directory.slot(0), directory.slot(1), directory.slot(3)), (Some(0), None, None));
    directory.reset_counts();
    assert_eq!(directory.access_all(&[0, 2]).unwrap(), Counts { hits: 2, misses: 0 });
    assert_eq!(directory.counts(), Counts { hits: 2, misses: 0 });

    let mut directory = Directory::new(Policy::Lru, 1, None).unwrap();
    assert!(directory.access(u32::MAX).is_err());
    assert!(directory.access(u32::MAX - 1).is_ok());
    assert!(Directory::new(Policy::Lru, 1, Some(1 << 32)).unwrap_err().to_string().contains("the graph"));
    assert!(Directory::new(Policy::Lru, usize::MAX, None).unwrap_err().to_string().contains("cache"));
}

#[test]
fn policies_have_names() {
    for (policy, name) in Policy::ALL.into_iter().zip(["lru", "clock", "sieve", "s3-fifo"]) {
        assert_eq!(policy.to_string(), name);
        assert_eq!(name.parse::<Policy>().unwrap(), policy);
        assert_eq!(serde_json::to_string(&policy).unwrap(), format!("\"{name}\""));
    }
    let error = "fifo".parse::<Policy>().unwrap_err().to_string();
    assert_eq!(error, "cache policy is fifo: expected lru, clock, sieve or s3-fifo");
}

#[test]
fn counts_add_up() {
    let (a, b) = (Counts { hits: 3, misses: 1 }, Counts { hits: 0, misses: 4 });
    assert_eq!([a, b].into_iter().sum::<Counts>(), Counts { hits: 3, misses: 5 });
    assert_eq!((a.miss_rate(), (a + b).accesses(), Counts::default().miss_rate()), (0.25, 8, 0.0));
}
