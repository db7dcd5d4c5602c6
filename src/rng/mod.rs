//! Counter-based random numbers: every variate is a pure function of a seed and the name of the draw.
//!
//! A draw names a `seed`, a `stream` (what the draw is for, see [`Purpose`]) and a `counter` (which draw of that
//! stream: a vertex, an edge, a position). One Philox block belongs to each such triple, so neighbouring counters
//! never share a draw:
//!
//! | Philox input | holds |
//! |---|---|
//! | key, 2 words | `seed` |
//! | counter, words 0-1 | `counter`, low word first |
//! | counter, words 2-3 | `stream`, low word first: the layer (or another index), then the [`Purpose`] |
//!
//! | words of the block | make |
//! |---|---|
//! | 0-1 | the uniform variate (word 0 has its 32 most significant bits), the normal one and the bounded one |
//! | 2-3 | the derived seed, of which [`bounded`] draws again after a rejection |
//!
//! [`Subset`](Purpose::Subset) draws are the exception: there all four words are 32-bit draws of one vertex.
//!
//! ```
//! use cohop::rng::{Purpose, bounded, shuffle};
//!
//! let stream = Purpose::EpochOrder.stream(0);
//! assert!(bounded(42, stream, 0, 6) < 6);
//! let (mut order, mut again) = ([0, 1, 2, 3], [0, 1, 2, 3]);
//! shuffle(42, stream, &mut order);
//! shuffle(42, stream, &mut again);
//! assert_eq!(order, again); // the same on every machine
//! ```

mod kappa;
pub mod math;
mod philox;
mod variates;

pub use kappa::Kappa;
pub(crate) use philox::LANES;
pub use philox::philox4x32;
pub use variates::{Dependence, Seeds, Variates};

/// What a stream of draws is for. Two purposes, or two layers of one purpose, never share a draw. An entry's value is
/// the number of its first stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Seeds of the κ windows, by window: of draws, and of the steps at which draws change.
    Window = 1 << 32,
    /// Uniform subsets of a row (Floyd), by vertex and draw.
    Subset = 2 << 32,
    /// Subsets again, by vertex and draw: after a rejection, and for rows beyond 2³² edges.
    SubsetAgain = 16 << 32,
    /// One word an edge: dependent neighbour sampling, fanouts per relation.
    Edge = 3 << 32,
    /// LABOR's variates, by source vertex.
    Source = 4 << 32,
    /// Exponential keys of weighted sampling, by edge.
    Key = 5 << 32,
    /// Sampling with replacement, by vertex and draw.
    Replacement = 6 << 32,
    /// Whether a walk goes back before a step, by vertex and step.
    WalkRestart = 7 << 32,
    /// Where a walk steps to, by vertex and step.
    WalkStep = 8 << 32,
    /// Seeds of the epochs, by epoch. This purpose and the next two have one stream each.
    EpochSeed = 9 << 32,
    /// Order of the seed vertices, by position, under the epoch's seed.
    EpochOrder = 9 << 32 | 1,
    /// The seed of the neighbourhoods sampled for predictions and evaluations.
    Evaluation = 9 << 32 | 2,
    /// Graph generators.
    Graph = 10 << 32,
    /// Features and labels of generated data.
    Features = 11 << 32,
    /// Splits into training, validation and test vertices.
    Split = 12 << 32,
    /// Assignment of vertices to processing elements. This purpose and the next have one stream each.
    Partition = 13 << 32,
    /// Seeds of processing elements that sample independently, by rank.
    ProcessingElement = 13 << 32 | 1,
    /// Initial parameters.
    Parameters = 14 << 32,
    /// Dropout masks.
    Dropout = 15 << 32,
}

impl Purpose {
    /// The stream of this purpose for an index that tells its streams apart, like the number of a layer or a parameter;
    /// 0 if the purpose has only one.
    pub const fn stream(self, index: u32) -> u64 {
        self as u64 | index as u64
    }
}

/// The Philox block of a draw.
#[inline(always)]
pub(crate) fn block(seed: u64, stream: u64, counter: u64) -> [u32; 4] {
    philox4x32(
        [counter as u32, (counter >> 32) as u32, stream as u32, (stream >> 32) as u32],
        [seed as u32, (seed >> 32) as u32],
    )
}

#[inline(always)]
fn high_first(first: u32, second: u32) -> u64 {
    u64::from(first) << 32 | u64::from(second)
}

/// A number in `[0, 1)`, a multiple of 2⁻⁵³.
#[inline]
pub fn uniform(seed: u64, stream: u64, counter: u64) -> f64 {
    let [first, second, ..] = block(seed, stream, counter);
    (high_first(first, second) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// A number in `(0, 1)`, an odd multiple of 2⁻⁵³: it is never 0 or 1, and `1 − u` is exact.
#[inline]
pub fn uniform_open(seed: u64, stream: u64, counter: u64) -> f64 {
    let [first, second, ..] = block(seed, stream, counter);
    ((high_first(first, second) >> 12) as f64 + 0.5) * (1.0 / (1u64 << 52) as f64)
}

/// A standard normal variate: the quantile of [`uniform_open`].
#[inline]
pub fn normal(seed: u64, stream: u64, counter: u64) -> f64 {
    math::normal_quantile(uniform_open(seed, stream, counter))
}

/// A new seed, independent of the uniform variate of the same draw.
#[inline]
pub fn derive(seed: u64, stream: u64, counter: u64) -> u64 {
    let [.., third, fourth] = block(seed, stream, counter);
    high_first(third, fourth)
}

/// A whole number below `n`, each exactly equally likely (Lemire 2019, with rejection). Panics if `n` is 0.
#[inline]
pub fn bounded(mut seed: u64, stream: u64, counter: u64, n: u64) -> u64 {
    assert!(n > 0, "n is 0: no number is below it");
    loop {
        let [first, second, third, fourth] = block(seed, stream, counter);
        let product = u128::from(high_first(first, second)) * u128::from(n);
        let low = product as u64;
        // 2^64 mod n of the 2^64 draws are too many for equal shares: those with the lowest remainders are rejected.
        if low >= n || low >= n.wrapping_neg() % n {
            return (product >> 64) as u64;
        }
        seed = high_first(third, fourth);
    }
}

/// Puts `items` in an order drawn uniformly from all orders (Fisher–Yates), the same on every machine.
pub fn shuffle<T>(seed: u64, stream: u64, items: &mut [T]) {
    for last in (1..items.len()).rev() {
        let other = bounded(seed, stream, last as u64, last as u64 + 1);
        items.swap(last, other as usize);
    }
}

#[cfg(test)]
mod tests;
