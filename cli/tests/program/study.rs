//! `cohop study`

use std::path::Path;
use std::sync::Arc;

use cohop::data::SbmData;
use cohop::graph::Sbm;
use serde_json::Value;

use crate::command_line::{cohop, fails, json_lines};

/// A data set of 600 vertices, 60 of them to train on.
fn small(folder: &Path) {
    let graph = Sbm { n_vertices: 600, ..SbmData::default().graph };
    let dataset = SbmData { graph, dim: 4, ..SbmData::default() }.generate().unwrap();
    Arc::new(dataset).write(folder.join("small")).unwrap();
}

#[test]
fn studies_print_tables_and_json_and_draw() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let studies = [
        ("work", "--batch-sizes 4,16 --batches 2 --fanouts 3,3", 8, "work_per_seed"),
        ("kappa", "--kappas 1,4,inf --batch-size 16 --fanouts 3,3 --cache-rows 20,90", 16, "cache_rows"),
        ("modes", "--pes 1,3 --batch-size 32 --batches 2 --fanouts 3,3", 2, "inputs_ratio"),
        (
            "modes",
            "--pes 1,3 --batch-size 16 --batches 2 --fanouts 3,3 --kappa 4 --cache-rows 50",
            2,
            "loaded_ratio",
        ),
        ("cost", "--pes 1,2 --batch-size 32 --batches 1 --fanouts 3,3 --machine 8xA100,8xH200", 8, "speedup"),
        (
            "cost",
            "--pes 1,2 --batch-size 32 --batches 1 --fanouts 3,3 --machine 8xA100 --model gcn,gat,rgcn --relations 3",
            12,
            "model",
        ),
        (
            "cost",
            "--pes 1,2 --batch-size 32 --batches 1 --fanouts 3,3 --machine 8xA100 --model sage --first-layer p3",
            8,
            "model",
        ),
        (
            "memory",
            "--pes 1,3 --batch-size 32 --batches 2 --fanouts 3,3 --model gcn,rgat --relations 2",
            8,
            "worst_total",
        ),
    ];
    for (study, options, n_rows, key) in studies {
        let run = |more: &str| cohop(folder.path(), &format!("study {study} --data small {options} {more}"));
        let rows = json_lines(&run("--json --plot plot.svg"));
        assert_eq!(rows.len(), n_rows, "{study}");
        assert!(rows.iter().all(|row| row.get(key).is_some_and(|v| !v.is_null())), "{study}: {rows:?}");
        let svg = std::fs::read_to_string(folder.path().join("plot.svg")).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("sbm") && svg.len() > 2000, "{study}: {svg}");
        let table = run("--plot plot.png");
        assert!(table.status.success(), "{}", String::from_utf8_lossy(&table.stderr));
        let text = String::from_utf8(table.stdout).unwrap();
        assert!(text.lines().count() > n_rows.min(3), "{study}: {text}");
        let png = std::fs::read(folder.path().join("plot.png")).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 2000, "{study}: {} bytes", png.len());
    }
    // After the counts, one recommendation for each sampler and capacity.
    let run = |kappas: &str| {
        let options = "--batch-size 16 --fanouts 3,3 --cache-rows 20,90";
        cohop(folder.path(), &format!("study kappa --data small {options} --kappas {kappas}"))
    };
    let lines = json_lines(&run("1,4,inf --json"));
    assert_eq!(lines.iter().filter(|line| line.get("discarded").is_some()).count(), 12);
    assert!(lines[12..].iter().all(|line| line.get("recommended_kappa").is_some()), "{lines:?}");
    let text = |kappas: &str| String::from_utf8(run(kappas).stdout).unwrap();
    assert!(text("1,inf").contains("labor0, cache of 90 rows: kappa "));
    assert!(text("1,4").contains("no recommendation without inf"));
    // What is printed is what the library counts.
    let lines = json_lines(&cohop(folder.path(), "study modes --data small --pes 2 --batch-size 32 --json"));
    let sum =
        |list: &Value| list.as_array().unwrap().iter().map(|s| s["total"].as_f64().unwrap()).sum::<f64>();
    let ratio = sum(&lines[0]["independent"]["edges"]) / sum(&lines[0]["cooperative"]["edges"]);
    assert_eq!(lines[0]["edges_ratio"].as_f64(), Some(ratio));
}

