//! `cohop info`

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::data::DataArgs;
use super::{Global, output};
use cohop::Result;
use cohop::data::Summary;

/// Show what a data set holds: counts, degrees, splits, memory; what loading converted; and what looks odd
///
/// Reads the whole graph, and up to 2^28 elements of the features. In a graph of more than 2^26 edges, the share of
/// edges without a reverse edge is estimated from 2^18 of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cohop info\n  cohop info --data ../shared/data/cora.npz --json")]
pub(super) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Info {
    #[serde(flatten)]
    summary: Summary,
    /// What loading had to convert, for people.
    converted: Vec<String>,
    /// What may be wrong with the data, for people; the counts are among the other fields.
    worth_a_look: Vec<String>,
}

pub(super) fn run(global: &Global, args: &InfoArgs) -> Result<ExitCode> {
    let (dataset, converted) = args.data.load_with_notes()?;
    let summary = dataset.summary()?;
    if global.json {
        let worth_a_look = summary.oddities();
        output::json(&Info { summary, converted, worth_a_look })?
    } else {
        output::line(summary)?;
        for note in converted {
            output::line(format_args!("converted on loading: {note}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
