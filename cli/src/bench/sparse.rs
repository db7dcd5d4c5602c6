//! Sparse times dense on the whole graph, and sampled dense products, one value per edge.

use std::sync::Arc;

use super::Bench;
use super::check::{Values, agree, part, row, wrong};
use super::row::Amount;
use cohop::Result;
use cohop::block::Block;
use cohop::device::{Csr, Device, Precision, Weights, Write};
use cohop::graph::Graph;
use cohop::tape::{Aggregate, Tape};
use cohop::tensor::Tensor;

const X: Values = Values(6);
const Y: Values = Values(7);
const EDGE_WEIGHTS: Values = Values(8);

pub(super) fn all<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    let others = ["transpose", "spmm_sum_bf16", "spmm_sum_f16", "spmm_max_fwd", "spmm_max_bwd", "sddmm_dot"];
    if !bench.wants_any(&others) && !Reduce::ALL.iter().any(|reduce| bench.wants_any(&reduce.works())) {
        return Ok(());
    }
    let block = Arc::new(bench.workload.block(bench.device)?);
    if bench.wants("transpose") {
        transpose(bench, &block)?;
    }
    for reduce in Reduce::ALL {
        for &dim in bench.widths {
            if bench.wants_any(&reduce.works()) {
                spmm(bench, &block, reduce, dim)?;
            }
        }
    }
    for (work, precision) in [("spmm_sum_bf16", Precision::Bf16), ("spmm_sum_f16", Precision::F16)] {
        for &dim in bench.widths {
            if bench.wants(work) {
                narrow(bench, &block, work, precision, dim)?;
            }
        }
    }
    if bench.wants_any(&["spmm_max_fwd", "spmm_max_bwd"]) {
        spmm_max(bench, &block, 128)?;
    }
    for &dim in bench.widths {
        if bench.wants("sddmm_dot") && dim <= 128 {
            sddmm(bench, &block, dim)?;
        }
    }
    Ok(())
}

/// How the neighbours' rows are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reduce {
    Sum,
    Mean,
    Weighted,
}

impl Reduce {
    const ALL: [Reduce; 3] = [Reduce::Sum, Reduce::Mean, Reduce::Weighted];

    /// Names of forward and backward.
    fn works(self) -> [&'static str; 2] {
        match self {
            Reduce::Sum => ["spmm_sum_fwd", "spmm_sum_bwd"],
            Reduce::Mean => ["spmm_mean_fwd", "spmm_mean_bwd"],
            Reduce::Weighted => ["spmm_weighted_fwd", "spmm_weighted_bwd"],
        }
    }

    /// The factor of edge `edge`, an in-edge of `t`.
    fn factor(self, graph: &Graph, t: u32, edge: usize) -> f64 {
        match self {
            Reduce::Sum => 1.0,
            Reduce::Mean => 1.0 / graph.in_degree(t) as f64,
            Reduce::Weighted => f64::from(EDGE_WEIGHTS.at(edge)),
        }
    }
}

/// The position of the edge from `s` to `t`, which exists, since the graph is symmetric.
fn position(graph: &Graph, s: u32, t: u32) -> usize {
    graph.indptr()[t as usize] as usize + graph.in_neighbors(t).partition_point(|&source| source < s)
}

fn transpose<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>, block: &Block<D>) -> Result<()> {
    let (device, graph, csr) = (bench.device, bench.workload.graph(), block.csr());
    let (n, e) = (block.n_src(), block.n_edge());
    // Row ends, destinations, and the edges' positions.
    let mut made = [device.allocate::<u32>(n + 1)?, device.allocate(e)?, device.allocate(e)?];
    let make = |made: &mut [D::Buffer<u32>; 3]| {
        let [indptr, indices, edge] = made.each_mut().map(|buffer| D::view_mut(buffer));
        device.transpose(csr, indptr, indices, edge)
    };
    make(&mut made)?;
    let indptr = device.download(D::view(&made[0]))?;
    for s in bench.workload.rows_to_check() {
        let row = indptr[s as usize] as usize..indptr[s as usize + 1] as usize;
        let found = device.download(D::slice(D::view(&made[1]), row.clone()))?;
        let edges = device.download(D::slice(D::view(&made[2]), row))?;
        let right = found == graph.in_neighbors(s)
            && found.iter().zip(&edges).all(|(&t, &edge)| position(graph, s, t) == edge as usize);
        if !right {
            return wrong("transpose", format!("row {s} = {found:?}"), "the reverse edges");
        }
    }
    // Reads the sources twice, to count and to place, and writes destinations and positions.
    let amount = Amount::graph_edges(e).bytes((16 * e + 8 * n) as f64);
    bench.time_kernel("transpose", bench.workload.name.clone(), amount, || make(&mut made))
}

