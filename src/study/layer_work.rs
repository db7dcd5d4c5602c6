//! The work of a model's layers in a training step, forward and backward, by counts of a block.
//!
//! Bytes are those that kernels read and write, as if no row stayed in a processor's cache from one edge to the next;
//! operations are additions, multiplications, comparisons and exponentials, one each. All numbers are scalars of four
//! bytes; a sparse kernel also reads an id of four bytes for each edge, or row that it gathers, and an offset of four
//! for each row that it sums. With `T` destinations, `S` sources, `E` edges, `k` columns before the layer and `n`
//! after it, `H` heads of `n = H d` columns together, and for models with relations `G_T` and `G_S` pairs of a relation
//! and a destination or source:
//!
//! ```text
//! spmm(rows, edges, c)      bytes 4 c (edges + rows) + 4 (edges + rows)    operations 2 c edges
//! gather(rows, c)           bytes 8 c rows + 4 rows                        operations 0
//! gemm(m, k, n)             bytes 4 (m k + k n + m n)                      operations 2 m k n
//! gemm's gradients          gemm(k, m, n) of the weight; gemm(m, n, k) of the input
//! products(groups, k, n)    as gemm(groups, k, n), with min(R, groups) weights of R relations instead of one
//! ```
//!
//! *Sparse* work is that of SpMM, SDDMM, gathers, scatters, attention's scores and softmax. Forward, then backward:
//!
//! ```text
//! sage, gcn, sage-ri   spmm(T, E, c), c = min(k, n)       spmm(S, E, c)
//! gin, hidden width h  the same with c = min(k, h)
//!
//! gat                  scalars  M (n + H) + T (n + 3 H) of messages, (S + T) (n + H) of scores
//!                      operations  M (2 n + 7 H) + 2 n (S + T)
//!            backward  scalars  M (n + 4 H) + E H + 2 S (n + H) of messages, T (2 n + 7 H) and (S + T) (3 n + 2 H) of
//!                      scores; spmm(T, E, H)
//!                      operations  M (4 n + 7 H) + 2 n T + 4 n (S + T)
//! gatv2                scalars  M n + T (2 n + 2 H)           operations  M (6 n + 5 H)
//!            backward  scalars  M (3 n + 4 H) + T (5 n + 2 H) + 2 S n
//!                      operations  M (17 n + 9 H) + n T
//!
//! rgcn                 spmm(G_T, E, k), or gather(G_S, k) and spmm(G_T, E, n); scatter(G_T, n)
//!    input's gradient  spmm(G_S, E, n), or gather(G_T, n) and spmm(G_S, E, k); scatter(G_S, k)
//!   weight's gradient  spmm(G_T, E, k) and gather(G_T, n) if k <= n, else spmm(G_S, E, n) and gather(G_S, k)
//!
//! rgat                 gather(G_S, k) twice, gather(G_T, k), gather(E, H) twice, spmm(T, E, n); scalars 8 E H and
//!                      copies of (G_S + T) n + E H; operations 7 E H
//!            backward  the first three again; spmm(G_S, E, n), SDDMM of (E + T) n + E H scalars and 2 n E operations,
//!                      scatter(E, H) twice; scalars 7 E H and the same copies; operations 5 E H;
//!    input's gradient  scatter(G_S, k) twice, scatter(G_T, k)
//! ```
//!
//! with `M = E + T` messages if vertices attend to themselves, else `E`; `scatter(rows, c)` is 12 c rows + 4 rows bytes
//! and c rows operations. Where the aggregate comes first (`c = k`), the first layer's input has no gradient, and
//! `spmm(S, E, c)` is not there. R-GCN takes the order that is cheaper, as its kernels do; a device that shares sums
//! between its two gradients moves less. *Dense* work is that of the linear maps, on the rows that they are applied to:
//! before the aggregate on all sources, after it on the destinations; with relations on each group. GraphSAGE-RI's head
//! is counted with the layer at the seeds.
//!
//! Not counted: what passes over a layer's output element by element (bias, activation, dropout, batch norm), the loss,
//! the optimiser, and the sum of parameters' gradients.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::Serialize;

use super::BlockSize;
use super::parameters::parameters;
use crate::device::{Direction, Order};
use crate::error::{Error, Result};
use crate::nn::{Decomposition, ModelConfig, ModelKind};

