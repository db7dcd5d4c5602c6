//! Maps over elements, rows and columns.

use approx::{abs_diff_eq, assert_abs_diff_eq};
use proptest::prelude::*;

use super::{Expected, Guarded, Random, dims, for_cases, test_devices, to_f64, writes};
use crate::device::{Activation, Elementwise, FeatureElement, Function, Scalar, Write};
use crate::error::Error;
use crate::rng::philox4x32;

test_devices! {
    scale_and_multiply divide divide_by_zero map map_outside_of_the_domain
    add_bias_activate activate_backward nan_passes_activations sum_rows dot scale_rows copy_columns
    dropout dropout_does_not_depend_on_the_place dropout_rate fill wrong_lengths_are_errors
}

/// Lengths of vectors: every tail, and enough for several tasks.
fn lens() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0..=70usize, 1 => Just(70_001)]
}

fn row_counts() -> impl Strategy<Value = usize> {
    prop_oneof![3 => 0..40usize, 1 => Just(1200)]
}

fn activations() -> impl Strategy<Value = Activation> {
    let leaky = Just(Activation::LeakyRelu { slope: 0.2 });
    prop_oneof![Just(Activation::Relu), leaky, Just(Activation::Elu)]
}

fn scale_and_multiply<D: Elementwise>(device: &D) {
    for_cases((lens(), writes(), any::<bool>(), any::<u64>()), |(len, write, integers, seed)| {
        let mut random = Random(seed);
        let [x, y] = [random.values::<D::Scalar>(len, integers), random.values(len, integers)];
        let (x_on, y_on) = (Guarded::new(device, &x), Guarded::new(device, &y));
        let (mut out, start) = Guarded::output(device, len, write, &mut random, integers);
        device.scale(-2.5, x_on.view(), out.view_mut(), write).unwrap();
        let mut expected = Expected::from(start);
        x.iter().enumerate().for_each(|(i, x)| expected.add(i, -2.5 * x.widen_f64()));
        expected.check(&out.read(), integers);

        let (mut out, start) = Guarded::output(device, len, write, &mut random, integers);
        device.multiply(x_on.view(), y_on.view(), out.view_mut(), write).unwrap();
        let mut expected = Expected::from(start);
        x.iter().zip(&y).enumerate().for_each(|(i, (x, y))| expected.add(i, x.widen_f64() * y.widen_f64()));
        expected.check(&out.read(), integers);
    });
}

fn divide<D: Elementwise>(device: &D) {
    for_cases((lens(), writes(), any::<u64>()), |(len, write, seed)| {
        let mut random = Random(seed);
        let x = random.values::<D::Scalar>(len, false);
        // Of either sign, and not near 0.
        let y: Vec<_> = random.values::<f64>(len, false).iter().map(|y| y + 0.5f64.copysign(*y)).collect();
        let y: Vec<_> = y.into_iter().map(D::Scalar::from_f64).collect();
        let (x_on, y_on) = (Guarded::new(device, &x), Guarded::new(device, &y));
        let (mut out, start) = Guarded::output(device, len, write, &mut random, false);
        device.divide(-1.5, x_on.view(), y_on.view(), out.view_mut(), write).unwrap();
        let mut expected = Expected::from(start);
        let quotients = x.iter().zip(&y).map(|(x, y)| -1.5 * x.widen_f64() / y.widen_f64());
        quotients.enumerate().for_each(|(i, quotient)| expected.add(i, quotient));
        expected.check(&out.read(), false);
    });
}

fn divide_by_zero<D: Elementwise>(device: &D) {
    let x = Guarded::new(device, &[1.0, -1.0, 0.0, 1.0, 3.0].map(D::Scalar::from_f64));
    let y = Guarded::new(device, &[0.0, 0.0, 0.0, -0.0, f64::INFINITY].map(D::Scalar::from_f64));
    let mut out = Guarded::poisoned(device, 5);
    device.divide(2.0, x.view(), y.view(), out.view_mut(), Write::Assign).unwrap();
    let out = to_f64(&out.read());
    assert_eq!(out[..2], [f64::INFINITY, f64::NEG_INFINITY]);
    assert!(out[2].is_nan(), "{out:?}");
    assert_eq!(out[3..], [f64::NEG_INFINITY, 0.0]);
}

