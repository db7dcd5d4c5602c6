//! Whether numbers are finite, at the speed at which they can be read.

use rayon::prelude::*;

use super::vectors::vectorized;
use crate::device::Scalar;

/// Not generic, so that it is compiled in this crate, as the CPU kernels are.
pub trait Finite: Sized {
    /// Whether none of `values` is NaN or infinite.
    fn all_finite(values: &[Self]) -> bool;
}

impl Finite for f32 {
    fn all_finite(values: &[f32]) -> bool {
        all_finite(values)
    }
}

impl Finite for f64 {
    fn all_finite(values: &[f64]) -> bool {
        all_finite(values)
    }
}

/// Zero times anything that is not finite is not zero, so that a sum of products tells, without a branch for each.
fn all_finite<S: Scalar>(values: &[S]) -> bool {
    values.par_chunks(1 << 14).all(|chunk| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let mut sums = [S::zero(); 64];
                let (groups, rest) = chunk.as_chunks::<64>();
                for group in groups {
                    for (sum, &value) in sums.iter_mut().zip(group) {
                        *sum += value * S::zero();
                    }
                }
                let zero = |value: S| value * S::zero() == S::zero();
                sums.iter().all(|&sum| zero(sum)) && rest.iter().all(|&value| zero(value))
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finite_means_every_value_of_any_length() {
        for len in [0usize, 1, 63, 64, 65, (1 << 14) + 65] {
            let mut values = vec![f32::MAX; len];
            assert!(f32::all_finite(&values));
            for at in [0, len / 2, len.wrapping_sub(1)].into_iter().filter(|&at| at < len) {
                for bad in [f32::NAN, f32::NEG_INFINITY] {
                    let good = std::mem::replace(&mut values[at], bad);
                    assert!(!f32::all_finite(&values), "{bad} at {at} of {len}");
                    values[at] = good;
                }
            }
        }
    }
}
