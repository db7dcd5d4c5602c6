//! The folders are spelled out after what OGB's loader reads (`ogb/io/read_graph_raw.py`) and its `DatasetSaver` writes
//! (`ogb/io/save_dataset.py`): which files there are, with which columns, keys, shapes and types.

use std::path::{Path, PathBuf};

use cohop::data::FeatureDtype;

use super::read as ogb;
use crate::ReadOptions;
use crate::testing::{Read, file, npy, npz, read, refused, text};

fn options() -> ReadOptions {
    ReadOptions { memory: 1 << 20, ..ReadOptions::default() }
}

/// A folder of that name, in one that is removed at the end.
struct Folder(#[allow(dead_code)] tempfile::TempDir, PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::create_dir(&path).unwrap();
        Folder(folder, path)
    }

    fn text(&self, name: &str, contents: &str) -> &Self {
        text(&self.1.join(name), contents);
        self
    }

    fn npz(&self, name: &str, arrays: &[(&str, Vec<u8>)]) -> &Self {
        npz(&self.1.join(name), true, arrays);
        self
    }

    fn remove(&self, name: &str) -> &Self {
        std::fs::remove_file(self.1.join(name)).unwrap();
        self
    }

    fn split(&self, name: &str, parts: [&str; 3]) -> &Self {
        for (part, ids) in ["train", "valid", "test"].into_iter().zip(parts) {
            self.text(&format!("split/{name}/{part}.csv.gz"), ids);
        }
        self
    }

    fn read(&self) -> Read {
        read(ogb, &self.1, &options()).unwrap()
    }

    fn refused(&self, texts: &[&str]) {
        refused(ogb, &self.1, &options(), texts);
    }
}

/// As ogbn-arxiv.
fn citations(name: &str) -> Folder {
    let folder = Folder::new(name);
    folder
        .text("raw/edge.csv.gz", "0,1\n2,1\n3,0\n")
        .text("raw/num-node-list.csv.gz", "4\n")
        .text("raw/num-edge-list.csv.gz", "3\n")
        .text("raw/node-feat.csv.gz", "0.5,-1.25\n1e-2,3\n-0.0,7.5\n16777216,0.1\n")
        .text("raw/node-label.csv.gz", "2\n0\n1\n39\n")
        .text("raw/node_year.csv.gz", "2013\n2015\n2014\n2020\n")
        .split("time", ["0\n1\n", "2\n", "3\n"]);
    folder
}

#[test]
fn text_of_one_type() {
    let data = citations("ogbn_arxiv").read();
    assert_eq!(data.edges(), [(0, 1, 0), (2, 1, 0), (3, 0, 0)]);
    assert_eq!((data.found.n_vertices, data.found.n_classes, data.found.n_relations), (Some(4), Some(40), 1));
    let features = [[0.5, -1.25], [0.01, 3.0], [0.0, 7.5], [16_777_216.0, 0.1]];
    assert_eq!(data.matrix("feat"), features);
    assert_eq!(data.labels(), [2, 0, 1, 39]);
    assert_eq!(data.ids("train_idx"), [0, 1]);
    assert_eq!(data.ids("val_idx"), [2]);
    assert_eq!(data.ids("test_idx"), [3]);
    assert_eq!(data.found.edge_features, None);
    assert!(
        data.notes("ogbn-arxiv: edges go as they are stored") && data.notes("not imported: node_year.csv.gz")
    );
    assert!(!data.found.has_weights && !data.folder.path().join("vertex_type.npy").exists());
}