type Naive = fn(f64) -> f64;

const FUNCTIONS: [(Function, Naive); 3] =
    [(Function::SquareRoot, f64::sqrt), (Function::Exponential, f64::exp), (Function::Logarithm, f64::ln)];

fn map<D: Elementwise>(device: &D) {
    for_cases((lens(), 0..FUNCTIONS.len(), any::<u64>()), |(len, which, seed)| {
        let (function, naive) = FUNCTIONS[which];
        let x = Random(seed).values::<f64>(len, false);
        let x: Vec<_> = x.iter().map(|&x| D::Scalar::from_f64(3.0 * x.abs() + 1e-3)).collect();
        let (x_on, mut out) = (Guarded::new(device, &x), Guarded::poisoned(device, len));
        device.map(function, x_on.view(), out.view_mut()).unwrap();
        let expected: Vec<f64> = x.iter().map(|x| naive(x.widen_f64())).collect();
        // Of a logarithm near 0, what counts is the argument's rounding.
        let magnitudes = expected.iter().map(|value| value.abs().max(1.0)).collect();
        Expected::scaled(expected, magnitudes).check(&out.read(), false);
    });
}

fn map_outside_of_the_domain<D: Elementwise>(device: &D) {
    let x = [f64::NAN, -1.0, 0.0, f64::INFINITY, f64::NEG_INFINITY];
    let x_on = Guarded::new(device, &x.map(D::Scalar::from_f64));
    for (function, naive) in FUNCTIONS {
        let mut out = Guarded::poisoned(device, 5);
        device.map(function, x_on.view(), out.view_mut()).unwrap();
        for (out, x) in to_f64(&out.read()).into_iter().zip(x) {
            let expected = naive(x);
            let is_right = abs_diff_eq!(out, expected, epsilon = 1e-6) || out == expected;
            assert!(is_right || out.is_nan() && expected.is_nan(), "{function:?}({x}) is {out}");
        }
    }
}

fn naive_activate(activation: Option<Activation>, x: f64) -> f64 {
    match activation {
        Some(Activation::Relu) => x.max(0.0),
        Some(Activation::LeakyRelu { slope }) if x <= 0.0 => slope * x,
        Some(Activation::Elu) if x <= 0.0 => x.exp() - 1.0,
        _ => x,
    }
}

fn add_bias_activate<D: Elementwise>(device: &D) {
    let cases = (row_counts(), dims(), prop::option::of(activations()), any::<bool>(), any::<u64>());
    for_cases(cases, |(rows, cols, activation, with_bias, seed)| {
        let mut random = Random(seed);
        let x = random.values::<D::Scalar>(rows * cols, false);
        let bias = random.values::<D::Scalar>(cols, false);
        let mut out = Guarded::new(device, &x);
        let bias_on = Guarded::new(device, &bias);
        let bias_view = with_bias.then(|| bias_on.view());
        device.add_bias_activate(bias_view, activation, out.matrix_mut(rows, cols)).unwrap();
        let expected = x.iter().enumerate().map(|(k, x)| {
            let bias = if with_bias { bias[k % cols].widen_f64() } else { 0.0 };
            naive_activate(activation, x.widen_f64() + bias)
        });
        Expected::scaled(expected.collect(), vec![2.0; rows * cols]).check(&out.read(), false);
    });
}

