//! Data sets by path or name.

use std::path::Path;

use super::{Dataset, folder, npz};
use crate::error::{Error, Result};

/// Names of the built-in data sets.
const BUILT_IN: [&str; 2] = ["sbm", "rmat"];

/// How to load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadOptions {
    /// Do not read the graph's `indices` to check them: a mapped graph of any number of edges then opens in
    /// O(n_vertices). What that means: [`Graph::from_csr_trusted`](crate::graph::Graph::from_csr_trusted).
    pub trust_indices: bool,
}

/// Loads a data set: the name of a built-in one (`sbm`, `rmat`), a `.npz` file, or a folder
/// ([`Dataset::write`] says what it holds).
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
    Err(Error::invalid(
        "data",
        path.display(),
        format!("an existing .npz file or folder, or a built-in data set: {}", BUILT_IN.join(", ")),
    ))
}
