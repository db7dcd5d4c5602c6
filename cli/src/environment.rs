//! Environment variables: those that nothing reads are most likely misspelt.

use std::ffi::OsString;

/// What this program reads.
const KNOWN: [&str; 2] = ["COHOP_LOG", "COHOP_VECTORS"];

/// What only builds, tests and benches read, and may well be set where this program runs too: names, and beginnings of
/// names.
const ELSEWHERE: [&str; 6] =
    ["COHOP_BENCH_", "COHOP_CUDA_", "COHOP_EMULATE", "COHOP_LONG", "COHOP_SHARED", "COHOP_TEST_"];

/// Warns of variables that begin with `COHOP_` and that nothing reads.
pub(super) fn warn_of_unknown() {
    for name in unknown(std::env::vars_os().map(|(name, _)| name)) {
        log::warn!("the environment variable {name} is unknown: known are {}", KNOWN.join(" and "));
    }
}

/// The unknown ones of these names, printable.
fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let is_known =
        |name: &str| KNOWN.contains(&name) || ELSEWHERE.iter().any(|beginning| name.starts_with(beginning));
    let mut unknown: Vec<String> = names
        .map(|name| name.to_string_lossy().escape_debug().to_string())
        .filter(|name| name.starts_with("COHOP_") && !is_known(name))
        .collect();
    unknown.sort();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_nothing_reads_are_unknown() {
        let names =
            ["COHOP_VECTOR", "COHOP_LOG", "COHOP_VECTORS", "HOME", "COHOP_TEST_CASES", "COHOP_\u{1b}"];
        assert_eq!(unknown(names.into_iter().map(OsString::from)), ["COHOP_VECTOR", "COHOP_\\u{1b}"]);
    }
}
