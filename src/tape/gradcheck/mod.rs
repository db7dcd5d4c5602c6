//! Numerical checks of gradients in f64: central differences against the tape, with a random cotangent.
//!
//! A plain sum as the loss would hide errors (the sum of a softmax is constant, so its gradient is zero), so the loss
//! is `⟨f(inputs), c⟩` with normal `c`.
//!
//! ```
//! use cohop::{device::{Activation, Cpu}, tape::gradcheck, tensor::Tensor};
//! # fn main() -> cohop::Result<()> {
//! let cpu = Cpu::<f64>::new();
//! let x = Tensor::from_slice(&cpu, 1, 3, &[-0.5, 0.25, 2.0])?;
//! let report = gradcheck::check(&cpu, &[x], 0, |tape, vars| tape.activate(vars[0], Activation::Elu))?;
//! assert!(report.max_relative_error <= 1e-6);
//! # Ok(())
//! # }
//! ```

mod elements_and_edges;
mod operations;

use std::sync::Arc;

use super::{Tape, Var};
use crate::block::Block;
use crate::device::Device;
use crate::error::Result;
use crate::rng;
use crate::tensor::Tensor;

pub use operations::operations;

/// The largest relative error at which a gradient passes.
pub const TOLERANCE: f64 = 1e-6;

/// Outcome of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// Number of derivatives compared.
    pub derivatives: usize,
    /// `max |tape − numerical| / max(|tape|, |numerical|, 10⁻³ · largest derivative, 10⁻⁸)`; NaN counts as infinite.
    pub max_relative_error: f64,
}

impl Report {
    /// Whether all derivatives agree to [`TOLERANCE`].
    pub fn passed(&self) -> bool {
        self.max_relative_error <= TOLERANCE
    }

    /// Includes another report in this one.
    pub fn merge(&mut self, other: Report) {
        self.derivatives += other.derivatives;
        self.max_relative_error = self.max_relative_error.max(other.max_relative_error);
    }
}

/// Compares the tape's gradients of `⟨f(inputs), c⟩` with central differences, for every element of every input.
///
/// `f` is called with a fresh training tape and one leaf per input; it must be deterministic (dropout is: the tape's
/// seed is fixed). The difference step starts at 10⁻⁴; an element that disagrees is tried again with smaller steps,
/// since a step may cross a kink (ReLU, maximum): a wrong derivative disagrees at every step. Panics if `f` returns a
/// value of another tape.
///
/// Errors: those of `f` and of the backward pass.
pub fn check<D: Device<Scalar = f64>>(
    device: &D,
    inputs: &[Tensor<D>],
    seed: u64,
    f: impl Fn(&Tape<D>, &[Var]) -> Result<Var>,
) -> Result<Report> {
    check_erased(device, inputs, seed, &f)
}

/// What is checked, given a tape and a leaf per input.
type Function<'a, D> = dyn Fn(&Tape<D>, &[Var]) -> Result<Var> + 'a;

/// [`check`], compiled once for all functions.
fn check_erased<D: Device<Scalar = f64>>(
    device: &D,
    inputs: &[Tensor<D>],
    seed: u64,
    f: &Function<'_, D>,
) -> Result<Report> {
    let loss = |inputs: &[Tensor<D>]| -> Result<(Tape<D>, Vec<Var>, Var)> {
        let tape = Tape::training(device, seed);
        let leaves: Vec<Var> = inputs.iter().map(|x| tape.leaf(x.clone())).collect();
        let out = f(&tape, &leaves)?;
        let [rows, cols] = tape.shape(out);
        let loss = tape.dot(out, random(device, rows, cols, seed ^ 0x00c0_ffee)?)?;
        Ok((tape, leaves, loss))
    };
    let (tape, leaves, out) = loss(inputs)?;
    let gradients = tape.backward(out)?;
    let tape_gradients: Vec<Vec<f64>> = leaves
        .iter()
        .zip(inputs)
        .map(|(&leaf, input)| match gradients.dense(device, leaf)? {
            Some(gradient) => gradient.to_vec(device),
            None => Ok(vec![0.0; input.rows() * input.cols()]),
        })
        .collect::<Result<_>>()?;
    let largest = tape_gradients.iter().flatten().fold(0.0f64, |m, g| m.max(g.abs()));

    let mut report = Report::default();
    let mut inputs = inputs.to_vec();
    for (which, gradient) in tape_gradients.iter().enumerate() {
        for (element, &expected) in gradient.iter().enumerate() {
            let mut error = f64::INFINITY;
            for step in [1e-4, 1e-5, 1e-6] {
                let mut at = |offset: f64| -> Result<f64> {
                    let original = inputs[which].clone();
                    let mut values = original.to_vec(device)?;
                    values[element] += offset;
                    inputs[which] = Tensor::from_slice(device, original.rows(), original.cols(), &values)?;
                    let (tape, _, out) = loss(&inputs)?;
                    inputs[which] = original;
                    tape.value(out).item(device)
                };
                let near = at(step)? - at(-step)?;
                let far = at(2.0 * step)? - at(-2.0 * step)?;
                let numerical = (8.0 * near - far) / (12.0 * step);
                let scale = expected.abs().max(numerical.abs()).max(1e-3 * largest).max(1e-8);
                let now = (expected - numerical).abs() / scale;
                error = if now.is_nan() { error } else { error.min(now) };
                if error <= TOLERANCE {
                    break;
                }
            }
            report.merge(Report { derivatives: 1, max_relative_error: error });
        }
    }
    Ok(report)
}

/// A named check over a family of shapes.
pub struct Case<D> {
    /// The operation or layer.
    pub name: &'static str,
    /// Runs the check for a shape, with values drawn from a seed.
    pub run: fn(&D, Shape, u64) -> Result<Report>,
}

