//! Rows of 16 bits: rounding against the crate `half`, sums and maxima bit for bit against those of the rounded rows.

use half::{bf16, f16};
use proptest::prelude::*;

use super::naive;
use super::sparse::{Case, Sparse, cases};
use super::{Guarded, Random, for_cases, test_devices, writes};
use crate::device::{Device, FeatureElement, Half, Scalar, Weights, Write};
use crate::error::Error;

test_devices! {
    every_value_is_rounded_to_nearest every_narrow_value_is_widened rows_have_factors
    sums_are_those_of_rounded_rows maxima_are_those_of_rounded_rows narrow_wrong_lengths_are_errors
}

/// The value of the bits in `f32`, and numbers around the middle to the next one.
fn around<E: Half>(bits: u16) -> [f32; 4] {
    let value = |bits: u16| bytemuck::cast::<u16, E>(bits).widen_f32();
    let (low, high) = (value(bits), value(bits.wrapping_add(1)));
    let middle = low / 2.0 + high / 2.0;
    let neighbor = |step: i32| f32::from_bits(middle.to_bits().wrapping_add_signed(step));
    [low, middle, neighbor(1), neighbor(-1)]
}

/// What is hard to round: every seventh number of the type and ties beside it, what overflows, underflows, or is none.
fn hard_values<E: Half>() -> Vec<f32> {
    let mut values: Vec<f32> = (0..=u16::MAX).step_by(7).flat_map(around::<E>).collect();
    let ends =
        [0.0, f32::MIN_POSITIVE, 1e-45, 2f32.powi(-25), 2f32.powi(-24), 65504.0, 65519.996, 65520.0, 65536.0];
    let ends = ends.into_iter().chain([f32::MAX, f32::INFINITY, f32::NAN, f32::from_bits(0x7f80_0001)]);
    values.extend(ends.flat_map(|value| [value, -value]));
    // 2^-25 is half of the smallest f16; anything above it is more than half.
    values.extend([2f32.powi(-25) * (1.0 + f32::EPSILON), f32::from_bits(2f32.powi(-25).to_bits() - 1)]);
    values
}

fn check_rounding<D: Device, E: Half>(device: &D, reference: impl Fn(f32) -> E) {
    let values = hard_values::<E>();
    let wide: Vec<D::Scalar> = values.iter().map(|&value| D::Scalar::from_f64(value.into())).collect();
    // With an odd number of columns some elements are left over from packs.
    for n in [0, 1, 3, values.len() - 1, values.len()] {
        let x = Guarded::new(device, &wide[..n]);
        let mut out = Guarded::<D, E>::poisoned(device, n);
        device.narrow(x.matrix(n, 1), out.view_mut(), None).unwrap();
        for (out, &value) in out.read().into_iter().zip(&values) {
            let expected = reference(value);
            let is_nan = out.widen_f32().is_nan() && expected.widen_f32().is_nan();
            let is_same = bytemuck::cast::<E, u16>(out) == bytemuck::cast::<E, u16>(expected);
            assert!(is_same || is_nan, "{value:e}: {out:?}, not {expected:?}");
        }
    }
}

fn every_value_is_rounded_to_nearest<D: Device>(device: &D) {
    check_rounding(device, f16::from_f32);
    check_rounding(device, bf16::from_f32);
}

fn check_widening<D: Device, E: Half>(device: &D) {
    let values: Vec<E> = (0..=u16::MAX).map(bytemuck::cast).collect();
    for n in [0, 1, 6, values.len()] {
        let x = Guarded::new(device, &values[..n]);
        let mut out = Guarded::poisoned(device, n);
        device.widen(x.view(), out.view_mut()).unwrap();
        for (out, value) in out.read().into_iter().zip(&values) {
            let (out, expected) = (out.widen_f64(), value.widen_f64());
            assert!(
                out.to_bits() == expected.to_bits() || out.is_nan() && expected.is_nan(),
                "{value:?}: {out}"
            );
        }
    }
}

fn every_narrow_value_is_widened<D: Device>(device: &D) {
    check_widening::<D, f16>(device);
    check_widening::<D, bf16>(device);
}

