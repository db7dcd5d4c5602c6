//! The folders are spelled out after GraphBolt's specification of `metadata.yaml`
//! (`docs/source/stochastic_training/ondisk-dataset-specification.rst`), what its own tests write
//! (`tests/python/pytorch/graphbolt/gb_test_utils.py`) and what reads it
//! (`python/dgl/graphbolt/internal/utils.py`: edges as CSV without a header, or of shape `[2, n]`).

use std::path::{Path, PathBuf};

use super::read as graphbolt;
use crate::ReadOptions;
use crate::testing::{Read, file, npy, read, refused, text};

fn options() -> ReadOptions {
    ReadOptions { memory: 1 << 20, ..ReadOptions::default() }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str, contents: &str) -> &Self {
        text(&self.path(name), contents);
        self
    }

    fn i8(&self, name: &str, data: &[i64]) -> &Self {
        self.npy(name, npy("<i8", false, &[data.len()], data))
    }

    fn npy(&self, name: &str, bytes: Vec<u8>) -> &Self {
        file(&self.path(name), &bytes);
        self
    }

    /// Changes `metadata.yaml`.
    fn change(&self, from: &str, to: &str) -> &Self {
        let path = self.path("metadata.yaml");
        let before = std::fs::read_to_string(&path).unwrap();
        assert!(before.contains(from), "{from}");
        std::fs::write(path, before.replacen(from, to, 1)).unwrap();
        self
    }

    fn read(&self) -> Read {
        read(graphbolt, self.0.path(), &options()).unwrap()
    }

    fn refused(&self, texts: &[&str]) {
        refused(graphbolt, self.0.path(), &options(), texts);
    }
}

const ONE_TYPE: &str = "\
dataset_name: tiny
graph: # Graph structure and required attributes.
    nodes:
        - num: 5
    edges:
        - format: csv
          path: edges/edge.csv
    feature_data:
        - domain: node
          type: null
          name: feat
          format: numpy
          in_memory: true
          path: data/node-feat.npy
feature_data:
    - domain: node
      type: null
      name: feat
      format: numpy
      in_memory: false
      path: data/node-feat.npy
    - domain: edge
      type: null
      name: feat
      format: numpy
      path: data/edge-feat.npy
tasks:
    - name: link_prediction
      num_classes: 9
      train_set:
        - type: null
          data:
            - name: seeds
              format: numpy
              path: set/pairs.npy
    - name: node_classification
      num_classes: 4
      train_set:
        - type: null
          data:
            - name: seeds
              format: numpy
              in_memory: true
              path: set/train-seeds.npy
            - name: labels
              format: numpy
              path: set/train-labels.npy
      validation_set:
        - data:
            - name: seeds
              format: numpy
              path: set/val-seeds.npy
            - name: labels
              format: numpy
              path: set/val-labels.npy
      test_set:
        - data:
            - name: seeds
              format: numpy
              path: set/test-seeds.npy
";

fn one_type() -> Folder {
    let folder = Folder(tempfile::tempdir().unwrap());
    folder
        .text("metadata.yaml", ONE_TYPE)
        .text("edges/edge.csv", "0,1\n2,1\n4,0\n")
        .npy(
            "data/node-feat.npy",
            npy("<f8", false, &[5, 2], &[0.5, 1.0, 0.1, -2.0, 0.0, 0.0, 7.0, 8.0, 9.0, 1e-3]),
        )
        .npy("data/edge-feat.npy", npy("<f4", false, &[3], &[1.5f32, 2.5, 3.5]))
        .npy("set/pairs.npy", npy("<i8", false, &[2, 2], &[0i64, 1, 2, 3]))
        .i8("set/train-seeds.npy", &[4, 1])
        .i8("set/train-labels.npy", &[3, 0])
        .npy("set/val-seeds.npy", npy("<i4", false, &[2], &[0i32, 2]))
        .npy("set/val-labels.npy", npy("<f4", false, &[2, 1], &[f32::NAN, 2.0]))
        .i8("set/test-seeds.npy", &[3]);
    folder
}

