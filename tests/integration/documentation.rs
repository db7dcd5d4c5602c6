//! Every public function that returns `Result` says in its documentation when it fails.

use std::path::Path;

use crate::common::files_below;

/// Whether the file holds only tests.
fn is_test(relative: &Path) -> bool {
    relative.components().any(|part| {
        let part = part.as_os_str().to_str().unwrap().trim_end_matches(".rs");
        ["tests", "testing", "test_kernels"].contains(&part)
    })
}

/// The function's name if `code` begins a function: a public one, or with `in_trait` any.
fn function_name(code: &str, in_trait: bool) -> Option<&str> {
    let rest = match code.strip_prefix("pub ") {
        Some(rest) => rest,
        None if in_trait => code,
        None => return None,
    };
    let rest = ["const ", "unsafe "].iter().fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

/// Whether a signature, from `fn` to the body or semicolon, returns `Result`.
fn returns_result(signature: &str) -> bool {
    // An argument may be a closure that returns `Result`: find the arrow that no bracket encloses.
    let mut depth = 0;
    for (position, c) in signature.char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '>' if depth == 0 && signature[..position].ends_with('-') => {
                let returned = signature[position + 1..].trim_start();
                let first = returned.split(['<', ' ', '{', ';']).next().unwrap();
                return first.rsplit("::").next() == Some("Result");
            }
            _ => {}
        }
    }
    false
}

/// The names of the public functions in a source text that return `Result`, each with whether "Errors:" is in its
/// documentation. Relies on the layout of `cargo fmt`.
fn fallible_functions(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    let (mut in_trait, mut has_errors) = (false, false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let code = line.trim_start();
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| next.contains("mod tests {")) {
            break;
        }
        if code.starts_with("///") {
            has_errors |= code.contains("Errors:");
            continue;
        }
        if code.starts_with('#') || code.starts_with("//") {
            continue;
        }
        if line.starts_with("pub trait ") || line.starts_with("pub unsafe trait ") {
            in_trait = true;
        } else if line == "}" {
            in_trait = false;
        }
        if let Some(name) = function_name(code, in_trait) {
            let mut signature = code.to_owned();
            while !signature.ends_with(['{', ';', '}']) {
                signature += lines.next().expect("a signature ends").trim();
            }
            if returns_result(&signature) {
                found.push((name, has_errors));
            }
        }
        has_errors = false;
    }
    found
}

#[test]
fn every_fallible_public_function_says_when_it_fails() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut checked, mut missing) = (0, Vec::new());
    for file in files_below(&source, &["rs"]) {
        let relative = file.strip_prefix(&source).unwrap();
        if is_test(relative) {
            continue;
        }
        for (name, has_errors) in fallible_functions(&std::fs::read_to_string(&file).unwrap()) {
            checked += 1;
            if !has_errors {
                missing.push(format!("src/{}: {name}", relative.display()));
            }
        }
    }
    assert!(checked > 100, "only {checked} fallible functions found: is the search broken?");
    assert!(missing.is_empty(), "no \"Errors:\" sentence in the documentation of\n{}", missing.join("\n"));
}

#[test]
fn the_search_tells_fallible_functions_from_others() {
    let text = "
/// Reads.
///
/// Errors: the file is missing.
#[inline]
pub fn read(path: &Path) -> Result<()> {
/// Calls.
pub fn call(
    body: impl Fn(usize) -> Result<()>,
) -> crate::Result<u32>
where
    T: Send,
{
/// Cannot fail, though its argument can.
pub fn spawn(body: impl Fn(usize) -> Result<()>) -> usize {
pub trait Source {
    /// Next.
    fn next(&mut self) -> std::io::Result<Option<u32>>;
}
fn private() -> Result<()> {
pub(crate) fn internal() -> Result<()> {
#[cfg(test)]
mod tests {
    pub fn helper() -> Result<()> {
";
    assert_eq!(fallible_functions(text), [("read", true), ("call", false), ("next", false)]);
}
