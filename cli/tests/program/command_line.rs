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
    if cfg!(any(feature = "cuda", feature = "emulate")) {
        fails(&run("train --device cuda:99"), 1, "no CUDA device");
    } else {
        fails(
            &run("train --device cuda:99"),
            2,
            "--device is cuda: expected cpu: this program was built without",
        );
    }
    for (is_built, usage) in [
        (cfg!(feature = "mpi"), "--mode cooperative --comm mpi"),
        (cfg!(feature = "metis"), "--mode cooperative --partition metis"),
    ] {
        if !is_built {
            let output = run(&format!("train {usage}"));
            fails(&output, 2, "built without the feature");
            fails(&output, 2, usage.split(' ').rev().nth(1).unwrap());
        }
    }
    fails(&run("train --on-device --mode cooperative"), 2, "--on-device");
    fails(&run("train --first-layer p3"), 2, "--first-layer");
    fails(&run("train --mode cooperative --first-layer p3 --model gat"), 2, "--first-layer");
    fails(&run("train --resume --checkpoint nothing"), 1, "nothing");
    for usage in [
        "--sampler sideways",
        "--fanouts 5,x",
        "--kappa 0",
        "--fanouts 5,5 --layers 3",
        "--layers 0",
        "--layers 18446744073709551615",
        "--threads 0",
        "--threads 1000000",
        "--workers 30000000",
        "--hidden 1000000000",
        "--hidden 9223372036854775807",
        "--heads 9223372036854775807",
        "--output-heads 0",
        "--embedding 9223372036854775807",
        "--bases 0",
        "--blocks 9223372036854775807",
        "--pes 18446744073709551615",
        "--cache-rows 0",
        "--batch-size 0",
        "--lr nan",
        "--lr -1",
        "--weight-decay inf",
        "--dropout 1",
        "--input-dropout -0.1",
        "--attention-dropout nan",
        "--momentum 0.9",
        "--momentum 1 --optimizer sgd",
        "--decay first-layer --optimizer sgd",
        "--lr-schedule step:0:0.5",
        "--lr-schedule linear",
        "--clip-norm 0",
        "--class-weights 1,-1",
        "--eval-every 0",
        "--eval-every 4 --epochs 3",
        "--replace --sampler labor0",
        "--labor-iterations 3",
        "--labor-iterations 1001 --sampler labor",
        "--walks 3",
        "--walk-length 4",
        "--walk-restart 0.1",
        "--walk-restart 1.1 --sampler walk",
        "--walks 1000000 --walk-length 1000000 --sampler walk",
        "--comm-timeout 5",
        "--heads 2",
        "--bases 2",
        "--blocks 3",
        "--cache-policy sieve",
        "--dependence renew",
        "--partition hash --mode independent",
        "--plot curves.gif",
    ] {
        let option = usage.split(' ').next().unwrap();
        fails(&run(&format!("train {usage}")), 2, option);
    }
    fails(&run("generate --out g --edge-factor -1"), 2, "--edge-factor");
    fails(&run("generate --out g --scale 40"), 2, "--scale");
    fails(&run("bench --max-seconds nan"), 2, "--max-seconds");
    fails(&run("infer --checkpoint c --out o --workers 30000000"), 2, "--workers");
    fails(&run("fly"), 2, "fly");
    std::fs::write(folder.path().join("broken.npz"), b"PK not a zip").unwrap();
    fails(&run("info --data broken.npz"), 1, "broken.npz");
}

