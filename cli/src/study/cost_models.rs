//! `cohop study cost --model`: predictions with the work of models' layers.

use super::cost::{CostArgs, print_machine};
use super::{Bar, json_lines};
use crate::given::Given;
use crate::plot::{Plot, Scale, Series};
use crate::table::{Table, bytes, count};
use crate::train::ModelName;
use crate::{Global, output};
use cohop::coop::{FirstLayer, Mode};
use cohop::data::Dataset;
use cohop::nn::ModelConfig;
use cohop::study::{CostConfig, CostRow, ModesConfig, p3_terms, predict_model, sizes, summarize};
use cohop::{Error, Result};

/// What is predicted for one model: by machine, then by number of elements, first layer and mode.
struct Predicted {
    name: String,
    by_machine: Vec<Vec<CostRow>>,
}

pub(super) fn run(
    global: &Global,
    args: &CostArgs,
    given: &Given,
    (dataset, pool): (&Dataset, &[u32]),
    counting: &ModesConfig,
    configs: &[CostConfig],
) -> Result<()> {
    let graph = args.models.graph(dataset, &args.model, global.seed)?;
    let n_relations = graph.n_relations();
    let model = |&name: &ModelName| {
        let model = args.models.config(name, &args.sampling, counting, n_relations, given)?;
        model.check()?;
        if args.first_layer == FirstLayer::P3 {
            check_p3(name, &model)?;
        }
        Ok((name.name(), model))
    };
    let models: Vec<(String, ModelConfig)> = args.model.iter().map(model).collect::<Result<_>>()?;
    let relations = args.model.iter().any(|name| name.relates());
    // Counts are the same for all models and on all machines.
    let counts = sizes(&graph, pool, counting, relations, &mut Bar::new(global))?;
    let first_layers = match args.first_layer {
        FirstLayer::Whole => &[FirstLayer::Whole][..],
        FirstLayer::P3 => &[FirstLayer::Whole, FirstLayer::P3],
    };
    let mut all = Vec::with_capacity(models.len());
    for (name, model) in models {
        let mut by_machine = Vec::with_capacity(configs.len());
        for config in configs {
            let own = args.pes(&config.machine);
            let rows = counts.iter().filter(|row| own.contains(&row.n_pes));
            let rows = rows.map(|row| predict_model(row, &model, first_layers, config));
            by_machine.push(rows.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect());
        }
        all.push(Predicted { name, by_machine });
    }
    args.common.draw(|| plot(&dataset.name, counting, &all))?;
    if global.json {
        return all.iter().flat_map(|predicted| &predicted.by_machine).try_for_each(|rows| json_lines(rows));
    }
    print(configs, &all)
}

/// `Ok` if the model's first layer can be shared by columns.
fn check_p3(name: ModelName, model: &ModelConfig) -> Result<()> {
    p3_terms(model).map(|_| ()).map_err(|error| match error {
        Error::InvalidArgument { expected, .. } => {
            Error::invalid("--first-layer", format!("p3 with --model {}", name.name()), expected)
        }
        error => error,
    })
}

fn is_p3(row: &CostRow) -> bool {
    row.model.as_ref().is_some_and(|model| model.first_layer == FirstLayer::P3)
}

fn label(row: &CostRow) -> String {
    format!("{}{}", row.mode, if is_p3(row) { " p3" } else { "" })
}

fn print(configs: &[CostConfig], all: &[Predicted]) -> Result<()> {
    for Predicted { name, by_machine } in all {
        output::line(format_args!("{name}"))?;
        for (config, rows) in configs.iter().zip(by_machine) {
            print_machine(config, rows, Some(config.machine.arithmetic), label)?;
            let whole: Vec<CostRow> = rows.iter().filter(|row| !is_p3(row)).cloned().collect();
            super::cost::print_summary(&summarize(&whole))?;
            print_when_p3_pays(rows)?;
            output::line("")?;
        }
        // The work is the same on all machines that have as many elements.
        let most = by_machine.iter().max_by_key(|rows| rows.len());
        print_work(most.map_or(&[], |rows| rows))?;
        output::line("")?;
    }
    if all.len() > 1 {
        for (i, config) in configs.iter().enumerate() {
            print_comparison(&config.machine.name, all, i)?;
        }
    }
    super::cost::print_legend()?;
    output::line(
        "sparse: bytes of SpMM, SDDMM, gathers, softmax, and their operations for each edge; dense: linear maps; \
         exchanged: bytes received for the layer's rows and their gradients; forward and backward, of the element \
         with most",
    )
}

