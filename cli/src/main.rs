//! The command line: `cohop train | infer | info | generate | study | bench | gradcheck`.
//!
//! Results go to stdout (with `--json` one JSON object per line and nothing else), progress and messages to stderr.
//! Exit status: 0 success, 1 failure, 2 wrong usage.

mod bench;
mod data;
mod device;
mod generate;
mod gradcheck;
mod infer;
mod info;
mod number;
mod output;
mod plot;
mod progress;
mod study;
mod table;
mod train;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use log::LevelFilter;

use cohop::{Error, Result};

/// Cooperative multi-hop: minibatch training of graph neural networks.
#[derive(Debug, Parser)]
#[command(name = "cohop", version, about, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
struct Global {
    /// Number of compute threads (default: all cores)
    #[arg(long, global = true, value_name = "N", value_parser = number::between(1, MAX_THREADS))]
    threads: Option<usize>,
    /// Where to compute: cpu, cuda, or cuda:1 for the second GPU
    #[arg(long, global = true, default_value = "cpu", value_name = "DEVICE")]
    device: device::DeviceName,
    /// Seed of everything random
    #[arg(long, global = true, default_value_t = 0, value_name = "S")]
    seed: u64,
    /// Print one JSON object per line on stdout, and nothing else there
    #[arg(long, global = true)]
    json: bool,
    /// Show no progress
    #[arg(short, long, global = true)]
    quiet: bool,
    /// More messages (-v, -vv)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Train(Box<train::TrainArgs>),
    Infer(infer::InferArgs),
    Info(info::InfoArgs),
    Generate(generate::GenerateArgs),
    Bench(bench::BenchArgs),
    Study(Box<study::StudyArgs>),
    Gradcheck(gradcheck::GradcheckArgs),
}

/// The most compute threads.
const MAX_THREADS: u64 = 4096;

/// The status of wrong usage, as clap has it.
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    // Wrong usage ends the process here, with status 2.
    let cli = Cli::parse();
    start_logging(&cli.global);
    if let Err(error) = cohop::data::explain_truncated_files() {
        log::debug!("no handler of SIGBUS: {error}");
    }
    match run(&cli) {
        Ok(status) => status,
        // The reader of the output has read enough, as in `cohop train | head`.
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cohop: {error}");
            match error {
                Error::InvalidArgument { argument, .. } if argument.starts_with("--") => {
                    ExitCode::from(WRONG_USAGE)
                }
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(cli: &Cli) -> Result<ExitCode> {
    if let Some(threads) = cli.global.threads {
        rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build_global()
            .map_err(|e| Error::Worker { worker: "the thread pool".to_owned(), problem: e.to_string() })?;
    }
    match &cli.command {
        Command::Train(args) => train::run(&cli.global, args),
        Command::Infer(args) => infer::run(&cli.global, args),
        Command::Info(args) => info::run(&cli.global, args),
        Command::Generate(args) => generate::run(&cli.global, args),
        Command::Bench(args) => bench::run(&cli.global, args),
        Command::Study(args) => study::run(&cli.global, args),
        Command::Gradcheck(args) => gradcheck::run(&cli.global, args),
    }
}

fn start_logging(global: &Global) {
    let level = match (global.quiet, global.verbose) {
        (true, _) => LevelFilter::Error,
        (_, 0) => LevelFilter::Warn,
        (_, 1) => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    };
    let asked = std::env::var("COHOP_LOG").ok();
    let named = asked.as_deref().map(str::parse);
    log::set_max_level(match named {
        Some(Ok(level)) => level,
        _ => level,
    });
    // Fails only if there is a logger already.
    let _ = log::set_logger(&Messages);
    if let (Some(asked), Some(Err(_))) = (&asked, &named) {
        log::warn!("COHOP_LOG is {asked}: expected off, error, warn, info, debug or trace");
    }
}

/// Prints messages of the library and of this program to stderr, one per line.
struct Messages;

impl log::Log for Messages {
    fn enabled(&self, message: &log::Metadata<'_>) -> bool {
        message.target().starts_with("cohop")
    }

    fn log(&self, message: &log::Record<'_>) {
        if self.enabled(message.metadata()) {
            eprintln!(
                "{}: {}: {}",
                message.level().as_str().to_lowercase(),
                message.target(),
                message.args()
            );
        }
    }

    fn flush(&self) {}
}
