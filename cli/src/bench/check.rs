//! Data for the benchmarks, and checks of their answers: no wrong answer is timed.

use rayon::prelude::*;

use cohop::device::{Device, Storage};
use cohop::tensor::Tensor;
use cohop::{Error, Result};

/// Reproducible values, each a function of its position only, so that a check can compute them without the array.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values(pub u64);

impl Values {
    /// splitmix64: fast, which matters since benchmarks read billions of values.
    pub(super) fn word(self, position: usize) -> u64 {
        let z = (position as u64).wrapping_add(self.0 << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [-1, 1).
    pub(super) fn at(self, position: usize) -> f32 {
        (self.word(position) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub(super) fn host(self, len: usize) -> Vec<f32> {
        (0..len).into_par_iter().map(|position| self.at(position)).collect()
    }

    pub(super) fn tensor<D: Device<Scalar = f32>>(
        self,
        device: &D,
        rows: usize,
        cols: usize,
    ) -> Result<Tensor<D>> {
        Tensor::from_slice(device, rows, cols, &self.host(rows * cols))
    }
}

/// Row `row` of a tensor.
pub(super) fn row<D: Device<Scalar = f32>>(device: &D, x: &Tensor<D>, row: u32) -> Result<Vec<f32>> {
    let start = row as usize * x.cols();
    device.download(D::slice(x.view(), start..start + x.cols()))
}

/// Part of a buffer.
pub(super) fn part<D: Storage>(
    device: &D,
    buffer: &D::Buffer<D::Scalar>,
    range: std::ops::Range<usize>,
) -> Result<Vec<D::Scalar>> {
    device.download(D::slice(D::view(buffer), range))
}

/// `Ok` if the answers agree up to the rounding of sums in f32; NaN never agrees.
pub(super) fn agree(work: &str, found: &[f32], expected: &[f64]) -> Result<()> {
    let differs = |(&found, &expected): (&f32, &f64)| {
        let is_close = (f64::from(found) - expected).abs() <= 1e-4 + 1e-3 * expected.abs();
        !is_close
    };
    let position = found.iter().zip(expected).position(differs);
    match position {
        _ if found.len() != expected.len() => wrong(work, found.len(), expected.len()),
        None => Ok(()),
        Some(position) => wrong(work, found[position], expected[position]),
    }
}

/// The error for a wrong answer.
pub(super) fn wrong<T>(work: &str, found: impl ToString, expected: impl std::fmt::Display) -> Result<T> {
    let expected = format!("{expected} by the check of {work}: please report this bug");
    Err(Error::invalid("the answer", found, expected))
}
