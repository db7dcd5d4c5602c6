//! `cohop bench` as a user runs it.

use std::collections::HashSet;

use serde_json::Value;

use crate::command_line::{cohop, fails, json_lines};

fn check_row(row: &Value) {
    assert_eq!(row["peer"], "cohop");
    for key in ["seconds_median", "seconds_min", "seconds_max", "throughput"] {
        assert!(row[key].as_f64().is_some_and(|value| value > 0.0), "{key} in {row}");
    }
    for key in ["work", "size", "unit", "device"] {
        assert!(row[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {row}");
    }
    assert!(row["runs"].as_u64() >= Some(1) && row["threads"] == 2, "{row}");
}

#[test]
fn every_work_has_well_formed_rows() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), &format!("bench --threads 2 {arguments}"));
    let rows = json_lines(&run("--size XS --runs 1 --max-seconds 5 --json"));
    rows.iter().for_each(check_row);
    let keys: HashSet<(String, String)> =
        rows.iter().map(|row| (row["work"].to_string(), row["size"].to_string())).collect();
    assert_eq!(keys.len(), rows.len(), "a row for each work and size");

    let list = String::from_utf8(run("--list").stdout).unwrap();
    let listed: HashSet<String> =
        list.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    let measured: HashSet<String> =
        rows.iter().filter_map(|row| row["work"].as_str()).map(str::to_owned).collect();
    // Minibatches are made on a device only where there is one.
    let missing: Vec<&String> = listed.difference(&measured).filter(|w| !w.ends_with("_device")).collect();
    assert!(missing.is_empty() && measured.is_subset(&listed), "{missing:?} of {measured:?}");
}

#[test]
fn works_are_listed_as_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let lines = json_lines(&cohop(folder.path(), "bench --list --json"));
    assert!(lines.len() > 20 && lines.iter().all(|line| line["measures"].is_string()), "{lines:?}");
    assert!(lines.iter().any(|line| line["work"] == "spmm_sum_fwd"), "{lines:?}");
}

#[test]
fn works_are_chosen_by_parts_of_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), &format!("bench --size XS --runs 1 {arguments}"));
    let rows = json_lines(&run("--only sddmm,spmm_max_fwd --widths 16,32 --json"));
    let works: Vec<&str> = rows.iter().filter_map(|row| row["work"].as_str()).collect();
    assert_eq!(works, ["spmm_max_fwd", "sddmm_dot", "sddmm_dot"]);
    let table = String::from_utf8(run("--only transpose").stdout).unwrap();
    assert!(table.contains("of copy") && table.contains("transpose"), "{table}");

    fails(&run("--only nothing"), 2, "nothing");
    fails(&cohop(folder.path(), "bench --runs 0"), 2, "--runs");
    fails(&run("--widths 0"), 2, "--widths");
    fails(&run("--batches 0"), 2, "--batches");
    fails(&cohop(folder.path(), "bench --data nowhere"), 1, "nowhere");
}

#[cfg(feature = "emulate")]
#[test]
fn works_run_on_a_cuda_device() {
    let folder = tempfile::tempdir().unwrap();
    let works = "copy,transpose,spmm_mean,gat_fwd,sample";
    let arguments = format!(
        "bench --size XS --runs 1 --warmup 0 --widths 8 --threads 2 --device cuda --json --only {works}"
    );
    let rows = json_lines(&cohop(folder.path(), &arguments));
    rows.iter().for_each(check_row);
    // Parts of names: both directions of spmm_mean and of GAT, both samplers, each also dependent.
    assert_eq!(rows.len(), 10, "{rows:?}");
    // Kernels are timed by events on the device; sampling, which the host takes part in, by the host's clock.
    for row in &rows {
        let by_events = !row["work"].as_str().is_some_and(|work| work.starts_with("sample"));
        assert_eq!(row["repeats"].as_u64().is_some_and(|repeats| repeats >= 1), by_events, "{row}");
    }
}
