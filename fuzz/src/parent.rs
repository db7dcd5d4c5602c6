//! Starts children and sees how they end.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::{Options, Target};

/// Address space that a child may take, about ten times what it needs: what a size in a file asks for beyond it must be
/// an error.
const MEMORY_KIB: u64 = 1 << 20;

/// Blocks of 512 bytes that a file may take: files say how large they become when they are imported, too.
const FILE_BLOCKS: u64 = 1 << 16;

/// How long a round may take: a hundred times what it takes when others use the machine, too.
const SECONDS: Duration = Duration::from_secs(60);

/// So many findings of a target end its run.
const ENOUGH: usize = 10;

/// What came of the rounds of a target.
#[derive(Default)]
struct Tally {
    refused: u64,
    loaded: u64,
    found: usize,
}

pub fn run(targets: &[&Target], options: &Options) -> ExitCode {
    let mut found = 0;
    for target in targets {
        let start = Instant::now();
        let tally = match run_target(target, options) {
            Ok(tally) => tally,
            Err(error) => {
                eprintln!("{}: {error}", target.name);
                return ExitCode::FAILURE;
            }
        };
        println!(
            "{}: {} files refused, {} loaded and used, {} found, {:.1} s",
            target.name,
            tally.refused,
            tally.loaded,
            tally.found,
            start.elapsed().as_secs_f64()
        );
        found += tally.found;
    }
    if found > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn run_target(target: &Target, options: &Options) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    let mut next = options.first;
    let end = options.first + options.rounds;
    while next < end && tally.found < ENOUGH {
        let folder = tempfile::tempdir()?;
        let rest = Options {
            first: next,
            rounds: end - next,
            target: Some(target.name.to_owned()),
            ..options.clone()
        };
        let mut child = start(&rest, folder.path())?;
        let (round, problem) = watch(&mut child, next, &mut tally)?;
        next = round + 1;
        if let Some(problem) = problem {
            tally.found += 1;
            println!(
                "FOUND in {}: {problem}\n  again: tools/fuzz --target {} --seed {} --first {round} --rounds 1",
                target.name, target.name, options.seed
            );
        }
    }
    Ok(tally)
}

/// A child with limited memory, whose current folder is `folder`.
fn start(options: &Options, folder: &Path) -> std::io::Result<Child> {
    let mut command = Command::new("sh");
    command.args([
        "-c",
        &format!(
            "ulimit -v {MEMORY_KIB}; ulimit -c 0; trap '' XFSZ; ulimit -f {FILE_BLOCKS}; exec \"$0\" \"$@\""
        ),
    ]);
    command.arg(std::env::current_exe()?);
    command.args(["--rounds", &options.rounds.to_string(), "--first", &options.first.to_string()]);
    command.args([
        "--seed",
        &options.seed.to_string(),
        "--target",
        options.target.as_deref().unwrap_or_default(),
    ]);
    if let Some(keep) = &options.keep {
        command.arg("--keep").arg(std::path::absolute(keep)?);
    }
    command.arg("child").current_dir(folder);
    command.env("RAYON_NUM_THREADS", "2").env("MALLOC_ARENA_MAX", "2").env("RUST_BACKTRACE", "0");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits for a child: the round that it did last, and what was wrong with it.
fn watch(child: &mut Child, first: u64, tally: &mut Tally) -> std::io::Result<(u64, Option<String>)> {
    let (sender, lines) = mpsc::channel();
    let out = child.stdout.take();
    let reader = std::thread::spawn(move || {
        for line in out.into_iter().flat_map(|out| BufReader::new(out).lines()).map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let err = child.stderr.take();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        // A loop that warns without end must not fill the memory here.
        if let Some(mut err) = err {
            let _ = err.by_ref().take(1 << 16).read_to_end(&mut text);
            let _ = std::io::copy(&mut err, &mut std::io::sink());
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let (mut round, mut is_late) = (first, false);
    loop {
        match lines.recv_timeout(SECONDS) {
            Ok(line) if line == "refused" => tally.refused += 1,
            Ok(line) if line == "loaded" => tally.loaded += 1,
            Ok(line) => round = line.parse().unwrap_or(round),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                is_late = true;
                child.kill()?;
                break;
            }
        }
    }
    let status = child.wait()?;
    let text = errors.join().unwrap_or_default();
    let _ = reader.join();
    let problem = match (is_late, status.success()) {
        (true, _) => Some(format!("takes more than {} s", SECONDS.as_secs())),
        (false, true) => None,
        // The last lines say why; those before are of warnings.
        (false, false) => {
            let last: Vec<&str> = text.trim_end().lines().rev().take(12).collect();
            Some(format!("{status}\n  {}", last.into_iter().rev().collect::<Vec<_>>().join("\n  ")))
        }
    };
    Ok((round, problem))
}
