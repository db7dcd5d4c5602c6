//! Optimiser steps.

use proptest::prelude::*;

use super::{Expected, Guarded, Random, dims, for_cases, test_devices, to_f64};
use crate::device::{AdamParameter, AdamStep, FeatureElement, Optimizer, Scalar, SgdParameter, SgdStep};
use crate::error::Error;

test_devices! {
    adam adam_of_rows adam_of_rows_out_of_order_or_range sgd optimizer_arguments many_parameters
}

const STEP: AdamStep = AdamStep {
    lr: 0.01,
    beta1: 0.9,
    beta2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.1,
    decoupled: false,
    step: 3,
};

fn adam<D: Optimizer>(device: &D) {
    let cases = (prop_oneof![0..70usize, Just(5000)], any::<bool>(), 1..4u64, any::<u64>());
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
                Expected::scaled(values, vec![magnitude; len]).check(actual, false);
            };
            check(m64, 1.0, &m);
            check(v64, 1.0, &v);
            check(p, 1.0, &parameter_on.read());
            p = to_f64(&parameter_on.read());
        }
        assert_eq!(to_f64(&grad_on.read()), to_f64(&grad));
    });
}

fn sgd<D: Optimizer>(device: &D) {
    let cases = (prop_oneof![0..70usize, Just(5000)], prop_oneof![Just(0.0), Just(0.9)], any::<u64>());
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
        Expected::scaled(values, vec![2.0; len]).check(&parameter_on.read(), false);
        if momentum == 0.0 {
            assert_eq!(to_f64(&velocity_on.read()), to_f64(&velocity));
        } else {
            Expected::scaled((0..len).map(new_velocity).collect(), vec![2.0; len])
                .check(&velocity_on.read(), false);
        }
    });
}

