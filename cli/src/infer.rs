//! `cohop infer`

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::data::{Again, DataArgs};
use super::device::on_device;
use super::given::Given;
use super::signals::Signals;
use super::{Global, number, output};
use cohop::data::npy::{self, Dtype, NpyArray};
use cohop::device::Device;
use cohop::sample::Fanouts;
use cohop::train::{EvalMode, MAX_WORKERS, Trainer, accuracy, argmax_rows, read_info};
use cohop::{Error, Result};

/// Predict with a checkpoint's best parameters
///
/// Writes the predicted class of every vertex, or of those of --vertices (i64), or with --logits the class scores (f32,
/// [n, classes]). Data set, split and type of features are those of training, unless given. The data set needs neither
/// labels nor splits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop infer --checkpoint run1 --out predictions.npy
  cohop infer --checkpoint run1 --vertices ids.npy --out predictions.npy
  cohop infer --checkpoint run1 --data new.npz --other-data --out predictions.npy
  cohop infer --checkpoint run1 --data ../shared/data/cora.npz --eval sampled --fanouts 20,20 --out p.npy")]
pub(super) struct InferArgs {
    /// The folder that `cohop train --checkpoint` wrote
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Predict although the data set is not the one of training
    #[arg(long)]
    other_data: bool,
    /// A .npy file with the ids of the vertices to predict, in any order [default: all]
    #[arg(long, value_name = "FILE")]
    vertices: Option<PathBuf>,
    /// Which neighbourhoods to predict from
    #[arg(long, value_enum, default_value_t = Neighborhoods::Full)]
    eval: Neighborhoods,
    /// Fanouts of sampled neighbourhoods [default: those of training]
    #[arg(long, value_name = "K,K,...", allow_hyphen_values = true)]
    fanouts: Option<Fanouts>,
    /// Vertices per batch of sampled neighbourhoods
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = number::at_least_one())]
    batch_size: usize,
    /// Write class scores instead of classes
    #[arg(long)]
    logits: bool,
    /// The .npy file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// How many batches to prepare at a time, ahead of the computation; 0: none ahead
    #[arg(
        long,
        default_value_t = 2,
        value_name = "N",
        value_parser = number::between(0, MAX_WORKERS as u64)
    )]
    workers: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Neighborhoods {
    /// Sampled
    Sampled,
    /// All in-edges, layer by layer
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
    let asked = match &args.vertices {
        Some(path) => {
            let array = NpyArray::open(path, "vertices")?;
            Some((array.ids()?, array))
        }
        None => None,
    };
    let dataset = Arc::new(args.data.load_again(given, &info, args.other_data, Again::Predict)?);
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
        if let Some(fanouts) = &args.fanouts {
            config.sampler.fanouts = fanouts.clone();
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