/// The factor of a row by its definition.
fn naive_factor<S: Scalar>(row: &[S]) -> f64 {
    let finite = row.iter().map(|x| x.widen_f64().abs()).filter(|x| x.is_finite());
    let largest = finite.fold(0.0, f64::max);
    if largest == 0.0 {
        return 1.0;
    }
    let mut factor = 1.0;
    while largest / factor >= 2f64.powi(15) {
        factor *= 2.0;
    }
    while largest / factor < 2f64.powi(14) && factor > 2f64.powi(-100) {
        factor /= 2.0;
    }
    factor
}

fn rows_have_factors<D: Device>(device: &D) {
    let mut random = Random(3);
    let infinity = f64::INFINITY;
    let special =
        [0.0, -0.0, f64::NAN, infinity, -infinity, 1e-45, 3e-39, 1e-30, 1e-20, 1.0, 2e4, 65520.0, 3e38];
    for cols in [0, 1, 4, 5, 33, 128] {
        let mut x: Vec<D::Scalar> = Vec::new();
        for largest in special {
            x.extend((0..cols).map(|_| D::Scalar::from_f64(largest * 2f64.powi(-(random.index(50) as i32)))));
        }
        // Rows of one kind of special values, with ordinary ones between.
        x.iter_mut().step_by(11).for_each(|x| *x = D::Scalar::from_f64(random.uniform()));
        let rows = special.len();
        let mut factor = Guarded::poisoned(device, rows);
        let mut out = Guarded::<D, f16>::poisoned(device, rows * cols);
        let (uploaded, to) = (Guarded::new(device, &x), Some(factor.view_mut()));
        device.narrow(uploaded.matrix(rows, cols), out.view_mut(), to).unwrap();
        let (factor, out) = (factor.read(), out.read());
        for i in 0..rows {
            let row = &x[i * cols..][..cols];
            let expected = naive_factor(row);
            assert_eq!(factor[i].widen_f64(), expected, "{row:?}");
            for (x, out) in row.iter().zip(&out[i * cols..]) {
                let expected = f16::from_f32((x.widen_f64() / expected) as f32);
                assert!(
                    *out == expected || out.is_nan() && expected.is_nan(),
                    "{x:?}: {out:?}, not {expected:?}"
                );
            }
        }
    }
}

fn random_rows<D: Device, E: Half>(
    device: &D,
    n: usize,
    integers: bool,
    random: &mut Random,
) -> Guarded<D, E> {
    let values = random.values::<f32>(n, integers).into_iter().map(E::round);
    Guarded::new(device, &values.collect::<Vec<E>>())
}

fn widened<D: Device, E: Half>(device: &D, rows: &Guarded<D, E>) -> Guarded<D> {
    let values = rows.read().into_iter().map(|value| D::Scalar::from_f64(value.widen_f64()));
    Guarded::new(device, &values.collect::<Vec<_>>())
}

/// A power of two for each row.
fn powers<S: Scalar>(n: usize, random: &mut Random) -> Vec<S> {
    (0..n).map(|_| S::from_f64(2f64.powi(random.index(9) as i32 - 4))).collect()
}

/// Each row of `x` times its factor.
fn scaled<D: Device>(device: &D, x: &Guarded<D>, factor: Option<&[D::Scalar]>, cols: usize) -> Guarded<D> {
    let mut values = x.read();
    if let (Some(factor), true) = (factor, cols > 0) {
        for (row, &factor) in values.chunks_exact_mut(cols).zip(factor) {
            row.iter_mut().for_each(|value| *value *= factor);
        }
    }
    Guarded::new(device, &values)
}

fn check_sums<D: Device, E: Half>(device: &D, case: &Case, write: Write, with: [bool; 5]) {
    let ((a, mut random), dim) = (case.data(), case.dim);
    let x = random_rows::<D, E>(device, a.n_cols * dim, case.integers, &mut random);
    let mut values = |is_there: bool, n| is_there.then(|| random.values::<D::Scalar>(n, case.integers));
    let (edge, row) = (values(with[0], a.n_edge()), values(with[1], a.n_rows));
    let (column, start) = (values(with[2], a.n_cols), values(true, a.n_rows * dim).unwrap());
    let factor = with[3].then(|| powers::<D::Scalar>(a.n_cols, &mut random));
    let positions = with[4].then(|| random.shuffled(a.n_edge()));
    let sparse = Sparse::new(device, &a, positions.as_deref());
    let upload = |values: &Option<Vec<D::Scalar>>| values.as_ref().map(|v| Guarded::new(device, v));
    let (edge, row, column, factors) = (upload(&edge), upload(&row), upload(&column), upload(&factor));
    let weights = Weights {
        edge: edge.as_ref().map(Guarded::view),
        row: row.as_ref().map(Guarded::view),
        column: column.as_ref().map(Guarded::view),
    };
    let (mut narrow, mut wide) = (Guarded::new(device, &start), Guarded::new(device, &start));
    let factors = factors.as_ref().map(Guarded::view);
    let out = narrow.matrix_mut(a.n_rows, dim);
    device.spmm_narrow(sparse.csr(), weights, x.view(), factors, out, write).unwrap();
    // Powers of two commute with rounding.
    let x = scaled(device, &widened(device, &x), factor.as_deref(), dim);
    let (x, out) = (x.matrix(a.n_cols, dim), wide.matrix_mut(a.n_rows, dim));
    device.spmm(sparse.csr(), weights, x, out, write).unwrap();
    assert_eq!(narrow.read(), wide.read());
}

