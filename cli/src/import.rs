//! `cohop import`

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::PoisonError;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::given::Given;
use super::signals::{Signals, remove_folder};
use super::{Global, number, output};
use cohop::data::FeatureDtype;
use cohop::{Error, Result};
use cohop_import::{Column, EdgeText, Format, Options, ReadOptions, Rows, SelfLoops, SplitFrom};

/// Make a data set folder of files of another format
///
/// Memory is bounded by --memory, however large the files are. The folder appears when all is done; an import that is
/// interrupted leaves nothing.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop import edges soc-LiveJournal1.txt.gz --out livejournal --undirected
  cohop import edges trades.csv --columns source,destination,weight,-,time --ids map --labels kinds.csv --out trades
  cohop import edges facts.tsv --columns source,type,destination --ids map --features x.csv --features-by-id --out facts
  cohop import mtx web.mtx.gz --rows sources --out web
  cohop import npz-csr adjacency.npz --rows sources --labels y.npy --features x.npy --split .6,.2,.2 --out set
  cohop import edge-index edges.npy --split train_mask.npy,val_mask.npy,test_mask.npy --out set
  cohop import ogb dataset/ogbn_products --out products
  cohop import graphbolt datasets/ogbn-arxiv --out arxiv")]
pub(super) struct ImportArgs {
    /// The format of the input
    #[arg(value_enum)]
    format: FormatName,
    /// The file or folder; of edges several files, which are read one after the other
    #[arg(value_name = "IN", required = true)]
    inputs: Vec<PathBuf>,
    /// The folder to make
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
    /// Replace the folder if it exists
    #[arg(long)]
    overwrite: bool,
    /// Memory to take, in MiB; more than that of files goes through the disk
    #[arg(long, default_value_t = 2048, value_name = "MIB", value_parser = number::between(16, 1 << 30))]
    memory: usize,
    /// What the columns of text hold: source, destination, weight, type, time, or - for what is not read. Types are
    /// numbers, or names, which are numbered in their sorted order (with relations.txt to tell). A header that says
    /// otherwise is refused
    #[arg(
        long,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_value = "source,destination",
        allow_hyphen_values = true,
        help_heading = "Text",
        value_parser = number::setting::<Column>
    )]
    columns: Vec<Column>,
    /// Whether the first line of text names columns [default: if what must be numbers are none; with --ids map also if
    /// ends have names like source and target]
    #[arg(long, value_name = "true|false", help_heading = "Text")]
    header: Option<bool>,
    /// Ids are vertex numbers, or are numbered by first appearance (with ids.txt to tell). Ids of --labels and --split
    /// are of the same kind: in arrays, those that are integers
    #[arg(long, value_enum, default_value_t = IdsName::Numbers, help_heading = "Text")]
    ids: IdsName,
    /// Matrices: does entry (i, j) mean an edge from i (rows are sources) or to i (rows are destinations)?
    #[arg(long, value_enum, help_heading = "Edges")]
    rows: Option<RowsName>,
    /// Vertices there are [default: what the format says, or one more than the largest id]
    #[arg(long, value_name = "N", help_heading = "Edges", value_parser = number::any::<u64>())]
    num_vertices: Option<u64>,
    /// Turn all edges around
    #[arg(long, help_heading = "Edges")]
    reverse: bool,
    /// Add the reverse of each edge, unless it is there
    #[arg(long, help_heading = "Edges")]
    undirected: bool,
    /// Make parallel edges of the same relation one, of the sum of their weights
    #[arg(long, help_heading = "Edges")]
    deduplicate: bool,
    /// Self-loops: add one to each vertex that has none, remove all, or keep what there is
    #[arg(
        long,
        value_name = "add|remove|keep",
        default_value = "keep",
        help_heading = "Edges",
        value_parser = number::setting::<SelfLoops>
    )]
    self_loops: SelfLoops,
    /// Leave out the values of matrices and the weights of edges
    #[arg(long, help_heading = "Edges")]
    no_weights: bool,
    /// Classes of vertices: .npy, or text of a class a line, or of id and class. In text, classes are numbers, or
    /// names, which are numbered in their sorted order (with classes.txt to tell); CSV with quotes is read
    #[arg(long, value_name = "FILE", help_heading = "Vertices")]
    labels: Option<PathBuf>,
    /// Which of several columns of labels is the class, from 0
    #[arg(long, value_name = "K", help_heading = "Vertices", value_parser = number::any::<usize>())]
    label_column: Option<usize>,
    /// Features of vertices, a row each in the order of their numbers: .npy, or text with commas and without a header
    #[arg(long, value_name = "FILE", help_heading = "Vertices")]
    features: Option<PathBuf>,
    /// Find rows of --features by id, in any order: of text the first column is the id, of .npy row k is that of id k
    #[arg(long, requires = "features", help_heading = "Vertices")]
    features_by_id: bool,
    /// Type of the features that are written [default: f32, or f16 where they are]
    #[arg(
        long,
        value_name = "f32|f16|bf16",
        help_heading = "Vertices",
        value_parser = number::setting::<FeatureDtype>
    )]
    feature_dtype: Option<FeatureDtype>,
    /// Training, validation and test vertices: fractions of those with labels (.6,.2,.2, drawn by --seed), or three
    /// files: .npy of ids or a mask each (or [vertices, splits] masks of several splits), or text of ids, one a line
    #[arg(long, value_name = "A,B,C", help_heading = "Vertices", value_parser = number::setting::<SplitFrom>)]
    split: Option<SplitFrom>,
    /// OGB: which of several splits, by name
    #[arg(long, value_name = "NAME", help_heading = "Vertices")]
    split_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// Text lists of edges (SNAP, KONECT, CSV, TSV), also .gz
    Edges,
    /// Matrix Market, also .gz
    Mtx,
    /// A sparse matrix of SciPy: CSR, CSC or COO
    NpzCsr,
    /// PyTorch Geometric's edge_index in .npy or .npz: [2, edges], or [edges, 2] unless there are 2 edges
    EdgeIndex,
    /// The folder of a node property set of OGB
    Ogb,
    /// The folder of an on-disk data set of GraphBolt
    Graphbolt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum IdsName {
    /// Vertex numbers from 0
    Numbers,
    /// Any text
    Map,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RowsName {
    Sources,
    Destinations,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(flatten)]
    summary: cohop::data::Summary,
    edges_read: u64,
    notes: &'a [String],
}