#[test]
fn one_type_of_nodes() {
    let folder = one_type();
    let expected = [(0, 1, 0), (2, 1, 0), (4, 0, 0)];
    let check = |data: &Read| {
        assert_eq!(data.edges(), expected);
        assert_eq!(
            (data.found.n_vertices, data.found.n_classes, data.found.n_relations),
            (Some(5), Some(4), 1)
        );
        let features = [[0.5, 1.0], [0.1, -2.0], [0.0, 0.0], [7.0, 8.0], [9.0, 1e-3]];
        assert_eq!(data.matrix("feat"), features);
        // A vector is one column.
        assert_eq!(data.edge_features(), [[1.5], [2.5], [3.5]]);
        // Vertex 0 has NaN, 3 is only a seed.
        assert_eq!(data.labels(), [-1, 0, 2, -1, 3]);
        assert_eq!(data.ids("train_idx"), [4, 1]);
        assert_eq!(data.ids("val_idx"), [0, 2]);
        assert_eq!(data.ids("test_idx"), [3]);
        assert!(data.notes("link_prediction") && !data.folder.path().join("vertex_type.npy").exists());
    };
    check(&folder.read());
    // `edges.T` saved as it is has Fortran order.
    folder.change(
        "format: csv\n          path: edges/edge.csv",
        "format: numpy\n          path: edges/edge.npy",
    );
    check(&folder.npy("edges/edge.npy", npy("<i8", false, &[2, 3], &[0i64, 2, 4, 1, 1, 0])).read());
    check(&folder.npy("edges/edge.npy", npy("<i8", true, &[2, 3], &[0i64, 1, 2, 1, 4, 0])).read());
}

#[test]
fn arrays_of_the_graph_itself_are_named_as_not_imported() {
    let graph = |entries: &str| {
        let folder = one_type();
        let (before, rest) = ONE_TYPE.split_once("    feature_data:").unwrap();
        let (_, after) = rest.split_once("\nfeature_data:").unwrap();
        folder.text("metadata.yaml", &format!("{before}{entries}\nfeature_data:{after}"));
        folder.read().found.notes
    };
    let told = |notes: &[String]| -> Vec<String> {
        notes.iter().filter(|note| note.contains("graph.feature_data")).cloned().collect()
    };
    assert!(told(&graph("")).is_empty() && told(&graph("    feature_data: []")).is_empty());
    let weight = "    feature_data:
        - domain: edge
          type: 'user:click:item'
          name: weight
          format: torch
          path: none.pt
        - domain: node
          type: null
          name: age
        - name: 7";
    let expected = "not imported of graph.feature_data: edge user:click:item weight, node age, 7";
    assert_eq!(told(&graph(weight)), [expected]);
}

#[test]
fn halves_stay_halves() {
    let folder = one_type();
    let features = [1f32, 2.0, 0.1, 65504.0, -0.5].map(half::f16::from_f32);
    let data = folder.npy("data/node-feat.npy", npy("<f2", false, &[5], &features)).read();
    let path = data.folder.path().join("feat.npy");
    let stored = cohop::data::npy::NpyArray::open(&path, "feat").unwrap();
    assert_eq!(stored.as_stored::<half::f16>().unwrap()[..], features);
    assert_eq!(stored.matrix().unwrap(), [5, 1]);
}

#[test]
fn many_edges_in_either_order() {
    // More than are read at a time, twice.
    let n = 40_000usize;
    let source = |i: usize| (i * 7 % 5) as i64;
    let destination = |i: usize| (i * i % 5) as i64;
    let folder = one_type();
    folder.change(
        "format: csv\n          path: edges/edge.csv",
        "format: numpy\n          path: edges/edge.npy",
    );
    folder.npy("data/edge-feat.npy", npy("<f4", false, &[n], &vec![1f32; n]));
    let expected: Vec<_> = (0..n).map(|i| (source(i) as u32, destination(i) as u32, 0)).collect();
    let rows: Vec<i64> = (0..n).map(source).chain((0..n).map(destination)).collect();
    let pairs: Vec<i64> = (0..n).flat_map(|i| [source(i), destination(i)]).collect();
    for (fortran, data) in [(false, rows), (true, pairs)] {
        folder.npy("edges/edge.npy", npy("<i8", fortran, &[2, n], &data));
        assert_eq!(folder.read().edges(), expected);
    }
}