#[test]
fn the_data_set_is_known_by_the_name_of_its_folder_or_by_its_release_note() {
    // As the loader renames the folder, as the archive has it, and under a name of one's own.
    for (name, n_classes) in [
        ("ogbn_products", Some(47)),
        ("products", Some(47)),
        ("papers100M-bin", Some(172)),
        ("mine", Some(40)),
    ] {
        assert_eq!(citations(name).read().found.n_classes, n_classes, "{name}");
    }
    let unknown = citations("mine").read();
    assert!(unknown.notes("--undirected") && unknown.edges().len() == 3);
    let folder = citations("mine");
    std::fs::write(folder.1.join("RELEASE_v1.txt"), "# Release note for ogbn-products\n\n### v1: 2020-05-01")
        .unwrap();
    let data = folder.read();
    assert_eq!((data.found.n_classes, data.edges().len()), (Some(47), 6));
}

#[test]
fn sets_that_are_stored_in_one_direction_get_the_other_as_ogb_does_it() {
    let folder = citations("ogbn_proteins");
    folder
        .remove("raw/node-feat.csv.gz")
        .remove("raw/node_year.csv.gz")
        .text("raw/edge-feat.csv.gz", "0.125,1\n0.25,2\n0.5,3\n")
        .text("raw/node-label.csv.gz", "0,1,1\n1,0,1\n0,0,1\n1,1,0\n")
        .text("raw/node_species.csv.gz", "3702\n3702\n4932\n511145\n");
    std::fs::rename(folder.1.join("split/time"), folder.1.join("split/species")).unwrap();
    let wanted = ReadOptions { label_column: Some(1), ..options() };
    let data = read(ogb, &folder.1, &wanted).unwrap();
    assert_eq!(data.edges(), [(0, 1, 0), (1, 0, 0), (2, 1, 0), (1, 2, 0), (3, 0, 0), (0, 3, 0)]);
    let rows = [[0.125, 1.0], [0.125, 1.0], [0.25, 2.0], [0.25, 2.0], [0.5, 3.0], [0.5, 3.0]];
    assert_eq!(data.edge_features(), rows);
    assert_eq!((data.labels(), data.found.n_classes), (vec![1, 0, 0, 1], Some(2)));
    let all = [[0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0]];
    assert_eq!(data.matrix("multi_labels"), all);
    assert!(data.notes("its reverse is added") && data.notes("column 1 of 3") && data.notes("no features"));
    folder.refused(&["node-label.csv.gz", "3 columns", "--label-column, 0 to 2"]);
    let beyond = ReadOptions { label_column: Some(3), ..options() };
    refused(ogb, &folder.1, &beyond, &["--label-column", "3", "below 3"]);
}

#[test]
fn several_splits_are_chosen_by_name() {
    let folder = citations("mine");
    folder.split("random", ["3\n", "2\n", "0\n1\n"]);
    folder.refused(&["split", "--split-name", "random, time"]);
    let wanted = ReadOptions { split_name: Some("random".into()), ..options() };
    let data = read(ogb, &folder.1, &wanted).unwrap();
    assert_eq!((data.ids("train_idx"), data.ids("test_idx")), (vec![3], vec![0, 1]));
    let wanted = ReadOptions { split_name: Some("size".into()), ..options() };
    refused(ogb, &folder.1, &wanted, &["--split-name", "size", "random, time"]);
    // OGB's loader takes the one of its table.
    let folder = citations("arxiv");
    let data = folder.split("random", ["3\n", "2\n", "0\n1\n"]).read();
    assert!(data.ids("train_idx") == [0, 1] && data.notes("split time, the usual one"));
    std::fs::remove_dir_all(folder.1.join("split")).unwrap();
    assert!(folder.read().notes("no folder split"));
    // Newer archives have only what torch.save writes.
    file(&folder.1.join("split/time/split_dict.pt"), b"PK");
    folder.refused(&["split_dict.pt", "PyTorch", "train.csv.gz"]);
}

#[test]
fn labels_of_text_may_be_missing() {
    // As pandas writes NaN among floats, and alone in its line.
    let folder = citations("mine");
    let data = folder.text("raw/node-label.csv.gz", "1.0\nnan\n\"\"\n0.0\n").read();
    assert_eq!((data.labels(), data.found.n_classes), (vec![1, -1, -1, 0], Some(2)));
    assert!(data.notes("2 labels are NaN"));
}

