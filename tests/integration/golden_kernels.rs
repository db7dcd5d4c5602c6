//! The CPU kernels in f64 against outputs and gradients that PyTorch and PyTorch Geometric gave.
//!
//! The files are not part of this repository: `COHOP_SHARED`, or else `../shared`, names a folder that has them under
//! `golden/`. Without it these tests only say that they were skipped.

use std::path::PathBuf;

use cohop::device::{
    AdamStep, BatchNorm, Cpu, Csr, Elementwise, Loss, Matrix, MatrixMut, Optimizer, Sddmm, Spmm, Storage,
    Structure, Weights, Write,
};

use crate::common::{self, assert_close};
use crate::npz;

type Device = Cpu<f64>;

/// The arrays of one golden file.
struct Golden {
    name: &'static str,
    path: PathBuf,
}

impl Golden {
    fn open(name: &'static str) -> Option<Self> {
        let path = common::shared(format!("golden/{name}.npz"))?;
        Some(Golden { name, path })
    }

    fn floats(&self, array: &str) -> Vec<f64> {
        npz::array(&self.path, array).floats()
    }

    fn integers(&self, array: &str) -> Vec<i64> {
        npz::array(&self.path, array).integers()
    }

    fn number(&self, array: &str) -> f64 {
        self.floats(array)[0]
    }

    fn count(&self, array: &str) -> usize {
        self.integers(array)[0] as usize
    }

    /// Panics unless `actual` is the golden array up to rounding.
    #[track_caller]
    fn check(&self, array: &str, actual: &[f64]) {
        assert_close(&format!("{}: {array}", self.name), actual, &self.floats(array), |_, expected| {
            1e-11 * (1.0 + expected.abs())
        });
    }
}

/// The graph of a golden file, and its transpose.
struct Graph {
    n_dst: usize,
    n_src: usize,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    transposed_indptr: Vec<u32>,
    transposed_indices: Vec<u32>,
    positions: Vec<u32>,
}

impl Graph {
    fn of(golden: &Golden) -> Self {
        let (n_dst, n_src) = (golden.count("n_dst"), golden.count("n_src"));
        let dst = golden.integers("dst");
        let indices: Vec<u32> = golden.integers("src").iter().map(|&src| src as u32).collect();
        assert!(dst.is_sorted());
        let indptr: Vec<u32> =
            (0..=n_dst as i64).map(|i| dst.partition_point(|&dst| dst < i) as u32).collect();
        let n_edge = indices.len();
        let mut graph = Graph {
            n_dst,
            n_src,
            indptr,
            indices,
            transposed_indptr: vec![0; n_src + 1],
            transposed_indices: vec![0; n_edge],
            positions: vec![0; n_edge],
        };
        let (mut indptr, mut indices, mut positions) =
            (graph.transposed_indptr.clone(), graph.transposed_indices.clone(), graph.positions.clone());
        Device::new().transpose(graph.csr(), &mut indptr, &mut indices, &mut positions).unwrap();
        (graph.transposed_indptr, graph.transposed_indices, graph.positions) = (indptr, indices, positions);
        graph
    }

    fn csr(&self) -> Csr<'_, Device> {
        Csr::new(&self.indptr, &self.indices, self.n_src).unwrap()
    }

    fn transpose(&self) -> Csr<'_, Device> {
        let by_source = Csr::new(&self.transposed_indptr, &self.transposed_indices, self.n_dst).unwrap();
        by_source.with_edge(&self.positions).unwrap()
    }
}

fn matrix(data: &[f64], rows: usize) -> Matrix<'_, Device> {
    Matrix::new(data, rows, data.len() / rows).unwrap()
}

fn matrix_mut(data: &mut [f64], rows: usize) -> MatrixMut<'_, Device> {
    let cols = data.len() / rows;
    MatrixMut::new(data, rows, cols).unwrap()
}

/// `a · x`
fn product(a: Csr<'_, Device>, weights: Weights<'_, Device>, x: &[f64], x_rows: usize) -> Vec<f64> {
    let mut out = vec![f64::NAN; a.n_rows() * x.len() / x_rows];
    let n_rows = a.n_rows();
    Device::new().spmm(a, weights, matrix(x, x_rows), matrix_mut(&mut out, n_rows), Write::Assign).unwrap();
    out
}

#[test]
fn spmm_sum() {
    let Some(golden) = Golden::open("spmm_sum") else { return };
    let graph = Graph::of(&golden);
    golden.check("out", &product(graph.csr(), Weights::ones(), &golden.floats("x_src"), graph.n_src));
    let gradient = product(graph.transpose(), Weights::ones(), &golden.floats("cotangent"), graph.n_dst);
    golden.check("grad.x_src", &gradient);
}

#[test]
fn spmm_mean() {
    let Some(golden) = Golden::open("spmm_mean") else { return };
    let graph = Graph::of(&golden);
    let mut inverse_degree = vec![f64::NAN; graph.n_dst];
    Device::new().inverse_degree(&graph.indptr, 0.0, &mut inverse_degree).unwrap();
    let weights = Weights { edge: None, row: Some(&inverse_degree[..]), column: None };
    golden.check("out", &product(graph.csr(), weights, &golden.floats("x_src"), graph.n_src));
    let weights = Weights { edge: None, row: None, column: Some(&inverse_degree[..]) };
    let gradient = product(graph.transpose(), weights, &golden.floats("cotangent"), graph.n_dst);
    golden.check("grad.x_src", &gradient);
}