/// Bytes moved and operations done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Bytes read and written.
    pub bytes: f64,
    /// Additions, multiplications, comparisons and exponentials.
    pub operations: f64,
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work { bytes: self.bytes + other.bytes, operations: self.operations + other.operations }
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Work) {
        *self = *self + other;
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Work>>(all: I) -> Work {
        all.fold(Work::default(), Add::add)
    }
}

impl Work {
    /// Seconds at `memory` bytes and `arithmetic` operations per second, whichever takes longer.
    pub fn seconds(&self, memory: f64, arithmetic: f64) -> f64 {
        (self.bytes / memory).max(self.operations / arithmetic)
    }
}

/// The work of one layer in a training step of one processing element (PE), forward and backward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LayerWork {
    /// Sampled edges.
    pub edges: f64,
    /// SpMM, SDDMM, gathers, scatters, scores and softmax.
    pub sparse: Work,
    /// The linear maps.
    pub dense: Work,
    /// Trainable scalars of the layer, of all PEs the same.
    pub parameters: u64,
    /// Bytes of rows that the PE receives from others in cooperation: the sources' rows and, after the first layer,
    /// their gradients.
    pub exchanged_bytes: f64,
}

impl LayerWork {
    /// Operations of the sparse work for each edge; 0 without edges.
    pub fn operations_per_edge(&self) -> f64 {
        if self.edges > 0.0 { self.sparse.operations / self.edges } else { 0.0 }
    }
}

/// Bytes of a scalar, and of an id.
pub(super) const SCALAR: f64 = size_of::<f32>() as f64;
const ID: f64 = size_of::<u32>() as f64;

/// Operations of the softmax for each message and head: the maximum, a difference, an exponential, the sum, a quotient.
const SOFTMAX: f64 = 5.0;
/// Of its gradient, `y (dy − Σ y dy)`.
const SOFTMAX_GRADIENT: f64 = 4.0;
/// Of a message's score in GAT: a sum and LeakyReLU.
const GAT_SCORE: f64 = 2.0;

/// Adds up work.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    pub(super) sparse: Work,
    pub(super) dense: Work,
}

impl Tally {
    /// Sparse work on so many scalars and ids.
    fn sparse(&mut self, scalars: f64, ids: f64, operations: f64) {
        self.sparse += Work { bytes: SCALAR * scalars + ID * ids, operations };
    }

    pub(super) fn spmm(&mut self, rows: f64, edges: f64, cols: f64) {
        self.sparse(cols * (edges + rows), edges + rows, 2.0 * cols * edges);
    }

    fn gather(&mut self, rows: f64, cols: f64) {
        self.sparse(2.0 * cols * rows, rows, 0.0);
    }

    /// Adds rows to others: each is read, and another is read and written.
    fn scatter(&mut self, rows: f64, cols: f64) {
        self.sparse(3.0 * cols * rows, rows, cols * rows);
    }

    /// Copies some columns of a matrix.
    fn copy(&mut self, scalars: f64) {
        self.sparse(2.0 * scalars, 0.0, 0.0);
    }

    pub(super) fn gemm(&mut self, m: f64, k: f64, n: f64) {
        let bytes = SCALAR * (m * k + k * n + m * n);
        self.dense += Work { bytes, operations: 2.0 * m * k * n };
    }

    /// A linear map of `m` rows, with the gradients of its weight and, if it is wanted, of its input.
    pub(super) fn linear(&mut self, m: f64, [k, n]: [f64; 2], wants_input: bool) {
        self.gemm(m, k, n);
        self.gemm(k, m, n);
        if wants_input {
            self.gemm(m, n, k);
        }
    }

    /// A product for each group, with the weight of its relation.
    fn products(&mut self, groups: f64, [k, n]: [f64; 2], relations: f64) {
        let weights = relations.min(groups);
        let bytes = SCALAR * (groups * (k + n) + weights * k * n);
        self.dense += Work { bytes, operations: 2.0 * groups * k * n };
    }
}

/// The counts of a block, as `f64`.
#[derive(Clone, Copy)]
struct Sizes {
    t: f64,
    s: f64,
    e: f64,
    /// Groups of destinations and of sources.
    groups: [f64; 2],
    relations: f64,
}

