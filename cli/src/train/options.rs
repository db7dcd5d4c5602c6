//! The options of `cohop train`, and which go together.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::names::{
    CommName, DecayScope, EvalName, MetricName, ModelName, OnDeviceName, OptimizerName, Resume, SamplerName,
    labor_iterations,
};
use crate::data::DataArgs;
use crate::given::Given;
use crate::{number, output, plot};
use cohop::cache::Policy;
use cohop::comm::threads::MAX_PES;
use cohop::coop::{FirstLayer, Mode, RowTransport};
use cohop::device::{LaborIterations, Method, Precision};
use cohop::graph::PartitionMethod;
use cohop::nn::{MAX_LAYERS, MAX_WIDTH};
use cohop::rng::{Dependence, Kappa};
use cohop::sample::Fanouts;
use cohop::train::{ClassWeights, LrSchedule, MAX_WORKERS};
use cohop::{Error, Result};

/// Train a node classifier
///
/// Without options: a two-layer GraphSAGE on the built-in data set `sbm`, which has 8 classes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop train
  cohop train --model gin --fanouts 15,10,5 --layers 3 --json
  cohop train --data ../shared/data/cora.npz --model gcn --sampler full --row-normalize
  cohop train --data ../shared/data/cora.npz --model gat --sampler full --row-normalize
  cohop train --data ../shared/data/aifb.npz --model rgcn --sampler full
  cohop train --data ../shared/data/mutag.npz --model rgcn --sampler full --bases 30 --weight-decay 5e-4
  cohop train --data ../shared/data/aifb.npz --model rgcn --fanouts 20,20 --per-relation --epochs 50
  cohop train --mode cooperative --pes 4 --sampler labor0 --kappa 64 --cache-rows 4000
  cohop train --epochs 20 --checkpoint run1 && cohop train --resume --epochs 40 --checkpoint run1")]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub data: DataArgs,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub graph: GraphArgs,
    #[command(flatten)]
    pub optimization: OptimizationArgs,
    #[command(flatten)]
    pub learning: LearningArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub parallel: ParallelArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

// What is trained, also by `cohop study kappa`. (No doc comment: clap would take it for the help of the command.)
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// The layer to stack
    #[arg(long, value_enum, default_value_t = ModelName::Sage)]
    pub model: ModelName,
    /// Width of the hidden layers, per head in attention models [default: 64; rgcn, gat, gatv2: 16; rgat: 8; on full
    /// neighbourhoods gcn: 16, gat, gatv2: 8]
    #[arg(long, value_parser = number::between(1, MAX_WIDTH as u64))]
    pub hidden: Option<usize>,
    /// Width of a learned linear map of the input before the first layer; for vertices without features a table of
    /// embeddings [default: none; rgcn, rgat on sparse features: that of --hidden]
    #[arg(long, value_name = "N", value_parser = number::between(0, MAX_WIDTH as u64))]
    pub embedding: Option<usize>,
    /// Heads of the hidden layers of attention models [default: 4; gat, gatv2 on full neighbourhoods: 8; rgat: 2]
    #[arg(long, value_parser = number::between(1, MAX_WIDTH as u64))]
    pub heads: Option<usize>,
    /// Heads of the last layer of attention models, which are averaged
    #[arg(long, default_value_t = 1, value_parser = number::between(1, MAX_WIDTH as u64))]
    pub output_heads: usize,
    /// Attention models: a vertex does not attend to itself, unless it has an edge to itself
    #[arg(long)]
    pub no_self_loops: bool,
    /// Relations' weights are combinations of so many shared bases
    #[arg(
        long,
        value_name = "B",
        conflicts_with = "blocks",
        value_parser = number::between(1, MAX_WIDTH as u64)
    )]
    pub bases: Option<usize>,
    /// R-GCN with bases: a vertex's own weight is no combination of the bases, as the paper has it, but a parameter
    #[arg(long)]
    pub own_root: bool,
    /// Relations' weights are block-diagonal with so many blocks
    #[arg(long, value_name = "K", value_parser = number::between(1, MAX_WIDTH as u64))]
    pub blocks: Option<usize>,
    /// Weight sums and means over neighbours by the edges' weights in the graph, which must have some; not for
    /// attention models, and not with --sampler weighted or walk
    #[arg(long)]
    pub weighted: bool,
    /// Scale each feature row to sum 1
    #[arg(long)]
    pub row_normalize: bool,
}

