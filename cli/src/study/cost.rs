//! `cohop study cost`

use clap::Args;
use cohop::graph::MAX_PES;

use super::models::ModelOptions;
use super::modes::Sampling;
use super::{Bar, Common, cost_models, json_lines};
use crate::given::Given;
use crate::number;
use crate::plot::{Plot, Scale, Series};
use crate::table::Table;
use crate::train::ModelName;
use crate::{Global, output};
use cohop::coop::{FirstLayer, Mode};
use cohop::study::{
    CostConfig, CostRow, CostSummary, Machine, ModesConfig, modes, predict, seed_pool, summarize,
};
use cohop::{Error, Result};

/// Predicted time of a training step in both modes
///
/// Counts as `cohop study modes` does, and divides the bytes of each stage by the bandwidths of a machine: of device
/// memory (gamma), between processing elements (alpha), and from storage (beta). Without --model a layer is one of no
/// model in particular, which reads its rows once and once for each edge, and arithmetic is ignored; with --model its
/// bytes and operations are those of the model's kernels. Latency is ignored.
#[derive(Debug, Args)]
pub(super) struct CostArgs {
    #[command(flatten)]
    pub(super) common: Common,
    #[command(flatten)]
    pub(super) sampling: Sampling,
    /// Count the work of these models' layers [default: that of no model in particular]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "MODEL,MODEL,...")]
    pub(super) model: Vec<ModelName>,
    #[command(flatten)]
    pub(super) models: ModelOptions,
    /// With --model: whether to add rows for a first layer that is shared by columns of the features (p3, after P3,
    /// OSDI 2021)
    #[arg(long, default_value_t = FirstLayer::Whole, value_name = "whole|p3")]
    pub(super) first_layer: FirstLayer,
    /// Machines: 4xA100, 8xA100, 16xV100, 8xH200 (data sheets), this-machine (measured)
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "4xA100,8xA100,16xV100,8xH200",
        value_name = "NAME,NAME,..."
    )]
    machine: Vec<String>,
    /// Bandwidth of a processing element's memory, in GB/s [default: the machine's]
    #[arg(long, value_name = "GB/s", value_parser = number::positive, allow_negative_numbers = true)]
    gamma: Option<f64>,
    /// Bandwidth between processing elements in one direction, in GB/s [default: the machine's]
    #[arg(long, value_name = "GB/s", value_parser = number::positive, allow_negative_numbers = true)]
    alpha: Option<f64>,
    /// Bandwidth from storage, in GB/s [default: the machine's]
    #[arg(long, value_name = "GB/s", value_parser = number::positive, allow_negative_numbers = true)]
    beta: Option<f64>,
    /// Arithmetic of a processing element in f32, in GFLOP/s, with --model [default: the machine's]
    #[arg(long, value_name = "GFLOP/s", value_parser = number::positive, allow_negative_numbers = true)]
    flops: Option<f64>,
    /// Numbers of processing elements [default: powers of two up to the machine's number]
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "P,P,...",
        value_parser = number::between(1, MAX_PES as u64)
    )]
    pes: Vec<usize>,
    /// Miss rate of the feature cache (see cohop study kappa)
    #[arg(
        long,
        default_value_t = 1.0,
        value_name = "RHO",
        value_parser = number::probability,
        allow_negative_numbers = true
    )]
    miss_rate: f64,
    /// Miss rate in cooperative mode [default: that of --miss-rate]
    #[arg(long, value_name = "RHO", value_parser = number::probability, allow_negative_numbers = true)]
    cooperative_miss_rate: Option<f64>,
    /// Bytes of a feature row in storage [default: 4 per column]
    #[arg(long, value_name = "N", value_parser = number::any::<usize>())]
    row_bytes: Option<usize>,
}

impl CostArgs {
    fn machine(&self, name: &str) -> Result<Machine> {
        let mut machine = Machine::preset(name)?;
        for (given, bandwidth) in [
            (self.gamma, &mut machine.memory),
            (self.alpha, &mut machine.interconnect),
            (self.beta, &mut machine.storage),
            (self.flops, &mut machine.arithmetic),
        ] {
            if let Some(given) = given {
                *bandwidth = given * 1e9;
            }
        }
        Ok(machine)
    }

    /// `Ok` if the options go together.
    fn check(&self, given: &Given) -> Result<()> {
        for option in ["heads", "relations", "first-layer", "flops"] {
            if self.model.is_empty() && given.has(option) {
                return Err(Error::invalid("--model", "absent", format!("given, with --{option}")));
            }
        }
        self.models.check(&self.model)
    }

    pub(super) fn pes(&self, machine: &Machine) -> Vec<usize> {
        if self.pes.is_empty() {
            (0..).map(|exponent| 1 << exponent).take_while(|&pes| pes <= machine.n_pes).collect()
        } else {
            self.pes.clone()
        }
    }
}

