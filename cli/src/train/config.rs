//! The configuration that the options of `cohop train` make.

use super::names::{EvalName, MetricName, ModelName, OnDeviceName, SamplerName};
use super::options::TrainArgs;

use cohop::batch::DataOnDevice;
use cohop::coop::FirstLayer;
use cohop::data::Dataset;
use cohop::device::Method;
use cohop::nn::{ModelConfig, ModelKind};
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
            self.sampling.fanouts.clone().unwrap_or_else(|| Fanouts(vec![default; self.graph.layers]));
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
        self.model.check_data(dataset, &self.data.name)?;
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
        let model = self.model.model;
        let attends = matches!(model, ModelName::Gat | ModelName::Gatv2);
        let batch_size = self.optimization.batch_size.or(if full { None } else { Some(1024) });
        TrainConfig {
            row_normalize: self.model.row_normalize,
            inverse_relations: self.graph.inverse_relations,
            model: self.model.config(&self.learning, self.graph.layers, full, dataset),
            optimizer: self.learning.optimizer(model, full),
            lr_schedule: self.learning.lr_schedule,
            clip_norm: self.learning.clip_norm,
            class_weights: self.learning.class_weights.clone().unwrap_or_default(),
            eval_every: self.optimization.eval_every,
            sampler: self.sampler(seed),
            batch_size,
            epochs: self.optimization.epochs.unwrap_or(match batch_size {
                None if attends => 1000,
                None if model.relates() => 50,
                None => 200,
                Some(_) => 10,
            }),
            patience: self.optimization.patience.or((attends && batch_size.is_none()).then_some(100)),
            seed,
            eval: match self.sampling.eval {
                None => model.eval(full),
                Some(EvalName::Sampled) => EvalMode::Sampled,
                Some(EvalName::Full) => EvalMode::Full,
            },
            metric: match self.optimization.metric {
                MetricName::Accuracy => Metric::Accuracy,
                MetricName::Auc => Metric::Auc,
            },
            precision: self.learning.precision,
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
