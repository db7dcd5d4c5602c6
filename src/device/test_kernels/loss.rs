//! Log-softmax and negative log-likelihood, and losses of one element.

use approx::{abs_diff_eq, assert_abs_diff_eq};
use proptest::prelude::*;

use super::{Expected, Guarded, Random, for_cases, test_devices, to_f64};
use crate::device::{ElementLoss, FeatureElement, IGNORED, Loss, Scalar};
use crate::error::{Error, Result};

test_devices! {
    log_softmax_nll log_softmax_nll_of_many_classes log_softmax_nll_of_extreme_logits labels_out_of_range
    right_predictions_are_counted right_predictions_among_equals_and_nan
    element_losses element_losses_of_extreme_values element_losses_of_wrong_lengths_are_errors
}

/// Loss and its gradient in f64: lse, loss, gradient.
fn naive_nll(logits: &[f64], labels: &[i32], n_class: usize, factor: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let (mut lse, mut loss, mut gradient) = (Vec::new(), Vec::new(), Vec::new());
    for (i, &label) in labels.iter().enumerate() {
        let row = &logits[i * n_class..][..n_class];
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
        lse.push(log_sum);
        loss.push(if label == IGNORED { 0.0 } else { log_sum - row[label as usize] });
        gradient.extend(row.iter().enumerate().map(|(c, x)| {
            let target = if c as i32 == label { 1.0 } else { 0.0 };
            if label == IGNORED { 0.0 } else { factor * ((x - log_sum).exp() - target) }
        }));
    }
    (lse, loss, gradient)
}

fn check_nll<D: Loss>(device: &D, n: usize, n_class: usize, scale: f64, seed: u64) {
    let mut random = Random(seed);
    let logits = random.values::<D::Scalar>(n * n_class, false);
    let logits: Vec<_> = logits.iter().map(|&v| v * D::Scalar::from_f64(scale)).collect();
    let labels: Vec<i32> = (0..n).map(|_| random.index(n_class + 1) as i32 - 1).collect();
    let (factor, dloss) = (0.125, 3.0);
    let (lse, loss, gradient) = naive_nll(&to_f64(&logits), &labels, n_class, factor * dloss);

    let (logits, labels) = (Guarded::new(device, &logits), Guarded::new(device, &labels));
    let (mut lse_out, mut loss_out) = (Guarded::poisoned(device, n), Guarded::poisoned(device, n));
    device
        .log_softmax_nll(logits.matrix(n, n_class), labels.view(), lse_out.view_mut(), loss_out.view_mut())
        .unwrap();
    let check = |expected: Vec<f64>, magnitude: f64, actual: Vec<D::Scalar>| {
        let magnitudes = vec![magnitude; expected.len()];
        Expected::scaled(expected, magnitudes).check(&actual, false);
    };
    check(lse, scale, lse_out.read());
    check(loss, 2.0 * scale, loss_out.read());

    let dloss = Guarded::new(device, &[D::Scalar::from_f64(dloss)]);
    let mut dlogits = Guarded::poisoned(device, n * n_class);
    let dlogits_matrix = dlogits.matrix_mut(n, n_class);
    let logits = logits.matrix(n, n_class);
    device
        .log_softmax_nll_backward(logits, labels.view(), lse_out.view(), factor, dloss.view(), dlogits_matrix)
        .unwrap();
    // The exponent lse − logit is as coarse as the logits are large.
    check(gradient, scale, dlogits.read());
}

fn log_softmax_nll<D: Loss>(device: &D) {
    let rows = prop_oneof![3 => 0..40usize, 1 => Just(900)];
    let shapes = (rows, 1..60usize, prop_oneof![Just(1.0), Just(50.0)], any::<u64>());
    for_cases(shapes, |(n, n_class, scale, seed)| check_nll(device, n, n_class, scale, seed));
}

fn log_softmax_nll_of_many_classes<D: Loss>(device: &D) {
    for (n, n_class) in [(100, 172), (3, 1024), (9, 349), (1, 100_000), (100_000, 2)] {
        check_nll(device, n, n_class, 1.0, 3);
    }
}

