//! Runs that are stopped, resumed and used for predictions, and how they end.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::command_line::{cohop, fails, json_lines};

/// A vector as a `.npy` file.
fn npy(path: &Path, dtype: &str, shape: &str, data: &[u8]) {
    let mut header = format!("{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
}

fn ids(path: &Path, values: &[i64]) {
    let data: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy(path, "<i8", &format!("({},)", values.len()), &data);
}

/// A ring of 60 vertices with two features and classes that they tell; `splits` rotate by 20 vertices.
fn ring(folder: &Path, classes: i64, shift: i64, with_labels: bool) {
    fs::create_dir_all(folder).unwrap();
    let n = 60i64;
    ids(&folder.join("indptr.npy"), &(0..=n).collect::<Vec<_>>());
    let sources: Vec<u8> = (0..n).flat_map(|v| (((v + n - 1) % n) as u32).to_le_bytes()).collect();
    npy(&folder.join("indices.npy"), "<u4", "(60,)", &sources);
    let features: Vec<u8> =
        (0..n).flat_map(|v| [(v % 2) as f32, 1.0 + v as f32 / 600.0]).flat_map(f32::to_le_bytes).collect();
    npy(&folder.join("feat.npy"), "<f4", "(60, 2)", &features);
    if with_labels {
        ids(&folder.join("labels.npy"), &(0..n).map(|v| v % classes).collect::<Vec<_>>());
        for (i, name) in ["train_idx", "val_idx", "test_idx"].iter().enumerate() {
            let begin = shift + 20 * i as i64;
            ids(&folder.join(format!("{name}.npy")), &(begin..begin + 20).map(|v| v % n).collect::<Vec<_>>());
        }
    }
}

fn predicted(path: &Path) -> Vec<i64> {
    let bytes = fs::read(path).unwrap();
    let begin = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    bytes[begin..].chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn predictions_go_with_the_data_of_the_run_or_with_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let run = |arguments: &str| cohop(folder.path(), arguments);
    ring(&at("ring"), 2, 0, true);
    ring(&at("bare"), 2, 0, false);
    ring(&at("one"), 1, 0, true);
    ring(&at("shifted"), 2, 20, true);
    ring(&at("more"), 3, 0, true);
    json_lines(&run(
        "train --data ring --feature-dtype f16 --class-weights 1,2 --epochs 12 --lr 0.05 --checkpoint run --json",
    ));
    // Neither data nor type of features need to be said again.
    let report = &json_lines(&run("infer --checkpoint run --out all.npy --json"))[0];
    assert_eq!(report["vertices"], 60);
    assert!(report["test_acc"].is_f64());
    let all = predicted(&at("all.npy"));
    ids(&at("ids.npy"), &[5, 59, 0, 5]);
    for eval in ["", "--eval sampled --fanouts 5,5"] {
        json_lines(&run(&format!("infer --checkpoint run --vertices ids.npy {eval} --out some.npy --json")));
        assert_eq!(predicted(&at("some.npy")), [all[5], all[59], all[0], all[5]], "{eval}");
    }
    for other in ["bare", "one", "shifted", "more"] {
        let infer = format!("infer --checkpoint run --data {other} --out other.npy --json");
        fails(&run(&infer), 1, "the checkpoint's run was trained on");
        let report = &json_lines(&run(&format!("{infer} --other-data")))[0];
        assert_eq!(predicted(&at("other.npy")), all, "{other}");
        assert_eq!(report["test_acc"].is_null(), other == "bare");
    }
    ids(&at("ids.npy"), &[3, 60]);
    let beyond = "ids.npy: array vertices: entry 1 is 60: expected vertices of the data set, below 60";
    fails(&run("infer --checkpoint run --vertices ids.npy --out no.npy"), 1, beyond);
    fs::rename(at("ids.npy"), at("red\u{1b}[31m.npy")).unwrap();
    let escaped = "red\\u{1b}[31m.npy: array vertices";
    fails(&run("infer --checkpoint run --vertices red\u{1b}[31m.npy --out no.npy"), 1, escaped);
    fails(&run("infer --checkpoint run --fanouts 5,5 --out no.npy"), 2, "--fanouts");
    fails(&run("infer --checkpoint run --eval sampled --fanouts 5 --out no.npy"), 2, "fanouts");
    assert!(!at("no.npy").exists());
    // What cannot be written is known before anything is read.
    fails(&run("infer --checkpoint nothing --out no/such/folder.npy"), 1, "no/such");
    fails(&run("infer --checkpoint nothing --out ring"), 1, "ring");
    fails(&run("study work --data nothing --plot no/such/plot.svg"), 1, "no/such");
}

/// The advice is one that helps.
#[test]
fn another_data_set_is_refused_with_what_differs_and_what_would_do() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    ring(&folder.path().join("ring"), 2, 0, true);
    ring(&folder.path().join("more"), 3, 0, true);
    fs::create_dir(folder.path().join("wide")).unwrap();
    for entry in fs::read_dir(folder.path().join("ring")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join("wide").join(path.file_name().unwrap())).unwrap();
    }
    npy(&folder.path().join("wide/feat.npy"), "<f4", "(60, 5)", &0.5f32.to_le_bytes().repeat(300));
    json_lines(&run("train --data ring --epochs 1 --checkpoint run --json"));

    let infer = |data: &str| run(&format!("infer --checkpoint run --out out.npy --data {data}"));
    let resume = |data: &str| run(&format!("train --resume --checkpoint run --epochs 2 --data {data}"));
    for (output, differs, advice) in [
        (infer("more"), "3 classes instead of 2", "; --other-data allows it"),
        (
            resume("more"),
            "3 classes instead of 2",
            "; its model cannot be used with another number of classes",
        ),
        (
            infer("wide"),
            "5 feature columns instead of",
            "cannot be used with another number of feature columns",
        ),
        (
            resume("wide"),
            "5 feature columns instead of",
            "cannot be used with another number of feature columns",
        ),
    ] {
        fails(&output, 1, differs);
        fails(&output, 1, advice);
        fails(&output, 1, "cohop: --data is ");
    }
    fails(&infer("./more"), 1, "--data is ./more, which has ");
    json_lines(&run("infer --checkpoint run --out out.npy --data more --other-data --json"));
    let columns =
        "number of feature columns is 5: expected 2 in the data set, as the checkpoint's model has it";
    fails(&infer("wide --other-data"), 1, columns);
}

