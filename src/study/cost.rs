//! The time of a training step in either mode, by a model of bandwidths (Cooperative Minibatching, section 3.1): γ of
//! the device's memory, α between processing elements, β from storage.
//!
//! Per processing element (PE), with the counts of the PE that has most, since the others wait for it:
//!
//! ```text
//! sampling   Σ_l (16 |S^l| + 4 |E^l|) / β                    + Σ_l 4 r_l / α
//! features   ρ d n / β                                       + 4 w_0 r_(L-1) / α
//! layer l    3 · 4 (w_in (|S~^(l+1)| + |E^l| + |S^l|) + w_out |S^l|) / γ   + 2 · 4 w_in r_l / α
//! ```
//!
//! `r_l` is the number of a layer's sources `S~^(l+1)` that other PEs own: 0 in independent mode, where `S~` is `S`.
//! `n` is the number of rows that caches counted with [`ModesConfig::cache_rows`] miss, all of `S^L` without; ρ is the
//! miss rate of a cache that was not counted. `d` is the number of bytes of a feature row in storage, and `w` are
//! numbers of columns. Sampling reads two offsets per vertex and one id per edge; a layer reads each source row, reads
//! one row per edge, writes the aggregate, and writes its output; the backward pass does twice that. The first layer's
//! input is exchanged with the features and has no gradient. Stages run one after the other; the model ignores
//! arithmetic, latency and the sum of parameters' gradients.
//!
//! The layer is that of no model in particular. With [`predict_model`](super::predict_model) it is a model's own, and
//! arithmetic counts.

use std::sync::Arc;

use serde::Serialize;

use super::{Listener, Machine, ModeRow, ModelCost, ModesConfig, ModesRow, Spread, modes};
use crate::coop::Mode;
use crate::error::{Error, Result};
use crate::graph::Graph;

/// The parameters of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct CostConfig {
    /// Bandwidths.
    pub machine: Machine,
    /// ρ in independent mode.
    pub independent_miss_rate: f64,
    /// ρ in cooperative mode, where PEs' caches hold different rows.
    pub cooperative_miss_rate: f64,
    /// d: bytes of a feature row in storage.
    pub row_bytes: usize,
    /// `[n_layers + 1]`: columns of the features, of each layer's output, and of the classes, in model order.
    pub widths: Vec<usize>,
}

/// Seconds of each stage. Lists go from the seeds outward.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stages {
    /// Reading neighbourhoods from storage.
    pub sample: f64,
    /// Sending ids to their owners.
    pub sample_exchange: f64,
    /// Loading feature rows.
    pub feature: f64,
    /// Sending feature rows to the PEs that need them.
    pub feature_exchange: f64,
    /// `[n_layers]`: forward and backward passes.
    pub layers: Vec<f64>,
    /// `[n_layers]`: exchange of activations and their gradients.
    pub layer_exchanges: Vec<f64>,
}

impl Stages {
    /// Seconds of exchange.
    pub fn exchange(&self) -> f64 {
        self.sample_exchange + self.feature_exchange + self.layer_exchanges.iter().sum::<f64>()
    }

    /// Total seconds.
    pub fn total(&self) -> f64 {
        self.sample + self.feature + self.layers.iter().sum::<f64>() + self.exchange()
    }
}

/// A prediction for one mode and number of PEs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRow {
    /// Name of the machine.
    pub machine: String,
    /// Number of PEs.
    pub n_pes: usize,
    /// How the PEs share a batch.
    pub mode: Mode,
    /// Seconds of each stage.
    pub stages: Stages,
    /// Seconds of a training step.
    pub seconds: f64,
    /// Seconds in independent mode, divided by these seconds.
    pub speedup: f64,
    /// c: share of the sources that other PEs own.
    pub crossing_share: f64,
    /// The c at which both modes take equally long, if c is the same in all layers. Below 0: cooperation is always
    /// slower; above 1: it is faster even if all rows cross. `None` if nothing is exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub break_even_share: Option<f64>,
    /// With [`predict_model`](super::predict_model): the model's part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelCost>,
}

/// Where cooperation stops paying off.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSummary {
    /// Name of the machine.
    pub machine: String,
    /// The smallest predicted number of PEs at which cooperation is slower.
    pub slower_from_pes: Option<usize>,
    /// The number of PEs with the largest speedup, and the speedup.
    pub best: Option<(usize, f64)>,
}

