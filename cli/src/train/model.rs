//! The model and the optimiser that options make, for `cohop train` and `cohop study kappa`.

use clap::ValueEnum;

use super::names::{DecayScope, ModelName, OptimizerName};
use super::options::{LearningArgs, ModelArgs};
use cohop::data::{Dataset, Features};
use cohop::nn::{Decomposition, ModelConfig, ModelKind, OptimizerConfig};
use cohop::{Error, Result};

impl ModelArgs {
    /// `Ok` if the model can be trained on the data set, which is called `name`.
    pub fn check_data(&self, dataset: &Dataset, name: &str) -> Result<()> {
        if self.model.relates() && dataset.graph.n_relations() == 0 {
            let model = self.model.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
            let expected = format!("one without relations, or a graph with edge types: {name} has none");
            return Err(Error::invalid("--model", model, expected));
        }
        Ok(())
    }

    /// The model with `n_layers`; defaults depend on the data set and on whether neighbourhoods are `full`.
    pub fn config(
        &self,
        learning: &LearningArgs,
        n_layers: usize,
        full: bool,
        dataset: &Dataset,
    ) -> ModelConfig {
        let kind = self.model.kind(full);
        let attends = matches!(kind, ModelKind::Gat | ModelKind::Gatv2);
        let relational = self.model.relates();
        // The settings of the papers for citation networks.
        let citation_gat = attends && full;
        let dropout = learning.dropout.unwrap_or(match kind {
            ModelKind::Gcn | ModelKind::GcnMean => 0.5,
            ModelKind::SageRi => 0.1,
            ModelKind::Rgcn | ModelKind::Rgat => 0.0,
            _ if citation_gat => 0.6,
            _ => 0.3,
        });
        // One-hot ids have nothing to drop.
        let is_dense = !dataset.features.is_none() || self.embedding.is_some_and(|width| width > 0);
        let drops_input = self.model == ModelName::Gcn || citation_gat || kind == ModelKind::SageRi;
        let hidden = self.hidden.unwrap_or(match kind {
            _ if citation_gat => 8,
            ModelKind::Gcn | ModelKind::Rgcn => 16,
            ModelKind::Rgat => 8,
            _ if attends => 16,
            _ => 64,
        });
        let needs_embedding = relational && matches!(dataset.features, Features::Sparse(_));
        ModelConfig {
            kind,
            n_features: 0,
            hidden,
            n_classes: 0,
            n_layers,
            dropout,
            input_dropout: learning.input_dropout.unwrap_or(if drops_input && is_dense {
                dropout
            } else {
                0.0
            }),
            embedding: self.embedding.unwrap_or(if needs_embedding { hidden } else { 0 }),
            n_relations: 0,
            decomposition: match (self.bases, self.blocks) {
                (Some(bases), _) => Decomposition::Basis(bases),
                (None, Some(blocks)) => Decomposition::BlockDiagonal(blocks),
                (None, None) => Decomposition::Full,
            },
            root_shares_bases: !self.own_root,
            heads: self.heads.unwrap_or(self.model.default_heads(full)),
            output_heads: self.output_heads,
            attention_dropout: learning.attention_dropout.unwrap_or(if citation_gat { 0.6 } else { 0.0 }),
            self_loops: !self.no_self_loops,
            weighted: self.weighted,
        }
    }
}

impl LearningArgs {
    /// The optimiser of a model; defaults depend on it and on whether neighbourhoods are `full`.
    pub fn optimizer(&self, model: ModelName, full: bool) -> OptimizerConfig {
        let gcn = model == ModelName::Gcn;
        let attends = matches!(model, ModelName::Gat | ModelName::Gatv2);
        let first_layer_only = match self.decay {
            Some(scope) => scope == DecayScope::FirstLayer,
            None => gcn || model.relates(),
        };
        let default_decay = if gcn || (attends && full) { 5e-4 } else { 0.0 };
        let weight_decay = self.weight_decay.unwrap_or(default_decay);
        match self.optimizer {
            OptimizerName::Sgd => OptimizerConfig::Sgd {
                lr: self.lr.unwrap_or(0.1),
                momentum: self.momentum.unwrap_or(0.0),
                weight_decay,
            },
            name => OptimizerConfig::Adam {
                lr: self.lr.unwrap_or(if attends { 0.005 } else { 0.01 }),
                weight_decay,
                decoupled: name == OptimizerName::Adamw,
                first_layer_only,
            },
        }
    }
}
