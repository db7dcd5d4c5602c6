//! Log-softmax and negative log-likelihood.

use proptest::prelude::*;

use super::{Expected, Guarded, Random, for_cases, test_devices, to_f64};
use crate::device::{IGNORED, Loss, Scalar};
use crate::error::{Error, Result};

test_devices! {
    log_softmax_nll log_softmax_nll_of_many_classes log_softmax_nll_of_extreme_logits labels_out_of_range
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
    assert!((loss[1] - 3f64.ln()).abs() < 2e-3, "{loss:?}");
    assert!(loss[2].is_nan(), "{loss:?}");
    assert_eq!(loss[3], 0.0);
    assert!((loss[4] - 2f64.ln()).abs() < 1e-6, "{loss:?}");
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
