//! The variates of one minibatch. With κ above 1 they resemble those of the minibatches before and after.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::philox::first_words;
use super::{Kappa, LANES, Purpose, block, derive, math, uniform_open};
use crate::error::{Error, Result};

/// How the draws of one minibatch become those of the next, where 1 < κ < ∞.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dependence {
    /// Each draw changes once in a window of κ steps, at a step of its own that is uniform over the window. At every
    /// step all draws are exactly uniform and independent of each other, and all but about 1/κ of them are those of the
    /// step before. A draw costs one word more, and every sampler can do it.
    #[default]
    Renew,
    /// Each draw moves a little at every step, along a rotation of two normal variates (Cooperative Minibatching, 2025,
    /// section 3.2). Neighbour sampling then reads all in-edges of a vertex, and methods that do not decide by variates
    /// of edges or vertices cannot do it.
    Rotate,
}

impl FromStr for Dependence {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "renew" => Ok(Dependence::Renew),
            "rotate" => Ok(Dependence::Rotate),
            _ => Err(Error::invalid("dependence", format!("{name:?}"), "renew or rotate")),
        }
    }
}

impl fmt::Display for Dependence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Dependence::Renew => "renew",
            Dependence::Rotate => "rotate",
        })
    }
}

/// The seeds of one minibatch's draws: each draw has one of two.
///
/// Batch `b` is step `i = b mod κ` of window `w = b / κ`. A draw changes from the seed of window `w` to that of `w + 1`
/// at step `⌊U κ⌋ + 1`, where `U` is uniform and a function of the window and the draw's name: at step `i` a share
/// `i/κ` of all draws has changed, and at the next window's first step the rest follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seeds {
    first: u64,
    second: u64,
    /// The seed of `U`.
    renewal: u64,
    /// A draw has changed if the word of its `U` is below this: `⌈2³² i/κ⌉`.
    renewed_below: u64,
}

impl Seeds {
    /// The seed of a draw.
    #[inline(always)]
    pub fn of(&self, stream: u64, counter: u64) -> u64 {
        let renewed =
            self.renewed_below > 0 && u64::from(block(self.renewal, stream, counter)[0]) < self.renewed_below;
        if renewed { self.second } else { self.first }
    }

    /// A block of four draws, of which each has a seed of its own.
    #[inline(always)]
    pub(crate) fn block(&self, stream: u64, counter: u64) -> [u32; 4] {
        let mut words = block(self.first, stream, counter);
        if self.renewed_below > 0 {
            let renewal = block(self.renewal, stream, counter);
            let renewed = block(self.second, stream, counter);
            for (word, (at, new)) in words.iter_mut().zip(renewal.into_iter().zip(renewed)) {
                *word = if u64::from(at) < self.renewed_below { new } else { *word };
            }
        }
        words
    }

    /// The seed of one of a [`block`](Self::block)'s draws.
    #[cold]
    pub(crate) fn of_word(&self, stream: u64, counter: u64, word: usize) -> u64 {
        let renewed = self.renewed_below > 0
            && u64::from(block(self.renewal, stream, counter)[word]) < self.renewed_below;
        if renewed { self.second } else { self.first }
    }
}

/// The random source of one minibatch.
///
/// With [`Dependence::Rotate`], a variate of step `i` is `Φ(cos(cπ/2)·n₁ + sin(cπ/2)·n₂)`, where `c = i/κ` and `n₁`,
/// `n₂` are the standard normal variates of the same draw under the seeds of this window and the next. It is uniform at
/// every step, and moves a little from each step to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variates {
    seeds: Seeds,
    /// cos(cπ/2) and sin(cπ/2); 1 and 0 where nothing rotates.
    cos: f64,
    sin: f64,
    rotates: bool,
}

impl Variates {
    /// The variates of minibatch number `batch`, counted over all epochs.
    pub fn new(seed: u64, batch: u64, kappa: Kappa, dependence: Dependence) -> Self {
        let (window, step, steps) = match kappa {
            Kappa::Steps(steps) => (batch / steps, batch % steps, steps.get()),
            Kappa::Infinite => (0, 0, 1),
        };
        let of_window = |index, window| derive(seed, Purpose::Window.stream(index), window);
        let mut seeds = Seeds {
            first: of_window(0, window),
            second: of_window(0, window.wrapping_add(1)),
            renewal: of_window(1, window),
            renewed_below: 0,
        };
        let rotates = dependence == Dependence::Rotate && steps > 1;
        if rotates {
            let (sin, cos) = math::sin_cos_quarter(step as f64 / steps as f64);
            return Variates { seeds, cos, sin, rotates };
        }
        // At most 2³², as step < steps.
        seeds.renewed_below = (u128::from(step) << 32).div_ceil(u128::from(steps)) as u64;
        Variates { seeds, cos: 1.0, sin: 0.0, rotates }
    }

