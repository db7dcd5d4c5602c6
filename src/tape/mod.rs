//! Reverse-mode automatic differentiation on a tape.
//!
//! A [`Tape`] records operations in the order in which they are called; [`Tape::backward`] walks back once. Each
//! operation is one file here, with its forward and backward pass side by side and the formula in its head.
//!
//! Every operation also fails if it is given a value of another tape, or if the device fails or is out of memory; the
//! documentation of each says what else is an error. A GPU reports an index out of range in this call or a later one:
//! see [`Storage::synchronize`](crate::device::Storage::synchronize).
//!
//! ```
//! use cohop::{device::Cpu, tape::Tape, tensor::Tensor};
//! # fn main() -> cohop::Result<()> {
//! let cpu = Cpu::<f32>::new();
//! let tape = Tape::training(&cpu, 0);
//! let x = tape.leaf(Tensor::from_slice(&cpu, 1, 2, &[3.0, -1.0])?);
//! let w = tape.leaf(Tensor::from_slice(&cpu, 2, 1, &[0.5, 2.0])?);
//! let y = tape.linear(&[(x, w)], None, None)?;
//! assert_eq!(tape.value(y).item(&cpu)?, -0.5);
//! let gradients = tape.backward(y)?;
//! assert_eq!(gradients.of(w).unwrap().to_vec(&cpu)?, [3.0, -1.0]);
//! # Ok(())
//! # }
//! ```

mod activation;
mod add;
mod aggregate;
mod aggregate_edges;
mod aggregate_heads;
mod aggregate_max;
mod aggregate_weighted;
mod attention;
mod batch_norm;
mod columns;
mod concatenate;
mod divide;
mod dot;
mod dropout;
mod edge_add;
mod edge_dot;
mod edge_features;
mod edge_softmax;
mod element_loss;
mod function;
mod gat;
mod gather_rows;
mod gatv2;
pub mod gradcheck;
mod gradients;
mod head_dot;
mod head_mean;
mod linear;
mod lookup;
mod multiply;
mod nll;
mod op;
mod prefix;
mod relation_aggregate;
mod relation_attend;
mod relation_basis_rows;
mod relation_lookup;
mod relation_transform;
mod reshape;
mod row_gradient;
mod scale;
mod scale_by;
mod scale_rows;
mod sparse_linear;
mod subtract;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::device::{Device, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use op::{Record, Recorded, checked_backward};

pub use aggregate::Aggregate;
pub use attention::AttentionOptions;
pub use batch_norm::BatchStatistics;
pub use gradients::Gradients;
pub use op::{BackwardStep, Op};
pub use row_gradient::{Gradient, RowGradient};
pub use sparse_linear::SparseRows;

/// A value on a tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Var {
    /// Which tape: values of one must not be mistaken for those of another.
    tape: u64,
    index: usize,
}

impl Var {
    /// The number that no tape has.
    const NO_TAPE: u64 = 0;
}

/// Names a parameter on a tape and in `nn::Parameters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ParameterId(usize);

impl ParameterId {
    /// The parameter at position `index` among those of one model.
    pub fn new(index: usize) -> Self {
        ParameterId(index)
    }

    /// Its position.
    pub fn index(self) -> usize {
        self.0
    }
}

struct Node<D: Device> {
    value: Tensor<D>,
    op: Option<Box<dyn Recorded<D>>>,
    inputs: Vec<usize>,
    needs_gradient: bool,
}

/// What an operation's forward pass gives: its output and, if a gradient is needed, the way back.
type Run<D> = (Tensor<D>, Option<Box<dyn Recorded<D>>>);

/// An operation's forward pass, given its inputs and whether a gradient is needed.
type Forward<'a, D> = dyn FnOnce(&[&Tensor<D>], bool) -> Result<Run<D>> + 'a;

/// The processing elements that hold other rows of the same batch. Operations that combine rows, such as batch norm,
/// add up over all of them.
pub trait RowPeers<D: Device> {
    /// Adds up `x` over all processing elements; all get the same bits. Collective: all call it in the same order.
    ///
    /// Errors: those of communication and of the device.
    fn sum(&self, device: &D, x: &Tensor<D>) -> Result<Tensor<D>>;

    /// Adds up a number of rows over all processing elements. Collective.
    ///
    /// Errors: those of communication.
    fn sum_rows(&self, rows: usize) -> Result<usize>;
}

/// A record of operations on one device.
pub struct Tape<D: Device> {
    id: u64,
    device: D,
    peers: Option<Arc<dyn RowPeers<D>>>,
    nodes: RefCell<Vec<Node<D>>>,
    parameters: RefCell<HashMap<ParameterId, Var>>,
    statistics: RefCell<Vec<BatchStatistics<D>>>,
    training: bool,
    seed: u64,
    n_dropout: Cell<u32>,
}

