//! The cost model with the work of a model's layers ([`layer_work()`]) instead of one layer for all models.
//!
//! A layer takes the time of its sparse and of its dense work, one after the other, each as long as its bytes take at
//! the bandwidth of memory, or its operations at the device's rate, whichever is more. The other stages are those of
//! [`cost()`](super::cost()); with P³ those of its module.

use serde::Serialize;

use super::cost::{CostConfig, CostRow, Stages, stages};
use super::layer_work::{check, layer_work};
use super::p3::{P3Bytes, P3Part, p3_parts, p3_traffic};
use super::sizes::mode_row;
use super::{LayerWork, PeSizes, SizesRow, Spread, Work};
use crate::coop::{FirstLayer, Mode};
use crate::error::{Error, Result};
use crate::nn::{ModelConfig, ModelKind};

/// The part of a prediction that the model decides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelCost {
    /// The layer that the model stacks.
    pub kind: ModelKind,
    /// How processing elements share the first layer.
    pub first_layer: FirstLayer,
    /// Seconds of the layers and of the exchange between them, without sampling and features.
    pub seconds: f64,
    /// These seconds in independent mode with a whole first layer, divided by these seconds.
    pub speedup: f64,
    /// `[n_layers]`, from the seeds outward: work, each number of the processing element that has most of it, the mean
    /// over batches.
    pub layers: Vec<LayerWork>,
    /// Bytes of P³, of all processing elements together, the mean over batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p3: Option<P3Bytes>,
}

/// Predicts for one number of processing elements and a model: for each of `first_layers` two rows, independent and
/// cooperative. Speedups are over independent mode with a whole first layer. Of `config`, the widths are not read: the
/// model has its own.
///
/// Errors: those of [`CostConfig::check`] and [`layer_work()`], the model has another number of layers than the blocks,
/// or its first layer has no P³ form.
pub fn predict_model(
    sizes: &SizesRow,
    model: &ModelConfig,
    first_layers: &[FirstLayer],
    config: &CostConfig,
) -> Result<Vec<CostRow>> {
    config.check()?;
    check(model)?;
    let n_layers = sizes.independent.first().and_then(|pes| pes.first()).map_or(0, |pe| pe.blocks.len());
    if n_layers != model.n_layers {
        return Err(Error::invalid("n_layers", model.n_layers, format!("{n_layers}, as sampled")));
    }
    let config = CostConfig { widths: widths(model), ..config.clone() };
    let study = Study { sizes, model, config: &config };
    let baseline = study.whole(Mode::Independent)?;
    let mut rows = Vec::with_capacity(2 * first_layers.len());
    for &first_layer in first_layers {
        for mode in [Mode::Independent, Mode::Cooperative] {
            let prediction = match first_layer {
                FirstLayer::Whole => study.whole(mode)?,
                FirstLayer::P3 => study.p3(mode)?,
            };
            rows.push(study.row(mode, first_layer, &prediction, &baseline));
        }
    }
    Ok(rows)
}

/// Columns of the features, and of each layer's output.
fn widths(model: &ModelConfig) -> Vec<usize> {
    let of_layer = |layer| if layer == 0 { model.n_features } else { model.width(layer) };
    (0..=model.n_layers).map(of_layer).collect()
}

struct Study<'a> {
    sizes: &'a SizesRow,
    model: &'a ModelConfig,
    config: &'a CostConfig,
}

struct Prediction {
    stages: Stages,
    crossing_share: f64,
    /// Seconds of exchange if all rows crossed.
    all_cross: Option<f64>,
    layers: Vec<LayerWork>,
    p3: Option<P3Bytes>,
}

impl Prediction {
    fn model_seconds(&self) -> f64 {
        self.stages.layers.iter().chain(&self.stages.layer_exchanges).sum()
    }
}

