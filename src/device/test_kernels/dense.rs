//! Batch norm and the optimisers.

use proptest::prelude::*;

use super::{Expected, Guarded, Kernels, Random, dims, for_cases, test_cpus, test_devices, to_f64};
use crate::device::{AdamStep, FeatureElement, Scalar, SgdStep};
use crate::error::Error;

test_cpus! {
    batch_norm adam sgd optimizer_arguments
}

/// The formulas in f64, element by element.
fn batch_norm<D: Kernels>(device: &D) {
    let shapes =
        (prop_oneof![0..40usize, Just(3000)], dims(), prop_oneof![Just(0), Just(1), Just(2)], any::<u64>());
    for_cases(shapes, |(rows, cols, times, seed)| {
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
        let expected: Vec<f64> =
            (0..x.len()).map(|k| standard(k) * gain[k % cols] + bias[k % cols]).collect();
        Expected { magnitudes: vec![3.0; x.len()], values: expected }.check(&out.read(), false);

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
        Expected { magnitudes: vec![4.0; x.len()], values }.check(&dx.read(), false);
    });
}

fn adam<D: Kernels>(device: &D) {
    let cases = (prop_oneof![0..70usize, Just(20_000)], any::<bool>(), 1..4u64, any::<u64>());
    for_cases(cases, |(len, decoupled, first_step, seed)| {
        let mut random = Random(seed);
        let (lr, beta1, beta2, epsilon, weight_decay) = (0.03, 0.9, 0.99, 1e-6, 0.1);
        let [grad, parameter] = [random.values::<D::Scalar>(len, false), random.values(len, false)];
        let mut m = random.values::<D::Scalar>(len, false);
        let mut v: Vec<_> = random.values::<D::Scalar>(len, false).iter().map(|&v| v * v).collect();
        let (mut m_on, mut v_on) = (Guarded::new(device, &m), Guarded::new(device, &v));
        let (grad_on, mut parameter_on) = (Guarded::new(device, &grad), Guarded::new(device, &parameter));
        let mut p = to_f64(&parameter);
        for step in first_step..first_step + 3 {
            let constants = AdamStep { lr, beta1, beta2, epsilon, weight_decay, decoupled, step };
            device
                .adam(constants, grad_on.view(), m_on.view_mut(), v_on.view_mut(), parameter_on.view_mut())
                .unwrap();
            let (mut m64, mut v64) = (to_f64(&m), to_f64(&v));
            for i in 0..len {
                let mut g = grad[i].widen_f64();
                if decoupled {
                    p[i] *= 1.0 - lr * weight_decay;
                } else {
                    g += weight_decay * p[i];
                }
                m64[i] = beta1 * m64[i] + (1.0 - beta1) * g;
                v64[i] = beta2 * v64[i] + (1.0 - beta2) * g * g;
                let (m_hat, v_hat) =
                    (m64[i] / (1.0 - beta1.powi(step as i32)), v64[i] / (1.0 - beta2.powi(step as i32)));
                p[i] -= lr * m_hat / (v_hat.sqrt() + epsilon);
            }
            (m, v) = (m_on.read(), v_on.read());
            let check = |values: Vec<f64>, magnitude: f64, actual: &[D::Scalar]| {
                Expected { magnitudes: vec![magnitude; len], values }.check(actual, false);
            };
            check(m64, 1.0, &m);
            check(v64, 1.0, &v);
            check(p, 1.0, &parameter_on.read());
            p = to_f64(&parameter_on.read());
        }
        assert_eq!(to_f64(&grad_on.read()), to_f64(&grad));
    });
}

fn sgd<D: Kernels>(device: &D) {
    let cases = (prop_oneof![0..70usize, Just(20_000)], prop_oneof![Just(0.0), Just(0.9)], any::<u64>());
    for_cases(cases, |(len, momentum, seed)| {
        let mut random = Random(seed);
        let (lr, weight_decay) = (0.05, 0.01);
        let mut values = || random.values::<D::Scalar>(len, false);
        let (grad, velocity, parameter) = (values(), values(), values());
        let (grad_on, mut velocity_on) = (Guarded::new(device, &grad), Guarded::new(device, &velocity));
        let mut parameter_on = Guarded::new(device, &parameter);
        let step = SgdStep { lr, momentum, weight_decay };
        device.sgd(step, grad_on.view(), velocity_on.view_mut(), parameter_on.view_mut()).unwrap();
        let new_velocity = |i: usize| {
            momentum * velocity[i].widen_f64() + grad[i].widen_f64() + weight_decay * parameter[i].widen_f64()
        };
        let values = (0..len).map(|i| parameter[i].widen_f64() - lr * new_velocity(i)).collect();
        Expected { magnitudes: vec![2.0; len], values }.check(&parameter_on.read(), false);
        if momentum == 0.0 {
            assert_eq!(to_f64(&velocity_on.read()), to_f64(&velocity));
        } else {
            Expected { magnitudes: vec![2.0; len], values: (0..len).map(new_velocity).collect() }
                .check(&velocity_on.read(), false);
        }
    });
}

fn optimizer_arguments<D: Kernels>(device: &D) {
    let step = AdamStep {
        lr: 0.1,
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-8,
        weight_decay: 0.0,
        decoupled: false,
        step: 0,
    };
    let grad = Guarded::new(device, &[D::Scalar::from_f64(1.0); 3]);
    let [mut m, mut v, mut parameter] =
        [0, 1, 2].map(|_| Guarded::new(device, &[D::Scalar::from_f64(0.0); 3]));
    let error = device.adam(step, grad.view(), m.view_mut(), v.view_mut(), parameter.view_mut()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "step", .. }), "{error}");
    let mut long = Guarded::new(device, &[D::Scalar::from_f64(0.0); 4]);
    let step = AdamStep { step: 1, ..step };
    let error = device.adam(step, grad.view(), m.view_mut(), v.view_mut(), long.view_mut()).unwrap_err();
    assert!(matches!(error, Error::WrongLength { array: "grad", actual: 3, expected: 4 }), "{error}");
    let step = SgdStep { lr: 0.1, momentum: 0.9, weight_decay: 0.0 };
    assert!(device.sgd(step, grad.view(), long.view_mut(), parameter.view_mut()).is_err());
    assert_eq!(to_f64(&parameter.read()), [0.0; 3]);
}