impl<D: Device> Tape<D> {
    /// A tape that records for [`backward`](Tape::backward); dropout is on and draws from `seed`, batch norm uses the
    /// batch's statistics.
    pub fn training(device: &D, seed: u64) -> Self {
        static N_TAPES: AtomicU64 = AtomicU64::new(Var::NO_TAPE);
        Tape {
            id: N_TAPES.fetch_add(1, Ordering::Relaxed) + 1,
            device: device.clone(),
            peers: None,
            nodes: RefCell::default(),
            parameters: RefCell::default(),
            statistics: RefCell::default(),
            training: true,
            seed,
            n_dropout: Cell::new(0),
        }
    }

    /// A tape for predictions: dropout is off, batch norm uses its running statistics, nothing is kept for a backward
    /// pass.
    pub fn inference(device: &D) -> Self {
        Tape { training: false, ..Tape::training(device, 0) }
    }

    /// The same tape for one of several processing elements, each of which has other rows of one batch: batch norm
    /// takes its statistics over the rows of all.
    pub fn with_peers(mut self, peers: Arc<dyn RowPeers<D>>) -> Self {
        self.peers = Some(peers);
        self
    }

    /// The device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Whether this tape was made by [`training`](Tape::training).
    pub fn is_training(&self) -> bool {
        self.training
    }

    /// A constant: no gradient flows into it.
    pub fn constant(&self, value: Tensor<D>) -> Var {
        self.push(Node { value, op: None, inputs: Vec::new(), needs_gradient: false })
    }

    /// A leaf whose gradient [`backward`](Tape::backward) returns.
    pub fn leaf(&self, value: Tensor<D>) -> Var {
        self.push(Node { value, op: None, inputs: Vec::new(), needs_gradient: self.training })
    }

    /// The leaf of a parameter: made from `value` by the first call; later calls return the same leaf.
    pub fn parameter(&self, id: ParameterId, value: &Tensor<D>) -> Var {
        if let Some(&var) = self.parameters.borrow().get(&id) {
            return var;
        }
        let var = self.leaf(value.clone());
        self.parameters.borrow_mut().insert(id, var);
        var
    }

    /// Makes `var` the leaf of a parameter, so that a layer can be differentiated with respect to given leaves.
    pub(crate) fn bind_parameter(&self, id: ParameterId, var: Var) {
        self.parameters.borrow_mut().insert(id, var);
    }

    /// The value of `var`. Panics if it belongs to another tape.
    pub fn value(&self, var: Var) -> Tensor<D> {
        assert!(var.tape == self.id, "{var:?} belongs to another tape");
        self.nodes.borrow()[var.index].value.clone()
    }

    /// `[rows, cols]` of `var`. Panics if it belongs to another tape.
    pub fn shape(&self, var: Var) -> [usize; 2] {
        assert!(var.tape == self.id, "{var:?} belongs to another tape");
        self.nodes.borrow()[var.index].value.shape()
    }

    /// [`shape`](Tape::shape), with an error for another tape's value.
    fn shape_of(&self, var: Var) -> Result<[usize; 2]> {
        self.check(var)?;
        Ok(self.shape(var))
    }

    fn check(&self, var: Var) -> Result<()> {
        if var.tape == self.id {
            return Ok(());
        }
        Err(Error::invalid("variable", "a value of another tape", "one of the tape that it is used on"))
    }

    /// Takes out the statistics that batch norms recorded on this tape, for their running averages.
    pub fn take_statistics(&self) -> Vec<BatchStatistics<D>> {
        self.statistics.take()
    }

    fn push(&self, node: Node<D>) -> Var {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(node);
        Var { tape: self.id, index: nodes.len() - 1 }
    }

    /// Runs an operation on values of this tape and records it.
    ///
    /// Errors: a value of another tape, and those of the operation. An operation whose backward pass returns gradients
    /// that do not fit its inputs is an error of [`backward`](Tape::backward).
    pub fn apply(&self, op: impl Op<D, Saved: 'static> + 'static, inputs: &[Var]) -> Result<Var> {
        let name = op.name();
        let forward = move |values: &[&Tensor<D>], needs_gradient: bool| -> Result<Run<D>> {
            let (value, saved) = op.forward(&self.device, values)?;
            let record = || Box::new(Record { op, saved }) as Box<dyn Recorded<D>>;
            Ok((value, needs_gradient.then(record)))
        };
        self.record(name, inputs, Box::new(forward))
    }

    /// Runs and records an operation of which nothing is known but what it does; all operations share this code.
    fn record(&self, name: &'static str, inputs: &[Var], forward: Box<Forward<'_, D>>) -> Result<Var> {
        inputs.iter().try_for_each(|&var| self.check(var))?;
        let (value, op, needs_gradient) = {
            let nodes = self.nodes.borrow();
            let values: Vec<&Tensor<D>> = inputs.iter().map(|v| &nodes[v.index].value).collect();
            let needs_gradient = inputs.iter().any(|v| nodes[v.index].needs_gradient);
            let (value, op) = forward(&values, needs_gradient)?;
            (value, op, needs_gradient)
        };
        log::trace!("{name}: shape {:?}", value.shape());
        let inputs = inputs.iter().map(|v| v.index).collect();
        Ok(self.push(Node { value, op, inputs, needs_gradient }))
    }

