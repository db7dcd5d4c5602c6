//! `cohop study memory`

use clap::Args;
use cohop::graph::MAX_PES;

use super::models::ModelOptions;
use super::modes::Sampling;
use super::{Bar, Common, check_distinct, output};
use crate::Global;
use crate::given::Given;
use crate::number;
use crate::plot::{Plot, Scale, Series};
use crate::table::{Table, bytes};
use crate::train::ModelName;
use cohop::coop::Mode;
use cohop::study::{Memory, MemoryConfig, MemoryRow, ModesConfig, memory_of, seed_pool, sizes};
use cohop::{Error, Result};

/// Memory of each processing element in both modes, by what holds it
///
/// Samples the batches of `cohop study modes`, and adds up what a training step holds: shard of the graph, features,
/// cache, blocks, the rows that a batch brings, what is kept for the backward pass, gradients, parameters with Adam's
/// state, and exchange. Each is counted at its largest, so that the total is an upper bound of the peak. Features are
/// counted as dense.
#[derive(Debug, Args)]
pub(super) struct MemoryArgs {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    sampling: Sampling,
    /// Models
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sage", value_name = "MODEL,MODEL,...")]
    model: Vec<ModelName>,
    #[command(flatten)]
    models: ModelOptions,
    /// Dropout before each layer but the first; in sage-ri inside of each layer
    #[arg(
        long,
        default_value_t = 0.3,
        value_name = "P",
        value_parser = number::share,
        allow_negative_numbers = true
    )]
    dropout: f64,
    /// Bytes of a feature row as it is stored [default: those of the data set; with --feature-width 4 per column]
    #[arg(long, value_name = "N")]
    row_bytes: Option<usize>,
    /// Numbers of processing elements
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,4,8,16",
        value_name = "P,P,...",
        value_parser = number::between(1, MAX_PES as u64)
    )]
    pes: Vec<usize>,
}

pub(super) fn run(global: &Global, args: &MemoryArgs, given: &Given) -> Result<()> {
    check_distinct("--pes", &args.pes)?;
    args.models.check(&args.model)?;
    let dataset = args.common.load()?;
    let pool = seed_pool(&dataset)?;
    let counting = args.sampling.config(&dataset, &pool, args.pes.clone(), global.seed)?;
    let graph = args.models.graph(&dataset, &args.model, global.seed)?;
    let stored = match dataset.features.dtype() {
        Some(dtype) if !given.has("feature-width") => dtype.bytes(),
        _ => 4,
    };
    let row_bytes = match args.row_bytes {
        Some(bytes) => bytes,
        None => stored
            .checked_mul(counting.widths[0])
            .ok_or_else(|| Error::invalid("--feature-width", counting.widths[0], "fewer columns"))?,
    };
    let config = |&name: &ModelName| {
        let model = args.models.config(name, &args.sampling, &counting, graph.n_relations(), given)?;
        let model = cohop::nn::ModelConfig { dropout: args.dropout, ..model };
        model.check()?;
        Ok((name.name(), MemoryConfig { model, row_bytes }))
    };
    let configs: Vec<(String, MemoryConfig)> = args.model.iter().map(config).collect::<Result<_>>()?;
    let relations = args.model.iter().any(|name| name.relates());
    // Blocks are the same for all models.
    let counts = sizes(&graph, &pool, &counting, relations, &mut Bar::new(global))?;
    let mut all = Vec::with_capacity(configs.len());
    for (name, config) in configs {
        all.push((name, memory_of(&graph, &counting, &config, &counts)?));
    }
    args.common.draw(|| plot(&dataset.name, &counting, &all))?;
    if !global.json {
        return print(&all);
    }
    #[derive(serde::Serialize)]
    struct Line<'a> {
        model: &'a str,
        #[serde(flatten)]
        row: &'a MemoryRow,
    }
    all.iter()
        .flat_map(|(model, rows)| rows.iter().map(move |row| Line { model, row }))
        .try_for_each(|line| output::json(&line))
}

fn print(all: &[(String, Vec<MemoryRow>)]) -> Result<()> {
    for (name, rows) in all {
        let head = [name.as_str(), "P"].into_iter().chain(Memory::NAMES).chain(["total", "worst"]);
        let mut table = Table::new(1, head);
        for row in rows {
            let mut cells = vec![row.mode.to_string(), row.n_pes.to_string()];
            cells.extend(row.mean.values().iter().map(|&holder| bytes(holder)));
            cells.extend([bytes(row.mean_total), bytes(row.worst_total)]);
            table.row(cells);
        }
        table.print()?;
        output::line("")?;
    }
    output::line(
        "per element, the mean over batches and elements; worst: the largest total of an element in any batch",
    )
}

fn plot(data: &str, config: &ModesConfig, all: &[(String, Vec<MemoryRow>)]) -> Plot {
    let series = |name: &str, rows: &[MemoryRow], mode: Mode| Series {
        name: format!("{name}, {mode}"),
        points: rows
            .iter()
            .filter(|row| row.mode == mode)
            .map(|row| (row.n_pes as f64, row.worst_total / f64::from(1 << 20)))
            .collect(),
    };
    let both = |(name, rows): &(String, Vec<MemoryRow>)| {
        [Mode::Independent, Mode::Cooperative].map(|mode| series(name, rows, mode))
    };
    Plot {
        title: format!("Memory on {data}, batches of {}", config.batch_size),
        x_label: "processing elements P".to_owned(),
        y_label: "MiB of the element with most".to_owned(),
        x_scale: Scale::Logarithmic,
        series: all.iter().flat_map(both).collect(),
        even: None,
    }
}
