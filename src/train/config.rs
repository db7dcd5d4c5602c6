//! The configuration of a training run.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{ClassWeights, Evaluation, LrSchedule};
use crate::batch::{BatchNeeds, DataOnDevice};
use crate::cache::Policy;
use crate::coop::{FirstLayer, Mode, RowTransport};
use crate::data::Dataset;
use crate::device::{Device, IGNORED, Method, Precision};
use crate::error::{Error, Result};
use crate::graph::PartitionMethod;
use crate::nn::{ModelConfig, OptimizerConfig, Stack};
use crate::sample::SamplerConfig;
use crate::tensor::Tensor;

/// The most batches that are prepared at a time.
pub const MAX_WORKERS: usize = 1024;

/// How validation and test predictions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvalMode {
    /// With the training sampler's fanouts.
    Sampled,
    /// Layer by layer over full neighbourhoods.
    Full,
}

/// The measure that chooses the best epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Share of correct predictions.
    #[default]
    Accuracy,
    /// Area under the ROC curve; only for two classes.
    Auc,
}

impl Metric {
    pub(super) fn of(self, evaluation: &Evaluation) -> f64 {
        match self {
            Metric::Accuracy => evaluation.accuracy,
            Metric::Auc => evaluation.auc,
        }
    }
}

/// Each processing element's cache of feature rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheConfig {
    /// Which rows the cache keeps.
    pub policy: Policy,
    /// Number of rows.
    pub rows: usize,
}

/// How processing elements share a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelConfig {
    /// How they share a batch.
    pub mode: Mode,
    /// How vertices are assigned to owners in cooperative mode.
    pub partition: PartitionMethod,
    /// How they share the first layer.
    pub first_layer: FirstLayer,
    /// How rows get from device to device; no result depends on it.
    pub row_transport: RowTransport,
}

/// Everything that a training run depends on, besides the data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// The model; numbers of features, classes and relations of 0 are taken from the data set.
    pub model: ModelConfig,
    /// Whether each feature row is scaled to sum 1.
    #[serde(default)]
    pub row_normalize: bool,
    /// Whether a graph with relations gets an inverse relation for each
    /// ([`add_inverse_relations`](crate::graph::Graph::add_inverse_relations)).
    #[serde(default)]
    pub inverse_relations: bool,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// How its learning rate changes from epoch to epoch.
    #[serde(default)]
    pub lr_schedule: LrSchedule,
    /// Gradients with a larger norm, over all parameters and processing elements, are scaled down to this norm.
    #[serde(default)]
    pub clip_norm: Option<f64>,
    /// How much each class counts in the training loss.
    #[serde(default)]
    pub class_weights: ClassWeights,
    /// The sampler, with one fanout per layer.
    pub sampler: SamplerConfig,
    /// Seeds per minibatch. `None`: one batch of all training vertices; with [`Method::Full`](crate::device::Method) it
    /// runs on the whole graph.
    pub batch_size: Option<usize>,
    /// The largest number of epochs.
    pub epochs: u64,
    /// Validate after every epoch whose number, from 1, this divides. Only these can be the best epoch.
    #[serde(default = "one")]
    pub eval_every: u64,
    /// Stop after this many validated epochs in a row in which neither the validation metric nor the validation loss
    /// was at least as good as its best so far.
    pub patience: Option<u64>,
    /// The seed of initial parameters, the order of seed vertices, dropout and the partition; neighbourhoods have the
    /// sampler's seed.
    pub seed: u64,
    /// How validation and test predictions are made.
    pub eval: EvalMode,
    /// The measure on the validation vertices that chooses the best epoch.
    #[serde(default)]
    pub metric: Metric,
    /// In which precision dense matrices are multiplied and rows are aggregated, to train and to predict. The trainer
    /// gives it to its device.
    #[serde(default)]
    pub precision: Precision,
    /// A cache of feature rows. With a cache, workers sample batches at the same time, but slice them one after the
    /// other.
    #[serde(default)]
    pub cache: Option<CacheConfig>,
    /// Which data is in the device's memory. If any, minibatches are made on the device instead of ahead of it on the
    /// host. Results do not depend on this.
    #[serde(default)]
    pub data_on_device: DataOnDevice,
    /// How many batches are prepared at a time, ahead of the computation: for a GPU by separate threads, on the CPU by
    /// the threads that compute. Results do not depend on this.
    pub workers: usize,
}