    /// The gradients of the number `loss` (`[1, 1]`) with respect to every leaf that it depends on.
    ///
    /// Walks back once; values and gradients are freed as soon as no earlier operation needs them.
    ///
    /// Errors: a `loss` of another shape or another tape; an operation that returns gradients which do not fit its
    /// inputs.
    pub fn backward(self, loss: Var) -> Result<Gradients<D>> {
        let mut one = Tensor::allocate(&self.device, 1, 1)?;
        self.device.fill(num_traits::One::one(), one.make_mut(&self.device)?.data)?;
        self.backward_from(loss, one)
    }

    /// [`backward`](Tape::backward), where `one` is that number, which needs to be made only once: the gradient of
    /// `loss` with respect to itself.
    ///
    /// Errors: those of [`backward`](Tape::backward).
    pub(crate) fn backward_from(self, loss: Var, one: Tensor<D>) -> Result<Gradients<D>> {
        self.check(loss)?;
        let tape = self.id;
        let device = self.device;
        let mut nodes = self.nodes.into_inner();
        nodes.truncate(loss.index + 1);
        let shape = nodes.last().map_or([0, 0], |n| n.value.shape());
        if shape != [1, 1] {
            return Err(Error::ShapeMismatch {
                op: "backward",
                left_name: "loss",
                left: shape,
                right_name: "required",
                right: [1, 1],
            });
        }
        let mut gradients: Vec<Option<Tensor<D>>> = nodes.iter().map(|_| None).collect();
        gradients[loss.index] = Some(one);
        let mut leaves = HashMap::new();
        let mut leaf_rows: HashMap<usize, RowGradient<D>> = HashMap::new();
        let mut sparse = Vec::new();
        while let Some(mut node) = nodes.pop() {
            let index = nodes.len();
            let gradient = gradients[index].take().filter(|_| node.needs_gradient);
            let rows = leaf_rows.remove(&index);
            let gradient = match (gradient, rows) {
                (None, None) => continue,
                (None, Some(rows)) => {
                    leaves.insert(Var { tape, index }, Gradient::Rows(rows));
                    continue;
                }
                (Some(gradient), None) => padded(&device, gradient, node.value.rows())?,
                (Some(gradient), Some(rows)) => {
                    let mut sum = padded(&device, gradient, node.value.rows())?;
                    device.scatter_add(rows.values().matrix(), rows.index(), sum.make_mut(&device)?)?;
                    sum
                }
            };
            let Some(op) = node.op.take() else {
                leaves.insert(Var { tape, index }, Gradient::Dense(gradient));
                continue;
            };
            let inputs: Vec<&Tensor<D>> = node.inputs.iter().map(|&i| &nodes[i].value).collect();
            let wanted: Vec<bool> = node.inputs.iter().map(|&i| nodes[i].needs_gradient).collect();
            let rows = &mut sparse;
            let step = BackwardStep { inputs: &inputs, output: &node.value, gradient, wanted: &wanted, rows };
            let contributions = checked_backward(op, &device, step)?;
            for (position, rows) in sparse.drain(..) {
                let input: usize = node.inputs[position];
                if nodes[input].op.is_some() {
                    accumulate(&device, &mut gradients[input], rows.to_dense(&device)?)?;
                } else if nodes[input].needs_gradient {
                    let sum = match leaf_rows.remove(&input) {
                        Some(before) => before.merge(&device, &rows)?,
                        None => rows,
                    };
                    leaf_rows.insert(input, sum);
                }
            }
            for (&input, contribution) in node.inputs.iter().zip(contributions) {
                if let Some(contribution) = contribution.filter(|_| nodes[input].needs_gradient) {
                    accumulate(&device, &mut gradients[input], contribution)?;
                }
            }
        }
        Ok(Gradients { leaves, parameters: self.parameters.into_inner() })
    }
}

/// `slot += contribution`, where missing rows of either are zero.
fn accumulate<D: Device>(
    device: &D,
    slot: &mut Option<Tensor<D>>,
    mut contribution: Tensor<D>,
) -> Result<()> {
    let Some(mut sum) = slot.take() else {
        *slot = Some(contribution);
        return Ok(());
    };
    if sum.rows() < contribution.rows() {
        std::mem::swap(&mut sum, &mut contribution);
    }
    let n = contribution.rows() * contribution.cols();
    device.scale(1.0, contribution.view(), D::slice_mut(sum.make_mut(device)?.data, 0..n), Write::Add)?;
    *slot = Some(sum);
    Ok(())
}

/// `gradient` with rows of zeros added up to `rows`.
fn padded<D: Device>(device: &D, gradient: Tensor<D>, rows: usize) -> Result<Tensor<D>> {
    if gradient.rows() == rows {
        return Ok(gradient);
    }
    let mut all = Tensor::allocate(device, rows, gradient.cols())?;
    let (n, n_all) = (gradient.rows() * gradient.cols(), rows * gradient.cols());
    device.copy(gradient.view(), D::slice_mut(all.make_mut(device)?.data, 0..n))?;
    device.fill(num_traits::Zero::zero(), D::slice_mut(all.make_mut(device)?.data, n..n_all))?;
    Ok(all)
}
