//! Bytes of a batch and of a training step's tape, by counts of the blocks: what blocks, layers and operations of this
//! crate allocate. [`memory()`](super::memory()) has the formulas.

use super::layer_work::{SCALAR, check, heads_and_width};
use super::{BlockSize, PeSizes};
use crate::error::{Error, Result};
use crate::nn::{Decomposition, ModelConfig, ModelKind};

/// Bytes of an id or an offset, and of an edge's relation.
pub(super) const ID: f64 = size_of::<u32>() as f64;
pub(super) const RELATION: f64 = size_of::<u16>() as f64;

/// What the bytes of a batch depend on besides its counts.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    pub(super) model: &'a ModelConfig,
    /// Whether the graph's edges have types.
    pub(super) typed: bool,
    pub(super) cooperative: bool,
}

/// The counts of a block, as `f64`.
#[derive(Clone, Copy)]
struct Sizes {
    t: f64,
    s: f64,
    e: f64,
    /// Groups of destinations and of sources.
    groups: [f64; 2],
}

impl Sizes {
    fn of(block: &BlockSize) -> Self {
        Sizes {
            t: block.destinations as f64,
            s: block.sources as f64,
            e: block.edges as f64,
            groups: [block.destination_groups as f64, block.source_groups as f64],
        }
    }
}

impl<'a> Kept<'a> {
    /// Errors: those of [`check`], and an embedding of the input.
    pub(super) fn new(model: &'a ModelConfig, typed: bool, cooperative: bool) -> Result<Self> {
        check(model)?;
        if model.embedding > 0 {
            return Err(Error::invalid("embedding", model.embedding, "0: features are counted as they are"));
        }
        Ok(Kept { model, typed, cooperative })
    }

