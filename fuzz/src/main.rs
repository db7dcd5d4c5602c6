//! Changes files at random, loads each and uses what was loaded.
//!
//! `tools/fuzz` says what is demanded. All is done by child processes with limited memory, which say which round they
//! begin; this one sees how they end.

mod checkpoint;
mod child;
mod data_set;
mod import;
mod mutate;
mod parent;
#[path = "../../src/testing/random.rs"]
mod random;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use random::Random;

/// A file's name below the round's folder, and its bytes.
type File = (String, Vec<u8>);

/// What came of a file that could be read or not.
enum End {
    /// An error said why not.
    Refused,
    /// It could, and was used.
    Loaded,
}

/// A kind of file.
struct Target {
    name: &'static str,
    /// Files as they should be, once for each process.
    samples: fn() -> cohop::Result<Vec<Vec<File>>>,
    /// Changes files.
    change: fn(&mut Vec<File>, &mut Random),
    /// Loads what is in the folder and uses it; with the files as they were. Errors are what must not be.
    load: fn(&Path, &[File], &mut Random) -> Result<End, String>,
}

/// To add a format, add a file like `data_set.rs` and a line here.
const TARGETS: &[Target] = &[
    data_set::NPY,
    data_set::FOLDER,
    data_set::NPZ,
    checkpoint::DAMAGED,
    checkpoint::FORGED,
    import::EDGES,
    import::MATRIX_MARKET,
    import::NPZ_CSR,
    import::EDGE_INDEX,
    import::OGB,
    import::GRAPHBOLT,
];

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    child: Option<Child>,
    #[command(flatten)]
    options: Options,
}

#[derive(Args, Clone)]
struct Options {
    /// How many changed files of each kind
    #[arg(long, default_value_t = 1000)]
    rounds: u64,
    /// The first of them, to do one again: with --rounds 1
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Other seeds, other changes
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Only this kind, by the name that a run of all prints [default: all]
    #[arg(long)]
    target: Option<String>,
    /// Keep the files of the last round in this folder
    #[arg(long, value_name = "DIR")]
    keep: Option<std::path::PathBuf>,
}

#[derive(Subcommand)]
enum Child {
    /// What the program runs, with limited memory, to have rounds done
    #[command(hide = true)]
    Child,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen =
        |target: &&Target| arguments.options.target.as_deref().is_none_or(|name| name == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(chosen).collect();
    if targets.is_empty() {
        eprintln!("there is no such target");
        return ExitCode::from(2);
    }
    match arguments.child {
        Some(Child::Child) => child::run(targets[0], &arguments.options),
        None => parent::run(&targets, &arguments.options),
    }
}
