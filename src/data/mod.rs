//! Data sets for node classification: a graph, features, labels and splits, in memory or memory-mapped.
//!
//! [`load`] reads a folder of `.npy` files or an `.npz` file, or makes one of the built-in sets; [`Dataset::new`] takes
//! your own arrays; [`Dataset::write`] writes a folder, and documents what it must hold.
//!
//! ```
//! use cohop::data::{Features, RmatData};
//! use cohop::graph::Rmat;
//!
//! let data = RmatData { graph: Rmat::graph500(6, 8, 1), dim: 3, n_classes: 4 }.generate()?;
//! assert_eq!((data.n_vertices(), data.features.dim(), data.n_classes), (64, 3, 4));
//! assert!(matches!(data.features, Features::F32(_)));
//! # Ok::<(), cohop::Error>(())
//! ```

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::array::Array;
use crate::error::{Error, Result, check_length, try_filled};
use crate::graph::Graph;

mod assemble;
mod builtin;
mod feature_quality;
mod features;
mod folder;
mod info;
mod load;
pub mod npy;
mod npz;
mod rmat;

pub use builtin::{SbmData, SbmReference};
pub use features::{Dense, FeatureDtype, Features, SparseFeatures};
pub use info::{FeatureSummary, Summary};
pub use load::{LoadOptions, load, load_with, load_with_notes};
pub use rmat::RmatData;

/// The largest number of classes: a larger one is treated as a sign of a damaged file.
pub const MAX_CLASSES: usize = 1 << 24;

/// The largest number of splits: a larger one is treated as a sign of a damaged file.
pub const MAX_SPLITS: usize = 1 << 16;

/// Training, validation and test vertices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Vertices to train on.
    pub train: Vec<u32>,
    /// Vertices to choose hyperparameters and the epoch by.
    pub val: Vec<u32>,
    /// Vertices to report on.
    pub test: Vec<u32>,
}

/// A graph with its vertices' features, labels and splits.
///
/// The fields are public to be read and replaced. [`Dataset::new`] and the loaders check that they fit together; call
/// [`Dataset::validate`] to check again after a change.
///
/// ```
/// # fn main() -> cohop::Result<()> {
/// use cohop::data::{self, Dataset, Features, Split};
/// use cohop::graph::Graph;
///
/// // A path 0 - 1 - 2 - 3, two features per vertex, two classes; vertex 3 has no label.
/// let graph = Graph::from_edges(4, &[(0, 1), (1, 2), (2, 3)])?.symmetrize()?;
/// let features = Features::dense(vec![1.0, 0.0, 0.9, 0.1, 0.2, 0.8, 0.0, 1.0], 4, 2)?;
/// let split = Split { train: vec![0, 2], val: vec![1], test: vec![] };
/// let dataset = Dataset::new("path", graph, features, vec![0, 0, 1, -1], 2, split)?;
/// assert_eq!(dataset.n_vertices(), 4);
///
/// // Write it as a folder and read it back, with graph and features memory-mapped.
/// let folder = tempfile::tempdir().unwrap();
/// dataset.write(folder.path())?;
/// let again = data::load(folder.path())?;
/// assert_eq!(again.graph.in_neighbors(1), [0, 2]);
/// assert_eq!(&again.labels[..], [0, 0, 1, -1]);
/// assert!(matches!(&again.features, Features::F32(x) if x.row(2) == [0.2, 0.8] && x.array().is_mapped()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Name of the data set.
    pub name: String,
    /// In-edges of every vertex.
    pub graph: Arc<Graph>,
    /// `[n_vertices, dim]`, or none.
    pub features: Features,
    /// `[n_vertices]`: classes in `0..n_classes`, or -1 for none.
    pub labels: Array<i32>,
    /// Number of classes; 0 without labels.
    pub n_classes: usize,
    /// Vertices to train on: without repeats, none in `val_idx` or `test_idx`.
    pub train_idx: Vec<u32>,
    /// Vertices to choose hyperparameters and the epoch by.
    pub val_idx: Vec<u32>,
    /// Vertices to report on.
    pub test_idx: Vec<u32>,
    /// All published splits, where there are several; see [`Dataset::select_split`].
    pub splits: Vec<Split>,
    /// `[n_vertices]`: type of each vertex, in heterogeneous graphs.
    pub vertex_type: Option<Array<u16>>,
}

