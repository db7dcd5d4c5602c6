//! `cohop infer`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde::Serialize;

use super::data::DataArgs;
use super::device::on_device;
use super::{Global, number, output};
use cohop::Result;
use cohop::data::npy::{self, Dtype};
use cohop::device::Device;
use cohop::sample::Fanouts;
use cohop::train::{EvalMode, Evaluation, MAX_WORKERS, Trainer, argmax_rows};

/// Predict with a checkpoint's best parameters
///
/// Writes the predicted class of every vertex (i64), or with --logits the class scores (f32, [n, classes]).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop infer --checkpoint run1 --out predictions.npy
  cohop infer --checkpoint run1 --data ../shared/data/cora.npz --eval sampled --fanouts 20,20 --out p.npy")]
pub(super) struct InferArgs {
    /// The folder that `cohop train --checkpoint` wrote
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    #[command(flatten)]
    data: DataArgs,
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

pub(super) fn run(global: &Global, args: &InferArgs) -> Result<ExitCode> {
    on_device!(global.device, f32, device => run_on(device, global, args))
}

fn run_on<D: Device<Scalar = f32>>(device: D, global: &Global, args: &InferArgs) -> Result<ExitCode> {
    let dataset = Arc::new(args.data.load()?);
    let mut trainer = Trainer::resume(device, dataset.clone(), &args.checkpoint, |config| {
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
    trainer.restore_best()?;
    let all: Vec<u32> = (0..dataset.n_vertices() as u32).collect();
    let logits = trainer.predict(&all)?;
    let n_classes = trainer.config().model.n_classes;
    if args.logits {
        npy::write(&args.out, Dtype::F32, &[all.len(), n_classes], &logits)?;
    } else {
        let classes: Vec<i64> = argmax_rows(&logits, n_classes).into_iter().map(i64::from).collect();
        npy::write(&args.out, Dtype::I64, &[all.len()], &classes)?;
    }
    let accuracy = |vertices: &[u32]| -> Result<Option<f64>> {
        let rows: Vec<f32> = vertices
            .iter()
            .flat_map(|&v| &logits[v as usize * n_classes..(v as usize + 1) * n_classes])
            .copied()
            .collect();
        let labels: Vec<i32> = vertices.iter().map(|&v| dataset.labels[v as usize]).collect();
        let accuracy = Evaluation::new(&rows, n_classes, &labels)?.accuracy;
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