    /// The seeds of draws, which samplers may use in any way unless [`rotates`](Self::rotates).
    pub fn seeds(&self) -> &Seeds {
        &self.seeds
    }

    /// What a device needs to draw: the seeds of the draws before and after they change and of the time when they do,
    /// what the word of that time is compared with, and the cosine and sine that blend normal variates.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn parts(&self) -> ([u64; 4], [f64; 2]) {
        let Seeds { first, second, renewal, renewed_below } = self.seeds;
        ([first, second, renewal, renewed_below], [self.cos, self.sin])
    }

    /// Whether draws rotate: 1 < κ < ∞ and [`Dependence::Rotate`]. The batches of a window then have to resemble each
    /// other, so samplers may decide only by the value of a variate that belongs to an edge or a vertex. True at a
    /// window's first step too, where `sin` is 0.
    pub fn rotates(&self) -> bool {
        self.rotates
    }

    /// The variate of `id`, `⌊r · 2³²⌋`: Philox's first word under the draw's seed, unless it rotates.
    #[inline]
    pub fn word(&self, stream: u64, id: u64) -> u32 {
        if self.sin == 0.0 {
            return block(self.seeds.of(stream, id), stream, id)[0];
        }
        // The cast saturates: r can round up to 1.
        (math::normal_cdf(self.blended_normal(stream, id)) * (1u64 << 32) as f64) as u32
    }

    /// The [`word`](Self::word)s of several ids: several times faster than one by one, unless they rotate.
    #[inline(always)]
    pub(crate) fn words(&self, stream: u64, ids: &[u64; LANES]) -> [u32; LANES] {
        if self.sin != 0.0 {
            return ids.map(|id| self.word(stream, id));
        }
        let Seeds { first, second, renewal, renewed_below } = self.seeds;
        if renewed_below == 0 {
            return first_words(&[first], stream, ids);
        }
        let times = first_words(&[renewal; LANES], stream, ids);
        let seeds = times.map(|time| if u64::from(time) < renewed_below { second } else { first });
        first_words(&seeds, stream, ids)
    }

    /// The standard normal variate behind the blended [`word`](Self::word).
    #[inline]
    fn blended_normal(&self, stream: u64, id: u64) -> f64 {
        let first = math::normal_quantile(uniform_open(self.seeds.first, stream, id));
        let second = math::normal_quantile(uniform_open(self.seeds.second, stream, id));
        self.cos * first + self.sin * second
    }
}

#[cfg(test)]
mod tests {
    use approx::{abs_diff_eq, assert_abs_diff_eq};

    use super::*;
    use crate::testing::kolmogorov_smirnov;

    const STREAM: u64 = Purpose::Edge.stream(2);

    fn kappa(steps: u64) -> Kappa {
        Kappa::steps(steps).unwrap()
    }

    const BOTH: [Dependence; 2] = [Dependence::Renew, Dependence::Rotate];

    fn renewed(batch: u64, steps: u64) -> Variates {
        Variates::new(77, batch, kappa(steps), Dependence::Renew)
    }

    /// False alarm at any of the 2 · 4 · 16 steps: below 128 · 2 exp(−2 · 3.2²) < 4e-7 (Dvoretzky–Kiefer–Wolfowitz).
    #[test]
    fn every_step_is_uniform() {
        let n = 20_000;
        for (dependence, steps) in BOTH.into_iter().flat_map(|d| [1, 2, 7, 16].map(|steps| (d, steps))) {
            for batch in 0..16 {
                let variates = Variates::new(5, batch, kappa(steps), dependence);
                let sample = (0..n).map(|id| (f64::from(variates.word(STREAM, id)) + 0.5) / 2f64.powi(32));
                let distance = kolmogorov_smirnov(sample.collect());
                assert!(distance < 3.2, "{dependence}, κ {steps}, batch {batch}: {distance}");
            }
        }
    }

