//! What several integration tests need.

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
    eprintln!(
        "SKIPPED: {} is absent; set COHOP_SHARED to the folder of shared data to run this test",
        full.display()
    );
    None
}
