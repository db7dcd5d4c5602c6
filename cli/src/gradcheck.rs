//! `cohop gradcheck`

use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use super::device::on_device;
use super::{Global, USAGE, output};
use cohop::device::Device;
use cohop::{Result, nn, tape};

/// Compare every operation's and layer's gradient with central differences in f64
///
/// Checks each on shapes with 0 rows, 0 edges, one row, one column, isolated destinations and a hub, with a random
/// cotangent. Exit status 1 if one differs by more than 1e-6.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  cohop gradcheck\n  cohop gradcheck gin --seed 7")]
pub(super) struct GradcheckArgs {
    /// Check only operations and layers whose names contain this
    filter: Option<String>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    derivatives: usize,
    max_relative_error: f64,
    passed: bool,
}

pub(super) fn run(global: &Global, args: &GradcheckArgs) -> Result<ExitCode> {
    on_device!(global.device, f64, device => run_on(device, global, args))
}

fn run_on<D: Device<Scalar = f64>>(device: D, global: &Global, args: &GradcheckArgs) -> Result<ExitCode> {
    let filter = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let matches = |name: &str| name.to_lowercase().contains(&filter);
    let cases = || tape::gradcheck::operations::<D>().into_iter().chain(nn::gradcheck::layers());
    if !cases().any(|case| matches(case.name)) {
        let names: Vec<&str> = cases().map(|case| case.name).collect();
        let names = names.join("\n  ");
        eprintln!("cohop: no operation or layer has {filter:?} in its name; there are\n  {names}");
        return Ok(ExitCode::from(USAGE));
    }
    let mut all_passed = true;
    if !global.json {
        output::line(format_args!(
            "{:<32} {:>12} {:>15}",
            "operation or layer", "derivatives", "relative error"
        ))?;
    }
    for case in cases().filter(|case| matches(case.name)) {
        let report = case.run_all(&device, global.seed)?;
        let row = Row {
            name: case.name,
            derivatives: report.derivatives,
            max_relative_error: report.max_relative_error,
            passed: report.passed(),
        };
        all_passed &= row.passed;
        if global.json {
            output::json(&row)?;
        } else {
            let verdict = if row.passed { "" } else { "  DISAGREES" };
            output::line(format_args!(
                "{:<32} {:>12} {:>15.1e}{verdict}",
                row.name, row.derivatives, row.max_relative_error
            ))?;
        }
    }
    Ok(if all_passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