/// As ogbn-papers100M: 3 vertices, 4 edges.
fn papers(fortran: bool, compressed: bool) -> Folder {
    let folder = Folder::new("ogbn_papers100M");
    let edge_index: [i64; 8] = match fortran {
        false => [0, 2, 1, 2, 1, 0, 2, 1],
        true => [0, 1, 2, 0, 1, 2, 2, 1],
    };
    let data = [
        ("edge_index", npy("<i8", fortran, &[2, 4], &edge_index)),
        ("num_nodes_list", npy("<i8", false, &[1], &[3i64])),
        ("num_edges_list", npy("<i8", false, &[1], &[4i64])),
        ("node_feat", npy("<f4", false, &[3, 2], &[0.5f32, -1.0, 0.1, 2.0, 1e5, 0.0])),
        ("node_year", npy("<i8", false, &[3, 1], &[2010i64, 2011, 2012])),
    ];
    npz(&folder.1.join("raw/data.npz"), compressed, &data);
    let labels = [f32::NAN, 171.0, 3.0];
    npz(
        &folder.1.join("raw/node-label.npz"),
        compressed,
        &[("node_label", npy("<f4", false, &[3, 1], &labels))],
    );
    folder.split("time", ["1\n", "2\n", ""]);
    folder
}

#[test]
fn arrays_of_one_type() {
    for (fortran, compressed) in [(false, true), (true, true), (false, false), (true, false)] {
        let data = papers(fortran, compressed).read();
        assert_eq!(data.edges(), [(0, 1, 0), (2, 0, 0), (1, 2, 0), (2, 1, 0)]);
        assert_eq!((data.found.n_vertices, data.found.n_classes), (Some(3), Some(172)));
        assert_eq!(data.matrix("feat"), [[0.5, -1.0], [0.1, 2.0], [1e5, 0.0]]);
        assert_eq!(data.labels(), [-1, 171, 3]);
        assert_eq!((data.ids("train_idx"), data.ids("val_idx")), (vec![1], vec![2]));
        assert_eq!(data.ids("test_idx"), [0u32; 0]);
        assert!(data.notes("not imported: node_year") && data.notes("1 labels are NaN"));
    }
}

#[test]
fn features_are_written_in_the_wanted_type() {
    let folder = papers(false, true);
    let wanted = |dtype| ReadOptions { feature_dtype: Some(dtype), ..options() };
    refused(ogb, &folder.1, &wanted(FeatureDtype::F16), &["array node_feat: row 2", "1e5", "range of f16"]);
    let data = read(ogb, &folder.1, &wanted(FeatureDtype::Bf16)).unwrap();
    let path = data.folder.path().join("feat.npy");
    let stored = cohop::data::npy::NpyArray::open(&path, "feat").unwrap().as_stored::<half::bf16>().unwrap();
    let expected = [0.5, -1.0, 0.1, 2.0, 1e5, 0.0].map(half::bf16::from_f32);
    assert_eq!(stored[..], expected);
}