    /// The PE's blocks with their layers in model order.
    fn layers<'b>(&self, pe: &'b PeSizes) -> impl Iterator<Item = (usize, &'b BlockSize)> + use<'b> {
        pe.blocks.iter().rev().enumerate()
    }

    /// Bytes of all blocks after a training step, with their labels and seeds.
    pub(super) fn blocks(&self, pe: &PeSizes) -> f64 {
        let seeds = pe.blocks.first().map_or(0.0, |block| block.destinations as f64);
        let blocks = self.layers(pe).map(|(layer, block)| {
            let weights = if block.weighted { SCALAR } else { 0.0 };
            let types = if self.typed { RELATION } else { 0.0 };
            let Sizes { t, s, e, .. } = Sizes::of(block);
            let sampled = ID * (s + t + 1.0 + e) + (weights + types) * e;
            sampled + self.derived(layer, block)
        });
        blocks.sum::<f64>() + 2.0 * ID * seeds
    }

    /// What a block makes of its arrays when layers need it, and keeps.
    fn derived(&self, layer: usize, block: &BlockSize) -> f64 {
        let Sizes { t, s, e, groups } = Sizes::of(block);
        let transpose = ID * (s + 1.0 + 2.0 * e);
        let summed = |out: usize| self.width(layer) <= out as f64;
        let reversed = |out: usize| if layer > 0 || !summed(out) { transpose } else { 0.0 };
        // The factors with which rows were aggregated while they were gathered stayed behind.
        let aggregated = layer == 0 && self.aggregates_input();
        let mean = if block.weighted || aggregated { 0.0 } else { SCALAR * t };
        let with_self = if aggregated { 0.0 } else { 2.0 * SCALAR * t };
        let columns = self.model.width(layer + 1);
        match self.model.kind {
            ModelKind::Sage | ModelKind::SageRi => mean + reversed(columns),
            ModelKind::GcnMean => with_self + reversed(columns),
            ModelKind::Gcn => SCALAR * (2.0 * t + s) + reversed(columns),
            ModelKind::Gin => reversed(self.model.hidden),
            ModelKind::Gat => transpose + ID * e,
            ModelKind::Gatv2 => transpose,
            ModelKind::Rgcn => relation_edges(e, groups),
            ModelKind::Rgat => {
                // Each group as an edge, and the edges by group with their transpose.
                let [to, from] = groups.map(|groups| relation_edges(groups, [groups; 2]));
                let by_group = ID * (t + 1.0 + e + groups[1] + 1.0 + 2.0 * e);
                relation_edges(e, groups) + to + from + by_group
            }
        }
    }

    /// Bytes of the rows that a batch brings for its first layer: of its sources, or already aggregated.
    pub(super) fn input(&self, pe: &PeSizes) -> f64 {
        let Some(block) = pe.blocks.last() else { return 0.0 };
        let Sizes { t, s, .. } = Sizes::of(block);
        let columns = self.width(0);
        SCALAR
            * match self.model.kind {
                ModelKind::Sage if self.aggregates_input() => 2.0 * columns * t,
                _ if self.aggregates_input() => columns * t,
                _ => columns * s,
            }
    }

    /// Whether the batch's source aggregates features while it gathers them.
    pub(super) fn aggregates_input(&self) -> bool {
        let linear = matches!(self.model.kind, ModelKind::Sage | ModelKind::Gcn | ModelKind::GcnMean);
        linear && self.model.width(0) <= self.model.width(1) && self.model.input_dropout == 0.0
    }

    /// Bytes that the tape keeps from the forward pass to the backward pass, without the input.
    pub(super) fn activations(&self, pe: &PeSizes) -> f64 {
        let seeds = pe.blocks.first().map_or(0.0, |block| block.destinations as f64);
        let layers = self.layers(pe).map(|(layer, block)| {
            SCALAR * (self.before(layer, block) + self.values(layer, block)) + self.saved_ids(block)
        });
        // The head's two matrices; labels and the loss of each row.
        let classes = self.model.n_classes as f64;
        let head = if self.model.kind == ModelKind::SageRi { 3.0 * classes * seeds } else { 0.0 };
        layers.sum::<f64>() + SCALAR * head + (ID + SCALAR) * seeds
    }

    /// Bytes of activations' gradients of the layer that has most: of each value that it keeps, of its input, and of
    /// what its kernels need meanwhile. Those of other layers are not there at the same time.
    pub(super) fn gradients(&self, pe: &PeSizes) -> f64 {
        let of_layer = |(layer, block): (usize, &BlockSize)| {
            let Sizes { t, s, e, .. } = Sizes::of(block);
            let input = if layer > 0 { self.width(layer) * s } else { 0.0 };
            let (heads, width) = heads_and_width(self.model, layer);
            let messages = if self.model.self_loops { e + t } else { e };
            let (k, n) = (self.width(layer), self.width(layer + 1));
            let meanwhile = match self.model.kind {
                ModelKind::Gat => heads * (e + s + 5.0 * t),
                ModelKind::Gatv2 => 2.0 * heads * messages + width * t,
                // Transposed weights; parts of their gradient.
                ModelKind::Rgcn => 2.0 * self.model.n_relations as f64 * k * n,
                _ => 0.0,
            };
            SCALAR * (self.values(layer, block) + input + meanwhile)
        };
        self.layers(pe).map(of_layer).fold(0.0, f64::max)
    }

    /// Bytes of the plans by which rows come from their owners.
    pub(super) fn plans(&self, pe: &PeSizes) -> f64 {
        if !self.cooperative {
            return 0.0;
        }
        pe.blocks.iter().map(|block| ID * (sent(block) + 2.0 * block.sources as f64)).sum()
    }

    /// Bytes of rows, or of parameters' gradients, on their way between PEs; `gradients` are the bytes of the latter.
    pub(super) fn buffers(&self, pe: &PeSizes, n_pes: usize, gradients: f64) -> f64 {
        if n_pes == 1 {
            return 0.0;
        }
        let rows = self.layers(pe).filter(|_| self.cooperative);
        let rows =
            rows.map(|(layer, block)| SCALAR * self.width(layer) * (sent(block) + block.sources as f64));
        // Gradients are packed, received, and taken apart again.
        rows.fold(3.0 * gradients, f64::max)
    }

    /// Scalars of what stands before a layer: dropout of the rows that the PE has, and rows from other PEs.
    fn before(&self, layer: usize, block: &BlockSize) -> f64 {
        let columns = self.width(layer);
        let sources = block.sources as f64;
        if layer == 0 {
            return if self.model.input_dropout > 0.0 { columns * sources } else { 0.0 };
        }
        let drops = self.model.kind != ModelKind::SageRi && self.model.dropout > 0.0;
        let dropped = if drops { columns * block.owned as f64 } else { 0.0 };
        dropped + if self.cooperative { columns * sources } else { 0.0 }
    }

    /// Scalars that a layer's operations leave on the tape, and what they save besides.
    fn values(&self, layer: usize, block: &BlockSize) -> f64 {
        let sizes = Sizes::of(block);
        let Sizes { t, s, e, groups: [to, from] } = sizes;
        let (k, n) = (self.width(layer), self.width(layer + 1));
        let model = self.model;
        let is_last = layer + 1 == model.n_layers;
        let aggregated = layer == 0 && self.aggregates_input();
        let (heads, width) = heads_and_width(model, layer);
        // The mean of several heads, then the bias.
        let combined = if is_last && heads > 1.0 { 2.0 * n * t } else { n * t };
        match model.kind {
            // The weights, one below the other.
            ModelKind::Sage if aggregated => 2.0 * k * n + n * t,
            ModelKind::Sage => sage(sizes, [k, n], !is_last),
            ModelKind::Gcn | ModelKind::GcnMean if aggregated => n * t,
            ModelKind::Gcn | ModelKind::GcnMean => combine(sizes, [k, n]),
            ModelKind::Gin => {
                let hidden = model.hidden as f64;
                combine(sizes, [k, hidden]) + 2.0 * hidden * t + 3.0 * hidden + n * t
            }
            ModelKind::SageRi => {
                let drops = model.dropout > 0.0;
                let dropped = if drops { k * (s + t) + n * t } else { 0.0 };
                // Batch norm, LeakyReLU, the residual and the sum with it.
                let residual = if layer == 0 { n * t } else { 0.0 };
                dropped + sage(sizes, [k, n], false) + 3.0 * n * t + residual + 3.0 * n
            }
            ModelKind::Gat => width * (s + t) + heads * (s + 3.0 * t) + combined,
            ModelKind::Gatv2 => width * (s + 2.0 * t) + 2.0 * heads * t + combined,
            ModelKind::Rgcn => {
                let own = matches!(model.decomposition, Decomposition::Basis(_)) && model.root_shares_bases;
                n * t + self.matrices([k, n], if own { 1.0 } else { 0.0 })
            }
            ModelKind::Rgat => {
                let messages = width * from + heads * (to + from);
                let own = width * 3.0 * t;
                messages + 5.0 * heads * e + own + combined + self.matrices([k, width], 0.0)
            }
        }
    }

    /// Scalars of relations' matrices that are made of other parameters, and of `own` more.
    fn matrices(&self, [k, n]: [f64; 2], own: f64) -> f64 {
        let relations = self.model.n_relations as f64;
        match self.model.decomposition {
            Decomposition::Full => 0.0,
            Decomposition::Basis(_) => (relations + own) * k * n,
            // And where each row of a block stands.
            Decomposition::BlockDiagonal(blocks) => relations * k * (n + blocks as f64 + 5.0),
        }
    }

    /// Bytes of the index arrays that R-GAT's operations keep: of the edges' queries and keys.
    fn saved_ids(&self, block: &BlockSize) -> f64 {
        if self.model.kind != ModelKind::Rgat {
            return 0.0;
        }
        ID * 2.0 * Sizes::of(block).e
    }

    fn width(&self, layer: usize) -> f64 {
        self.model.width(layer) as f64
    }
}

