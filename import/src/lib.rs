//! Reads graphs in common file formats into cohop's data set folders, in bounded memory.
//!
//! A reader of a format gives its edges, in any order, to a sink, which sorts them in files; what else a format has it
//! writes to the new folder itself. The rest is the same for all formats: reverse edges, self-loops, parallel edges,
//! labels, features and splits from other files.

use std::path::PathBuf;

use cohop::Result;
use cohop::data::FeatureDtype;

mod array;
mod by_id;
mod collect;
mod columns;
mod edge_index;
mod edges;
mod graphbolt;
mod import;
mod label_text;
mod labels;
mod matrix_market;
mod names;
mod npz_csr;
mod ogb;
mod once;
mod rows;
mod sink;
mod sort;
mod split;
mod table;
#[cfg(test)]
mod testing;
mod text;
mod typed;
mod vertices;

pub use columns::Column;
pub use edges::EdgeText;
pub use import::{Format, Imported, Options, SelfLoops, import};
pub use split::SplitFrom;

/// Called now and then with what is being done and which part of it is (0 to 1); an error ends the import.
pub type Progress<'a> = &'a mut dyn FnMut(&str, f64) -> Result<()>;

/// How a format is read.
#[derive(Clone, Debug, Default)]
pub struct ReadOptions {
    /// Bytes that a reader may take.
    pub memory: u64,
    /// Type of the features that are written; `None`: f32, or f16 where they are.
    pub feature_dtype: Option<FeatureDtype>,
    /// Text edge lists: how they are read.
    pub text: EdgeText,
    /// Matrices: what the rows are.
    pub rows: Option<Rows>,
    /// The number of vertices; `None`: what the format says, or else one more than the largest id.
    pub n_vertices: Option<u64>,
    /// Weights are not kept.
    pub without_weights: bool,
    /// Which of several splits, by name.
    pub split_name: Option<String>,
    /// Which of several columns of labels.
    pub label_column: Option<usize>,
}

/// What the rows of an adjacency matrix are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// Entry (i, j) is an edge from i to j.
    Sources,
    /// Entry (i, j) is an edge from j to i.
    Destinations,
}

/// What a reader found beside the edges.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// `None`: one more than the largest id.
    pub(crate) n_vertices: Option<u64>,
    /// 0 or 1 if edges have no types.
    pub(crate) n_relations: u32,
    pub(crate) n_classes: Option<usize>,
    pub(crate) has_weights: bool,
    /// A `.npy` file, `[n_edges, ..]`, in the order in which the edges went to the sink.
    pub(crate) edge_features: Option<PathBuf>,
    /// Likewise, `[n_edges]`.
    pub(crate) edge_times: Option<PathBuf>,
    /// Names of the files written to the new folder.
    pub(crate) files: Vec<String>,
    /// What was converted or looks odd, for people.
    pub(crate) notes: Vec<String>,
}