#[test]
fn spmm_weighted() {
    let Some(golden) = Golden::open("spmm_weighted") else { return };
    let graph = Graph::of(&golden);
    let (x, edge) = (golden.floats("x_src"), golden.floats("param.edge_weight"));
    let weights = Weights { edge: Some(&edge[..]), row: None, column: None };
    golden.check("out", &product(graph.csr(), weights, &x, graph.n_src));
    let cotangent = golden.floats("cotangent");
    golden.check("grad.x_src", &product(graph.transpose(), weights, &cotangent, graph.n_dst));
    let mut gradient = vec![f64::NAN; edge.len()];
    let (x, y) = (matrix(&x, graph.n_src), matrix(&cotangent, graph.n_dst));
    Device::new().sddmm_dot(graph.csr(), x, y, 1, &mut gradient, Write::Assign).unwrap();
    golden.check("grad.param.edge_weight", &gradient);
}

#[test]
fn sddmm_dot() {
    let Some(golden) = Golden::open("sddmm_dot") else { return };
    let graph = Graph::of(&golden);
    let (x, y) = (golden.floats("x_src"), golden.floats("param.y_dst"));
    let mut out = vec![f64::NAN; graph.indices.len()];
    Device::new()
        .sddmm_dot(graph.csr(), matrix(&x, graph.n_src), matrix(&y, graph.n_dst), 1, &mut out, Write::Assign)
        .unwrap();
    golden.check("out", &out);
    let cotangent = golden.floats("cotangent");
    let weights = Weights { edge: Some(&cotangent[..]), row: None, column: None };
    golden.check("grad.x_src", &product(graph.transpose(), weights, &y, graph.n_dst));
    golden.check("grad.param.y_dst", &product(graph.csr(), weights, &x, graph.n_src));
}

#[test]
fn log_softmax_nll_mean() {
    let Some(golden) = Golden::open("log_softmax_nll_mean") else { return };
    let (device, scale) = (Device::new(), golden.number("logit_scale"));
    let logits: Vec<f64> = golden.floats("x_src").iter().map(|x| scale * x).collect();
    let labels: Vec<i32> = golden.integers("target").iter().map(|&label| label as i32).collect();
    let n = labels.len();
    let (mut lse, mut loss) = (vec![f64::NAN; n], vec![f64::NAN; n]);
    device.log_softmax_nll(matrix(&logits, n), &labels, &mut lse, &mut loss).unwrap();
    let share = 1.0 / labels.iter().filter(|&&label| label >= 0).count() as f64;
    let mut mean = [f64::NAN];
    device.dot(&loss, None, &mut mean).unwrap();
    golden.check("out", &[mean[0] * share]);
    let mut gradient = vec![f64::NAN; logits.len()];
    let cotangent = golden.floats("cotangent");
    device
        .log_softmax_nll_backward(
            matrix(&logits, n),
            &labels,
            &lse,
            share * scale,
            &cotangent,
            matrix_mut(&mut gradient, n),
        )
        .unwrap();
    golden.check("grad.x_src", &gradient);
}

#[test]
fn batch_norm_train() {
    let Some(golden) = Golden::open("batch_norm_train") else { return };
    let (device, x) = (Device::new(), golden.floats("x_src"));
    let (gain, bias) = (golden.floats("param.weight"), golden.floats("param.bias"));
    let cols = gain.len();
    let rows = x.len() / cols;
    let x = matrix(&x, rows);
    let vector = || vec![f64::NAN; cols];
    let (mut sum, mut mean, mut squares, mut inverse_std) = (vector(), vector(), vector(), vector());
    device.sum_rows(x, &mut sum, Write::Assign).unwrap();
    device.scale(1.0 / rows as f64, &sum, &mut mean, Write::Assign).unwrap();
    device.sum_squared_deviation(x, &mean, &mut squares).unwrap();
    device.inverse_square_root(&squares, 1.0 / rows as f64, 1e-5, &mut inverse_std).unwrap();
    let mut out = vec![f64::NAN; rows * cols];
    device.normalize(x, &mean, &inverse_std, &gain, &bias, matrix_mut(&mut out, rows)).unwrap();
    golden.check("out", &out);

    let cotangent = golden.floats("cotangent");
    let dout = matrix(&cotangent, rows);
    let (mut dgain, mut dbias) = (vector(), vector());
    device.normalize_backward_parameters(x, &mean, &inverse_std, dout, &mut dgain, &mut dbias).unwrap();
    golden.check("grad.param.weight", &dgain);
    golden.check("grad.param.bias", &dbias);
    let dx = matrix_mut(&mut out, rows);
    device.normalize_backward(x, &mean, &inverse_std, &gain, dout, &dgain, &dbias, rows, dx).unwrap();
    golden.check("grad.x_src", &out);
}

fn check_adam(name: &'static str, decoupled: bool) {
    let Some(golden) = Golden::open(name) else { return };
    let mut parameter = golden.floats("start");
    let len = parameter.len();
    let (mut first_moment, mut second_moment) = (vec![0.0; len], vec![0.0; len]);
    let mut after = Vec::new();
    for (step, grad) in (1..).zip(golden.floats("grads").chunks(len)) {
        let step = AdamStep {
            lr: golden.number("lr"),
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: golden.number("weight_decay"),
            decoupled,
            step,
        };
        Device::new().adam(step, grad, &mut first_moment, &mut second_moment, &mut parameter).unwrap();
        after.extend(Device::new().download(&parameter).unwrap());
    }
    golden.check("after", &after);
}

#[test]
fn adam_with_l2_decay() {
    check_adam("adam_l2", false);
}

#[test]
fn adam_with_decoupled_decay() {
    check_adam("adamw", true);
}
