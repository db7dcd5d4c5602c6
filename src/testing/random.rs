//! Random test data: one generator for unit tests, `tests/` and benches, which include this file by its path.

// Each includer uses some of it.
#![allow(dead_code, unreachable_pub)]

/// SplitMix64, whose values depend on nothing but the seed: all processing elements draw the same.
pub struct Random(pub u64);

impl Random {
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `limit`.
    pub fn index(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// In [-1, 1).
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}
