//! `cohop train`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::device::on_device;
use super::progress::Progress;
use super::{Global, output};
use cohop::batch::DataOnDevice;
use cohop::cache::Policy;
use cohop::comm::{Communicator, threads};
use cohop::coop::Mode;
use cohop::data::{self, Dataset, FeatureDtype, Features, SbmData};
use cohop::device::{Device, Method};
use cohop::graph::PartitionMethod;
use cohop::nn::{Decomposition, ModelConfig, ModelKind, OptimizerConfig};
use cohop::rng::Kappa;
use cohop::sample::{Fanouts, SamplerConfig};
use cohop::train::{CacheConfig, EvalMode, Metric, Outcome, ParallelConfig, TrainConfig, Trainer};
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
pub(super) struct TrainArgs {
    /// A folder of .npy files, an .npz file, or a built-in data set: sbm, rmat
    #[arg(long, default_value = "sbm")]
    data: String,
    /// Which of several published splits to use
    #[arg(long, value_name = "K")]
    split: Option<usize>,
    /// The layer to stack
    #[arg(long, value_enum, default_value_t = ModelName::Sage)]
    model: ModelName,
    /// Width of a learned linear map of the input before the first layer; for vertices without features a table of
    /// embeddings [default: none; rgcn, rgat on sparse features: that of --hidden]
    #[arg(long, value_name = "N")]
    embedding: Option<usize>,
    /// Relations' weights are combinations of so many shared bases
    #[arg(long, value_name = "B", conflicts_with = "blocks")]
    bases: Option<usize>,
    /// R-GCN with bases: a vertex's own weight is no combination of the bases, as the paper has it, but a parameter
    #[arg(long)]
    own_root: bool,
    /// Relations' weights are block-diagonal with so many blocks
    #[arg(long, value_name = "K")]
    blocks: Option<usize>,
    /// Whether a graph with relations gets an inverse one for each
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "true|false")]
    inverse_relations: bool,
    /// Number of layers
    #[arg(long, default_value_t = 2)]
    layers: usize,
    /// Width of the hidden layers, per head in attention models [default: 64; rgcn, gat, gatv2: 16; rgat: 8; on full
    /// neighbourhoods gcn: 16, gat, gatv2: 8]
    #[arg(long)]
    hidden: Option<usize>,
    /// Heads of the hidden layers of attention models [default: 4; gat, gatv2 on full neighbourhoods: 8; rgat: 2]
    #[arg(long)]
    heads: Option<usize>,
    /// Heads of the last layer of attention models, which are averaged
    #[arg(long, default_value_t = 1)]
    output_heads: usize,
    /// Dropout of attention [default: 0; gat, gatv2 on full neighbourhoods: 0.6]
    #[arg(long)]
    attention_dropout: Option<f64>,
    /// Attention models: a vertex does not attend to itself, unless it has an edge to itself
    #[arg(long)]
    no_self_loops: bool,
    /// Scale each feature row to sum 1
    #[arg(long)]
    row_normalize: bool,
    /// Dropout before each layer but the first; in sage-ri inside of each layer [default: 0.3; gcn: 0.5; sage-ri: 0.1;
    /// gat, gatv2 on full neighbourhoods: 0.6; rgcn, rgat: 0]
    #[arg(long)]
    dropout: Option<f64>,
    /// Dropout of the input [default: 0; gcn, sage-ri, and gat, gatv2 on full neighbourhoods: that of --dropout]
    #[arg(long)]
    input_dropout: Option<f64>,
    /// Learning rate of Adam [default: 0.01; gat, gatv2: 0.005]
    #[arg(long)]
    lr: Option<f64>,
    /// Weight decay, added to the gradient (L2) [default: 0; gcn, and gat, gatv2 on full neighbourhoods: 5e-4]
    #[arg(long)]
    weight_decay: Option<f64>,
    /// Which parameters decay [default: all; gcn, rgcn, rgat: first-layer]
    #[arg(long, value_enum)]
    decay: Option<DecayScope>,
    /// Number of epochs [default: 10; full-batch: 200, of gat, gatv2: 1000, of rgcn, rgat: 50]
    #[arg(long)]
    epochs: Option<u64>,
    /// Stop after so many epochs in which validation reached neither its best accuracy nor its lowest loss [default:
    /// never; full-batch gat, gatv2: 100]
    #[arg(long, value_name = "EPOCHS")]
    patience: Option<u64>,
    /// How neighbourhoods are sampled; full without --batch-size trains on the whole graph at once
    #[arg(long, value_enum, default_value_t = SamplerName::Neighbor)]
    sampler: SamplerName,
    /// Neighbours per layer, from the seeds outwards; full or -1 means all [default: 10 a layer]
    #[arg(long, value_name = "K,K,...")]
    fanouts: Option<Fanouts>,
    /// Fanouts are those of each relation of a vertex, instead of all its in-edges together
    #[arg(long)]
    per_relation: bool,
    /// Seed vertices per minibatch [default: 1024; with --sampler full: all]
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// How many consecutive minibatches are sampled alike: a number or inf
    #[arg(long, default_value = "1", value_name = "N")]
    kappa: Kappa,
    /// What features are held in; they are widened when a batch is sliced
    #[arg(long, value_name = "f32|f16|bf16")]
    feature_dtype: Option<FeatureDtype>,
    /// Write the state of the run to this folder after each epoch
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Go on from the checkpoint, with its settings; --epochs, --patience and --workers may change
    #[arg(long, requires = "checkpoint")]
    resume: bool,
    /// Neighbourhoods of validation and test [default: full; gin, whose sums grow with them: sampled]
    #[arg(long, value_enum)]
    eval: Option<EvalName>,
    /// What chooses the best epoch
    #[arg(long, value_enum, default_value_t = MetricName::Accuracy)]
    metric: MetricName,
    /// How many batches are prepared at a time, ahead of the one that is computed; 0: in turn. Results do not depend on
    /// it. In parallel modes and with a cache at most 1
    #[arg(long, default_value_t = 2, value_name = "N")]
    workers: usize,
    /// Make minibatches on the device, which has graph and features in its memory; with `graph` the graph alone
    #[arg(long, value_enum, value_name = "DATA", num_args = 0..=1, default_missing_value = "all")]
    on_device: Option<OnDeviceName>,
    /// Whether one processing element trains alone (serial), each has a minibatch of its share of the seeds
    /// (independent), or all process one minibatch together (cooperative)
    #[arg(long, default_value_t = Mode::Serial, value_name = "serial|independent|cooperative")]
    mode: Mode,
    /// Number of processing elements, with --comm threads or nccl [default: 2 in parallel modes]
    #[arg(long, value_name = "P")]
    pes: Option<usize>,
    /// What processing elements are
    #[arg(long, value_enum, default_value_t = CommName::Threads)]
    comm: CommName,
    /// Who owns which vertex in cooperative mode: random, contiguous, hash or metis
    #[arg(long, default_value = "random", value_name = "METHOD")]
    partition: PartitionMethod,
    /// Keep so many feature rows in a cache, of each processing element
    #[arg(long, value_name = "N")]
    cache_rows: Option<usize>,
    /// Which rows the cache keeps: lru, clock, sieve or s3-fifo
    #[arg(long, default_value = "lru", value_name = "POLICY")]
    cache_policy: Policy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnDeviceName {
    /// Graph and features
    All,
    /// Features stay in page-locked host memory, where the gather kernel reads them
    Graph,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum CommName {
    /// Threads of this process
    Threads,
    /// Processes started by mpirun
    Mpi,
    /// Threads with a GPU each, which exchange by NCCL; with --device cuda
    Nccl,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ModelName {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SamplerName {
    /// A uniform subset of the in-edges, without replacement
    Neighbor,
    /// LABOR-0: one variate a source vertex
    Labor0,
    /// LABOR-*: with optimised probabilities
    Labor,
    /// PinSAGE's random walks: 10 walks of 3 steps, restart probability 0.5
    Walk,
    /// All in-edges
    Full,
}

impl SamplerName {
    pub(super) fn method(self) -> Method {
        match self {
            SamplerName::Neighbor => Method::NEIGHBOR,
            SamplerName::Labor0 => Method::LABOR_0,
            SamplerName::Labor => Method::LABOR_STAR,
            SamplerName::Walk => Method::PINSAGE_WALK,
            SamplerName::Full => Method::Full,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DecayScope {
    /// All parameters
    All,
    /// Those of the first layer
    FirstLayer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MetricName {
    /// Validation accuracy
    Accuracy,
    /// Validation area under the ROC curve, for two classes
    Auc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EvalName {
    /// The training fanouts
    Sampled,
    /// All in-edges, layer by layer
    Full,
}

impl TrainArgs {
    fn sampler(&self, seed: u64) -> SamplerConfig {
        let method = self.sampler.method();
        let default = if self.sampler == SamplerName::Full { usize::MAX } else { 10 };
        let fanouts = self.fanouts.clone().unwrap_or_else(|| Fanouts(vec![default; self.layers]));
        SamplerConfig {
            method,
            fanouts,
            per_relation: self.per_relation,
            kappa: self.kappa,
            seed,
            edge_ids: false,
        }
    }

    fn config(&self, seed: u64, dataset: &Dataset) -> TrainConfig {
        let full = self.sampler == SamplerName::Full;
        let gcn = self.model == ModelName::Gcn;
        let kind = match self.model {
            ModelName::Sage => ModelKind::Sage,
            ModelName::Gcn if full => ModelKind::Gcn,
            ModelName::Gcn => ModelKind::GcnMean,
            ModelName::Gin => ModelKind::Gin,
            ModelName::Gat => ModelKind::Gat,
            ModelName::Gatv2 => ModelKind::Gatv2,
            ModelName::SageRi => ModelKind::SageRi,
            ModelName::Rgcn => ModelKind::Rgcn,
            ModelName::Rgat => ModelKind::Rgat,
        };
        let attends = matches!(kind, ModelKind::Gat | ModelKind::Gatv2);
        let relational = matches!(kind, ModelKind::Rgcn | ModelKind::Rgat);
        // The settings of the papers for citation networks.
        let citation_gat = attends && full;
        let dropout = self.dropout.unwrap_or(match kind {
            ModelKind::Gcn | ModelKind::GcnMean => 0.5,
            ModelKind::SageRi => 0.1,
            ModelKind::Rgcn | ModelKind::Rgat => 0.0,
            _ if citation_gat => 0.6,
            _ => 0.3,
        });
        let drops_input = gcn || citation_gat || kind == ModelKind::SageRi;
        let hidden = self.hidden.unwrap_or(match kind {
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
        let batch_size = self.batch_size.or(if full { None } else { Some(1024) });
        let first_layer_only = match self.decay {
            Some(scope) => scope == DecayScope::FirstLayer,
            None => gcn || relational,
        };
        TrainConfig {
            row_normalize: self.row_normalize,
            inverse_relations: self.inverse_relations,
            model: ModelConfig {
                kind,
                n_features: 0,
                hidden,
                n_classes: 0,
                n_layers: self.layers,
                dropout,
                input_dropout: self.input_dropout.unwrap_or(if drops_input { dropout } else { 0.0 }),
                embedding: self.embedding.unwrap_or(if needs_embedding { hidden } else { 0 }),
                n_relations: 0,
                decomposition: match (self.bases, self.blocks) {
                    (Some(bases), _) => Decomposition::Basis(bases),
                    (None, Some(blocks)) => Decomposition::BlockDiagonal(blocks),
                    (None, None) => Decomposition::Full,
                },
                root_shares_bases: !self.own_root,
                heads: self.heads.unwrap_or(heads),
                output_heads: self.output_heads,
                attention_dropout: self.attention_dropout.unwrap_or(if citation_gat { 0.6 } else { 0.0 }),
                self_loops: !self.no_self_loops,
            },
            optimizer: OptimizerConfig::Adam {
                lr: self.lr.unwrap_or(if attends { 0.005 } else { 0.01 }),
                weight_decay: self.weight_decay.unwrap_or(if gcn || citation_gat { 5e-4 } else { 0.0 }),
                decoupled: false,
                first_layer_only,
            },
            sampler: self.sampler(seed),
            batch_size,
            epochs: self.epochs.unwrap_or(match batch_size {
                None if attends => 1000,
                None if relational => 50,
                None => 200,
                Some(_) => 10,
            }),
            patience: self.patience.or((attends && batch_size.is_none()).then_some(100)),
            seed,
            eval: match self.eval {
                None if self.model == ModelName::Gin && !full => EvalMode::Sampled,
                Some(EvalName::Sampled) => EvalMode::Sampled,
                None | Some(EvalName::Full) => EvalMode::Full,
            },
            metric: match self.metric {
                MetricName::Accuracy => Metric::Accuracy,
                MetricName::Auc => Metric::Auc,
            },
            cache: self.cache_rows.map(|rows| CacheConfig { policy: self.cache_policy, rows }),
            data_on_device: match self.on_device {
                None => DataOnDevice::Nothing,
                Some(OnDeviceName::Graph) => DataOnDevice::Graph,
                Some(OnDeviceName::All) => DataOnDevice::All,
            },
            workers: self.workers,
        }
    }
}

/// Loads a data set and changes its features as asked.
pub(super) fn load(data: &str, split: Option<usize>, dtype: Option<FeatureDtype>) -> Result<Dataset> {
    let mut dataset = data::load(data)?;
    if let Some(k) = split {
        dataset.select_split(k)?;
    }
    if let Some(dtype) = dtype {
        dataset.features = dataset.features.to_dtype(dtype)?;
    }
    Ok(dataset)
}

pub(super) fn run(global: &Global, args: &TrainArgs) -> Result<ExitCode> {
    match args.comm {
        CommName::Nccl => run_nccl(global, args),
        CommName::Threads | CommName::Mpi => {
            on_device!(global.device, f32, device => run_on(&device, global, args))
        }
    }
}

/// How processing elements share batches; `None` if there is one only.
fn parallel(args: &TrainArgs) -> Result<Option<ParallelConfig>> {
    if args.mode == Mode::Serial {
        if args.pes.is_some_and(|pes| pes != 1) || args.comm != CommName::Threads {
            let expected = "independent or cooperative with --pes or --comm";
            return Err(Error::invalid("--mode", "serial", expected));
        }
        return Ok(None);
    }
    Ok(Some(ParallelConfig { mode: args.mode, partition: args.partition }))
}

fn run_on<D: Device<Scalar = f32>>(device: &D, global: &Global, args: &TrainArgs) -> Result<ExitCode> {
    let parallel = parallel(args)?;
    let dataset = Arc::new(load(&args.data, args.split, args.feature_dtype)?);
    let Some(parallel) = parallel else {
        let outcome = fit(trainer(device, global, args, &dataset)?, global, args, true)?;
        return report(global, args, &dataset, &outcome);
    };
    let one = |communicator| fit_together(device, global, args, &dataset, parallel, communicator);
    let outcomes = match args.comm {
        CommName::Mpi => run_mpi(args, one)?,
        _ => threads::run(args.pes.unwrap_or(2), one)?,
    };
    report_first(global, args, &dataset, &outcomes)
}

#[cfg(feature = "cuda")]
fn run_nccl(global: &Global, args: &TrainArgs) -> Result<ExitCode> {
    use super::device::DeviceName;
    let refused = match global.device {
        DeviceName::Cuda(0) => None,
        DeviceName::Cuda(ordinal) => Some(format!("cuda:{ordinal}")),
        DeviceName::Cpu => Some("cpu".to_owned()),
    };
    if let Some(device) = refused {
        let expected = "cuda with --comm nccl, whose processing elements have the GPUs from number 0 on";
        return Err(Error::invalid("--device", device, expected));
    }
    let parallel = parallel(args)?;
    let dataset = Arc::new(load(&args.data, args.split, args.feature_dtype)?);
    let Some(parallel) = parallel else { unreachable!("serial mode goes with --comm threads only") };
    let outcomes = cohop::comm::nccl::run(args.pes.unwrap_or(2), |communicator, device| {
        fit_together(&device, global, args, &dataset, parallel, communicator)
    })?;
    report_first(global, args, &dataset, &outcomes)
}

#[cfg(not(feature = "cuda"))]
fn run_nccl(_: &Global, _: &TrainArgs) -> Result<ExitCode> {
    let remedy = "build with the feature `cuda`".to_owned();
    Err(Error::Unavailable { what: "--comm nccl".to_owned(), remedy })
}

/// Trains as one of several processing elements: its rank and outcome.
fn fit_together<D: Device<Scalar = f32>>(
    device: &D,
    global: &Global,
    args: &TrainArgs,
    dataset: &Arc<Dataset>,
    parallel: ParallelConfig,
    communicator: Communicator,
) -> Result<(usize, Outcome)> {
    let rank = communicator.rank();
    let trainer = trainer(device, global, args, dataset)?.join(parallel, communicator)?;
    fit(trainer, global, args, rank == 0).map(|outcome| (rank, outcome))
}

/// Reports the outcome of processing element 0, if it is among these.
fn report_first(
    global: &Global,
    args: &TrainArgs,
    dataset: &Dataset,
    outcomes: &[(usize, Outcome)],
) -> Result<ExitCode> {
    if let Some((_, outcome)) = outcomes.iter().find(|(rank, _)| *rank == 0) {
        report(global, args, dataset, outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "mpi")]
fn run_mpi<T>(args: &TrainArgs, one: impl Fn(Communicator) -> Result<T>) -> Result<Vec<T>> {
    if args.pes.is_some() {
        return Err(Error::invalid("--pes", "given", "mpirun's -np with --comm mpi"));
    }
    cohop::comm::mpi::run(one).map(|outcome| vec![outcome])
}

#[cfg(not(feature = "mpi"))]
fn run_mpi<T>(_: &TrainArgs, _: impl Fn(Communicator) -> Result<T>) -> Result<Vec<T>> {
    let remedy = "build with the feature `mpi`".to_owned();
    Err(Error::Unavailable { what: "--comm mpi".to_owned(), remedy })
}

/// A new trainer, or that of a checkpoint.
fn trainer<D: Device<Scalar = f32>>(
    device: &D,
    global: &Global,
    args: &TrainArgs,
    dataset: &Arc<Dataset>,
) -> Result<Trainer<D>> {
    match &args.checkpoint {
        Some(folder) if args.resume => Trainer::resume(device.clone(), dataset.clone(), folder, |config| {
            config.epochs = args.epochs.unwrap_or(config.epochs);
            config.patience = args.patience.or(config.patience);
            config.workers = args.workers;
        }),
        _ => Trainer::new(device.clone(), dataset.clone(), args.config(global.seed, dataset)),
    }
}

/// Trains; one processing element of all tells of it and writes checkpoints.
fn fit<D: Device<Scalar = f32>>(
    mut trainer: Trainer<D>,
    global: &Global,
    args: &TrainArgs,
    tells: bool,
) -> Result<Outcome> {
    if !tells {
        return trainer.fit(&mut ());
    }
    let mut progress = Progress::new(global, trainer.config().epochs, args.checkpoint.clone());
    trainer.fit(&mut progress)
}

fn report(global: &Global, args: &TrainArgs, dataset: &Dataset, outcome: &Outcome) -> Result<ExitCode> {
    if global.json {
        output::json(outcome)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = if outcome.best_val_acc.is_nan() {
        format!("epoch {}, no validation vertices", outcome.best_epoch + 1)
    } else {
        format!("best epoch {}, validation {:.4}", outcome.best_epoch + 1, outcome.best_val_acc)
    };
    output::line(format_args!("test accuracy {:.4} ({chosen}), {:.1} s", outcome.test_acc, outcome.seconds))?;
    if let Some(auc) = outcome.test_auc {
        output::line(format_args!("test ROC AUC {auc:.4}"))?;
    }
    if args.data == "sbm" && !std::path::Path::new("sbm").exists() {
        let reference = SbmData::default().reference(dataset)?;
        output::line(format_args!(
            "for comparison: chance {:.4}; Bayes from a vertex's own features {:.4}, with its neighbours' features \
             {:.4}, with their true classes {:.4}",
            reference.chance, reference.features, reference.one_hop, reference.oracle
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
