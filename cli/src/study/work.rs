//! `cohop study work`

use clap::Args;

use super::{Bar, Common, check_distinct, json_lines};
use crate::Global;
use crate::number;
use crate::plot::{Plot, Scale, Series};
use crate::table::{Table, count};
use crate::train::SamplerName;
use cohop::Result;
use cohop::sample::Fanouts;
use cohop::study::{self, WorkConfig, WorkRow, method_name, seed_pool};

/// Work per seed against batch size
///
/// Samples batches around training vertices (of a data set without any, around all) and counts the vertices |S^l| and
/// edges |E^l| of every layer l from the seeds outward. W is the sum over layers of sources and edges. In expectation
/// W(B)/B never rises with B.
#[derive(Debug, Args)]
pub(super) struct WorkArgs {
    #[command(flatten)]
    common: Common,
    /// The samplers to compare
    #[arg(long, value_enum, value_delimiter = ',', default_value = "neighbor,labor0,labor,walk")]
    samplers: Vec<SamplerName>,
    /// Neighbours per layer, from the seeds outwards; full or -1 means all
    #[arg(
        long,
        default_value = "10,10,10",
        value_name = "K,K,...",
        allow_hyphen_values = true,
        value_parser = number::fanouts
    )]
    fanouts: Fanouts,
    /// Seeds per batch [default: powers of two up to the number of training vertices, at most 65536]
    #[arg(long, value_delimiter = ',', value_name = "N,N,...", value_parser = number::at_least_one())]
    batch_sizes: Vec<usize>,
    /// Batches of each size
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = number::at_least_one())]
    batches: usize,
}

pub(super) fn run(global: &Global, args: &WorkArgs) -> Result<()> {
    check_distinct("--batch-sizes", &args.batch_sizes)?;
    let dataset = args.common.load()?;
    let pool = seed_pool(&dataset)?;
    let powers = || (0..=16).map(|exponent| 1usize << exponent).filter(|&size| size <= pool.len());
    let config = WorkConfig {
        samplers: args.samplers.iter().map(|name| name.method()).collect(),
        fanouts: args.fanouts.clone(),
        batch_sizes: if args.batch_sizes.is_empty() { powers().collect() } else { args.batch_sizes.clone() },
        batches: args.batches,
        seed: global.seed,
    };
    let rows = study::work(&dataset.graph, &pool, &config, &mut Bar::new(global))?;
    args.common.draw(|| plot(&dataset.name, &config, &rows))?;
    if global.json { json_lines(&rows) } else { print(&rows) }
}

fn print(rows: &[WorkRow]) -> Result<()> {
    let n_layers = rows.first().map_or(0, |row| row.edges.len());
    let mut head = vec!["sampler".to_owned(), "B".to_owned()];
    head.extend((1..=n_layers).map(|l| format!("|S{l}|")));
    head.extend((0..n_layers).map(|l| format!("|E{l}|")));
    head.extend(["W(B)/B".to_owned(), "± s.e.".to_owned(), format!("|S{n_layers}|/B")]);
    let mut table = Table::new(1, head);
    for row in rows {
        let mut cells = vec![row.sampler.clone(), row.batch_size.to_string()];
        cells.extend(row.vertices[1..].iter().chain(&row.edges).map(|estimate| count(estimate.mean)));
        cells.push(format!("{:.2}", row.work_per_seed.mean));
        cells.push(format!("{:.2}", row.work_per_seed.standard_error));
        cells.push(format!("{:.2}", row.inputs_per_seed.mean));
        table.row(cells);
    }
    table.print()
}

fn plot(data: &str, config: &WorkConfig, rows: &[WorkRow]) -> Plot {
    let series = |method| {
        let name = method_name(method);
        let own = rows.iter().filter(|row| row.sampler == name);
        let points = own.map(|row| (row.batch_size as f64, row.work_per_seed.mean)).collect();
        Series { name, points }
    };
    Plot {
        title: format!("Work per seed on {data}, fanouts {}", config.fanouts),
        x_label: "batch size B".to_owned(),
        y_label: "W(B) / B".to_owned(),
        x_scale: Scale::Logarithmic,
        series: config.samplers.iter().map(series).collect(),
        even: None,
    }
}