// How many layers, and over which graph.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct GraphArgs {
    /// Number of layers
    #[arg(long, default_value_t = 2, value_parser = number::between(1, MAX_LAYERS as u64))]
    pub layers: usize,
    /// Whether a graph with relations gets an inverse one for each
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "true|false")]
    pub inverse_relations: bool,
}

// How long it is trained, and what chooses its parameters.
#[derive(Debug, Args)]
#[command(next_help_heading = "Optimisation")]
pub(crate) struct OptimizationArgs {
    /// Number of epochs [default: 10; full-batch: 200, of gat, gatv2: 1000, of rgcn, rgat: 50]
    #[arg(long, value_parser = number::any::<u64>())]
    pub epochs: Option<u64>,
    /// Validate after every N epochs; the best epoch is one of these
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = number::whole::<u64>(1, u64::MAX))]
    pub eval_every: u64,
    /// Stop after so many validated epochs in which validation reached neither its best accuracy nor its lowest loss
    /// [default: never; full-batch gat, gatv2: 100]
    #[arg(long, value_name = "EPOCHS", value_parser = number::any::<u64>())]
    pub patience: Option<u64>,
    /// Seed vertices per minibatch [default: 1024; with --sampler full: all]
    #[arg(long, value_name = "N", value_parser = number::at_least_one())]
    pub batch_size: Option<usize>,
    /// What chooses the best epoch
    #[arg(long, value_enum, default_value_t = MetricName::Accuracy)]
    pub metric: MetricName,
}

// How it learns, also in `cohop study kappa`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Optimisation")]
pub(crate) struct LearningArgs {
    /// The optimiser
    #[arg(long, value_enum, default_value_t = OptimizerName::Adam)]
    pub optimizer: OptimizerName,
    /// Momentum of sgd [default: 0]
    #[arg(long, value_name = "M", value_parser = number::share, allow_negative_numbers = true)]
    pub momentum: Option<f64>,
    /// Learning rate [default: 0.01; gat, gatv2: 0.005; sgd: 0.1]
    #[arg(long, value_parser = number::rate, allow_negative_numbers = true)]
    pub lr: Option<f64>,
    /// How the learning rate changes: constant; step:EVERY:FACTOR, times FACTOR after each EVERY epochs; cosine, down
    /// to 0 at the last epoch; or plateau:PATIENCE:FACTOR, times FACTOR when the validation loss has not fallen in
    /// PATIENCE evaluated epochs
    #[arg(
        long,
        default_value_t = LrSchedule::Constant,
        value_name = "SCHEDULE",
        value_parser = number::setting::<LrSchedule>
    )]
    pub lr_schedule: LrSchedule,
    /// Scale gradients whose norm, over all parameters, is larger than this down to it
    #[arg(long, value_name = "X", value_parser = number::positive, allow_negative_numbers = true)]
    pub clip_norm: Option<f64>,
    /// How much each class counts in the training loss: balanced, against its frequency among the training vertices, or
    /// one number for each class [default: all the same]
    #[arg(
        long,
        value_name = "balanced|W,W,...",
        allow_hyphen_values = true,
        value_parser = number::setting::<ClassWeights>
    )]
    pub class_weights: Option<ClassWeights>,
    /// Precision of dense products on a GPU (tf32, bf16; with f16 tf32) and of the rows that are summed over neighbours
    /// (bf16, f16): f32, tf32, bf16 or f16. Sums, parameters and the optimiser are in f32 always; on the CPU products
    /// are too, and tf32 changes nothing
    #[arg(
        long,
        default_value_t = Precision::F32,
        value_name = "PRECISION",
        value_parser = number::setting::<Precision>
    )]
    pub precision: Precision,
    /// Weight decay, added to the gradient (L2), with adamw apart from it [default: 0; gcn, and gat, gatv2 on full
    /// neighbourhoods: 5e-4]
    #[arg(long, value_parser = number::rate, allow_negative_numbers = true)]
    pub weight_decay: Option<f64>,
    /// Which parameters decay [default: all; gcn, rgcn, rgat: first-layer]
    #[arg(long, value_enum)]
    pub decay: Option<DecayScope>,
    /// Dropout before each layer but the first; in sage-ri inside of each layer [default: 0.3; gcn: 0.5; sage-ri: 0.1;
    /// gat, gatv2 on full neighbourhoods: 0.6; rgcn, rgat: 0]
    #[arg(long, value_name = "P", value_parser = number::share, allow_negative_numbers = true)]
    pub dropout: Option<f64>,
    /// Dropout of the input [default: 0; gcn, sage-ri, and gat, gatv2 on full neighbourhoods: that of --dropout]
    #[arg(long, value_name = "P", value_parser = number::share, allow_negative_numbers = true)]
    pub input_dropout: Option<f64>,
    /// Dropout of attention [default: 0; gat, gatv2 on full neighbourhoods: 0.6]
    #[arg(long, value_name = "P", value_parser = number::share, allow_negative_numbers = true)]
    pub attention_dropout: Option<f64>,
}

