//! Batch norm.

use num_traits::Float;
use proptest::prelude::*;

use super::{Expected, Guarded, Random, dims, for_cases, test_devices, to_f64};
use crate::device::{BatchNorm, Elementwise, FeatureElement, Scalar, Write};
use crate::error::Error;

test_devices! {
    batch_norm batch_norm_of_long_and_wide_matrices batch_norm_of_wrong_lengths
    moments moments_far_from_zero moments_with_outliers
}

/// The formulas in f64, element by element.
fn check_batch_norm<D: BatchNorm>(device: &D, rows: usize, cols: usize, times: usize, seed: u64) {
    let mut random = Random(seed);
    let mut values = |len: usize| random.values::<D::Scalar>(len, false);
    let [x, dout] = [values(rows * cols), values(rows * cols)];
    let [mean, inverse_std, gain, bias] = [values(cols), values(cols), values(cols), values(cols)];
    let upload = |values: &[D::Scalar]| Guarded::new(device, values);
    let [x_on, dout_on] = [upload(&x), upload(&dout)];
    let [mean_on, inverse_on, gain_on, bias_on] = [&mean, &inverse_std, &gain, &bias].map(|v| upload(v));
    let (x_on, dout_on) = (x_on.matrix(rows, cols), dout_on.matrix(rows, cols));
    let [x, dout, mean, inverse_std, gain, bias] =
        [x, dout, mean, inverse_std, gain, bias].map(|values| to_f64(&values));
    let standard = |k: usize| (x[k] - mean[k % cols]) * inverse_std[k % cols];

    let mut squares = Guarded::poisoned(device, cols);
    device.sum_squared_deviation(x_on, mean_on.view(), squares.view_mut()).unwrap();
    let mut expected = Expected::zeros(cols);
    (0..x.len()).for_each(|k| expected.add(k % cols, (x[k] - mean[k % cols]).powi(2)));
    expected.check(&squares.read(), false);

    let mut inverse = Guarded::poisoned(device, cols);
    device.inverse_square_root(squares.view(), 0.5, 1e-3, inverse.view_mut()).unwrap();
    let root = |x: D::Scalar| 1.0 / (0.5 * x.widen_f64() + 1e-3).sqrt();
    Expected::from(squares.read().into_iter().map(root).collect()).check(&inverse.read(), false);

    let mut out = Guarded::poisoned(device, rows * cols);
    let matrix = out.matrix_mut(rows, cols);
    device
        .normalize(x_on, mean_on.view(), inverse_on.view(), gain_on.view(), bias_on.view(), matrix)
        .unwrap();
    let expected: Vec<f64> = (0..x.len()).map(|k| standard(k) * gain[k % cols] + bias[k % cols]).collect();
    Expected::scaled(expected, vec![3.0; x.len()]).check(&out.read(), false);

    let (mut dgain, mut dbias) = (Guarded::poisoned(device, cols), Guarded::poisoned(device, cols));
    let (mean_view, inverse_view) = (mean_on.view(), inverse_on.view());
    device
        .normalize_backward_parameters(
            x_on,
            mean_view,
            inverse_view,
            dout_on,
            dgain.view_mut(),
            dbias.view_mut(),
        )
        .unwrap();
    let (mut dgain_expected, mut dbias_expected) = (Expected::zeros(cols), Expected::zeros(cols));
    for (k, &dout) in dout.iter().enumerate() {
        dgain_expected.add(k % cols, dout * standard(k));
        dbias_expected.add(k % cols, dout);
    }
    dgain_expected.check(&dgain.read(), false);
    dbias_expected.check(&dbias.read(), false);

    // Statistics of no row (constants), of these rows, and of twice as many.
    let n_total = times * rows;
    let mut dx = Guarded::poisoned(device, rows * cols);
    let matrix = dx.matrix_mut(rows, cols);
    device
        .normalize_backward(
            x_on,
            mean_view,
            inverse_view,
            gain_on.view(),
            dout_on,
            dgain.view(),
            dbias.view(),
            n_total,
            matrix,
        )
        .unwrap();
    let share = |sum: f64| if n_total == 0 { 0.0 } else { sum / n_total as f64 };
    let (dgain, dbias) = (to_f64(&dgain.read()), to_f64(&dbias.read()));
    let gradient = |k: usize| {
        let c = k % cols;
        gain[c] * inverse_std[c] * (dout[k] - share(dbias[c]) - standard(k) * share(dgain[c]))
    };
    let values: Vec<f64> = (0..x.len()).map(gradient).collect();
    Expected::scaled(values, vec![4.0; x.len()]).check(&dx.read(), false);
}