/// Counts as [`modes()`] does, and predicts: two rows, independent and cooperative, per number of PEs.
///
/// Errors: those of [`modes()`] and [`predict`].
pub fn cost(
    graph: &Arc<Graph>,
    pool: &[u32],
    modes_config: &ModesConfig,
    config: &CostConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<CostRow>> {
    config.check()?;
    let counts = modes(graph, pool, modes_config, listener)?;
    let predictions: Vec<[CostRow; 2]> =
        counts.iter().map(|row| predict(row, config)).collect::<Result<_>>()?;
    Ok(predictions.into_iter().flatten().collect())
}

impl CostConfig {
    /// `Ok` if bandwidths are positive and miss rates between 0 and 1.
    ///
    /// Errors: a bandwidth is not positive and finite, or a miss rate not between 0 and 1.
    pub fn check(&self) -> Result<()> {
        self.machine.check()?;
        for rate in [self.independent_miss_rate, self.cooperative_miss_rate] {
            if !(0.0..=1.0).contains(&rate) {
                return Err(Error::invalid("miss rate", rate, "a share between 0 and 1"));
            }
        }
        Ok(())
    }
}

/// Predicts by the model for one number of PEs: independent, then cooperative.
///
/// Errors: a bandwidth is not positive and finite, a miss rate not between 0 and 1, or `widths` are for another number
/// of layers.
pub fn predict(counts: &ModesRow, config: &CostConfig) -> Result<[CostRow; 2]> {
    config.check()?;
    let n_layers = counts.independent.edges.len();
    if config.widths.len() != n_layers + 1 {
        let expected = format!("{}: features, and one for each layer", n_layers + 1);
        return Err(Error::invalid("number of widths", config.widths.len(), expected));
    }
    let n_pes = counts.n_pes;
    let apart = stages(
        &counts.independent,
        &counts.independent.received,
        n_pes,
        config.independent_miss_rate,
        config,
    );
    let coop = &counts.cooperative;
    let together = stages(coop, &coop.received, n_pes, config.cooperative_miss_rate, config);
    // The exchange if all rows crossed.
    let all_cross = stages(coop, &coop.sources, n_pes, config.cooperative_miss_rate, config).exchange();
    let sum = |spreads: &[Spread]| spreads.iter().map(|spread| spread.total).sum::<f64>();
    let (received, needed) = (sum(&coop.received), sum(&coop.sources));
    let row = |mode, stages: &Stages| CostRow {
        machine: config.machine.name.clone(),
        n_pes,
        mode,
        seconds: stages.total(),
        speedup: apart.total() / stages.total(),
        stages: stages.clone(),
        crossing_share: 0.0,
        break_even_share: None,
        model: None,
    };
    let without_exchange = together.total() - together.exchange();
    let cooperative = CostRow {
        crossing_share: if needed > 0.0 { received / needed } else { 0.0 },
        break_even_share: (received > 0.0).then(|| (apart.total() - without_exchange) / all_cross),
        ..row(Mode::Cooperative, &together)
    };
    Ok([row(Mode::Independent, &apart), cooperative])
}

/// Seconds if `crossing` of the sources come from other PEs, by layer.
pub(super) fn stages(
    row: &ModeRow,
    crossing: &[Spread],
    n_pes: usize,
    miss_rate: f64,
    config: &CostConfig,
) -> Stages {
    let [memory, interconnect, storage] = config.machine.bandwidths(n_pes);
    let n_layers = row.edges.len();
    let largest = |spreads: &[Spread], layer: usize| spreads[layer].largest;
    let columns = |of: usize| config.widths[of] as f64;
    const SCALAR: f64 = size_of::<f32>() as f64;
    const ID: f64 = size_of::<u32>() as f64;
    const OFFSETS: f64 = 2.0 * size_of::<u64>() as f64;
    let mut stages = Stages {
        feature: miss_rate * config.row_bytes as f64 * row.loaded.largest / storage,
        feature_exchange: SCALAR * columns(0) * largest(crossing, n_layers - 1) / interconnect,
        ..Stages::default()
    };
    for layer in 0..n_layers {
        let (vertices, edges) = (largest(&row.vertices, layer), largest(&row.edges, layer));
        stages.sample += (OFFSETS * vertices + ID * edges) / storage;
        stages.sample_exchange += ID * largest(crossing, layer) / interconnect;
        let (w_in, w_out) = (columns(n_layers - 1 - layer), columns(n_layers - layer));
        let scalars = w_in * (largest(&row.sources, layer) + edges + vertices) + w_out * vertices;
        stages.layers.push(3.0 * SCALAR * scalars / memory);
        let exchanged =
            if layer + 1 == n_layers { 0.0 } else { 2.0 * SCALAR * w_in * largest(crossing, layer) };
        stages.layer_exchanges.push(exchanged / interconnect);
    }
    stages
}

/// Where cooperation stops paying off, among predictions for one machine.
pub fn summarize(rows: &[CostRow]) -> CostSummary {
    let cooperative = || rows.iter().filter(|row| row.mode == Mode::Cooperative && row.n_pes > 1);
    let slower = cooperative().filter(|row| row.speedup < 1.0).map(|row| row.n_pes).min();
    let best = cooperative().max_by(|a, b| a.speedup.total_cmp(&b.speedup));
    CostSummary {
        machine: rows.first().map(|row| row.machine.clone()).unwrap_or_default(),
        slower_from_pes: slower,
        best: best.map(|row| (row.n_pes, row.speedup)),
    }
}