impl Dataset {
    /// A data set with one split and without vertex types, checked as by [`Dataset::validate`].
    ///
    /// `features`: `n_vertices` rows or none; `labels: [n_vertices]`, -1 for none.
    ///
    /// Errors: those of [`Dataset::validate`].
    pub fn new(
        name: impl Into<String>,
        graph: impl Into<Arc<Graph>>,
        features: Features,
        labels: impl Into<Array<i32>>,
        n_classes: usize,
        split: Split,
    ) -> Result<Self> {
        let dataset = Dataset {
            name: name.into(),
            graph: graph.into(),
            features,
            labels: labels.into(),
            n_classes,
            train_idx: split.train,
            val_idx: split.val,
            test_idx: split.test,
            splits: Vec::new(),
            vertex_type: None,
        };
        dataset.validate()?;
        Ok(dataset)
    }

    /// Number of vertices.
    pub fn n_vertices(&self) -> usize {
        self.graph.n_vertices()
    }

    /// Takes `splits[k]` as the training, validation and test vertices.
    ///
    /// Errors: `k` is not below the number of published splits.
    pub fn select_split(&mut self, k: usize) -> Result<()> {
        let Some(split) = self.splits.get(k) else {
            let expected = match self.splits.len() {
                0 => format!("no choice: {} has a single split", self.name),
                n => format!("below {n}, the number of splits of {}", self.name),
            };
            return Err(Error::invalid("split", k, expected));
        };
        let Split { train, val, test } = split.clone();
        (self.train_idx, self.val_idx, self.test_idx) = (train, val, test);
        Ok(())
    }

    /// Checks that all parts fit together. O(n_vertices + sizes of the splits); neither edges nor features are read.
    ///
    /// Errors: features, labels or vertex types for another number of vertices; more than [`MAX_CLASSES`] classes; a
    /// label outside of `-1..n_classes`; a split index that is out of range, repeated, or in two parts of a split.
    pub fn validate(&self) -> Result<()> {
        let n = self.n_vertices();
        if !self.features.is_none() && self.features.n_rows() != n {
            return Err(Error::ShapeMismatch {
                op: "data set",
                left_name: "features",
                left: [self.features.n_rows(), self.features.dim()],
                right_name: "required",
                right: [n, self.features.dim()],
            });
        }
        check_length("labels", self.labels.len(), n)?;
        if self.n_classes > MAX_CLASSES {
            let (count, limit) = (self.n_classes as u64, MAX_CLASSES as u64);
            return Err(Error::TooLarge { what: "the set of classes", count, limit });
        }
        let valid = |label: i32| label == -1 || usize::try_from(label).is_ok_and(|l| l < self.n_classes);
        if let Some(position) = self.labels.iter().position(|&label| !valid(label)) {
            if self.labels[position] < -1 {
                return Err(Error::invalid(
                    "labels",
                    format!("{} at position {position}", self.labels[position]),
                    "a class, or -1 for a vertex without one",
                ));
            }
            return Err(Error::IndexOutOfRange {
                array: "labels",
                position: position as u64,
                value: i64::from(self.labels[position]),
                limit: self.n_classes as u64,
            });
        }
        if let Some(types) = &self.vertex_type {
            check_length("vertex_type", types.len(), n)?;
        }
        // First, for the number of the split that is told.
        for (k, split) in self.splits.iter().enumerate() {
            check_split([&split.train, &split.val, &split.test], n).map_err(|error| match error {
                Error::InvalidArgument { argument, value, expected } => {
                    Error::invalid(argument, format!("{value} of split {k}"), expected)
                }
                error => error,
            })?;
        }
        check_split([&self.train_idx, &self.val_idx, &self.test_idx], n)
    }

    /// Number of vertex types: one more than the largest; 0 in homogeneous graphs.
    pub fn n_vertex_types(&self) -> usize {
        let largest = self.vertex_type.as_ref().and_then(|types| types.iter().copied().max());
        largest.map_or(0, |t| usize::from(t) + 1)
    }
}

/// `Ok` if every index is below `n`, and occurs only once.
fn check_split(parts: [&[u32]; 3], n: usize) -> Result<()> {
    const NAMES: [&str; 3] = ["train_idx", "val_idx", "test_idx"];
    let mut taken = try_filled("a mark for each vertex", false, n, format_args!("there are {n} vertices"))?;
    for (part, array) in parts.iter().zip(NAMES) {
        for (position, &vertex) in part.iter().enumerate() {
            let Some(taken) = taken.get_mut(vertex as usize) else {
                return Err(Error::IndexOutOfRange {
                    array,
                    position: position as u64,
                    value: i64::from(vertex),
                    limit: n as u64,
                });
            };
            if std::mem::replace(taken, true) {
                let find = |(part, name): (&&[u32], &str)| {
                    part.iter().position(|&v| v == vertex).map(|first| format!("{name}[{first}]"))
                };
                let first = parts.iter().zip(NAMES).find_map(find).unwrap_or_default();
                return Err(Error::invalid(
                    array,
                    format!("{vertex} at position {position}, already in {first}"),
                    "every vertex at most once in a split",
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