impl Study<'_> {
    fn batches(&self, mode: Mode) -> &[Vec<PeSizes>] {
        if mode == Mode::Cooperative { &self.sizes.cooperative } else { &self.sizes.independent }
    }

    fn whole(&self, mode: Mode) -> Result<Prediction> {
        let counts = mode_row(self.batches(mode));
        let n_pes = self.sizes.n_pes;
        let miss_rate = match mode {
            Mode::Cooperative => self.config.cooperative_miss_rate,
            _ => self.config.independent_miss_rate,
        };
        let times = |crossing: &[Spread]| stages(&counts, crossing, n_pes, miss_rate, self.config);
        let n_layers = self.model.n_layers;
        let work = |pe: &PeSizes, outward: usize| {
            layer_work(self.model, n_layers - 1 - outward, &pe.blocks[outward])
        };
        let by_batch = |batch: &Vec<PeSizes>| batch.iter().map(|pe| self.of_pe(pe, work)).collect();
        let works: Vec<Vec<Vec<LayerWork>>> =
            self.batches(mode).iter().map(by_batch).collect::<Result<_>>()?;
        let sum = |spreads: &[Spread]| spreads.iter().map(|spread| spread.total).sum::<f64>();
        let (received, needed) = (sum(&counts.received), sum(&counts.sources));
        let mut own = times(&counts.received);
        own.layers = self.seconds(&works);
        Ok(Prediction {
            stages: own,
            crossing_share: if needed > 0.0 { received / needed } else { 0.0 },
            all_cross: (received > 0.0).then(|| times(&counts.sources).exchange()),
            layers: largest(&works, n_layers),
            p3: None,
        })
    }

    fn p3(&self, mode: Mode) -> Result<Prediction> {
        let [_, interconnect, storage] = self.config.machine.bandwidths(self.sizes.n_pes);
        let mut prediction = self.whole(mode)?;
        let batches = self.batches(mode);
        let parts: Vec<Vec<P3Part>> =
            batches.iter().map(|batch| p3_parts(self.model, batch)).collect::<Result<_>>()?;
        let n_layers = self.model.n_layers;
        let mut works = Vec::with_capacity(batches.len());
        for (batch, parts) in batches.iter().zip(&parts) {
            let of_pe = |(pe, part): (&PeSizes, &P3Part)| {
                self.of_pe(pe, |pe, outward| match outward + 1 == n_layers {
                    true => Ok(part.work),
                    false => layer_work(self.model, n_layers - 1 - outward, &pe.blocks[outward]),
                })
            };
            works.push(batch.iter().zip(parts).map(of_pe).collect::<Result<Vec<_>>>()?);
        }
        let most = |of: &dyn Fn(&P3Part) -> f64| mean_of_most(&parts, of);
        let stages = &mut prediction.stages;
        stages.feature = most(&|part| part.loaded) * self.config.row_bytes as f64 / storage;
        stages.feature_exchange = most(&|part| part.received[0]) / interconnect;
        stages.layers = self.seconds(&works);
        if let Some(last) = stages.layer_exchanges.last_mut() {
            *last = most(&|part| part.received[1]) / interconnect;
        }
        prediction.layers = largest(&works, n_layers);
        prediction.all_cross = None;
        prediction.p3 = Some(self.traffic(mode)?);
        Ok(prediction)
    }

    /// Bytes of P³, the mean over batches.
    fn traffic(&self, mode: Mode) -> Result<P3Bytes> {
        let all: Vec<P3Bytes> = self
            .batches(mode)
            .iter()
            .map(|batch| p3_traffic(self.model, mode, batch))
            .collect::<Result<_>>()?;
        let mean = |of: fn(&P3Bytes) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
        let (blocks, sums, whole_rows) = (mean(|b| b.blocks), mean(|b| b.sums), mean(|b| b.whole_rows));
        let columns = self.model.n_features as f64;
        let even_columns = (whole_rows > 0.0).then(|| (blocks + sums) * columns / whole_rows);
        Ok(P3Bytes { blocks, sums, whole_rows, even_columns })
    }

    /// The work of each layer of one PE, from the seeds outward.
    fn of_pe(
        &self,
        pe: &PeSizes,
        work: impl Fn(&PeSizes, usize) -> Result<LayerWork>,
    ) -> Result<Vec<LayerWork>> {
        (0..self.model.n_layers).map(|outward| work(pe, outward)).collect()
    }

    /// `[n_layers]`: the slowest PE's seconds, the mean over batches, of `works` by batch and PE.
    fn seconds(&self, works: &[Vec<Vec<LayerWork>>]) -> Vec<f64> {
        let machine = &self.config.machine;
        let [memory, ..] = machine.bandwidths(self.sizes.n_pes);
        let arithmetic = machine.arithmetic_of(self.sizes.n_pes);
        let time = |work: &LayerWork| {
            work.sparse.seconds(memory, arithmetic) + work.dense.seconds(memory, arithmetic)
        };
        (0..self.model.n_layers).map(|layer| mean_of_most(works, |pe| time(&pe[layer]))).collect()
    }

    fn row(
        &self,
        mode: Mode,
        first_layer: FirstLayer,
        prediction: &Prediction,
        baseline: &Prediction,
    ) -> CostRow {
        let stages = prediction.stages.clone();
        let without_exchange = stages.total() - stages.exchange();
        let even = |all_cross: f64| (baseline.stages.total() - without_exchange) / all_cross;
        CostRow {
            machine: self.config.machine.name.clone(),
            n_pes: self.sizes.n_pes,
            mode,
            seconds: stages.total(),
            speedup: baseline.stages.total() / stages.total(),
            crossing_share: prediction.crossing_share,
            break_even_share: prediction.all_cross.map(even),
            model: Some(ModelCost {
                kind: self.model.kind,
                first_layer,
                seconds: prediction.model_seconds(),
                speedup: baseline.model_seconds() / prediction.model_seconds(),
                layers: prediction.layers.clone(),
                p3: prediction.p3,
            }),
            stages,
        }
    }
}

/// The largest over the PEs of a batch, the mean over batches.
fn mean_of_most<T>(batches: &[Vec<T>], of: impl Fn(&T) -> f64) -> f64 {
    let most = |pes: &Vec<T>| pes.iter().map(&of).fold(0.0, f64::max);
    batches.iter().map(most).sum::<f64>() / batches.len().max(1) as f64
}

/// `[n_layers]`: each number of the PE that has most of it.
fn largest(works: &[Vec<Vec<LayerWork>>], n_layers: usize) -> Vec<LayerWork> {
    let of_layer = |layer: usize| {
        let most = |of: &dyn Fn(&LayerWork) -> f64| mean_of_most(works, |pe| of(&pe[layer]));
        let work = |of: &dyn Fn(&LayerWork) -> Work| Work {
            bytes: most(&|work| of(work).bytes),
            operations: most(&|work| of(work).operations),
        };
        LayerWork {
            edges: most(&|work| work.edges),
            sparse: work(&|work| work.sparse),
            dense: work(&|work| work.dense),
            parameters: works.iter().flatten().map(|pe| pe[layer].parameters).max().unwrap_or_default(),
            exchanged_bytes: most(&|work| work.exchanged_bytes),
        }
    };
    (0..n_layers).map(of_layer).collect()
}