// Where minibatches come from.
#[derive(Debug, Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// How neighbourhoods are sampled; full without --batch-size trains on the whole graph at once
    #[arg(long, value_enum, default_value_t = SamplerName::Neighbor)]
    pub sampler: SamplerName,
    /// Neighbours per layer, from the seeds outwards; full or -1 means all [default: 10 a layer]
    #[arg(long, value_name = "K,K,...", allow_hyphen_values = true, value_parser = number::fanouts)]
    pub fanouts: Option<Fanouts>,
    /// Draw neighbours with replacement, with --sampler neighbor or weighted
    #[arg(long)]
    pub replace: bool,
    /// Iterations of --sampler labor: a number, or converged [default: converged]
    #[arg(long, value_name = "N|converged", value_parser = labor_iterations)]
    pub labor_iterations: Option<LaborIterations>,
    /// Walks from each vertex, with --sampler walk [default: 10]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1, 1 << 20))]
    pub walks: Option<u32>,
    /// Steps of a walk [default: 3]
    #[arg(long, value_name = "N", value_parser = number::whole::<u32>(1, 1 << 20))]
    pub walk_length: Option<u32>,
    /// Probability that a walk restarts before a step [default: 0.5]
    #[arg(long, value_name = "P", value_parser = number::probability, allow_negative_numbers = true)]
    pub walk_restart: Option<f64>,
    /// Fanouts are those of each relation of a vertex, instead of all its in-edges together
    #[arg(long)]
    pub per_relation: bool,
    /// How many consecutive minibatches are sampled alike: a number or inf
    #[arg(long, default_value = "1", value_name = "N", value_parser = number::setting::<Kappa>)]
    pub kappa: Kappa,
    /// How: renew changes each random draw once in kappa batches, rotate moves all of them a little in each batch
    #[arg(
        long,
        default_value_t = Dependence::default(),
        value_name = "renew|rotate",
        value_parser = number::setting::<Dependence>
    )]
    pub dependence: Dependence,
    /// Neighbourhoods of validation and test [default: full; gin, whose sums grow with them: sampled]
    #[arg(long, value_enum)]
    pub eval: Option<EvalName>,
    /// How many batches are prepared at a time, ahead of the one that is computed; 0: in turn. Results do not depend on
    /// it. In parallel modes at most 1
    #[arg(
        long,
        default_value_t = 2,
        value_name = "N",
        value_parser = number::between(0, MAX_WORKERS as u64)
    )]
    pub workers: usize,
    /// Keep so many feature rows in a cache, of each processing element
    #[arg(long, value_name = "N", value_parser = number::between(1, u64::from(u32::MAX)))]
    pub cache_rows: Option<usize>,
    /// Which rows the cache keeps: lru, clock, sieve or s3-fifo
    #[arg(long, default_value = "lru", value_name = "POLICY", value_parser = number::setting::<Policy>)]
    pub cache_policy: Policy,
    /// Make minibatches on the device, which has graph and features in its memory; with `graph` the graph alone
    #[arg(long, value_enum, value_name = "DATA", num_args = 0..=1, default_missing_value = "all")]
    pub on_device: Option<OnDeviceName>,
}

