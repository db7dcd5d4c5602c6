//! Data sets and surroundings that are not as they should be.

use std::path::Path;
use std::process::{Command, Output};

use cohop::data::npy::{self, Dtype};
use cohop::data::{Dataset, Features, Split};
use cohop::graph::Graph;

use super::command_line::{cohop, fails};

/// A ring of `n` vertices with three classes, as a folder.
fn ring(folder: &Path, n: u32, features: Features) {
    let edges: Vec<(u32, u32)> = (0..n).map(|v| (v, (v + 1) % n)).collect();
    let graph = Graph::from_edges(n.into(), &edges).unwrap();
    let labels: Vec<i32> = (0..n as i32).map(|v| v % 3).collect();
    let split = Split {
        train: (0..n / 2).collect(),
        val: (n / 2..n / 4 * 3).collect(),
        test: (n / 4 * 3..n).collect(),
    };
    Dataset::new("ring", graph, features, labels, 3, split).unwrap().write(folder).unwrap();
}

fn with_environment(folder: &Path, variable: (&str, &str), arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cohop"))
        .args(arguments.split_whitespace())
        .env(variable.0, variable.1)
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn unknown_variables_and_values_of_the_environment_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name, value, arguments| {
        let output = with_environment(folder.path(), (name, value), arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let stderr = run("COHOP_VECTOR", "avx2", "gradcheck relu");
    assert!(stderr.contains("COHOP_VECTOR is unknown: known are COHOP_LOG and COHOP_VECTORS"), "{stderr}");
    let stderr = run("COHOP_VECTORS", "avx3", "gradcheck relu");
    assert!(stderr.contains("COHOP_VECTORS is avx3: expected portable, avx2 or avx512"), "{stderr}");
    let stderr = run("COHOP_LOG", "loud", "gradcheck relu");
    assert!(stderr.contains("COHOP_LOG is loud: expected off"), "{stderr}");
    for (name, value) in [("COHOP_VECTORS", "portable"), ("COHOP_LOG", "warn"), ("COHOP_TEST_CASES", "1")] {
        assert_eq!(run(name, value, "gradcheck relu"), "");
    }
}

#[test]
fn gradcheck_of_an_unknown_name_lists_the_known_ones() {
    let folder = tempfile::tempdir().unwrap();
    let output = cohop(folder.path(), "gradcheck gim");
    fails(&output, 2, "\"gim\"");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(["\n  batch norm\n", "\n  GIN\n"].iter().all(|name| stderr.contains(name)), "{stderr}");
}

#[test]
fn a_feature_matrix_without_columns_is_called_that() {
    let folder = tempfile::tempdir().unwrap();
    ring(folder.path(), 100, Features::None);
    npy::write(&folder.path().join("feat.npy"), Dtype::F32, &[100, 0], &[0f32; 0]).unwrap();
    for sampler in ["neighbor", "full"] {
        let output = cohop(folder.path(), &format!("train --data . --epochs 1 --sampler {sampler}"));
        fails(&output, 1, "the number of feature columns is 0: expected at least one column");
    }
}
