//! Data with edge weights, as a user meets them.

use std::path::Path;
use std::sync::Arc;

use cohop::data::{Dataset, SbmData};
use cohop::graph::Sbm;

use super::command_line::{cohop, fails, json_lines};

/// A folder `data` in which edges inside of a class weigh 2, and all others 0.
fn write_data(folder: &Path) {
    let data = SbmData::default();
    let graph = Sbm { n_vertices: 1200, ..data.graph };
    let plain = SbmData { graph, separation: 0.5, ..data }.generate().unwrap();
    let label = |v: u32| plain.labels[v as usize];
    let weights: Vec<f32> = (0..plain.n_vertices() as u32)
        .flat_map(|t| plain.graph.in_neighbors(t).iter().map(move |&s| (s, t)))
        .map(|(s, t)| if label(s) == label(t) { 2.0 } else { 0.0 })
        .collect();
    let graph = Arc::new(plain.graph.as_ref().clone().with_edge_weights(weights).unwrap());
    Dataset { graph, ..plain }.write(folder.join("data")).unwrap();
}

#[test]
fn weighted_models_use_the_weights_of_edges() {
    let folder = tempfile::tempdir().unwrap();
    write_data(folder.path());
    let run = |arguments: &str| cohop(folder.path(), arguments);
    let info = run("info --data data");
    assert!(String::from_utf8(info.stdout).unwrap().contains("edge weights        0 to 2"));
    assert_eq!(json_lines(&run("info --data data --json"))[0]["edge_weights"].to_string(), "[0.0,2.0]");
    assert!(json_lines(&run("info --json"))[0]["edge_weights"].is_null());

    let accuracy = |arguments: &str| {
        let output =
            run(&format!("train --data data --epochs 15 --hidden 16 --batch-size 200 --json {arguments}"));
        let said = String::from_utf8_lossy(&output.stderr).contains("--weighted");
        assert_eq!(
            said,
            !arguments.contains("--weighted"),
            "{arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        json_lines(&output).last().unwrap()["test_acc"].as_f64().unwrap()
    };
    // A mean over neighbours of the same class says more.
    let (plain, weighted) = (accuracy(""), accuracy("--weighted --checkpoint run"));
    assert!(weighted > plain + 0.05, "{plain}, with weights {weighted}");
    for arguments in [
        "--weighted --model gcn",
        "--weighted --model gcn --sampler full",
        "--weighted --sampler labor",
        "--weighted --mode cooperative --pes 2",
        "--weighted --mode independent --pes 2",
    ] {
        assert!(accuracy(arguments) > plain, "{arguments}");
    }
    let report = &json_lines(&run("infer --data data --checkpoint run --out classes.npy --json"))[0];
    assert_eq!(report["test_acc"].as_f64(), Some(weighted));
    let resumed = json_lines(&run("train --data data --resume --checkpoint run --epochs 16 --json"));
    assert_eq!(resumed[0]["epoch"], 15);
    run("train --data data --epochs 1 --hidden 4 --checkpoint plain");
    fails(&run("train --data data --epochs 2 --checkpoint plain --resume --weighted"), 2, "--weighted");

    for (arguments, status, message) in [
        ("--model gat", 2, "--weighted is given with --model gat"),
        ("--model gatv2", 2, "--weighted is given with --model gatv2"),
        ("--model rgat", 2, "--weighted is given with --model rgat"),
        ("--sampler weighted", 2, "draws by weight"),
        ("--sampler walk", 2, "--weighted is given with --sampler walk"),
        ("", 2, "weighted is set"),
    ] {
        fails(&run(&format!("train --weighted {arguments}")), status, message);
    }
    // Weights that no mean can have.
    let path = folder.path().join("data/edge_weight.npy");
    let mut bytes = std::fs::read(&path).unwrap();
    let last = bytes.len() - 4;
    bytes[last..].copy_from_slice(&(-1.0f32).to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    fails(&run("train --data data --weighted"), 1, "edge_weight is -1 at position");
}
