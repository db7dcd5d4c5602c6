//! What tells data sets apart.

use serde::{Deserialize, Serialize};

use crate::data::{Dataset, Features};
use crate::error::{Error, Result};

/// The largest number of elements of an array that are looked at.
const SAMPLE: usize = 4096;

/// Counts of a data set, and hashes of a sample of its arrays: of up to 4096 elements of each, evenly spaced. So it
/// costs next to nothing on data of any size, and tells different data sets apart, but may not notice that a single
/// element has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Number of vertices.
    pub vertices: u64,
    /// Number of edges.
    pub edges: u64,
    /// Number of relations.
    pub relations: u64,
    /// Number of classes.
    pub classes: u64,
    /// Number of feature columns.
    pub columns: u64,
    /// How features are stored: `none`, `f32`, `f16`, `bf16` or `sparse`.
    pub features: String,
    /// The published split whose vertices these are, if there are several.
    pub split: Option<usize>,
    graph_hash: u64,
    features_hash: u64,
    labels_hash: u64,
    split_hash: u64,
}

impl Fingerprint {
    /// That of a data set with its present features and split.
    pub fn of(dataset: &Dataset) -> Self {
        let graph = &dataset.graph;
        let mut of_graph = Hash::new();
        of_graph.sample(graph.indptr());
        of_graph.sample(graph.indices());
        of_graph.sample(graph.edge_type().unwrap_or(&[]));
        of_graph.sample(graph.edge_weight().unwrap_or(&[]));
        let mut of_features = Hash::new();
        let kind = match &dataset.features {
            Features::None => "none",
            Features::F32(x) => of_features.sample(x.data()).and("f32"),
            Features::F16(x) => of_features.sample(x.data()).and("f16"),
            Features::Bf16(x) => of_features.sample(x.data()).and("bf16"),
            Features::Sparse(x) => {
                of_features.sample(x.indptr()).sample(x.indices()).sample(x.values()).and("sparse")
            }
        };
        let mut of_labels = Hash::new();
        of_labels.sample(&dataset.labels[..]);
        let mut of_split = Hash::new();
        of_split.sample(&dataset.train_idx).sample(&dataset.val_idx).sample(&dataset.test_idx);
        let split = dataset.splits.iter().position(|s| {
            s.train == dataset.train_idx && s.val == dataset.val_idx && s.test == dataset.test_idx
        });
        Fingerprint {
            vertices: dataset.n_vertices() as u64,
            edges: graph.n_edges(),
            relations: graph.n_relations() as u64,
            classes: dataset.n_classes as u64,
            columns: dataset.features.dim() as u64,
            features: kind.to_owned(),
            split,
            graph_hash: of_graph.0,
            features_hash: of_features.0,
            labels_hash: of_labels.0,
            split_hash: of_split.0,
        }
    }

    /// `Ok` if a data set is the one whose fingerprint this is, up to what was sampled. Whether it has the same
    /// training, validation and test vertices is a question of its own: `same_split` asks it too.
    ///
    /// Errors: [`Error::InvalidArgument`], which says what differs.
    pub fn check(&self, dataset: &Dataset, same_split: bool) -> Result<()> {
        self.check_print(&Fingerprint::of(dataset), &dataset.name, same_split)
    }

    /// `Ok` if a data set has features where this one has, and has none where it has none: a model of the one kind
    /// cannot be used with the other, even if it is wide enough.
    ///
    /// Errors: [`Error::InvalidArgument`], which says what is missing.
    pub fn check_features(&self, dataset: &Dataset) -> Result<()> {
        let of_model = self.features != "none";
        let name = &dataset.name;
        match (of_model, dataset.features.is_none()) {
            (true, true) => {
                let columns = self.columns;
                let expected = format!(
                    "features of {columns} columns (feat.npy in a folder, array feat in an .npz), as the data set of \
                     training has them"
                );
                Err(Error::invalid("data set", format!("{name}, which has no features"), expected))
            }
            (false, false) => {
                let expected = "one without features: that of training has none, and the model knows its vertices by \
                                their numbers";
                Err(Error::invalid("data set", format!("{name}, which has features"), expected))
            }
            _ => Ok(()),
        }
    }