    /// Draws that have changed, and those that have not, are uniform by themselves: when a draw changes says nothing of
    /// its values. False alarm below 2 · 7 · 2 exp(−2 · 3.4²) < 3e-9.
    #[test]
    fn when_a_draw_changes_is_independent_of_its_values() {
        for step in 1..8 {
            let variates = renewed(step, 8);
            for seed in [variates.seeds.first, variates.seeds.second] {
                let with_seed = (0..60_000).filter(|&id| variates.seeds.of(STREAM, id) == seed);
                let sample = with_seed.map(|id| (f64::from(variates.word(STREAM, id)) + 0.5) / 2f64.powi(32));
                let distance = kolmogorov_smirnov(sample.collect());
                assert!(distance < 3.4, "step {step}: {distance}");
            }
        }
    }

    /// Steps a and b of one window share the draws that do not change between them, 1 − (b − a)/κ of all; step a of a
    /// window and b of the next share those that have changed by a and change again after b, a/κ · (1 − b/κ). In
    /// particular consecutive steps differ in 1/κ of the draws. 6 standard deviations at each of 108 pairs: false alarm
    /// below 4e-7.
    #[test]
    fn batches_share_draws_as_derived() {
        let (n, steps) = (20_000, 8);
        let words: Vec<Vec<u32>> = (0..2 * steps + 1)
            .map(|batch| (0..n).map(|id| renewed(batch, steps).word(STREAM, id)).collect())
            .collect();
        let share = |step: u64| step as f64 / steps as f64;
        for a in 0..steps {
            for b in a..2 * steps + 1 {
                let expected = match b / steps {
                    0 => 1.0 - share(b - a),
                    1 => share(a) * (1.0 - share(b - steps)),
                    _ => 0.0,
                };
                let (first, second) = (&words[a as usize], &words[b as usize]);
                let same = first.iter().zip(second).filter(|(x, y)| x == y).count() as f64;
                let deviation = (same - n as f64 * expected).abs();
                // Different draws are equal by chance once in 2^32.
                let tolerance = 6.0 * (n as f64 * expected * (1.0 - expected)).sqrt() + 0.5;
                assert!(deviation <= tolerance, "steps {a}, {b}: {same} of {n} draws, not {expected}");
            }
        }
    }

    /// Each of the four draws of a block changes at a step of its own, and all ways to ask for a draw agree.
    #[test]
    fn blocks_lanes_and_single_draws_agree() {
        for dependence in BOTH {
            for batch in [0, 3, 7, 9] {
                let variates = Variates::new(4, batch, kappa(8), dependence);
                let ids = std::array::from_fn(|lane| lane as u64 * 77 + (1 << 40));
                assert_eq!(variates.words(STREAM, &ids), ids.map(|id| variates.word(STREAM, id)));
                let seeds = variates.seeds();
                for counter in 0..500 {
                    let expected: [u32; 4] = std::array::from_fn(|word| {
                        block(seeds.of_word(STREAM, counter, word), STREAM, counter)[word]
                    });
                    assert_eq!(seeds.block(STREAM, counter), expected);
                    assert_eq!(seeds.of_word(STREAM, counter, 0), seeds.of(STREAM, counter));
                }
            }
        }
        let seeds = *renewed(4, 8).seeds();
        let mixed = (0..500).filter(|&counter| {
            let of = |word| seeds.of_word(STREAM, counter, word);
            (1..4).any(|word| of(word) != of(0))
        });
        assert!(mixed.count() > 300);
    }

    fn correlation(a: &Variates, b: &Variates, n: u64) -> f64 {
        let quantile =
            |v: &Variates, id| math::normal_quantile((f64::from(v.word(STREAM, id)) + 0.5) / 2f64.powi(32));
        let [mut sa, mut sb, mut saa, mut sbb, mut sab] = [0.0; 5];
        for id in 0..n {
            let (x, y) = (quantile(a, id), quantile(b, id));
            sa += x;
            sb += y;
            saa += x * x;
            sbb += y * y;
            sab += x * y;
        }
        let n = n as f64;
        (sab - sa * sb / n) / ((saa - sa * sa / n) * (sbb - sb * sb / n)).sqrt()
    }

