//! Layers and attention operations against outputs and gradients of PyTorch Geometric, in f64 and f32.
//!
//! The files are not part of this repository (see `common::shared`); without them these tests only say that they were
//! skipped.

use std::path::PathBuf;
use std::sync::Arc;

use cohop::block::Block;
use cohop::device::{Cpu, Device, Scalar};
use cohop::nn::{Aggregator, Gat, Gatv2, Gcn, Gin, GraphSage, Heads, Input, Layer, Parameters, Pass};
use cohop::tape::{Aggregate, AttentionOptions, Tape};
use cohop::tensor::Tensor;

use crate::common::{self, Fresh, assert_close, on_devices};
use crate::npz;

struct Golden(PathBuf);

impl Golden {
    fn open(name: &str) -> Option<Self> {
        Some(Golden(common::shared(format!("golden/{name}.npz"))?))
    }

    fn integers(&self, array: &str) -> Vec<i64> {
        npz::array(&self.0, array).integers()
    }

    /// A matrix: leading dimensions of 1 are dropped, the trailing ones of the others joined; transposed if asked for.
    fn tensor<D: Device>(&self, device: &D, array: &str, transposed: bool) -> Tensor<D> {
        let array = npz::array(&self.0, array);
        let (shape, values) = (&array.shape, array.floats());
        let (rows, cols) = match shape[..] {
            [] | [_] => (1, values.len()),
            [rows, cols] => (rows, cols),
            _ => (shape[0], shape[1..].iter().product()),
        };
        let at = |i: usize| if transposed { values[i % rows * cols + i / rows] } else { values[i] };
        let host: Vec<D::Scalar> = (0..values.len()).map(|i| D::Scalar::from_f64(at(i))).collect();
        let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
        Tensor::from_slice(device, rows, cols, &host).unwrap()
    }

    /// The graph; `without_loops` drops its self-loops, and then in-degrees are known.
    fn block<D: Device>(&self, device: &D, without_loops: bool) -> Arc<Block<D>> {
        let n_src = self.integers("n_src")[0] as usize;
        let n_dst = self.integers("n_dst")[0] as usize;
        let (src, dst) = (self.integers("src"), self.integers("dst"));
        assert!(dst.is_sorted());
        let edges: Vec<(i64, i64)> =
            dst.into_iter().zip(src).filter(|(dst, src)| !without_loops || dst != src).collect();
        let indptr: Vec<u32> =
            (0..=n_dst as i64).map(|t| edges.partition_point(|&(dst, _)| dst < t) as u32).collect();
        let indices: Vec<u32> = edges.iter().map(|&(_, src)| src as u32).collect();
        let block = Block::from_csr(device, n_src, &indptr, &indices).unwrap();
        if !without_loops {
            return Arc::new(block);
        }
        let degree = |v: u32| u64::from(indptr[v as usize + 1] - indptr[v as usize]);
        Arc::new(block.with_degrees(device, degree).unwrap())
    }

    #[track_caller]
    fn check<D: Device>(&self, device: &D, array: &str, transposed: bool, actual: &Tensor<D>) {
        let expected = self.tensor(&Cpu::<f64>::new(), array, transposed);
        assert_eq!(actual.shape(), expected.shape(), "{array}");
        let (actual, expected) =
            (actual.to_vec(device).unwrap(), expected.to_vec(&Cpu::<f64>::new()).unwrap());
        let tolerance = if size_of::<D::Scalar>() == 4 { 1e-4 } else { 1e-10 };
        // Some gradients are 0, and 1e-16 there.
        assert_close(&format!("{:?}: {array}", self.0), &actual, &expected, |_, expected| {
            tolerance * expected.abs().max(0.1)
        });
    }
}

/// A parameter of ours, its name there, and whether it is the transpose.
type Names = [(&'static str, &'static str, bool)];

/// Compares the output and every gradient of a layer with those of a golden file.
fn check_layer<D: Fresh>(
    name: &str,
    names: &Names,
    make: impl Fn(&D, &mut Parameters<D>) -> Box<dyn Layer<D>>,
) {
    let Some(golden) = Golden::open(name) else { return };
    let device = D::fresh();
    let mut parameters = Parameters::new(0);
    let layer = make(&device, &mut parameters);
    for &(ours, theirs, transposed) in names {
        let id = parameters.find(&format!("layers.0.{ours}")).unwrap();
        parameters.set(id, golden.tensor(&device, &format!("param.{theirs}"), transposed)).unwrap();
    }
    let trainable = parameters.iter().filter(|(_, p)| p.trainable).count();
    assert_eq!(trainable, names.len(), "{name}: a parameter is not compared");
    let block = golden.block(&device, name == "gcn_selfloops");
    let tape = Tape::training(&device, 0);
    let x = tape.leaf(golden.tensor(&device, "x_src", false));
    let out = layer
        .forward(&Pass { tape: &tape, parameters: &parameters }, &block, &Input::Dense(x), None)
        .unwrap();
    golden.check(&device, "out", false, &tape.value(out));
    let loss = tape.dot(out, golden.tensor(&device, "cotangent", false)).unwrap();
    let gradients = tape.backward(loss).unwrap();
    golden.check(&device, "grad.x_src", false, gradients.of(x).unwrap());
    for &(ours, theirs, transposed) in names {
        let id = parameters.find(&format!("layers.0.{ours}")).unwrap();
        let gradient = gradients.of_parameter(id).unwrap();
        golden.check(&device, &format!("grad.param.{theirs}"), transposed, gradient);
    }
}