impl TrainConfig {
    /// The data set as the run sees it: with rows scaled and inverse relations added, if the configuration says so.
    pub(super) fn transformed(&self, mut dataset: Arc<Dataset>) -> Result<Arc<Dataset>> {
        if self.row_normalize {
            let features = dataset.features.row_normalize()?;
            dataset = Arc::new(Dataset { features, ..Dataset::clone(&dataset) });
        }
        if self.inverse_relations && dataset.graph.edge_type().is_some() {
            let graph = Arc::new(dataset.graph.add_inverse_relations()?);
            dataset = Arc::new(Dataset { graph, ..Dataset::clone(&dataset) });
        }
        Ok(dataset)
    }

    /// The built-in model; takes numbers that were left open from the data set.
    pub(super) fn built_in_model<D: Device>(&mut self, device: &D, dataset: &Dataset) -> Result<Stack<D>> {
        let one_hot = if dataset.features.is_none() { dataset.n_vertices() } else { 0 };
        if !dataset.features.is_none() && dataset.features.dim() == 0 {
            let expected = "at least one column; without a feature matrix, vertices have one-hot ids";
            return Err(Error::invalid("the number of feature columns", 0, expected));
        }
        fill(&mut self.model.n_features, dataset.features.dim().max(one_hot), "n_features", "vertices")?;
        let n_relations = dataset.graph.n_relations();
        if self.model.n_relations == 0 {
            self.model.n_relations = n_relations;
        }
        if self.model.n_relations != n_relations {
            let expected = format!("the {n_relations} of the graph");
            return Err(Error::invalid("n_relations", self.model.n_relations, expected));
        }
        fill(&mut self.model.n_classes, dataset.n_classes, "n_classes", "labels")?;
        self.check(dataset, self.model.n_layers, self.model.n_classes)?;
        Stack::new(device, &self.model, self.seed)
    }

    /// `Ok` if there is something to learn from. What is merely odd is a warning, if this processing
    /// element `tells`.
    pub(super) fn check_labels(&self, dataset: &Dataset, n_outputs: usize, tells: bool) -> Result<()> {
        // The two smallest different labels.
        let classes = |vertices: &[u32]| {
            let labels =
                vertices.iter().map(|&v| dataset.labels[v as usize]).filter(|&label| label != IGNORED);
            let first = labels.clone().min()?;
            Some((first, labels.filter(|&label| label != first).min()))
        };
        match classes(&dataset.train_idx) {
            None => {
                let expected = "a class for at least one of them";
                return Err(Error::invalid("labels of the training vertices", "-1 everywhere", expected));
            }
            Some((class, None)) if n_outputs > 1 && tells => {
                log::warn!("all labelled training vertices are of class {class}");
            }
            Some(_) => {}
        }
        let metric_is_auc = self.metric == Metric::Auc;
        let unused = |why: &str| {
            if self.patience.is_some() && tells {
                log::warn!("{why}: patience has no effect");
            }
        };
        match classes(&dataset.val_idx) {
            None if dataset.val_idx.is_empty() => unused("there are no validation vertices"),
            None if tells => {
                log::warn!("no validation vertex has a label: no epoch is better than another");
                unused("no validation vertex has a label");
            }
            Some((class, None)) if metric_is_auc => {
                let expected = "validation vertices of both classes";
                let found = format!("auc with validation vertices of class {class} only");
                return Err(Error::invalid("metric", found, expected));
            }
            Some((class, None)) if n_outputs > 1 && tells => {
                log::warn!("all labelled validation vertices are of class {class}");
            }
            None | Some(_) => {}
        }
        Ok(())
    }

    /// `Ok` if the graph has edge weights where the model `needs` them, and the sampler goes with them.
    pub(super) fn check_edge_weights(&self, dataset: &Dataset, needs: BatchNeeds) -> Result<()> {
        let method = self.sampler.method;
        if !needs.edge_weights && !self.sampler.edge_weights {
            return Ok(());
        }
        if dataset.graph.edge_weight().is_none() {
            let expected = "a weight for each edge, which a weighted model takes";
            return Err(Error::invalid("weighted", "set", expected));
        }
        if samples_by_weight(method) {
            let expected = "another sampler: where edges are drawn by weight, each one drawn counts the same";
            return Err(Error::invalid("sampler", "weighted, for a weighted model", expected));
        }
        if !method.takes_edges() {
            let expected = "a sampler of edges: where a walk ends there is no weight";
            return Err(Error::invalid("sampler", "random walks, for a weighted model", expected));
        }
        Ok(())
    }

