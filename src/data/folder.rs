//! Data sets as a folder of `.npy` files and `meta.json`: the arrays are mapped, not read.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::assemble::{Meta, Source, assemble};
use super::features::Features;
use super::load::LoadOptions;
use super::npy::{self, Dtype, NpyArray, open_regular};
use super::{Dataset, Split};
use crate::error::{Error, Result, try_zeroed};

struct FolderSource {
    folder: PathBuf,
}

impl Source for FolderSource {
    fn path(&self) -> &Path {
        &self.folder
    }

    fn array(&mut self, name: &str) -> Result<Option<NpyArray>> {
        let path = array_path(&self.folder, name);
        match path.try_exists() {
            Ok(true) => NpyArray::open(&path, name).map(Some),
            Ok(false) => Ok(None),
            Err(e) => Err(Error::io(path, e)),
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter_map(|name| name.strip_suffix(".npy").map(str::to_owned)).collect()
    }
}

pub(super) fn array_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(name).with_extension("npy")
}

/// `meta.json` has a few short entries: a longer one is something else.
const MAX_META_BYTES: u64 = 1 << 20;

/// Reads a data set from a folder.
pub(super) fn read(folder: &Path, options: &LoadOptions) -> Result<(Dataset, Vec<String>)> {
    let meta = read_meta(&folder.join("meta.json"))?;
    assemble(&mut FolderSource { folder: folder.to_owned() }, meta, options)
}

fn read_meta(path: &Path) -> Result<Meta> {
    /// What [`Meta`] understands.
    const KEYS: [&str; 7] =
        ["name", "n_classes", "num_classes", "n_relations", "num_relations", "feature_dtype", "feature_dim"];
    let file = match open_regular(path) {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Meta::default());
        }
        file => file?,
    };
    let mut text = Vec::new();
    file.take(MAX_META_BYTES + 1).read_to_end(&mut text).map_err(|e| Error::io(path, e))?;
    if text.len() as u64 > MAX_META_BYTES {
        return Err(Error::format(path, format!("is longer than {MAX_META_BYTES} bytes")));
    }
    // All unknown keys at once; that there is an object the second reading says.
    if let Ok(serde_json::Value::Object(entries)) = serde_json::from_slice(&text) {
        let unknown: Vec<&str> =
            entries.keys().map(String::as_str).filter(|key| !KEYS.contains(key)).collect();
        if !unknown.is_empty() {
            let problem = format!("has unknown keys: {}; known are {}", unknown.join(", "), KEYS.join(", "));
            return Err(Error::format(path, problem));
        }
    }
    serde_json::from_slice(&text).map_err(|e| Error::format(path, e))
}

/// Names of all arrays that a data set may have. [`clear`] removes them, so that a new data set is not read with files
/// of an older one.
pub(super) const ARRAYS: [&str; 33] = [
    "indptr",
    "indices",
    "edges",
    "edge_type",
    "edge_weight",
    "feat",
    "x",
    "feat_indptr",
    "feat_indices",
    "feat_data",
    "feat_shape",
    "labels",
    "train_idx",
    "val_idx",
    "test_idx",
    "train_masks",
    "val_masks",
    "test_masks",
    "vertex_type",
    "y",
    "x_indptr",
    "x_indices",
    "x_data",
    "x_shape",
    "train_mask",
    "val_mask",
    "test_mask",
    "node_type",
    "num_nodes",
    "num_classes",
    "n_classes",
    "num_relations",
    "n_relations",
];