#[test]
fn a_resumed_run_keeps_its_settings_and_refuses_others() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    ring(&folder.path().join("ring"), 2, 0, true);
    ring(&folder.path().join("shifted"), 2, 20, true);
    let train = "train --data ring --mode independent --pes 2 --lr 0.02 --batch-size 10 --json";
    let straight = json_lines(&run(&format!("{train} --epochs 4")));
    let auto = |epochs: u32| format!("{train} --epochs {epochs} --checkpoint run --resume=auto");
    assert_eq!(json_lines(&run(&auto(2))).len(), 3);
    // The same command line, as a script that restarts it has it.
    let rest = json_lines(&run(&auto(3)));
    assert_eq!((rest.len(), &rest[0]["epoch"]), (2, &2.into()));
    // Nothing said but where.
    let output = run("train --checkpoint run --resume");
    assert!(output.status.success());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(stderr, "cohop: nothing left to do: 3 of 3 epochs are done; a larger --epochs goes on\n");
    let rest = json_lines(&run("train --checkpoint run --resume --epochs 4 --json"));
    for key in ["loss", "val_loss", "exchanged_bytes"] {
        assert_eq!(rest[0][key], straight[3][key], "{key}");
    }
    for (other, named) in [
        ("--lr 0.03", "--lr 0.03"),
        ("--pes 3", "--pes 3"),
        ("--hidden 32", "without it"),
        ("--seed 1", "--seed 1"),
        ("--row-normalize", "--row-normalize"),
        ("--split 0", "--split"),
        ("--feature-dtype f16", "--feature-dtype"),
        ("--precision bf16", "--precision bf16"),
        ("--mode serial", "--mode serial"),
    ] {
        fails(&run(&format!("train --checkpoint run --resume {other}")), 2, named);
    }
    let shifted = "train --checkpoint run --resume --data shifted --epochs 5 --json";
    fails(&run(shifted), 1, "another split");
    json_lines(&run(&format!("{shifted} --other-data")));
    // Nothing is overwritten unasked.
    fails(&run("train --data ring --checkpoint run"), 1, "--overwrite");
    json_lines(&run("train --data ring --checkpoint run --overwrite --epochs 1 --json"));
    fails(&run("train --data ring --checkpoint run --overwrite --resume"), 2, "--overwrite");
    fails(&run("train --data ring --overwrite"), 2, "--checkpoint");
    // A folder that cannot be one is known before the data is read.
    fails(&run("train --data nothing --checkpoint ring/feat.npy"), 1, "feat.npy");
}

