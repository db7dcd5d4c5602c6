//! `cohop info`

use std::process::ExitCode;

use clap::Args;

use super::data::DataArgs;
use super::{Global, output};
use cohop::Result;

/// Show what a data set holds: counts, degrees, splits, memory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cohop info\n  cohop info --data ../shared/data/cora.npz --json")]
pub(super) struct InfoArgs {
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(global: &Global, args: &InfoArgs) -> Result<ExitCode> {
    let summary = args.data.load()?.summary()?;
    if global.json {
        output::json(&summary)?
    } else {
        output::line(summary)?
    }
    Ok(ExitCode::SUCCESS)
}