const TYPES: &str = "\
dataset_name: shop
graph:
  nodes:
    - type: user
      num: 3
    - type: item
      num: 2
  edges:
    - type: \"user:follow:user\"
      format: csv
      path: edges/follow.csv
    - type: user:click:item
      format: numpy
      path: edges/click.npy
feature_data:
  - domain: node
    type: user
    name: age
    format: numpy
    path: data/user-age.npy
  - domain: node
    type: user
    name: feat
    format: numpy
    path: data/user-feat.npy
  - domain: node
    type: item
    name: feat
    format: numpy
    path: data/item-feat.npy
  - domain: edge
    type: \"user:follow:user\"
    name: since
    format: numpy
    path: data/since.npy
tasks:
  - num_classes: 2
    train_set:
      - type: user
        data:
          - {name: seed_nodes, format: numpy, path: set/user.npy}
          - {name: labels, format: numpy, path: set/user-labels.npy}
      - type: item
        data:
          - {name: seed_nodes, format: numpy, path: set/item.npy}
          - {name: labels, format: numpy, path: set/item-labels.npy}
";

fn types() -> Folder {
    let folder = Folder(tempfile::tempdir().unwrap());
    folder
        .text("metadata.yaml", TYPES)
        .text("edges/follow.csv", "0,2\n1,0\n")
        .npy("edges/click.npy", npy("<i4", false, &[2, 3], &[0i32, 1, 2, 1, 0, 1]))
        .npy("data/user-feat.npy", npy("<f4", false, &[3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]))
        .npy(
            "data/item-feat.npy",
            npy("<f2", false, &[2, 3], &[1.5, 2.5, 3.5, 4.5, 5.5, 6.5].map(half::f16::from_f32)),
        )
        .npy("data/since.npy", npy("<i8", false, &[2, 1], &[2019i64, 2020]))
        .i8("set/user.npy", &[2])
        .i8("set/user-labels.npy", &[1])
        .i8("set/item.npy", &[1])
        .i8("set/item-labels.npy", &[0]);
    folder
}

#[test]
fn several_types() {
    let data = types().read();
    // Items 0 1, users 2 3 4; user:click:item before user:follow:user.
    assert_eq!(data.edges(), [(2, 1, 0), (3, 0, 0), (4, 1, 0), (2, 4, 1), (3, 2, 1)]);
    assert_eq!(data.vertex_types(), [0, 0, 1, 1, 1]);
    let users = [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0], [5.0, 6.0, 0.0]];
    assert_eq!(data.matrix("feat"), [[1.5, 2.5, 3.5], [4.5, 5.5, 6.5], users[0], users[1], users[2]]);
    assert_eq!(data.edge_features(), [[0.0], [0.0], [0.0], [2019.0], [2020.0]]);
    assert_eq!(data.labels(), [-1, 0, -1, -1, 1]);
    assert_eq!(data.ids("train_idx"), [4, 1]);
    assert!(data.ids("val_idx").is_empty() && data.ids("test_idx").is_empty());
    assert_eq!((data.found.n_vertices, data.found.n_classes, data.found.n_relations), (Some(5), Some(2), 2));
    assert!(data.notes("not imported, as one is named feat: age"));
    assert!(data.notes("features of type user have only 2 columns"));
}

