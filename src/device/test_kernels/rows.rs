//! Gather, scatter and the loss: kernels that go by a label or an index a row.

use half::{bf16, f16};
use proptest::prelude::*;

use super::{Expected, Guarded, Kernels, Random, dims, for_cases, test_cpus, test_devices, to_f64};
use crate::device::{FeatureElement, IGNORED, Scalar};
use crate::error::Error;

test_cpus! {
    gather gather_out_of_range scatter_add scatter_out_of_range_writes_nothing
    log_softmax_nll log_softmax_nll_of_extreme_logits labels_out_of_range
}

fn check_gather<D: Kernels, E: FeatureElement>(device: &D, table: &[E], dim: usize, n_out: usize, seed: u64) {
    let mut random = Random(seed);
    let n_table = table.len().checked_div(dim).unwrap_or(7);
    let index: Vec<u32> =
        (0..if n_table == 0 { 0 } else { n_out }).map(|_| random.index(n_table) as u32).collect();
    let (table_view, index_view) = (Guarded::new(device, table), Guarded::new(device, &index));
    let mut out = Guarded::poisoned(device, index.len() * dim);
    device.gather(table_view.view(), n_table, index_view.view(), out.matrix_mut(index.len(), dim)).unwrap();
    let expected = index.iter().flat_map(|&i| &table[i as usize * dim..][..dim]);
    let expected: Vec<f64> =
        expected.map(|value| D::Scalar::from_f64(value.widen_f64()).widen_f64()).collect();
    assert_eq!(to_f64(&out.read()), expected);
}

fn gather<D: Kernels>(device: &D) {
    let shapes = (0..60usize, prop_oneof![0..60usize, Just(1500)], dims(), any::<u64>());
    for_cases(shapes, |(n_table, n_out, dim, seed)| {
        let table = Random(!seed).values::<f64>(n_table * dim, false);
        check_gather(device, &table, dim, n_out, seed);
        let narrow: Vec<f32> = table.iter().map(|&v| v as f32).collect();
        check_gather(device, &narrow, dim, n_out, seed);
        let narrow: Vec<f16> = table.iter().map(|&v| f16::from_f64(v)).collect();
        check_gather(device, &narrow, dim, n_out, seed);
        let narrow: Vec<bf16> = table.iter().map(|&v| bf16::from_f64(v)).collect();
        check_gather(device, &narrow, dim, n_out, seed);
    });
}

fn gather_out_of_range<D: Kernels>(device: &D) {
    let table = Guarded::new(device, &[1f32; 6]);
    for index in [[0, 3, 1], [0, u32::MAX, 1]] {
        let mut out = Guarded::poisoned(device, 6);
        let index_view = Guarded::new(device, &index);
        let error = device.gather(table.view(), 3, index_view.view(), out.matrix_mut(3, 2)).unwrap_err();
        let Error::IndexOutOfRange { position: 1, value, limit: 3, .. } = error else { panic!("{error}") };
        assert_eq!(value, i64::from(index[1]));
        out.read();
    }
    // Rows without columns are checked too.
    let empty = Guarded::new(device, &[0f32; 0]);
    let mut out = Guarded::poisoned(device, 0);
    let index = Guarded::new(device, &[3]);
    assert!(device.gather(empty.view(), 3, index.view(), out.matrix_mut(1, 0)).is_err());
    // Lengths that do not fit.
    let mut out = Guarded::poisoned(device, 4);
    let index = Guarded::new(device, &[0, 1, 2]);
    assert!(device.gather(table.view(), 3, index.view(), out.matrix_mut(2, 2)).is_err());
    let index = Guarded::new(device, &[0, 1]);
    assert!(device.gather(table.view(), 4, index.view(), out.matrix_mut(2, 2)).is_err());
}

fn scatter_add<D: Kernels>(device: &D) {
    let shapes = (prop_oneof![0..60usize, Just(1500)], 0..40usize, dims(), any::<bool>(), any::<u64>());
    for_cases(shapes, |(rows, n_out, dim, integers, seed)| {
        let mut random = Random(seed);
        let rows = if n_out == 0 { 0 } else { rows };
        let index: Vec<u32> = (0..rows).map(|_| random.index(n_out) as u32).collect();
        let x = random.values::<D::Scalar>(rows * dim, integers);
        let start = random.values::<D::Scalar>(n_out * dim, integers);
        let mut expected = Expected::from(to_f64(&start));
        for (i, &j) in index.iter().enumerate() {
            for c in 0..dim {
                expected.add(j as usize * dim + c, x[i * dim + c].widen_f64());
            }
        }
        let mut out = Guarded::new(device, &start);
        let (x, index) = (Guarded::new(device, &x), Guarded::new(device, &index));
        device.scatter_add(x.matrix(rows, dim), index.view(), out.matrix_mut(n_out, dim)).unwrap();
        expected.check(&out.read(), integers);
    });
}

