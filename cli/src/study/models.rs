//! The models of `cohop study cost` and `memory`.

use std::sync::Arc;

use clap::Args;
use cohop::nn::MAX_WIDTH;

use super::check_distinct;
use super::modes::Sampling;
use crate::given::Given;
use crate::number;
use crate::train::ModelName;
use cohop::data::Dataset;
use cohop::device::Method;
use cohop::graph::{Graph, MAX_RELATIONS};
use cohop::nn::ModelConfig;
use cohop::study::{ModesConfig, with_random_relations};
use cohop::{Error, Result};

/// Options that models have of their own.
#[derive(Debug, Args)]
pub(super) struct ModelOptions {
    /// Heads of the hidden layers of attention models; --hidden is then per head [default: 4; rgat: 2; and without
    /// --hidden all heads together are 256 wide]
    #[arg(long, value_name = "N", value_parser = number::between(1, MAX_WIDTH as u64))]
    heads: Option<usize>,
    /// Relations of rgcn and rgat on a graph without edge types: each edge gets one of so many at random
    #[arg(long, value_name = "N", value_parser = number::between(1, MAX_RELATIONS as u64))]
    relations: Option<usize>,
}

impl ModelOptions {
    /// `Ok` if each of `models` is there once, and the options mean something for one of them.
    pub(super) fn check(&self, models: &[ModelName]) -> Result<()> {
        let names: Vec<String> = models.iter().map(|model| model.name()).collect();
        check_distinct("--model", &names)?;
        let attends = models.iter().any(|model| model.kind(false).attends());
        let relates = models.iter().any(|model| model.relates());
        for (option, given, is_used, expected) in [
            ("--heads", self.heads.is_some(), attends, "none without --model gat, gatv2 or rgat"),
            ("--relations", self.relations.is_some(), relates, "none without --model rgcn or rgat"),
        ] {
            if given && !is_used {
                return Err(Error::invalid(option, "given", expected));
            }
        }
        Ok(())
    }

    /// The graph with the relations that `models` need.
    pub(super) fn graph(&self, dataset: &Dataset, models: &[ModelName], seed: u64) -> Result<Arc<Graph>> {
        let graph = &dataset.graph;
        match (self.relations, graph.n_relations()) {
            (Some(n), 0) => Ok(Arc::new(with_random_relations(graph, n, seed)?)),
            (Some(n), own) => {
                Err(Error::invalid("--relations", n, format!("none for a graph that has {own} of its own")))
            }
            (None, 0) => match models.iter().find(|model| model.relates()) {
                Some(model) => {
                    let expected = "one without relations, or --relations for a graph without edge types";
                    Err(Error::invalid("--model", model.name(), expected))
                }
                None => Ok(graph.clone()),
            },
            (None, _) => Ok(graph.clone()),
        }
    }

    /// What `model` is, with the widths that `counting` has.
    pub(super) fn config(
        &self,
        model: ModelName,
        sampling: &Sampling,
        counting: &ModesConfig,
        n_relations: usize,
        given: &Given,
    ) -> Result<ModelConfig> {
        let [hidden] = sampling.hidden[..] else {
            let found = format!("{} widths", sampling.hidden.len());
            return Err(Error::invalid("--hidden", found, "one with --model: that of all hidden layers"));
        };
        let full = counting.sampler == Method::Full;
        let kind = model.kind(full);
        let heads = if kind.attends() { self.heads.unwrap_or(model.default_heads(full)) } else { 1 };
        let (first, last) = (counting.widths.first(), counting.widths.last());
        Ok(ModelConfig {
            kind,
            n_features: first.copied().unwrap_or_default(),
            hidden: if given.has("hidden") { hidden } else { hidden.div_ceil(heads) },
            n_classes: last.copied().unwrap_or_default(),
            n_layers: counting.fanouts.0.len(),
            heads,
            n_relations: if model.relates() { n_relations } else { 0 },
            ..ModelConfig::default()
        })
    }
}