/// Where P³ is predicted to be faster than whole rows in the same mode.
fn print_when_p3_pays(rows: &[CostRow]) -> Result<()> {
    if !rows.iter().any(is_p3) {
        return Ok(());
    }
    for mode in [Mode::Independent, Mode::Cooperative] {
        let pays = |p3: &&CostRow| {
            let whole = |row: &&CostRow| row.mode == mode && row.n_pes == p3.n_pes && !is_p3(row);
            let whole = rows.iter().find(whole);
            p3.mode == mode && is_p3(p3) && p3.n_pes > 1 && whole.is_some_and(|row| p3.seconds < row.seconds)
        };
        let pes: Vec<String> = rows.iter().filter(pays).map(|row| row.n_pes.to_string()).collect();
        let what = if pes.is_empty() {
            "not faster than whole rows at any of these P".to_owned()
        } else {
            format!("faster than whole rows at P = {}", pes.join(", "))
        };
        output::line(format_args!("p3 {mode}: {what}"))?;
    }
    Ok(())
}

fn print_work(rows: &[CostRow]) -> Result<()> {
    let head =
        ["work", "P", "layer", "edges", "sparse", "ops/edge", "dense", "Mflop", "parameters", "exchanged"];
    let mut table = Table::new(1, head);
    for row in rows {
        let Some(model) = &row.model else { continue };
        for (l, layer) in model.layers.iter().enumerate().rev() {
            table.row([
                label(row),
                row.n_pes.to_string(),
                l.to_string(),
                count(layer.edges),
                bytes(layer.sparse.bytes),
                format!("{:.0}", layer.operations_per_edge()),
                bytes(layer.dense.bytes),
                format!("{:.1}", layer.dense.operations / 1e6),
                layer.parameters.to_string(),
                bytes(layer.exchanged_bytes),
            ]);
        }
    }
    table.print()?;
    let p3: Vec<&CostRow> = rows.iter().filter(|row| is_p3(row)).collect();
    if p3.is_empty() {
        return Ok(());
    }
    output::line(
        "\np3: bytes between all elements for the first layer; whole rows: if each has its vertices' features",
    )?;
    let mut table =
        Table::new(1, ["mode", "P", "blocks", "sums", "p3 together", "whole rows", "even at columns"]);
    for row in p3 {
        let Some(p3) = row.model.as_ref().and_then(|model| model.p3) else { continue };
        table.row([
            row.mode.to_string(),
            row.n_pes.to_string(),
            bytes(p3.blocks),
            bytes(p3.sums),
            bytes(p3.blocks + p3.sums),
            bytes(p3.whole_rows),
            p3.even_columns.map_or("-".to_owned(), |columns| format!("{columns:.0}")),
        ]);
    }
    table.print()
}

/// The speedups of all models on one machine.
fn print_comparison(machine: &str, all: &[Predicted], i: usize) -> Result<()> {
    output::line(format_args!(
        "speedup of cooperation on {machine}, and of the layers with their exchange alone:"
    ))?;
    let cooperative = |predicted: &Predicted| -> Vec<CostRow> {
        let rows = predicted.by_machine[i].iter();
        rows.filter(|row| row.mode == Mode::Cooperative && !is_p3(row)).cloned().collect()
    };
    let pes = all.first().map_or_else(Vec::new, &cooperative);
    let head = pes.iter().map(|row| format!("P = {}", row.n_pes));
    let mut table = Table::new(1, ["model".to_owned()].into_iter().chain(head));
    for predicted in all {
        let cell = |row: &CostRow| {
            let layers = row.model.as_ref().map_or(1.0, |model| model.speedup);
            format!("{:.3} {layers:.3}", row.speedup)
        };
        let cells = cooperative(predicted).iter().map(cell).collect::<Vec<_>>();
        table.row([predicted.name.clone()].into_iter().chain(cells));
    }
    table.print()?;
    output::line("")
}

fn plot(data: &str, config: &ModesConfig, all: &[Predicted]) -> Plot {
    let series = |name: &str, rows: &Vec<CostRow>| {
        let cooperative = rows.iter().filter(|row| row.mode == Mode::Cooperative && !is_p3(row));
        let machine = rows.first().map(|row| row.machine.clone()).unwrap_or_default();
        let points = cooperative.map(|row| (row.n_pes as f64, row.speedup)).collect();
        Series { name: format!("{name}, {machine}"), points }
    };
    let of_model = |predicted: &Predicted| {
        predicted.by_machine.iter().map(|rows| series(&predicted.name, rows)).collect::<Vec<_>>()
    };
    Plot {
        title: format!("Predicted speedup of cooperation on {data}, batches of {}", config.batch_size),
        x_label: "processing elements P".to_owned(),
        y_label: "speedup over independent".to_owned(),
        x_scale: Scale::Logarithmic,
        series: all.iter().flat_map(of_model).collect(),
        even: Some(1.0),
    }
}
