//! Data sets and surroundings that are not as they should be.

use std::path::Path;
use std::process::{Command, Output};

use cohop::data::npy::{self, Dtype};
use cohop::data::{Dataset, Features, Split};
use cohop::graph::Graph;

use super::command_line::{cohop, fails, json_lines};

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

#[test]
fn info_says_what_was_converted_and_what_looks_odd() {
    let folder = tempfile::tempdir().unwrap();
    ring(folder.path(), 8, Features::None);
    let file = |name: &str| folder.path().join(name).with_extension("npy");
    // A mask for a list, rows out of order, labels with NaN, features of bytes.
    std::fs::remove_file(file("train_idx")).unwrap();
    npy::write(&file("train_mask"), Dtype::Bool, &[8], &[1u8, 1, 0, 0, 0, 0, 0, 0]).unwrap();
    let labels = [0.0, f32::NAN, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0];
    npy::write(&file("labels"), Dtype::F32, &[8], &labels).unwrap();
    npy::write(&file("indptr"), Dtype::U64, &[9], &[0u64, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
    npy::write(&file("indices"), Dtype::U32, &[9], &[7u32, 1, 0, 1, 2, 3, 4, 5, 6]).unwrap();
    npy::write(&file("feat"), Dtype::U8, &[8, 1], &[1u8; 8]).unwrap();
    let info = &json_lines(&cohop(folder.path(), "info --data . --json"))[0];
    let lists = |key: &str| -> Vec<String> {
        info[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap().to_owned()).collect()
    };
    let converted = lists("converted");
    let odd = lists("worth_a_look");
    assert_eq!(converted.len(), 4, "{converted:?}");
    for part in [
        "labels is converted from <f4 to <i4",
        "rows of indices do not ascend",
        "feat is converted from |u1 to <f4",
        "train_mask is turned into lists of vertices",
    ] {
        assert!(converted.iter().any(|line| line.starts_with(part)), "{part}: {converted:?}");
    }
    for part in ["1: training vertices without a label", "1: feature columns", "77.78 % of the edges"] {
        assert!(odd.iter().any(|line| line.starts_with(part)), "{part}: {odd:?}");
    }
    assert_eq!(info["unlabelled_in_split"][0], 1);
    assert_eq!((&info["edge_statistics"]["looked_at"], &info["vertices"]), (&9.into(), &8.into()));
    let text = String::from_utf8(cohop(folder.path(), "info --data .").stdout).unwrap();
    assert!(converted.iter().chain(&odd).all(|line| text.contains(line)), "{text}");
}

#[test]
fn arrays_that_no_data_set_has_are_told_of() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("set"), 12, Features::None);
    let run = |arguments: &str| cohop(folder.path(), arguments);
    assert!(run("info --data set").stderr.is_empty());
    let set = folder.path().join("set");
    std::fs::copy(set.join("train_idx.npy"), set.join("train_ids.npy")).unwrap();
    std::fs::copy(set.join("train_idx.npy"), set.join("foo.npy")).unwrap();
    let stderr = String::from_utf8(run("info --data set").stderr).unwrap();
    assert!(stderr.contains("train_ids is not used") && stderr.contains("train_idx is meant?"), "{stderr}");
    assert!(
        stderr.contains("warning: array foo is not used: no data set has one of this name\n"),
        "{stderr}"
    );
    let stderr = String::from_utf8(run("info --data set -v").stderr).unwrap();
    assert!(stderr.contains("warning: cohop::data::assemble: array foo is not used"), "{stderr}");
}

#[test]
fn generate_replaces_data_sets_only_and_only_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    assert!(run("generate --scale 6 --dim 2 --out set").status.success());
    fails(&run("generate --scale 6 --dim 2 --out set"), 1, "--overwrite");
    assert!(run("generate --scale 6 --dim 2 --out set --overwrite").status.success());
    std::fs::create_dir(folder.path().join("mine")).unwrap();
    assert!(run("generate --scale 6 --dim 2 --out mine").status.success(), "an empty folder");
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/thesis.txt"), "").unwrap();
    fails(&run("generate --scale 6 --dim 2 --out other --overwrite"), 1, "left as it is");
}

/// The program in as little memory as `limit` MiB of addresses.
#[cfg(target_os = "linux")]
fn with_memory(folder: &Path, limit: u64, arguments: &str) -> Output {
    let script = format!("ulimit -v {}; exec \"$0\" \"$@\"", limit << 10);
    Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_cohop")])
        .args(arguments.split_whitespace())
        .args(["--threads", "2", "--quiet"])
        .current_dir(folder)
        .output()
        .unwrap()
}

