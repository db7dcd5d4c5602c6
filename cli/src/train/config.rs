//! The configuration that the options of `cohop train` make.

use super::names::{DecayScope, EvalName, MetricName, ModelName, OnDeviceName, OptimizerName, SamplerName};
use super::options::TrainArgs;
use clap::ValueEnum;

use cohop::batch::DataOnDevice;
use cohop::coop::FirstLayer;
use cohop::data::{Dataset, Features};
use cohop::device::Method;
use cohop::nn::{Decomposition, ModelConfig, ModelKind, OptimizerConfig};
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::train::{CacheConfig, EvalMode, Metric, TrainConfig};
use cohop::{Error, Result};

impl TrainArgs {
    /// The sampler with its parameters.
    pub(super) fn method(&self) -> Method {
        let sampling = &self.sampling;
        match sampling.sampler.method() {
            Method::Neighbor { weighted, .. } => Method::Neighbor { replace: sampling.replace, weighted },
            Method::Labor { iterations, .. } => {
                Method::labor(sampling.labor_iterations.unwrap_or(iterations))
            }
            Method::Walk { walks, length, restart } => Method::Walk {
                walks: sampling.walks.unwrap_or(walks),
                length: sampling.walk_length.unwrap_or(length),
                restart: sampling.walk_restart.unwrap_or(restart),
            },
            Method::Full => Method::Full,
        }
    }

    fn sampler(&self, seed: u64) -> SamplerConfig {
        let method = self.method();
        let default = if self.sampling.sampler == SamplerName::Full { usize::MAX } else { 10 };
        let fanouts =
            self.sampling.fanouts.clone().unwrap_or_else(|| Fanouts(vec![default; self.model.layers]));
        SamplerConfig {
            method,
            fanouts,
            per_relation: self.sampling.per_relation,
            kappa: self.sampling.kappa,
            dependence: self.sampling.dependence,
            seed,
            edge_ids: false,
            edge_weights: false,
        }
    }

    /// `Ok` if the model can be trained on the data set as the options have it.
    pub fn check_data(&self, dataset: &Dataset) -> Result<()> {
        let name = self.model.model;
        if matches!(name, ModelName::Rgcn | ModelName::Rgat) && dataset.graph.n_relations() == 0 {
            let name = name.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
            let expected = format!("one without relations, or a graph with edge types: {}", self.data.name);
            return Err(Error::invalid("--model", name, format!("{expected} has none")));
        }
        if self.parallel.first_layer != FirstLayer::P3 {
            return Ok(());
        }
        let ModelConfig { kind, input_dropout, embedding, .. } = self.config(0, dataset).model;
        // The others cannot be shared by columns in any case.
        let linear = [ModelKind::Sage, ModelKind::Gcn, ModelKind::GcnMean, ModelKind::Gin, ModelKind::Rgcn];
        for (what, given, option) in [
            ("dropout of the input", input_dropout > 0.0, "--input-dropout 0"),
            ("an embedding of the input", embedding > 0, "--embedding 0"),
        ] {
            if given && linear.contains(&kind) {
                let expected = format!("whole, or {option}: p3 shares the features as they are");
                return Err(Error::invalid("--first-layer", format!("p3 with {what}"), expected));
            }
        }
        Ok(())
    }