fn sums_are_those_of_rounded_rows<D: Device>(device: &D) {
    for_cases((cases(), writes(), any::<[bool; 5]>()), |(case, write, with)| {
        check_sums::<D, f16>(device, &case, write, with);
        check_sums::<D, bf16>(device, &case, write, with);
    });
}

fn check_maxima<D: Device, E: Half>(device: &D, case: &Case, write: Write, with_factor: bool) {
    let ((a, mut random), dim) = (case.data(), case.dim);
    let mut x = random_rows::<D, E>(device, a.n_cols * dim, case.integers, &mut random);
    if random.index(3) == 0 {
        let spoilt = |value| match random.index(4) {
            0 | 1 => E::round(f32::NAN),
            2 => E::round(f32::NEG_INFINITY),
            _ => value,
        };
        x = Guarded::new(device, &x.read().into_iter().map(spoilt).collect::<Vec<_>>());
    }
    let factor = with_factor.then(|| powers::<D::Scalar>(a.n_cols, &mut random));
    let factors = factor.as_ref().map(|factor| Guarded::new(device, factor));
    let sparse = Sparse::new(device, &a, None);
    let outputs = || (Guarded::poisoned(device, a.n_rows * dim), Guarded::poisoned(device, a.n_rows * dim));
    let ((mut narrow, mut argmax), (mut wide, mut expected)) = (outputs(), outputs());
    let (view, out) = (factors.as_ref().map(Guarded::view), narrow.matrix_mut(a.n_rows, dim));
    device.spmm_max_narrow(sparse.csr(), x.view(), view, out, argmax.view_mut()).unwrap();
    let x = scaled(device, &widened(device, &x), factor.as_deref(), dim);
    let (x, out) = (x.matrix(a.n_cols, dim), wide.matrix_mut(a.n_rows, dim));
    device.spmm_max(sparse.csr(), x, out, expected.view_mut()).unwrap();
    for (narrow, wide) in narrow.read().into_iter().zip(wide.read()) {
        assert!(
            narrow == wide || narrow.widen_f64().is_nan() && wide.widen_f64().is_nan(),
            "{narrow:?} {wide:?}"
        );
    }
    assert_eq!(argmax.read(), expected.read());

    let dout = random_rows::<D, E>(device, a.n_rows * dim, case.integers, &mut random);
    let factor = with_factor.then(|| powers::<D::Scalar>(a.n_rows, &mut random));
    let factors = factor.as_ref().map(|factor| Guarded::new(device, factor));
    let start = random.values::<D::Scalar>(a.n_cols * dim, case.integers);
    let (mut narrow, mut wide) = (Guarded::new(device, &start), Guarded::new(device, &start));
    let (transpose, positions) = naive::transpose(&a);
    let transpose = Sparse::new(device, &transpose, Some(&positions));
    let (view, dx) = (factors.as_ref().map(Guarded::view), narrow.matrix_mut(a.n_cols, dim));
    device.spmm_max_backward_narrow(transpose.csr(), argmax.view(), dout.view(), view, dx, write).unwrap();
    let dout = scaled(device, &widened(device, &dout), factor.as_deref(), dim);
    let (dout, dx) = (dout.matrix(a.n_rows, dim), wide.matrix_mut(a.n_cols, dim));
    device.spmm_max_backward(transpose.csr(), argmax.view(), dout, dx, write).unwrap();
    assert_eq!(narrow.read(), wide.read());
}

