//! P³ (Gandhi & Iyer, OSDI 2021) in the cost model: each processing element (PE) has some columns of all vertices'
//! features, and sends partial sums of the first layer instead of feature rows. See
//! [`first_layer`](crate::coop::FirstLayer) for what PEs do.
//!
//! With `T_q` destinations, `S_q` sources and `E_q` edges of PE `q`'s first block, `K` linear aggregates with which the
//! layer begins ([`InputTerms`]), `d` feature columns, of which a PE has `c = ⌈d / P⌉`, and `n` columns of the first
//! weight, PE `p`
//!
//! ```text
//! receives blocks    Σ_(q≠p) (4 K T_q + 8 (E_q + T_q)) + 24 (P - 1)    source ids and factors of the edges
//! loads              Σ_q S_q, c columns of each row
//! aggregates         spmm(K Σ_q T_q, Σ_q (E_q + T_q), c)
//! multiplies         gemm(Σ_q T_q, K c, n), and the weight's gradient
//! receives sums      4 (P - 1) T_p n
//! receives gradients 4 n Σ_(q≠p) T_q
//! ```
//!
//! bytes, and adds up `P` partial sums of `T_p` rows. Columns come at the bandwidth of storage, as whole rows do, but
//! through no cache, as in training. It is in independent mode as in cooperative; the blocks differ.
//!
//! Whole rows move no bytes between PEs that all have the whole features. Where each has those of a `P`-th of the
//! vertices, `(1 - 1 / P) Σ_q S_q` rows of `d` scalars move in independent mode, in cooperative mode those that cross.
//! P³ moves fewer bytes than that from [`P3Bytes::even_columns`] feature columns on: it pays where features are wide,
//! hidden layers narrow, first blocks small (`n`, `T` and `E` per source), and links slow.

use serde::Serialize;

use super::layer_work::{SCALAR, Tally, layer_work};
use super::{BlockSize, LayerWork, PeSizes, Work};
use crate::coop::{FirstBlock, InputTerms, Mode, columns_of, p3_bytes};
use crate::error::{Error, Result};
use crate::nn::{ModelConfig, ModelKind};
use crate::tape::Aggregate;

/// Bytes that P³ moves between PEs for the first layer of a batch, and that whole rows would move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct P3Bytes {
    /// Source ids and factors of the first blocks' edges, sent to all PEs.
    pub blocks: f64,
    /// Partial sums, sent to the destinations' PEs, and their gradients, sent to all.
    pub sums: f64,
    /// Whole rows of features, if each PE has those of its share of the vertices.
    pub whole_rows: f64,
    /// Feature columns from which on P³ moves fewer bytes than whole rows. `None`: no row would move.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub even_columns: Option<f64>,
}

/// The linear aggregates with which a model's first layer begins, if P³ can share it by columns.
///
/// Errors: it does not begin so, as attention and GraphSAGE-RI do not, or the input is dropped out or embedded before.
pub fn p3_terms(model: &ModelConfig) -> Result<InputTerms> {
    let terms = match model.kind {
        ModelKind::Sage => InputTerms::Aggregate(Aggregate::Mean),
        ModelKind::Gcn => InputTerms::Aggregate(Aggregate::Symmetric),
        ModelKind::GcnMean => InputTerms::Aggregate(Aggregate::MeanWithSelf),
        ModelKind::Gin => InputTerms::Aggregate(Aggregate::Sum),
        ModelKind::Rgcn => InputTerms::Relations(model.n_relations),
        ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Rgat | ModelKind::SageRi => {
            let expected = "whole for this model: p3 needs a first layer that begins with a linear aggregate of the \
                            features (sage, gcn, gin, rgcn); attention (gat, gatv2, rgat) and sage-ri have no p3 form";
            return Err(Error::invalid("first layer", "p3", expected));
        }
    };
    if model.input_dropout > 0.0 || model.embedding > 0 {
        let expected = "whole with dropout of the input or an embedding: p3 shares the features as they are";
        return Err(Error::invalid("first layer", "p3", expected));
    }
    Ok(terms)
}