/// Rows that a plan sends; those that the PE needs of itself go through it as well.
fn sent(block: &BlockSize) -> f64 {
    (block.sent + block.sources - block.received) as f64
}

/// Bytes of edges grouped by relation in both directions: six arrays of an element for each edge and three more, two
/// for each group.
fn relation_edges(edges: f64, groups: [f64; 2]) -> f64 {
    ID * (9.0 * edges + 2.0 * (groups[0] + groups[1]) + 2.0)
}

/// GraphSAGE's values: sums first, or products.
fn sage(Sizes { t, s, .. }: Sizes, [k, n]: [f64; 2], activates: bool) -> f64 {
    if k <= n {
        return (k + n) * t;
    }
    // Own rows, messages, their mean, the sum of both and its activation.
    let activated = if activates { n * t } else { 0.0 };
    n * (3.0 * t + s) + activated
}

/// Values of a layer that adds a destination's own row to the sum over its edges, before or after the product.
fn combine(Sizes { t, s, .. }: Sizes, [k, n]: [f64; 2]) -> f64 {
    if k <= n { 3.0 * k * t + n * t } else { n * (s + 4.0 * t) }
}

/// Whether a model's blocks must have pairs of relations and vertices counted.
pub(super) fn needs_groups(model: &ModelConfig) -> bool {
    model.kind.relates()
}