fn activate_backward<D: Elementwise>(device: &D) {
    for_cases((lens(), activations(), any::<u64>()), |(len, activation, seed)| {
        let mut random = Random(seed);
        let (x, dx) = (random.values::<f64>(len, false), random.values::<D::Scalar>(len, false));
        let y: Vec<_> = x.iter().map(|&x| D::Scalar::from_f64(naive_activate(Some(activation), x))).collect();
        let (y, mut out) = (Guarded::new(device, &y), Guarded::new(device, &dx));
        device.activate_backward(activation, y.view(), out.view_mut()).unwrap();
        let expected = x.iter().zip(&dx).map(|(&x, dx)| {
            let slope = match activation {
                _ if x > 0.0 => 1.0,
                Activation::Relu => 0.0,
                Activation::LeakyRelu { slope } => slope,
                Activation::Elu => x.exp(),
            };
            slope * dx.widen_f64()
        });
        Expected::scaled(expected.collect(), vec![1.0; len]).check(&out.read(), false);
    });
}

fn nan_passes_activations<D: Elementwise>(device: &D) {
    for activation in [Activation::Relu, Activation::LeakyRelu { slope: 0.1 }, Activation::Elu] {
        let mut out = Guarded::new(device, &[f64::NAN, f64::INFINITY, 0.0].map(D::Scalar::from_f64));
        device.add_bias_activate(None, Some(activation), out.matrix_mut(1, 3)).unwrap();
        let out = to_f64(&out.read());
        assert!(out[0].is_nan() && out[1] == f64::INFINITY && out[2] == 0.0, "{activation:?}: {out:?}");
    }
}

fn sum_rows<D: Elementwise>(device: &D) {
    let cases = (row_counts(), dims(), writes(), any::<bool>(), any::<u64>());
    for_cases(cases, |(rows, cols, write, integers, seed)| {
        let mut random = Random(seed);
        let x = random.values::<D::Scalar>(rows * cols, integers);
        let (mut out, start) = Guarded::output(device, cols, write, &mut random, integers);
        let mut expected = Expected::from(start);
        x.iter().enumerate().for_each(|(k, x)| expected.add(k % cols, x.widen_f64()));
        let x = Guarded::new(device, &x);
        device.sum_rows(x.matrix(rows, cols), out.view_mut(), write).unwrap();
        expected.check(&out.read(), integers);
    });
}

fn dot<D: Elementwise>(device: &D) {
    for_cases((lens(), any::<bool>(), any::<bool>(), any::<u64>()), |(len, with_y, integers, seed)| {
        let mut random = Random(seed);
        let [x, y] = [random.values::<D::Scalar>(len, integers), random.values(len, integers)];
        let mut expected = Expected::zeros(1);
        for (x, y) in x.iter().zip(&y) {
            expected.add(0, x.widen_f64() * if with_y { y.widen_f64() } else { 1.0 });
        }
        let (x, y) = (Guarded::new(device, &x), Guarded::new(device, &y));
        let mut out = Guarded::poisoned(device, 1);
        device.dot(x.view(), with_y.then(|| y.view()), out.view_mut()).unwrap();
        expected.check(&out.read(), integers);
    });
}

fn scale_rows<D: Elementwise>(device: &D) {
    let cases = (row_counts(), dims(), writes(), any::<bool>(), any::<u64>());
    for_cases(cases, |(rows, cols, write, integers, seed)| {
        let mut random = Random(seed);
        let x = random.values::<D::Scalar>(rows * cols, integers);
        let factor = random.values::<D::Scalar>(rows, integers);
        let (mut out, start) = Guarded::output(device, rows * cols, write, &mut random, integers);
        let mut expected = Expected::from(start);
        x.iter().enumerate().for_each(|(k, x)| expected.add(k, factor[k / cols].widen_f64() * x.widen_f64()));
        let (x, factor) = (Guarded::new(device, &x), Guarded::new(device, &factor));
        device.scale_rows(factor.view(), x.matrix(rows, cols), out.matrix_mut(rows, cols), write).unwrap();
        expected.check(&out.read(), integers);
    });
}

