//! `cohop infer`

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::data::DataAgainArgs;
use super::device::on_device;
use super::given::Given;
use super::signals::Signals;
use super::{Global, number, output};
use cohop::data::npy::{self, Dtype, NpyArray};
use cohop::device::{Device, Precision};
use cohop::sample::Fanouts;
use cohop::train::{EvalMode, MAX_WORKERS, Trainer, accuracy, argmax_rows, read_info};
use cohop::{Error, Result};

/// Predict classes with a model that `cohop train --checkpoint` kept
///
/// Writes to --out the class of every vertex (i64, [vertices]), with the parameters of the best epoch: row k is that
/// of vertex k, or of the k-th of --vertices. With --logits it writes the scores of all classes (f32, [vertices,
/// classes]).
///
/// Data set, split, type of features, sampler and its seed are those of training, unless given. Another data set
/// (--data with --other-data) must have as many feature columns as that of training, or no features and as many
/// vertices if that one has none; and as many relations. It needs neither labels nor a split; where it has both, the
/// accuracy on its validation and test vertices is printed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop train --checkpoint run1
  cohop infer --checkpoint run1 --out predictions.npy
  cohop infer --checkpoint run1 --vertices ids.npy --out predictions.npy
  cohop infer --checkpoint run1 --data new.npz --other-data --out predictions.npy
  cohop infer --checkpoint run1 --data ../shared/data/cora.npz --eval sampled --fanouts 20,20 --out p.npy")]
pub(super) struct InferArgs {
    /// The folder that `cohop train --checkpoint` wrote
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    #[command(flatten)]
    data: DataAgainArgs,
    /// A .npy file with the numbers of the vertices to predict, in any order [default: all vertices]
    #[arg(long, value_name = "FILE")]
    vertices: Option<PathBuf>,
    /// Whether to predict from all neighbours or from samples of them
    #[arg(long, value_enum, default_value_t = Neighborhoods::Full, help_heading = "Neighbourhoods")]
    eval: Neighborhoods,
    /// With --eval sampled: how many neighbours to sample in each layer, -1 for all [default: as in training]
    #[arg(
        long,
        value_name = "K,K,...",
        allow_hyphen_values = true,
        help_heading = "Neighbourhoods",
        value_parser = number::fanouts
    )]
    fanouts: Option<Fanouts>,
    /// With --eval sampled: how many vertices to predict at a time
    #[arg(
        long,
        default_value_t = 1024,
        value_name = "N",
        value_parser = number::at_least_one(),
        help_heading = "Neighbourhoods"
    )]
    batch_size: usize,
    /// With --eval sampled: how many batches to prepare at a time, ahead of the computation; 0: none ahead
    #[arg(
        long,
        default_value_t = 2,
        value_name = "N",
        value_parser = number::between(0, MAX_WORKERS as u64),
        help_heading = "Neighbourhoods"
    )]
    workers: usize,
    /// Precision of dense products on a GPU and of the rows that are summed over neighbours: f32, tf32, bf16 or f16
    /// [default: as in training]
    #[arg(long, value_name = "PRECISION", value_parser = number::setting::<Precision>)]
    precision: Option<Precision>,
    /// The .npy file to write; one that is there is replaced
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    out: PathBuf,
    /// Write the scores of all classes instead of the best class
    #[arg(long, help_heading = "Output")]
    logits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Neighborhoods {
    /// By the sampler of training, with --fanouts: for graphs too large for `full`
    Sampled,
    /// All in-edges, layer by layer: the same prediction in every run
    Full,
}

#[derive(Serialize)]
struct Report {
    vertices: usize,
    val_acc: Option<f64>,
    test_acc: Option<f64>,
    out: PathBuf,
}

pub(super) fn run(global: &Global, args: &InferArgs, given: &Given) -> Result<ExitCode> {
    if args.eval == Neighborhoods::Full && args.fanouts.is_some() {
        return Err(Error::invalid(
            "--fanouts",
            "given",
            "none with full neighbourhoods: add --eval sampled",
        ));
    }
    output::check_writable("--out", &args.out)?;
    on_device!(global.device, f32, device => run_on(device, global, args, given))
}

