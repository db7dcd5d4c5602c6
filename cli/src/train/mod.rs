//! `cohop train`

mod log;
mod options;

use std::process::ExitCode;
use std::sync::Arc;

pub(super) use self::log::Log;
use self::options::CommName;
pub(super) use self::options::{SamplerName, TrainArgs};
use super::device::on_device;
use super::progress::Progress;
use super::{Global, output};
use cohop::comm::{Communicator, threads};
use cohop::coop::Mode;
use cohop::data::{Dataset, SbmData};
use cohop::device::Device;
use cohop::train::{LrSchedule, Outcome, ParallelConfig, Trainer};
use cohop::{Error, Result};

pub(super) fn run(global: &Global, args: &TrainArgs) -> Result<ExitCode> {
    args.check()?;
    match args.parallel.comm {
        CommName::Nccl => run_nccl(global, args),
        CommName::Threads | CommName::Mpi => {
            on_device!(global.device, f32, device => run_on(&device, global, args))
        }
    }
}

/// How processing elements share batches; `None` if there is one only.
fn parallel(args: &TrainArgs) -> Result<Option<ParallelConfig>> {
    if args.parallel.mode == Mode::Serial {
        if args.parallel.pes.is_some_and(|pes| pes != 1) || args.parallel.comm != CommName::Threads {
            let expected = "independent or cooperative with --pes or --comm";
            return Err(Error::invalid("--mode", "serial", expected));
        }
        return Ok(None);
    }
    Ok(Some(ParallelConfig { mode: args.parallel.mode, partition: args.parallel.partition }))
}

fn run_on<D: Device<Scalar = f32>>(device: &D, global: &Global, args: &TrainArgs) -> Result<ExitCode> {
    let parallel = parallel(args)?;
    let dataset = Arc::new(args.data.load()?);
    let Some(parallel) = parallel else {
        let outcome = fit(trainer(device, global, args, &dataset)?, global, args, true)?;
        return report(global, args, &dataset, &outcome);
    };
    let one = |communicator| fit_together(device, global, args, &dataset, parallel, communicator);
    let outcomes = match args.parallel.comm {
        CommName::Mpi => run_mpi(args, one)?,
        _ => threads::run(args.parallel.pes.unwrap_or(2), one)?,
    };
    report_first(global, args, &dataset, &outcomes)
}

#[cfg(all(feature = "cuda", not(feature = "emulate")))]
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
    let dataset = Arc::new(args.data.load()?);
    let Some(parallel) = parallel else { unreachable!("serial mode goes with --comm threads only") };
    let outcomes = cohop::comm::nccl::run(args.parallel.pes.unwrap_or(2), |communicator, device| {
        fit_together(&device, global, args, &dataset, parallel, communicator)
    })?;
    report_first(global, args, &dataset, &outcomes)
}

#[cfg(not(all(feature = "cuda", not(feature = "emulate"))))]
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
) -> Result<(usize, Fitted)> {
    let rank = communicator.rank();
    let trainer = trainer(device, global, args, dataset)?.join(parallel, communicator)?;
    fit(trainer, global, args, rank == 0).map(|outcome| (rank, outcome))
}

/// Reports the outcome of processing element 0, if it is among these.
fn report_first(
    global: &Global,
    args: &TrainArgs,
    dataset: &Dataset,
    outcomes: &[(usize, Fitted)],
) -> Result<ExitCode> {
    if let Some((_, outcome)) = outcomes.iter().find(|(rank, _)| *rank == 0) {
        report(global, args, dataset, outcome)?;
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "mpi")]
fn run_mpi<T>(args: &TrainArgs, one: impl Fn(Communicator) -> Result<T>) -> Result<Vec<T>> {
    if args.parallel.pes.is_some() {
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
    match &args.output.checkpoint {
        Some(folder) if args.output.resume => {
            let mut epochs = None;
            let trainer = Trainer::resume(device.clone(), dataset.clone(), folder, |config| {
                epochs = Some(config.epochs);
                config.epochs = args.optimization.epochs.unwrap_or(config.epochs);
                config.patience = args.optimization.patience.or(config.patience);
                config.workers = args.sampling.workers;
            })?;
            let config = trainer.config();
            if config.lr_schedule == LrSchedule::Cosine && epochs != Some(config.epochs) {
                let expected = format!(
                    "the checkpoint's {}, by which its schedule of learning rates goes",
                    epochs.unwrap_or_default()
                );
                return Err(Error::invalid("--epochs", config.epochs, expected));
            }
            Ok(trainer)
        }
        _ => Trainer::new(device.clone(), dataset.clone(), args.config(global.seed, dataset)),
    }
}

/// The outcome of a run.
struct Fitted {
    outcome: Outcome,
    epochs_done: u64,
}

/// Trains; one processing element of all tells of it and writes checkpoints.
fn fit<D: Device<Scalar = f32>>(
    mut trainer: Trainer<D>,
    global: &Global,
    args: &TrainArgs,
    tells: bool,
) -> Result<Fitted> {
    if !tells {
        let outcome = trainer.fit(&mut ())?;
        return Ok(Fitted { outcome, epochs_done: trainer.epochs_done() });
    }
    if let (Some(folder), 0, 0) = (&args.output.checkpoint, trainer.config().epochs, trainer.epochs_done()) {
        // There will be no epoch after which it is written.
        trainer.save(folder)?;
    }
    let log = match &args.output.log {
        Some(path) => Some(Log::open(path, args.output.resume, trainer.epochs_done())?),
        None => None,
    };
    let (checkpoint, plot) = (args.output.checkpoint.clone(), args.output.plot.clone());
    let mut progress = Progress::new(global, trainer.config().epochs, checkpoint).with_files(log, plot);
    let outcome = trainer.fit(&mut progress)?;
    progress.plot()?;
    Ok(Fitted { outcome, epochs_done: trainer.epochs_done() })
}

fn report(global: &Global, args: &TrainArgs, dataset: &Dataset, fitted: &Fitted) -> Result<ExitCode> {
    let outcome = &fitted.outcome;
    if global.json {
        output::json(outcome)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = if fitted.epochs_done == 0 {
        "no epoch of training".to_owned()
    } else if outcome.best_val_acc.is_nan() {
        format!("epoch {}, not validated", outcome.best_epoch + 1)
    } else {
        format!("best epoch {}, validation {:.4}", outcome.best_epoch + 1, outcome.best_val_acc)
    };
    output::line(format_args!("test accuracy {:.4} ({chosen}), {:.1} s", outcome.test_acc, outcome.seconds))?;
    if let Some(auc) = outcome.test_auc {
        output::line(format_args!("test ROC AUC {auc:.4}"))?;
    }
    if args.data.name == "sbm" && !std::path::Path::new("sbm").exists() {
        let reference = SbmData::default().reference(dataset)?;
        output::line(format_args!(
            "for comparison: chance {:.4}; Bayes from a vertex's own features {:.4}, with its neighbours' features \
             {:.4}, with their true classes {:.4}",
            reference.chance, reference.features, reference.one_hop, reference.oracle
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
