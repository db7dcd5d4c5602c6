//! Sparse products over rows of very many entries, which CUDA's kernels cut into chunks.

use super::naive::{self, Pattern};
use super::sparse::{Sparse, check_all};
use super::{Expected, Guarded, Random, test_devices, to_f64};
use crate::device::{Csr, Sddmm, Spmm, Structure, Weights, Write};

test_devices! {
    giant_row many_hubs a_wrong_bound_of_rows_is_only_slow rows_around_the_limit_of_hubs
}

fn giant_row<D: Spmm + Sddmm + Structure>(device: &D) {
    let mut random = Random(4);
    let a = Pattern::of_row_lengths(&[3, 100_000, 0, 2], 40, &mut random);
    for (dim, write) in [(1, Write::Assign), (4, Write::Add)] {
        check_all(device, &a, dim, write, &mut random);
    }
}

/// On CUDA, the second launch merges hubs of many chunks by all groups of a block, one after the other, and hubs of few
/// by one group: several of both in one block, and one of each number of chunks around the limit of 16.
fn many_hubs<D: Spmm + Sddmm + Structure>(device: &D) {
    let mut random = Random(6);
    let degrees = [600, 4096, 4095, 4352, 4351, 0, 9000, 1000, 30_000, 3, 4608, 5000];
    let a = Pattern::of_row_lengths(&degrees, 9, &mut random);
    for (dim, write) in [(3, Write::Assign), (32, Write::Add), (132, Write::Assign)] {
        check_all(device, &a, dim, write, &mut random);
    }
}

/// The bound of a row's entries is a hint.
fn a_wrong_bound_of_rows_is_only_slow<D: Spmm>(device: &D) {
    let mut random = Random(7);
    let a = Pattern::of_row_lengths(&[3, 2000, 0, 700], 9, &mut random);
    let x = random.values::<D::Scalar>(a.n_cols * 4, true);
    let mut expected = Expected::zeros(a.n_rows * 4);
    naive::spmm(&a, |_, _, _| 1.0, &to_f64(&x), 4, &mut expected);
    let (sparse, x) = (Sparse::new(device, &a, None), Guarded::new(device, &x));
    for longest_row in [None, Some(0), Some(10), Some(600), Some(usize::MAX)] {
        let mut out = Guarded::poisoned(device, a.n_rows * 4);
        let (csr, to) = (Csr { longest_row, ..sparse.csr() }, out.matrix_mut(a.n_rows, 4));
        device.spmm(csr, Weights::ones(), x.matrix(a.n_cols, 4), to, Write::Assign).unwrap();
        expected.check(&out.read(), true);
    }
}

/// On CUDA, rows of more than 512 entries are cut into chunks.
fn rows_around_the_limit_of_hubs<D: Spmm + Sddmm + Structure>(device: &D) {
    let mut random = Random(5);
    let degrees = [512, 513, 0, 514, 511, 1024, 1, 767, 768, 769, 0, 0, 1500, 600];
    let a = Pattern::of_row_lengths(&degrees, 9, &mut random);
    for (dim, write) in [(6, Write::Assign), (16, Write::Add)] {
        check_all(device, &a, dim, write, &mut random);
    }
    // One row, of as many entries as need no chunks, and of one more.
    for degree in [512, 513] {
        let a = Pattern::of_row_lengths(&[degree], 3, &mut random);
        check_all(device, &a, 4, Write::Assign, &mut random);
    }
}
