//! Closeness of slices of floats: one function for unit tests, `tests/` and benches, which include this file by its
//! path.

// Each includer uses some of it.
#![allow(dead_code, unreachable_pub)]

use std::fmt::Debug;

use approx::abs_diff_eq;
use num_traits::ToPrimitive;

/// Panics, and names the element, unless there are as many `actual` values as `expected` ones, and each is at most
/// `tolerance` away: a function of its index and of what is expected, since some tolerances grow with values or with
/// how these came about. A NaN is close to nothing. `what` says what the values are.
#[track_caller]
pub fn assert_close<A, E>(what: &str, actual: &[A], expected: &[E], tolerance: impl Fn(usize, f64) -> f64)
where
    A: ToPrimitive + Debug,
    E: ToPrimitive + Debug,
{
    assert_eq!(actual.len(), expected.len(), "{what}: lengths differ");
    for (i, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let epsilon = tolerance(i, wide(expected));
        assert!(
            abs_diff_eq!(wide(actual), wide(expected), epsilon = epsilon),
            "{what}[{i}] is {actual:?}, expected {expected:?} up to {epsilon:e}"
        );
    }
}

fn wide(value: &impl ToPrimitive) -> f64 {
    value.to_f64().expect("a float has an f64")
}
