//! `cuda/rng.cuh` against `rng`, bit for bit.

use crate::device::cuda::ffi::{self, cohop_draw as Draw};
use crate::device::cuda::tests::on_cuda;
use crate::device::{Cuda, Storage};
use crate::rng::{Dependence, Kappa, Purpose, Variates, bounded, derive, math, uniform, uniform_open};

const STREAM: u64 = Purpose::Edge.stream(3);

fn drawn(device: &Cuda, draw: Draw, variates: &Variates, parameter: &[u64]) -> Vec<u64> {
    let n = parameter.len() as u64;
    let ([first, second, renewal, renewed_below], [cos, sin]) = variates.parts();
    let variates = ffi::cohop_variates { first, second, renewal, renewed_below, cos, sin };
    let parameter = device.upload(parameter).unwrap();
    let out = device.allocate::<u64>(n as usize).unwrap();
    let stream = device.stream().unwrap();
    // SAFETY: both arrays have `n` elements.
    let code = unsafe {
        ffi::cohop_sample_draw(draw, variates, STREAM, n, parameter.pointer(), out.pointer(), stream)
    };
    device.check("sample_draw", code).unwrap();
    device.download(out.view()).unwrap()
}

#[track_caller]
fn check(
    device: &Cuda,
    draw: Draw,
    variates: &Variates,
    parameter: &[u64],
    expected: impl Fn(usize, u64) -> u64,
) {
    let found = drawn(device, draw, variates, parameter);
    for (i, (&found, &parameter)) in found.iter().zip(parameter).enumerate() {
        let expected = expected(i, parameter);
        assert_eq!(found, expected, "number {i}, of {parameter:#x}: {found:#x}, not {expected:#x}");
    }
}

/// Numbers of all magnitudes.
fn words() -> Vec<u64> {
    (0..20_000).map(|i| derive(5, 0, i) >> (i % 64)).collect()
}

#[test]
fn draws() {
    on_cuda(compare_draws);
}

pub(crate) fn compare_draws(device: &Cuda) {
    let steps =
        [0, 3, 9].into_iter().flat_map(|batch| [Dependence::Renew, Dependence::Rotate].map(|d| (batch, d)));
    for (batch, dependence) in steps {
        let variates = Variates::new(7, batch, Kappa::steps(10).unwrap(), dependence);
        let ([seed, ..], _) = variates.parts();
        check(device, Draw::COHOP_DRAW_UNIFORM, &variates, &words(), |_, p| {
            uniform(seed, STREAM, p).to_bits()
        });
        check(device, Draw::COHOP_DRAW_UNIFORM_OPEN, &variates, &words(), |_, p| {
            uniform_open(seed, STREAM, p).to_bits()
        });
        let mut limits: Vec<u64> = words().into_iter().map(|limit| limit.max(1)).collect();
        limits.extend([1, 2, 3 << 62, u64::MAX, 1 << 63, (1 << 63) + 1].repeat(20));
        check(device, Draw::COHOP_DRAW_BOUNDED, &variates, &limits, |i, p| {
            bounded(seed, STREAM, i as u64, p)
        });
        check(device, Draw::COHOP_DRAW_VARIATE, &variates, &words(), |_, p| {
            u64::from(variates.word(STREAM, p))
        });
    }
}

#[test]
fn functions() {
    let variates = Variates::new(0, 0, Kappa::INDEPENDENT, Dependence::default());
    // In (0, 1), to both ends.
    let mut shares: Vec<f64> =
        (0..20_000).map(|i| uniform_open(1, 0, i) * 0.5f64.powi(i as i32 % 53)).collect();
    shares.extend((1..1000).map(|i| 1.0 - f64::from(i) * 0.5f64.powi(53)));
    shares.extend([0.075, 0.925, 0.5, f64::MIN_POSITIVE, 1e-300, (-25f64).exp(), 0.5f64.powi(53)]);
    let mut positive: Vec<f64> = shares.iter().zip(0..).map(|(x, i)| x * 10f64.powi(i % 300)).collect();
    positive.extend([1.0, 2.0, 2f64.sqrt(), f64::MAX, f64::MIN_POSITIVE]);
    let around: Vec<f64> =
        shares.iter().zip(0..).flat_map(|(x, i)| [x * f64::from(i % 40), -x * f64::from(i % 40)]).collect();
    let powers: Vec<f64> = around.iter().map(|x| x * 20.0).filter(|&x| x < 709.0).collect();
    let bits = |numbers: &[f64]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    on_cuda(|device| {
        let each = |draw, numbers: &[f64], function: fn(f64) -> f64| {
            check(device, draw, &variates, &bits(numbers), |_, p| function(f64::from_bits(p)).to_bits());
        };
        each(Draw::COHOP_DRAW_LN, &positive, math::ln);
        each(Draw::COHOP_DRAW_EXP, &powers, math::exp);
        each(Draw::COHOP_DRAW_NORMAL_CDF, &around, math::normal_cdf);
        each(Draw::COHOP_DRAW_NORMAL_QUANTILE, &shares, math::normal_quantile);
    });
}