fn maxima_are_those_of_rounded_rows<D: Device>(device: &D) {
    for_cases((cases(), writes(), any::<bool>()), |(case, write, with_factor)| {
        check_maxima::<D, f16>(device, &case, write, with_factor);
        check_maxima::<D, bf16>(device, &case, write, with_factor);
    });
}

fn narrow_wrong_lengths_are_errors<D: Device>(device: &D) {
    let wrong = |result: Result<(), Error>, name: &str| match result.unwrap_err() {
        Error::WrongLength { array, .. } => assert_eq!(array, name),
        Error::ShapeMismatch { left_name, .. } => assert_eq!(left_name, name),
        Error::InvalidArgument { argument, .. } => assert_eq!(argument, name),
        error => panic!("{error}"),
    };
    let mut random = Random(1);
    let a = naive::Pattern::of_row_lengths(&[2, 0, 3], 4, &mut random);
    let (transpose, positions) = naive::transpose(&a);
    let forward = Sparse::new(device, &a, None);
    let backward = Sparse::new(device, &transpose, Some(&positions));
    let wide = |n: usize| Guarded::new(device, &vec![D::Scalar::from_f64(1.0); n]);
    let narrow = |n: usize| Guarded::<D, bf16>::new(device, &vec![bf16::ONE; n]);
    let indices = |n: usize| Guarded::new(device, &vec![0u32; n]);
    let (x, short, mut to, mut factor) = (wide(8), wide(3), narrow(8), wide(4));
    wrong(device.narrow(x.matrix(4, 2), narrow(7).view_mut(), None), "out");
    wrong(device.narrow(x.matrix(4, 2), to.view_mut(), Some(wide(3).view_mut())), "factor");
    wrong(device.widen(to.view(), wide(7).view_mut()), "out");
    device.narrow(x.matrix(4, 2), to.view_mut(), Some(factor.view_mut())).unwrap();
    let (ones, mut out) = (Weights::ones(), wide(6));
    let spmm = |x: &Guarded<D, bf16>, factor: Option<&Guarded<D>>, out: &mut Guarded<D>, rows, cols| {
        let (factor, out) = (factor.map(Guarded::view), out.matrix_mut(rows, cols));
        device.spmm_narrow(forward.csr(), ones, x.view(), factor, out, Write::Assign)
    };
    spmm(&to, Some(&factor), &mut out, 3, 2).unwrap();
    wrong(spmm(&to, Some(&short), &mut out, 3, 2), "factor");
    wrong(spmm(&narrow(7), None, &mut out, 3, 2), "x");
    wrong(spmm(&to, None, &mut out, 2, 3), "out");
    let max = |a: &Sparse<D>, x: &Guarded<D, bf16>, factor: Option<&Guarded<D>>, rows, n_argmax| {
        let (mut out, mut argmax) = (wide(rows * 2), indices(n_argmax));
        let (factor, out) = (factor.map(Guarded::view), out.matrix_mut(rows, 2));
        device.spmm_max_narrow(a.csr(), x.view(), factor, out, argmax.view_mut())
    };
    max(&forward, &to, None, 3, 6).unwrap();
    wrong(max(&forward, &to, Some(&short), 3, 6), "factor");
    wrong(max(&forward, &narrow(9), None, 3, 6), "x");
    wrong(max(&forward, &to, None, 3, 5), "argmax");
    wrong(max(&backward, &narrow(6), None, 4, 8), "edge");
    let gradient = |a: &Sparse<D>, dout: &Guarded<D, bf16>, factor: Option<&Guarded<D>>, rows, n_argmax| {
        let (mut dx, argmax) = (wide(rows * 2), indices(n_argmax));
        let (factor, dx) = (factor.map(Guarded::view), dx.matrix_mut(rows, 2));
        device.spmm_max_backward_narrow(a.csr(), argmax.view(), dout.view(), factor, dx, Write::Assign)
    };
    let dout = narrow(6);
    gradient(&backward, &dout, None, 4, 6).unwrap();
    wrong(gradient(&backward, &dout, Some(&factor), 4, 6), "factor");
    wrong(gradient(&backward, &dout, None, 4, 5), "argmax");
    wrong(gradient(&backward, &to, None, 4, 8), "x");
    wrong(gradient(&forward, &to, None, 3, 8), "edge");
}
