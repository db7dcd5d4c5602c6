//! Writing results to stdout and messages to stderr.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use cohop::{Error, Result};

/// What stdout is called in errors.
pub(super) const STDOUT: &str = "stdout";

/// Prints a line. A closed pipe (`cohop … | head`) is an error like any other, not a panic.
pub(super) fn line(text: impl std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| Error::io(STDOUT, e))
}

/// Prints a value as one line of JSON, piece by piece, as it may have a number for each class. NaN becomes `null`.
pub(super) fn json(value: &impl Serialize) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = serde_json::to_writer(&mut out, value).map_err(std::io::Error::from);
    written.and_then(|()| writeln!(out)).and_then(|()| out.flush()).map_err(|e| Error::io(STDOUT, e))
}

/// Whether a message was lost.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints a message to stderr. If that fails, there is nobody to tell: the exit status will.
pub(super) fn message(text: impl std::fmt::Display) {
    if writeln!(std::io::stderr().lock(), "{text}").is_err() {
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Whether a message could not be printed.
pub(super) fn lost_messages() -> bool {
    LOST.load(Ordering::Relaxed)
}

/// `Ok` if a file can be written here, which neither changes one that exists nor leaves one behind. To be asked before
/// the work whose result goes there, which `option` names.
pub(super) fn check_writable(option: &'static str, path: &Path) -> Result<()> {
    let io = |e: std::io::Error| {
        let error = match e.kind() {
            ErrorKind::NotFound => "its folder does not exist".to_owned(),
            ErrorKind::IsADirectory => "it is a folder".to_owned(),
            ErrorKind::NotADirectory => "a part of its path is a file".to_owned(),
            _ => e.to_string(),
        };
        Error::format(path, format!("cannot be written, as {option} asks: {error}"))
    };
    match fs::metadata(path) {
        Ok(existing) if existing.is_dir() => Err(io(ErrorKind::IsADirectory.into())),
        Ok(existing) if existing.is_file() => {
            OpenOptions::new().append(true).open(path).map(drop).map_err(io)
        }
        // A pipe or a device: to open it may mean to wait, or to begin.
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            OpenOptions::new().write(true).create_new(true).open(path).map_err(io)?;
            fs::remove_file(path).map_err(io)
        }
        Err(e) => Err(io(e)),
    }
}