    /// The correlation of n normal pairs has standard deviation below 1/√n: 6 of them, over some 40 pairs, is a
    /// false-alarm rate below 1e-7.
    #[test]
    fn correlation_falls_as_a_cosine_inside_a_window_and_is_zero_beyond() {
        let n = 40_000;
        let tolerance = 6.0 / (n as f64).sqrt();
        let steps = 8;
        let at = |batch| Variates::new(77, batch, kappa(steps), Dependence::Rotate);
        for first in 0..steps {
            for second in first..=steps {
                let lag = (second - first) as f64;
                let expected = (std::f64::consts::FRAC_PI_2 * lag / steps as f64).cos();
                let found = correlation(&at(first), &at(second), n);
                assert!(
                    abs_diff_eq!(found, expected, epsilon = tolerance),
                    "{first}, {second}: {found}, not {expected}"
                );
            }
        }
        for (first, second) in [(0, 16), (3, 19), (0, 8), (8, 16)] {
            let found = correlation(&at(first), &at(second), n);
            assert!(
                abs_diff_eq!(found, 0.0, epsilon = tolerance),
                "windows of {first} and {second}: {found}"
            );
        }
    }

    #[test]
    fn kappa_one_is_independent_and_kappa_infinite_constant() {
        let n = 40_000;
        for dependence in BOTH {
            let at = |batch, kappa| Variates::new(1, batch, kappa, dependence);
            // 6 standard deviations, twice: false alarm below 1e-8.
            let found = correlation(&at(0, Kappa::INDEPENDENT), &at(1, Kappa::INDEPENDENT), n);
            assert_abs_diff_eq!(found, 0.0, epsilon = 6.0 / (n as f64).sqrt());
            assert_eq!(at(0, Kappa::Infinite), at(123_456, Kappa::Infinite));
            assert!(!at(3, Kappa::Infinite).rotates() && !at(3, Kappa::INDEPENDENT).rotates());
            let rotates = dependence == Dependence::Rotate;
            assert!(at(0, kappa(4)).rotates() == rotates && at(1, kappa(4)).rotates() == rotates);
        }
    }

    /// The blend at `sin → 0` tends to the plain word, so that no window begins with a jump.
    #[test]
    fn the_blend_joins_the_plain_words_at_both_ends() {
        let at = |batch| Variates::new(9, batch, kappa(1 << 40), Dependence::Rotate);
        let (first, next) = (at(0), at(1));
        let (last, end) = (at((1 << 40) - 1), at(1 << 40));
        for id in 0..1000 {
            assert_eq!(first.word(STREAM, id), block(first.seeds.first, STREAM, id)[0]);
            assert!(first.word(STREAM, id).abs_diff(next.word(STREAM, id)) <= 1, "{id}");
            assert!(last.word(STREAM, id).abs_diff(end.word(STREAM, id)) <= 1, "{id}");
        }
    }

    #[test]
    fn streams_and_ids_have_words_of_their_own() {
        let variates = Variates::new(3, 0, Kappa::INDEPENDENT, Dependence::default());
        let mut words: Vec<u32> = (0..1000).map(|id| variates.word(STREAM, id)).collect();
        words.extend((0..1000).map(|id| variates.word(Purpose::Edge.stream(3), id)));
        words.extend((0..1000).map(|id| variates.word(Purpose::Source.stream(2), id)));
        words.sort();
        words.dedup();
        // 3000 words of 2^32 hold a coincidence with probability 0.001; this seed's have none.
        assert_eq!(words.len(), 3000);
    }

    #[test]
    fn dependence_is_read_and_written() {
        for dependence in BOTH {
            assert_eq!(dependence.to_string().parse::<Dependence>().unwrap(), dependence);
            let json = serde_json::to_string(&dependence).unwrap();
            assert_eq!(json, format!("\"{dependence}\""));
        }
        assert!("Renew".parse::<Dependence>().unwrap_err().to_string().contains("renew or rotate"));
    }

    #[test]
    fn kappa_is_read_and_written() {
        for text in ["1", "64", "18446744073709551615", "inf"] {
            let parsed: Kappa = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
            let json = serde_json::to_string(&parsed).unwrap();
            assert_eq!(serde_json::from_str::<Kappa>(&json).unwrap(), parsed);
        }
        for text in ["", "0", "-1", "1.5", "infinite", "NaN", "18446744073709551616"] {
            let error = text.parse::<Kappa>().unwrap_err().to_string();
            assert!(error.contains("at least 1, or inf"), "{error}");
        }
    }
}
