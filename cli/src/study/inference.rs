//! `cohop study inference`

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::{Bar, json_lines};
use crate::data::DataAgainArgs;
use crate::given::Given;
use crate::plot::{self, Plot, Scale, Series};
use crate::table::{Table, count};
use crate::{Global, number, output};
use cohop::Result;
use cohop::sample::Fanouts;
use cohop::study::{self, DegreeBin, InferenceConfig, InferenceRow};
use cohop::train::read_info;

/// Accuracy and time of sampled inference by fanout and degree (SALIENT, MLSys 2022)
///
/// Predicts the labelled test vertices with a checkpoint's best parameters, from sampled neighbourhoods of each
/// fanout and last from full ones. The plot shows accuracy against in-degree, a line for each fanout. Sampler, data
/// set, split and type of features are those of training, unless given; a model trained on full neighbourhoods has
/// neighbour sampling.
#[derive(Debug, Args)]
pub(super) struct InferenceArgs {
    /// The folder that `cohop train --checkpoint` wrote
    #[arg(long, value_name = "DIR")]
    checkpoint: PathBuf,
    #[command(flatten)]
    data: DataAgainArgs,
    /// The fanouts to compare, each that of all layers; full neighbourhoods are the last row in any case
    #[arg(long, default_value = "5,10,20,full", value_name = "K,K,...", value_parser = number::fanouts)]
    fanouts_each: Fanouts,
    /// Vertices per batch of sampled neighbourhoods
    #[arg(long, default_value_t = 1024, value_name = "N", value_parser = number::at_least_one())]
    batch_size: usize,
    /// Draw the result to a file that ends in .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

pub(super) fn run(global: &Global, args: &InferenceArgs, given: &Given) -> Result<()> {
    plot::check(args.plot.as_deref())?;
    let info = read_info(&args.checkpoint)?;
    let dataset = Arc::new(args.data.load(given, &info)?);
    let sampled = args.fanouts_each.0.iter().copied().filter(|&fanout| fanout != usize::MAX);
    let config = InferenceConfig { fanouts: sampled.collect(), batch_size: args.batch_size };
    let rows = study::inference(&dataset, &args.checkpoint, &config, &mut Bar::new(global))?;
    if let Some(path) = &args.plot {
        plot(&dataset.name, &rows).write(path)?;
    }
    if global.json { json_lines(&rows) } else { print(&rows) }
}

fn name(row: &InferenceRow) -> String {
    row.fanout.map_or_else(|| "full".to_owned(), |fanout| fanout.to_string())
}

fn print(rows: &[InferenceRow]) -> Result<()> {
    let mut table = Table::new(0, ["fanout", "accuracy", "macro F1", "seconds"]);
    for row in rows {
        let quality = [row.accuracy, row.macro_f1].map(|x| format!("{x:.4}"));
        table.row([name(row)].into_iter().chain(quality).chain([format!("{:.3}", row.seconds)]));
    }
    table.print()?;
    // All rows have the same vertices, and so the same bins.
    let bins: &[DegreeBin] = rows.first().map_or(&[], |row| &row.by_degree);
    output::line("\naccuracy by in-degree, a column for each fanout:")?;
    let head = ["in-degree".to_owned(), "vertices".to_owned()];
    let mut table = Table::new(0, head.into_iter().chain(rows.iter().map(name)));
    for (i, bin) in bins.iter().enumerate() {
        let range =
            if bin.least == bin.most { bin.least.to_string() } else { format!("{}-{}", bin.least, bin.most) };
        let accuracies = rows.iter().map(|row| format!("{:.4}", row.by_degree[i].accuracy));
        table.row([range, count(bin.vertices as f64)].into_iter().chain(accuracies));
    }
    table.print()
}

fn plot(data: &str, rows: &[InferenceRow]) -> Plot {
    let series = |row: &InferenceRow| Series {
        name: format!("fanout {}: {:.4} in {:.3} s", name(row), row.accuracy, row.seconds),
        // The axis is logarithmic: vertices without in-edges are left of those with one.
        points: row.by_degree.iter().map(|bin| ((bin.least as f64).max(0.5), bin.accuracy)).collect(),
    };
    Plot {
        title: format!("Accuracy of sampled inference on {data}"),
        x_label: "in-degree, from this to twice as many".to_owned(),
        y_label: "accuracy".to_owned(),
        x_scale: Scale::Logarithmic,
        series: rows.iter().map(series).collect(),
        even: None,
    }
}