fn run_on<D: Device<Scalar = f32>>(
    device: D,
    global: &Global,
    args: &InferArgs,
    given: &Given,
) -> Result<ExitCode> {
    let signals = Signals::end_at_once()?;
    let info = read_info(&args.checkpoint)?;
    args.data.check_not_of_data("--out", &args.out, &info)?;
    let asked = match &args.vertices {
        Some(path) => {
            let array = NpyArray::open(path, "vertices")?;
            Some((array.ids()?, array))
        }
        None => None,
    };
    let dataset = Arc::new(args.data.load(given, &info)?);
    if let Some((ids, array)) = &asked {
        let n = dataset.n_vertices();
        if let Some(position) = ids.iter().position(|&v| v as usize >= n) {
            let expected = format!("expected vertices of the data set, below {n}");
            return Err(array.error(format!("entry {position} is {}: {expected}", ids[position])));
        }
    }
    let n_classes = info.config.model.n_classes;
    if dataset.n_classes > n_classes {
        let (there, here) = (dataset.n_classes, n_classes);
        log::warn!("the data set has {there} classes, the model {here}: it never predicts the others");
    }
    let trainer = Trainer::to_predict(device, dataset.clone(), &args.checkpoint, |config| {
        config.eval = match args.eval {
            Neighborhoods::Sampled => EvalMode::Sampled,
            Neighborhoods::Full => EvalMode::Full,
        };
        config.batch_size = Some(args.batch_size);
        config.workers = args.workers;
        config.precision = args.precision.unwrap_or(config.precision);
        if let Some(fanouts) = &args.fanouts {
            config.sampler.fanouts = fanouts.clone();
        }
        if given.has("seed") {
            config.sampler.seed = global.seed;
        }
    })?;
    let all: Vec<u32> = match &asked {
        Some((ids, _)) => ids.to_vec(),
        None => (0..dataset.n_vertices() as u32).collect(),
    };
    let logits = trainer.predict(&all)?;
    let predictions = argmax_rows(&logits, n_classes);
    let out = args.out.clone();
    let clean_up = move || {
        // Not a device, nor a pipe.
        if std::fs::symlink_metadata(&out).is_ok_and(|metadata| metadata.is_file()) {
            let _ = std::fs::remove_file(&out);
        }
    };
    let ((), interrupted) = signals.hold(&args.out, clean_up, || {
        if args.logits {
            return npy::write(&args.out, Dtype::F32, &[all.len(), n_classes], &logits);
        }
        let classes: Vec<i64> = predictions.iter().copied().map(i64::from).collect();
        npy::write(&args.out, Dtype::I64, &[all.len()], &classes)
    })?;
    if let Some(status) = interrupted {
        return Ok(status);
    }
    let rows_asked: Option<HashMap<u32, usize>> =
        asked.as_ref().map(|(ids, _)| ids.iter().enumerate().map(|(row, &v)| (v, row)).collect());
    let row_of = |v: u32| rows_asked.as_ref().map_or(Some(v as usize), |rows| rows.get(&v).copied());
    // Of those that were predicted. A label that the model does not know is never right.
    let accuracy = |vertices: &[u32]| -> Result<Option<f64>> {
        let rows = || vertices.iter().filter_map(|&v| row_of(v).map(|row| (v, row)));
        let predicted: Vec<i32> = rows().map(|(_, row)| predictions[row]).collect();
        let labels: Vec<i32> = rows().map(|(v, _)| dataset.labels[v as usize]).collect();
        let accuracy = accuracy(&predicted, &labels)?;
        Ok((!accuracy.is_nan()).then_some(accuracy))
    };
    let report = Report {
        vertices: all.len(),
        val_acc: accuracy(&dataset.val_idx)?,
        test_acc: accuracy(&dataset.test_idx)?,
        out: args.out.clone(),
    };
    if global.json {
        output::json(&report)?;
    } else {
        let shown = |a: Option<f64>| a.map_or_else(|| "unknown".to_owned(), |a| format!("{a:.4}"));
        output::line(format_args!(
            "wrote {} predictions to {}; accuracy: validation {}, test {}",
            report.vertices,
            report.out.display(),
            shown(report.val_acc),
            shown(report.test_acc)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