/// The work of layer `layer` of `model`, from 0 at the input, on one PE's block.
///
/// Of models with relations, `block` must have these counted: else their products are none.
///
/// Errors: `model` cannot be made from its values ([`ModelConfig::check`]), is one with relations but has none, or
/// `layer` is not below its number of layers.
pub fn layer_work(model: &ModelConfig, layer: usize, block: &BlockSize) -> Result<LayerWork> {
    check(model)?;
    if layer >= model.n_layers {
        return Err(Error::invalid("layer", layer, format!("below the model's {}", model.n_layers)));
    }
    let sizes = Sizes {
        t: block.destinations as f64,
        s: block.sources as f64,
        e: block.edges as f64,
        groups: [block.destination_groups as f64, block.source_groups as f64],
        relations: model.n_relations as f64,
    };
    let is_first = layer == 0;
    // What stands before the first layer without parameters has no gradient.
    let wants_input = !is_first || model.embedding > 0;
    let mut tally = Tally::default();
    if is_first && model.embedding > 0 {
        tally.linear(sizes.s, [model.n_features as f64, model.embedding as f64], false);
    }
    of_kind(&mut tally, model, layer, sizes, wants_input);
    let columns = if is_first { model.n_features } else { model.width(layer) };
    let passes = if is_first { 1.0 } else { 2.0 };
    Ok(LayerWork {
        edges: sizes.e,
        sparse: tally.sparse,
        dense: tally.dense,
        parameters: parameters(model, layer),
        exchanged_bytes: passes * SCALAR * columns as f64 * block.received as f64,
    })
}

/// `Ok` if the work of a model can be told.
pub(super) fn check(model: &ModelConfig) -> Result<()> {
    model.check()?;
    if model.kind.relates() && model.n_relations == 0 {
        return Err(Error::invalid("n_relations", 0, "at least 1 for a model with relations"));
    }
    Ok(())
}

fn of_kind(tally: &mut Tally, model: &ModelConfig, layer: usize, sizes: Sizes, wants_input: bool) {
    let (k, n) = (model.width(layer) as f64, model.width(layer + 1) as f64);
    let Sizes { t, s, e, .. } = sizes;
    match model.kind {
        ModelKind::Sage => sage(tally, sizes, [k, n], wants_input),
        ModelKind::SageRi => {
            sage(tally, sizes, [k, n], wants_input);
            if layer == 0 {
                tally.linear(t, [k, n], wants_input);
            }
            if layer + 1 == model.n_layers {
                head(tally, model, t);
            }
        }
        ModelKind::Gcn | ModelKind::GcnMean => {
            aggregate_and_multiply(tally, sizes, [k, n], wants_input, wants_input);
        }
        ModelKind::Gin => {
            let hidden = model.hidden as f64;
            // ε has a gradient, and so has the sum that the first map is applied to.
            aggregate_and_multiply(tally, sizes, [k, hidden], wants_input, true);
            tally.linear(t, [hidden, n], true);
        }
        ModelKind::Gat => {
            let (heads, width) = heads_and_width(model, layer);
            tally.linear(s, [k, width], wants_input);
            gat(tally, sizes, heads, width, messages(model, t, e));
        }
        ModelKind::Gatv2 => {
            let (heads, width) = heads_and_width(model, layer);
            tally.linear(s, [k, width], wants_input);
            tally.linear(t, [k, width], wants_input);
            gatv2(tally, sizes, heads, width, messages(model, t, e));
        }
        ModelKind::Rgcn => {
            tally.linear(t, [k, n], wants_input);
            relation_product(tally, sizes, [model.width(layer), model.width(layer + 1)], wants_input);
            let shares = matches!(model.decomposition, Decomposition::Basis(_)) && model.root_shares_bases;
            matrices(tally, model, [k, n], sizes.relations + if shares { 1.0 } else { 0.0 });
        }
        ModelKind::Rgat => {
            let (heads, width) = heads_and_width(model, layer);
            rgat(tally, sizes, k, heads, width, wants_input);
            matrices(tally, model, [k, width], sizes.relations);
        }
    }
}