fn batch_norm<D: BatchNorm>(device: &D) {
    let shapes = (prop_oneof![3 => 0..40usize, 1 => Just(1500)], dims(), 0..3usize, any::<u64>());
    for_cases(shapes, |(rows, cols, times, seed)| check_batch_norm(device, rows, cols, times, seed));
}

fn batch_norm_of_long_and_wide_matrices<D: BatchNorm>(device: &D) {
    for (rows, cols) in [(100_000, 1), (7, 1024), (40, 1023), (12_345, 8)] {
        check_batch_norm(device, rows, cols, 1, 5);
    }
}

/// Per column, in f64: the mean, and the sum of squared deviations from it. Of differences from the first row, which
/// are exact where the mean is large, and with what rounding takes away from the sums: kernels may compute in f64 too.
fn naive_moments(x: &[f64], rows: usize, cols: usize) -> [Vec<f64>; 2] {
    let column = |c: usize| (0..rows).map(move |i| x[i * cols + c] - x[c]);
    let sums = |term: &dyn Fn(usize, f64) -> f64| -> Vec<f64> {
        let mut sums = Expected::zeros(cols);
        (0..cols).for_each(|c| column(c).for_each(|d| sums.add(c, term(c, d))));
        sums.values.iter().zip(&sums.rounded).map(|(sum, rounded)| sum + rounded).collect()
    };
    let mean: Vec<f64> = sums(&|_, d| d).iter().map(|sum| sum / rows.max(1) as f64).collect();
    let squares = sums(&|c, d| (d - mean[c]).powi(2));
    let first = |c: usize| if rows == 0 { 0.0 } else { x[c] };
    [(0..cols).map(|c| first(c) + mean[c]).collect(), squares]
}

/// Mean and squares of one call, whose errors are at most `bound` epsilons of the largest element and of the squares,
/// or not above those of two passes over `x`.
#[track_caller]
fn check_moments<D: BatchNorm + Elementwise>(
    device: &D,
    x: &[D::Scalar],
    rows: usize,
    cols: usize,
    bound: f64,
) {
    let on = Guarded::new(device, x);
    let x_on = on.matrix(rows, cols);
    let [mut mean, mut squares, mut rounded, mut two_passes] =
        [(); 4].map(|()| Guarded::poisoned(device, cols));
    device.moments(x_on, mean.view_mut(), squares.view_mut()).unwrap();
    device.sum_rows(x_on, two_passes.view_mut(), Write::Assign).unwrap();
    device.scale(1.0 / rows.max(1) as f64, two_passes.view(), rounded.view_mut(), Write::Assign).unwrap();
    device.sum_squared_deviation(x_on, rounded.view(), two_passes.view_mut()).unwrap();

    let [x, mean, squares] = [x, &mean.read(), &squares.read()].map(to_f64);
    let [rounded, two_passes] = [&rounded, &two_passes].map(|values| to_f64(&values.read()));
    let [exact_mean, exact] = naive_moments(&x, rows, cols);
    let epsilon = bound * D::Scalar::epsilon().widen_f64();
    let largest = x.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    for c in 0..cols {
        let error = (squares[c] - exact[c]).abs();
        let allowed = (epsilon * exact[c]).max((two_passes[c] - exact[c]).abs());
        assert!(error <= allowed, "column {c}: {} instead of {}, {}", squares[c], exact[c], two_passes[c]);
        let off = (mean[c] - exact_mean[c]).abs();
        let allowed = (epsilon * largest).max((rounded[c] - exact_mean[c]).abs());
        assert!(off <= allowed, "column {c}: mean {} instead of {}", mean[c], exact_mean[c]);
    }
}