// Who trains.
#[derive(Debug, Args)]
#[command(next_help_heading = "Parallel")]
pub(crate) struct ParallelArgs {
    /// Whether one processing element trains alone (serial), each has a minibatch of its share of the seeds
    /// (independent), or all process one minibatch together (cooperative)
    #[arg(
        long,
        default_value_t = Mode::Serial,
        value_name = "serial|independent|cooperative",
        value_parser = number::setting::<Mode>
    )]
    pub mode: Mode,
    /// Number of processing elements, with --comm threads [default: 2 in parallel modes]
    #[arg(long, value_name = "P", value_parser = number::between(1, MAX_PES as u64))]
    pub pes: Option<usize>,
    /// What processing elements are
    #[arg(long, value_enum, default_value_t = CommName::Threads)]
    pub comm: CommName,
    /// With --comm mpi: how long to wait for other processes before the job ends; 0: for ever [default: 1800]
    #[arg(long, value_name = "SECONDS", value_parser = number::any::<u64>())]
    pub comm_timeout: Option<u64>,
    /// How rows get from GPU to GPU: kernels read them in each other's memory (read), they are copied there (copy),
    /// NCCL or the MPI library sends them (nccl, mpi), or the host does (host); auto takes the first that is possible
    #[arg(
        long,
        default_value_t = RowTransport::Auto,
        value_name = "auto|read|copy|nccl|mpi|host",
        value_parser = number::setting::<RowTransport>
    )]
    pub exchange: RowTransport,
    /// Who owns which vertex in cooperative mode: random, contiguous, hash or metis
    #[arg(long, default_value = "random", value_name = "METHOD", value_parser = number::partition)]
    pub partition: PartitionMethod,
    /// How processing elements share the first layer: each gets whole feature rows (whole), or each has some columns of
    /// all vertices' features and computes their part of the layer for all (p3, after P³, OSDI 2021)
    #[arg(
        long,
        default_value_t = FirstLayer::Whole,
        value_name = "whole|p3",
        value_parser = number::setting::<FirstLayer>
    )]
    pub first_layer: FirstLayer,
}

// What is kept of a run.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Write the state of the run to this folder after each epoch; one that has a checkpoint needs --resume or
    /// --overwrite
    #[arg(long, value_name = "DIR")]
    pub checkpoint: Option<PathBuf>,
    /// Write a line per epoch to this CSV file; with --resume, append to it
    #[arg(long, value_name = "FILE.csv")]
    pub log: Option<PathBuf>,
    /// Draw loss, accuracy and (of two classes) ROC AUC of the epochs of this call (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Go on from the checkpoint, with its settings; --epochs, --patience, --workers, --device and --threads may
    /// change. With =auto, begin if there is none
    #[arg(long, requires = "checkpoint", value_enum, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "always", value_name = "always|auto", hide_possible_values = true)]
    pub resume: Option<Resume>,
    /// Begin a new run in a folder that has a checkpoint, which the first epoch's replaces
    #[arg(long, requires = "checkpoint", conflicts_with = "resume")]
    pub overwrite: bool,
    /// Go on although the data set is not the one of the checkpoint
    #[arg(long, requires = "resume")]
    pub other_data: bool,
}

impl ModelArgs {
    /// `Ok` if the model's options go with how neighbourhoods are sampled.
    pub fn check_sampler(&self, named: SamplerName) -> Result<()> {
        if self.weighted {
            if self.model.attends() {
                let model = self.model.to_possible_value();
                let found =
                    format!("given with --model {}", model.as_ref().map_or("", |name| name.get_name()));
                return Err(Error::invalid(
                    "--weighted",
                    found,
                    "a model without attention, which weights edges itself",
                ));
            }
            if named == SamplerName::Weighted {
                let expected =
                    "another sampler: this one draws by weight, and layers then count each edge the same";
                return Err(Error::invalid("--weighted", "given with --sampler weighted", expected));
            }
            if named == SamplerName::Walk {
                let expected = "another sampler: where a walk ends there is no edge that has a weight";
                return Err(Error::invalid("--weighted", "given with --sampler walk", expected));
            }
        }
        Ok(())
    }

    /// `Ok` if all options on the command line mean something for the model.
    pub fn check_used(&self, given: &Given) -> Result<()> {
        let (attends, relates) = (self.model.attends(), self.model.relates());
        for (option, is_used, expected) in [
            ("--heads", attends, "none without --model gat, gatv2 or rgat"),
            ("--output-heads", attends, "none without --model gat, gatv2 or rgat"),
            ("--attention-dropout", attends, "none without --model gat, gatv2 or rgat"),
            ("--bases", relates, "none without --model rgcn or rgat"),
            ("--blocks", relates, "none without --model rgcn or rgat"),
        ] {
            if given.has(&option[2..]) && !is_used {
                return Err(Error::invalid(option, "given", expected));
            }
        }
        Ok(())
    }
}