/// A layer's parameters are those that `train` makes, and tables say how much each model gains.
#[test]
fn cost_of_models_tells_their_work() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let run = |arguments: &str| cohop(folder.path(), arguments);
    let options = "--data small --pes 2 --batch-size 32 --batches 1 --fanouts 3,3 --machine 8xA100";
    let study = |more: &str| run(&format!("study cost {options} {more}"));
    let rows = json_lines(&study("--model gat --hidden 8 --heads 2 --json"));
    assert_eq!(rows.len(), 2);
    let layers = rows[1]["model"]["layers"].as_array().unwrap();
    // From the seeds outward: 16 columns to 8 classes, then 4 features to 2 heads of 8.
    let parameters: Vec<_> = layers.iter().map(|layer| layer["parameters"].as_u64().unwrap()).collect();
    assert_eq!(parameters, [16 * 8 + 2 * 8 + 8, 4 * 16 + 2 * 16 + 16]);
    assert!(layers[0]["exchanged_bytes"].as_f64().unwrap() > 0.0);
    // Without --hidden all heads together are as wide as other models' layers.
    let width = |more: &str| {
        let rows = json_lines(&study(&format!("{more} --json")));
        rows[0]["model"]["layers"][1]["parameters"].as_u64().unwrap()
    };
    assert_eq!((width("--model gat"), width("--model gcn")), (4 * 256 + 3 * 256, 4 * 256 + 256));
    let text = |more: &str| String::from_utf8(study(more).stdout).unwrap();
    let models = text("--model gcn,sage");
    assert!(models.contains("speedup of cooperation on 8xA100, and of the layers"), "{models}");
    assert!(models.contains("19500 GFLOP/s") && models.contains("ops/edge"), "{models}");
    assert!(!text("").contains("GFLOP/s"));
    let p3 = text("--model sage --first-layer p3");
    assert!(p3.contains("p3 independent: ") && p3.contains("even at columns"), "{p3}");
    fails(
        &study("--model gat --first-layer p3"),
        2,
        "attention (gat, gatv2, rgat) and sage-ri have no p3 form",
    );
    fails(&study("--first-layer p3"), 2, "--model");
    fails(&study("--flops 5"), 2, "--model");
    fails(&study("--model gcn --heads 2"), 2, "--heads");
    fails(&study("--model gcn --relations 2"), 2, "--relations");
    fails(&study("--model rgcn"), 2, "--relations for a graph without edge types");
    fails(&study("--model gcn,gcn"), 2, "gcn twice");
    fails(&run("study cost --data small --batch-size 32 --model gcn --hidden 4,5"), 2, "one with --model");
}

#[test]
fn memory_tells_what_holds_it() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let options = "study memory --data small --pes 2 --batch-size 32 --batches 2 --fanouts 3,3";
    let run = |more: &str| cohop(folder.path(), &format!("{options} {more}"));
    let rows = json_lines(&run("--json --cache-rows 10"));
    assert_eq!(
        (&rows[0]["mode"], &rows[1]["mode"], rows.len()),
        (&"independent".into(), &"cooperative".into(), 2)
    );
    let bytes = |row: usize, name: &str| rows[row]["mean"][name].as_f64().unwrap();
    // 600 rows of 4 columns in 4 bytes, with a label of 4 each; of two elements each has about half.
    assert_eq!(bytes(0, "features"), 600.0 * 20.0);
    assert_eq!(bytes(1, "features"), 300.0 * 20.0);
    assert_eq!(bytes(0, "cache"), 10.0 * (16.0 + 13.0) + 4.0 * 600.0);
    // GraphSAGE of 4, 256, 8 columns, with Adam's two moments.
    let parameters = 2.0 * 4.0 * 256.0 + 256.0 + 2.0 * 256.0 * 8.0 + 8.0;
    assert_eq!(bytes(0, "parameters"), 12.0 * parameters);
    let total: f64 = rows[1]["mean"].as_object().unwrap().values().map(|v| v.as_f64().unwrap()).sum();
    assert!((total - rows[1]["mean_total"].as_f64().unwrap()).abs() < 1.0);
    let wide = json_lines(&run("--json --feature-width 10 --row-bytes 20"));
    assert_eq!(wide[0]["mean"]["features"].as_f64(), Some(600.0 * 24.0));
    let text = String::from_utf8(run("").stdout).unwrap();
    assert!(text.contains("activations") && text.contains("worst: the largest total"), "{text}");
    fails(&run("--heads 2"), 2, "--heads");
    fails(&run("--dropout 1"), 2, "--dropout");
    fails(&run("--model rgcn"), 2, "--relations for a graph without edge types");
}