fn sage<D: Fresh>(name: &str, aggregator: Aggregator) {
    let names = [
        ("weight_self", "lin_r.weight", true),
        ("weight_neighbor", "lin_l.weight", true),
        ("bias", "lin_l.bias", false),
    ];
    check_layer::<D>(name, &names, |device, p| {
        Box::new(GraphSage::new(device, p, 0, 5, 4).unwrap().with_aggregator(aggregator))
    });
}

#[test]
fn graph_sage() {
    for (name, aggregator) in
        [("sage_mean", Aggregator::Mean), ("sage_sum", Aggregator::Sum), ("sage_max", Aggregator::Max)]
    {
        on_devices!(sage, name, aggregator);
    }
}

const THREE_HEADS: AttentionOptions =
    AttentionOptions { heads: 3, slope: 0.2, self_loop: false, dropout: 0.0 };

fn gat<D: Fresh>(name: &str, heads: Heads) {
    let names = [
        ("weight", "lin.weight", true),
        ("attention_src", "att_src", false),
        ("attention_dst", "att_dst", false),
        ("bias", "bias", false),
    ];
    check_layer::<D>(name, &names, |device, p| {
        Box::new(Gat::new(device, p, 0, 5, 4, THREE_HEADS, heads).unwrap())
    });
}

fn gatv2<D: Fresh>(name: &str, heads: Heads) {
    let names = [
        ("weight_src", "lin_l.weight", true),
        ("bias_src", "lin_l.bias", false),
        ("weight_dst", "lin_r.weight", true),
        ("bias_dst", "lin_r.bias", false),
        ("attention", "att", false),
        ("bias", "bias", false),
    ];
    check_layer::<D>(name, &names, |device, p| {
        Box::new(Gatv2::new(device, p, 0, 5, 4, THREE_HEADS, heads).unwrap())
    });
}

#[test]
fn attention_layers() {
    on_devices!(gat, "gat_concat", Heads::Concatenate);
    on_devices!(gat, "gat_mean", Heads::Mean);
    on_devices!(gatv2, "gatv2_concat", Heads::Concatenate);
    on_devices!(gatv2, "gatv2_mean", Heads::Mean);
}

#[test]
fn gin() {
    fn run<D: Fresh>() {
        let names = [
            ("epsilon", "eps", false),
            ("weight_1", "nn.0.weight", true),
            ("bias_1", "nn.0.bias", false),
            ("gain", "nn.1.weight", false),
            ("shift", "nn.1.bias", false),
            ("weight_2", "nn.3.weight", true),
            ("bias_2", "nn.3.bias", false),
        ];
        check_layer::<D>("gin_batchnorm_train", &names, |device, p| {
            Box::new(Gin::new(device, p, 0, 5, 7, 4).unwrap())
        });
    }
    on_devices!(run);
}

/// There, a self-loop that the graph has is replaced by the added one; here it counts besides, so that they are
/// removed first.
#[test]
fn gcn() {
    fn run<D: Fresh>() {
        let names = [("weight", "lin.weight", true), ("bias", "bias", false)];
        check_layer::<D>("gcn_selfloops", &names, |device, p| {
            Box::new(Gcn::new(device, p, 0, 5, 4, Aggregate::Symmetric).unwrap())
        });
    }
    on_devices!(run);
}

#[test]
fn edge_softmax() {
    fn run<D: Fresh>() {
        let Some(golden) = Golden::open("edge_softmax") else { return };
        let device = D::fresh();
        let tape = Tape::training(&device, 0);
        let logits = tape.leaf(golden.tensor(&device, "param.logits", false));
        let out = tape.edge_softmax(&golden.block(&device, false), logits).unwrap();
        golden.check(&device, "out", false, &tape.value(out));
        let loss = tape.dot(out, golden.tensor(&device, "cotangent", false)).unwrap();
        golden.check(&device, "grad.param.logits", false, tape.backward(loss).unwrap().of(logits).unwrap());
    }
    on_devices!(run);
}
