//! `cohop study modes`

use clap::Args;
use cohop::graph::MAX_PES;
use cohop::nn::MAX_WIDTH;

use super::step_seconds::{self, Timing};
use super::{Bar, Common, check_distinct, json_lines};
use crate::Global;
use crate::number;
use crate::plot::{Plot, Scale, Series};
use crate::table::{Table, bytes, count};
use crate::train::SamplerName;
use cohop::data::Dataset;
use cohop::graph::PartitionMethod;
use cohop::rng::Kappa;
use cohop::sample::Fanouts;
use cohop::study::{self, ModesConfig, ModesRow, Spread, seed_pool};
use cohop::{Error, Result};

/// Options of sampling, also for `cohop study cost`.
#[derive(Debug, Args)]
pub(super) struct Sampling {
    /// How neighbourhoods are sampled
    #[arg(long, value_enum, default_value_t = SamplerName::Labor0)]
    sampler: SamplerName,
    /// Neighbours per layer, from the seeds outwards; full or -1 means all
    #[arg(
        long,
        default_value = "10,10,10",
        value_name = "K,K,...",
        allow_hyphen_values = true,
        value_parser = number::fanouts
    )]
    fanouts: Fanouts,
    /// Seeds of all processing elements together [default: 1024, or all training vertices if they are fewer]
    #[arg(long, value_name = "N", value_parser = number::at_least_one())]
    batch_size: Option<usize>,
    /// Number of batches to average over
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = number::at_least_one())]
    batches: usize,
    /// How many consecutive batches depend on each other: a number or inf
    #[arg(long, default_value = "1", value_name = "K", value_parser = number::setting::<Kappa>)]
    kappa: Kappa,
    /// Feature rows in each processing element's cache (LRU); as many batches as are counted fill it before;
    /// cooperating elements cache only rows that they own [default: no cache]
    #[arg(long, value_name = "N", value_parser = number::at_least_one())]
    cache_rows: Option<usize>,
    /// How vertices are assigned to owners in cooperative mode: random, contiguous, hash or metis
    #[arg(long, default_value = "random", value_name = "METHOD", value_parser = number::partition)]
    partition: PartitionMethod,
    /// Columns of the features [default: those of the data set; without features 128]
    #[arg(long, value_name = "N", value_parser = number::any::<usize>())]
    pub(super) feature_width: Option<usize>,
    /// Columns of the hidden layers: one number for all, or one per layer
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "256",
        value_name = "N,N,...",
        value_parser = number::between(1, MAX_WIDTH as u64)
    )]
    pub(super) hidden: Vec<usize>,
}

impl Sampling {
    pub(super) fn config(
        &self,
        dataset: &Dataset,
        pool: &[u32],
        pes: Vec<usize>,
        seed: u64,
    ) -> Result<ModesConfig> {
        let n_hidden = self.fanouts.0.len().saturating_sub(1);
        let hidden = match &self.hidden[..] {
            [one] => vec![*one; n_hidden],
            several if several.len() == n_hidden => several.to_vec(),
            several => {
                let expected = format!("one, or {n_hidden}: one per layer except the last");
                return Err(Error::invalid("--hidden", format!("{} widths", several.len()), expected));
            }
        };
        let features = match dataset.features.dim() {
            0 => 128,
            dim => dim,
        };
        let mut widths = vec![self.feature_width.unwrap_or(features)];
        widths.extend(hidden);
        widths.push(dataset.n_classes.max(2));
        Ok(ModesConfig {
            sampler: self.sampler.method(),
            fanouts: self.fanouts.clone(),
            pes,
            batch_size: self.batch_size.unwrap_or(pool.len().min(1024)),
            batches: self.batches,
            kappa: self.kappa,
            cache_rows: self.cache_rows,
            partition: self.partition,
            widths,
            seed,
        })
    }
}