pub(super) fn run(global: &Global, args: &CostArgs, given: &Given) -> Result<()> {
    args.check(given)?;
    let dataset = args.common.load()?;
    let pool = seed_pool(&dataset)?;
    let machines: Vec<Machine> = args.machine.iter().map(|name| args.machine(name)).collect::<Result<_>>()?;
    let mut pes: Vec<usize> = machines.iter().flat_map(|machine| args.pes(machine)).collect();
    pes.sort_unstable();
    pes.dedup();
    let counting = args.sampling.config(&dataset, &pool, pes, global.seed)?;
    let configs = machines.into_iter().map(|machine| CostConfig {
        machine,
        independent_miss_rate: args.miss_rate,
        cooperative_miss_rate: args.cooperative_miss_rate.unwrap_or(args.miss_rate),
        row_bytes: args.row_bytes.unwrap_or(4 * counting.widths[0]),
        widths: counting.widths.clone(),
    });
    let configs: Vec<CostConfig> = configs.collect();
    configs.iter().try_for_each(CostConfig::check)?;
    if !args.model.is_empty() {
        return cost_models::run(global, args, given, (&dataset, &pool), &counting, &configs);
    }
    // Counts are the same on all machines.
    let counts = modes(&dataset.graph, &pool, &counting, &mut Bar::new(global))?;
    let mut predictions: Vec<Vec<CostRow>> = Vec::with_capacity(configs.len());
    for config in &configs {
        let own = args.pes(&config.machine);
        let rows = counts.iter().filter(|row| own.contains(&row.n_pes)).map(|row| predict(row, config));
        predictions.push(rows.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect());
    }
    args.common.draw(|| plot(&dataset.name, &counting, &predictions))?;
    if !global.json {
        return print(&configs, &predictions);
    }
    for rows in &predictions {
        json_lines(rows)?;
    }
    Ok(())
}

fn print(configs: &[CostConfig], predictions: &[Vec<CostRow>]) -> Result<()> {
    for (config, rows) in configs.iter().zip(predictions) {
        print_machine(config, rows, None, |row| row.mode.to_string())?;
        print_summary(&summarize(rows))?;
        output::line("")?;
    }
    print_legend()
}

/// The times of `rows` on one machine, each with its `label`; `arithmetic` is told of if it counts.
pub(super) fn print_machine(
    config: &CostConfig,
    rows: &[CostRow],
    arithmetic: Option<f64>,
    label: fn(&CostRow) -> String,
) -> Result<()> {
    let n_layers = rows.first().map_or(0, |row| row.stages.layers.len());
    let Machine { name, memory, interconnect, storage, shared, .. } = &config.machine;
    output::line(format_args!(
        "{name}: gamma {:.0}, alpha {:.0}, beta {:.0} GB/s{}{}; miss rate {} independent, {} cooperative",
        memory / 1e9,
        interconnect / 1e9,
        storage / 1e9,
        arithmetic.map_or_else(String::new, |flops| format!(", {:.0} GFLOP/s", flops / 1e9)),
        if *shared { ", shared" } else { "" },
        config.independent_miss_rate,
        config.cooperative_miss_rate
    ))?;
    let mut head: Vec<String> = ["ms", "P", "sample", "+ exch", "feature", "+ exch"].map(Into::into).into();
    head.extend((0..n_layers).rev().flat_map(|l| [format!("layer {l}"), "+ exch".to_owned()]));
    head.extend(["total", "speedup", "c", "c even"].map(Into::into));
    let mut table = Table::new(1, head);
    let ms = |seconds: &f64| format!("{:.3}", seconds * 1e3);
    for row in rows {
        let stages = &row.stages;
        let mut cells = vec![label(row), row.n_pes.to_string()];
        let before = [stages.sample, stages.sample_exchange, stages.feature, stages.feature_exchange];
        cells.extend(before.iter().map(ms));
        let layers = stages.layers.iter().zip(&stages.layer_exchanges).rev();
        cells.extend(layers.flat_map(|(layer, exchange)| [ms(layer), ms(exchange)]));
        cells.push(ms(&row.seconds));
        let is_p3 = row.model.as_ref().is_some_and(|model| model.first_layer == FirstLayer::P3);
        // Speedups are over independent mode.
        if row.mode == Mode::Cooperative || is_p3 {
            cells.push(format!("{:.3}", row.speedup));
        }
        if row.mode == Mode::Cooperative {
            cells.push(format!("{:.3}", row.crossing_share));
            cells.push(row.break_even_share.map_or("-".to_owned(), |share| format!("{share:.3}")));
        }
        table.row(cells);
    }
    table.print()
}

pub(super) fn print_summary(summary: &CostSummary) -> Result<()> {
    let slower = summary.slower_from_pes.map_or_else(
        || "cooperation is not slower at any of these P".to_owned(),
        |pes| format!("cooperation is slower from P = {pes} on"),
    );
    let best = summary.best.map_or_else(String::new, |(pes, speedup)| {
        format!("; its best speedup is {speedup:.3} at P = {pes}")
    });
    output::line(format_args!("{slower}{best}"))
}

pub(super) fn print_legend() -> Result<()> {
    output::line(
        "layer l: its destinations are l hops from the seeds; + exch: exchange of ids, rows, gradients between PEs",
    )?;
    output::line(
        "c: share of source rows that other PEs own; c even: the share at which the speedup would be 1",
    )
}

fn plot(data: &str, config: &ModesConfig, predictions: &[Vec<CostRow>]) -> Plot {
    let series = |rows: &Vec<CostRow>| {
        let cooperative = rows.iter().filter(|row| row.mode == Mode::Cooperative);
        let name = rows.first().map(|row| row.machine.clone()).unwrap_or_default();
        Series { name, points: cooperative.map(|row| (row.n_pes as f64, row.speedup)).collect() }
    };
    Plot {
        title: format!("Predicted speedup of cooperation on {data}, batches of {}", config.batch_size),
        x_label: "processing elements P".to_owned(),
        y_label: "speedup over independent".to_owned(),
        x_scale: Scale::Logarithmic,
        series: predictions.iter().map(series).collect(),
        even: Some(1.0),
    }
}
