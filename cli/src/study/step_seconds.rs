//! `cohop study modes --time`

use std::sync::Arc;

use clap::{Args, ValueEnum};

use super::modes::Sampling;
use crate::number;
use crate::output;
use crate::plot::Series;
use crate::table::Table;
use crate::train::ModelName;
use cohop::coop::{FirstLayer, Mode};
use cohop::data::{Dataset, Features};
use cohop::nn::MAX_WIDTH;
use cohop::study::step_seconds;
use cohop::study::{CostConfig, Listener, Machine, ModesConfig, ModesRow, StepConfig, StepRow};
use cohop::train::MAX_WORKERS;
use cohop::{Error, Result};

// What is trained to time it. (No doc comment: clap would take it for the help of the command.)
#[derive(Debug, Args)]
#[command(next_help_heading = "Time")]
pub(super) struct Timing {
    /// Also train on this machine's threads: measured and predicted time of a step, alone and with each number of
    /// processing elements in both modes, also with the first layer p3 where the model allows it
    #[arg(long)]
    time: bool,
    /// Number of steps of which the median is taken; 5 go before them
    #[arg(long, default_value_t = 20, value_name = "N", requires = "time", value_parser = number::between(1, 1 << 32))]
    steps: usize,
    /// The model to train, with the layers of --fanouts and the width of --hidden (per head in attention models)
    #[arg(long, value_enum, default_value_t = ModelName::Sage, requires = "time")]
    model: ModelName,
    /// Heads of the hidden layers of attention models [default: 4; rgat: 2]
    #[arg(long, value_name = "N", requires = "time", value_parser = number::between(1, MAX_WIDTH as u64))]
    heads: Option<usize>,
    /// How many batches are prepared at a time, ahead of the one that is computed, as in `cohop train`
    #[arg(
        long,
        default_value_t = 2,
        value_name = "N",
        requires = "time",
        value_parser = number::between(0, MAX_WORKERS as u64)
    )]
    workers: usize,
}

/// Steps before those that are timed.
const WARM_UP: usize = 5;

impl Timing {
    fn heads(&self) -> usize {
        self.heads.unwrap_or(if self.model == ModelName::Rgat { 2 } else { 4 })
    }

    /// `Ok` if the options go together: what can be told before the data is read.
    pub(super) fn check(&self, sampling: &Sampling) -> Result<()> {
        if self.time && sampling.feature_width.is_some() {
            let expected = "none with --time, which trains on the features that there are";
            return Err(Error::invalid("--feature-width", "given", expected));
        }
        if self.heads.is_some() && !self.model.attends() {
            return Err(Error::invalid("--heads", "given", "none without --model gat, gatv2 or rgat"));
        }
        Ok(())
    }

    /// What to time, if it is asked for. Activations are then counted as wide as they are with all heads.
    pub(super) fn config(&self, dataset: &Dataset, modes: &mut ModesConfig) -> Result<Option<StepConfig>> {
        if !self.time {
            return Ok(None);
        }
        if matches!(dataset.features, Features::Sparse(_) | Features::None) {
            return Err(Error::invalid("--time", "given", "a data set with dense features"));
        }
        let n_hidden = modes.widths.len().saturating_sub(2);
        let hidden = &mut modes.widths[1..=n_hidden];
        let width = hidden.first().copied();
        if hidden.iter().any(|&other| Some(other) != width) {
            let expected = "one width for all layers with --time";
            return Err(Error::invalid("--hidden", format!("{n_hidden} widths that differ"), expected));
        }
        if self.model.relates() && dataset.graph.n_relations() == 0 {
            let name = self.model.to_possible_value();
            let name = name.as_ref().map_or("", |name| name.get_name()).to_owned();
            return Err(Error::invalid("--model", name, "one without relations: the graph has none"));
        }
        let mut config = StepConfig { warm_up: WARM_UP, steps: self.steps, ..StepConfig::default() };
        config.train.workers = self.workers;
        let model = &mut config.train.model;
        model.kind = self.model.kind(false);
        model.hidden = width.unwrap_or(model.hidden);
        if self.model.attends() {
            model.heads = self.heads();
            hidden.iter_mut().for_each(|width| *width = width.saturating_mul(model.heads));
        }
        Ok(Some(config))
    }
}

/// This machine's bandwidths, and the steps.
pub(super) fn run(
    dataset: &Arc<Dataset>,
    modes: &ModesConfig,
    counts: &[ModesRow],
    config: &StepConfig,
    listener: &mut dyn Listener,
) -> Result<(Machine, Vec<StepRow>)> {
    let machine = Machine::preset("this-machine")?;
    let bytes = dataset.features.dtype().map_or(4, |dtype| dtype.bytes());
    let cost = CostConfig {
        machine: machine.clone(),
        // Rows that caches hold are not among those counted as loaded.
        independent_miss_rate: 1.0,
        cooperative_miss_rate: 1.0,
        row_bytes: bytes * dataset.features.dim(),
        widths: modes.widths.clone(),
    };
    Ok((machine, step_seconds(dataset, modes, counts, &cost, config, listener)?))
}

fn name(row: &StepRow) -> String {
    match row.first_layer {
        FirstLayer::Whole => row.mode.to_string(),
        FirstLayer::P3 => format!("{}, p3", row.mode),
    }
}

pub(super) fn print(machine: &Machine, rows: &[StepRow]) -> Result<()> {
    let Machine { name: machine, memory, interconnect, storage, .. } = machine;
    output::line(format_args!(
        "\n{machine}: gamma {:.0}, alpha {:.0}, beta {:.0} GB/s, shared by all elements",
        memory / 1e9,
        interconnect / 1e9,
        storage / 1e9
    ))?;
    let mut table = Table::new(
        1,
        [
            "ms a step",
            "P",
            "measured",
            "ratio",
            "predicted",
            "ratio",
            "sample",
            "gather",
            "compute",
            "exchange",
            "wait",
        ],
    );
    let ms = |seconds: f64| format!("{:.2}", seconds * 1e3);
    let ratio = |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"));
    for row in rows {
        let parts = &row.parts;
        table.row([
            name(row),
            row.n_pes.to_string(),
            ms(row.measured_seconds),
            ratio(row.measured_speedup),
            ms(row.predicted_seconds),
            ratio(row.predicted_speedup),
            ms(parts.sample),
            ms(parts.gather),
            ms(parts.compute),
            ms(parts.exchange),
            ms(parts.wait),
        ]);
    }
    table.print()?;
    let steps = rows.first().map_or(0, |row| row.steps);
    output::line(format_args!(
        "medians of {steps} steps, of the element that takes longest; ratio: time of independent mode over this one"
    ))?;
    output::line("measured, with sample to wait as parts that overlap: batches are prepared while steps run")
}

/// Measured and predicted ratios of cooperative mode.
pub(super) fn series(rows: &[StepRow]) -> [Series; 2] {
    let series = |name: &str, of: fn(&StepRow) -> Option<f64>| {
        let cooperative =
            rows.iter().filter(|row| (row.mode, row.first_layer) == (Mode::Cooperative, FirstLayer::Whole));
        let points = cooperative.filter_map(|row| Some((row.n_pes as f64, of(row)?))).collect();
        Series { name: name.to_owned(), points }
    };
    [
        series("time, measured", |row| row.measured_speedup),
        series("time, predicted", |row| row.predicted_speedup),
    ]
}
