use approx::assert_abs_diff_eq;

use super::*;
use crate::device::Cpu;

type Host = Cpu<f64>;

/// Gradients of a dense parameter, of a table of 4 rows, and of a leaf that is no parameter, of values around `base`.
fn gradients(base: f64, rows: &[u32]) -> Gradients<Host> {
    let cpu = Host::new();
    let values = |n: usize| (0..n).map(|i| base + i as f64).collect::<Vec<f64>>();
    let dense = Tensor::from_slice(&cpu, 2, 2, &values(4)).unwrap();
    let of_rows = Tensor::from_slice(&cpu, rows.len(), 2, &values(2 * rows.len())).unwrap();
    let table = RowGradient::new(&cpu, 4, rows, of_rows).unwrap();
    Gradients::of_parameters([
        (ParameterId::new(0), Gradient::Dense(dense)),
        (ParameterId::new(3), Gradient::Rows(table)),
    ])
}

fn dense(gradients: &Gradients<Host>, id: usize) -> Vec<f64> {
    let cpu = Host::new();
    match gradients.get_parameter(ParameterId::new(id)).unwrap() {
        Gradient::Dense(x) => x.to_vec(&cpu).unwrap(),
        Gradient::Rows(rows) => rows.to_dense(&cpu).unwrap().to_vec(&cpu).unwrap(),
    }
}

#[test]
fn gradients_are_scaled() {
    let mut x = gradients(1.0, &[1, 3]);
    x.scale(&Host::new(), -0.5).unwrap();
    assert_eq!(dense(&x, 0), [-0.5, -1.0, -1.5, -2.0]);
    assert_eq!(dense(&x, 3), [0.0, 0.0, -0.5, -1.0, 0.0, 0.0, -1.5, -2.0]);
    assert!(x.scale(&Host::new(), f64::NAN).is_err());
}

#[test]
fn the_norm_is_over_all_parameters_and_clipping_brings_it_down() {
    let cpu = Host::new();
    let mut x = gradients(1.0, &[0, 2]);
    let expected = 2.0 * (1.0 + 4.0 + 9.0 + 16.0);
    assert_abs_diff_eq!(x.norm(&cpu).unwrap(), f64::sqrt(expected), epsilon = 1e-12);
    let before = x.clip_norm(&cpu, 100.0).unwrap();
    assert_eq!(dense(&x, 0), [1.0, 2.0, 3.0, 4.0], "below the limit nothing changes");
    assert_eq!(x.clip_norm(&cpu, 1.5).unwrap(), before);
    assert_abs_diff_eq!(x.norm(&cpu).unwrap(), 1.5, epsilon = 1e-12);
    assert_abs_diff_eq!(dense(&x, 3)[5], 4.0 * 1.5 / before, epsilon = 1e-12);
    for max_norm in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(x.clip_norm(&cpu, max_norm).is_err());
    }
    let mut x = gradients(f64::NAN, &[0]);
    assert!(x.clip_norm(&cpu, 1.0).unwrap_err().to_string().contains("NaN"));
}

#[test]
fn gradients_of_several_passes_add_up() {
    let cpu = Host::new();
    let mut sum = gradients(1.0, &[1, 3]);
    sum.accumulate(&cpu, gradients(10.0, &[0, 1])).unwrap();
    assert_eq!(dense(&sum, 0), [11.0, 13.0, 15.0, 17.0]);
    assert_eq!(dense(&sum, 3), [10.0, 11.0, 13.0, 15.0, 0.0, 0.0, 3.0, 4.0]);
    // A parameter that only one pass has, and one that is dense in the other.
    let matrix = |rows| Tensor::from_slice(&cpu, rows, 2, &vec![1.0; 2 * rows]).unwrap();
    let more = [(ParameterId::new(3), matrix(4)), (ParameterId::new(7), matrix(1))];
    sum.accumulate(&cpu, Gradients::of_parameters(more.map(|(id, x)| (id, Gradient::Dense(x))))).unwrap();
    assert_eq!(dense(&sum, 3), [11.0, 12.0, 14.0, 16.0, 1.0, 1.0, 4.0, 5.0]);
    assert_eq!(dense(&sum, 7), [1.0, 1.0]);
    // An error loses nothing, neither of the gradient that does not fit nor of those before it.
    for id in [0, 3, 7] {
        let before = [0, 3, 7].map(|id| dense(&sum, id));
        let right = (ParameterId::new(0), Gradient::Dense(matrix(2)));
        let wrong = (ParameterId::new(id), Gradient::Dense(matrix(5)));
        assert!(sum.accumulate(&cpu, Gradients::of_parameters([right, wrong])).is_err());
        assert_eq!([0, 3, 7].map(|id| dense(&sum, id)), before);
    }
    let few = RowGradient::new(&cpu, 3, &[1], matrix(1)).unwrap();
    let wrong = Gradients::of_parameters([(ParameterId::new(0), Gradient::Rows(few))]);
    assert!(sum.accumulate(&cpu, wrong).is_err());
}