    /// `Ok` if processing elements with this device can share the first layer by columns.
    pub(super) fn check_column_slices<D: Device>(&self, device: &D) -> Result<()> {
        let data = self.data_on_device;
        if data != DataOnDevice::Nothing {
            let expected = "Nothing with the first layer p3";
            return Err(Error::invalid("data_on_device", format!("{data:?}"), expected));
        }
        if D::as_host(Tensor::<D>::zeros(device, 1, 1)?.view()).is_none() {
            return Err(Error::invalid("first layer", "p3", "whole on this device: p3 runs on the CPU"));
        }
        Ok(())
    }

    /// Warns of edge weights that nothing uses.
    pub(super) fn mention_unused_weights(&self, dataset: &Dataset, needs: BatchNeeds) {
        let used = needs.edge_weights || needs.edge_ids || samples_by_weight(self.sampler.method);
        if dataset.graph.edge_weight().is_some() && !used {
            log::warn!(
                "the graph has edge weights, which are not used: a weighted model (--weighted) or weighted sampling \
                 would use them"
            );
        }
    }

    /// `Ok` if the configuration fits the data set and a model with these numbers of layers and outputs.
    pub(super) fn check(&self, dataset: &Dataset, n_layers: usize, n_outputs: usize) -> Result<()> {
        if dataset.train_idx.is_empty() {
            return Err(Error::invalid("train_idx", "empty", "at least one training vertex"));
        }
        self.check_batches(n_layers)?;
        if self.eval_every == 0 {
            return Err(Error::invalid("eval_every", 0, "at least 1"));
        }
        if let Some(norm) = self.clip_norm.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            return Err(Error::invalid("clip_norm", norm, "a positive number"));
        }
        self.lr_schedule.check()?;
        if self.metric == Metric::Auc && n_outputs != 2 {
            let classes = format!("auc with a data set of {n_outputs} classes");
            return Err(Error::invalid("metric", classes, "two classes"));
        }
        Ok(())
    }

    /// `Ok` if batches can be made so for a model of so many layers, to train or to predict.
    pub(super) fn check_batches(&self, n_layers: usize) -> Result<()> {
        if self.batch_size == Some(0) {
            return Err(Error::invalid("batch_size", 0, "at least 1"));
        }
        if self.workers > MAX_WORKERS {
            return Err(Error::invalid("workers", self.workers, format!("at most {MAX_WORKERS}")));
        }
        self.sampler.method.check()?;
        if self.sampler.fanouts.0.len() != n_layers {
            let expected = format!("one for each of the model's {n_layers} layers");
            return Err(Error::invalid("fanouts", &self.sampler.fanouts, expected));
        }
        if self.data_on_device != DataOnDevice::Nothing && self.cache.is_some() {
            return Err(Error::invalid("cache", "given", "none where minibatches are made on the device"));
        }
        Ok(())
    }
}

/// Whether edges are drawn with probabilities proportional to their weights.
fn samples_by_weight(method: Method) -> bool {
    matches!(method, Method::Neighbor { weighted: true, .. })
}

fn one() -> u64 {
    1
}

/// Takes a number that was left open from the data set; a given number must agree with the data set. Sets a number of
/// the model that was left open (0) to that of the data set, where it comes from what may be `missing`.
fn fill(value: &mut usize, from_data: usize, name: &'static str, missing: &str) -> Result<()> {
    if from_data == 0 {
        return Err(Error::invalid(name, 0, format!("at least 1: the data set has no {missing}")));
    }
    if *value == 0 {
        *value = from_data;
    }
    if *value == from_data {
        return Ok(());
    }
    Err(Error::invalid(name, *value, format!("the data set's {from_data}")))
}

impl Default for TrainConfig {
    /// GraphSAGE with two layers of 64, which trains well on the built-in data.
    fn default() -> Self {
        TrainConfig {
            model: ModelConfig::default(),
            row_normalize: false,
            inverse_relations: false,
            optimizer: OptimizerConfig::default(),
            lr_schedule: LrSchedule::Constant,
            clip_norm: None,
            class_weights: ClassWeights::Equal,
            sampler: SamplerConfig::default(),
            batch_size: Some(1024),
            epochs: 10,
            eval_every: 1,
            patience: None,
            seed: 0,
            eval: EvalMode::Full,
            metric: Metric::Accuracy,
            precision: Precision::F32,
            cache: None,
            data_on_device: DataOnDevice::Nothing,
            workers: 2,
        }
    }
}