/// What the library calls `class_weights` is `--class-weights` for those who type it.
#[test]
fn messages_name_what_people_can_change() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    fails(
        &run("train --data nowhere"),
        1,
        "cohop: --data is nowhere: expected an existing .npz file or folder",
    );
    for (arguments, message) in [
        ("train --sampler weighted", "--sampler is weighted sampling: expected a graph with edge weights"),
        ("train --per-relation", "--per-relation is set: expected a graph with edge types"),
        ("train --weighted", "--weighted is set: expected a weight for each edge"),
        ("train --class-weights 1,2", "--class-weights is 1,2: expected one for each of the 8 classes"),
        ("train --metric auc", "--metric is auc with a data set of 8 classes: expected two classes"),
        ("train --split 1", "--split is 1: expected no choice: sbm has a single split"),
        (
            "train --model rgcn",
            "--model is rgcn: expected one without relations, or a graph with edge types: sbm",
        ),
        (
            "train --mode cooperative --first-layer p3 --model gcn",
            "--first-layer is p3 with dropout of the input: expected whole, or --input-dropout 0",
        ),
        (
            "train --mode cooperative --first-layer p3 --embedding 8",
            "--first-layer is p3 with an embedding of the input: expected whole, or --embedding 0",
        ),
        ("study kappa --kappas 1,4,4", "--kappas is a list with 4 twice: expected each value once"),
        ("study kappa --samplers walk,walk", "--samplers is a list with "),
        ("study kappa --cache-rows 10,10", "--cache-rows is a list with 10 twice"),
        ("study modes --pes 2,2", "--pes is a list with 2 twice"),
        ("study work --batch-sizes 8,8", "--batch-sizes is a list with 8 twice"),
        ("study kappa --batch-size 1000000", "--batch-size is 1000000: expected 1 to the "),
        (
            "study kappa --samplers walk --kappas 4 --dependence rotate",
            "--dependence is rotation with random walks",
        ),
        ("study kappa --samplers weighted", "--samplers is weighted sampling: expected a graph with edge"),
    ] {
        fails(&run(arguments), 2, &format!("cohop: {message}"));
    }
    for (arguments, message) in [
        (
            "train --class-weights x",
            "for '--class-weights <balanced|W,W,...>': expected balanced, or one number",
        ),
        (
            "train --lr-schedule linear",
            "for '--lr-schedule <SCHEDULE>': expected constant, step:EVERY:FACTOR",
        ),
        ("train --epochs x", "for '--epochs <EPOCHS>': \"x\" is not a whole number"),
        ("info --threads 0", "for '--threads <N>': 0 is below 1"),
        ("info --seed 1.5", "for '--seed <S>': \"1.5\" is not a whole number"),
        ("generate --out g --scale 40", "for '--scale <SCALE>': 40 is above 31"),
        ("study work --batch-sizes 8,0", "for '--batch-sizes <N,N,...>': 0 is below 1"),
        ("import edges e --out g --num-vertices x", "\"x\" is not a whole number"),
        ("import edges e --out g --columns a,b", "for '--columns <NAME,...>': expected source, destination"),
        ("train --kappa x", "for '--kappa <N>': expected a whole number of at least 1, or inf"),
        ("train --device gpu", "for '--device <DEVICE>': expected cpu, cuda or cuda:N"),
        // A layer without neighbours is none.
        ("train --fanouts 5,0", "for '--fanouts <K,K,...>': a fanout of 0 samples nothing"),
        ("infer --checkpoint c --out o --fanouts 0,5", "a fanout of 0 samples nothing"),
        ("study modes --fanouts 0", "a fanout of 0 samples nothing"),
        ("study cost --fanouts 5,0", "a fanout of 0 samples nothing"),
        ("study work --fanouts 5,0", "a fanout of 0 samples nothing"),
        ("study kappa --fanouts 5,0", "a fanout of 0 samples nothing"),
        ("study inference --checkpoint c --fanouts-each 5,0", "a fanout of 0 samples nothing"),
    ] {
        fails(&run(arguments), 2, message);
    }
}

#[test]
fn options_of_training_do_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    // As the help tells.
    assert_eq!(json_lines(&run("train --epochs 1 --hidden 4 --fanouts -1,-1 --json")).len(), 2);
    // A batch norm over fewer than two rows on one of two processing elements.
    let few = "train --mode independent --pes 2 --model gin --hidden 4 --batch-size 999 --epochs 1 --json";
    assert_eq!(json_lines(&run(few)).len(), 2);
    let text = String::from_utf8(run("train --epochs 0 --checkpoint none").stdout).unwrap();
    assert!(text.contains("(no epoch of training)"), "{text}");
    assert!(folder.path().join("none/checkpoint.safetensors").exists());

    let options = "--hidden 4 --optimizer adamw --weight-decay 0.01 --clip-norm 1 --class-weights balanced \
                   --eval-every 2 --sampler labor --labor-iterations 1 --json --log log.csv --plot curves.svg";
    let whole = json_lines(&run(&format!("train --epochs 4 --lr-schedule step:1:0.5 {options}")));
    let rates: Vec<f64> = whole[..4].iter().map(|line| line["lr"].as_f64().unwrap()).collect();
    assert_eq!(rates, [0.01, 0.005, 0.0025, 0.00125]);
    assert!(whole[0]["val_acc"].is_null() && whole[1]["val_acc"].is_f64());
    let log = std::fs::read_to_string(folder.path().join("log.csv")).unwrap();
    assert_eq!(log.lines().count(), 5, "{log}");
    let svg = std::fs::read_to_string(folder.path().join("curves.svg")).unwrap();
    assert!(svg.contains("validation accuracy"), "{svg}");

    // Stopped and resumed: the same losses, and one log.
    let options = format!("{options} --lr-schedule step:1:0.5 --checkpoint run");
    json_lines(&run(&format!("train --epochs 2 {options}")));
    let rest = json_lines(&run("train --epochs 4 --checkpoint run --resume --json --log log.csv"));
    assert_eq!((&rest[1]["loss"], &rest[1]["val_loss"]), (&whole[3]["loss"], &whole[3]["val_loss"]));
    let losses = |log: &str| -> Vec<String> {
        log.lines().map(|line| line.split(',').take(6).collect::<Vec<_>>().join(",")).collect()
    };
    let resumed = std::fs::read_to_string(folder.path().join("log.csv")).unwrap();
    assert_eq!(losses(&resumed), losses(&log));

    json_lines(&run("train --epochs 1 --lr-schedule cosine --hidden 4 --checkpoint cosine --json"));
    fails(&run("train --resume --checkpoint cosine --epochs 2"), 2, "--epochs");
    for sampler in ["neighbor --replace", "walk --walks 3 --walk-length 2 --walk-restart 0.2"] {
        let arguments =
            format!("train --epochs 1 --hidden 4 --optimizer sgd --momentum 0.9 --sampler {sampler} --json");
        assert_eq!(json_lines(&run(&arguments)).len(), 2);
    }
}