/// The shape of the block that a case works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Destinations.
    pub n_dst: usize,
    /// Sources; at least `n_dst`.
    pub n_src: usize,
    /// Edges: random, with parallel ones and, where there are few, isolated destinations.
    pub n_edge: usize,
    /// Feature columns.
    pub dim: usize,
}

/// The shapes that every case is run on: 0 rows, 0 edges, one row, one column, isolated destinations, a hub.
pub const SHAPES: [Shape; 6] = [
    Shape { n_dst: 0, n_src: 0, n_edge: 0, dim: 3 },
    Shape { n_dst: 3, n_src: 4, n_edge: 0, dim: 2 },
    Shape { n_dst: 1, n_src: 1, n_edge: 1, dim: 1 },
    Shape { n_dst: 1, n_src: 9, n_edge: 30, dim: 3 },
    Shape { n_dst: 6, n_src: 8, n_edge: 5, dim: 4 },
    Shape { n_dst: 4, n_src: 7, n_edge: 17, dim: 5 },
];

impl<D: Device<Scalar = f64>> Case<D> {
    /// Runs the case on all [`SHAPES`].
    ///
    /// Errors: those of the operation or layer.
    pub fn run_all(&self, device: &D, seed: u64) -> Result<Report> {
        let mut report = Report::default();
        for (i, &shape) in SHAPES.iter().enumerate() {
            report.merge((self.run)(device, shape, rng::derive(seed, 0, i as u64))?);
        }
        Ok(report)
    }
}

/// A matrix of standard normal values.
///
/// Errors: the device fails or is out of memory.
pub fn random<D: Device<Scalar = f64>>(device: &D, rows: usize, cols: usize, seed: u64) -> Result<Tensor<D>> {
    let values: Vec<f64> = (0..rows * cols).map(|i| rng::normal(seed, 1, i as u64)).collect();
    Tensor::from_slice(device, rows, cols, &values)
}

/// A random block of the given shape, with in-degrees in a larger graph for symmetric normalisation. Panics if the
/// shape has edges but no destinations or no sources.
///
/// Errors: the shape has fewer sources than destinations, or the device fails.
pub fn random_block<D: Device<Scalar = f64>>(device: &D, shape: Shape, seed: u64) -> Result<Arc<Block<D>>> {
    let mut edges: Vec<(u32, u32)> = (0..shape.n_edge as u64)
        .map(|e| {
            let dst = rng::bounded(seed, 2, e, shape.n_dst as u64) as u32;
            (dst, rng::bounded(seed, 3, e, shape.n_src as u64) as u32)
        })
        .collect();
    edges.sort_unstable();
    let mut indptr = vec![0u32; shape.n_dst + 1];
    for &(dst, _) in &edges {
        indptr[dst as usize + 1] += 1;
    }
    for i in 0..shape.n_dst {
        indptr[i + 1] += indptr[i];
    }
    let degrees = indptr.clone();
    let indices: Vec<u32> = edges.iter().map(|&(_, src)| src).collect();
    let block = Block::from_csr(device, shape.n_src, &indptr, &indices)?;
    let in_block = move |v: u32| {
        let v = v as usize;
        if v + 1 < degrees.len() { u64::from(degrees[v + 1] - degrees[v]) } else { 0 }
    };
    Ok(Arc::new(block.with_degrees(device, |v| 2 * in_block(v) + u64::from(v % 3))?))
}

/// A [`random_block`] with edge weights, of which a fifth are 0, and sums of weights in a larger graph. Panics as
/// [`random_block`] does.
///
/// Errors: those of [`random_block`].
pub fn random_weighted_block<D: Device<Scalar = f64>>(
    device: &D,
    shape: Shape,
    seed: u64,
) -> Result<Arc<Block<D>>> {
    let block = random_block(device, shape, seed)?;
    let csr = block.csr();
    let (indptr, indices) = (device.download(csr.indptr)?, device.download(csr.indices)?);
    let weights = device.upload(&random_weights(shape.n_edge, seed))?;
    let weighted =
        Block::from_csr(device, shape.n_src, &indptr, &indices)?.with_edge_weights(device, weights)?;
    let in_degree = |v: u32| u64::from(v % 5) + 1;
    Ok(Arc::new(weighted.with_weighted_degrees(device, in_degree, |v| f64::from(v % 3) * 0.7)?))
}

/// Weights in 0..2, of which a fifth are 0.
pub(crate) fn random_weights(n_edge: usize, seed: u64) -> Vec<f64> {
    let weight = |e| (2.5 * rng::uniform(seed, 7, e) - 0.5).max(0.0);
    (0..n_edge as u64).map(weight).collect()
}

/// A random block of the given shape whose edges have relations below `n_relations`, of which relation 1 (if there is
/// one) has no edges. Panics as [`random_block`] does, and for edges if `n_relations` is 0.
///
/// Errors: those of [`random_block`].
pub fn random_typed_block<D: Device<Scalar = f64>>(
    device: &D,
    shape: Shape,
    n_relations: usize,
    seed: u64,
) -> Result<Arc<Block<D>>> {
    let block = random_block(device, shape, seed)?;
    let relation = |e: u64| match rng::bounded(seed, 6, e, n_relations as u64) as u16 {
        1 => 0,
        r => r,
    };
    let types: Vec<u16> = (0..shape.n_edge as u64).map(relation).collect();
    let csr = block.csr();
    let (indptr, indices) = (device.download(csr.indptr)?, device.download(csr.indices)?);
    let typed = Block::from_csr(device, shape.n_src, &indptr, &indices)?;
    Ok(Arc::new(typed.with_edge_types(device.upload(&types)?)?))
}