impl ImportArgs {
    fn options(&self, seed: u64, given: &Given) -> Result<(Format, Options)> {
        let format = match self.format {
            FormatName::Edges => Format::Edges,
            FormatName::Mtx => Format::MatrixMarket,
            FormatName::NpzCsr => Format::NpzCsr,
            FormatName::EdgeIndex => Format::EdgeIndex,
            FormatName::Ogb => Format::Ogb,
            FormatName::Graphbolt => Format::GraphBolt,
        };
        let only = |option: &'static str, given: bool, formats: &[FormatName]| {
            if !given || formats.contains(&self.format) {
                return Ok(());
            }
            let name = self.format.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned());
            Err(Error::invalid(option, "given", format!("none for the format {name}")))
        };
        use FormatName::{EdgeIndex, Edges, Graphbolt, Mtx, NpzCsr, Ogb};
        let text = EdgeText {
            columns: self.columns.clone(),
            header: self.header,
            map_ids: self.ids == IdsName::Map,
        };
        only("--columns", given.has("columns"), &[Edges])?;
        only("--header", text.header.is_some(), &[Edges])?;
        only("--ids", given.has("ids"), &[Edges])?;
        only("--rows", self.rows.is_some(), &[Mtx, NpzCsr])?;
        only("--num-vertices", self.num_vertices.is_some(), &[Edges, EdgeIndex])?;
        only("--no-weights", self.no_weights, &[Edges, Mtx, NpzCsr])?;
        only("--split-name", self.split_name.is_some(), &[Ogb])?;
        // These have labels and features themselves.
        let has_both = matches!(self.format, Ogb | Graphbolt);
        for (option, is_given, of, file) in [
            ("--label-column", self.label_column.is_some(), "--labels", &self.labels),
            ("--feature-dtype", self.feature_dtype.is_some(), "--features", &self.features),
        ] {
            if is_given && file.is_none() && !has_both {
                return Err(Error::invalid(option, "given", format!("none without {of}")));
            }
        }
        let read = ReadOptions {
            text,
            rows: self.rows.map(|rows| match rows {
                RowsName::Sources => Rows::Sources,
                RowsName::Destinations => Rows::Destinations,
            }),
            n_vertices: self.num_vertices,
            without_weights: self.no_weights,
            split_name: self.split_name.clone(),
            label_column: self.label_column,
            feature_dtype: self.feature_dtype,
            ..ReadOptions::default()
        };
        let options = Options {
            read,
            memory: (self.memory as u64) << 20,
            reverse: self.reverse,
            undirected: self.undirected,
            deduplicate: self.deduplicate,
            self_loops: self.self_loops,
            labels: self.labels.clone(),
            features: self.features.clone(),
            features_by_id: self.features_by_id,
            split: self.split.clone(),
            seed,
            overwrite: self.overwrite,
            ..Options::default()
        };
        Ok((format, options))
    }
}

pub(super) fn run(global: &Global, args: &ImportArgs, given: &Given) -> Result<ExitCode> {
    let (format, options) = args.options(global.seed, given)?;
    let signals = Signals::end_at_once()?;
    let bar = if global.quiet { ProgressBar::hidden() } else { ProgressBar::new(1000) };
    let style = ProgressStyle::with_template("{msg} [{bar:20}] {elapsed}");
    let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut progress = |what: &str, part: f64| {
        bar.set_message(what.to_owned());
        bar.set_position((1000.0 * part) as u64);
        if signals.came() { Err(Error::Interrupted { epochs: 0 }) } else { Ok(()) }
    };
    let unfinished = options.unfinished.clone();
    let clean_up = move || {
        if let Some(folder) = &*unfinished.lock().unwrap_or_else(PoisonError::into_inner) {
            remove_folder(folder);
        }
    };
    let imported = signals.hold(&args.out, clean_up, || {
        cohop_import::import(format, &args.inputs, &args.out, &options, &mut progress)
    });
    bar.finish_and_clear();
    let imported = match imported {
        Err(Error::Interrupted { .. }) => {
            output::message(format_args!("cohop: interrupted; nothing of the import is left"));
            return Ok(signals.status());
        }
        Ok((imported, None)) => imported,
        Ok((_, Some(status))) => return Ok(status),
        Err(error) => return Err(error),
    };
    // Trusted: just written.
    let trusted = cohop::data::LoadOptions { trust_indices: true };
    let summary = cohop::data::load_with(&args.out, &trusted)?.summary()?;
    if global.json {
        output::json(&Report { summary, edges_read: imported.edges_read, notes: &imported.notes })?;
        return Ok(ExitCode::SUCCESS);
    }
    for note in &imported.notes {
        output::line(note)?;
    }
    output::line(format_args!(
        "wrote {}: {} vertices, {} edges of {} read; cohop info tells more",
        args.out.display(),
        imported.vertices,
        imported.edges,
        imported.edges_read
    ))?;
    Ok(ExitCode::SUCCESS)
}
