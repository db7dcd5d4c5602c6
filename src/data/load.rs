//! Data sets by path or name.

use std::path::Path;

use super::{Dataset, RmatData, SbmData, folder, npz};
use crate::error::{Error, Result};

/// How to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Do not read the graph's `indices` to check them: a mapped graph of any number of edges then opens in
    /// O(n_vertices). What that means: [`Graph::from_csr_trusted`](crate::graph::Graph::from_csr_trusted).
    pub trust_indices: bool,
}

/// Loads a data set: the name of a built-in one (`sbm`: [`SbmData`], `rmat`: [`RmatData`]), a `.npz` file, or a folder
/// ([`Dataset::write`] says what it holds).
///
/// An `.npz` holds the arrays of a folder under the same names. `x` may stand for `feat`, `x_indptr`, `x_indices`,
/// `x_data` and `x_shape` (rows, columns) for the parts of sparse features, `y` for `labels`, `node_type` for
/// `vertex_type`; `num_classes` and `num_relations` say what `meta.json` says. In place of `indptr` and `indices` there
/// may be `edges: [n_edges, 2]` (source, destination) in any order, with `num_nodes`. It is read into memory.
///
/// A file or folder goes before a name. The graph is checked entirely, mapped features are not read. Errors:
/// [`Error::Io`] and [`Error::Format`] name the file and the array; and all of [`Dataset::validate`].
pub fn load(path_or_name: impl AsRef<Path>) -> Result<Dataset> {
    load_with(path_or_name, &LoadOptions::default())
}

/// [`load`] with options.
pub fn load_with(path_or_name: impl AsRef<Path>, options: &LoadOptions) -> Result<Dataset> {
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
        Some("sbm") => return SbmData::default().generate(),
        Some("rmat") => return RmatData::default().generate(),
        _ => {}
    }
    if path.components().count() > 1 || path.extension().is_some() {
        return Err(Error::io(path, std::io::ErrorKind::NotFound.into()));
    }
    Err(Error::invalid(
        "data",
        path.display(),
        "an existing .npz file or folder, or a built-in data set: sbm, rmat",
    ))
}
