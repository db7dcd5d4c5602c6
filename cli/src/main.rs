//! The command line: `cohop train | infer | info | import | generate | study | bench | gradcheck`.
//!
//! Results go to stdout (with `--json` one JSON object per line and nothing else), progress and messages to stderr.
//! Exit status: 0 success, 1 failure (a file or folder that an option names cannot be read or written, too), 2 wrong
//! usage, 130 and 143 stopped by SIGINT and SIGTERM, 141 the reader of
//! stdout has gone.

mod bench;
mod data;
mod device;
mod environment;
mod generate;
mod given;
mod gradcheck;
mod import;
mod infer;
mod info;
mod number;
mod output;
mod plot;
mod progress;
mod settings;
mod signals;
mod study;
mod table;
mod train;

use std::io::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use log::{Level, LevelFilter};

use cohop::signals::{explain_aborts, explain_truncated_files};
use cohop::{Error, Result};
use given::Given;
use output::STDOUT;
use signals::Signals;

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
    #[arg(
        long,
        global = true,
        default_value = "cpu",
        value_name = "DEVICE",
        value_parser = number::setting::<device::DeviceName>
    )]
    device: device::DeviceName,
    /// Seed of everything random
    #[arg(long, global = true, default_value_t = 0, value_name = "S", value_parser = number::any::<u64>())]
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
    Import(Box<import::ImportArgs>),
    Bench(bench::BenchArgs),
    Study(Box<study::StudyArgs>),
    Gradcheck(gradcheck::GradcheckArgs),
}

/// The most compute threads.
const MAX_THREADS: u64 = 4096;

/// The exit status of wrong usage.
const USAGE: u8 = 2;

/// The exit status of a program that nobody reads any more: what a shell gives one that SIGPIPE ended.
const BROKEN_PIPE: u8 = 141;

fn main() -> ExitCode {
    let mut command = Cli::command();
    command.build();
    let parsed = command.clone().try_get_matches();
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, given) = match parsed {
        Ok((cli, matches)) => (cli, Given::of(&command, &matches)),
        Err(text) => return show(&text),
    };
    start_logging(&cli.global);
    environment::warn_of_unknown();
    if let Err(error) = explain_truncated_files().and_then(|()| explain_aborts()) {
        log::debug!("no handlers of SIGBUS and SIGABRT: {error}");
    }
    let status = run(&cli, &given).unwrap_or_else(|error| match error {
        // The reader of the output has read enough, as in `cohop train | head`: quietly, but not as a success.
        Error::Io { source, path } if source.kind() == ErrorKind::BrokenPipe && path == Path::new(STDOUT) => {
            ExitCode::from(BROKEN_PIPE)
        }
        error => {
            let status = if settings::is_usage(&error) { ExitCode::from(USAGE) } else { ExitCode::FAILURE };
            output::message(format_args!("cohop: {}", settings::as_options(error, &given)));
            status
        }
    });
    if status == ExitCode::SUCCESS && output::lost_messages() { ExitCode::FAILURE } else { status }
}

/// Prints help, the version, or what is wrong with the command line.
fn show(text: &clap::Error) -> ExitCode {
    match text.print() {
        _ if text.use_stderr() => ExitCode::from(USAGE),
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.kind() == ErrorKind::BrokenPipe => ExitCode::from(BROKEN_PIPE),
        Err(e) => {
            output::message(format_args!("cohop: {}", Error::io(STDOUT, e)));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli, given: &Given) -> Result<ExitCode> {
    // 0: as many as there are cores. Made here in any case, as the first use of a pool that cannot be made panics.
    rayon::ThreadPoolBuilder::new()
        .num_threads(cli.global.threads.unwrap_or(0))
        .build_global()
        .map_err(|e| Error::Worker { worker: "the thread pool".to_owned(), problem: e.to_string() })?;
    // The others leave something unfinished if they are ended at once.
    if let Command::Info(_) | Command::Bench(_) | Command::Study(_) | Command::Gradcheck(_) = &cli.command {
        Signals::end_at_once()?;
    }
    match &cli.command {
        Command::Train(args) => train::run(&cli.global, args, given),
        Command::Infer(args) => infer::run(&cli.global, args, given),
        Command::Info(args) => info::run(&cli.global, args),
        Command::Import(args) => import::run(&cli.global, args, given),
        Command::Generate(args) => generate::run(&cli.global, args),
        Command::Bench(args) => bench::run(&cli.global, args),
        Command::Study(args) => study::run(&cli.global, args, given),
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
        if !self.enabled(message.metadata()) {
            return;
        }
        let level = match message.level() {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug => "debug",
            Level::Trace => "trace",
        };
        // Where in the program a message comes from tells those something who ask for many.
        if log::max_level() >= LevelFilter::Debug {
            output::message(format_args!("{level}: {}: {}", message.target(), message.args()));
        } else {
            output::message(format_args!("{level}: {}", message.args()));
        }
    }

    fn flush(&self) {}
}
