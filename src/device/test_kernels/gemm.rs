//! Dense products.

use proptest::prelude::*;

use super::{Expected, Guarded, Random, for_cases, naive, test_devices, to_f64, writes};
use crate::device::{Activation, FeatureElement, Gemm, Scalar, Write, linear_apart};
use crate::error::Error;

test_devices! {
    gemm gemm_with_a_long_inner_dimension gemm_with_many_rows gemm_shapes linear linear_shapes
}

fn check_gemm<D: Gemm>(device: &D, [m, k, n]: [usize; 3], ta: bool, tb: bool, write: Write, integers: bool) {
    let mut random = Random((m * 31 + k * 7 + n) as u64);
    let a = random.values::<D::Scalar>(m * k, integers);
    let b = random.values::<D::Scalar>(k * n, integers);
    let (mut out, start) = Guarded::output(device, m * n, write, &mut random, integers);
    let (a64, b64) = (to_f64(&a), to_f64(&b));
    let mut expected = Expected::from(start);
    let a_at = |i: usize, l: usize| a64[if ta { l * m + i } else { i * k + l }];
    let b_at = |l: usize, j: usize| b64[if tb { j * k + l } else { l * n + j }];
    naive::gemm([m, k, n], a_at, b_at, &mut expected);
    let (a, b) = (Guarded::new(device, &a), Guarded::new(device, &b));
    let a = if ta { a.matrix(k, m) } else { a.matrix(m, k) };
    let b = if tb { b.matrix(n, k) } else { b.matrix(k, n) };
    device.gemm(a, ta, b, tb, out.matrix_mut(m, n), write).unwrap();
    expected.check(&out.read(), integers);
}

fn gemm<D: Gemm>(device: &D) {
    let shapes = (0..70usize, 0..70usize, 0..70usize, any::<bool>(), any::<bool>(), writes(), any::<bool>());
    for_cases(shapes, |(m, k, n, ta, tb, write, integers)| {
        check_gemm(device, [m, k, n], ta, tb, write, integers);
    });
}

fn gemm_with_a_long_inner_dimension<D: Gemm>(device: &D) {
    for k in [8191, 8192, 12_289] {
        for (ta, tb) in [(true, false), (false, true), (false, false), (true, true)] {
            check_gemm(device, [9, k, 20], ta, tb, Write::Assign, true);
            check_gemm(device, [9, k, 20], ta, tb, Write::Add, false);
        }
    }
}

fn gemm_with_many_rows<D: Gemm>(device: &D) {
    for (ta, tb) in [(true, false), (false, true), (false, false), (true, true)] {
        check_gemm(device, [1025, 70, 33], ta, tb, Write::Assign, true);
        check_gemm(device, [1025, 70, 33], ta, tb, Write::Add, false);
    }
}

fn gemm_shapes<D: Gemm>(device: &D) {
    let values = Guarded::new(device, &[D::Scalar::from_f64(1.0); 6]);
    let mut out = Guarded::poisoned(device, 4);
    let mut gemm =
        |a, ta, b, tb, rows, cols| device.gemm(a, ta, b, tb, out.matrix_mut(rows, cols), Write::Assign);
    let (wide, tall) = (values.matrix(2, 3), values.matrix(3, 2));
    assert!(matches!(gemm(wide, false, wide, false, 2, 2), Err(Error::ShapeMismatch { op: "gemm", .. })));
    assert!(matches!(gemm(wide, true, tall, false, 2, 2), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(gemm(wide, false, tall, false, 1, 4), Err(Error::ShapeMismatch { .. })));
    gemm(wide, false, wide, true, 2, 2).unwrap();
    assert_eq!(to_f64(&out.read()), [3.0; 4]);
}

/// `f(Σ a · b + bias)` over terms of inner dimensions `inner`, against naive loops, and bit for bit against the
/// separate kernels.
fn check_linear<D: Gemm>(device: &D, [m, n]: [usize; 2], inner: &[usize], has_bias: bool, active: bool) {
    let mut random = Random((m * 31 + n * 7 + inner.len()) as u64);
    let mut expected = Expected::zeros(m * n);
    let terms: Vec<_> = inner
        .iter()
        .map(|&k| {
            let (a, b) = (random.values::<D::Scalar>(m * k, false), random.values::<D::Scalar>(k * n, false));
            let (a64, b64) = (to_f64(&a), to_f64(&b));
            naive::gemm([m, k, n], |i, l| a64[i * k + l], |l, j| b64[l * n + j], &mut expected);
            (k, Guarded::new(device, &a), Guarded::new(device, &b))
        })
        .collect();
    let bias = random.values::<D::Scalar>(n, false);
    if has_bias {
        (0..m * n).for_each(|i| expected.add(i, bias[i % n].widen_f64()));
    }
    if active {
        let sums = expected.values.iter().zip(&expected.rounded);
        let values: Vec<f64> = sums.map(|(value, rounded)| (value + rounded).max(0.0)).collect();
        (expected.values, expected.rounded) = (values, vec![0.0; m * n]);
    }
    let bias = Guarded::new(device, &bias);
    let terms: Vec<_> = terms.iter().map(|(k, a, b)| (a.matrix(m, *k), b.matrix(*k, n))).collect();
    let (bias, activation) = (has_bias.then(|| bias.view()), active.then_some(Activation::Relu));
    let [mut out, mut apart] = [(); 2].map(|()| Guarded::poisoned(device, m * n));
    device.linear(&terms, bias, activation, out.matrix_mut(m, n)).unwrap();
    expected.check(&out.read(), false);
    linear_apart(device, &terms, bias, activation, apart.matrix_mut(m, n)).unwrap();
    assert_eq!(out.read(), apart.read());
}

fn linear<D: Gemm>(device: &D) {
    let inner = prop::collection::vec(0..50usize, 1..4);
    for_cases(
        (0..70usize, 0..70usize, inner, any::<bool>(), any::<bool>()),
        |(m, n, inner, bias, active)| {
            check_linear(device, [m, n], &inner, bias, active);
        },
    );
    // Many rows: blocks of them on the CPU; a long inner dimension: the separate kernels.
    for (bias, active) in [(false, false), (true, false), (false, true), (true, true)] {
        check_linear(device, [1025, 33], &[40, 30], bias, active);
        check_linear(device, [1025, 3], &[8192, 5], bias, active);
    }
}

fn linear_shapes<D: Gemm>(device: &D) {
    let values = Guarded::new(device, &[D::Scalar::from_f64(1.0); 6]);
    let (wide, tall) = (values.matrix(2, 3), values.matrix(3, 2));
    let mut out = Guarded::poisoned(device, 4);
    let mut linear = |terms: &[_], bias, rows, cols| {
        device.linear(terms, bias, Some(Activation::Elu), out.matrix_mut(rows, cols))
    };
    assert!(matches!(linear(&[], None, 2, 2), Err(Error::InvalidArgument { .. })));
    assert!(matches!(linear(&[(wide, tall), (wide, wide)], None, 2, 2), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(linear(&[(wide, tall)], None, 4, 1), Err(Error::ShapeMismatch { .. })));
    assert!(linear(&[(wide, tall)], Some(values.view()), 2, 2).is_err());
    linear(&[(wide, tall), (wide, tall)], None, 2, 2).unwrap();
    assert_eq!(to_f64(&out.read()), [6.0; 4]);
}
