//! The program as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

pub fn cohop(folder: &Path, arguments: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cohop"))
        .args(arguments.split_whitespace())
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The lines of a `--json` run's stdout, all of which must be JSON objects.
pub fn json_lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(lines.iter().all(Value::is_object));
    lines
}

pub fn fails(output: &Output, status: i32, message: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{stderr}");
    assert!(stderr.contains(message), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn train_prints_the_promised_json_and_infer_reads_its_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    let lines = json_lines(&run("train --epochs 3 --json --checkpoint run --workers 2"));
    assert_eq!(lines.len(), 4);
    for (i, line) in lines[..3].iter().enumerate() {
        assert_eq!(line["epoch"], i);
        for key in [
            "loss",
            "train_acc",
            "val_acc",
            "seconds",
            "sample_seconds",
            "gather_seconds",
            "compute_seconds",
            "exchange_seconds",
        ] {
            assert!(line[key].is_f64(), "{key} in {line}");
        }
        for key in [
            "batches",
            "vertices",
            "edges",
            "input_vertices",
            "exchanged_bytes",
            "cache_hits",
            "cache_misses",
            "peak_rss_bytes",
        ] {
            assert!(line[key].is_u64(), "{key} in {line}");
        }
    }
    let outcome = &lines[3];
    let test_acc = outcome["test_acc"].as_f64().unwrap();
    // Chance is 0.125.
    assert!(test_acc > 0.5, "{outcome}");
    assert!(
        outcome["best_val_acc"].is_f64() && outcome["best_epoch"].is_u64() && outcome["seconds"].is_f64()
    );

    let report = &json_lines(&run("infer --checkpoint run --out classes.npy --json"))[0];
    assert_eq!(report["test_acc"].as_f64(), Some(test_acc));
    let classes = npy_data(&folder.path().join("classes.npy"), "'<i8'", "(30000,)");
    assert_eq!(classes.len(), 8 * 30_000);
    assert!(classes.chunks_exact(8).all(|c| c[0] < 8 && c[1..] == [0; 7]));
    json_lines(&run(
        "infer --checkpoint run --eval sampled --fanouts 20,20 --logits --out logits.npy --json",
    ));
    let logits = npy_data(&folder.path().join("logits.npy"), "'<f4'", "(30000, 8)");
    assert_eq!(logits.len(), 4 * 30_000 * 8);

    let resumed = json_lines(&run("train --resume --checkpoint run --epochs 4 --json"));
    assert_eq!((resumed.len(), &resumed[0]["epoch"]), (2, &Value::from(3)));
}

/// What follows the header of a `.npy` file, which must name this dtype and shape.
fn npy_data(path: &Path, dtype: &str, shape: &str) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
    let begin = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..begin]).unwrap();
    assert!(header.contains(dtype) && header.contains(shape), "{header}");
    bytes[begin..].to_vec()
}

#[test]
fn info_and_gradcheck_print_tables_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let info = &json_lines(&cohop(folder.path(), "info --data sbm --json"))[0];
    assert_eq!((&info["vertices"], &info["classes"]), (&Value::from(30_000), &Value::from(8)));
    let table = cohop(folder.path(), "info --data rmat");
    assert!(table.status.success() && String::from_utf8_lossy(&table.stdout).contains("vertices"));
    let rows = json_lines(&cohop(folder.path(), "gradcheck aggregate --json"));
    assert!(rows.len() >= 5 && rows.iter().all(|row| row["passed"] == true), "{rows:?}");
}

#[test]
fn mistakes_end_with_a_message_and_the_right_status() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    fails(&run("train --data nowhere"), 1, "built-in data set");
    fails(&run("train --data no/such/file.npz"), 1, "no/such/file.npz");
    fails(&run("train --device cuda:99"), 1, "no CUDA device");
    fails(&run("train --layers 3 --fanouts 5,5"), 1, "fanouts");
    fails(&run("train --layers 0"), 1, "n_layers");
    fails(&run("train --threads 0"), 1, "--threads");
    fails(&run("train --resume --checkpoint nothing"), 1, "nothing");
    fails(&run("train --sampler sideways"), 2, "--sampler");
    fails(&run("train --fanouts 5,x"), 2, "--fanouts");
    fails(&run("train --kappa 0"), 2, "--kappa");
    fails(&run("fly"), 2, "fly");
    std::fs::write(folder.path().join("broken.npz"), b"PK not a zip").unwrap();
    fails(&run("info --data broken.npz"), 1, "broken.npz");
}
