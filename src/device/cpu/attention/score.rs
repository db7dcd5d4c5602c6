//! Scores of one row's messages: softmax over them, and dropout.
//!
//! `[n_message, heads]` in a task's scratch memory. Where `heads` divides the number of lanes, lane `l` always belongs
//! to head `l mod heads`, and everything runs in full vectors whatever `heads` is.

use std::any::TypeId;

use crate::device::{AttentionDropout, AttentionSpec, Cpu, Scalar};
use crate::rng::philox4x32;

const LANES: usize = 16;

/// Per head, the largest of `values: [n_message, heads]`; `−∞` without messages. A NaN is never the largest.
#[inline(always)]
pub(super) fn head_max<S: Scalar>(values: &[S], max: &mut [S]) {
    fold(values, max, S::neg_infinity(), |a, b| if b > a { b } else { a });
}

/// Per head, the sum of `values: [n_message, heads]`.
#[inline(always)]
pub(super) fn head_sum<S: Scalar>(values: &[S], sum: &mut [S]) {
    fold(values, sum, S::zero(), |a, b| a + b);
}

#[inline(always)]
fn fold<S: Scalar>(values: &[S], out: &mut [S], neutral: S, combine: impl Fn(S, S) -> S) {
    let heads = out.len();
    out.fill(neutral);
    if !LANES.is_multiple_of(heads) {
        for row in values.chunks_exact(heads) {
            for (out, &value) in out.iter_mut().zip(row) {
                *out = combine(*out, value);
            }
        }
        return;
    }
    let mut lanes = [neutral; LANES];
    let (chunks, tail) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            lanes[l] = combine(lanes[l], chunk[l]);
        }
    }
    for (lane, &value) in lanes.iter_mut().zip(tail) {
        *lane = combine(*lane, value);
    }
    for lanes in lanes.chunks_exact(heads) {
        for (out, &lane) in out.iter_mut().zip(lanes) {
            *out = combine(*out, lane);
        }
    }
}

/// `values[k, h] = f(values[k, h], per_head[h])`
#[inline(always)]
pub(super) fn map_heads<S: Scalar>(values: &mut [S], per_head: &[S], f: impl Fn(S, S) -> S) {
    let heads = per_head.len();
    if !LANES.is_multiple_of(heads) {
        for row in values.chunks_exact_mut(heads) {
            row.iter_mut().zip(per_head).for_each(|(value, &p)| *value = f(*value, p));
        }
        return;
    }
    let pattern: [S; LANES] = std::array::from_fn(|l| per_head[l % heads]);
    let (chunks, tail) = values.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for l in 0..LANES {
            chunk[l] = f(chunk[l], pattern[l]);
        }
    }
    tail.iter_mut().zip(pattern).for_each(|(value, p)| *value = f(*value, p));
}

/// Turns scores into `exp(score − max)`, with `max` and the `sum` of the result per head; without messages both are 0.
#[inline(always)]
pub(super) fn exponentials<S: Scalar>(values: &mut [S], max: &mut [S], sum: &mut [S]) {
    if values.is_empty() {
        max.fill(S::zero());
        sum.fill(S::zero());
        return;
    }
    head_max(values, max);
    map_heads(values, max, |value, max| value - max);
    exp_all(values);
    head_sum(values, sum);
}

/// Turns scores into their softmax.
#[inline(always)]
pub(super) fn softmax<S: Scalar>(values: &mut [S], max: &mut [S], sum: &mut [S]) {
    exponentials(values, max, sum);
    map_heads(values, sum, |value, sum| value / sum);
}

/// `values[i] = exp(values[i])`: f32 in vectors, to two units in the last place.
#[inline(always)]
pub(super) fn exp_all<S: Scalar>(values: &mut [S]) {
    if TypeId::of::<S>() == TypeId::of::<f32>() {
        bytemuck::cast_slice_mut::<S, f32>(values).iter_mut().for_each(|x| *x = exp_f32(*x));
    } else {
        values.iter_mut().for_each(|x| *x = x.exp());
    }
}

/// `exp(x)` for `x ≤ 88`; 0 below the logarithm of the least normal number; NaN for NaN. No branch, so that it
/// vectorises.
#[inline(always)]
fn exp_f32(x: f32) -> f32 {
    const LEAST: f32 = -87.0;
    // Adding this rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let clamped = if x < LEAST { LEAST } else { x };
    let shifted = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (clamped - n * LN_2_HIGH) - n * LN_2_LOW;
    // Taylor's polynomial, its coefficients adjusted so that the largest error on |r| ≤ ln 2 / 2 is least (Cephes,
    // expf).
    let mut p = 1.987_569_1e-4;
    for c in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 0.166_666_66, 0.5] {
        p = p * r + c;
    }
    let mantissa = p * r * r + r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < LEAST { 0.0 } else { mantissa * power }
}

/// LeakyReLU.
#[inline(always)]
pub(super) fn leaky<S: Scalar>(x: S, slope: S) -> S {
    if x > S::zero() { x } else { slope * x }
}

/// LeakyReLU's derivative, `slope` at 0.
#[inline(always)]
pub(super) fn leaky_slope<S: Scalar>(x: S, slope: S) -> S {
    if x > S::zero() { S::one() } else { slope }
}

/// Which messages dropout keeps.
#[derive(Clone, Copy)]
pub(super) struct Dropout<'a> {
    threshold: u32,
    scale: f64,
    key: [u32; 2],
    stream: [u32; 2],
    vertices: &'a [u32],
}

impl<'a> Dropout<'a> {
    pub fn new<S: Scalar>(spec: &AttentionSpec<'a, Cpu<S>>) -> Option<Self> {
        let &AttentionDropout { p, seed, stream, vertices } = spec.dropout.as_ref()?;
        Some(Dropout {
            threshold: (p * 2f64.powi(32)) as u32,
            scale: 1.0 / (1.0 - p),
            key: [seed as u32, (seed >> 32) as u32],
            stream: [stream as u32, (stream >> 32) as u32],
            vertices,
        })
    }

    /// Multiplies the weights, one per head, of the message from source `s` to destination `t` by 0 or `1 / (1 − p)`.
    #[inline(always)]
    pub fn apply<S: Scalar>(&self, s: usize, t: usize, weights: &mut [S]) {
        let ids = [self.vertices[s], self.vertices[t]];
        let scale = S::from_f64(self.scale);
        for (block, weights) in (0u32..).zip(weights.chunks_mut(4)) {
            let high = self.stream[1].wrapping_add(block << 16);
            let words = philox4x32([ids[0], ids[1], self.stream[0], high], self.key);
            for (weight, word) in weights.iter_mut().zip(words) {
                *weight *= if word >= self.threshold { scale } else { S::zero() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use approx::abs_diff_eq;

    use super::*;

    #[test]
    fn exponentials_are_right_to_two_units_in_the_last_place() {
        let xs = (0..=880_000).map(|i| i as f32 * -1e-4).chain([-0.0, 1.0, 80.0, -1e-30]);
        for x in xs {
            let (exact, fast) = (f64::from(x).exp(), f64::from(exp_f32(x)));
            let limit = if x < -87.0 { exact } else { exact * 2.0 * f64::from(f32::EPSILON) };
            assert!(abs_diff_eq!(fast, exact, epsilon = limit), "exp({x}) = {fast}, not {exact}");
        }
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(-1e30), 0.0);
        assert!(exp_f32(f32::NAN).is_nan());
    }
}
