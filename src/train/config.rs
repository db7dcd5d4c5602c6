//! What a training run depends on.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Evaluation;
use crate::batch::DataOnDevice;
use crate::cache::Policy;
use crate::coop::Mode;
use crate::data::Dataset;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::graph::PartitionMethod;
use crate::nn::{ModelConfig, OptimizerConfig, Stack};
use crate::sample::SamplerConfig;

/// How validation and test predictions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvalMode {
    /// With the training sampler's fanouts.
    Sampled,
    /// Layer by layer over full neighbourhoods.
    Full,
}

/// What chooses the best epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// Share of right predictions.
    #[default]
    Accuracy,
    /// Area under the ROC curve: for two classes.
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

/// A cache of feature rows, of each processing element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheConfig {
    /// Which rows it keeps.
    pub policy: Policy,
    /// How many.
    pub rows: usize,
}

/// How a run is shared between processing elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParallelConfig {
    /// How they share a batch.
    pub mode: Mode,
    /// Who owns which vertex, in cooperative mode.
    pub partition: PartitionMethod,
}

/// All that a training run depends on, besides the data set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// The model; numbers of features, classes and relations of 0 are taken from the data set.
    pub model: ModelConfig,
    /// Whether each feature row is scaled to sum 1.
    #[serde(default)]
    pub row_normalize: bool,
    /// Whether a graph with relations gets an inverse one for each
    /// ([`add_inverse_relations`](crate::graph::Graph::add_inverse_relations)).
    #[serde(default)]
    pub inverse_relations: bool,
    /// The optimiser.
    pub optimizer: OptimizerConfig,
    /// The sampler, one fanout a layer.
    pub sampler: SamplerConfig,
    /// Seeds per minibatch. `None`: one batch of all training vertices; with full neighbourhoods it runs on the whole
    /// graph.
    pub batch_size: Option<usize>,
    /// The most epochs to train for.
    pub epochs: u64,
    /// Stop after so many epochs in which neither the best validation metric nor the lowest validation loss was reached
    /// again or bettered.
    pub patience: Option<u64>,
    /// Decides initial parameters, order of seeds, neighbourhoods and dropout.
    pub seed: u64,
    /// How validation and test predictions are made.
    pub eval: EvalMode,
    /// What chooses the best epoch by the validation vertices.
    #[serde(default)]
    pub metric: Metric,
    /// A cache of feature rows; with one, at most one thread prepares batches.
    #[serde(default)]
    pub cache: Option<CacheConfig>,
    /// What lies in the device's memory, where minibatches are then made instead of on the host ahead of the device.
    /// Results do not depend on it.
    #[serde(default)]
    pub data_on_device: DataOnDevice,
    /// How many batches are prepared at a time, ahead of what is computed: by threads of their own, or on the CPU by
    /// those that compute. Results do not depend on it.
    pub workers: usize,
}

impl TrainConfig {
    /// The data set as the run sees it: with rows scaled and inverse relations added, where the configuration says so.
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

    /// The built-in model, whose numbers that were left open are taken from the data set.
    pub(super) fn built_in_model<D: Device>(&mut self, device: &D, dataset: &Dataset) -> Result<Stack<D>> {
        let one_hot = if dataset.features.is_none() { dataset.n_vertices() } else { 0 };
        fill(&mut self.model.n_features, dataset.features.dim().max(one_hot), "n_features")?;
        let n_relations = dataset.graph.n_relations();
        if self.model.n_relations == 0 {
            self.model.n_relations = n_relations;
        }
        if self.model.n_relations != n_relations {
            let expected = format!("the {n_relations} of the graph");
            return Err(Error::invalid("n_relations", self.model.n_relations, expected));
        }
        fill(&mut self.model.n_classes, dataset.n_classes, "n_classes")?;
        self.check(dataset, self.model.n_layers, self.model.n_classes)?;
        Stack::new(device, &self.model, self.seed)
    }

    /// `Ok` if the run fits the data set and a model of so many layers and outputs.
    pub(super) fn check(&self, dataset: &Dataset, n_layers: usize, n_outputs: usize) -> Result<()> {
        if dataset.train_idx.is_empty() {
            return Err(Error::invalid("train_idx", "empty", "at least one training vertex"));
        }
        if self.batch_size == Some(0) {
            return Err(Error::invalid("batch_size", 0, "at least 1"));
        }
        if self.metric == Metric::Auc && n_outputs != 2 {
            let classes = format!("auc with a data set of {n_outputs} classes");
            return Err(Error::invalid("metric", classes, "two classes"));
        }
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

/// Takes a number that was left open from the data set; what was given must agree with it.
fn fill(value: &mut usize, from_data: usize, name: &'static str) -> Result<()> {
    if from_data == 0 {
        let what = if name == "n_classes" { "labels" } else { "vertices" };
        return Err(Error::invalid(name, 0, format!("at least 1: the data set has no {what}")));
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
    /// GraphSAGE with two layers of 64, as trains well on the built-in data.
    fn default() -> Self {
        TrainConfig {
            model: ModelConfig::default(),
            row_normalize: false,
            inverse_relations: false,
            optimizer: OptimizerConfig::default(),
            sampler: SamplerConfig::default(),
            batch_size: Some(1024),
            epochs: 10,
            patience: None,
            seed: 0,
            eval: EvalMode::Full,
            metric: Metric::Accuracy,
            cache: None,
            data_on_device: DataOnDevice::Nothing,
            workers: 2,
        }
    }
}