/// With two classes the program can choose by the area under the ROC curve, and then shows it.
#[test]
fn the_metric_that_chooses_the_epoch_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("ring"), 2, 0, true);
    let run = |arguments: &str| {
        let output = cohop(folder.path(), arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let train = "train --data ring --epochs 3 --lr 0.0001";
    let reports = json_lines(&cohop(folder.path(), &format!("{train} --metric auc --json --plot auc.svg")));
    let text = run(&format!("{train} --metric auc"));
    let lines: Vec<&str> = text.lines().collect();
    let auc = |i: usize| reports[i]["val_auc"].as_f64().unwrap();
    assert!((0..3).all(|i| reports[i]["val_auc"] != reports[i]["val_acc"]), "{reports:?}");
    for (i, line) in lines[..3].iter().enumerate() {
        assert!(line.contains(&format!("  val AUC {:.4}", auc(i))), "{line}");
    }
    let best = reports[3]["best_epoch"].as_u64().unwrap();
    assert_eq!(reports[3]["best_val_auc"], reports[best as usize]["val_auc"]);
    assert_eq!(reports[3]["best_val_acc"], reports[best as usize]["val_acc"]);
    let chosen = format!("(best epoch {}, validation ROC AUC {:.4})", best + 1, auc(best as usize));
    assert!(lines[3].contains(&chosen), "{}", lines[3]);
    assert!(lines[4].starts_with("test ROC AUC "), "{}", lines[4]);
    let text = run(train);
    assert!(
        !text.contains("val AUC") && text.contains("(best epoch") && !text.contains("validation ROC"),
        "{text}"
    );
    // With more classes there is none.
    ring(&folder.path().join("three"), 3, 0, true);
    let train = "train --data three --epochs 2 --lr 0.0001 --json --plot three.svg";
    let outcome = json_lines(&cohop(folder.path(), train)).pop().unwrap();
    assert!(outcome["best_val_acc"].is_f64() && outcome.get("best_val_auc").is_none(), "{outcome}");
    let plot = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(plot("auc.svg").contains("validation ROC AUC") && plot("auc.svg").contains("accuracy, ROC AUC"));
    assert!(plot("three.svg").contains("validation accuracy") && !plot("three.svg").contains("ROC AUC"));
}

#[test]
fn data_without_labels_is_named() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("bare"), 2, 0, false);
    let train = "train --data bare --epochs 1";
    fails(&cohop(folder.path(), train), 1, "bare: number of classes is 0: expected at least 1");
    // None of those of training.
    ids(
        &folder.path().join("bare/labels.npy"),
        &(0..60).map(|v| if v < 2 { -1 } else { v % 2 }).collect::<Vec<_>>(),
    );
    fails(&cohop(folder.path(), train), 1, "bare: list of training vertices ");
    ids(&folder.path().join("bare/train_idx.npy"), &[0, 1]);
    fails(&cohop(folder.path(), train), 1, "bare: labels of the training vertices is -1 everywhere");
}

#[test]
fn a_run_has_a_precision_and_predictions_that_or_another() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    json_lines(&run("generate --out random --scale 8 --dim 4 --classes 3 --json"));
    let train = "train --data random --hidden 8 --layers 2 --epochs 2 --json";
    let losses = |more: &str| -> Vec<f64> {
        let lines = json_lines(&run(&format!("{train} {more}")));
        lines.iter().filter_map(|line| line["loss"].as_f64()).collect()
    };
    let exact = losses("");
    assert_eq!(losses("--precision tf32"), exact);
    for precision in ["bf16", "f16"] {
        let rounded = losses(&format!("--precision {precision} --checkpoint {precision}"));
        assert_ne!(rounded, exact);
        for (rounded, exact) in rounded.iter().zip(&exact) {
            assert!((rounded - exact).abs() < 0.02 * exact, "{rounded} {exact}");
        }
    }
    let infer = |more: &str| {
        let output = run(&format!("infer --checkpoint bf16 --logits --out scores.npy {more}"));
        assert!(output.status.success(), "{output:?}");
        fs::read(folder.path().join("scores.npy")).unwrap()
    };
    assert_eq!(infer(""), infer("--precision bf16"));
    assert_ne!(infer(""), infer("--precision f32"));
    fails(&run("train --data random --precision half"), 2, "f32, tf32, bf16 or f16");
    fails(&run("infer --checkpoint bf16 --out p.npy --precision f8"), 2, "f32, tf32, bf16 or f16");
}

#[test]
fn a_run_that_patience_ends_says_so() {
    let folder = tempfile::tempdir().unwrap();
    json_lines(&cohop(folder.path(), "generate --out random --scale 7 --dim 4 --classes 3 --json"));
    let train = "train --data random --lr 3 --hidden 8 --epochs 100 --patience 2 --json";
    let output = cohop(folder.path(), train);
    let lines = json_lines(&output);
    let n = lines.len() - 1;
    assert!(n < 100 && lines[n]["stopped_early"] == true, "{lines:?}");
    let said = format!("cohop: stopped after epoch {n}: no better validation in 2 validated epochs");
    assert!(String::from_utf8_lossy(&output.stderr).contains(&said), "{output:?}");
    let output = cohop(folder.path(), &format!("{train} --quiet"));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("stopped"), "{output:?}");
    let lines = json_lines(&cohop(folder.path(), "train --data random --epochs 1 --json"));
    assert_eq!(lines[1]["stopped_early"], false);
}

