//! SpMM, SDDMM, and what is derived from a pattern.

use half::f16;
use proptest::prelude::*;

use super::naive::{self, Pattern};
use super::{Expected, Guarded, Random, dims, for_cases, poison, test_devices, to_f64, writes};
use crate::device::{
    Cpu, Csr, FeatureElement, Gather, Scalar, Sddmm, Spmm, Storage, Structure, Weights, Write, longest_row,
};
use crate::error::Error;

test_devices! {
    spmm spmm_heads spmm_max spmm_max_nan spmm_max_ties spmm_max_backward transpose inverse_degree
    inverse_weight_sum permutations_are_inverted
    sddmm_dot sddmm_add sddmm_of_entries_far_apart
    wide_rows mean_over_nothing_is_zero half_precision_counts_exactly wrong_lengths_are_errors
}

/// A pattern on a device. Of some, the longest row is known.
pub(super) struct Sparse<D: Storage> {
    n_rows: usize,
    n_cols: usize,
    indptr: Guarded<D, u32>,
    indices: Guarded<D, u32>,
    edge: Option<Guarded<D, u32>>,
    longest_row: Option<usize>,
}

impl<D: Storage> Sparse<D> {
    pub(super) fn new(device: &D, a: &Pattern, edge: Option<&[u32]>) -> Self {
        Sparse {
            n_rows: a.n_rows,
            n_cols: a.n_cols,
            indptr: Guarded::new(device, &a.indptr),
            indices: Guarded::new(device, &a.indices),
            edge: edge.map(|edge| Guarded::new(device, edge)),
            longest_row: a.n_edge().is_multiple_of(2).then(|| longest_row(&a.indptr)),
        }
    }

