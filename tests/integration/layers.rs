//! The floors of ARCHITECTURE.md: a module imports only from lower floors, and from its own floor only where named
//! here. The command line and the examples stand above the library, and use nothing but its public interface.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::files_below;

/// Modules by floor.
const FLOORS: &[&[&str]] = &[
    &["error", "rng", "array", "huge_pages", "signals", "testing"],
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
    ("rng", "testing"),
    ("array", "error"),
    ("array", "huge_pages"),
    ("signals", "array"),
    ("device", "graph"),
    ("block", "pattern"),
    ("tape", "pattern"),
    ("tape", "block"),
    ("tape", "tensor"),
];

/// What only the command line is built with: it must not become a dependency of the library.
const PROGRAM_ONLY: [&str; 4] = ["clap", "indicatif", "plotters", "tracing_subscriber"];

/// The names that follow `prefix`, which is `crate::` or the like, in a source text without its comments.
fn names_after(text: &str, prefix: &str) -> Vec<String> {
    let mut names = Vec::new();
    for line in text.lines() {
        let code = line.split("//").next().unwrap();
        for (position, _) in code.match_indices(prefix) {
            let is_part_of_a_name = code[..position].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let rest = &code[position + prefix.len()..];
            if !is_part_of_a_name {
                names.push(rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
        }
    }
    names
}

/// The modules named by `crate::…` in a source text; `use crate::{a, b}` is refused to keep this simple.
fn imports(text: &str) -> Vec<String> {
    for line in text.lines() {
        assert!(!line.trim_start().starts_with("use crate::{"), "import one module a line: {line}");
    }
    names_after(text, "crate::")
}

/// Whether something is below a module's floor, and if not, why that is an error.
fn check_floor(module: &str, floor: usize, import: &str, other: usize) -> Result<(), String> {
    if module == import || other < floor || SAME_FLOOR.contains(&(module, import)) {
        return Ok(());
    }
    let reason = if other == floor {
        "modules of one floor do not know each other, unless SAME_FLOOR in this test says who builds on whom"
    } else {
        "a floor must work without those above it"
    };
    Err(format!(
        "{module} (floor {floor}) imports crate::{import} (floor {other}): {reason} (ARCHITECTURE.md). Move what both \
         need to a lower floor, or let the caller pass it in"
    ))
}

#[test]
fn no_module_imports_from_a_higher_floor() {
    let floor_of: BTreeMap<&str, usize> =
        FLOORS.iter().enumerate().flat_map(|(i, names)| names.iter().map(move |n| (*n, i))).collect();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in files_below(&source, &["rs"]) {
        let relative = file.strip_prefix(&source).unwrap();
        let first = relative.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = first.trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let floor =
            *floor_of.get(module).unwrap_or_else(|| panic!("{module} has no floor: add it to FLOORS here"));
        for import in imports(&std::fs::read_to_string(&file).unwrap()) {
            match floor_of.get(import.as_str()) {
                Some(&other) => {
                    checked += 1;
                    if let Err(reason) = check_floor(module, floor, &import, other) {
                        wrong.push(format!("{}: {reason}", relative.display()));
                    }
                }
                // `crate::Error` and the like: re-exports of the root.
                None if import.starts_with(char::is_uppercase) => {}
                None => wrong.push(format!(
                    "{}: crate::{import} has no floor: add it to FLOORS in this test",
                    relative.display()
                )),
            }
        }
    }
    assert!(checked > 100, "only {checked} imports found: is the search broken?");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_command_line_and_the_examples_use_the_public_interface_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let library = std::fs::read_to_string(root.join("src/lib.rs")).unwrap();
    let modules: Vec<&str> = FLOORS.concat();
    let is_public = |name: &str| {
        let is_module = modules.contains(&name);
        // Of what is no module, the compiler knows best whether the root exports it.
        name.is_empty() || !is_module || library.lines().any(|line| line == format!("pub mod {name};"))
    };
    let (mut checked, mut wrong) = (0, Vec::new());
    for folder in ["cli", "import", "examples"] {
        for file in files_below(&root.join(folder), &["rs"]) {
            let name = file.strip_prefix(root).unwrap().display().to_string();
            let text = std::fs::read_to_string(&file).unwrap();
            for item in names_after(&text, "cohop::") {
                checked += 1;
                if !is_public(&item) {
                    wrong
                        .push(format!("{name} uses cohop::{item}, which is hidden: only what is documented"));
                }
            }
            for way in ["#[path", "include!("] {
                if text.contains(way) {
                    wrong
                        .push(format!("{name} has {way}: it must not compile sources of the library itself"));
                }
            }
        }
    }
    for file in files_below(&root.join("src"), &["rs"]) {
        let text = std::fs::read_to_string(&file).unwrap();
        for package in PROGRAM_ONLY {
            if !names_after(&text, &format!("{package}::")).is_empty() {
                let name = file.strip_prefix(root).unwrap().display();
                wrong.push(format!("{name} uses {package}, which only the command line may be built with"));
            }
        }
    }
    assert!(checked > 50, "only {checked} imports found: is the search broken?");
    assert!(
        wrong.is_empty(),
        "the library's floors end below the program (ARCHITECTURE.md):\n{}",
        wrong.join("\n")
    );
}

#[test]
fn a_broken_floor_is_found_and_explained() {
    assert_eq!(imports("use crate::graph::Graph;\nlet x = crate::rng::a; // crate::nn"), ["graph", "rng"]);
    assert_eq!(check_floor("device", 1, "graph", 1), Ok(()));
    assert_eq!(check_floor("train", 5, "graph", 1), Ok(()));
    assert!(check_floor("graph", 1, "device", 1).unwrap_err().contains("SAME_FLOOR"));
    assert!(check_floor("graph", 1, "train", 5).unwrap_err().contains("without those above"));
}