impl LearningArgs {
    /// `Ok` if the options go together.
    pub fn check(&self) -> Result<()> {
        if self.momentum.is_some() && self.optimizer != OptimizerName::Sgd {
            return Err(Error::invalid("--momentum", "given", "none without --optimizer sgd"));
        }
        if self.decay == Some(DecayScope::FirstLayer) && self.optimizer == OptimizerName::Sgd {
            return Err(Error::invalid("--decay", "first-layer", "all with --optimizer sgd"));
        }
        Ok(())
    }
}

impl TrainArgs {
    /// `Ok` if the options go together: what can be told before the data is read. With `--resume` the run's settings
    /// are those of the checkpoint.
    pub fn check(&self) -> Result<()> {
        let (optimization, sampling) = (&self.optimization, &self.sampling);
        let refuse =
            |option: &'static str, value: &str, expected: &str| Err(Error::invalid(option, value, expected));
        if sampling.on_device.is_some() && self.parallel.mode == Mode::Cooperative {
            return refuse("--on-device", "given", "none with --mode cooperative");
        }
        self.learning.check()?;
        if let Some(epochs) =
            optimization.epochs.filter(|&epochs| epochs > 0 && epochs < optimization.eval_every)
        {
            let expected = format!("at most the {epochs} of --epochs");
            return Err(Error::invalid("--eval-every", optimization.eval_every, expected));
        }
        if self.parallel.comm_timeout.is_some() && self.parallel.comm != CommName::Mpi {
            return refuse("--comm-timeout", "given", "none without --comm mpi");
        }
        let named = sampling.sampler;
        if sampling.replace && !matches!(named, SamplerName::Neighbor | SamplerName::Weighted) {
            return refuse("--replace", "given", "none without --sampler neighbor or weighted");
        }
        if sampling.labor_iterations.is_some() && named != SamplerName::Labor {
            return refuse("--labor-iterations", "given", "none without --sampler labor");
        }
        let walk = [
            ("--walks", sampling.walks.is_some()),
            ("--walk-length", sampling.walk_length.is_some()),
            ("--walk-restart", sampling.walk_restart.is_some()),
        ];
        if let Some((option, _)) = walk.into_iter().find(|(_, given)| *given && named != SamplerName::Walk) {
            return refuse(option, "given", "none without --sampler walk");
        }
        if let Method::Walk { walks, length, .. } = self.method()
            && u64::from(walks) * u64::from(length) > Method::MAX_STEPS
        {
            let expected = format!("at most {} steps of all walks from a vertex", Method::MAX_STEPS);
            return Err(Error::invalid("--walks", format!("{walks} of {length} steps"), expected));
        }
        self.model.check_sampler(named)?;
        if let Some(fanouts) = &sampling.fanouts
            && fanouts.0.len() != self.graph.layers
            && self.output.resume.is_none()
        {
            let expected = format!("one number for each of the {} layers", self.graph.layers);
            return Err(Error::invalid("--fanouts", fanouts, expected));
        }
        if let Some(path) = &self.output.log {
            output::check_writable("--log", path)?;
        }
        plot::check(self.output.plot.as_deref())
    }

    /// `Ok` if all options on the command line mean something for the run.
    pub fn check_used(&self, given: &Given) -> Result<()> {
        if self.output.resume.is_some() {
            // The checkpoint's settings decide.
            return Ok(());
        }
        self.model.check_used(given)?;
        let dependent = self.sampling.kappa != Kappa::INDEPENDENT;
        let cooperates = self.parallel.mode == Mode::Cooperative;
        for (option, is_used, expected) in [
            ("--cache-policy", self.sampling.cache_rows.is_some(), "none without --cache-rows"),
            ("--dependence", dependent, "none without --kappa above 1"),
            ("--first-layer", self.parallel.mode != Mode::Serial, "none with --mode serial"),
            ("--partition", cooperates, "none without --mode cooperative"),
        ] {
            if given.has(&option[2..]) && !is_used {
                return Err(Error::invalid(option, "given", expected));
            }
        }
        Ok(())
    }
}
