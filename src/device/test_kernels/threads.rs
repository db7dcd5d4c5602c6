//! Results on the CPU are the same, bit for bit, on every run and for every number of threads.

use rayon::ThreadPoolBuilder;

use super::naive::Pattern;
use super::{Cpu, Random};
use crate::device::*;

/// All kernels that add up or are cut into tasks, on data large enough for many tasks; their results' bits.
fn run_all<S: Scalar>() -> Vec<u64> {
    let device = Cpu::<S>::new();
    let mut random = Random(42);
    let (n, n_cols, dim, n_class) = (3000, 2000, 100, 47);
    let a = Pattern::random(n, n_cols, 20, true, &mut random);
    let x = random.values::<S>(n_cols * dim, false);
    let y = random.values::<S>(n * dim, false);
    let edge_weights = random.values::<S>(a.n_edge(), false);
    let index: Vec<u32> = (0..n).map(|_| random.index(n_cols) as u32).collect();
    let labels: Vec<i32> = (0..n).map(|_| random.index(n_class) as i32).collect();
    let csr = Csr::<Cpu<S>> {
        n_rows: n,
        n_cols,
        indptr: &a.indptr,
        indices: &a.indices,
        edge: None,
        longest_row: None,
    };
    let weights = Weights::<Cpu<S>> { edge: Some(&edge_weights), row: None, column: None };
    let x_matrix = Matrix::<Cpu<S>>::new(&x, n_cols, dim).unwrap();
    let y_matrix = Matrix::<Cpu<S>>::new(&y, n, dim).unwrap();

    let mut results = Vec::new();
    let mut keep = |values: &[S]| results.extend(values.iter().map(|&v| v.widen_f64().to_bits()));
    let mut out = vec![S::zero(); n * dim];
    let mut argmax = vec![0; n * dim];
    macro_rules! out {
        ($rows:expr, $cols:expr) => {
            MatrixMut::<Cpu<S>>::new(&mut out[..$rows * $cols], $rows, $cols).unwrap()
        };
    }

    device.spmm(csr, Weights::ones(), x_matrix, out!(n, dim), Write::Assign).unwrap();
    device.spmm(csr, weights, x_matrix, out!(n, dim), Write::Add).unwrap();
    keep(&out);
    device.spmm_max(csr, x_matrix, out!(n, dim), &mut argmax).unwrap();
    keep(&out);
    let [mut indptr, mut indices, mut edge] = [n_cols + 1, a.n_edge(), a.n_edge()].map(|len| vec![0; len]);
    device.transpose(csr, &mut indptr, &mut indices, &mut edge).unwrap();
    let transpose = Csr::<Cpu<S>> {
        n_rows: n_cols,
        n_cols: n,
        indptr: &indptr,
        indices: &indices,
        edge: Some(&edge),
        longest_row: None,
    };
    device.spmm_max_backward(transpose, &argmax, y_matrix, out!(n_cols, dim), Write::Add).unwrap();
    device.spmm(transpose, weights, y_matrix, out!(n_cols, dim), Write::Add).unwrap();
    keep(&out);
    let mut per_edge = vec![S::zero(); a.n_edge() * 4];
    device.sddmm_dot(csr, x_matrix, y_matrix, 4, &mut per_edge, Write::Assign).unwrap();
    keep(&per_edge);
    device.gather(&x, n_cols, &index, out!(n, dim)).unwrap();
    device.scatter_add(y_matrix, &index, out!(n_cols, dim)).unwrap();
    device.dropout(0.3, 1, 2, Some(&index), y_matrix, out!(n, dim)).unwrap();
    keep(&out);
    let rows = IndexedRows::<Cpu<S>, S> { table: &x, n_table: n_cols, index: &index };
    let block = Csr { n_cols: n, ..csr };
    device.gather_aggregate(rows, block, weights, Some(&y[..n]), out!(n, dim)).unwrap();
    keep(&out);

    device.gemm(y_matrix, true, y_matrix, false, out!(dim, dim), Write::Assign).unwrap();
    let long = random.values::<S>(20_000 * 8, false);
    let long = Matrix::<Cpu<S>>::new(&long, 20_000, 8).unwrap();
    device.gemm(long, true, long, false, out!(8, 8), Write::Add).unwrap();
    keep(&out);
    let square = &x[..dim * dim];
    device
        .gemm(y_matrix, false, Matrix::new(square, dim, dim).unwrap(), true, out!(n, dim), Write::Assign)
        .unwrap();
    keep(&out);

    let mut columns = vec![S::zero(); 2 * dim];
    let (left, right) = columns.split_at_mut(dim);
    device.sum_rows(y_matrix, left, Write::Assign).unwrap();
    device.sum_squared_deviation(y_matrix, left, right).unwrap();
    device
        .normalize_backward_parameters(y_matrix, &x[..dim], &x[dim..2 * dim], y_matrix, left, right)
        .unwrap();
    device.dot(&y, Some(&y), &mut right[..1]).unwrap();
    keep(&columns);

    let logits = Matrix::<Cpu<S>>::new(&y[..n * n_class], n, n_class).unwrap();
    let [mut lse, mut loss] = [0, 1].map(|_| vec![S::zero(); n]);
    device.log_softmax_nll(logits, &labels, &mut lse, &mut loss).unwrap();
    device.log_softmax_nll_backward(logits, &labels, &lse, 1.0, &[S::one()], out!(n, n_class)).unwrap();
    keep(&lse);
    keep(&loss);
    keep(&out);
    results
}

fn same_bits<S: Scalar>() {
    let run =
        |threads: usize| ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run_all::<S>);
    let expected = run(1);
    for threads in [1, 2, 8, 8] {
        assert!(run(threads) == expected, "{threads} threads give another result");
    }
}

#[test]
fn same_bits_f32() {
    same_bits::<f32>();
}

#[test]
fn same_bits_f64() {
    same_bits::<f64>();
}