/// Compare independent and cooperative minibatching
///
/// Samples the same batches in both modes, with each number of processing elements (threads), and counts what each
/// element holds and exchanges; max/mean is the largest element's count divided by the mean. Checks that cooperating
/// elements together hold what one element alone holds.
///
/// With --time it also trains, with one element and with each number of them, and shows the measured milliseconds of a
/// step beside those that the model of `cohop study cost` predicts for this machine.
#[derive(Debug, Args)]
pub(super) struct ModesArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    sampling: Sampling,
    /// Numbers of processing elements
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,4,8,16",
        value_name = "P,P,...",
        value_parser = number::between(1, MAX_PES as u64)
    )]
    pes: Vec<usize>,
    #[command(flatten)]
    timing: Timing,
}

pub(super) fn run(global: &Global, args: &ModesArgs) -> Result<()> {
    check_distinct("--pes", &args.pes)?;
    args.timing.check(&args.sampling)?;
    let dataset = args.common.load()?;
    let pool = seed_pool(&dataset)?;
    let mut config = args.sampling.config(&dataset, &pool, args.pes.clone(), global.seed)?;
    let timed = args.timing.config(&dataset, &mut config)?;
    if timed.is_some() && !config.pes.contains(&1) {
        // One element alone is timed in any case.
        config.pes.push(1);
    }
    let mut rows = study::modes(&dataset.graph, &pool, &config, &mut Bar::new(global))?;
    let timed = timed.map(|timed| step_seconds::run(&dataset, &config, &rows, &timed, &mut Bar::new(global)));
    let timed = timed.transpose()?;
    rows.retain(|row| args.pes.contains(&row.n_pes));
    args.common.draw(|| {
        let mut plot = plot(&dataset.name, &config, &rows);
        plot.series.extend(timed.iter().flat_map(|(_, steps)| step_seconds::series(steps)));
        plot
    })?;
    match &timed {
        None if global.json => json_lines(&rows),
        None => print(&rows),
        Some((_, steps)) if global.json => json_lines(&rows).and_then(|()| json_lines(steps)),
        Some((machine, steps)) => print(&rows).and_then(|()| step_seconds::print(machine, steps)),
    }
}

fn print(rows: &[ModesRow]) -> Result<()> {
    let n_layers = rows.first().map_or(0, |row| row.independent.edges.len());
    let last = format!("|S{n_layers}|");
    let mut table = Table::new(
        1,
        [
            "per PE",
            "P",
            "vertices",
            "edges",
            &format!("inputs {last}"),
            "max/mean",
            "loaded",
            "ids sent",
            "rows received",
            "exchanged",
            "max/mean",
        ],
    );
    for row in rows {
        for (name, mode) in [("independent", &row.independent), ("cooperative", &row.cooperative)] {
            let sum = |spreads: &[Spread]| spreads.iter().map(|spread| spread.per_pe).sum::<f64>();
            table.row([
                name.to_owned(),
                row.n_pes.to_string(),
                count(sum(&mode.vertices)),
                count(sum(&mode.edges)),
                count(mode.inputs.per_pe),
                format!("{:.3}", mode.inputs.imbalance()),
                count(mode.loaded.per_pe),
                count(mode.exchanged_ids.per_pe),
                count(mode.exchanged_rows.per_pe),
                bytes(mode.exchanged_bytes.per_pe),
                format!("{:.3}", mode.exchanged_bytes.imbalance()),
            ]);
        }
        table.row([
            "ratio".to_owned(),
            row.n_pes.to_string(),
            format!("{:.3}", row.vertices_ratio),
            format!("{:.3}", row.edges_ratio),
            format!("{:.3}", row.inputs_ratio),
            String::new(),
            row.loaded_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}")),
        ]);
    }
    table.print()
}

fn plot(data: &str, config: &ModesConfig, rows: &[ModesRow]) -> Plot {
    let series = |name: &str, of: fn(&ModesRow) -> f64| Series {
        name: name.to_owned(),
        points: rows.iter().map(|row| (row.n_pes as f64, of(row))).collect(),
    };
    Plot {
        title: format!("Independent over cooperative on {data}, batches of {}", config.batch_size),
        x_label: "processing elements P".to_owned(),
        y_label: "ratio".to_owned(),
        x_scale: Scale::Logarithmic,
        series: vec![
            series("vertices", |row| row.vertices_ratio),
            series("edges", |row| row.edges_ratio),
            series("input rows", |row| row.inputs_ratio),
        ],
        even: Some(1.0),
    }
}