/// As ogbn-mag: 2 authors, 1 institution, 3 papers.
fn typed(arrays: bool) -> Folder {
    let folder = Folder::new("ogbn_mag");
    let split = [("train", "2\n"), ("valid", "0\n"), ("test", "1\n")];
    for (part, ids) in split {
        folder.text(&format!("split/time/paper/{part}.csv.gz"), ids);
    }
    folder.text("split/time/nodetype-has-split.csv.gz", "author,institution,paper\nFalse,False,True\n");
    if arrays {
        let i8 = |shape: &[usize], data: &[i64]| npy("<i8", false, shape, data);
        let features = [0.5f32, 1.5, 2.5, 3.5, 4.5, 5.5];
        folder
            .npz(
                "raw/num_nodes_dict.npz",
                &[("author", i8(&[1], &[2])), ("institution", i8(&[1], &[1])), ("paper", i8(&[1], &[3]))],
            )
            .npz(
                "raw/num_edges_dict.npz",
                &[
                    ("paper___cites___paper", i8(&[1], &[2])),
                    ("author___affiliated_with___institution", i8(&[1], &[1])),
                    ("author___writes___paper", i8(&[1], &[3])),
                ],
            )
            .npz(
                "raw/edge_index_dict.npz",
                &[
                    ("paper___cites___paper", i8(&[2, 2], &[2, 1, 0, 2])),
                    ("author___affiliated_with___institution", i8(&[2, 1], &[1, 0])),
                    ("author___writes___paper", i8(&[2, 3], &[0, 1, 1, 2, 0, 1])),
                ],
            )
            .npz("raw/node_feat_dict.npz", &[("paper", npy("<f4", false, &[3, 2], &features))])
            .npz("raw/node_year_dict.npz", &[("paper", i8(&[3, 1], &[2010, 2011, 2012]))])
            .npz("raw/node-label.npz", &[("paper", i8(&[3, 1], &[7, 348, 0]))]);
        return folder;
    }
    folder
        .text("raw/num-node-dict.csv.gz", "paper,author,institution\n3,2,1\n")
        .text(
            "raw/triplet-type-list.csv.gz",
            "paper,cites,paper\nauthor,writes,paper\nauthor,affiliated_with,institution\n",
        )
        .text("raw/nodetype-has-label.csv.gz", "author,institution,paper\nFalse,False,True\n")
        .text("raw/node-feat/paper/node-feat.csv.gz", "0.5,1.5\n2.5,3.5\n4.5,5.5\n")
        .text("raw/node-feat/paper/node_year.csv.gz", "2010\n2011\n2012\n")
        .text("raw/node-label/paper/node-label.csv.gz", "7\n348\n0\n");
    for (triplet, edges) in [
        ("paper___cites___paper", "2,0\n1,2\n"),
        ("author___affiliated_with___institution", "1,0\n"),
        ("author___writes___paper", "0,2\n1,0\n1,1\n"),
    ] {
        let n = edges.lines().count();
        folder.text(&format!("raw/relations/{triplet}/edge.csv.gz"), edges);
        folder.text(&format!("raw/relations/{triplet}/num-edge-list.csv.gz"), &format!("{n}\n"));
        folder.text(&format!("raw/relations/{triplet}/edge_reltype.csv.gz"), &"0\n".repeat(n));
    }
    folder
}

