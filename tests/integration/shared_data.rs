//! Reads every shared data set and compares it with the counts published beside it.

use std::path::Path;

use cohop::data::{self, Features};
use serde_json::Value;

use crate::common;

fn count(info: &Value, key: &str) -> Option<u64> {
    info.get(key).map(|v| v.as_u64().unwrap_or_else(|| panic!("{key} is {v}")))
}

fn counts(info: &Value, key: &str) -> Option<Vec<u64>> {
    info.get(key).map(|v| v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect())
}

fn tally(values: impl Iterator<Item = usize>, n: usize) -> Vec<u64> {
    let mut tally = vec![0; n];
    values.for_each(|v| tally[v] += 1);
    tally
}

/// The number of counts that were compared.
fn check(path: &Path) -> usize {
    let text = std::fs::read_to_string(path.with_extension("json")).unwrap();
    let info: Value = serde_json::from_str(&text).unwrap();
    let set = data::load(path).unwrap();
    let name = &set.name;
    let mut compared = 0;
    let mut same = |what: &str, expected: Option<u64>, actual: u64| {
        if let Some(expected) = expected {
            assert_eq!(actual, expected, "{name}: {what}");
            compared += 1;
        }
    };
    let graph = &set.graph;
    let degrees = graph.degree_statistics();
    same("vertices", count(&info, "num_nodes"), graph.n_vertices() as u64);
    same("edges", count(&info, "num_directed_edges"), graph.n_edges());
    same("edges", count(&info, "num_edges"), graph.n_edges());
    same("relations", count(&info, "num_relations"), graph.n_relations() as u64);
    same("classes", count(&info, "num_classes"), set.n_classes as u64);
    same("feature columns", count(&info, "num_features"), set.features.dim() as u64);
    same("largest degree", count(&info, "max_in_degree"), degrees.max);
    same("vertices without in-edges", count(&info, "nodes_without_in_edges"), degrees.without_in_edges);
    let unlabelled = set.labels.iter().filter(|&&l| l == -1).count() as u64;
    same("unlabelled vertices", count(&info, "unlabelled_nodes"), unlabelled);
    if let Features::Sparse(sparse) = &set.features {
        same("nonzero features", count(&info, "nnz_features"), sparse.values().len() as u64);
        assert_eq!(sparse.n_rows(), graph.n_vertices());
    }
    let mut same = |what: &str, expected: Option<Vec<u64>>, actual: Vec<u64>| {
        if let Some(expected) = expected {
            assert_eq!(actual, expected, "{name}: {what}");
            compared += 1;
        }
    };
    let labels = set.labels.iter().filter_map(|&l| usize::try_from(l).ok());
    same("class counts", counts(&info, "class_counts"), tally(labels, set.n_classes));
    let parts = [&set.train_idx, &set.val_idx, &set.test_idx];
    same("split", counts(&info, "split"), parts.map(|p| p.len() as u64).to_vec());
    if let Some(types) = graph.edge_type() {
        let relations = types.iter().map(|&r| usize::from(r));
        same("relation counts", counts(&info, "relation_counts"), tally(relations, graph.n_relations()));
    }
    if let Some(types) = &set.vertex_type {
        let types = types.iter().map(|&t| usize::from(t));
        same("vertex type counts", counts(&info, "node_type_counts"), tally(types, set.n_vertex_types()));
    }
    if info.get("symmetrised") == Some(&Value::Bool(true)) {
        assert_eq!(graph.symmetrize().unwrap().indices(), graph.indices(), "{name} is symmetric");
    }
    if info["arrays"].get("train_masks").is_some() {
        assert_eq!(set.splits.len(), 10, "{name}");
        let mut other = set.clone();
        other.select_split(0).unwrap();
        assert_eq!([&other.train_idx, &other.val_idx, &other.test_idx], parts, "{name}: split 0");
        other.select_split(9).unwrap();
        assert_ne!(other.train_idx, set.train_idx, "{name}: split 9");
        other.validate().unwrap();
    }
    // The folder form holds the same.
    let folder = tempfile::tempdir().unwrap();
    set.write(folder.path()).unwrap();
    let again = data::load(folder.path()).unwrap();
    assert_eq!(again.name, set.name);
    assert_eq!(again.graph.indptr(), graph.indptr(), "{name}");
    assert_eq!(again.graph.indices(), graph.indices(), "{name}");
    assert_eq!(again.graph.edge_type(), graph.edge_type(), "{name}");
    assert_eq!(again.graph.n_relations(), graph.n_relations(), "{name}");
    assert_eq!(again.labels[..], set.labels[..], "{name}");
    assert_eq!(again.splits, set.splits, "{name}");
    assert_eq!(again.n_classes, set.n_classes, "{name}");
    match (&again.features, &set.features) {
        (Features::None, Features::None) => {}
        (Features::F32(a), Features::F32(b)) => assert_eq!(a.data(), b.data(), "{name}"),
        (Features::Sparse(a), Features::Sparse(b)) => {
            assert_eq!(
                (a.indptr(), a.indices(), a.values()),
                (b.indptr(), b.indices(), b.values()),
                "{name}"
            );
            assert_eq!(a.dim(), b.dim(), "{name}");
        }
        (a, b) => panic!("{name}: wrote {b:?}, read {a:?}"),
    }
    compared
}

#[test]
fn every_shared_set_has_its_published_counts() {
    let Some(folder) = common::shared("data") else { return };
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "npz"));
    paths.sort();
    assert_eq!(paths.len(), 16, "{paths:?}");
    for path in paths {
        let compared = check(&path);
        assert!(compared >= 3, "{}: only {compared} counts to compare with", path.display());
    }
}
