//! Layers on the whole graph, on the tape: forward, and forward with backward.

use std::sync::Arc;

use super::Bench;
use super::check::{Values, wrong};
use super::row::Amount;
use cohop::Result;
use cohop::block::Block;
use cohop::device::{Device, Write};
use cohop::nn::{Decomposition, Gat, Gatv2, Heads, Input, Layer, Parameters, Pass, Rgcn};
use cohop::tape::{AttentionOptions, Tape, Var};
use cohop::tensor::Tensor;

const WIDTH: usize = 128;
const HEADS: usize = 8;
/// Without self-loops, so that all peers work on the same graph.
const ATTENTION: AttentionOptions =
    AttentionOptions { heads: HEADS, slope: 0.2, self_loop: false, dropout: 0.0 };

pub(super) fn all<D: Device<Scalar = f32>>(bench: &mut Bench<'_, D>) -> Result<()> {
    let (device, workload) = (bench.device, bench.workload);
    let [gat, gatv2] = [["gat_fwd", "gat_fwd+bwd"], ["gatv2_fwd", "gatv2_fwd+bwd"]];
    let rgcn = ["rgcn_fwd", "rgcn_fwd+bwd"];
    let dim = WIDTH / HEADS;
    if bench.wants_any(&gat) || bench.wants_any(&gatv2) {
        let block = Arc::new(workload.block(device)?);
        if bench.wants_any(&gat) {
            let mut parameters = Parameters::new(0);
            let layer = Gat::new(device, &mut parameters, 0, WIDTH, dim, ATTENTION, Heads::Concatenate)?;
            measure(bench, gat, &block, &layer, &parameters)?;
        }
        if bench.wants_any(&gatv2) {
            let mut parameters = Parameters::new(0);
            let layer = Gatv2::new(device, &mut parameters, 0, WIDTH, dim, ATTENTION, Heads::Concatenate)?;
            measure(bench, gatv2, &block, &layer, &parameters)?;
        }
    }
    if bench.wants_any(&rgcn) {
        let block = Arc::new(workload.typed_block(device)?);
        let mut parameters = Parameters::new(0);
        let (shape, whole) = ([WIDTH, WIDTH], Decomposition::Full);
        let layer = Rgcn::new(device, &mut parameters, 0, workload.n_relations, shape, whole, false)?;
        measure(bench, rgcn, &block, &layer, &parameters)?;
    }
    Ok(())
}

/// A layer, and the vertices' inputs and cotangent.
struct Case<'a, D: Device> {
    device: &'a D,
    layer: &'a dyn Layer<D>,
    parameters: &'a Parameters<D>,
    block: &'a Arc<Block<D>>,
    x: Tensor<D>,
    cotangent: Tensor<D>,
}

impl<D: Device<Scalar = f32>> Case<'_, D> {
    fn forward(&self, x: Tensor<D>) -> Result<(Tape<D>, Var, Var)> {
        let tape = Tape::training(self.device, 0);
        let x = tape.leaf(x);
        let pass = Pass { tape: &tape, parameters: self.parameters };
        let out = self.layer.forward(&pass, self.block, &Input::Dense(x), None)?;
        Ok((tape, x, out))
    }

    /// The gradient of `⟨out, cotangent⟩` with respect to the vertices' inputs; also computes those of the parameters.
    fn both(&self) -> Result<Tensor<D>> {
        let (tape, x, out) = self.forward(self.x.clone())?;
        let loss = tape.dot(out, self.cotangent.clone())?;
        let gradients = tape.backward(loss)?;
        gradients.of(x).cloned().ok_or_else(|| cohop::Error::invalid("x", "without a gradient", "one"))
    }

    fn loss(&self, x: Tensor<D>) -> Result<f64> {
        let (tape, _, out) = self.forward(x)?;
        let loss = tape.dot(out, self.cotangent.clone())?;
        tape.value(loss).item(self.device).map(f64::from)
    }

    /// A small step along the gradient changes the loss by the gradient's square.
    fn check(&self, work: &str) -> Result<()> {
        const STEP: f64 = 1e-3;
        let gradient = self.both()?;
        let mut square = Tensor::allocate(self.device, 1, 1)?;
        self.device.dot(gradient.view(), Some(gradient.view()), square.make_mut(self.device)?.into_data())?;
        let expected = f64::from(square.item(self.device)?);
        let moved = |step: f64| -> Result<f64> {
            let mut x = self.x.clone();
            self.device.scale(step, gradient.view(), x.make_mut(self.device)?.into_data(), Write::Add)?;
            self.loss(x)
        };
        let found = (moved(STEP)? - moved(-STEP)?) / (2.0 * STEP);
        if (found - expected).abs() <= 0.02 * expected { Ok(()) } else { wrong(work, found, expected) }
    }
}

fn measure<D: Device<Scalar = f32>>(
    bench: &mut Bench<'_, D>,
    [forward, both]: [&'static str; 2],
    block: &Arc<Block<D>>,
    layer: &dyn Layer<D>,
    parameters: &Parameters<D>,
) -> Result<()> {
    let (device, n) = (bench.device, block.n_src());
    let x = Values(11).tensor(device, n, WIDTH)?;
    let cotangent = Values(12).tensor(device, n, WIDTH)?;
    let case = Case { device, layer, parameters, block, x, cotangent };
    case.check(both)?;
    let size = bench.size(format_args!("d={WIDTH}"));
    let amount = Amount::graph_edges(block.n_edge());
    if bench.wants(forward) {
        bench
            .time_kernel(forward, size.clone(), amount.clone(), || case.forward(case.x.clone()).map(drop))?;
    }
    if bench.wants(both) {
        bench.time_kernel(both, size, amount, || case.both().map(drop))?;
    }
    Ok(())
}