    /// All settings; defaults depend on the model and on the data set.
    pub fn config(&self, seed: u64, dataset: &Dataset) -> TrainConfig {
        let full = self.sampling.sampler == SamplerName::Full;
        let gcn = self.model.model == ModelName::Gcn;
        let kind = self.model.model.kind(full);
        let attends = matches!(kind, ModelKind::Gat | ModelKind::Gatv2);
        let relational = matches!(kind, ModelKind::Rgcn | ModelKind::Rgat);
        // The settings of the papers for citation networks.
        let citation_gat = attends && full;
        let dropout = self.optimization.dropout.unwrap_or(match kind {
            ModelKind::Gcn | ModelKind::GcnMean => 0.5,
            ModelKind::SageRi => 0.1,
            ModelKind::Rgcn | ModelKind::Rgat => 0.0,
            _ if citation_gat => 0.6,
            _ => 0.3,
        });
        let drops_input = gcn || citation_gat || kind == ModelKind::SageRi;
        let hidden = self.model.hidden.unwrap_or(match kind {
            _ if citation_gat => 8,
            ModelKind::Gcn | ModelKind::Rgcn => 16,
            ModelKind::Rgat => 8,
            _ if attends => 16,
            _ => 64,
        });
        let needs_embedding = relational && matches!(dataset.features, Features::Sparse(_));
        let heads = if citation_gat {
            8
        } else if kind == ModelKind::Rgat {
            2
        } else {
            4
        };
        let batch_size = self.optimization.batch_size.or(if full { None } else { Some(1024) });
        let first_layer_only = match self.optimization.decay {
            Some(scope) => scope == DecayScope::FirstLayer,
            None => gcn || relational,
        };
        let default_decay = if gcn || citation_gat { 5e-4 } else { 0.0 };
        let weight_decay = self.optimization.weight_decay.unwrap_or(default_decay);
        TrainConfig {
            row_normalize: self.model.row_normalize,
            inverse_relations: self.model.inverse_relations,
            model: ModelConfig {
                kind,
                n_features: 0,
                hidden,
                n_classes: 0,
                n_layers: self.model.layers,
                dropout,
                input_dropout: self.optimization.input_dropout.unwrap_or(if drops_input {
                    dropout
                } else {
                    0.0
                }),
                embedding: self.model.embedding.unwrap_or(if needs_embedding { hidden } else { 0 }),
                n_relations: 0,
                decomposition: match (self.model.bases, self.model.blocks) {
                    (Some(bases), _) => Decomposition::Basis(bases),
                    (None, Some(blocks)) => Decomposition::BlockDiagonal(blocks),
                    (None, None) => Decomposition::Full,
                },
                root_shares_bases: !self.model.own_root,
                heads: self.model.heads.unwrap_or(heads),
                output_heads: self.model.output_heads,
                attention_dropout: self.optimization.attention_dropout.unwrap_or(if citation_gat {
                    0.6
                } else {
                    0.0
                }),
                self_loops: !self.model.no_self_loops,
                weighted: self.model.weighted,
            },
            optimizer: match self.optimization.optimizer {
                OptimizerName::Sgd => OptimizerConfig::Sgd {
                    lr: self.optimization.lr.unwrap_or(0.1),
                    momentum: self.optimization.momentum.unwrap_or(0.0),
                    weight_decay,
                },
                name => OptimizerConfig::Adam {
                    lr: self.optimization.lr.unwrap_or(if attends { 0.005 } else { 0.01 }),
                    weight_decay,
                    decoupled: name == OptimizerName::Adamw,
                    first_layer_only,
                },
            },
            lr_schedule: self.optimization.lr_schedule,
            clip_norm: self.optimization.clip_norm,
            class_weights: self.optimization.class_weights.clone().unwrap_or_default(),
            eval_every: self.optimization.eval_every,
            sampler: self.sampler(seed),
            batch_size,
            epochs: self.optimization.epochs.unwrap_or(match batch_size {
                None if attends => 1000,
                None if relational => 50,
                None => 200,
                Some(_) => 10,
            }),
            patience: self.optimization.patience.or((attends && batch_size.is_none()).then_some(100)),
            seed,
            eval: match self.sampling.eval {
                None if self.model.model == ModelName::Gin && !full => EvalMode::Sampled,
                Some(EvalName::Sampled) => EvalMode::Sampled,
                None | Some(EvalName::Full) => EvalMode::Full,
            },
            metric: match self.optimization.metric {
                MetricName::Accuracy => Metric::Accuracy,
                MetricName::Auc => Metric::Auc,
            },
            cache: self
                .sampling
                .cache_rows
                .map(|rows| CacheConfig { policy: self.sampling.cache_policy, rows }),
            data_on_device: match self.sampling.on_device {
                None => DataOnDevice::Nothing,
                Some(OnDeviceName::Graph) => DataOnDevice::Graph,
                Some(OnDeviceName::All) => DataOnDevice::All,
            },
            workers: self.sampling.workers,
        }
    }
}