fn moments<D: BatchNorm + Elementwise>(device: &D) {
    let shapes = (prop_oneof![3 => 0..40usize, 1 => Just(1500)], dims(), any::<bool>(), any::<u64>());
    for_cases(shapes, |(rows, cols, integers, seed)| {
        let x = Random(seed).values::<D::Scalar>(rows * cols, integers);
        check_moments(device, &x, rows, cols, 64.0);
    });
    for (rows, cols) in [(100_000, 1), (7, 1024), (40, 1023), (12_345, 8)] {
        check_moments(device, &Random(5).values(rows * cols, false), rows, cols, 256.0);
    }
    let [mut mean, mut squares] = [3, 2].map(|len| Guarded::poisoned(device, len));
    let x = Guarded::new(device, &Random(6).values::<D::Scalar>(6, false));
    let error = device.moments(x.matrix(2, 3), mean.view_mut(), squares.view_mut()).unwrap_err();
    assert!(matches!(error, Error::WrongLength { array: "squares", actual: 2, expected: 3 }), "{error}");
}

/// Means of up to a million deviations in f32, and of some 10^12 in f64, where squares of elements have lost all that
/// deviations are.
fn moments_far_from_zero<D: BatchNorm + Elementwise>(device: &D) {
    let ratio = 1.0 / D::Scalar::epsilon().widen_f64();
    for (rows, cols, mean) in
        [(1500, 5, 10.0), (1500, 8, 1e-2 * ratio), (20_000, 4, 0.1 * ratio), (33, 3, 1e3)]
    {
        let noise = Random(9).values::<f64>(rows * cols, false);
        let x: Vec<_> = noise.iter().map(|noise| D::Scalar::from_f64(mean + noise)).collect();
        check_moments(device, &x, rows, cols, 256.0);
    }
}

/// The first element of each part of the rows, from which the others' deviations are taken, is a thousand times as
/// large as they are; and constant columns have no deviation at all.
fn moments_with_outliers<D: BatchNorm + Elementwise>(device: &D) {
    let (rows, cols) = (1500, 4);
    let mut x = Random(10).values::<D::Scalar>(rows * cols, false);
    for row in (0..rows).step_by(32) {
        x[row * cols..(row + 1) * cols].iter_mut().for_each(|x| *x *= D::Scalar::from_f64(1000.0));
    }
    check_moments(device, &x, rows, cols, 64.0);
    let constant = Guarded::new(device, &vec![D::Scalar::from_f64(12345.678); rows * cols]);
    let [mut mean, mut squares] = [(); 2].map(|()| Guarded::poisoned(device, cols));
    device.moments(constant.matrix(rows, cols), mean.view_mut(), squares.view_mut()).unwrap();
    let rounding: f64 = 1000.0 * 12345.678 * D::Scalar::epsilon().widen_f64();
    let largest = rows as f64 * rounding.powi(2);
    assert!(to_f64(&squares.read()).iter().all(|&squares| squares <= largest));
}

fn batch_norm_of_wrong_lengths<D: BatchNorm>(device: &D) {
    let [matrix, vector, short] =
        [6, 3, 2].map(|len| Guarded::new(device, &vec![D::Scalar::from_f64(1.0); len]));
    let (x, vector, short) = (matrix.matrix(2, 3), vector.view(), short.view());
    let [mut out, mut sums, mut more] = [6, 3, 3].map(|len| Guarded::poisoned(device, len));
    let is_length = |result, name: &str| {
        let Err(Error::WrongLength { array, actual: 2, expected: 3 }) = result else { panic!("{result:?}") };
        assert_eq!(array, name);
    };
    is_length(device.sum_squared_deviation(x, short, sums.view_mut()), "center");
    is_length(device.normalize(x, vector, vector, short, vector, out.matrix_mut(2, 3)), "gain");
    is_length(device.normalize(x, short, vector, vector, vector, out.matrix_mut(2, 3)), "mean");
    let (dgain, dbias) = (sums.view_mut(), more.view_mut());
    is_length(device.normalize_backward_parameters(x, vector, short, x, dgain, dbias), "inverse_std");
    let dx = out.matrix_mut(2, 3);
    is_length(device.normalize_backward(x, vector, vector, vector, x, vector, short, 2, dx), "dbias");
    let mut long = Guarded::poisoned(device, 9);
    assert!(device.normalize(x, vector, vector, vector, vector, long.matrix_mut(3, 3)).is_err());
    assert!(device.inverse_square_root(short, 1.0, 0.0, sums.view_mut()).is_err());
    assert!(to_f64(&out.read()).iter().all(|value| value.is_nan()));
}