/// Heads of a layer, and their columns together.
pub(super) fn heads_and_width(model: &ModelConfig, layer: usize) -> (f64, f64) {
    let (heads, dim) = if layer + 1 == model.n_layers {
        (model.output_heads, model.n_classes)
    } else {
        (model.heads, model.hidden)
    };
    (heads as f64, (heads * dim) as f64)
}

fn messages(model: &ModelConfig, destinations: f64, edges: f64) -> f64 {
    if model.self_loops { edges + destinations } else { edges }
}

fn sage(tally: &mut Tally, sizes: Sizes, [k, n]: [f64; 2], wants_input: bool) {
    // The destinations' own rows.
    tally.linear(sizes.t, [k, n], wants_input);
    aggregate_and_multiply(tally, sizes, [k, n], wants_input, wants_input);
}

/// An aggregate and a product, in the order in which fewer columns are aggregated. `wants_sum`: the gradient of the
/// product's input is wanted where that is an aggregate.
fn aggregate_and_multiply(
    tally: &mut Tally,
    Sizes { t, s, e, .. }: Sizes,
    [k, n]: [f64; 2],
    wants_input: bool,
    wants_sum: bool,
) {
    let sum_first = k <= n;
    let cols = k.min(n);
    tally.spmm(t, e, cols);
    if wants_input || !sum_first {
        tally.spmm(s, e, cols);
    }
    if sum_first {
        tally.linear(t, [k, n], wants_sum);
    } else {
        tally.linear(s, [k, n], wants_input);
    }
}

/// Two maps of the seeds' rows in the input and after each layer.
fn head(tally: &mut Tally, model: &ModelConfig, seeds: f64) {
    let classes = model.n_classes as f64;
    for stage in 0..=model.n_layers {
        tally.linear(seeds, [model.width(stage) as f64, 2.0 * classes], stage > 0 || model.embedding > 0);
    }
    tally.linear(seeds, [2.0 * classes, classes], true);
}

fn gat(tally: &mut Tally, Sizes { t, s, e, .. }: Sizes, heads: f64, width: f64, messages: f64) {
    // Scores of sources and destinations: ⟨a, z⟩ of each head.
    tally.sparse((s + t) * (width + heads), 0.0, 2.0 * width * (s + t));
    // Each message reads its source's row and score; each destination its score, and writes its row, maximum and sum.
    let operations = messages * (2.0 * width + heads * (GAT_SCORE + SOFTMAX));
    tally.sparse(messages * (width + heads) + t * (width + 3.0 * heads), e + t, operations);
    // Backward. δ = ⟨dout, out⟩ of each destination, put beside its score, maximum and sum.
    tally.sparse(t * (2.0 * width + 7.0 * heads), 0.0, 2.0 * width * t);
    // Each message reads its destination's gradient and these four numbers; an edge writes its score's gradient. Each
    // source reads its row and score, and writes the gradients of both. Seven operations: the score, its exponential,
    // and (α̃ dot − α δ) LR'.
    let operations = messages * (4.0 * width + heads * (GAT_SCORE + 5.0));
    let scalars = messages * (width + 4.0 * heads) + e * heads + s * (2.0 * width + 2.0 * heads);
    tally.sparse(scalars, 2.0 * e + s, operations);
    tally.spmm(t, e, heads);
    // Through the scores to rows, which are read and written, and to the two vectors.
    tally.sparse((s + t) * (3.0 * width + 2.0 * heads), 0.0, 4.0 * width * (s + t));
}

fn gatv2(tally: &mut Tally, Sizes { t, s, e, .. }: Sizes, heads: f64, width: f64, messages: f64) {
    // A sum, LeakyReLU, a product and a sum for each scalar of a score; then its share of the row.
    let operations = messages * (4.0 * width + heads * SOFTMAX + 2.0 * width);
    tally.sparse(messages * width + t * (2.0 * width + 2.0 * heads), e + t, operations);
    // Destinations: scores again, ⟨dout, z⟩, and the gradients of z_dst and of the vector; messages' weights and
    // gradients are written.
    let operations = messages * (11.0 * width + heads * (SOFTMAX + SOFTMAX_GRADIENT));
    let scalars = messages * (width + 2.0 * heads) + t * (4.0 * width + 2.0 * heads);
    tally.sparse(scalars, e + t, operations);
    // Sources: dout and z_dst of each message.
    let scalars = messages * (2.0 * width + 2.0 * heads) + 2.0 * s * width;
    tally.sparse(scalars, 2.0 * e + s, messages * 6.0 * width);
    // The vector's gradient, over destinations.
    tally.sparse(t * width, 0.0, t * width);
}