fn spmm<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    block: &Block<D>,
    reduce: Reduce,
    dim: usize,
) -> Result<()> {
    let (device, graph) = (bench.device, bench.workload.graph());
    let (n, e) = (block.n_src(), block.n_edge());
    let edge_weights =
        if reduce == Reduce::Weighted { Some(device.upload(&EDGE_WEIGHTS.host(e))?) } else { None };
    let weights = match (reduce, &edge_weights) {
        (Reduce::Mean, _) => block.mean_weights(device)?,
        (_, Some(weights)) => Weights { edge: Some(D::view(weights)), row: None, column: None },
        (_, None) => Weights::ones(),
    };
    let x = X.tensor(device, n, dim)?;
    let mut out = Tensor::allocate(device, n, dim)?;
    let amount = |per_edge: usize| {
        let bytes = e * (4 * dim + 4 + per_edge) + n * (4 * dim + 4);
        Amount::multiply_adds((e * dim) as f64).bytes(bytes as f64)
    };
    let weight_bytes = if edge_weights.is_some() { 4 } else { 0 };
    let [forward, backward] = reduce.works();
    let size = bench.size(format_args!("d={dim}"));

    let sums = |terms: &mut dyn Iterator<Item = (f64, u32)>| -> Vec<f64> {
        let mut sum = vec![0.0; dim];
        for (factor, vertex) in terms {
            let first = vertex as usize * dim;
            sum.iter_mut().enumerate().for_each(|(c, sum)| *sum += factor * f64::from(X.at(first + c)));
        }
        sum
    };
    let product = |a: Csr<'_, D>, weights: Weights<'_, D>, out: &mut Tensor<D>| {
        device.spmm(a, weights, x.matrix(), out.make_mut(device)?, Write::Assign)
    };
    if bench.wants(forward) {
        product(block.csr(), weights, &mut out)?;
        for t in bench.workload.rows_to_check() {
            let sources = graph.in_neighbors(t).iter();
            let expected = sums(&mut sources.map(|&s| (reduce.factor(graph, t, position(graph, s, t)), s)));
            agree(forward, &row(device, &out, t)?, &expected)?;
        }
        let run = || product(block.csr(), weights, &mut out);
        bench.time_kernel(forward, size.clone(), amount(weight_bytes), run)?;
    }
    if bench.wants(backward) {
        let transpose = block.transpose(device)?;
        let weights = Weights { edge: weights.edge, row: weights.column, column: weights.row };
        product(transpose, weights, &mut out)?;
        for s in bench.workload.rows_to_check() {
            let destinations = graph.in_neighbors(s).iter();
            let expected =
                sums(&mut destinations.map(|&t| (reduce.factor(graph, t, position(graph, s, t)), t)));
            agree(backward, &row(device, &out, s)?, &expected)?;
        }
        // A weight's position must be read too; the mean's column factor is one number per edge.
        let per_edge = match reduce {
            Reduce::Sum => 0,
            Reduce::Mean => 4,
            Reduce::Weighted => 8,
        };
        bench.time_kernel(backward, size, amount(per_edge), || product(transpose, weights, &mut out))?;
    }
    Ok(())
}

/// The sum as the operation of a tape makes it, of rows that it rounds first.
fn narrow<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    block: &Arc<Block<D>>,
    work: &'static str,
    precision: Precision,
    dim: usize,
) -> Result<()> {
    let (device, graph) = (bench.device.clone().with_precision(precision), bench.workload.graph());
    let (n, e) = (block.n_src(), block.n_edge());
    let x = X.tensor(&device, n, dim)?;
    let run = || -> Result<Tensor<D>> {
        let tape = Tape::inference(&device);
        let sum = tape.aggregate(block, tape.constant(x.clone()), Aggregate::Sum)?;
        Ok(tape.value(sum))
    };
    let out = run()?;
    for t in bench.workload.rows_to_check() {
        let sum = |value: &dyn Fn(f32) -> f32| -> Vec<f64> {
            let of_column = |c| graph.in_neighbors(t).iter().map(move |&s| X.at(s as usize * dim + c));
            (0..dim).map(|c| of_column(c).map(|x| f64::from(value(x))).sum()).collect()
        };
        // Half of a unit in the last place of each term.
        let (exact, terms) = (sum(&|x| x), sum(&f32::abs));
        let found = row(&device, &out, t)?;
        let is_close = |c: usize| (f64::from(found[c]) - exact[c]).abs() <= 1e-4 + terms[c] / 256.0;
        if let Some(c) = (0..dim).find(|&c| !is_close(c)) {
            return wrong(work, found[c], exact[c]);
        }
    }
    // Rounding reads and writes each row once.
    let bytes = e * (2 * dim + 4) + n * (10 * dim + 4);
    let amount = Amount::multiply_adds((e * dim) as f64).bytes(bytes as f64);
    bench.time(work, bench.size(format_args!("d={dim}")), amount, || run().map(drop))
}

