//! `cohop info`

use std::process::ExitCode;

use clap::Args;

use super::{Global, output};
use cohop::Result;
use cohop::data;

/// Show what a data set holds: counts, degrees, splits, memory
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cohop info sbm\n  cohop info ../shared/data/cora.npz --json")]
pub(super) struct InfoArgs {
    /// A folder of .npy files, an .npz file, or a built-in data set: sbm, rmat
    data: String,
}

pub(super) fn run(global: &Global, args: &InfoArgs) -> Result<ExitCode> {
    let summary = data::load(&args.data)?.summary();
    if global.json {
        output::json(&summary)?
    } else {
        output::line(summary)?
    }
    Ok(ExitCode::SUCCESS)
}