/// Whatever option names it, and whether it is to be read or written: a failure, and no wrong usage.
#[test]
fn files_and_folders_that_are_not_there_have_one_status() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    std::fs::write(folder.path().join("e.txt"), "0 1\n1 0\n").unwrap();
    for command in ["train", "info", "study work", "study kappa", "study modes", "study cost", "bench"] {
        fails(&run(&format!("{command} --data nowhere")), 1, "cohop: ");
    }
    for arguments in [
        "train --resume --checkpoint nowhere",
        "infer --checkpoint nowhere --out p.npy",
        "study inference --checkpoint nowhere",
        "import edges nowhere --out set",
        "import ogb nowhere --out set",
        "import graphbolt nowhere --out set",
        "import edges e.txt --out set --labels nowhere",
        "import edges e.txt --out set --features nowhere",
        "import edges e.txt --out set --split nowhere,nowhere,nowhere",
    ] {
        fails(&run(arguments), 1, "nowhere");
    }
    assert!(!folder.path().join("nowhere").exists());
    // As those that cannot be written, which is known before anything is read.
    for (option, arguments) in [
        ("--plot", "train --data nothing --plot nowhere/a.svg"),
        ("--plot", "study work --data nothing --plot nowhere/a.svg"),
        ("--plot", "study inference --checkpoint nothing --plot nowhere/a.svg"),
        ("--log", "train --data nothing --log nowhere/a.svg"),
        ("--out", "infer --checkpoint nothing --out nowhere/a.svg"),
    ] {
        let message =
            format!("nowhere/a.svg: cannot be written, as {option} asks: its folder does not exist");
        fails(&run(arguments), 1, &message);
    }
    fails(&run("infer --checkpoint nothing --out ."), 1, "as --out asks: it is a folder");
    // Wrong whatever there is.
    fails(&run("study work --data nowhere --plot curves.gif"), 2, "--plot");
    fails(&run("import mtx e.txt e.txt --rows sources --out set"), 2, "several only of edges");
}

#[test]
fn files_in_the_place_of_folders_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    std::fs::write(folder.path().join("plain.txt"), "0 1\n").unwrap();
    let message = "cohop: plain.txt: is a file, expected a folder\n";
    for arguments in [
        "train --checkpoint plain.txt",
        "train --checkpoint plain.txt/run",
        "import edges plain.txt --out plain.txt",
        "import edges plain.txt --out plain.txt --overwrite",
        "import edges plain.txt --out plain.txt/set",
        "import ogb plain.txt --out set",
        "import graphbolt plain.txt --out set",
        "generate --out plain.txt",
        "generate --out plain.txt/set --scale 4",
    ] {
        fails(&run(arguments), 1, message);
    }
    let path = "plain.txt/checkpoint.safetensors: a part of this path is a file, expected a folder";
    fails(&run("infer --checkpoint plain.txt --out p.npy"), 1, path);
    std::fs::write(folder.path().join("e.npy"), "\u{1}").unwrap();
    fails(&run("import edge-index e.npy --out set"), 1, "e.npy: the file ends within the .npy header");
    assert_eq!(std::fs::read(folder.path().join("plain.txt")).unwrap(), b"0 1\n");
}