fn optimizer_arguments<D: Optimizer>(device: &D) {
    let step = AdamStep { step: 0, ..STEP };
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

/// Rows are updated as in a dense step, to the bit; the others stay.
fn adam_of_rows<D: Optimizer>(device: &D) {
    let cases =
        (prop_oneof![3 => 1..40usize, 1 => Just(900)], dims(), 1..4usize, any::<bool>(), any::<u64>());
    for_cases(cases, |(rows, dim, every, decoupled, seed)| {
        let step = AdamStep { decoupled, ..STEP };
        let mut random = Random(seed);
        let index: Vec<u32> = (0..rows as u32).filter(|_| random.index(every) == 0).collect();
        let [m, parameter] = [0, 1].map(|_| random.values::<D::Scalar>(rows * dim, false));
        let v: Vec<_> = random.values::<D::Scalar>(rows * dim, false).iter().map(|&v| v * v).collect();
        let grad = random.values::<D::Scalar>(index.len() * dim, false);
        let mut dense_grad = vec![D::Scalar::from_f64(0.0); rows * dim];
        for (i, &row) in index.iter().enumerate() {
            dense_grad[row as usize * dim..][..dim].copy_from_slice(&grad[i * dim..][..dim]);
        }
        let upload = |values: &[D::Scalar]| Guarded::new(device, values);
        let [mut dense_m, mut dense_v, mut dense] = [&m, &v, &parameter].map(|values| upload(values));
        let dense_grad = upload(&dense_grad);
        device
            .adam(step, dense_grad.view(), dense_m.view_mut(), dense_v.view_mut(), dense.view_mut())
            .unwrap();
        let [mut new_m, mut new_v, mut new] = [&m, &v, &parameter].map(|values| upload(values));
        let (index_on, grad_on) = (Guarded::new(device, &index), upload(&grad));
        let grad = grad_on.matrix(index.len(), dim);
        let (m_on, v_on, parameter_on) = (new_m.view_mut(), new_v.view_mut(), new.matrix_mut(rows, dim));
        device.adam_rows(step, index_on.view(), grad, m_on, v_on, parameter_on).unwrap();
        for (new, dense, old) in [(new_m, dense_m, m), (new_v, dense_v, v), (new, dense, parameter)] {
            let (new, dense) = (new.read(), dense.read());
            for row in 0..rows {
                let of_row = row * dim..(row + 1) * dim;
                let expected = if index.contains(&(row as u32)) { &dense } else { &old };
                assert_eq!(new[of_row.clone()], expected[of_row], "row {row}");
            }
        }
    });
}

fn adam_of_rows_out_of_order_or_range<D: Optimizer>(device: &D) {
    let upload = |value: f64, len| Guarded::new(device, &vec![D::Scalar::from_f64(value); len]);
    for (index, expected) in [
        ([1, 1], "index is 1 after 1"),
        ([2, 0], "index is 0 after 2"),
        ([0, 3], "index[1] = 3 is out of range: expected a value below 3"),
        ([0, u32::MAX], "index[1] = 4294967295 is out of range: expected a value below 3"),
    ] {
        let [mut m, mut v, mut p] = [0.0, 0.0, 5.0].map(|value| upload(value, 6));
        let (index, grad) = (Guarded::new(device, &index), upload(1.0, 4));
        let (parameter, grad) = (p.matrix_mut(3, 2), grad.matrix(2, 2));
        let stepped = device.adam_rows(STEP, index.view(), grad, m.view_mut(), v.view_mut(), parameter);
        let error = stepped.and_then(|()| device.synchronize()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        [m, v, p].iter().for_each(|values| drop(values.read()));
    }
    let [mut m, mut v, mut p] = [0.0, 0.0, 5.0].map(|value| upload(value, 6));
    let (index, grad) = (Guarded::new(device, &[0, 1]), upload(1.0, 6));
    let (moments, parameter) = ((m.view_mut(), v.view_mut()), p.matrix_mut(3, 2));
    let error =
        device.adam_rows(STEP, index.view(), grad.matrix(2, 3), moments.0, moments.1, parameter).unwrap_err();
    assert!(matches!(error, Error::WrongLength { array: "columns of grad", .. }), "{error}");
}

/// All at once they get the bits that each gets alone, more than a launch takes and some without elements.
fn many_parameters<D: Optimizer>(device: &D) {
    for_cases((0..80usize, any::<u64>()), |(n, seed)| {
        let mut random = Random(seed);
        let lens: Vec<usize> = (0..n).map(|_| [0, 1, 3, 64, 700, 2100][random.index(6)]).collect();
        let mut values = |of: fn(D::Scalar) -> D::Scalar| -> Vec<Vec<D::Scalar>> {
            lens.iter().map(|&len| random.values(len, false).into_iter().map(of).collect()).collect()
        };
        let (grad, m, v, p) = (values(|x| x), values(|x| x), values(|x| x * x), values(|x| x));
        let upload =
            |of: &[Vec<D::Scalar>]| -> Vec<_> { of.iter().map(|x| Guarded::new(device, x)).collect() };
        let read = |of: &[Guarded<D>]| -> Vec<Vec<f64>> { of.iter().map(|x| to_f64(&x.read())).collect() };
        let step = |i: usize| AdamStep { weight_decay: 0.1 * (i % 3) as f64, ..STEP };
        let grad = upload(&grad);
        let state = || [upload(&m), upload(&v), upload(&p)];
        let ([mut m1, mut v1, mut p1], [mut m2, mut v2, mut p2]) = (state(), state());
        let mut all = Vec::new();
        for (i, ((m, v), p)) in m1.iter_mut().zip(&mut v1).zip(&mut p1).enumerate() {
            let (first_moment, second_moment, parameter) = (m.view_mut(), v.view_mut(), p.view_mut());
            let grad = grad[i].view();
            all.push(AdamParameter { step: step(i), grad, first_moment, second_moment, parameter });
        }
        device.adam_all(all).unwrap();
        for i in 0..n {
            let (m, v, p) = (m2[i].view_mut(), v2[i].view_mut(), p2[i].view_mut());
            device.adam(step(i), grad[i].view(), m, v, p).unwrap();
        }
        assert_eq!([read(&m1), read(&v1), read(&p1)], [read(&m2), read(&v2), read(&p2)]);
        for momentum in [0.0, 0.9] {
            let step = SgdStep { lr: 0.05, momentum, weight_decay: 0.01 };
            let mut all = Vec::new();
            for (i, (m, p)) in m1.iter_mut().zip(&mut p1).enumerate() {
                let (velocity, parameter) = (m.view_mut(), p.view_mut());
                all.push(SgdParameter { grad: grad[i].view(), velocity, parameter });
            }
            device.sgd_all(step, all).unwrap();
            for i in 0..n {
                device.sgd(step, grad[i].view(), m2[i].view_mut(), p2[i].view_mut()).unwrap();
            }
            assert_eq!([read(&m1), read(&p1)], [read(&m2), read(&p2)]);
        }
    });
}
