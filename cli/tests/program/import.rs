//! Files of other formats become data sets that train.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::command_line::{cohop, fails, json_lines};

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn an_edge_list_with_labels_trains() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    // Two rings of 50, each a class, as SNAP writes edges.
    let edges: String = (0..100).map(|v| format!("{v}\t{}\n", v / 50 * 50 + (v + 1) % 50)).collect();
    fs::write(folder.path().join("rings.txt"), format!("# Nodes: 100\n# FromNodeId\tToNodeId\n{edges}"))
        .unwrap();
    let labels: String = (0..100).map(|v| format!("{v},{}\n", v / 50)).collect();
    fs::write(folder.path().join("labels.csv"), format!("id,class\n{labels}")).unwrap();
    let rows: String = (0..100).map(|v| format!("{},0.5\n", v / 50)).collect();
    fs::write(folder.path().join("x.csv"), rows).unwrap();
    let import = "import edges rings.txt --out set --undirected --labels labels.csv --features x.csv \
                  --split .5,.25,.25 --json";
    let report = &json_lines(&run(import))[0];
    assert_eq!(
        (&report["vertices"], &report["edges"], &report["edges_read"]),
        (&100.into(), &200.into(), &100.into())
    );
    assert!(report["notes"].to_string().contains("100 reverse edges were added"), "{report}");
    let info = &json_lines(&run("info --data set --json"))[0];
    assert_eq!((&info["edges"], &info["classes"], &info["isolated"]), (&200.into(), &2.into(), &0.into()));
    let lines = json_lines(&run("train --data set --epochs 20 --lr 0.05 --json"));
    assert_eq!(lines.last().unwrap()["test_acc"], 1.0);
    fails(&run(import), 1, "--overwrite");
    assert!(run(&format!("{import} --overwrite")).status.success());
    assert_eq!(names(folder.path()), ["labels.csv", "rings.txt", "set", "x.csv"]);
}

#[test]
fn a_matrix_must_say_what_its_rows_are() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    let matrix = "%%MatrixMarket matrix coordinate integer general\n3 3 2\n1 2 5\n3 2 1\n";
    fs::write(folder.path().join("m.mtx"), matrix).unwrap();
    fails(&run("import mtx m.mtx --out set"), 2, "--rows");
    let report = &json_lines(&run("import mtx m.mtx --rows sources --out set --json"))[0];
    assert_eq!(report["edge_weights"], serde_json::json!([1.0, 5.0]));
    assert_eq!(fs::read(folder.path().join("set/indices.npy")).unwrap()[128..], [0, 0, 0, 0, 2, 0, 0, 0]);
    let report = &json_lines(&run("import mtx m.mtx --rows destinations --no-weights --out other --json"))[0];
    assert!(report["edge_weights"].is_null());
    fails(&run("import edges m.mtx --rows sources --out x"), 2, "--rows");
    fails(&run("import mtx m.mtx --columns source --out x"), 2, "--columns");
    fails(&run("import mtx m.mtx --columns source,destination --rows sources --out x"), 2, "--columns");
    fails(&run("import mtx m.mtx --ids numbers --rows sources --out x"), 2, "--ids");
    for option in ["--label-column 0", "--feature-dtype f16"] {
        let output = run(&format!("import mtx m.mtx --rows sources --out x {option}"));
        let option = option.split(' ').next().unwrap();
        fails(&output, 2, &format!("{option} is given: expected none without"));
    }
    fails(&run("import mtx m.mtx m.mtx --rows sources --out x"), 2, "several only of edges");
    fails(&run("import edges nothing.txt --out x"), 1, "nothing.txt");
    fails(&run("import edges m.mtx --out x --split .9,.9,.9"), 2, "--split");
    fails(&run("import sideways m.mtx --out x"), 2, "sideways");
    assert_eq!(names(folder.path()), ["m.mtx", "other", "set"]);
}

