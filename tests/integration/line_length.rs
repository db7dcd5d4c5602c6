//! No line is longer than 120 columns: rustfmt leaves comments and strings as they are, and does not read CUDA sources.

use std::path::Path;

use crate::common::files_below;

const LIMIT: usize = 120;
const FOLDERS: [&str; 8] = ["src", "cli", "import", "cuda", "tests", "benches", "examples", "fuzz"];
const EXTENSIONS: [&str; 5] = ["rs", "cu", "cuh", "h", "cpp"];

#[test]
fn no_line_is_longer_than_120_columns() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut checked, mut too_long) = (0, Vec::new());
    for folder in FOLDERS {
        for file in files_below(&root.join(folder), &EXTENSIONS) {
            let text = std::fs::read_to_string(&file).unwrap();
            for (i, line) in text.lines().enumerate() {
                checked += 1;
                let columns = line.chars().count();
                if columns > LIMIT {
                    let name = file.strip_prefix(root).unwrap().display();
                    too_long.push(format!("{name}:{}: {columns} columns", i + 1));
                }
            }
        }
    }
    assert!(checked > 30_000, "only {checked} lines found: is the search broken?");
    assert!(too_long.is_empty(), "wrap these lines at {LIMIT} columns:\n{}", too_long.join("\n"));
}
