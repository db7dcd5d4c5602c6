//! Softmax over each vertex's in-edges.

use super::Bench;
use super::check::{Values, agree, part};
use super::row::Amount;
use cohop::Result;
use cohop::device::Device;

const HEADS: usize = 8;
const X: Values = Values(9);
const DOUT: Values = Values(10);

pub(super) fn edge_softmax<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    let works = ["edge_softmax_fwd", "edge_softmax_bwd"];
    if !bench.wants_any(&works) {
        return Ok(());
    }
    let (device, graph) = (bench.device, bench.workload.graph());
    let block = bench.workload.block(device)?;
    let (csr, e) = (block.csr(), block.n_edge());
    let size = bench.size(format_args!("h={HEADS}"));
    let x = device.upload(&X.host(e * HEADS))?;
    let mut y = device.allocate::<f32>(e * HEADS)?;
    let forward = |y: &mut D::Buffer<f32>| device.edge_softmax(csr, HEADS, D::view(&x), D::view_mut(y));
    forward(&mut y)?;
    // For each vertex to check: the positions of its in-edges, and their softmax, one row per edge.
    let mut expected: Vec<(usize, Vec<f64>)> = Vec::new();
    for t in bench.workload.rows_to_check() {
        let first = graph.indptr()[t as usize] as usize * HEADS;
        let mut softmax: Vec<f64> =
            (0..graph.in_neighbors(t).len() * HEADS).map(|i| f64::from(X.at(first + i)).exp()).collect();
        for h in 0..HEADS {
            let sum: f64 = softmax.iter().skip(h).step_by(HEADS).sum();
            softmax.iter_mut().skip(h).step_by(HEADS).for_each(|value| *value /= sum);
        }
        agree(works[0], &part(device, &y, first..first + softmax.len())?, &softmax)?;
        expected.push((first, softmax));
    }
    if bench.wants(works[0]) {
        let amount = Amount::graph_edges(e).bytes((8 * HEADS * e) as f64);
        bench.time_kernel(works[0], size.clone(), amount, || forward(&mut y))?;
    }
    drop(x);
    if bench.wants(works[1]) {
        let dout = device.upload(&DOUT.host(e * HEADS))?;
        let mut dx = device.allocate::<f32>(e * HEADS)?;
        let (y, dout) = (D::view(&y), D::view(&dout));
        let backward =
            |dx: &mut D::Buffer<f32>| device.edge_softmax_backward(csr, HEADS, y, dout, D::view_mut(dx));
        backward(&mut dx)?;
        for (first, softmax) in &expected {
            let product = |i: usize| softmax[i] * f64::from(DOUT.at(first + i));
            let gradient = |i: usize| {
                let dot: f64 = (i % HEADS..softmax.len()).step_by(HEADS).map(product).sum();
                product(i) - softmax[i] * dot
            };
            let found = part(device, &dx, *first..first + softmax.len())?;
            agree(works[1], &found, &(0..softmax.len()).map(gradient).collect::<Vec<_>>())?;
        }
        let amount = Amount::graph_edges(e).bytes((12 * HEADS * e) as f64);
        bench.time_kernel(works[1], size, amount, || backward(&mut dx))?;
    }
    Ok(())
}