fn scatter_out_of_range_writes_nothing<D: Kernels>(device: &D) {
    let x = Guarded::new(device, &[D::Scalar::from_f64(1.0); 6]);
    let index = Guarded::new(device, &[0, 1, 2]);
    let mut out = Guarded::new(device, &[D::Scalar::from_f64(5.0); 4]);
    let error = device.scatter_add(x.matrix(3, 2), index.view(), out.matrix_mut(2, 2)).unwrap_err();
    assert!(matches!(error, Error::IndexOutOfRange { position: 2, value: 2, limit: 2, .. }), "{error}");
    assert_eq!(to_f64(&out.read()), [5.0; 4]);
    assert!(device.scatter_add(x.matrix(2, 3), index.view(), out.matrix_mut(2, 2)).is_err());
    assert!(device.scatter_add(x.matrix(6, 1), index.view(), out.matrix_mut(2, 2)).is_err());
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

fn log_softmax_nll<D: Kernels>(device: &D) {
    let shapes =
        (prop_oneof![0..40usize, Just(900)], 1..60usize, prop_oneof![Just(1.0), Just(50.0)], any::<u64>());
    for_cases(shapes, |(n, n_class, scale, seed)| {
        let mut random = Random(seed);
        let logits = random.values::<D::Scalar>(n * n_class, false);
        let logits: Vec<_> = logits.iter().map(|&v| v * D::Scalar::from_f64(scale)).collect();
        let labels: Vec<i32> = (0..n).map(|_| random.index(n_class + 1) as i32 - 1).collect();
        let (factor, dloss) = (0.125, 3.0);
        let (lse, loss, gradient) = naive_nll(&to_f64(&logits), &labels, n_class, factor * dloss);

        let (logits, labels) = (Guarded::new(device, &logits), Guarded::new(device, &labels));
        let (mut lse_out, mut loss_out) = (Guarded::poisoned(device, n), Guarded::poisoned(device, n));
        device
            .log_softmax_nll(
                logits.matrix(n, n_class),
                labels.view(),
                lse_out.view_mut(),
                loss_out.view_mut(),
            )
            .unwrap();
        let check = |expected: Vec<f64>, magnitude: f64, actual: Vec<D::Scalar>| {
            let magnitudes = vec![magnitude; expected.len()];
            Expected { values: expected, magnitudes }.check(&actual, false);
        };
        check(lse, scale, lse_out.read());
        check(loss, 2.0 * scale, loss_out.read());

        let dloss = Guarded::new(device, &[D::Scalar::from_f64(dloss)]);
        let mut dlogits = Guarded::poisoned(device, n * n_class);
        let dlogits_matrix = dlogits.matrix_mut(n, n_class);
        let logits = logits.matrix(n, n_class);
        device
            .log_softmax_nll_backward(
                logits,
                labels.view(),
                lse_out.view(),
                factor,
                dloss.view(),
                dlogits_matrix,
            )
            .unwrap();
        // The exponent lse − logit is as coarse as the logits are large.
        check(gradient, scale, dlogits.read());
    });
}

fn log_softmax_nll_of_extreme_logits<D: Kernels>(device: &D) {
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

fn labels_out_of_range<D: Kernels>(device: &D) {
    let logits = Guarded::new(device, &[D::Scalar::from_f64(0.0); 6]);
    let (mut lse, mut loss) = (Guarded::poisoned(device, 2), Guarded::poisoned(device, 2));
    for bad in [3, -2, i32::MAX, i32::MIN] {
        let labels = Guarded::new(device, &[IGNORED, bad]);
        let matrix = logits.matrix(2, 3);
        let error =
            device.log_softmax_nll(matrix, labels.view(), lse.view_mut(), loss.view_mut()).unwrap_err();
        let Error::IndexOutOfRange { position: 1, value, limit: 3, .. } = error else { panic!("{error}") };
        assert_eq!(value, i64::from(bad));
    }
    let labels = Guarded::new(device, &[0]);
    let matrix = logits.matrix(2, 3);
    assert!(device.log_softmax_nll(matrix, labels.view(), lse.view_mut(), loss.view_mut()).is_err());
}