/// The product with each relation's matrix, and both gradients by kernels of their own.
fn relation_product(tally: &mut Tally, sizes: Sizes, [k, n]: [usize; 2], wants_input: bool) {
    let Sizes { e, groups: [to, from], relations, .. } = sizes;
    let mut product = |[to, from]: [f64; 2], shape: [usize; 2]| {
        let [k, n] = shape.map(|cols| cols as f64);
        match Order::cheaper(e, [to, from], shape) {
            Order::AggregateFirst => {
                tally.spmm(to, e, k);
                tally.products(to, [k, n], relations);
            }
            Order::TransformFirst => {
                tally.gather(from, k);
                tally.products(from, [k, n], relations);
                tally.spmm(to, e, n);
            }
        }
        // Each relation's part is added to the rows.
        tally.scatter(to, n);
    };
    product([to, from], [k, n]);
    if wants_input {
        product([from, to], [n, k]);
    }
    let direction = Direction::of_cheaper_sum(k, n);
    let [k, n] = [k, n].map(|cols| cols as f64);
    let (summed, gathered, cols) = match direction {
        Direction::Forward => (to, n, k),
        Direction::Backward => (from, k, n),
    };
    tally.spmm(summed, e, cols);
    tally.gather(summed, gathered);
    tally.products(summed, [k, n], relations);
}

/// `x W_r` for each group of one vertex, with both gradients.
fn transform(tally: &mut Tally, groups: f64, [k, n]: [f64; 2], relations: f64, wants_input: bool) {
    tally.gather(groups, k);
    tally.products(groups, [k, n], relations);
    // The weight's gradient.
    tally.gather(groups, k);
    tally.products(groups, [k, n], relations);
    if wants_input {
        tally.products(groups, [n, k], relations);
        tally.scatter(groups, k);
    }
}

fn rgat(tally: &mut Tally, sizes: Sizes, k: f64, heads: f64, width: f64, wants_input: bool) {
    let Sizes { t, e, groups: [to, from], relations, .. } = sizes;
    transform(tally, from, [k, width], relations, wants_input);
    transform(tally, from, [k, heads], relations, wants_input);
    transform(tally, to, [k, heads], relations, wants_input);
    tally.linear(t, [k, width], wants_input);
    let scores = e * heads;
    // Forward: query and key of each edge, their sum, LeakyReLU, softmax.
    tally.gather(e, heads);
    tally.gather(e, heads);
    tally.sparse(3.0 * scores, 0.0, scores);
    tally.sparse(2.0 * scores, 0.0, scores);
    tally.sparse(2.0 * scores, t, SOFTMAX * scores);
    // The sum of messages, head by head, for which columns are copied.
    tally.copy(from * width + scores + t * width);
    tally.sparse(scores, 0.0, 0.0);
    tally.spmm(t, e, width);
    // Backward: of messages, and by SDDMM of attention.
    tally.copy(t * width + scores + from * width);
    tally.sparse(scores, 0.0, 0.0);
    tally.spmm(from, e, width);
    tally.sparse(width * (e + t) + scores, e + t, 2.0 * width * e);
    tally.sparse(3.0 * scores, t, SOFTMAX_GRADIENT * scores);
    tally.sparse(3.0 * scores, 0.0, scores);
    tally.scatter(e, heads);
    tally.scatter(e, heads);
}

/// Making `count` matrices of decomposed weights, with the gradients.
fn matrices(tally: &mut Tally, model: &ModelConfig, [k, n]: [f64; 2], count: f64) {
    match model.decomposition {
        Decomposition::Full => {}
        Decomposition::Basis(bases) => tally.linear(count, [bases as f64, k * n], true),
        // Blocks are put in their places, and the gradient is taken from there.
        Decomposition::BlockDiagonal(_) => tally.dense.bytes += 2.0 * SCALAR * count * k * n,
    }
}
