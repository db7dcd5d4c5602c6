//! The variates of one minibatch. With κ above 1 they resemble those of the minibatches before and after.

use super::philox::first_words;
use super::{Kappa, LANES, Purpose, derive, math, uniform_open};

/// The random source of one minibatch: two seeds, and how far it is from the first to the second.
///
/// Batch `b` is step `b mod κ` of window `b / κ`. A variate of step `i` is `Φ(cos(cπ/2)·n₁ + sin(cπ/2)·n₂)`, where
/// `c = i/κ` and `n₁`, `n₂` are the standard normal variates of the same draw under the seeds of this window and the
/// next. It is uniform at every step, and moves a little from each step to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variates {
    z1: u64,
    z2: u64,
    cos: f64,
    sin: f64,
    dependent: bool,
}

impl Variates {
    /// The variates of minibatch number `batch`, counted over all epochs.
    pub fn new(seed: u64, batch: u64, kappa: Kappa) -> Self {
        let (window, c, dependent) = match kappa {
            Kappa::Steps(steps) => {
                let c = (batch % steps) as f64 / steps.get() as f64;
                (batch / steps, c, steps.get() > 1)
            }
            Kappa::Infinite => (0, 0.0, false),
        };
        let (sin, cos) = math::sin_cos_quarter(c);
        let of_window = |window| derive(seed, Purpose::Window.stream(0), window);
        Variates { z1: of_window(window), z2: of_window(window.wrapping_add(1)), cos, sin, dependent }
    }

    /// The seed of this window: the seed of all draws unless [`is_dependent`](Self::is_dependent).
    pub fn seed(&self) -> u64 {
        self.z1
    }

    /// The seeds, and the cosine and sine that blend their normal variates: what a device needs to draw.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(crate) fn parts(&self) -> ([u64; 2], [f64; 2]) {
        ([self.z1, self.z2], [self.cos, self.sin])
    }

    /// Whether 1 < κ < ∞. The batches of a window then have to resemble each other, so samplers may decide only by the
    /// value of a variate that belongs to an edge or a vertex. True at a window's first step too, where `sin` is 0.
    ///
    /// Otherwise there is only one seed, and samplers may draw from it in any way.
    pub fn is_dependent(&self) -> bool {
        self.dependent
    }

    /// The variate of `id`, `⌊r · 2³²⌋`. Where `sin` is 0, it is Philox's first word under the first seed.
    #[inline]
    pub fn word(&self, stream: u64, id: u64) -> u32 {
        if self.sin == 0.0 {
            return super::block(self.z1, stream, id)[0];
        }
        // The cast saturates: r can round up to 1.
        (math::normal_cdf(self.blended_normal(stream, id)) * (1u64 << 32) as f64) as u32
    }

    /// The [`word`](Self::word)s of several ids: several times faster than one by one, where `sin` is 0.
    #[inline(always)]
    pub(crate) fn words(&self, stream: u64, ids: &[u64; LANES]) -> [u32; LANES] {
        if self.sin == 0.0 { first_words(self.z1, stream, ids) } else { ids.map(|id| self.word(stream, id)) }
    }

    /// The standard normal variate behind the blended [`word`](Self::word).
    #[inline]
    fn blended_normal(&self, stream: u64, id: u64) -> f64 {
        let first = math::normal_quantile(uniform_open(self.z1, stream, id));
        let second = math::normal_quantile(uniform_open(self.z2, stream, id));
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

    /// False alarm at any of the 4 · 16 steps: below 64 · 2 exp(−2 · 3.2²) < 2e-7 (Dvoretzky–Kiefer–Wolfowitz).
    #[test]
    fn every_step_is_uniform() {
        let n = 20_000;
        for steps in [1, 2, 7, 16] {
            for batch in 0..16 {
                let variates = Variates::new(5, batch, kappa(steps));
                let sample = (0..n).map(|id| (f64::from(variates.word(STREAM, id)) + 0.5) / 2f64.powi(32));
                let distance = kolmogorov_smirnov(sample.collect());
                assert!(distance < 3.2, "κ {steps}, batch {batch}: {distance}");
            }
        }
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
        let at = |batch| Variates::new(77, batch, kappa(steps));
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
        let at = |batch, kappa| Variates::new(1, batch, kappa);
        // 6 standard deviations: false alarm below 1e-8.
        let found = correlation(&at(0, Kappa::INDEPENDENT), &at(1, Kappa::INDEPENDENT), n);
        assert_abs_diff_eq!(found, 0.0, epsilon = 6.0 / (n as f64).sqrt());
        assert_eq!(at(0, Kappa::Infinite), at(123_456, Kappa::Infinite));
        assert!(!at(3, Kappa::Infinite).is_dependent() && !at(3, Kappa::INDEPENDENT).is_dependent());
        assert!(at(0, kappa(4)).is_dependent() && at(1, kappa(4)).is_dependent());
    }

    /// The blend at `sin → 0` tends to the plain word, so that no window begins with a jump.
    #[test]
    fn the_blend_joins_the_plain_words_at_both_ends() {
        let at = |batch| Variates::new(9, batch, kappa(1 << 40));
        let (first, next) = (at(0), at(1));
        let (last, end) = (at((1 << 40) - 1), at(1 << 40));
        for id in 0..1000 {
            assert_eq!(first.word(STREAM, id), super::super::block(first.z1, STREAM, id)[0]);
            assert!(first.word(STREAM, id).abs_diff(next.word(STREAM, id)) <= 1, "{id}");
            assert!(last.word(STREAM, id).abs_diff(end.word(STREAM, id)) <= 1, "{id}");
        }
    }

    #[test]
    fn streams_and_ids_have_words_of_their_own() {
        let variates = Variates::new(3, 0, Kappa::INDEPENDENT);
        let mut words: Vec<u32> = (0..1000).map(|id| variates.word(STREAM, id)).collect();
        words.extend((0..1000).map(|id| variates.word(Purpose::Edge.stream(3), id)));
        words.extend((0..1000).map(|id| variates.word(Purpose::Source.stream(2), id)));
        words.sort();
        words.dedup();
        // 3000 words of 2^32 hold a coincidence with probability 0.001; this seed's have none.
        assert_eq!(words.len(), 3000);
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