#[test]
fn a_run_that_diverges_fails_and_leaves_no_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("ring"), 2, 0, true);
    for batch_size in [5, 100] {
        let train = format!(
            "train --data ring --lr 1e30 --batch-size {batch_size} --epochs 3 --checkpoint run --quiet"
        );
        fails(&cohop(folder.path(), &train), 1, "lower the learning rate");
        assert!(!folder.path().join("run/checkpoint.safetensors").exists());
    }
}

#[cfg(target_os = "linux")]
fn cohop_to(folder: &Path, arguments: &str, stdout: &str, stderr: &str) -> Output {
    let open = |path: &str| Stdio::from(fs::OpenOptions::new().write(true).open(path).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_cohop"));
    command.args(arguments.split_whitespace()).current_dir(folder);
    command.stdout(open(stdout)).stderr(open(stderr)).output().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn results_that_cannot_be_printed_are_failures() {
    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("ring"), 2, 0, true);
    let status = |arguments: &str, stdout: &str, stderr: &str| {
        cohop_to(folder.path(), arguments, stdout, stderr).status.code()
    };
    let (full, null) = ("/dev/full", "/dev/null");
    for arguments in
        ["--help", "train --help", "--version", "info --data ring", "train --data ring --epochs 1"]
    {
        assert_eq!(status(arguments, full, null), Some(1), "{arguments}");
        assert_eq!(status(arguments, full, full), Some(1), "{arguments}");
        assert_eq!(status(arguments, null, null), Some(0), "{arguments}");
    }
    assert_eq!(status("info --data nothing", null, full), Some(1));
    assert_eq!(status("fly", null, full), Some(2));
    assert_eq!(status("train --threads 0", null, full), Some(2));
    // A reader that has gone before the first epoch.
    let mut command = Command::new(env!("CARGO_BIN_EXE_cohop"));
    command.args(["train", "--data", "ring", "--epochs", "50", "--json", "--checkpoint", "run"]);
    command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[cfg(unix)]
fn signals_end_a_run_in_order_and_two_runs_do_not_share_a_folder() {
    use std::io::{BufRead, BufReader};

    let folder = tempfile::tempdir().unwrap();
    ring(&folder.path().join("ring"), 2, 0, true);
    let begin = |more: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cohop"));
        let arguments = format!("train --data ring --epochs 1000000 --json {more}");
        command.args(arguments.split_whitespace()).current_dir(folder.path());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        (child, lines)
    };
    for (signal, status, more) in [
        ("INT", 130, "--checkpoint run"),
        ("TERM", 143, "--checkpoint run --resume"),
        ("INT", 130, "--checkpoint both --mode cooperative --pes 2"),
        ("TERM", 143, ""),
    ] {
        let (child, lines) = begin(more);
        if more == "--checkpoint run" {
            fails(&cohop(folder.path(), "train --data ring --checkpoint run --overwrite"), 1, "another run");
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let last = lines.map_while(|line| line.ok()).last();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{more}: {stderr}");
        assert!(stderr.contains("interrupted after"), "{stderr}");
        if let (Some(last), true) = (last, more.contains("--checkpoint")) {
            // What was written last is what it says.
            let last: serde_json::Value = serde_json::from_str(&last).unwrap();
            let epochs = last["epoch"].as_u64().unwrap() + 1;
            assert!(stderr.contains(&format!("after epoch {epochs};")), "{last}: {stderr}");
        }
    }
}

/// The first signal ends what leaves nothing unfinished at once, and `generate` when it has cleaned up.
#[test]
#[cfg(unix)]
fn signals_end_every_command_with_their_status_and_leave_nothing() {
    use std::time::{Duration, Instant};

    let folder = tempfile::tempdir().unwrap();
    json_lines(&cohop(folder.path(), "train --epochs 1 --hidden 4 --checkpoint run --json"));
    // Each takes minutes.
    for (signal, status, arguments) in [
        ("INT", 130, "generate --out set --scale 24 --dim 0 --memory 64"),
        ("TERM", 143, "generate --out set --scale 24 --dim 0 --memory 64"),
        ("INT", 130, "study work --batches 1000000"),
        (
            "TERM",
            143,
            "infer --checkpoint run --eval sampled --fanouts 10000,10000 --batch-size 1 --out o.npy",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cohop"));
        command.args(arguments.split_whitespace()).current_dir(folder.path());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while arguments.starts_with("generate") && !folder.path().join("set").exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{arguments}");
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_secs(1));
        let id = child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments}: {output:?}");
        assert!(!folder.path().join("set").exists() && !folder.path().join("o.npy").exists(), "{arguments}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        let told = "cohop: interrupted; nothing of the data set is left\n";
        assert_eq!(stderr.as_ref() == told, arguments.starts_with("generate"), "{stderr}");
    }
}
