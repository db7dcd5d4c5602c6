//! Predictions on data that lacks something.

use std::fs;
use std::path::Path;

use cohop::data::{Dataset, Features, Split};
use cohop::graph::Graph;

use crate::command_line::{cohop, fails, json_lines};

/// A ring of `n` vertices with two classes, as a folder.
fn ring(folder: &Path, n: u32, columns: usize) {
    let edges: Vec<_> = (0..n).flat_map(|v| [(v, (v + 1) % n), ((v + 1) % n, v)]).collect();
    let features = match columns {
        0 => Features::None,
        _ => {
            let values = (0..n as usize * columns).map(|i| ((i * 7919) % 31) as f32 / 31.0);
            Features::dense(values.collect::<Vec<_>>(), n as usize, columns).unwrap()
        }
    };
    let labels: Vec<i32> = (0..n as i32).map(|v| v % 2).collect();
    let split = Split { train: (0..n / 2).collect(), val: vec![n / 2], test: vec![n / 2 + 1] };
    let graph = Graph::from_edges(n.into(), &edges).unwrap();
    Dataset::new("ring", graph, features, labels, 2, split).unwrap().write(folder).unwrap();
}

#[test]
fn features_that_are_missing_are_named_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    let at = |name: &str| folder.path().join(name);
    ring(&at("ring"), 20, 20);
    ring(&at("bare"), 20, 0);
    json_lines(&run("train --data ring --epochs 1 --fanouts 2,2 --checkpoint run --json"));
    json_lines(&run("train --data bare --epochs 1 --fanouts 2,2 --checkpoint bare_run --json"));
    // Of 20 vertices without features and 20 columns of features, the model's first layer would be as wide.
    for other in ["", " --other-data"] {
        let message = "cohop: --data is bare, which has no features: expected features of 20 columns (feat.npy in a \
                       folder, array feat in an .npz), as the data set of training has them";
        fails(&run(&format!("infer --checkpoint run --data bare{other} --out p.npy")), 1, message);
        fails(&run(&format!("study inference --checkpoint run --data bare{other}")), 1, message);
        let message = "cohop: --data is ring, which has features: expected one without features";
        fails(&run(&format!("infer --checkpoint bare_run --data ring{other} --out p.npy")), 1, message);
    }
    fails(&run("train --resume --checkpoint run --data bare --epochs 2"), 1, "which has no features");
    // Of the run's own data set, too.
    fs::remove_file(at("ring/feat.npy")).unwrap();
    fails(&run("infer --checkpoint run --out p.npy"), 1, "ring, which has no features");
    assert!(!at("p.npy").exists());
    json_lines(&run("infer --checkpoint bare_run --out p.npy --json"));
}

/// Predictions replace no file that they are made from.
#[test]
fn no_file_of_the_data_set_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("ring"), 30, 2);
    let run = |arguments: &str| cohop(folder.path(), arguments);
    json_lines(&run("train --data ring --epochs 1 --hidden 4 --checkpoint run --json"));
    let labels = folder.path().join("ring/labels.npy");
    let before = std::fs::read(&labels).unwrap();
    for out in ["ring/labels.npy", "./run/../ring/labels.npy", "ring/indptr.npy"] {
        fails(&run(&format!("infer --checkpoint run --out {out}")), 2, "this one is the data set's");
    }
    assert_eq!(std::fs::read(&labels).unwrap(), before);
    json_lines(&run("infer --checkpoint run --out ring/predictions.npy --json"));
}

#[test]
fn samples_are_those_of_training_or_of_the_seed_that_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    ring(&folder.path().join("ring"), 40, 3);
    json_lines(&run("train --data ring --epochs 1 --fanouts 1,1 --seed 3 --checkpoint run --json"));
    let scores = |seed: &str| {
        let infer = "infer --checkpoint run --eval sampled --logits --out p.npy --json";
        json_lines(&run(&format!("{infer} {seed}")));
        fs::read(folder.path().join("p.npy")).unwrap()
    };
    assert_eq!(scores(""), scores("--seed 3"));
    assert_ne!(scores(""), scores("--seed 4"));
    // The help does not promise the data set of another command.
    let help = String::from_utf8(run("infer -h").stdout).unwrap();
    assert!(help.contains("[default: that of training]") && !help.contains("[default: sbm]"), "{help}");
}

/// One-hot ids of vertices without features have nothing to drop, whatever the model drops of features.
#[test]
fn every_model_trains_on_vertices_without_features() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("bare"), 30, 0);
    for model in ["sage", "gcn", "gin", "gat", "gatv2"] {
        for sampler in ["", " --sampler full"] {
            let train = format!("train --data bare --epochs 1 --hidden 4 --model {model}{sampler} --json");
            json_lines(&cohop(folder.path(), &train));
        }
    }
}