fn copy_columns<D: Elementwise>(device: &D) {
    let cases = (row_counts(), 0..40usize, 0..40usize, 0..70usize, 0..40usize, writes(), any::<u64>());
    for_cases(cases, |(rows, x_column, out_column, n_columns, more, write, seed)| {
        let mut random = Random(seed);
        let (x_cols, out_cols) = (x_column + n_columns + more, out_column + n_columns + more);
        let x = random.values::<D::Scalar>(rows * x_cols, true);
        // Columns beside those copied keep their values.
        let start = random.values::<D::Scalar>(rows * out_cols, true);
        let mut expected = to_f64(&start);
        for i in 0..rows {
            for j in 0..n_columns {
                let (out, x) = (&mut expected[i * out_cols + out_column + j], &x[i * x_cols + x_column + j]);
                *out = if write == Write::Add { *out } else { 0.0 } + x.widen_f64();
            }
        }
        let (x, mut out) = (Guarded::new(device, &x), Guarded::new(device, &start));
        let out_matrix = out.matrix_mut(rows, out_cols);
        device
            .copy_columns(x.matrix(rows, x_cols), x_column, out_matrix, out_column, n_columns, write)
            .unwrap();
        assert_eq!(to_f64(&out.read()), expected);
    });
}

/// Whether dropout keeps an element, by its definition.
fn is_kept(p: f64, seed: u64, stream: u64, row: u32, column: usize) -> bool {
    let halves = |x: u64| [x as u32, (x >> 32) as u32];
    let [low, high] = halves(stream);
    let words = philox4x32([row, column as u32 / 4, low, high], halves(seed));
    u64::from(words[column % 4]) >= (p * 4_294_967_296.0) as u64
}

fn dropout<D: Elementwise>(device: &D) {
    let probabilities = prop_oneof![Just(0.0), Just(0.5), Just(1.0 - f64::EPSILON / 2.0), 0.0..1.0];
    let cases = (row_counts(), dims(), probabilities, any::<bool>(), any::<u64>(), any::<u64>());
    for_cases(cases, |(rows, cols, p, with_rows, seed, stream)| {
        let mut random = Random(seed);
        let x = random.values::<D::Scalar>(rows * cols, false);
        let ids: Vec<u32> = (0..rows).map(|_| random.word() as u32).collect();
        let (x_on, ids_on) = (Guarded::new(device, &x), Guarded::new(device, &ids));
        let mut out = Guarded::poisoned(device, rows * cols);
        let ids_view = with_rows.then(|| ids_on.view());
        let out_matrix = out.matrix_mut(rows, cols);
        device.dropout(p, seed, stream, ids_view, x_on.matrix(rows, cols), out_matrix).unwrap();
        let expected = x.iter().enumerate().map(|(k, x)| {
            let row = if with_rows { ids[k / cols] } else { (k / cols) as u32 };
            if is_kept(p, seed, stream, row, k % cols) { x.widen_f64() / (1.0 - p) } else { 0.0 }
        });
        Expected::from(expected.collect()).check(&out.read(), false);
    });
}

/// A vertex has the same mask wherever its row stands.
fn dropout_does_not_depend_on_the_place<D: Elementwise>(device: &D) {
    let (rows, cols) = (50, 70);
    let x = vec![D::Scalar::from_f64(1.0); rows * cols];
    let run = |ids: &[u32]| {
        let (x, ids) = (Guarded::new(device, &x), Guarded::new(device, ids));
        let mut out = Guarded::poisoned(device, rows * cols);
        device
            .dropout(0.3, 1, 2, Some(ids.view()), x.matrix(rows, cols), out.matrix_mut(rows, cols))
            .unwrap();
        to_f64(&out.read())
    };
    let order = Random(5).shuffled(rows);
    let in_order = run(&(0..rows as u32).collect::<Vec<_>>());
    let shuffled = run(&order);
    for (row, &id) in shuffled.chunks(cols).zip(&order) {
        assert_eq!(row, &in_order[id as usize * cols..][..cols]);
    }
}