/// The first in-neighbour of `t` with the largest value in a column.
fn attains(graph: &Graph, t: u32, value: impl Fn(u32) -> f32) -> u32 {
    let neighbors = graph.in_neighbors(t);
    let first = |best: u32, s: u32| if value(s) > value(best) { s } else { best };
    neighbors.iter().copied().reduce(first).unwrap_or(t)
}

fn spmm_max<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>, block: &Block<D>, dim: usize) -> Result<()> {
    let (device, graph) = (bench.device, bench.workload.graph());
    let (n, e) = (block.n_src(), block.n_edge());
    let x = X.tensor(device, n, dim)?;
    let mut out = Tensor::allocate(device, n, dim)?;
    let mut argmax = device.allocate::<u32>(n * dim)?;
    let value = |vertex: u32, c: usize| X.at(vertex as usize * dim + c);
    let size = bench.size(format_args!("d={dim}"));
    let forward = |out: &mut Tensor<D>, argmax: &mut D::Buffer<u32>| {
        device.spmm_max(block.csr(), x.matrix(), out.make_mut(device)?, D::view_mut(argmax))
    };
    forward(&mut out, &mut argmax)?;
    for t in bench.workload.rows_to_check() {
        let largest = |c: usize| f64::from(value(attains(graph, t, |s| value(s, c)), c));
        agree("spmm_max_fwd", &row(device, &out, t)?, &(0..dim).map(largest).collect::<Vec<_>>())?;
    }
    if bench.wants("spmm_max_fwd") {
        let bytes = e * (4 * dim + 4) + n * (8 * dim + 4);
        let run = || forward(&mut out, &mut argmax);
        bench.time_kernel("spmm_max_fwd", size.clone(), Amount::graph_edges(e).bytes(bytes as f64), run)?;
    }
    if bench.wants("spmm_max_bwd") {
        let transpose = block.transpose(device)?;
        let dout = Y.tensor(device, n, dim)?;
        let argmax = D::view(&argmax);
        let backward = |dx: &mut Tensor<D>| {
            device.spmm_max_backward(transpose, argmax, dout.matrix(), dx.make_mut(device)?, Write::Assign)
        };
        backward(&mut out)?;
        for s in bench.workload.rows_to_check().into_iter().take(5) {
            let gets = |t: u32, c: usize| attains(graph, t, |source| value(source, c)) == s;
            let sum = |c: usize| -> f64 {
                let destinations = graph.in_neighbors(s).iter().filter(|&&t| gets(t, c));
                destinations.map(|&t| f64::from(Y.at(t as usize * dim + c))).sum()
            };
            // A few columns are enough: a hub has many neighbours.
            let found = row(device, &out, s)?;
            agree("spmm_max_bwd", &found[..8], &(0..8).map(sum).collect::<Vec<_>>())?;
        }
        let bytes = e * (8 * dim + 8) + n * (4 * dim + 4);
        let amount = Amount::graph_edges(e).bytes(bytes as f64);
        bench.time_kernel("spmm_max_bwd", size, amount, || backward(&mut out))?;
    }
    Ok(())
}

fn sddmm<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>, block: &Block<D>, dim: usize) -> Result<()> {
    let (device, graph) = (bench.device, bench.workload.graph());
    let (n, e) = (block.n_src(), block.n_edge());
    let (x, y) = (X.tensor(device, n, dim)?, Y.tensor(device, n, dim)?);
    let mut out = device.allocate::<f32>(e)?;
    let dots = |out: &mut D::Buffer<f32>| {
        device.sddmm_dot(block.csr(), x.matrix(), y.matrix(), 1, D::view_mut(out), Write::Assign)
    };
    dots(&mut out)?;
    for t in bench.workload.rows_to_check() {
        let dot = |&s: &u32| -> f64 {
            let (s, t) = (s as usize * dim, t as usize * dim);
            (0..dim).map(|c| f64::from(X.at(s + c)) * f64::from(Y.at(t + c))).sum()
        };
        let row = graph.indptr()[t as usize] as usize..graph.indptr()[t as usize + 1] as usize;
        let expected: Vec<f64> = graph.in_neighbors(t).iter().map(dot).collect();
        agree("sddmm_dot", &part(device, &out, row)?, &expected)?;
    }
    // Each destination's row is read once for all its edges.
    let bytes = e * (4 * dim + 8) + n * (4 * dim + 4);
    let amount = Amount::multiply_adds((e * dim) as f64).bytes(bytes as f64);
    bench.time_kernel("sddmm_dot", bench.size(format_args!("d={dim}")), amount, || dots(&mut out))
}
