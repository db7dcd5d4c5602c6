//! What the kernel benches share: random data, and a look at an answer before it is timed.

// Each bench uses some of it.
#![allow(dead_code)]

#[path = "../../src/testing/close.rs"]
mod close;
#[path = "../../src/testing/random.rs"]
mod random;

pub use close::assert_close;
pub use random::Random;

impl Random {
    pub fn values(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.uniform() as f32).collect()
    }
}

/// Compressed rows of an R-MAT graph (a, b, c, d = 0.57, 0.19, 0.19, 0.05) with 2^scale vertices: hubs as real graphs
/// have them. Returns `indptr` and `indices`.
pub fn rmat(scale: u32, n_edge: usize, random: &mut Random) -> (Vec<u32>, Vec<u32>) {
    let mut edges: Vec<(u32, u32)> = (0..n_edge)
        .map(|_| {
            let (mut row, mut column) = (0, 0);
            for _ in 0..scale {
                let (down, right) = match random.word() % 100 {
                    0..57 => (0, 0),
                    57..76 => (0, 1),
                    76..95 => (1, 0),
                    _ => (1, 1),
                };
                (row, column) = (2 * row + down, 2 * column + right);
            }
            (row, column)
        })
        .collect();
    edges.sort_unstable();
    let row_end = |row: u32| edges.partition_point(|&(r, _)| r < row) as u32;
    ((0..=1 << scale).map(row_end).collect(), edges.iter().map(|&(_, column)| column).collect())
}

/// A tolerance for [`assert_close`]: what rounding in `f32` may do to the sums of these benches.
pub fn rounding(_: usize, expected: f64) -> f64 {
    1e-3 + 1e-4 * expected.abs()
}