    pub(super) fn csr(&self) -> Csr<'_, D> {
        Csr {
            n_rows: self.n_rows,
            n_cols: self.n_cols,
            indptr: self.indptr.view(),
            indices: self.indices.view(),
            edge: self.edge.as_ref().map(Guarded::view),
            longest_row: self.longest_row,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Case {
    n_rows: usize,
    n_cols: usize,
    max_degree: usize,
    hub: bool,
    pub dim: usize,
    pub integers: bool,
    seed: u64,
}

impl Case {
    pub(super) fn data(&self) -> (Pattern, Random) {
        let mut random = Random(self.seed);
        let pattern = Pattern::random(self.n_rows, self.n_cols, self.max_degree, self.hub, &mut random);
        (pattern, random)
    }
}

prop_compose! {
    pub(super) fn cases()(
        n_rows in prop_oneof![Just(0), Just(1), 2..80usize],
        n_cols in prop_oneof![1 => Just(0), 1 => Just(1), 4 => 2..60usize],
        max_degree in prop_oneof![Just(0), Just(1), 2..30usize],
        hub in prop::bool::weighted(0.2),
        dim in dims(),
        integers in any::<bool>(),
        seed in any::<u64>(),
    ) -> Case {
        Case { n_rows, n_cols, max_degree, hub, dim, integers, seed }
    }
}

/// Which factors an entry has.
#[derive(Clone, Copy, Debug)]
struct With {
    edge: bool,
    row: bool,
    column: bool,
    positions: bool,
}

fn check_spmm<D: Spmm>(
    device: &D,
    a: &Pattern,
    dim: usize,
    with: With,
    write: Write,
    integers: bool,
    random: &mut Random,
) {
    let mut values = |len: usize| random.values::<D::Scalar>(len, integers);
    let x = values(a.n_cols * dim);
    let edge = with.edge.then(|| values(a.n_edge()));
    let row = with.row.then(|| values(a.n_rows));
    let column = with.column.then(|| values(a.n_cols));
    let positions = with.positions.then(|| random.shuffled(a.n_edge()));
    let (mut out, start) = Guarded::output(device, a.n_rows * dim, write, random, integers);

    let mut expected = Expected::from(start);
    let factor =
        |values: &Option<Vec<D::Scalar>>, i: usize| values.as_ref().map_or(1.0, |v| v[i].widen_f64());
    let weight = |i: usize, j: usize, e: usize| {
        let position = positions.as_ref().map_or(e, |positions| positions[e] as usize);
        factor(&edge, position) * factor(&row, i) * factor(&column, j)
    };
    naive::spmm(a, weight, &to_f64(&x), dim, &mut expected);

    let sparse = Sparse::new(device, a, positions.as_deref());
    let upload = |values: &Option<Vec<D::Scalar>>| values.as_ref().map(|v| Guarded::new(device, v));
    let (edge, row, column) = (upload(&edge), upload(&row), upload(&column));
    let weights = Weights {
        edge: edge.as_ref().map(Guarded::view),
        row: row.as_ref().map(Guarded::view),
        column: column.as_ref().map(Guarded::view),
    };
    let x = Guarded::new(device, &x);
    let out_matrix = out.matrix_mut(a.n_rows, dim);
    device.spmm(sparse.csr(), weights, x.matrix(a.n_cols, dim), out_matrix, write).unwrap();
    expected.check(&out.read(), integers);
}

fn spmm<D: Spmm>(device: &D) {
    let factors = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    for_cases((cases(), writes(), factors), |(case, write, (edge, row, column, positions))| {
        let (a, mut random) = case.data();
        let with = With { edge, row, column, positions };
        check_spmm(device, &a, case.dim, with, write, case.integers, &mut random);
    });
}

fn check_spmm_heads<D: Spmm>(
    device: &D,
    a: &Pattern,
    [heads, dim]: [usize; 2],
    with_positions: bool,
    write: Write,
    integers: bool,
    random: &mut Random,
) {
    let cols = heads * dim;
    let x = random.values::<D::Scalar>(a.n_cols * cols, integers);
    let weight = random.values::<D::Scalar>(a.n_edge() * heads, integers);
    let positions = with_positions.then(|| random.shuffled(a.n_edge()));
    let (mut out, start) = Guarded::output(device, a.n_rows * cols, write, random, integers);

    let mut expected = Expected::from(start);
    let weight_of = |e: usize, h: usize| {
        let position = positions.as_ref().map_or(e, |positions| positions[e] as usize);
        weight[position * heads + h].widen_f64()
    };
    naive::spmm_heads(a, weight_of, [heads, dim], &to_f64(&x), &mut expected);

    let sparse = Sparse::new(device, a, positions.as_deref());
    let (weight, x) = (Guarded::new(device, &weight), Guarded::new(device, &x));
    let (x, out_matrix) = (x.matrix(a.n_cols, cols), out.matrix_mut(a.n_rows, cols));
    device.spmm_heads(sparse.csr(), weight.view(), heads, x, out_matrix, write).unwrap();
    expected.check(&out.read(), integers);
}

fn spmm_heads<D: Spmm>(device: &D) {
    let heads = prop_oneof![4 => 1..5usize, 1 => Just(9)];
    for_cases((cases(), heads, writes(), any::<bool>()), |(case, heads, write, positions)| {
        let ((a, mut random), shape) = (case.data(), [heads, case.dim]);
        check_spmm_heads(device, &a, shape, positions, write, case.integers, &mut random);
    });
}

/// Runs the kernel.
pub(super) fn max_of<D: Spmm>(
    device: &D,
    a: &Pattern,
    x: &[D::Scalar],
    dim: usize,
) -> (Vec<D::Scalar>, Vec<u32>) {
    let (sparse, x) = (Sparse::new(device, a, None), Guarded::new(device, x));
    let mut out = Guarded::poisoned(device, a.n_rows * dim);
    let mut argmax = Guarded::poisoned(device, a.n_rows * dim);
    device
        .spmm_max(sparse.csr(), x.matrix(a.n_cols, dim), out.matrix_mut(a.n_rows, dim), argmax.view_mut())
        .unwrap();
    (out.read(), argmax.read())
}

fn check_spmm_max<D: Spmm>(device: &D, a: &Pattern, dim: usize, integers: bool, random: &mut Random) {
    let x = random.values::<D::Scalar>(a.n_cols * dim, integers);
    let (out, argmax) = max_of(device, a, &x, dim);
    let (expected, expected_argmax) = naive::spmm_max(a, &to_f64(&x), dim);
    assert_eq!(to_f64(&out), expected);
    assert_eq!(argmax, expected_argmax);
}

fn spmm_max<D: Spmm>(device: &D) {
    for_cases(cases(), |case| {
        let (a, mut random) = case.data();
        check_spmm_max(device, &a, case.dim, case.integers, &mut random);
    });
}

fn spmm_max_nan<D: Spmm>(device: &D) {
    for_cases(cases(), |case| {
        let (a, mut random) = case.data();
        let mut x = random.values::<D::Scalar>(a.n_cols * case.dim, case.integers);
        for value in &mut x {
            match random.index(4) {
                0 | 1 => *value = D::Scalar::from_f64(f64::NAN),
                2 => *value = D::Scalar::from_f64(f64::NEG_INFINITY),
                _ => {}
            }
        }
        let (out, argmax) = max_of(device, &a, &x, case.dim);
        let (expected, expected_argmax) = naive::spmm_max(&a, &to_f64(&x), case.dim);
        for (out, expected) in to_f64(&out).into_iter().zip(expected) {
            assert!(out == expected || out.is_nan() && expected.is_nan(), "{out} {expected}");
        }
        assert_eq!(argmax, expected_argmax);
    });
}

fn spmm_max_ties<D: Spmm>(device: &D) {
    let a = Pattern { n_rows: 3, n_cols: 4, indptr: vec![0, 4, 4, 6], indices: vec![3, 1, 2, 0, 2, 1] };
    let dim = 33;
    // Columns 1 and 2 of the pattern tie for the maximum.
    let x: Vec<_> = [1.0, 5.0, 5.0, -2.0].iter().flat_map(|&v| vec![D::Scalar::from_f64(v); dim]).collect();
    let (out, argmax) = max_of(device, &a, &x, dim);
    let rows = |values: [f64; 3]| values.iter().flat_map(|&v| vec![v; dim]).collect::<Vec<_>>();
    assert_eq!(to_f64(&out), rows([5.0, 0.0, 5.0]));
    assert_eq!(argmax, [1, u32::MAX, 4].iter().flat_map(|&e| vec![e; dim]).collect::<Vec<_>>());
}

fn check_spmm_max_backward<D: Spmm>(
    device: &D,
    a: &Pattern,
    dim: usize,
    write: Write,
    integers: bool,
    random: &mut Random,
) {
    let x = random.values::<D::Scalar>(a.n_cols * dim, true);
    let (_, argmax) = naive::spmm_max(a, &to_f64(&x), dim);
    let dout = random.values::<D::Scalar>(a.n_rows * dim, integers);
    let (mut dx, start) = Guarded::output(device, a.n_cols * dim, write, random, integers);
    let mut expected = Expected::from(start);
    naive::spmm_max_backward(a, &argmax, &to_f64(&dout), dim, &mut expected);

    let (transpose, positions) = naive::transpose(a);
    let sparse = Sparse::new(device, &transpose, Some(&positions));
    let (argmax, dout) = (Guarded::new(device, &argmax), Guarded::new(device, &dout));
    let dx_matrix = dx.matrix_mut(a.n_cols, dim);
    device
        .spmm_max_backward(sparse.csr(), argmax.view(), dout.matrix(a.n_rows, dim), dx_matrix, write)
        .unwrap();
    expected.check(&dx.read(), integers);
}

fn spmm_max_backward<D: Spmm>(device: &D) {
    for_cases((cases(), writes()), |(case, write)| {
        let (a, mut random) = case.data();
        check_spmm_max_backward(device, &a, case.dim, write, case.integers, &mut random);
    });
}

fn check_transpose<D: Structure>(device: &D, a: &Pattern) {
    let mut indptr = Guarded::poisoned(device, a.n_cols + 1);
    let mut indices = Guarded::poisoned(device, a.n_edge());
    let mut edge = Guarded::poisoned(device, a.n_edge());
    let sparse = Sparse::new(device, a, None);
    device.transpose(sparse.csr(), indptr.view_mut(), indices.view_mut(), edge.view_mut()).unwrap();
    let (expected, positions) = naive::transpose(a);
    assert_eq!(indptr.read(), expected.indptr);
    assert_eq!(indices.read(), expected.indices);
    assert_eq!(edge.read(), positions);
}

fn transpose<D: Structure>(device: &D) {
    for_cases(cases(), |case| check_transpose(device, &case.data().0));
}

fn inverse_degree<D: Structure>(device: &D) {
    for_cases((cases(), prop_oneof![Just(0.0), Just(1.0), 0.0..2.0]), |(case, offset)| {
        let (a, _) = case.data();
        let indptr = Guarded::new(device, &a.indptr);
        let mut out = Guarded::poisoned(device, a.n_rows);
        device.inverse_degree(indptr.view(), offset, out.view_mut()).unwrap();
        let inverse = |pair: &[u32]| match f64::from(pair[1] - pair[0]) + offset {
            0.0 => 0.0,
            degree => 1.0 / degree,
        };
        Expected::from(a.indptr.windows(2).map(inverse).collect()).check(&out.read(), false);
    });
}

fn inverse_weight_sum<D: Structure>(device: &D) {
    for_cases((cases(), prop_oneof![Just(0.0), Just(1.0), 0.0..2.0]), |(case, offset)| {
        let (a, mut random) = case.data();
        // A third is 0, and so are all of some rows.
        let weight: Vec<D::Scalar> = random.values(a.n_edge(), case.integers);
        let weight: Vec<_> =
            weight.into_iter().map(|w| D::Scalar::from_f64(w.widen_f64().max(0.0))).collect();
        let (sparse, uploaded) = (Sparse::new(device, &a, None), Guarded::new(device, &weight));
        let mut out = Guarded::poisoned(device, a.n_rows);
        device.inverse_weight_sum(sparse.csr(), uploaded.view(), offset, out.view_mut()).unwrap();
        let inverse = |pair: &[u32]| {
            let mut sum = offset;
            weight[pair[0] as usize..pair[1] as usize].iter().for_each(|w| sum += w.widen_f64());
            if sum == 0.0 { 0.0 } else { 1.0 / sum }
        };
        Expected::from(a.indptr.windows(2).map(inverse).collect()).check(&out.read(), false);
        let short = Guarded::new(device, &weight[..weight.len().saturating_sub(1)]);
        if !weight.is_empty() {
            let error =
                device.inverse_weight_sum(sparse.csr(), short.view(), offset, out.view_mut()).unwrap_err();
            assert!(matches!(error, Error::WrongLength { array: "weight", .. }), "{error}");
        }
    });
}

fn check_sddmm_dot<D: Sddmm>(
    device: &D,
    a: &Pattern,
    heads: usize,
    dim: usize,
    integers: bool,
    write: Write,
) {
    let mut random = Random(17);
    let x = random.values::<D::Scalar>(a.n_cols * heads * dim, integers);
    let y = random.values::<D::Scalar>(a.n_rows * heads * dim, integers);
    let (mut out, start) = Guarded::output(device, a.n_edge() * heads, write, &mut random, integers);
    let mut expected = Expected::from(start);
    naive::sddmm_dot(a, &to_f64(&x), &to_f64(&y), heads, dim, &mut expected);
    let (sparse, x, y) = (Sparse::new(device, a, None), Guarded::new(device, &x), Guarded::new(device, &y));
    let (x, y) = (x.matrix(a.n_cols, heads * dim), y.matrix(a.n_rows, heads * dim));
    device.sddmm_dot(sparse.csr(), x, y, heads, out.view_mut(), write).unwrap();
    expected.check(&out.read(), integers);
}

fn check_sddmm_add<D: Sddmm>(device: &D, a: &Pattern, cols: usize, integers: bool, write: Write) {
    let mut random = Random(18);
    let x = random.values::<D::Scalar>(a.n_cols * cols, integers);
    let y = random.values::<D::Scalar>(a.n_rows * cols, integers);
    let (mut out, start) = Guarded::output(device, a.n_edge() * cols, write, &mut random, integers);
    let mut expected = Expected::from(start);
    naive::sddmm_add(a, &to_f64(&x), &to_f64(&y), cols, &mut expected);
    let (sparse, x, y) = (Sparse::new(device, a, None), Guarded::new(device, &x), Guarded::new(device, &y));
    let (x, y) = (x.matrix(a.n_cols, cols), y.matrix(a.n_rows, cols));
    device.sddmm_add(sparse.csr(), x, y, out.view_mut(), write).unwrap();
    expected.check(&out.read(), integers);
}

fn sddmm_dot<D: Sddmm>(device: &D) {
    for_cases((cases(), 1..5usize, writes()), |(case, heads, write)| {
        check_sddmm_dot(device, &case.data().0, heads, case.dim, case.integers, write);
    });
}

fn sddmm_add<D: Sddmm>(device: &D) {
    for_cases((cases(), writes()), |(case, write)| {
        check_sddmm_add(device, &case.data().0, case.dim, case.integers, write);
    });
}

/// On CUDA, a warp looks for its entries in windows of 32 rows.
fn sddmm_of_entries_far_apart<D: Sddmm>(device: &D) {
    for gap in [30, 31, 32, 33, 34, 65, 3000] {
        // Single entries, and warps that begin within a row, with gaps before, between and after them.
        let mut lengths = vec![0; gap];
        for length in [1, 1, 2, 40, 1, 0, 7, 100, 1] {
            lengths.push(length);
            lengths.resize(lengths.len() + gap, 0);
        }
        let a = Pattern::of_row_lengths(&lengths, 5, &mut Random(gap as u64));
        check_sddmm_dot(device, &a, 2, 3, true, Write::Assign);
        check_sddmm_add(device, &a, 4, true, Write::Add);
    }
    let a = Pattern::of_row_lengths(&[1; 5000], 5, &mut Random(19));
    check_sddmm_dot(device, &a, 1, 4, true, Write::Assign);
}

/// All kernels of this file.
pub(super) fn check_all<D: Spmm + Sddmm + Structure>(
    device: &D,
    a: &Pattern,
    dim: usize,
    write: Write,
    random: &mut Random,
) {
    let with = With { edge: true, row: true, column: true, positions: true };
    check_spmm(device, a, dim, with, write, true, random);
    check_spmm(device, a, dim, With { edge: false, column: false, ..with }, write, true, random);
    check_spmm_heads(device, a, [2, dim], true, write, true, random);
    check_spmm_max(device, a, dim, true, random);
    check_spmm_max_backward(device, a, dim, write, true, random);
    check_transpose(device, a);
    check_sddmm_dot(device, a, 1, dim, true, write);
    check_sddmm_add(device, a, dim, true, write);
}

fn wide_rows<D: Spmm + Sddmm + Structure>(device: &D) {
    let mut random = Random(3);
    let a = Pattern::random(5, 6, 7, false, &mut random);
    for (dim, write) in [(1024, Write::Assign), (1023, Write::Add)] {
        check_all(device, &a, dim, write, &mut random);
        check_sddmm_dot(device, &a, 3, dim, true, write);
    }
}

fn permutations_are_inverted<D: Structure>(device: &D) {
    for n in [0, 1, 70, 3000] {
        let permutation = Random(n as u64).shuffled(n);
        let on = Guarded::new(device, &permutation);
        let mut out = Guarded::new(device, &vec![poison::<u32>(); n]);
        device.invert_permutation(on.view(), out.view_mut()).unwrap();
        let inverse = out.read();
        assert!((0..n).all(|i| inverse[permutation[i] as usize] == i as u32));
    }
    let wrong = Guarded::new(device, &[0u32, 2]);
    let mut out = Guarded::new(device, &[0u32, 0]);
    let outcome: crate::error::Result<()> =
        device.invert_permutation(wrong.view(), out.view_mut()).and_then(|()| device.synchronize());
    assert!(
        matches!(
            outcome,
            Err(Error::IndexOutOfRange { array: "permutation", position: 1, value: 2, limit: 2 })
        ),
        "{outcome:?}"
    );
    let mut short = Guarded::new(device, &[0u32]);
    assert!(device.invert_permutation(wrong.view(), short.view_mut()).is_err());
}

fn mean_over_nothing_is_zero<D: Spmm + Structure>(device: &D) {
    let a = Pattern { n_rows: 3, n_cols: 2, indptr: vec![0, 0, 2, 2], indices: vec![0, 1] };
    let sparse = Sparse::new(device, &a, None);
    let mut degree = Guarded::poisoned(device, 3);
    device.inverse_degree(sparse.indptr.view(), 0.0, degree.view_mut()).unwrap();
    let x = Guarded::new(device, &[2.0, 4.0, 6.0, 8.0].map(D::Scalar::from_f64));
    let mut out = Guarded::poisoned(device, 6);
    let weights = Weights { edge: None, row: Some(degree.view()), column: None };
    device.spmm(sparse.csr(), weights, x.matrix(2, 2), out.matrix_mut(3, 2), Write::Assign).unwrap();
    assert_eq!(to_f64(&out.read()), [0.0, 0.0, 4.0, 6.0, 0.0, 0.0]);
    // Even where the factor of an empty row is not finite.
    let infinite = Guarded::new(device, &[f64::INFINITY, 1.0, f64::NAN].map(D::Scalar::from_f64));
    let weights = Weights { edge: None, row: Some(infinite.view()), column: None };
    device.spmm(sparse.csr(), weights, x.matrix(2, 2), out.matrix_mut(3, 2), Write::Assign).unwrap();
    assert_eq!(to_f64(&out.read()), [0.0, 0.0, 8.0, 12.0, 0.0, 0.0]);
}

/// Features in f16 are summed in the device's scalar: in f16 a count would stop at 2048.
fn half_precision_counts_exactly<D: Spmm + Gather>(device: &D) {
    let (n, dim) = (5000, 3);
    let table = Guarded::new(device, &vec![f16::ONE; n * dim]);
    let index: Vec<u32> = (0..n as u32).collect();
    let mut x = Guarded::poisoned(device, n * dim);
    device.gather(table.view(), n, Guarded::new(device, &index).view(), x.matrix_mut(n, dim)).unwrap();
    let a = Pattern { n_rows: 1, n_cols: n, indptr: vec![0, n as u32], indices: index };
    let sparse = Sparse::new(device, &a, None);
    let mut out = Guarded::poisoned(device, dim);
    device
        .spmm(sparse.csr(), Weights::ones(), x.matrix(n, dim), out.matrix_mut(1, dim), Write::Assign)
        .unwrap();
    assert_eq!(to_f64(&out.read()), [5000.0; 3]);
}

fn wrong_lengths_are_errors<D: Spmm + Sddmm>(device: &D) {
    let a = Pattern { n_rows: 2, n_cols: 3, indptr: vec![0, 1, 2], indices: vec![2, 0] };
    let sparse = Sparse::new(device, &a, None);
    let with_positions = Sparse::new(device, &a, Some(&[1, 0]));
    let values = Guarded::new(device, &[D::Scalar::from_f64(1.0); 12]);
    let part = |len: usize| D::slice(values.view(), 0..len);
    let matrix = |rows: usize, cols: usize| {
        crate::device::Matrix::<D>::from_view(part(rows * cols), rows, cols).unwrap()
    };
    let mut out = Guarded::poisoned(device, 4);
    let mut positions = Guarded::new(device, &[poison::<u32>(); 4]);

    let ones = Weights::ones();
    let (csr, write) = (sparse.csr(), Write::Assign);
    let mut spmm = |csr, weights, x, rows: usize| {
        let out =
            crate::device::MatrixMut::from_view(D::slice_mut(out.view_mut(), 0..rows * 2), rows, 2).unwrap();
        device.spmm(csr, weights, x, out, write)
    };
    assert!(matches!(spmm(csr, ones, matrix(2, 2), 2), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(spmm(csr, ones, matrix(3, 1), 2), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(spmm(csr, ones, matrix(3, 2), 1), Err(Error::ShapeMismatch { .. })));
    let short = Csr { n_rows: 1, ..csr };
    assert!(matches!(spmm(short, ones, matrix(3, 2), 1), Err(Error::WrongLength { array: "indptr", .. })));
    let weights = Weights { edge: Some(part(1)), row: None, column: None };
    assert!(matches!(spmm(csr, weights, matrix(3, 2), 2), Err(Error::WrongLength { .. })));
    let weights = Weights { edge: None, row: Some(part(3)), column: None };
    assert!(matches!(spmm(csr, weights, matrix(3, 2), 2), Err(Error::WrongLength { .. })));
    let weights = Weights { edge: None, row: None, column: Some(part(2)) };
    assert!(matches!(spmm(csr, weights, matrix(3, 2), 2), Err(Error::WrongLength { .. })));
    assert!(spmm(csr, ones, matrix(3, 2), 2).is_ok());

    let mut by_head = |heads, n_weight: usize, x| {
        device.spmm_heads(csr, part(n_weight), heads, x, out.matrix_mut(2, 2), write)
    };
    assert!(by_head(0, 0, matrix(3, 2)).is_err());
    assert!(by_head(3, 6, matrix(3, 2)).is_err());
    assert!(matches!(by_head(2, 2, matrix(3, 2)), Err(Error::WrongLength { .. })));
    assert!(matches!(by_head(2, 4, matrix(2, 2)), Err(Error::ShapeMismatch { .. })));
    assert!(by_head(2, 4, matrix(3, 2)).is_ok());

    let with_positions = with_positions.csr();
    assert!(
        device.spmm_max(with_positions, matrix(3, 2), out.matrix_mut(2, 2), positions.view_mut()).is_err()
    );
    let few = D::slice_mut(positions.view_mut(), 0..3);
    assert!(device.spmm_max(csr, matrix(3, 2), out.matrix_mut(2, 2), few).is_err());
    let argmax = positions.view();
    assert!(device.spmm_max_backward(csr, argmax, matrix(3, 2), out.matrix_mut(2, 2), write).is_err());
    let mut dots = |heads, len: usize| {
        let out = D::slice_mut(out.view_mut(), 0..len);
        device.sddmm_dot(csr, matrix(3, 2), matrix(2, 2), heads, out, write)
    };
    assert!(dots(3, 2).is_err());
    assert!(dots(0, 0).is_err());
    assert!(dots(2, 2).is_err());
    assert!(dots(2, 4).is_ok());
}

/// Only where reading the pattern costs nothing.
#[test]
fn indices_that_do_not_fit_indptr_are_an_error() {
    let csr =
        Csr::<Cpu> { n_rows: 2, n_cols: 3, indptr: &[0, 1, 2], indices: &[2], edge: None, longest_row: None };
    let (x, mut out) = ([1.0; 3], [0.0; 2]);
    let x = crate::device::Matrix::new(&x[..], 3, 1).unwrap();
    let out = crate::device::MatrixMut::new(&mut out[..], 2, 1).unwrap();
    let error = Cpu::new().spmm(csr, Weights::ones(), x, out, Write::Assign).unwrap_err();
    assert!(matches!(error, Error::WrongLength { array: "indices", .. }), "{error}");
}