/// The folders of OGB and GraphBolt, with the least that they can have.
#[test]
fn folders_of_other_libraries_are_imported() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &str| cohop(folder.path(), arguments);
    let bolt = folder.path().join("bolt");
    fs::create_dir(&bolt).unwrap();
    let metadata = "dataset_name: tiny\ngraph:\n  nodes:\n    - num: 4\n  edges:\n    - format: csv\n\
                    \x20     path: e.csv\ntasks:\n  - name: node_classification\n    num_classes: 2\n";
    fs::write(bolt.join("metadata.yaml"), metadata).unwrap();
    fs::write(bolt.join("e.csv"), "0,1\n1,2\n2,3\n").unwrap();
    let report = &json_lines(&run("import graphbolt bolt --out set --json"))[0];
    assert_eq!((&report["vertices"], &report["edges"]), (&4.into(), &3.into()));
    fails(&run("import graphbolt bolt --out other --split-name time"), 2, "--split-name");

    let ogb = folder.path().join("ogbn_products");
    let gz = |name: &str, text: &str| {
        let path = ogb.join(format!("{name}.csv.gz"));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(path).unwrap();
        let mut file = flate2::write::GzEncoder::new(file, flate2::Compression::default());
        file.write_all(text.as_bytes()).unwrap();
        file.finish().unwrap();
    };
    fs::create_dir(&ogb).unwrap();
    fails(&run("import ogb ogbn_products --out other"), 1, "raw");
    // Two rings of 50, each a class, in one direction.
    let lines = |line: &dyn Fn(u32) -> String| (0..100).map(|v| line(v) + "\n").collect::<String>();
    gz("raw/edge", &lines(&|v| format!("{v},{}", v / 50 * 50 + (v + 1) % 50)));
    gz("raw/num-node-list", "100\n");
    gz("raw/num-edge-list", "100\n");
    gz("raw/node-feat", &lines(&|v| format!("{},0.5", v / 50)));
    gz("raw/node-label", &lines(&|v| (v / 50).to_string()));
    for (part, rest) in [("train", 0), ("valid", 1), ("test", 2)] {
        let ids: String = (0..100).filter(|v| v % 3 == rest).map(|v| format!("{v}\n")).collect();
        gz(&format!("split/sales_ranking/{part}"), &ids);
    }
    let report = &json_lines(&run("import ogb ogbn_products --out products --json"))[0];
    assert_eq!(
        (&report["edges_read"], &report["edges"], &report["classes"]),
        (&200.into(), &200.into(), &47.into())
    );
    assert!(report["notes"].to_string().contains("its reverse is added"), "{report}");
    let lines = json_lines(&run("train --data products --epochs 20 --lr 0.05 --json"));
    assert_eq!(lines.last().unwrap()["test_acc"], 1.0);
}

/// Lines of edges of 64 MiB of records, by 16 MiB: what a process takes that is not a file's stays near that.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_bounded_by_the_option() {
    let folder = tempfile::tempdir().unwrap();
    let mut file = std::io::BufWriter::new(fs::File::create(folder.path().join("e.txt")).unwrap());
    let mut state = 1u64;
    for _ in 0..4 << 20 {
        // A permutation of 64-bit numbers (Marsaglia 2003).
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        writeln!(file, "{} {}", state % 200_000, state / 200_000 % 200_000).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cohop"))
        .args("import edges e.txt --out set --undirected --memory 16 --threads 2 --quiet".split(' '))
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    let status = loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0));
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    assert!(status.success());
    assert!(most > 8 << 10 && most < 40 << 10, "{most} KiB, where all records take 65536");
}

