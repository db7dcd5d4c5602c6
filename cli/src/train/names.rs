//! Names that options take.

use clap::ValueEnum;

use cohop::device::{LaborIterations, Method};
use cohop::nn::ModelKind;
use cohop::train::EvalMode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resume {
    /// From a checkpoint, which must be there
    Always,
    /// From a checkpoint if there is one
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnDeviceName {
    /// Graph and features
    All,
    /// Features stay in page-locked host memory, where the gather kernel reads them
    Graph,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CommName {
    /// Threads of this process
    Threads,
    /// Processes started by mpirun
    Mpi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelName {
    /// GraphSAGE, mean aggregation
    Sage,
    /// GCN; symmetric normalisation with --sampler full, else the mean with a self-loop
    Gcn,
    /// GIN with batch norm
    Gin,
    /// GAT: heads side by side, in the last layer averaged
    Gat,
    /// GATv2, likewise
    Gatv2,
    /// GraphSAGE-RI: residuals, and a head over all layers
    SageRi,
    /// R-GCN, for graphs with relations
    Rgcn,
    /// R-GAT, for graphs with relations
    Rgat,
}

impl ModelName {
    /// Whether it is a model of attention layers.
    pub(crate) fn attends(self) -> bool {
        matches!(self, ModelName::Gat | ModelName::Gatv2 | ModelName::Rgat)
    }

    /// Whether it is a model for graphs with relations.
    pub(crate) fn relates(self) -> bool {
        matches!(self, ModelName::Rgcn | ModelName::Rgat)
    }

    /// How validation predicts if no option says it: sums grow with full neighbourhoods if training has sampled ones.
    pub(crate) fn eval(self, full: bool) -> EvalMode {
        if self == ModelName::Gin && !full { EvalMode::Sampled } else { EvalMode::Full }
    }

    /// The layer, over `full` or sampled neighbourhoods.
    pub(crate) fn kind(self, full: bool) -> ModelKind {
        match self {
            ModelName::Sage => ModelKind::Sage,
            ModelName::Gcn if full => ModelKind::Gcn,
            ModelName::Gcn => ModelKind::GcnMean,
            ModelName::Gin => ModelKind::Gin,
            ModelName::Gat => ModelKind::Gat,
            ModelName::Gatv2 => ModelKind::Gatv2,
            ModelName::SageRi => ModelKind::SageRi,
            ModelName::Rgcn => ModelKind::Rgcn,
            ModelName::Rgat => ModelKind::Rgat,
        }
    }

    /// Heads of the hidden layers, if none are given; only attention models look at them.
    pub(crate) fn default_heads(self, full: bool) -> usize {
        match self {
            ModelName::Gat | ModelName::Gatv2 if full => 8,
            ModelName::Rgat => 2,
            _ => 4,
        }
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SamplerName {
    /// A uniform subset of the in-edges, without replacement
    Neighbor,
    /// In-edges with probabilities proportional to their weights, without replacement
    Weighted,
    /// LABOR-0: one variate a source vertex
    Labor0,
    /// LABOR-*: with optimised probabilities; LABOR-i with --labor-iterations
    Labor,
    /// PinSAGE's random walks
    Walk,
    /// All in-edges
    Full,
}

impl SamplerName {
    pub(crate) fn method(self) -> Method {
        match self {
            SamplerName::Neighbor => Method::NEIGHBOR,
            SamplerName::Weighted => Method::Neighbor { replace: false, weighted: true },
            SamplerName::Labor0 => Method::LABOR_0,
            SamplerName::Labor => Method::LABOR_STAR,
            SamplerName::Walk => Method::PINSAGE_WALK,
            SamplerName::Full => Method::Full,
        }
    }
}

/// `--labor-iterations`
pub(super) fn labor_iterations(text: &str) -> Result<LaborIterations, String> {
    if text == "converged" {
        return Ok(LaborIterations::Converged);
    }
    let most = Method::MAX_ITERATIONS;
    let number = text.parse().ok().filter(|&n: &u32| n <= most);
    number
        .map(LaborIterations::Fixed)
        .ok_or_else(|| format!("expected converged, or a number of at most {most}"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OptimizerName {
    /// Adam
    Adam,
    /// Adam with weight decay apart from the gradient
    Adamw,
    /// Stochastic gradient descent
    Sgd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DecayScope {
    /// All parameters
    All,
    /// Those of the first layer
    FirstLayer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MetricName {
    /// Validation accuracy
    Accuracy,
    /// Validation area under the ROC curve, for two classes
    Auc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EvalName {
    /// The training fanouts
    Sampled,
    /// All in-edges, layer by layer
    Full,
}