/// One PE's part of P³ for one batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct P3Part {
    /// Bytes received for the blocks, and for sums and their gradients.
    pub received: [f64; 2],
    /// Rows to load, in rows of all columns.
    pub loaded: f64,
    /// The first layer's work.
    pub work: LayerWork,
}

/// The part of each PE of a batch.
pub(super) fn p3_parts(model: &ModelConfig, batch: &[PeSizes]) -> Result<Vec<P3Part>> {
    let terms = p3_terms(model)?.n_terms() as f64;
    let firsts: Vec<BlockSize> = batch.iter().filter_map(|sizes| sizes.blocks.last().copied()).collect();
    let (n_pes, dim, cols) = (firsts.len(), model.n_features, first_columns(model) as f64);
    let sum = |of: fn(&BlockSize) -> u64| firsts.iter().map(of).sum::<u64>() as f64;
    let (t, s, e) = (sum(|b| b.destinations), sum(|b| b.sources), sum(|b| b.edges));
    let lists = |t: f64, e: f64| 4.0 * terms * t + (4.0 + SCALAR) * (e + t);
    let others = n_pes.saturating_sub(1) as f64;
    let part = |(pe, own): (usize, &BlockSize)| {
        let (own_t, own_e) = (own.destinations as f64, own.edges as f64);
        let columns = columns_of(dim, pe, n_pes).len() as f64;
        let mut tally = Tally::default();
        tally.spmm(terms * t, e + t, columns);
        tally.linear(t, [terms * columns, cols], false);
        let bytes = SCALAR * cols * own_t * (n_pes as f64 + 1.0);
        tally.sparse += Work { bytes, operations: cols * own_t * n_pes as f64 };
        if model.kind == ModelKind::Gin {
            tally.linear(own_t, [cols, model.width(1) as f64], true);
        }
        let (blocks, sums) = (
            others * 3.0 * 8.0 + lists(t, e) - lists(own_t, own_e),
            SCALAR * cols * (others * own_t + t - own_t),
        );
        Ok(P3Part {
            received: [blocks, sums],
            loaded: s * columns / dim.max(1) as f64,
            work: LayerWork {
                edges: own_e,
                sparse: tally.sparse,
                dense: tally.dense,
                exchanged_bytes: blocks + sums,
                ..layer_work(model, 0, own)?
            },
        })
    };
    firsts.iter().enumerate().map(part).collect()
}

/// The bytes of a batch, of all PEs together.
pub(super) fn p3_traffic(model: &ModelConfig, mode: Mode, batch: &[PeSizes]) -> Result<P3Bytes> {
    let firsts: Vec<BlockSize> = batch.iter().filter_map(|sizes| sizes.blocks.last().copied()).collect();
    let blocks: Vec<FirstBlock> =
        firsts.iter().map(|b| FirstBlock { n_dst: b.destinations, n_edge: b.edges }).collect();
    let bytes = p3_bytes(&blocks, p3_terms(model)?, first_columns(model) as u64, size_of::<f32>() as u64);
    let rows: f64 = match mode {
        Mode::Cooperative => firsts.iter().map(|block| block.received as f64).sum(),
        _ => {
            let share = 1.0 - 1.0 / firsts.len().max(1) as f64;
            share * firsts.iter().map(|block| block.sources as f64).sum::<f64>()
        }
    };
    let moved = (bytes.blocks + bytes.forward + bytes.backward) as f64;
    Ok(P3Bytes {
        blocks: bytes.blocks as f64,
        sums: (bytes.forward + bytes.backward) as f64,
        whole_rows: SCALAR * rows * model.n_features as f64,
        even_columns: (rows > 0.0).then(|| moved / (SCALAR * rows)),
    })
}

/// Columns of the first weight.
fn first_columns(model: &ModelConfig) -> usize {
    if model.kind == ModelKind::Gin { model.hidden } else { model.width(1) }
}