fn log_softmax_nll_of_extreme_logits<D: Loss>(device: &D) {
    let logits = [
        1e4,
        -1e4,
        0.0,
        -1e4,
        -1e4,
        -1e4,
        f64::NAN,
        1.0,
        2.0,
        3.0,
        f64::NAN,
        1.0,
        f64::NEG_INFINITY,
        0.0,
        0.0,
    ];
    let logits = Guarded::new(device, &logits.map(D::Scalar::from_f64));
    let labels = Guarded::new(device, &[0, 1, 2, IGNORED, 1]);
    let (mut lse, mut loss) = (Guarded::poisoned(device, 5), Guarded::poisoned(device, 5));
    device.log_softmax_nll(logits.matrix(5, 3), labels.view(), lse.view_mut(), loss.view_mut()).unwrap();
    let loss = to_f64(&loss.read());
    assert_eq!(loss[0], 0.0);
    assert_abs_diff_eq!(loss[1], 3f64.ln(), epsilon = 2e-3);
    assert!(loss[2].is_nan(), "{loss:?}");
    assert_eq!(loss[3], 0.0);
    assert_abs_diff_eq!(loss[4], 2f64.ln(), epsilon = 1e-6);
    let mut dlogits = Guarded::poisoned(device, 15);
    let one = Guarded::new(device, &[D::Scalar::from_f64(1.0)]);
    let matrix = dlogits.matrix_mut(5, 3);
    device
        .log_softmax_nll_backward(logits.matrix(5, 3), labels.view(), lse.view(), 1.0, one.view(), matrix)
        .unwrap();
    let gradient = to_f64(&dlogits.read());
    assert_eq!(gradient[..3], [0.0; 3]);
    assert!(gradient[6..9].iter().all(|g| g.is_nan()));
    assert_eq!(gradient[9..12], [0.0; 3]);
    assert_eq!(gradient[12], 0.0);
}

fn labels_out_of_range<D: Loss>(device: &D) {
    let logits = Guarded::new(device, &[D::Scalar::from_f64(0.0); 6]);
    let (mut lse, mut loss) = (Guarded::poisoned(device, 2), Guarded::poisoned(device, 2));
    let (one, mut dlogits) =
        (Guarded::new(device, &[D::Scalar::from_f64(1.0)]), Guarded::poisoned(device, 6));
    let is_out_of_range = |result: Result<()>, bad: i32| {
        let error = result.unwrap_err();
        let Error::IndexOutOfRange { array: "labels", position: 1, value, limit: 3 } = error else {
            panic!("{error}")
        };
        assert_eq!(value, i64::from(bad));
    };
    for bad in [3, -2, i32::MAX, i32::MIN] {
        let labels = Guarded::new(device, &[IGNORED, bad]);
        let matrix = logits.matrix(2, 3);
        let forward = device.log_softmax_nll(matrix, labels.view(), lse.view_mut(), loss.view_mut());
        is_out_of_range(forward.and_then(|()| device.synchronize()), bad);
        let backward = device.log_softmax_nll_backward(
            matrix,
            labels.view(),
            lse.view(),
            1.0,
            one.view(),
            dlogits.matrix_mut(2, 3),
        );
        is_out_of_range(backward.and_then(|()| device.synchronize()), bad);
    }
    let labels = Guarded::new(device, &[0]);
    let matrix = logits.matrix(2, 3);
    assert!(device.log_softmax_nll(matrix, labels.view(), lse.view_mut(), loss.view_mut()).is_err());
}

