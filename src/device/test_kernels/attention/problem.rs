//! Graph attention on the host, in plain formulas.

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use super::super::Guarded;
use super::super::naive::{self, Pattern};
use crate::device::{AttentionDropout, AttentionSpec, Csr, Scalar, Storage};
use crate::rng;
use crate::testing::assert_close;

/// A pattern, and how it is attended to.
#[derive(Clone, Debug)]
pub struct Problem {
    pub pattern: Pattern,
    pub heads: usize,
    pub dim: usize,
    pub self_loop: bool,
    /// Of dropout; 0: none.
    pub p: f64,
    pub seed: u64,
}

pub const SLOPE: f64 = 0.2;
const STREAM: u64 = 15 << 32 | 3;

/// Rows of random length, or most entries in one of them; usual and odd widths.
pub fn problems() -> impl Strategy<Value = Problem> {
    let heads = prop::sample::select(vec![1usize, 2, 3, 4, 8, 11]);
    let shape = (0usize..7, 0usize..9, 0usize..60, heads);
    let width = prop::sample::select(vec![0usize, 1, 2, 3, 4, 7, 8, 16, 21, 32, 40, 70]);
    let options = (any::<bool>(), any::<bool>(), prop::sample::select(vec![0.0, 0.3, 0.7]), any::<u64>());
    (shape, width, options).prop_map(|((n_dst, extra, n_edge, heads), dim, (self_loop, hub, p, seed))| {
        let n_src = n_dst + extra;
        let n_edge = if n_dst == 0 { 0 } else { n_edge };
        let ends = (0..n_edge as u64).map(|e| {
            let t = if hub && e > 5 { 0 } else { rng::bounded(seed, 2, e, n_dst as u64) as usize };
            (t, rng::bounded(seed, 3, e, n_src as u64) as u32)
        });
        Problem { pattern: pattern(n_dst, n_src, ends), heads, dim, self_loop, p, seed }
    })
}

/// The pattern with entries (row, column), in this order within a row.
pub fn pattern(n_rows: usize, n_cols: usize, entries: impl Iterator<Item = (usize, u32)>) -> Pattern {
    let mut entries: Vec<_> = entries.collect();
    entries.sort_by_key(|&(row, _)| row);
    let end = |i: usize| entries.partition_point(|&(row, _)| row < i) as u32;
    Pattern {
        n_rows,
        n_cols,
        indptr: (0..=n_rows).map(end).collect(),
        indices: entries.iter().map(|&(_, column)| column).collect(),
    }
}

