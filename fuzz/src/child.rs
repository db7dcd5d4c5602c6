//! Rounds of one target, one after another.

use std::io::Write;
use std::process::ExitCode;

use crate::random::Random;
use crate::{End, Options, Target};

/// The exit status of a round that was not as it should be.
pub const FOUND: u8 = 3;

/// A line with its number at the beginning of each round, at its end a letter for what came of it.
fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{text}").and_then(|()| out.flush());
    if written.is_err() {
        // The parent has gone.
        std::process::exit(1);
    }
}

pub fn run(target: &Target, options: &Options) -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        // Also where the library would have caught it.
        eprintln!("{panic}");
        std::process::exit(i32::from(FOUND));
    }));
    let samples = match (target.samples)() {
        Ok(samples) => samples,
        Err(error) => {
            eprintln!("no samples: {error}");
            return ExitCode::FAILURE;
        }
    };
    let folder = match &options.keep {
        Some(folder) => folder.clone(),
        // The parent removes it.
        None => std::env::current_dir().unwrap_or_default(),
    };
    for round in options.first..options.first + options.rounds {
        say(round);
        // Each round has draws of its own, so that one alone can be done again.
        let mut random = Random(options.seed.wrapping_mul(1 << 40).wrapping_add(round));
        let before = &samples[random.index(samples.len())];
        let mut files = before.clone();
        (target.change)(&mut files, &mut random);
        let fresh = folder.join("round");
        let written = remove(&fresh).and_then(|()| std::fs::create_dir_all(&fresh)).and_then(|()| {
            files.iter().try_for_each(|(name, bytes)| {
                let path = fresh.join(name);
                path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                std::fs::write(path, bytes)
            })
        });
        if let Err(error) = written {
            eprintln!("{}: {error}", fresh.display());
            return ExitCode::FAILURE;
        }
        match (target.load)(&fresh, before, &mut random) {
            Ok(End::Refused) => say("refused"),
            Ok(End::Loaded) => say("loaded"),
            Err(problem) => {
                eprintln!("{problem}");
                return ExitCode::from(FOUND);
            }
        }
    }
    ExitCode::SUCCESS
}

fn remove(folder: &std::path::Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