fn dropout_rate<D: Elementwise>(device: &D) {
    let (rows, cols, p) = (400, 250, 0.3);
    let x = Guarded::new(device, &vec![D::Scalar::from_f64(1.0); rows * cols]);
    let mut out = Guarded::poisoned(device, rows * cols);
    device.dropout(p, 11, 0, None, x.matrix(rows, cols), out.matrix_mut(rows, cols)).unwrap();
    let dropped = out.read().iter().filter(|v| v.widen_f64() == 0.0).count() as f64;
    let n = (rows * cols) as f64;
    // Five standard deviations.
    assert_abs_diff_eq!(dropped, n * p, epsilon = 5.0 * (n * p * (1.0 - p)).sqrt());
}

/// Every length, aligned or not: the guards show what is written beyond.
fn fill<D: Elementwise>(device: &D) {
    for len in (0..=70).chain([5000]) {
        let mut words = Guarded::new(device, &vec![7u32; len]);
        device.fill(0xdead_beef, words.view_mut()).unwrap();
        assert_eq!(words.read(), vec![0xdead_beef; len]);
        let mut halves = Guarded::new(device, &vec![7u16; len]);
        device.fill(0xbeef, halves.view_mut()).unwrap();
        assert_eq!(halves.read(), vec![0xbeef; len]);
        let mut long = Guarded::new(device, &vec![7u64; len]);
        device.fill(u64::MAX - 1, long.view_mut()).unwrap();
        assert_eq!(long.read(), vec![u64::MAX - 1; len]);
    }
}

fn wrong_lengths_are_errors<D: Elementwise>(device: &D) {
    let values = Guarded::new(device, &[D::Scalar::from_f64(1.0); 6]);
    let few = D::slice(values.view(), 0..2);
    let mut out = Guarded::new(device, &[D::Scalar::from_f64(7.0); 4]);
    let add = Write::Add;
    assert!(matches!(device.scale(1.0, values.view(), out.view_mut(), add), Err(Error::WrongLength { .. })));
    assert!(device.multiply(values.view(), few, out.view_mut(), add).is_err());
    assert!(device.divide(1.0, values.view(), few, out.view_mut(), add).is_err());
    assert!(device.divide(1.0, values.view(), values.view(), out.view_mut(), add).is_err());
    assert!(device.map(Function::Exponential, values.view(), out.view_mut()).is_err());
    assert!(device.add_bias_activate(Some(values.view()), None, out.matrix_mut(2, 2)).is_err());
    assert!(device.sum_rows(values.matrix(3, 2), out.view_mut(), add).is_err());
    assert!(device.dot(values.view(), Some(few), D::slice_mut(out.view_mut(), 0..1)).is_err());
    assert!(device.dot(values.view(), None, out.view_mut()).is_err());
    assert!(device.scale_rows(few, values.matrix(3, 2), out.matrix_mut(2, 2), add).is_err());
    assert!(device.copy_columns(values.matrix(3, 2), 0, out.matrix_mut(2, 2), 0, 1, add).is_err());
    assert!(device.copy_columns(values.matrix(2, 3), 2, out.matrix_mut(2, 2), 0, 2, add).is_err());
    assert!(device.copy_columns(values.matrix(2, 3), 0, out.matrix_mut(2, 2), usize::MAX, 2, add).is_err());
    assert!(device.activate_backward(Activation::Relu, values.view(), out.view_mut()).is_err());
    for p in [-0.1, 1.0, f64::NAN] {
        let x = crate::device::Matrix::from_view(D::slice(values.view(), 0..4), 2, 2).unwrap();
        let error = device.dropout(p, 0, 0, None, x, out.matrix_mut(2, 2)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "p", .. }), "{error}");
    }
    assert_eq!(to_f64(&out.read()), [7.0; 4]);
}