    /// [`check`](Fingerprint::check) of a data set's name and fingerprint.
    pub(super) fn check_print(&self, found: &Fingerprint, name: &str, same_split: bool) -> Result<()> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, here: String, there: String| {
            if here != there {
                differences.push(format!("{here} {what} instead of {there}"));
            }
        };
        let pairs = [
            ("vertices", found.vertices, self.vertices),
            ("edges", found.edges, self.edges),
            ("relations", found.relations, self.relations),
            ("classes", found.classes, self.classes),
            ("feature columns", found.columns, self.columns),
        ];
        for (what, here, there) in pairs {
            compare(what, here.to_string(), there.to_string());
        }
        compare("features", found.features.clone(), self.features.clone());
        if differences.is_empty() {
            let hashes = [
                ("edges", found.graph_hash != self.graph_hash),
                ("features", found.features_hash != self.features_hash),
                ("labels", found.labels_hash != self.labels_hash),
            ];
            let other =
                hashes.iter().filter(|(_, differs)| *differs).map(|(what, _)| format!("other {what}"));
            differences.extend(other);
        }
        if differences.is_empty() && same_split && found.split_hash != self.split_hash {
            let named = |split: Option<usize>| split.map_or_else(String::new, |k| format!(" (split {k})"));
            let (here, there) = (named(found.split), named(self.split));
            differences.push(format!("another split{here} instead of that of the checkpoint{there}"));
        }
        if differences.is_empty() {
            return Ok(());
        }
        let value = format!("{name}, which has {}", differences.join(", "));
        Err(Error::invalid("data set", value, "the one that the checkpoint's run was trained on"))
    }
}

/// FNV-1a with 64 bits.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Adds an array's length and a sample of its elements.
    fn sample<T: bytemuck::Pod>(&mut self, values: &[T]) -> &mut Self {
        self.bytes(&(values.len() as u64).to_le_bytes());
        let count = values.len().min(SAMPLE);
        for i in 0..count {
            let at = (i as u128 * values.len() as u128 / count as u128) as usize;
            self.bytes(bytemuck::bytes_of(&values[at]));
        }
        self
    }

    fn and<T>(&self, value: T) -> T {
        value
    }
}

#[cfg(test)]
mod tests {
    // A panic is how these fail.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::data::{FeatureDtype, Split};
    use crate::graph::Graph;

    fn dataset() -> Dataset {
        let graph = Graph::from_edges(4, &[(0, 1), (1, 2), (2, 3)]).unwrap();
        let features = Features::dense(vec![1.0, 2.0, 3.0, 4.0], 4, 1).unwrap();
        let split = Split { train: vec![0], val: vec![1], test: vec![2] };
        let other = Split { train: vec![2], val: vec![1], test: vec![0] };
        let mut set = Dataset::new("path", graph, features, vec![0, 1, 0, -1], 2, split.clone()).unwrap();
        set.splits = vec![split, other];
        set
    }

    #[test]
    fn whatever_differs_is_said() {
        let (set, print) = (dataset(), Fingerprint::of(&dataset()));
        print.check(&set, true).unwrap();
        let differs = |change: &dyn Fn(&mut Dataset), message: &str| {
            let mut other = dataset();
            change(&mut other);
            let error = print.check(&other, true).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
            assert!(error.contains("the one that the checkpoint's run was trained on"), "{error}");
        };
        let edges = |edges: &[(u32, u32)]| Graph::from_edges(4, edges).unwrap().into();
        differs(&|d| d.graph = edges(&[(0, 1), (1, 2), (2, 0)]), "has other edges:");
        differs(&|d| d.graph = edges(&[(0, 1)]), "1 edges instead of 3");
        differs(&|d| d.labels = vec![0, 1, 1, -1].into(), "other labels");
        differs(&|d| d.n_classes = 3, "3 classes instead of 2");
        differs(&|d| d.features = Features::None, "none features instead of f32");
        differs(
            &|d| d.features = d.features.to_dtype(FeatureDtype::F16).unwrap(),
            "f16 features instead of f32",
        );
        let changed = || Features::dense(vec![1.0, 2.0, 3.0, 5.0], 4, 1).unwrap();
        differs(&|d| d.features = changed(), "other features");
        differs(
            &|d| d.select_split(1).unwrap(),
            "another split (split 1) instead of that of the checkpoint (split 0)",
        );
        let mut other = dataset();
        other.select_split(1).unwrap();
        print.check(&other, false).unwrap();
    }
}