/// An import that is told to stop leaves nothing behind.
#[cfg(unix)]
#[test]
fn an_interrupted_import_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.txt");
    fs::write(&path, "0 1\n".repeat(8 << 20)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_cohop"))
        .args(["import", "edges", "e.txt", "--out", "set", "--quiet"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Until it has begun: its folder is there.
    while names(folder.path()).len() < 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(names(folder.path()), ["e.txt"]);
}

/// A second signal ends it at once, and still nothing is left; likewise of `generate`, new or in place of another.
#[cfg(unix)]
#[test]
fn a_second_signal_leaves_nothing_either() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("e.txt"), "0 1\n".repeat(8 << 20)).unwrap();
    let old = folder.path().join("old");
    for (arguments, left) in [
        ("import edges e.txt --out set", vec![]),
        ("generate --out set --scale 22 --dim 0 --memory 64", vec![]),
        ("generate --out old --overwrite --scale 22 --dim 0 --memory 64", vec!["notes.txt"]),
    ] {
        // The work may end by the first before the second comes.
        let ended_at_once = (0..20).any(|_| {
            assert!(cohop(folder.path(), "generate --out old --overwrite --scale 3").status.success());
            fs::write(old.join("notes.txt"), "mine").unwrap();
            let mut command = Command::new(env!("CARGO_BIN_EXE_cohop"));
            command.args(arguments.split(' ')).arg("--quiet").current_dir(folder.path());
            let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
            // Until it has begun.
            while names(folder.path()).len() < 3 && old.join("meta.json").exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let kill = format!("kill -s INT {0}; kill -s TERM {0}", child.id());
            assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
            let output = child.wait_with_output().unwrap();
            assert!(matches!(output.status.code(), Some(130 | 143)), "{arguments}: {output:?}");
            if arguments.contains("--out old") {
                assert_eq!(names(&old), left);
                // To be made anew.
                fs::remove_dir_all(&old).unwrap();
            }
            let others: Vec<String> = names(folder.path()).into_iter().filter(|name| name != "old").collect();
            assert_eq!(others, ["e.txt"], "{arguments}: {output:?}");
            String::from_utf8_lossy(&output.stderr).contains("interrupted at once")
        });
        assert!(ended_at_once, "{arguments}: the first signal was always faster");
    }
}

/// A signal that comes when the folder is there already is told so.
#[cfg(unix)]
#[test]
fn a_signal_after_the_work_says_what_is_there() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("e.txt"), "0 1\n".repeat(8 << 20)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cohop"));
    command.args("import edges e.txt --out set --quiet".split(' ')).current_dir(folder.path());
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !folder.path().join("set").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(130) => assert_eq!(text, "cohop: interrupted; set is complete\n"),
        // The summary was faster.
        code => assert_eq!(code, Some(0), "{text}"),
    }
    assert_eq!(names(folder.path()), ["e.txt", "set"]);
}

/// The README's way for formats that are not built in. Needs Python with NumPy.
#[test]
fn the_readmes_lines_of_numpy_make_what_can_be_imported() {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md")).unwrap();
    let lines = readme.split("```python\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("cora.content", "31336\t0\t1\tB\n1061127\t1\t0\tA\nann\t1\t1\tB\n");
    write("cora.cites", "31336\t1061127\nann\t31336\nann\tunknown\n");
    write("features.json", "{\"1\": [0, 2], \"0\": []}");
    write("target.json", "{\"0\": 1, \"1\": 0}");
    let python = std::env::var("COHOP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let numpy = Command::new(&python).args(["-c", "import numpy"]).output();
    if !numpy.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED: {python} has no NumPy");
        return;
    }
    let done = Command::new(&python).args(["-c", lines]).current_dir(folder.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let run = |arguments: &str| json_lines(&cohop(folder.path(), arguments))[0].clone();
    let report = run("import edge-index edges.npy --features x.npy --labels y.npy --out cora --json");
    let expected = serde_json::json!([3, 2, 2, [1, 2]]);
    let found =
        serde_json::json!([report["vertices"], report["edges"], report["classes"], report["class_counts"]]);
    assert_eq!(found, expected);
    // Who cites is the source: 1061127 cites 31336, and that cites ann.
    let indices = fs::read(folder.path().join("cora/indices.npy")).unwrap();
    assert_eq!(indices[128..], [1, 0, 0, 0, 0, 0, 0, 0]);
    let report = run("import edge-index edges.npy --num-vertices 3 --out json --json");
    assert_eq!(report["vertices"], 3);
    let x = fs::read(folder.path().join("x_json.npy")).unwrap();
    let row: Vec<f32> = x[128..].chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(row, [0., 0., 0., 1., 0., 1.]);
}