fn right_predictions_are_counted<D: Loss>(device: &D) {
    let rows = prop_oneof![3 => 0..40usize, 1 => Just(5000)];
    for_cases((rows, 0..70usize, any::<u64>()), |(n, n_class, seed)| {
        let mut random = Random(seed);
        // Few values, so that the largest is often there several times.
        let scores: Vec<D::Scalar> =
            (0..n * n_class).map(|_| D::Scalar::from_f64(random.index(n_class) as f64)).collect();
        let labels: Vec<i32> = (0..n).map(|_| random.index(n_class + 2) as i32 - 1).collect();
        let first_largest = |row: &[f64]| {
            let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            row.iter().position(|&x| x == most).unwrap() as i32
        };
        let rows = to_f64(&scores);
        let right = if n_class == 0 {
            0
        } else {
            rows.chunks(n_class).zip(&labels).filter(|(row, label)| first_largest(row) == **label).count()
        };
        let (scores, labels) = (Guarded::new(device, &scores), Guarded::new(device, &labels));
        let mut out = Guarded::new(device, &[7u32]);
        device.count_right(scores.matrix(n, n_class), labels.view(), out.view_mut()).unwrap();
        assert_eq!(out.read(), [7 + right as u32]);
    });
}

fn right_predictions_among_equals_and_nan<D: Loss>(device: &D) {
    let (nan, low) = (f64::NAN, f64::NEG_INFINITY);
    let rows = [([nan, 1.0, 1.0], 1), ([nan, nan, nan], 0), ([low, nan, low], 0), ([0.0, 0.0, -0.0], 0)];
    let scores = rows.map(|(row, _)| row).concat();
    let scores: Vec<_> = scores.into_iter().map(D::Scalar::from_f64).collect();
    let scores = Guarded::new(device, &scores);
    for (column, expected) in [(0, 3), (1, 1), (2, 0), (IGNORED, 0), (3, 0), (i32::MIN, 0)] {
        let labels = Guarded::new(device, &[column; 4]);
        let mut out = Guarded::new(device, &[0u32]);
        device.count_right(scores.matrix(4, 3), labels.view(), out.view_mut()).unwrap();
        assert_eq!(out.read(), [expected], "{column}");
    }
    let (labels, mut out) = (Guarded::new(device, &[0; 3]), Guarded::new(device, &[0u32]));
    assert!(device.count_right(scores.matrix(4, 3), labels.view(), out.view_mut()).is_err());
}

const ELEMENT_LOSSES: [ElementLoss; 2] = [ElementLoss::BinaryCrossEntropy, ElementLoss::SquaredError];

/// A loss and its derivative by their definitions, in f64; no |x| is large.
fn naive_element_loss(kind: ElementLoss, x: f64, target: f64) -> (f64, f64) {
    if target.is_nan() {
        return (0.0, 0.0);
    }
    match kind {
        ElementLoss::BinaryCrossEntropy => {
            let sigmoid = 1.0 / (1.0 + (-x).exp());
            let rest = 1.0 / (1.0 + x.exp());
            (-target * sigmoid.ln() - (1.0 - target) * rest.ln(), sigmoid - target)
        }
        ElementLoss::SquaredError => ((x - target).powi(2), 2.0 * (x - target)),
    }
}

fn element_losses<D: Loss>(device: &D) {
    let lens = prop_oneof![3 => 0..70usize, 1 => Just(70_001)];
    let cases = (lens, 0..2usize, prop_oneof![Just(1.0), Just(15.0)], any::<u64>());
    for_cases(cases, |(len, which, scale, seed)| {
        let (kind, mut random) = (ELEMENT_LOSSES[which], Random(seed));
        let x: Vec<_> = random.values::<f64>(len, false);
        let x: Vec<_> = x.iter().map(|&x| D::Scalar::from_f64(scale * x)).collect();
        let target: Vec<_> = (0..len)
            .map(|_| D::Scalar::from_f64([0.0, 1.0, 0.25, f64::NAN, f64::NAN][random.index(5)]))
            .collect();
        let (factor, dloss) = (0.125, 3.0);
        let expected = x.iter().zip(&target);
        let expected = expected.map(|(x, t)| naive_element_loss(kind, x.widen_f64(), t.widen_f64()));
        let (loss, slope): (Vec<f64>, Vec<f64>) = expected.unzip();

        let (x, target) = (Guarded::new(device, &x), Guarded::new(device, &target));
        let mut out = Guarded::poisoned(device, len);
        device.element_loss(kind, x.view(), target.view(), out.view_mut()).unwrap();
        Expected::scaled(loss, vec![1.0 + scale; len]).check(&out.read(), false);

        let dloss_on = Guarded::new(device, &[D::Scalar::from_f64(dloss)]);
        let mut dx = Guarded::poisoned(device, len);
        let (x, target) = (x.view(), target.view());
        device.element_loss_backward(kind, x, target, factor, dloss_on.view(), dx.view_mut()).unwrap();
        let slope = slope.into_iter().map(|slope| factor * dloss * slope).collect();
        Expected::scaled(slope, vec![1.0; len]).check(&dx.read(), false);
    });
}

