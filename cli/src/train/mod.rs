//! `cohop train`

mod config;
mod log;
mod model;
mod names;
mod options;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

pub(super) use self::log::Log;
use self::names::{CommName, Resume};
pub(super) use self::names::{ModelName, SamplerName};
use self::options::ParallelArgs;
pub(super) use self::options::{LearningArgs, ModelArgs, TrainArgs};
use super::data::Again;
use super::device::{DeviceName, on_device};
use super::given::{self, Given};
use super::progress::Progress;
use super::signals::Signals;
use super::{Global, output, settings};
use cohop::comm::{Communicator, threads};
use cohop::coop::Mode;
use cohop::data::{Dataset, SbmData};
use cohop::device::Device;
use cohop::train::{
    CHECKPOINT_FILE, CheckpointInfo, CheckpointLock, LrSchedule, Metric, Outcome, ParallelConfig, StopAt,
    TrainConfig, Trainer, read_info,
};
use cohop::{Error, Result};

pub(super) fn run(global: &Global, args: &TrainArgs, given: &Given) -> Result<ExitCode> {
    args.check()?;
    args.check_used(given)?;
    on_device!(global.device, f32, device => run_on(&device, global, args, given))
}

/// A run that was checked as far as can be before data is loaded.
struct Run<'a> {
    global: &'a Global,
    args: &'a TrainArgs,
    /// What it goes on from.
    resumed: Option<CheckpointInfo>,
    /// How processing elements share batches; `None` if there is one only.
    parallel: Option<ParallelConfig>,
    pes: usize,
    dataset: Arc<Dataset>,
    notes: BTreeMap<String, String>,
    signals: Signals,
    /// Held until the end; the processes of an MPI job leave it to the first of them.
    _lock: Option<CheckpointLock>,
}

impl<'a> Run<'a> {
    fn begin(global: &'a Global, args: &'a TrainArgs, given: &Given) -> Result<Self> {
        let signals = Signals::end_at_once()?;
        if args.output.resume.is_none() {
            // Before a folder is made.
            self::parallel(args)?;
        }
        let mut pes = args.parallel.pes.unwrap_or(2);
        let mpi = args.parallel.comm == CommName::Mpi;
        let (mut lock, mut resumed) = (None, None);
        if let Some(folder) = &args.output.checkpoint {
            if let Some(Resume::Always) = args.output.resume {
                // Before a folder is made for nothing.
                let file = folder.join(CHECKPOINT_FILE);
                std::fs::symlink_metadata(&file).map_err(|e| Error::io(file, e))?;
            }
            if !mpi {
                lock = Some(CheckpointLock::take(folder)?);
            }
            let exists = std::fs::symlink_metadata(folder.join(CHECKPOINT_FILE)).is_ok();
            match args.output.resume {
                Some(Resume::Auto) if !exists => {}
                Some(_) => resumed = Some(read_info(folder)?),
                None if exists && !args.output.overwrite => {
                    let problem = "has a checkpoint: --resume goes on from it, --overwrite begins anew";
                    return Err(Error::format(folder, problem));
                }
                None => {}
            }
        }
        let mut notes = given.notes(&args.data.lasting_name())?;
        let parallel;
        let dataset = match &resumed {
            None => {
                parallel = self::parallel(args)?;
                let dataset = args.data.load()?;
                args.check_data(&dataset)?;
                dataset
            }
            Some(info) => {
                given.check_resumed(info)?;
                parallel = info.parallel.map(|p| ParallelConfig {
                    mode: p.mode,
                    partition: p.partition,
                    first_layer: p.first_layer,
                    row_transport: args.parallel.exchange,
                });
                pes = info.parallel.map_or(1, |p| p.pes);
                if parallel.is_none() && args.parallel.comm != CommName::Threads {
                    let expected = "threads, for the checkpoint's run has one processing element";
                    return Err(Error::invalid("--comm", "given", expected));
                }
                notes.clone_from(&info.notes);
                if given.has("data") {
                    notes.insert(given::DATA.to_owned(), args.data.lasting_name());
                }
                args.data.load_again(given, info, args.output.other_data, Again::Train)?
            }
        };
        signals.hold_on();
        let dataset = Arc::new(dataset);
        Ok(Run { global, args, resumed, parallel, pes, dataset, notes, signals, _lock: lock })
    }

    /// An error about what there is to learn from, with the data set that lacks it.
    fn with_data(&self, error: Error) -> Error {
        match &error {
            Error::InvalidArgument { argument, .. }
                if argument.starts_with("labels of") || ["n_classes", "train_idx"].contains(argument) =>
            {
                let name = self.notes.get(given::DATA).unwrap_or(&self.args.data.name);
                Error::format(name, settings::as_options(error, &Given::default()))
            }
            _ => error,
        }
    }

