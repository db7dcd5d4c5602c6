//! Writing results to stdout.

use std::io::Write;

use serde::Serialize;

use cohop::{Error, Result};

/// Prints a line. A closed pipe (`cohop … | head`) is an error like any other, not a panic.
pub(super) fn line(text: impl std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(|e| Error::io("stdout", e))
}

/// Prints a value as one line of JSON. NaN becomes `null`.
pub(super) fn json(value: &impl Serialize) -> Result<()> {
    line(serde_json::to_string(value).map_err(|e| Error::format("stdout", e))?)
}