#[test]
fn labels_of_several_columns_and_without_a_number_of_classes() {
    let folder = one_type();
    folder.change("      num_classes: 4\n", "");
    assert_eq!(folder.read().found.n_classes, Some(4));
    let two = npy("<i8", false, &[2, 2], &[0i64, 1, 1, 0]);
    folder.npy("set/train-labels.npy", two.clone()).npy("set/val-labels.npy", two);
    folder.refused(&["train-labels.npy", "2 columns", "--label-column, 0 to 1"]);
    let wanted = ReadOptions { label_column: Some(1), ..options() };
    let data = read(graphbolt, folder.0.path(), &wanted).unwrap();
    assert_eq!((data.labels(), data.found.n_classes), (vec![1, 0, 0, -1, 1], Some(2)));
}

#[test]
fn little_memory_gives_the_same_labels() {
    let folder = one_type();
    let n = 3000i64;
    folder
        .change("num: 5", &format!("num: {n}"))
        .change("feature_data:\n    - domain: node\n      type: null", "x:\n    - z: node");
    folder.npy("data/edge-feat.npy", npy("<f4", false, &[3], &[0f32; 3]));
    let seeds: Vec<i64> = (0..n / 2).map(|i| n - 1 - 2 * i).collect();
    let labels: Vec<i64> = seeds.iter().map(|v| v % 4).collect();
    folder.i8("set/train-seeds.npy", &seeds).i8("set/train-labels.npy", &labels);
    folder.i8("set/val-seeds.npy", &[]).i8("set/val-labels.npy", &[]);
    let wanted = ReadOptions { memory: 0, ..options() };
    let data = read(graphbolt, folder.0.path(), &wanted).unwrap();
    let expected: Vec<i32> = (0..n as i32).map(|v| if v % 2 == 1 { v % 4 } else { -1 }).collect();
    assert_eq!(data.labels(), expected);
}

#[test]
fn without_tasks_or_with_others_only() {
    let folder = one_type();
    let (graph, _) = ONE_TYPE.split_once("tasks:").unwrap();
    let data = folder.text("metadata.yaml", graph).read();
    assert!(data.notes("no task") && data.found.n_classes.is_none() && data.found.files == ["feat.npy"]);
    let (pairs, _) = ONE_TYPE.split_once("    - name: node_classification").unwrap();
    let data = folder.text("metadata.yaml", pairs).read();
    assert!(data.notes("no task") && data.notes("link_prediction") && data.found.files == ["feat.npy"]);
}

#[test]
fn metadata_that_cannot_be_read() {
    one_type().text("metadata.yaml", "graph:\n  nodes: [\n").refused(&["metadata.yaml", "line 3"]);
    one_type().change("num: 5", "num: five").refused(&["graph.nodes[0].num", "five", "line 4"]);
    one_type().change("num: 5", "number: 5").refused(&["missing field `num`", "line 4"]);
    one_type().change("num: 5", "num: -5").refused(&["num", "-5", "line 4"]);
    one_type().change("format: csv", "format: parquet").refused(&["parquet", "csv", "numpy", "line 6"]);
    one_type().change("graph:", "graphs:").refused(&["metadata.yaml", "has no `graph`"]);
    one_type().change("num: 5", "num: 99999999999").refused(&["99999999999 vertices", "at most 4294967295"]);
    let preprocessed =
        "graph_topology:\n  type: FusedCSCSamplingGraph\n  path: preprocessed/fused_csc_sampling_graph.pt\n";
    one_type().text("metadata.yaml", preprocessed).refused(&[
        "preprocessed",
        "PyTorch",
        "metadata.yaml that has `graph`",
    ]);
    refused(graphbolt, Path::new("nowhere"), &options(), &["nowhere", "metadata.yaml"]);
    types().change("type: item\n      num", "type: user\n      num").refused(&["type user twice"]);
    types().change("- type: item\n      num", "- num").refused(&["graph.nodes[1] has no type"]);
    types()
        .change("user:click:item", "user:follow:user")
        .refused(&["graph.edges has type user:follow:user twice"]);
    types().change("user:click:item", "user:click:things").refused(&["graph.edges[1]", "things", "no type"]);
    types().change("user:click:item", "click").refused(&["graph.edges[1]", "source:relation:destination"]);
    types()
        .change("type: item\n    name: feat", "type: shop\n    name: feat")
        .refused(&["feature_data", "shop"]);
    types()
        .change("type: item\n        data", "type: shop\n        data")
        .refused(&["tasks[0].train_set[1]", "shop"]);
    let ambiguous = types();
    ambiguous.change("name: feat", "name: size").change("name: feat", "name: colour");
    ambiguous.refused(&["domain node", "age, colour, size", "one named feat"]);
    // Aliases that multiply: text of a few lines that would fill memory.
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n".to_owned()
        + &(b'b'..=b'j')
            .map(|c| {
                let (name, before) = (char::from(c), char::from(c - 1));
                format!("{name}: &{name} [{}]\n", vec![format!("*{before}"); 9].join(","))
            })
            .collect::<String>();
    one_type().text("metadata.yaml", &bomb).refused(&["metadata.yaml"]);
}