/// That a `generate --out more` that found no memory has not been aborted, and has left nothing, or all of it.
#[cfg(target_os = "linux")]
fn leaves_nothing_unfinished(folder: &Path, output: &Output, limit: u64) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let more = folder.join("more");
    if stderr.contains("SIGABRT") {
        // A library or the runtime found no memory for a few bytes, and nothing can be done after that.
        assert!(limit <= SMALLEST_LIMIT, "{limit} MiB: {stderr}");
        let _ = std::fs::remove_dir_all(&more);
    }
    if stderr.contains("more: is written and complete") {
        cohop::data::load(&more).unwrap();
        std::fs::remove_dir_all(&more).unwrap();
    }
    assert!(!more.exists(), "{stderr}");
}

/// About what an empty program needs, in MiB.
#[cfg(target_os = "linux")]
const SMALLEST_LIMIT: u64 = 48;

/// Whatever is the first to find no memory: status 1 and a message, no signal and no panic.
#[cfg(target_os = "linux")]
#[test]
fn too_little_memory_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    json_lines(&cohop(path, "generate --out data --scale 14 --edge-factor 8 --dim 256 --json --quiet"));
    let mut errors = Vec::new();
    for arguments in [
        "info --data data",
        "info --data sbm",
        "train --data data --epochs 1 --hidden 64 --batch-size 2048",
        "train --data data --epochs 1 --hidden 16 --sampler labor0 --kappa 64 --cache-rows 16384",
        "train --data data --epochs 1 --hidden 128 --sampler full",
        "train --data data --epochs 1 --hidden 16 --mode cooperative --pes 2 --partition random",
        "study work --data data --batch-sizes 1024 --batches 1",
        "generate --out more --scale 19 --edge-factor 2 --dim 4",
        "generate --out more --scale 16 --edge-factor 16 --dim 128 --classes 2000000 --memory 4",
    ] {
        let mut limit = SMALLEST_LIMIT;
        loop {
            let output = with_memory(path, limit, arguments);
            if output.status.success() {
                break;
            }
            if arguments.starts_with("generate") {
                leaves_nothing_unfinished(path, &output, limit);
            }
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            // Another thread that finds no memory either may say so meanwhile.
            let last = stderr.lines().rfind(|line| line.starts_with("cohop: ")).unwrap_or_default();
            let is_error = output.status.code() == Some(1) && !last.is_empty();
            assert!(is_error && !stderr.contains("panicked"), "{arguments} in {limit} MiB: {output:?}");
            errors.push(last.to_owned());
            limit += limit / 4;
            assert!(limit < 4000, "{arguments}: {stderr}");
        }
        let _ = std::fs::remove_dir_all(path.join("more"));
    }
    let saying = |texts: &[&str]| errors.iter().filter(|e| texts.iter().any(|text| e.contains(text))).count();
    let ours = "which the system does not give";
    assert!(saying(&[ours]) >= 8, "{errors:#?}");
    // The others could not start a thread, or were aborted by a library.
    let of_memory = saying(&[ours, "Cannot allocate memory", "out of memory"]);
    assert!(2 * of_memory > errors.len(), "{errors:#?}");
}

/// Sizes that no machine has: at once, and with the option's or the file's name.
#[test]
fn sizes_that_no_machine_has_are_errors_at_once() {
    let folder = tempfile::tempdir().unwrap();
    ring(folder.path(), 64, Features::None);
    let run = |arguments: &str| cohop(folder.path(), arguments);
    for (option, values) in [
        ("--hidden", ["1000000000", "9223372036854775807"]),
        ("--pes", ["100000", "18446744073709551615"]),
        ("--embedding", ["1000000000", "18446744073709551615"]),
    ] {
        for value in values {
            fails(&run(&format!("train --data . --epochs 1 {option} {value}")), 2, option);
        }
    }
    // One byte of a label changed: 2^24 + 1 for 1.
    let mut labels: Vec<i32> = (0..64).map(|v| v % 3).collect();
    labels[7] |= 1 << 24;
    npy::write(&folder.path().join("labels.npy"), Dtype::I32, &[64], &labels).unwrap();
    std::fs::remove_file(folder.path().join("meta.json")).unwrap();
    fails(&run("info --data ."), 1, "array labels: entry 7 is 16777217");
    // Masks of 2^60 splits of no vertices.
    labels[7] = 1;
    npy::write(&folder.path().join("labels.npy"), Dtype::I32, &[64], &labels).unwrap();
    npy::write(&folder.path().join("train_masks.npy"), Dtype::U8, &[1 << 60, 0], &[0u8; 0]).unwrap();
    fails(&run("info --data ."), 1, "array train_masks: has shape [1152921504606846976, 0]");
}
