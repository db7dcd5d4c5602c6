//! What several tests need.

use std::io::Write;
use std::path::{Path, PathBuf};

/// A path below the folder of shared test data: `$COHOP_SHARED`, else `../shared` beside the repository. Where it is
/// absent, says so on stderr, and the caller is expected to pass.
pub fn shared(path: impl AsRef<Path>) -> Option<PathBuf> {
    let root = std::env::var_os("COHOP_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let full = root.join(path);
    if full.exists() {
        return Some(full);
    }
    let text =
        format!("SKIPPED: {} is absent: set COHOP_SHARED to the folder of shared data\n", full.display());
    // Not by `eprintln!`, which the test harness keeps to itself when a test passes.
    let _ = std::io::stderr().write_all(text.as_bytes());
    None
}

/// Whether the long forms of tests are asked for (`COHOP_LONG=1`).
pub fn long() -> bool {
    std::env::var_os("COHOP_LONG").is_some_and(|v| v == "1")
}
