//! `cohop study`

mod cost;
mod cost_models;
mod inference;
mod kappa;
mod memory;
mod models;
mod modes;
mod step_seconds;
mod work;

use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::device::DeviceName;
use super::given::Given;
use super::plot::Plot;
use super::{Global, output, plot};
use cohop::data::{self, Dataset};
use cohop::study::Listener;
use cohop::{Error, Result};

/// Run the experiments of Cooperative Minibatching (TMLR 2025) and of SALIENT (MLSys 2022)
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cohop study work --data rmat --plot work.svg
  cohop study kappa --data ../shared/data/coauthor_physics.npz --cache-rows 2000,8000 --train 20
  cohop study modes --data rmat --batch-size 1024 --sampler labor0
  cohop study modes --data rmat --pes 2,4 --time --model gin
  cohop study cost --data rmat --machine 8xA100,8xH200 --miss-rate 0.3 --plot speedup.png
  cohop study cost --data rmat --machine 8xA100 --model gcn,gat,rgcn --relations 4
  cohop study memory --data rmat --model sage --pes 1,4,8 --plot memory.svg
  cohop study inference --checkpoint run1 --fanouts-each 5,10,20 --plot inference.svg")]
pub(super) struct StudyArgs {
    #[command(subcommand)]
    study: Study,
}

#[derive(Debug, Subcommand)]
enum Study {
    Work(work::WorkArgs),
    Kappa(kappa::KappaArgs),
    Modes(modes::ModesArgs),
    Cost(cost::CostArgs),
    Memory(memory::MemoryArgs),
    Inference(inference::InferenceArgs),
}

/// Options of all studies.
#[derive(Debug, Args)]
struct Common {
    /// A folder of .npy files, an .npz file, or a built-in data set: sbm, rmat
    #[arg(long, default_value = "rmat")]
    data: String,
    /// Draw the result to a file that ends in .svg or .png
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

impl Common {
    fn load(&self) -> Result<Arc<Dataset>> {
        plot::check(self.plot.as_deref())?;
        data::load(&self.data).map(Arc::new)
    }

    /// Draws the plot if `--plot` was given.
    fn draw(&self, plot: impl FnOnce() -> Plot) -> Result<()> {
        self.plot.as_ref().map_or(Ok(()), |path| plot().write(path))
    }
}

pub(super) fn run(global: &Global, args: &StudyArgs, given: &Given) -> Result<ExitCode> {
    if global.device != DeviceName::Cpu {
        let found = format!("{:?}", global.device).to_lowercase();
        return Err(Error::invalid("--device", found, "cpu: studies count on the host"));
    }
    match &args.study {
        Study::Work(args) => work::run(global, args),
        Study::Kappa(args) => kappa::run(global, args, given),
        Study::Modes(args) => modes::run(global, args),
        Study::Cost(args) => cost::run(global, args, given),
        Study::Memory(args) => memory::run(global, args, given),
        Study::Inference(args) => inference::run(global, args, given),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// `Ok` if no value of a list is there twice: its rows would be counted, and drawn, twice.
fn check_distinct<T: PartialEq + Display>(option: &'static str, values: &[T]) -> Result<()> {
    let again = values.iter().enumerate().find(|&(i, value)| values[..i].contains(value));
    again.map_or(Ok(()), |(_, value)| {
        Err(Error::invalid(option, format!("a list with {value} twice"), "each value once"))
    })
}

/// Prints one JSON object per row.
fn json_lines(rows: &[impl serde::Serialize]) -> Result<()> {
    rows.iter().try_for_each(output::json)
}

/// A bar of the study's steps.
struct Bar(ProgressBar);

impl Bar {
    fn new(global: &Global) -> Self {
        // Without a terminal on stderr indicatif draws nothing.
        let target = if global.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let style = ProgressStyle::with_template("[{bar:20}] {pos}/{len} {elapsed} {wide_msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        Bar(ProgressBar::with_draw_target(None, target).with_style(style.progress_chars("=> ")))
    }
}

impl Listener for Bar {
    fn step(&mut self, done: usize, total: usize, what: &str) {
        self.0.set_length(total as u64);
        self.0.set_message(what.to_owned());
        self.0.set_position(done as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