fn element_losses_of_extreme_values<D: Loss>(device: &D) {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    // A logit, its target, and what they give.
    let cases = [
        (1e4, 1.0, 0.0, 0.0),
        (1e4, 0.0, 1e4, 1.0),
        (-1e4, 0.0, 0.0, 0.0),
        (-1e4, 1.0, 1e4, -1.0),
        (0.0, 0.5, std::f64::consts::LN_2, 0.0),
        (nan, 1.0, nan, nan),
        (nan, nan, 0.0, 0.0),
        (inf, nan, 0.0, 0.0),
    ];
    let n = cases.len();
    let x = Guarded::new(device, &cases.map(|case| D::Scalar::from_f64(case.0)));
    let target = Guarded::new(device, &cases.map(|case| D::Scalar::from_f64(case.1)));
    let one = Guarded::new(device, &[D::Scalar::from_f64(1.0)]);
    let (mut loss, mut dx) = (Guarded::poisoned(device, n), Guarded::poisoned(device, n));
    let kind = ElementLoss::BinaryCrossEntropy;
    device.element_loss(kind, x.view(), target.view(), loss.view_mut()).unwrap();
    device.element_loss_backward(kind, x.view(), target.view(), 1.0, one.view(), dx.view_mut()).unwrap();
    let agrees = |a: f64, b: f64| {
        a == b || a.is_nan() && b.is_nan() || abs_diff_eq!(a, b, epsilon = 1e-6 * b.abs().max(1.0))
    };
    for ((case, loss), dx) in cases.iter().zip(to_f64(&loss.read())).zip(to_f64(&dx.read())) {
        assert!(agrees(loss, case.2) && agrees(dx, case.3), "{case:?}: {loss}, {dx}");
    }

    let kind = ElementLoss::SquaredError;
    device.element_loss(kind, x.view(), target.view(), loss.view_mut()).unwrap();
    device.element_loss_backward(kind, x.view(), target.view(), 1.0, one.view(), dx.view_mut()).unwrap();
    let (loss, dx) = (to_f64(&loss.read()), to_f64(&dx.read()));
    assert!(loss[5].is_nan() && dx[5].is_nan(), "{loss:?}, {dx:?}");
    assert_eq!((&loss[6..], &dx[6..]), (&[0.0; 2][..], &[0.0; 2][..]));
}

fn element_losses_of_wrong_lengths_are_errors<D: Loss>(device: &D) {
    let values = Guarded::new(device, &[D::Scalar::from_f64(1.0); 3]);
    let (all, few) = (values.view(), D::slice(values.view(), 0..2));
    let one = D::slice(values.view(), 0..1);
    let mut out = Guarded::new(device, &[D::Scalar::from_f64(7.0); 3]);
    for kind in ELEMENT_LOSSES {
        assert!(device.element_loss(kind, all, few, out.view_mut()).is_err());
        assert!(device.element_loss(kind, few, few, out.view_mut()).is_err());
        assert!(device.element_loss_backward(kind, all, few, 1.0, one, out.view_mut()).is_err());
        assert!(device.element_loss_backward(kind, all, all, 1.0, few, out.view_mut()).is_err());
        assert!(device.element_loss_backward(kind, few, few, 1.0, one, out.view_mut()).is_err());
    }
    assert_eq!(to_f64(&out.read()), [7.0; 3]);
}
