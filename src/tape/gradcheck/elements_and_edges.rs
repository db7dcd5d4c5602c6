//! The cases for maps over elements, losses of one element, and values of edges.

use std::sync::Arc;

use super::{Case, Report, Shape, check, random, random_block};
use crate::block::Block;
use crate::device::Device;
use crate::error::Result;
use crate::rng;
use crate::tape::{Aggregate, Tape, Var};
use crate::tensor::Tensor;

pub(super) fn cases<D: Device<Scalar = f64>>() -> Vec<Case<D>> {
    vec![
        Case { name: "multiply", run: |d, s, z| of_two(d, s, z, |tape, v| tape.multiply(v[0], v[1])) },
        Case { name: "divide", run: |d, s, z| of_two(d, s, z, |tape, v| tape.divide(v[0], v[1])) },
        Case { name: "subtract", run: |d, s, z| of_two(d, s, z, |tape, v| tape.subtract(v[0], v[1])) },
        Case { name: "scale", run: |d, s, z| of_two(d, s, z, |tape, v| tape.scale(v[0], -0.75)) },
        Case { name: "square", run: |d, s, z| of_two(d, s, z, |tape, v| tape.square(v[0])) },
        Case { name: "square root", run: |d, s, z| of_two(d, s, z, |tape, v| tape.square_root(v[1])) },
        Case { name: "exponential", run: |d, s, z| of_two(d, s, z, |tape, v| tape.exponential(v[0])) },
        Case { name: "logarithm", run: |d, s, z| of_two(d, s, z, |tape, v| tape.logarithm(v[1])) },
        Case { name: "columns", run: columns },
        Case { name: "binary cross-entropy", run: binary_cross_entropy },
        Case { name: "squared error", run: squared_error },
        Case { name: "edge dot, one head", run: |d, s, z| edge_dot(d, s, z, 1) },
        Case { name: "edge dot, three heads", run: |d, s, z| edge_dot(d, s, z, 3) },
        Case { name: "aggregate heads, one head", run: |d, s, z| aggregate_heads(d, s, z, 1) },
        Case { name: "aggregate heads, three heads", run: |d, s, z| aggregate_heads(d, s, z, 3) },
        Case { name: "aggregate edges, sum", run: |d, s, z| aggregate_edges(d, s, z, Aggregate::Sum) },
        Case { name: "aggregate edges, mean", run: |d, s, z| aggregate_edges(d, s, z, Aggregate::Mean) },
        Case { name: "edge lookup", run: edge_lookup },
    ]
}

/// Checks `f` of two matrices: one of any numbers, and one of positive numbers away from 0.
fn of_two<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    f: impl Fn(&Tape<D>, &[Var]) -> Result<Var>,
) -> Result<Report> {
    let positive = random(device, s.n_src, s.dim, seed + 1)?.to_vec(device)?;
    let positive: Vec<f64> = positive.iter().map(|x| x.abs() + 0.5).collect();
    let positive = Tensor::from_slice(device, s.n_src, s.dim, &positive)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?, positive], seed, f)
}

fn columns<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    check(device, &[random(device, s.n_src, s.dim + 3, seed)?], seed, |tape, v| {
        tape.concatenate(&[tape.columns(v[0], 1..s.dim + 1)?, tape.columns(v[0], 2..2)?])
    })
}

/// Targets of 0, 1 and between, some of them missing.
fn targets<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Tensor<D>> {
    let target = |i: u64| [0.0, 1.0, 0.25, f64::NAN][rng::bounded(seed, 7, i, 4) as usize];
    let values: Vec<f64> = (0..(s.n_src * s.dim) as u64).map(target).collect();
    Tensor::from_slice(device, s.n_src, s.dim, &values)
}

fn binary_cross_entropy<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let targets = targets(device, s, seed)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.binary_cross_entropy(v[0], targets.clone(), 0.5)
    })
}

fn squared_error<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let targets = targets(device, s, seed)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.squared_error(v[0], targets.clone(), 0.5)
    })
}

fn edge_dot<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64, heads: usize) -> Result<Report> {
    let (block, width) = (random_block(device, s, seed)?, heads * s.dim);
    let inputs = [random(device, s.n_dst, width, seed)?, random(device, s.n_src, width, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.edge_dot(&block, v[0], v[1], heads))
}

fn aggregate_heads<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64, heads: usize) -> Result<Report> {
    let (block, width) = (random_block(device, s, seed)?, heads * s.dim);
    let inputs = [random(device, s.n_src, width, seed)?, random(device, s.n_edge, heads, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.aggregate_heads(&block, v[0], v[1]))
}

fn aggregate_edges<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    aggregate: Aggregate,
) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    check(device, &[random(device, s.n_edge, s.dim, seed)?], seed, |tape, v| {
        tape.aggregate_edges(&block, v[0], aggregate)
    })
}

/// Checks lookups in an edge table with as many rows as the block has edges, some of which are read more than once.
fn edge_lookup<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    let (indptr, indices) = (device.download(block.csr().indptr)?, device.download(block.csr().indices)?);
    let ids: Vec<u64> = (0..s.n_edge as u64).map(|e| rng::bounded(seed, 8, e, s.n_edge as u64)).collect();
    let block = Block::from_csr(device, s.n_src, &indptr, &indices)?.with_edge_ids(device.upload(&ids)?)?;
    let block = Arc::new(block);
    check(device, &[random(device, s.n_edge, s.dim, seed)?], seed, |tape, v| tape.edge_lookup(&block, v[0]))
}
