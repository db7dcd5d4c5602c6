use approx::assert_abs_diff_eq;

use super::*;
use crate::testing::chi_square_deviation;

const STREAM: u64 = Purpose::Graph.stream(7);

/// [`chi_square_deviation`] from equal shares.
fn deviation(counts: &[u64]) -> f64 {
    chi_square_deviation(counts, &vec![1.0; counts.len()])
}

/// The layout is part of the contract with other devices: these numbers must never change.
#[test]
fn draws_are_the_documented_words() {
    let [a, b, c, d] = philox4x32([0x89ab_cdef, 0x0123_4567, 7, 10], [0x7654_3210, 0xfedc_ba98]);
    let (seed, counter) = (0xfedc_ba98_7654_3210, 0x0123_4567_89ab_cdef);
    let word = u64::from(a) << 32 | u64::from(b);
    assert_eq!(uniform(seed, STREAM, counter), (word >> 11) as f64 / 2f64.powi(53));
    assert_eq!(uniform_open(seed, STREAM, counter), ((word >> 12) as f64 + 0.5) / 2f64.powi(52));
    assert_eq!(derive(seed, STREAM, counter), u64::from(c) << 32 | u64::from(d));
    assert_eq!(bounded(seed, STREAM, counter, 1 << 20), word >> 44);
}

/// False alarm of all four tests together: below 1e-8.
#[test]
fn bounded_numbers_are_uniform() {
    for n in [2u64, 3, 10, 1000] {
        let mut counts = vec![0u64; n as usize];
        for counter in 0..200_000 {
            counts[bounded(3, STREAM, counter, n) as usize] += 1;
        }
        assert!(deviation(&counts) < 6.0, "{n}: {}", deviation(&counts));
    }
}

/// With n = 3·2^62 a quarter of all words is rejected; without rejection every third number would come twice as
/// often. False alarm below 1e-8.
#[test]
fn bounded_rejects_what_is_one_too_many() {
    let n = 3u64 << 62;
    let mut counts = [0u64; 3];
    for counter in 0..30_000 {
        let x = bounded(4, STREAM, counter, n);
        assert!(x < n);
        counts[(x % 3) as usize] += 1;
    }
    assert!(deviation(&counts) < 6.0, "{counts:?}");
}

/// All 24 orders of four items; false alarm below 1e-8.
#[test]
fn every_order_is_equally_likely() {
    let mut counts = std::collections::HashMap::<[u8; 4], u64>::new();
    for seed in 0..48_000 {
        let mut items = [0, 1, 2, 3];
        shuffle(seed, STREAM, &mut items);
        *counts.entry(items).or_default() += 1;
    }
    assert_eq!(counts.len(), 24);
    let counts: Vec<u64> = counts.into_values().collect();
    assert!(deviation(&counts) < 6.0, "{counts:?}");
}

#[test]
fn shuffling_keeps_the_items() {
    for len in 0..40 {
        let mut items: Vec<usize> = (0..len).collect();
        shuffle(1, STREAM, &mut items);
        items.sort();
        assert!(items.into_iter().eq(0..len));
    }
}

/// Moments of 100 000 normal variates, each within 6 standard deviations of theirs (false alarm below 1e-8), and no
/// correlation of neighbouring counters.
#[test]
fn normal_numbers_have_the_moments_of_the_normal_distribution() {
    let n = 100_000;
    let x: Vec<f64> = (0..n).map(|counter| normal(8, STREAM, counter)).collect();
    let mean_of = |f: &dyn Fn(f64) -> f64| x.iter().map(|&v| f(v)).sum::<f64>() / n as f64;
    let unit = 6.0 / (n as f64).sqrt();
    assert_abs_diff_eq!(mean_of(&|v| v), 0.0, epsilon = unit);
    assert_abs_diff_eq!(mean_of(&|v| v * v), 1.0, epsilon = unit * 2f64.sqrt());
    assert_abs_diff_eq!(mean_of(&|v| v * v * v), 0.0, epsilon = unit * 15f64.sqrt());
    assert_abs_diff_eq!(mean_of(&|v| v.powi(4)), 3.0, epsilon = unit * 96f64.sqrt());
    let neighbours = x.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / n as f64;
    assert_abs_diff_eq!(neighbours, 0.0, epsilon = unit);
}

/// Results of every version hang on these numbers: they must never change.
#[test]
fn purposes_have_the_streams_that_they_always_had() {
    use Purpose::*;
    let expected = [
        (Window, 1, 0),
        (Subset, 2, 0),
        (Edge, 3, 0),
        (Source, 4, 0),
        (Key, 5, 0),
        (Replacement, 6, 0),
        (WalkRestart, 7, 0),
        (WalkStep, 8, 0),
        (EpochSeed, 9, 0),
        (EpochOrder, 9, 1),
        (Evaluation, 9, 2),
        (Graph, 10, 0),
        (Features, 11, 0),
        (Split, 12, 0),
        (Partition, 13, 0),
        (ProcessingElement, 13, 1),
        (Parameters, 14, 0),
        (Dropout, 15, 0),
        (SubsetAgain, 16, 0),
    ];
    for (purpose, high, low) in expected {
        assert_eq!(purpose.stream(0), high << 32 | low, "{purpose:?}");
    }
    assert_eq!(Source.stream(3), 4 << 32 | 3);
}
