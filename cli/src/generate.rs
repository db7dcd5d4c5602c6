//! `cohop generate`

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::signals::{Signals, remove_folder};
use super::{Global, number, output};
use cohop::data::{self, FeatureDtype, LoadOptions, MAX_CLASSES, RmatData};
use cohop::graph::Rmat;
use cohop::{Error, Result};

/// Write a random graph with random features, of any size, as a data set folder
///
/// An R-MAT graph with the parameters of Graph500: symmetric, without parallel edges, vertex names shuffled. Memory is
/// bounded: 20 bytes per vertex, plus --memory.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop generate --out rmat20 --scale 20 --edge-factor 12
  cohop generate --out rmat26 --scale 26 --edge-factor 8 --dim 32 --feature-dtype f16")]
pub(super) struct GenerateArgs {
    /// The folder to write; one that has a data set is refused without --overwrite
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Replace a data set that is there
    #[arg(long)]
    overwrite: bool,
    /// Logarithm of the number of vertices: 2^SCALE, at most 2^31
    #[arg(
        long,
        default_value_t = 15,
        value_name = "SCALE",
        value_parser = number::whole::<u32>(0, 31)
    )]
    scale: u32,
    /// Edges to draw per vertex, before adding reverse edges and merging parallel ones
    #[arg(
        long,
        default_value_t = 16.0,
        value_name = "X",
        value_parser = number::rate,
        allow_negative_numbers = true
    )]
    edge_factor: f64,
    /// Number of feature columns; 0 for no features
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = number::any::<usize>())]
    dim: usize,
    /// Element type of the features: f32, f16 or bf16
    #[arg(
        long,
        default_value_t = FeatureDtype::F32,
        value_name = "DTYPE",
        value_parser = number::setting::<FeatureDtype>
    )]
    feature_dtype: FeatureDtype,
    /// Number of classes
    #[arg(
        long,
        default_value_t = 16,
        value_name = "N",
        value_parser = number::between(1, MAX_CLASSES as u64)
    )]
    classes: usize,
    /// Memory for sorting edges, in MiB
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = number::whole::<u64>(1, 1 << 30))]
    memory: u64,
}

pub(super) fn run(global: &Global, args: &GenerateArgs) -> Result<ExitCode> {
    let is_new = check_out(args)?;
    let signals = Signals::end_at_once()?;
    let graph = Rmat::graph500(args.scale, args.edge_factor, global.seed);
    let set = RmatData { graph, dim: args.dim, n_classes: args.classes };
    let bar = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new(100) };
    let style = ProgressStyle::with_template("{msg} [{bar:20}] {elapsed}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut progress = |what: &str, part: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((100.0 * part) as u64);
        if signals.came() { Err(Error::Interrupted { epochs: 0 }) } else { Ok(()) }
    };
    let out = args.out.clone();
    let clean_up = move || if is_new { remove_folder(&out) } else { RmatData::remove_unfinished(&out) };
    let written = signals.hold(&args.out, clean_up, || {
        set.write(&args.out, args.feature_dtype, args.memory << 20, &mut progress)
    });
    bar.finish_and_clear();
    match written {
        Ok(((), None)) => {}
        Ok(((), Some(status))) => return Ok(status),
        Err(Error::Interrupted { .. }) => {
            output::message(format_args!("cohop: interrupted; nothing of the data set is left"));
            return Ok(signals.status());
        }
        Err(error) => return Err(error),
    }
    // Trusted: just written.
    let loaded = data::load_with(&args.out, &LoadOptions { trust_indices: true });
    let summary = loaded.and_then(|set| set.summary()).map_err(|error| {
        Error::format(&args.out, format!("is written and complete, but cannot be summed up: {error}"))
    })?;
    if global.json {
        output::json(&summary)?
    } else {
        output::line(summary)?
    }
    Ok(ExitCode::SUCCESS)
}

/// `Ok` if nothing is lost when the data set is written: whether there is nothing yet.
fn check_out(args: &GenerateArgs) -> Result<bool> {
    let out = &args.out;
    let is_empty = std::fs::read_dir(out).map_or(true, |mut entries| entries.next().is_none());
    if !out.exists() || (out.is_dir() && is_empty) {
        return Ok(true);
    }
    if !out.is_dir() {
        return Err(Error::format(out, "is a file, expected a folder"));
    }
    if !out.join("indptr.npy").is_file() {
        return Err(Error::format(out, "exists and is no data set: it is left as it is"));
    }
    if args.overwrite {
        Ok(false)
    } else {
        Err(Error::format(out, "has a data set: --overwrite replaces it"))
    }
}