    /// Reports how the run ended.
    fn end(&self, outcome: Result<Option<Fitted>>) -> Result<ExitCode> {
        let epochs = match outcome {
            Ok(Some(outcome)) => return report(self, &outcome),
            Ok(None) => return Ok(ExitCode::SUCCESS),
            Err(Error::Interrupted { epochs }) => epochs,
            Err(error) => return Err(self.with_data(error)),
        };
        match &self.args.output.checkpoint {
            Some(folder) => output::message(format_args!(
                "cohop: interrupted after epoch {epochs}; its checkpoint is in {}: --resume goes on from there",
                folder.display()
            )),
            None => output::message(format_args!(
                "cohop: interrupted after {epochs} whole epochs; nothing is kept without --checkpoint"
            )),
        }
        Ok(self.signals.status())
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
    let ParallelArgs { mode, partition, first_layer, exchange, .. } = args.parallel;
    Ok(Some(ParallelConfig { mode, partition, first_layer, row_transport: exchange }))
}

fn run_on<D: Device<Scalar = f32>>(
    device: &D,
    global: &Global,
    args: &TrainArgs,
    given: &Given,
) -> Result<ExitCode> {
    check_mpi(args)?;
    let run = Run::begin(global, args, given)?;
    let Some(parallel) = run.parallel else {
        let outcome = trainer(device, &run).and_then(|trainer| fit(trainer, &run, true));
        return run.end(outcome.map(Some));
    };
    // Without a number in --device, processing elements have the GPUs in turn.
    let has_number = matches!(global.device, DeviceName::Cuda(Some(_)));
    let one = |communicator: Communicator| {
        let device = if has_number { device.clone() } else { device.for_rank(communicator.local_rank())? };
        fit_together(&device, &run, parallel, communicator)
    };
    let outcomes = match args.parallel.comm {
        CommName::Mpi => run_mpi(args, one),
        _ => threads::run(run.pes, one),
    };
    run.end(outcomes.map(first))
}

/// Trains as one of several processing elements: its rank and outcome.
fn fit_together<D: Device<Scalar = f32>>(
    device: &D,
    run: &Run<'_>,
    parallel: ParallelConfig,
    communicator: Communicator,
) -> Result<(usize, Fitted)> {
    let (rank, size) = (communicator.rank(), communicator.size());
    let _lock = match &run.args.output.checkpoint {
        Some(folder) if run.args.parallel.comm == CommName::Mpi && rank == 0 => {
            Some(CheckpointLock::take(folder)?)
        }
        _ => None,
    };
    if run.resumed.is_some() && size != run.pes {
        let expected = format!("the {} of the checkpoint's run", run.pes);
        return Err(Error::invalid("number of processing elements", size, expected));
    }
    let trainer = trainer(device, run)?.join(parallel, communicator)?;
    fit(trainer, run, rank == 0).map(|outcome| (rank, outcome))
}

/// The outcome of processing element 0, if it is among these.
fn first(outcomes: Vec<(usize, Fitted)>) -> Option<Fitted> {
    outcomes.into_iter().find(|(rank, _)| *rank == 0).map(|(_, outcome)| outcome)
}

/// `Ok` unless `--comm mpi` is asked for and cannot be.
fn check_mpi(args: &TrainArgs) -> Result<()> {
    if args.parallel.comm != CommName::Mpi {
        return Ok(());
    }
    if cfg!(not(feature = "mpi")) {
        let expected = "threads: this program was built without the feature `mpi`";
        return Err(Error::invalid("--comm", "mpi", expected));
    }
    if args.parallel.pes.is_some() {
        return Err(Error::invalid("--pes", "given", "mpirun's -np with --comm mpi"));
    }
    Ok(())
}

#[cfg(feature = "mpi")]
fn run_mpi<T>(args: &TrainArgs, one: impl Fn(Communicator) -> Result<T>) -> Result<Vec<T>> {
    let mut options = cohop::comm::mpi::Options::default();
    if let Some(seconds) = args.parallel.comm_timeout {
        options.timeout = std::time::Duration::from_secs(seconds);
    }
    cohop::comm::mpi::run_with(options, one).map(|outcome| vec![outcome])
}

#[cfg(not(feature = "mpi"))]
fn run_mpi<T>(_: &TrainArgs, _: impl Fn(Communicator) -> Result<T>) -> Result<Vec<T>> {
    unreachable!("refused by `check_mpi`")
}

/// A new trainer, or that of a checkpoint.
fn trainer<D: Device<Scalar = f32>>(device: &D, run: &Run<'_>) -> Result<Trainer<D>> {
    let (args, device, dataset) = (run.args, device.clone(), run.dataset.clone());
    let mut trainer = match &args.output.checkpoint {
        Some(folder) if run.resumed.is_some() => {
            let mut planned = None;
            let adjust = |config: &mut TrainConfig| {
                planned = Some(config.epochs);
                config.epochs = args.optimization.epochs.unwrap_or(config.epochs);
                config.patience = args.optimization.patience.or(config.patience);
                config.workers = args.sampling.workers;
            };
            let trainer = if args.output.other_data {
                Trainer::resume_on_other_data(device, dataset, folder, adjust)?
            } else {
                Trainer::resume(device, dataset, folder, adjust)?
            };
            let config = trainer.config();
            if let (LrSchedule::Cosine, Some(planned)) = (config.lr_schedule, planned)
                && planned != config.epochs
            {
                let expected =
                    format!("the checkpoint's {planned}, by which its schedule of learning rates goes");
                return Err(Error::invalid("--epochs", config.epochs, expected));
            }
            trainer
        }
        _ => Trainer::new(device, dataset, args.config(run.global.seed, &run.dataset))?,
    };
    trainer.notes.clone_from(&run.notes);
    // With a checkpoint, what the epoch has done is worth to be kept; without, nothing is.
    let at = if args.output.checkpoint.is_some() { StopAt::Epoch } else { StopAt::Batch };
    trainer.stop_when(run.signals.flag.clone(), at);
    Ok(trainer)
}

/// The outcome of a run.
struct Fitted {
    outcome: Outcome,
    epochs_done: u64,
    /// What chose the best epoch, and its value there, as far as there is one.
    metric: Metric,
    best: f64,
}

impl Fitted {
    fn new<D: Device<Scalar = f32>>(trainer: &Trainer<D>, outcome: Outcome) -> Self {
        let metric = trainer.config().metric;
        let best = trainer.best_validation().map_or(f64::NAN, |val| match metric {
            Metric::Accuracy => val.accuracy,
            Metric::Auc => val.auc,
        });
        Fitted { outcome, epochs_done: trainer.epochs_done(), metric, best }
    }
}

/// Trains; one processing element of all tells of it and writes checkpoints.
fn fit<D: Device<Scalar = f32>>(mut trainer: Trainer<D>, run: &Run<'_>, tells: bool) -> Result<Fitted> {
    if !tells {
        let outcome = trainer.fit(&mut ())?;
        return Ok(Fitted::new(&trainer, outcome));
    }
    if run.resumed.is_some() {
        mention_nothing_left(trainer.config(), trainer.epochs_done());
    }
    let output = &run.args.output;
    if let (Some(folder), 0, 0) = (&output.checkpoint, trainer.config().epochs, trainer.epochs_done()) {
        // There will be no epoch after which it is written.
        trainer.save(folder)?;
    }
    let log = match &output.log {
        Some(path) => Some(Log::open(path, run.resumed.is_some(), trainer.epochs_done())?),
        None => None,
    };
    let (checkpoint, plot) = (output.checkpoint.clone(), output.plot.clone());
    let progress = Progress::new(run.global, trainer.config().epochs, checkpoint, run.signals.clone());
    let mut progress = progress.with_files(log, plot);
    let outcome = trainer.fit(&mut progress);
    if matches!(outcome, Ok(_) | Err(Error::Interrupted { .. })) {
        progress.plot()?;
    }
    let outcome = outcome?;
    if let (Some(patience), true, false) =
        (trainer.config().patience, outcome.stopped_early, run.global.quiet)
    {
        output::message(format_args!(
            "cohop: stopped after epoch {}: no better validation in {patience} validated epochs",
            trainer.epochs_done()
        ));
    }
    Ok(Fitted::new(&trainer, outcome))
}

/// Tells of a resumed run that there is no epoch to do.
fn mention_nothing_left(config: &TrainConfig, done: u64) {
    if done < config.epochs {
        return;
    }
    // With the others, learning rates do not depend on how many epochs there are.
    let advice = if config.lr_schedule == LrSchedule::Cosine { "" } else { "; a larger --epochs goes on" };
    output::message(format_args!("cohop: nothing left to do: {done} of {done} epochs are done{advice}"));
}

fn report(run: &Run<'_>, fitted: &Fitted) -> Result<ExitCode> {
    let outcome = &fitted.outcome;
    if run.global.json {
        output::json(outcome)?;
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = if fitted.epochs_done == 0 {
        "no epoch of training".to_owned()
    } else if fitted.best.is_nan() {
        format!("epoch {}, not validated", outcome.best_epoch + 1)
    } else {
        let name = if fitted.metric == Metric::Auc { " ROC AUC" } else { "" };
        format!("best epoch {}, validation{name} {:.4}", outcome.best_epoch + 1, fitted.best)
    };
    output::line(format_args!("test accuracy {:.4} ({chosen}), {:.1} s", outcome.test_acc, outcome.seconds))?;
    if let Some(auc) = outcome.test_auc {
        output::line(format_args!("test ROC AUC {auc:.4}"))?;
    }
    // A folder of that name would have its path there.
    if run.notes.get(given::DATA).is_some_and(|name| name == "sbm") {
        let reference = SbmData::default().reference(&run.dataset)?;
        output::line(format_args!(
            "for comparison: chance {:.4}; Bayes from a vertex's own features {:.4}, with its neighbours' features \
             {:.4}, with their true classes {:.4}",
            reference.chance, reference.features, reference.one_hop, reference.oracle
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