impl Dataset {
    /// Writes the data set as a folder of `.npy` files, which [`load`](super::load) maps, and NumPy can read and write.
    ///
    /// | file | shape, dtype | |
    /// |---|---|---|
    /// | `indptr.npy` | `[n_vertices + 1]` u64 (i64) | where each destination's in-edges begin |
    /// | `indices.npy` | `[n_edges]` u32 (i32) | sources, ascending within a row |
    /// | `edge_type.npy` | `[n_edges]` u16 | optional |
    /// | `edge_weight.npy` | `[n_edges]` f32 | optional |
    /// | `feat.npy` | `[n_vertices, dim]` f32, f16, or bf16 as u16 | dense features, or instead |
    /// | `feat_indptr.npy` | `[n_vertices + 1]` u64 (i64) | sparse features: where each row begins |
    /// | `feat_indices.npy`, `feat_data.npy` | `[nnz]` u32 (i32), f32 | columns, strictly ascending in a row; values |
    /// | `labels.npy` | `[n_vertices]` i32 | -1: none |
    /// | `train_idx.npy`, `val_idx.npy`, `test_idx.npy` | `[..]` u32 (i32) | vertices |
    /// | `train_masks.npy`, `val_masks.npy`, `test_masks.npy` | `[n_splits, n_vertices]` u8 | for several splits |
    /// | `vertex_type.npy` | `[n_vertices]` u16 | optional |
    /// | `meta.json` | | `name`, `n_classes`, `n_relations`, `feature_dtype` (for bf16), `feature_dim` (for sparse) |
    ///
    /// [`load`](super::load) also reads other integer types, and converts them in memory. An existing data set in the
    /// folder is replaced: its files are removed first, so that programs that have them mapped keep the old ones.
    ///
    /// Errors: those of [`Dataset::validate`], or a file cannot be removed or written.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        self.validate()?;
        clear(folder)?;
        let file = |name: &str| array_path(folder, name);
        let graph = &self.graph;
        npy::write(&file("indptr"), Dtype::U64, &[graph.indptr().len()], graph.indptr())?;
        npy::write(&file("indices"), Dtype::U32, &[graph.indices().len()], graph.indices())?;
        if let Some(types) = graph.edge_type() {
            npy::write(&file("edge_type"), Dtype::U16, &[types.len()], types)?;
        }
        if let Some(weights) = graph.edge_weight() {
            npy::write(&file("edge_weight"), Dtype::F32, &[weights.len()], weights)?;
        }
        match &self.features {
            Features::None => {}
            Features::F32(d) => npy::write(&file("feat"), Dtype::F32, &[d.n_rows(), d.dim()], d.data())?,
            Features::F16(d) => npy::write(&file("feat"), Dtype::F16, &[d.n_rows(), d.dim()], d.data())?,
            Features::Bf16(d) => npy::write(&file("feat"), Dtype::U16, &[d.n_rows(), d.dim()], d.data())?,
            Features::Sparse(s) => {
                npy::write(&file("feat_indptr"), Dtype::U64, &[s.indptr().len()], s.indptr())?;
                npy::write(&file("feat_indices"), Dtype::U32, &[s.indices().len()], s.indices())?;
                npy::write(&file("feat_data"), Dtype::F32, &[s.values().len()], s.values())?;
            }
        }
        npy::write(&file("labels"), Dtype::I32, &[self.labels.len()], &self.labels)?;
        let parts =
            [("train_idx", &self.train_idx), ("val_idx", &self.val_idx), ("test_idx", &self.test_idx)];
        for (name, part) in parts {
            npy::write(&file(name), Dtype::U32, &[part.len()], part)?;
        }
        if !self.splits.is_empty() {
            let shape = [self.splits.len(), self.n_vertices()];
            npy::write(&file("train_masks"), Dtype::U8, &shape, &self.masks(|split| &split.train)?)?;
            npy::write(&file("val_masks"), Dtype::U8, &shape, &self.masks(|split| &split.val)?)?;
            npy::write(&file("test_masks"), Dtype::U8, &shape, &self.masks(|split| &split.test)?)?;
        }
        if let Some(types) = &self.vertex_type {
            npy::write(&file("vertex_type"), Dtype::U16, &[types.len()], types)?;
        }
        self.write_meta(folder)
    }

    /// `[n_splits, n_vertices]`: masks of one part of every split.
    fn masks(&self, part: impl Fn(&Split) -> &[u32]) -> Result<Vec<u8>> {
        let n = self.n_vertices();
        let splits = self.splits.len();
        let mut masks =
            try_zeroed("masks", splits.saturating_mul(n), format_args!("{splits} splits of {n} vertices"))?;
        for (mask, split) in masks.chunks_mut(n.max(1)).zip(&self.splits) {
            part(split).iter().for_each(|&v| mask[v as usize] = 1);
        }
        Ok(masks)
    }

    fn write_meta(&self, folder: &Path) -> Result<()> {
        let meta = Meta {
            name: Some(self.name.clone()),
            n_classes: Some(self.n_classes),
            n_relations: self.graph.edge_type().map(|_| self.graph.n_relations()),
            feature_dtype: self.features.dtype(),
            feature_dim: (!self.features.is_none()).then(|| self.features.dim()),
        };
        write_meta(folder, &meta)
    }
}

/// Makes a folder for a data set, and removes an older data set from it.
pub(super) fn clear(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| Error::no_folder(folder, e))?;
    let older = ARRAYS.iter().map(|name| array_path(folder, name)).chain([folder.join("meta.json")]);
    for path in older {
        match std::fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(path, e)),
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn write_meta(folder: &Path, meta: &Meta) -> Result<()> {
    let path = folder.join("meta.json");
    let text = serde_json::to_string_pretty(meta).map_err(|e| Error::format(&path, e))?;
    std::fs::write(&path, text + "\n").map_err(|e| Error::io(path, e))
}
