//! Hits and misses of a cache.

use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// Hits and misses, exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Accesses that found their row in the cache.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
}

impl Counts {
    /// Hits and misses together.
    pub fn accesses(self) -> u64 {
        self.hits + self.misses
    }

    /// Misses as a share of all accesses; 0 if there were none.
    pub fn miss_rate(self) -> f64 {
        if self.accesses() == 0 { 0.0 } else { self.misses as f64 / self.accesses() as f64 }
    }
}

impl Add for Counts {
    type Output = Counts;
    fn add(self, other: Counts) -> Counts {
        Counts { hits: self.hits + other.hits, misses: self.misses + other.misses }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        *self = *self + other;
    }
}

/// The counts since an `earlier` time. Wraps if it was later.
impl Sub for Counts {
    type Output = Counts;
    fn sub(self, earlier: Counts) -> Counts {
        Counts {
            hits: self.hits.wrapping_sub(earlier.hits),
            misses: self.misses.wrapping_sub(earlier.misses),
        }
    }
}

impl Sum for Counts {
    fn sum<I: Iterator<Item = Counts>>(counts: I) -> Counts {
        counts.fold(Counts::default(), Add::add)
    }
}