#[test]
fn files_that_do_not_fit() {
    let torch = "format: torch\n              in_memory: true\n              path: set/train-seeds.pt";
    let seeds = "format: numpy\n              in_memory: true\n              path: set/train-seeds.npy";
    one_type().change(seeds, torch).refused(&["set/train-seeds.pt has format torch", "numpy.save"]);
    one_type().change("in_memory: false\n      path", "y: 1\n      path").read();
    let feature = "format: numpy\n      in_memory: false";
    one_type().change(feature, "format: torch").refused(&["data/node-feat.npy has format torch"]);
    one_type().change("edges/edge.csv", "edges/none.csv").refused(&["edges/none.csv"]);
    one_type().text("edges/edge.csv", "0,1\n2,5\n").refused(&[
        "edge.csv",
        "line 2",
        "destination 5",
        "from 0 to 4",
    ]);
    one_type().text("edges/edge.csv", "src,dst\n0,1\n").refused(&["edge.csv", "line 1", "\"src\""]);
    one_type().text("edges/edge.csv", "0,1\n1,2\n").refused(&["edge-feat.npy", "3 rows", "expected 2"]);
    one_type().i8("set/test-seeds.npy", &[3, 5]).refused(&[
        "test-seeds.npy",
        "row 1",
        "vertex 5",
        "from 0 to 4",
    ]);
    one_type().i8("set/train-labels.npy", &[1]).refused(&["train-labels.npy", "last label", "train_set"]);
    one_type().i8("set/train-labels.npy", &[1, 1, 1]).refused(&["train-labels.npy", "no more seeds"]);
    let twice = one_type();
    twice.i8("set/val-seeds.npy", &[4, 2]).i8("set/val-labels.npy", &[1, 1]);
    twice.refused(&["metadata.yaml", "vertex 4 has the classes 1 and 3"]);
    let folder = one_type();
    folder
        .npy("data/node-feat.npy", npy("<f4", true, &[5, 2], &[0f32; 10]))
        .refused(&["node-feat.npy", "Fortran"]);
    folder
        .npy("data/node-feat.npy", npy("<f4", false, &[5, 1, 2], &[0f32; 10]))
        .refused(&["[5, 1, 2]", "rows and columns"]);
    let mut short = npy("<f4", false, &[5, 2], &[0f32; 10]);
    short.truncate(short.len() - 1);
    folder.npy("data/node-feat.npy", short).refused(&["node-feat.npy", "[5, 2]", "truncated"]);
    let numpy = one_type();
    numpy.change(
        "format: csv\n          path: edges/edge.csv",
        "format: numpy\n          path: edges/edge.npy",
    );
    numpy.npy("edges/edge.npy", npy("<i8", false, &[3, 3], &[0i64; 9])).refused(&[
        "edge.npy",
        "[3, 3]",
        "[2, edges]",
    ]);
    numpy
        .npy("edges/edge.npy", npy("<i8", false, &[2, 3], &[0i64, 1, 2, 3, 4, 5]))
        .refused(&["column 2", "destination 5"]);
}