#[test]
fn several_types_in_text_and_in_arrays() {
    for arrays in [false, true] {
        let data = typed(arrays).read();
        // Authors 0 1, the institution 2, papers 3 4 5; relations in the order of their names.
        let edges = [(1, 2, 0), (0, 5, 1), (1, 3, 1), (1, 4, 1), (5, 3, 2), (4, 5, 2)];
        assert_eq!(data.edges(), edges);
        assert_eq!(
            (data.found.n_vertices, data.found.n_relations, data.found.n_classes),
            (Some(6), 3, Some(349))
        );
        assert_eq!(data.vertex_types(), [0, 0, 1, 2, 2, 2]);
        let none = [0.0, 0.0];
        assert_eq!(data.matrix("feat"), [none, none, none, [0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]);
        assert_eq!(data.labels(), [-1, -1, -1, 7, 348, 0]);
        assert_eq!(data.ids("train_idx"), [5]);
        assert_eq!(data.ids("val_idx"), [3]);
        assert_eq!(data.ids("test_idx"), [4]);
        assert!(data.notes("0 author (2 from 0), 1 institution (1 from 2), 2 paper (3 from 3)"));
        assert!(
            data.notes("1 author___writes___paper") && data.notes("features of type author have no columns")
        );
        assert!(data.notes("node_year"));
    }
}

#[test]
fn edge_features_of_some_relations_only() {
    let folder = typed(false);
    let path = "raw/relations/author___writes___paper/edge-feat.csv.gz";
    let data = folder.text(path, "1\n2\n3\n").read();
    assert_eq!(data.edge_features(), [[0.0], [1.0], [2.0], [3.0], [0.0], [0.0]]);
    folder.text(path, "1\n2\n").refused(&["writes___paper/edge-feat.csv.gz", "2 rows", "expected 3"]);
}

#[test]
fn what_is_missing_is_named() {
    for name in ["edge", "num-node-list", "num-edge-list", "node-label"] {
        let folder = citations("mine");
        folder.remove(&format!("raw/{name}.csv.gz")).refused(&[name, ".csv.gz"]);
    }
    citations("mine").remove("split/time/valid.csv.gz").refused(&["split/time/valid.csv.gz"]);
    let relation = "raw/relations/paper___cites___paper/edge.csv.gz";
    typed(false).remove(relation).refused(&[relation]);
    typed(false).remove("raw/nodetype-has-label.csv.gz").refused(&["nodetype-has-label.csv.gz"]);
    typed(true)
        .remove("raw/node-label.npz")
        .refused(&["node-label.npz: no such file", "the labels of vertices"]);
    typed(true).remove("raw/num_edges_dict.npz").refused(&["num_edges_dict.npz"]);
    papers(false, true).remove("raw/node-label.npz").refused(&["node-label.npz"]);
    let folder = papers(false, true);
    folder.npz("raw/data.npz", &[("num_nodes_list", npy("<i8", false, &[1], &[3i64]))]);
    folder.refused(&["data.npz", "no array num_edges_list", "it has num_nodes_list"]);
    // The folder above, or another one.
    refused(ogb, Path::new("."), &options(), &["raw", "has none of edge.csv.gz", "ogbn_arxiv"]);
}

#[test]
fn lengths_that_disagree() {
    for (name, contents, texts) in [
        ("num-edge-list", "4\n", &["edge.csv.gz", "3 edges", "num-edge-list.csv.gz says 4"][..]),
        ("node-label", "0\n0\n0\n", &["node-label.csv.gz", "3 labels", "4 vertices"]),
        ("node-feat", "0\n0\n0\n0\n0\n", &["node-feat.csv.gz", "5 rows", "expected 4"]),
        ("num-node-list", "4\n4\n", &["num-node-list.csv.gz", "several graphs"]),
        ("num-node-list", "", &["num-node-list.csv.gz", "expected a number"]),
        ("num-node-list", "99999999999\n", &["num-node-list.csv.gz", "at most 4294967295"]),
    ] {
        let folder = citations("mine");
        folder.text(&format!("raw/{name}.csv.gz"), contents).refused(texts);
    }
    let folder = papers(false, true);
    folder.npz("raw/node-label.npz", &[("node_label", npy("<f4", false, &[2, 1], &[0f32, 1.0]))]);
    folder.refused(&["array node_label", "2 labels", "3 vertices"]);
}

#[test]
fn values_that_cannot_be() {
    for (name, contents, texts) in [
        ("raw/edge", "0,1\n2,4\n3,0\n", &["edge.csv.gz", "line 2", "destination 4", "from 0 to 3"][..]),
        ("raw/edge", "0,1\n-1,2\n3,0\n", &["edge.csv.gz", "line 2", "source -1"]),
        ("raw/edge", "0,1\n0.5,2\n3,0\n", &["line 2", "source 0.5", "expected an integer"]),
        ("raw/edge", "0,1\n2\n3,0\n", &["line 2", "has 1 values, the first line has 2"]),
        ("raw/edge", "0,1,1\n", &["edge.csv.gz", "3 columns, expected 2"]),
        ("raw/edge", "source,destination\n0,1\n", &["line 1", "source", "expected a number"]),
        (
            "raw/node-feat",
            "0,1\n1,x\n0,0\n0,0\n",
            &["node-feat.csv.gz", "line 2", "\"x\": expected a number"],
        ),
        ("raw/node-feat", "0,1\n1,1e300\n0,0\n0,0\n", &["line 2", "1e300", "range of f32"]),
        ("raw/node-label", "0\n1\n-2\n0\n", &["node-label.csv.gz", "line 3", "label -2"]),
        ("raw/node-label", "0\n1.5\n0\n0\n", &["node-label.csv.gz", "line 2", "label 1.5"]),
        ("split/time/test", "0\n4\n", &["split/time/test.csv.gz", "line 2", "vertex 4", "from 0 to 3"]),
        ("split/time/test", "0\n2\n0\n", &["split/time/test.csv.gz: line 3: vertex 0 is already in line 1"]),
        ("split/time/test", "0,4\n", &["split/time/test.csv.gz", "2 columns, expected one"]),
    ] {
        let folder = citations("mine");
        folder.text(&format!("{name}.csv.gz"), contents).refused(texts);
    }
    let folder = papers(false, true);
    let edge_index = npy("<i8", false, &[2, 2], &[0i64, 1, 2, 3]);
    let one = |n: i64| npy("<i8", false, &[1], &[n]);
    let data = [("edge_index", edge_index), ("num_nodes_list", one(3)), ("num_edges_list", one(2))];
    folder.npz("raw/data.npz", &data).refused(&[
        "array edge_index",
        "column 1",
        "destination 3",
        "from 0 to 2",
    ]);
    let data = [
        ("edge_index", npy("<i8", false, &[2, 3], &[0i64; 6])),
        ("num_nodes_list", one(3)),
        ("num_edges_list", one(2)),
    ];
    folder.npz("raw/data.npz", &data).refused(&[
        "array edge_index",
        "3 edges",
        "array num_edges_list",
        "says 2",
    ]);
    let folder = typed(false);
    folder.text("raw/num-node-dict.csv.gz", "paper,author\n3,2\n");
    folder.refused(&["author___affiliated_with___institution", "institution is no type", "author, paper"]);
    folder
        .text("raw/num-node-dict.csv.gz", "paper,author\n3\n")
        .refused(&["num-node-dict", "as many values as names"]);
}

#[test]
fn truncated_and_damaged_files() {
    // Random digits, which compress badly, so that a half of the file ends within the data.
    let digits: String =
        (0..4000u64).map(|i| format!("{}\n", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 4)).collect();
    let folder = citations("mine");
    folder.text("raw/node-label.csv.gz", &digits).text("raw/num-node-list.csv.gz", "4000\n");
    folder.remove("raw/node-feat.csv.gz").read();
    let path = folder.1.join("raw/node-label.csv.gz");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    folder.refused(&["node-label.csv.gz", "truncated or damaged"]);

    let folder = papers(false, false);
    let path = folder.1.join("raw/data.npz");
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    folder.refused(&["data.npz", "is not a readable .npz", "truncated"]);
    // One bit of the last feature.
    let mut damaged = whole.clone();
    let at = whole.windows(4).position(|bytes| bytes == 1e5f32.to_le_bytes()).unwrap();
    damaged[at] ^= 1;
    std::fs::write(&path, &damaged).unwrap();
    folder.refused(&["array node_feat", "checksum"]);
    // A header that promises more than there is.
    let mut short = npy("<i8", false, &[2, 4], &[0i64; 8]);
    short.truncate(short.len() - 8);
    let one = |n: i64| npy("<i8", false, &[1], &[n]);
    folder.npz(
        "raw/data.npz",
        &[("edge_index", short), ("num_nodes_list", one(3)), ("num_edges_list", one(4))],
    );
    folder.refused(&["array edge_index", "[2, 4]", "truncated"]);
}
