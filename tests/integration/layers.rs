//! The house rule of DESIGN: a module imports only from lower floors, and from its own floor only where named here.

use std::collections::BTreeMap;
use std::path::Path;

/// Modules by floor.
const FLOORS: &[&[&str]] = &[
    &["error", "rng", "array", "huge_pages"],
    &["graph", "device"],
    &["pattern", "block", "tensor", "tape", "data"],
    &["sample", "comm", "cache"],
    &["coop"],
    &["batch"],
    &["nn"],
    &["train"],
    &["study"],
    &["prelude"],
];

/// Imports within a floor: what builds on what.
const SAME_FLOOR: &[(&str, &str)] = &[
    ("rng", "error"),
    ("array", "error"),
    ("array", "huge_pages"),
    ("device", "graph"),
    ("block", "pattern"),
    ("tape", "pattern"),
    ("tape", "block"),
    ("tape", "tensor"),
];

fn rust_files(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// The modules named by `crate::…` in a source text; `crate::{a, b}` is refused to keep this simple.
fn imports(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap();
        for (position, _) in code.match_indices("crate::") {
            let rest = &code[position + "crate::".len()..];
            assert!(
                !rest.starts_with('{') || !code.trim_start().starts_with("use"),
                "import one module a line: {line}"
            );
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            names.push(name);
        }
    }
    names
}

#[test]
fn no_module_imports_from_a_higher_floor() {
    let floor_of: BTreeMap<&str, usize> =
        FLOORS.iter().enumerate().flat_map(|(i, names)| names.iter().map(move |n| (*n, i))).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let mut checked = 0;
    for file in files {
        let relative = file.strip_prefix(&source).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let floor = *floor_of.get(module).unwrap_or_else(|| panic!("{module} has no floor: add it here"));
        for import in imports(&std::fs::read_to_string(&file).unwrap()) {
            let Some(&other) = floor_of.get(import.as_str()) else {
                // `crate::Error` and the like: re-exports of the root.
                assert!(
                    import.chars().next().is_none_or(char::is_uppercase),
                    "{}: crate::{import}",
                    relative.display()
                );
                continue;
            };
            let allowed =
                module == import || other < floor || SAME_FLOOR.contains(&(module, import.as_str()));
            assert!(
                allowed,
                "{} (floor {floor}) imports crate::{import} (floor {other})",
                relative.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 100, "only {checked} imports found: is the search broken?");
}