/// Runs `body` on problems, the same ones every time; on emulated devices on fewer.
pub fn for_problems<D: Storage>(device: &D, body: impl Fn(&Problem)) {
    let cases = if device.describe().contains("emulated") { 12 } else { 60 };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&problems(), |problem| {
        body(&problem);
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// A pattern on a device.
pub struct OnDevice<D: Storage> {
    shape: [usize; 2],
    indptr: Guarded<D, u32>,
    indices: Guarded<D, u32>,
    edge: Option<Guarded<D, u32>>,
}

impl<D: Storage> OnDevice<D> {
    fn new(device: &D, pattern: &Pattern, edge: Option<&[u32]>) -> Self {
        OnDevice {
            shape: [pattern.n_rows, pattern.n_cols],
            indptr: Guarded::new(device, &pattern.indptr),
            indices: Guarded::new(device, &pattern.indices),
            edge: edge.map(|edge| Guarded::new(device, edge)),
        }
    }

    pub fn csr(&self) -> Csr<'_, D> {
        Csr {
            n_rows: self.shape[0],
            n_cols: self.shape[1],
            indptr: self.indptr.view(),
            indices: self.indices.view(),
            edge: self.edge.as_ref().map(|edge| edge.view()),
            longest_row: None,
        }
    }
}

/// What softmax makes of scores: `α` of every message and head, and `max` and `sum` of every row and head.
pub struct Softmax {
    pub alpha: Vec<f64>,
    pub max: Vec<f64>,
    pub sum: Vec<f64>,
}

impl Problem {
    pub fn n_dst(&self) -> usize {
        self.pattern.n_rows
    }

    pub fn n_src(&self) -> usize {
        self.pattern.n_cols
    }

    pub fn width(&self) -> usize {
        self.heads * self.dim
    }

    /// Normally distributed, rounded to a device's scalar.
    pub fn values<S: Scalar>(&self, stream: u64, len: usize) -> Vec<S> {
        (0..len as u64).map(|i| S::from_f64(rng::normal(self.seed, stream, i))).collect()
    }

    pub fn on<D: Storage>(&self, device: &D) -> OnDevice<D> {
        OnDevice::new(device, &self.pattern, None)
    }

    pub fn transpose_on<D: Storage>(&self, device: &D) -> (OnDevice<D>, Vec<u32>) {
        let (pattern, edge) = naive::transpose(&self.pattern);
        (OnDevice::new(device, &pattern, Some(&edge)), edge)
    }

    fn vertices(&self) -> Vec<u32> {
        (0..self.n_src() as u32).map(|v| v * 7 + 3).collect()
    }

    pub fn vertices_on<D: Storage>(&self, device: &D) -> Guarded<D, u32> {
        Guarded::new(device, &self.vertices())
    }

    pub fn spec<'a, D: Storage>(&self, vertices: &'a Guarded<D, u32>) -> AttentionSpec<'a, D> {
        let dropout = (self.p > 0.0).then(|| AttentionDropout {
            p: self.p,
            seed: self.seed,
            stream: STREAM,
            vertices: vertices.view(),
        });
        AttentionSpec { heads: self.heads, slope: SLOPE, self_loop: self.self_loop, dropout }
    }

    /// Of every message: source, destination, entry (none for a self-loop).
    pub fn messages(&self) -> Vec<(usize, usize, Option<usize>)> {
        let mut messages = Vec::new();
        for t in 0..self.n_dst() {
            if self.self_loop {
                messages.push((t, t, None));
            }
            for e in self.pattern.indptr[t] as usize..self.pattern.indptr[t + 1] as usize {
                messages.push((self.pattern.indices[e] as usize, t, Some(e)));
            }
        }
        messages
    }

    /// What dropout multiplies `α` by.
    fn keep(&self, vertices: &[u32], s: usize, t: usize, h: usize) -> f64 {
        if self.p == 0.0 {
            return 1.0;
        }
        let high = (STREAM >> 32) as u32 + ((h as u32 / 4) << 16);
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let word = rng::philox4x32([vertices[s], vertices[t], STREAM as u32, high], key)[h % 4];
        if f64::from(word) >= (self.p * 2f64.powi(32)).floor() { 1.0 / (1.0 - self.p) } else { 0.0 }
    }

    /// Attention from scores of (source, destination, head).
    pub fn softmax(&self, score: impl Fn(usize, usize, usize) -> f64) -> Softmax {
        let (messages, heads) = (self.messages(), self.heads);
        let mut scores = Vec::new();
        for &(s, t, _) in &messages {
            scores.extend((0..heads).map(|h| score(s, t, h)));
        }
        let len = self.n_dst() * heads;
        let (mut max, mut sum) = (vec![f64::NEG_INFINITY; len], vec![0.0; len]);
        let row = |i: usize| messages[i / heads].1 * heads + i % heads;
        scores.iter().enumerate().for_each(|(i, &score)| max[row(i)] = max[row(i)].max(score));
        scores.iter().enumerate().for_each(|(i, &score)| sum[row(i)] += (score - max[row(i)]).exp());
        let alpha = scores.iter().enumerate().map(|(i, score)| (score - max[row(i)]).exp() / sum[row(i)]);
        let alpha = alpha.collect();
        max.iter_mut().filter(|max| max.is_infinite()).for_each(|max| *max = 0.0);
        Softmax { alpha, max, sum }
    }

    /// `Σ α̃ · z`
    pub fn aggregate(&self, alpha: &[f64], z: &[f64]) -> Vec<f64> {
        let (width, vertices) = (self.width(), self.vertices());
        let mut out = vec![0.0; self.n_dst() * width];
        for (m, (s, t, _)) in self.messages().into_iter().enumerate() {
            for h in 0..self.heads {
                let weight = alpha[m * self.heads + h] * self.keep(&vertices, s, t, h);
                for c in h * self.dim..(h + 1) * self.dim {
                    out[t * width + c] += weight * z[s * width + c];
                }
            }
        }
        out
    }

    /// The gradient of the scores, by messages and heads, and `α̃`.
    pub fn score_gradient(&self, alpha: &[f64], z: &[f64], dout: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (messages, width, vertices) = (self.messages(), self.width(), self.vertices());
        let (mut g, mut kept) = (vec![0.0; alpha.len()], vec![0.0; alpha.len()]);
        let mut total = vec![0.0; self.n_dst() * self.heads];
        for (m, &(s, t, _)) in messages.iter().enumerate() {
            for h in 0..self.heads {
                let i = m * self.heads + h;
                let columns = h * self.dim..(h + 1) * self.dim;
                let dot: f64 = columns.map(|c| dout[t * width + c] * z[s * width + c]).sum();
                kept[i] = alpha[i] * self.keep(&vertices, s, t, h);
                g[i] = kept[i] * dot;
                total[t * self.heads + h] += g[i];
            }
        }
        for (m, &(_, t, _)) in messages.iter().enumerate() {
            for h in 0..self.heads {
                g[m * self.heads + h] -= alpha[m * self.heads + h] * total[t * self.heads + h];
            }
        }
        (g, kept)
    }
}

pub fn leaky(x: f64) -> f64 {
    if x > 0.0 { x } else { SLOPE * x }
}

pub fn leaky_slope(x: f64) -> f64 {
    if x > 0.0 { 1.0 } else { SLOPE }
}

/// Panics unless values agree up to the rounding of sums like theirs; a NaN never does.
#[track_caller]
pub fn close<S: Scalar>(what: &str, actual: &[S], expected: &[f64]) {
    let tolerance = if size_of::<S>() == 4 { 2e-4 } else { 1e-10 };
    let largest = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    assert_close(what, actual, expected, |_, _| tolerance * largest);
}
