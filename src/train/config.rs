//! What a training run depends on.

use serde::{Deserialize, Serialize};

use super::Evaluation;
use crate::cache::Policy;
use crate::device::Method;
use crate::nn::{Decomposition, ModelConfig, ModelKind, OptimizerConfig};
use crate::rng::Kappa;
use crate::sample::{Fanouts, SamplerConfig};

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

/// What of a data set lies in the device's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataOnDevice {
    /// Nothing: minibatches are made on the host.
    #[default]
    Nothing,
    /// The graph. The device reads feature rows from page-locked host memory, which holds a copy of them.
    Graph,
    /// Graph and features.
    All,
}

/// A cache of feature rows, of each processing element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheConfig {
    /// Which rows it keeps.
    pub policy: Policy,
    /// How many.
    pub rows: usize,
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

impl Default for TrainConfig {
    /// GraphSAGE with two layers of 64, as trains well on the built-in data.
    fn default() -> Self {
        TrainConfig {
            model: ModelConfig {
                kind: ModelKind::Sage,
                n_features: 0,
                hidden: 64,
                n_classes: 0,
                n_layers: 2,
                dropout: 0.3,
                input_dropout: 0.0,
                heads: 1,
                output_heads: 1,
                attention_dropout: 0.0,
                self_loops: true,
                embedding: 0,
                n_relations: 0,
                decomposition: Decomposition::Full,
                root_shares_bases: true,
            },
            row_normalize: false,
            inverse_relations: false,
            optimizer: OptimizerConfig::Adam {
                lr: 0.01,
                weight_decay: 0.0,
                decoupled: false,
                first_layer_only: false,
            },
            sampler: SamplerConfig {
                method: Method::Neighbor { replace: false, weighted: false },
                fanouts: Fanouts(vec![10, 10]),
                per_relation: false,
                kappa: Kappa::INDEPENDENT,
                seed: 0,
                edge_ids: false,
            },
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