#[test]
fn modes_with_time_add_a_row_for_each_way_to_share_a_step() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let run = |more: &str| {
        let options = "--pes 2 --batch-size 20 --batches 2 --fanouts 3,3 --hidden 8";
        cohop(folder.path(), &format!("study modes --data small {options} {more}"))
    };
    let lines = json_lines(&run("--time --steps 2 --json --plot plot.svg"));
    // One element alone is timed, but not among the counts that were asked for.
    assert_eq!(lines[0]["n_pes"], 2);
    let ways: Vec<_> = lines[1..]
        .iter()
        .map(|row| (row["mode"].as_str(), row["first_layer"].as_str(), row["n_pes"].as_u64()))
        .collect();
    let way = |mode, layer, pes| (Some(mode), Some(layer), Some(pes));
    let expected = [
        way("serial", "whole", 1),
        way("independent", "whole", 2),
        way("cooperative", "whole", 2),
        way("independent", "p3", 2),
        way("cooperative", "p3", 2),
    ];
    assert_eq!(ways, expected);
    assert!(lines[1..].iter().all(|row| row["measured_seconds"].is_f64()), "{lines:?}");
    assert!(lines[1..].iter().all(|row| row["predicted_seconds"].is_f64()), "{lines:?}");
    let svg = std::fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert!(svg.contains("time, measured") && svg.contains("time, predicted"), "{svg}");
    let text = String::from_utf8(run("--time --steps 2 --model gat --heads 2 --workers 0").stdout).unwrap();
    assert!(text.contains("this-machine: gamma") && text.contains("medians of 2 steps"), "{text}");
    assert!(!text.contains("p3"), "{text}");
    // With two heads, activations are twice as wide.
    let bytes = |more: &str| {
        json_lines(&run(&format!("--json {more}")))[0]["cooperative"]["activation_bytes"]["total"].as_f64()
    };
    assert_eq!(bytes("--time --steps 1 --model gat --heads 2"), bytes("").map(|bytes| 2.0 * bytes));
    fails(&run("--model gin"), 2, "--time");
    fails(&run("--time --heads 2"), 2, "--heads");
    fails(&run("--time --feature-width 3"), 2, "--feature-width");
    fails(&run("--time --model rgcn"), 2, "--model");
    let widths = "study modes --data small --fanouts 3,3,3 --batch-size 20 --time --hidden 4,8";
    fails(&cohop(folder.path(), widths), 2, "--hidden");
}

