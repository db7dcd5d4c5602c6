//! Sums and maxima of rows where some of the matrix is not finite.

use super::naive::Pattern;
use super::sparse::{Sparse, max_of};
use super::{Guarded, test_devices, to_f64};
use crate::device::{Scalar, Spmm, Weights, Write};

test_devices! {
    what_is_not_a_number_stays_in_its_rows
}

/// Kernels that read ahead, or read the same again, must not add it: not even times zero.
fn what_is_not_a_number_stays_in_its_rows<D: Spmm>(device: &D) {
    // Rows of 0 to 9 entries. The odd ones end with column 0 or the last column, of which nothing is finite.
    let (n_rows, n_cols) = (20, 5);
    let mut a = Pattern { n_rows, n_cols, indptr: vec![0], indices: vec![] };
    for row in 0..n_rows {
        let degree = row / 2;
        a.indices.extend(
            (0..degree).map(|e| if row % 2 == 1 && e + 1 == degree { [0, 4][row % 4 / 2] } else { 2 }),
        );
        a.indptr.push(a.indices.len() as u32);
    }
    for dim in [1, 4, 16, 33, 64] {
        let numbers = [f64::NAN, 3.0, 3.0, 3.0, f64::INFINITY].map(D::Scalar::from_f64);
        let x: Vec<_> = numbers.iter().flat_map(|&number| vec![number; dim]).collect();
        let ones = Guarded::new(device, &vec![D::Scalar::from_f64(1.0); a.n_edge()]);
        let sparse = Sparse::new(device, &a, None);
        let matrix = Guarded::new(device, &x);
        for edge in [None, Some(ones.view())] {
            let mut out = Guarded::poisoned(device, n_rows * dim);
            let weights = Weights { edge, row: None, column: None };
            let to = out.matrix_mut(n_rows, dim);
            device.spmm(sparse.csr(), weights, matrix.matrix(n_cols, dim), to, Write::Assign).unwrap();
            let mut by_heads = Guarded::poisoned(device, n_rows * dim);
            let (x, to) = (matrix.matrix(n_cols, dim), by_heads.matrix_mut(n_rows, dim));
            device.spmm_heads(sparse.csr(), ones.view(), 1, x, to, Write::Assign).unwrap();
            for out in [out, by_heads] {
                for (at, sum) in to_f64(&out.read()).into_iter().enumerate() {
                    let (row, degree) = (at / dim, at / dim / 2);
                    let is_finite = row % 2 == 0 || degree == 0;
                    assert!(sum.is_finite() == is_finite, "row {row}: {sum}");
                    assert!(!is_finite || sum == 3.0 * degree as f64, "row {row}: {sum}");
                }
            }
        }
        let (max, _) = max_of(device, &a, &x, dim);
        for (at, max) in to_f64(&max).into_iter().enumerate() {
            let is_empty = at / dim / 2 == 0;
            assert!(at / dim % 2 == 1 || max == if is_empty { 0.0 } else { 3.0 }, "row {}: {max}", at / dim);
        }
    }
}
