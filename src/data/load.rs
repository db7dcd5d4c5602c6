//! Data sets by path or name.

use std::path::Path;

use super::{Dataset, RmatData, SbmData, folder, npz};
use crate::error::{Error, Result};

/// What can be loaded.
const EXPECTED: &str = "an existing .npz file or folder, or a built-in data set: sbm, rmat";

/// How to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Do not read and check the graph's `indices`: a mapped graph with any number of edges then opens in
    /// O(n_vertices). [`Graph::from_csr_trusted`](crate::graph::Graph::from_csr_trusted) says what can go wrong.
    pub trust_indices: bool,
}

/// Loads a data set: the name of a built-in one (`sbm`: [`SbmData`], `rmat`: [`RmatData`]), a `.npz` file, or a folder
/// ([`Dataset::write`] documents what it holds).
///
/// An `.npz` holds the arrays of a folder under the same names. `x` may stand for `feat`, `x_indptr`, `x_indices`,
/// `x_data` and `x_shape` (rows, columns) for the parts of sparse features, `y` for `labels`, `node_type` for
/// `vertex_type`; `num_classes` and `num_relations` (or `n_classes` and `n_relations`) replace entries of `meta.json`.
/// Parts of a split may be masks, `train_mask: [n_vertices]`, or `[n_vertices, n_splits]` for several splits. Labels
/// and features may be of any type: NaN is no label. Rows that do not ascend are sorted. In place of `indptr` and
/// `indices` there may be `edges: [n_edges, 2]` (source, destination) in any order, with `num_nodes`. It is read into
/// memory.
///
/// If a file or folder has the name of a built-in data set, it is loaded. The whole graph is checked; mapped features
/// are not read.
///
/// Errors: there is no such file, folder or built-in data set; [`Error::Io`] and [`Error::Format`], which name the file
/// and the array, also for what [`Graph`](crate::graph::Graph), [`Features`](super::Features) and [`Dataset::validate`]
/// refuse; [`Error::OutOfMemory`].
pub fn load(path_or_name: impl AsRef<Path>) -> Result<Dataset> {
    load_with(path_or_name, &LoadOptions::default())
}

/// [`load`] with options.
///
/// Errors: those of [`load`].
pub fn load_with(path_or_name: impl AsRef<Path>, options: &LoadOptions) -> Result<Dataset> {
    Ok(load_with_notes(path_or_name, options)?.0)
}

/// [`load_with`], and what had to be done with the arrays, in sentences for people: which were converted or sorted.
///
/// Errors: those of [`load`].
pub fn load_with_notes(
    path_or_name: impl AsRef<Path>,
    options: &LoadOptions,
) -> Result<(Dataset, Vec<String>)> {
    let path = path_or_name.as_ref();
    if path.is_dir() {
        return folder::read(path, options);
    }
    if path.is_file() {
        return match path.extension() {
            Some(extension) if extension == "npz" => npz::read(path, options),
            _ => {
                Err(Error::format(path, "is not a data set: expected a .npz file or a folder of .npy files"))
            }
        };
    }
    match path.to_str() {
        Some("sbm") => return Ok((SbmData::default().generate()?, Vec::new())),
        Some("rmat") => return Ok((RmatData::default().generate()?, Vec::new())),
        _ => {}
    }
    if path.components().count() > 1 || path.extension().is_some() {
        let problem = format!("no such file or folder: expected {EXPECTED}");
        return Err(Error::io(path, std::io::Error::new(std::io::ErrorKind::NotFound, problem)));
    }
    Err(Error::invalid("data", path.display(), EXPECTED))
}