#[test]
fn training_with_each_kappa_adds_a_row_per_epoch() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let options =
        "--samplers labor0 --kappas 1,4 --batch-size 16 --fanouts 3,3 --cache-rows 20 --train 2 --seeds 2";
    let run = |more: &str| cohop(folder.path(), &format!("study kappa --data small {options} {more}"));
    let rows = json_lines(&run("--hidden 8 --json --plot plot.svg"));
    let rows: Vec<_> = rows.iter().filter(|row| row.get("val_macro_f1").is_some()).collect();
    assert_eq!(rows.iter().map(|row| &row["epochs"]).collect::<Vec<_>>(), [1, 2, 1, 2]);
    assert!(rows.iter().all(|row| row["runs"] == 2 && row["val_acc"]["deviation"].is_f64()), "{rows:?}");
    let svg = std::fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert!(svg.contains("labor0, κ = 4") && svg.contains("epochs"), "{svg}");
    assert!(String::from_utf8(run("").stdout).unwrap().contains("over 2 random seeds"));
    fails(&run("--hidden 0"), 2, "--hidden");
    // What is trained is what the options say.
    let accuracy = |more: &str| {
        let rows = json_lines(&run(&format!("--json {more}")));
        rows.iter().filter_map(|row| row["val_acc"]["mean"].as_f64()).collect::<Vec<f64>>()
    };
    let [plain, gat, slow] = ["", "--model gat --heads 2 --lr 0.1", "--optimizer sgd --lr 0"].map(accuracy);
    assert!(plain != gat && plain != slow, "{plain:?} {gat:?} {slow:?}");
    assert_eq!(slow[0], slow[1], "nothing is learned");
    fails(&run("--heads 2"), 2, "--heads");
    fails(&run("--momentum 0.5"), 2, "--momentum");
    fails(&run("--lr-schedule plateau:2:0.5"), 2, "--lr-schedule");
    fails(&run("--model rgcn"), 2, "--model");
    fails(&run("--weighted"), 2, "--weighted");
    fails(&run("--layers 3"), 2, "--fanouts");
    let counts = "study kappa --data small --samplers labor0 --kappas 1 --batch-size 16 --cache-rows 20";
    let counts = |more: &str| cohop(folder.path(), &format!("{counts} {more}"));
    fails(&counts("--lr 0.1"), 2, "--lr");
    let [layers, fanouts] =
        ["--json --layers 2", "--json --fanouts 10,10"].map(|more| json_lines(&counts(more)));
    assert_eq!(layers, fanouts);
}

#[test]
fn inference_ends_with_the_accuracy_that_infer_prints() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let run = |arguments: &str| cohop(folder.path(), arguments);
    json_lines(&run("train --data small --epochs 3 --hidden 8 --fanouts 3,3 --checkpoint run --json"));
    let infer = json_lines(&run("infer --checkpoint run --out p.npy --json"));
    let study = "study inference --checkpoint run --fanouts-each 1,3,full --batch-size 50";
    let rows = json_lines(&run(&format!("{study} --json --plot plot.svg")));
    let fanouts: Vec<_> = rows.iter().map(|row| row["fanout"].as_u64()).collect();
    assert_eq!(fanouts, [Some(1), Some(3), None]);
    assert_eq!(rows[2]["accuracy"], infer[0]["test_acc"]);
    assert!(rows[2]["accuracy"].is_f64() && rows[2]["macro_f1"].is_f64(), "{rows:?}");
    let svg = std::fs::read_to_string(folder.path().join("plot.svg")).unwrap();
    assert!(svg.contains("fanout full") && svg.contains("in-degree"), "{svg}");
    let text = String::from_utf8(run(study).stdout).unwrap();
    assert!(text.contains("macro F1") && text.contains("in-degree"), "{text}");
    fails(&run("study inference --checkpoint nowhere"), 1, "nowhere");
    fails(&run("study inference --checkpoint run --fanouts-each 0"), 2, "--fanouts-each");
    fails(&run("study inference --checkpoint run --data sbm"), 1, "number of feature columns");
}

#[test]
fn mistakes_end_with_a_message_and_the_right_status() {
    let folder = tempfile::tempdir().unwrap();
    small(folder.path());
    let run = |arguments: &str| cohop(folder.path(), arguments);
    fails(&run("study work --data small --batch-sizes 61"), 2, "batch_size is 61");
    fails(&run("study work --data small --plot a.gif"), 2, ".svg or .png");
    fails(&run("study work --data small --samplers sideways"), 2, "--samplers");
    fails(
        &run("study kappa --data small --samplers walk --kappas 4 --batch-size 8 --dependence rotate"),
        2,
        "dependence",
    );
    fails(&run("study kappa --data small --kappas 0"), 2, "--kappas");
    fails(&run("study modes --data small --pes 0"), 2, "--pes");
    fails(&run("study modes --data small --hidden 3,4,5"), 2, "--hidden");
    fails(&run("study cost --data small --machine abacus"), 2, "8xH200");
    fails(&run("study cost --data small --miss-rate 2"), 2, "--miss-rate");
    fails(&run("study work --device cuda"), 2, "studies count on the host");
    fails(&run("study"), 2, "Usage");
    if cfg!(not(feature = "metis")) {
        fails(&run("study modes --data small --partition metis"), 2, "feature `metis`");
    }
}
