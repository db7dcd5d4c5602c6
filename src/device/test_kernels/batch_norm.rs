//! Batch norm.

use proptest::prelude::*;

use super::{Expected, Guarded, Random, dims, for_cases, test_devices, to_f64};
use crate::device::{BatchNorm, FeatureElement, Scalar};
use crate::error::Error;

test_devices! {
    batch_norm batch_norm_of_long_and_wide_matrices batch_norm_of_wrong_lengths
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
