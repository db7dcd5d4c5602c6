//! R-MAT graphs with random features: the built-in data set `rmat`, and folders of any size.

use std::fs::File;
use std::io::{Read, Write};
use std::iter::once;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use rayon::prelude::*;

use super::assemble::Meta;
use super::builtin::{NOISE, feature_len, random_split};
use super::folder::{array_path, clear, write_meta};
use super::npy::{self, Dtype, Writer};
use super::{Dataset, FeatureDtype, Features, MAX_CLASSES};
use crate::error::{Error, Result, try_capacity, try_collect_parallel, try_extend, try_filled, try_zeroed};
use crate::graph::Rmat;
use crate::rng::{Purpose, bounded, normal};

const RANDOM_LABELS: u64 = Purpose::Features.stream(2);
/// Number of edges drawn, and of feature elements made, at a time.
const CHUNK: u64 = 1 << 22;
/// Number of edges that are written to a file at a time.
const KEYS_PER_WRITE: usize = 1 << 10;
/// Bytes per edge in a file of unsorted edges: 64 bits, the destination in the upper half, the source in the lower.
const EDGE_BYTES: u64 = size_of::<u64>() as u64;
/// How the name of the folder of unsorted edges begins.
const UNSORTED: &str = ".unsorted.";

/// A skewed graph with random features and labels, to measure speed: the built-in data set `rmat`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmatData {
    /// The graph's model.
    pub graph: Rmat,
    /// Number of feature columns, standard normal.
    pub dim: usize,
    /// Number of classes; labels are random and cannot be learnt.
    pub n_classes: usize,
}

impl Default for RmatData {
    fn default() -> Self {
        RmatData { graph: Rmat::graph500(15, 16, 0), dim: 64, n_classes: 16 }
    }
}

impl RmatData {
    /// Makes the data set: of the vertices that have in-edges, a tenth to train on, a tenth to validate, a fifth to
    /// test.
    ///
    /// Errors: `n_classes` is not in `1..=MAX_CLASSES`, those of [`Rmat::generate`], or features too large for memory.
    pub fn generate(&self) -> Result<Dataset> {
        self.check()?;
        let graph = self.graph.generate()?;
        let n = graph.n_vertices();
        let asked = format_args!("{n} rows of {} columns", self.dim);
        let len = feature_len(n, self.dim)?;
        let mut data = try_capacity("the feature matrix", len, asked)?;
        (0..len).into_par_iter().map(|i| self.feature(i as u64)).collect_into_vec(&mut data);
        let features = Features::dense(data, n, self.dim)?;
        let mut linked = try_capacity("the vertices with in-edges", n, asked)?;
        linked.extend((0..n as u32).filter(|&v| graph.in_degree(v) > 0));
        let split = random_split(linked, self.graph.seed)?;
        Dataset::new("rmat", graph, features, self.labels(n)?, self.n_classes, split)
    }

    /// Writes the data set to a folder, as [`Dataset::write`] would, but never has all of it in memory. Features are of
    /// type `dtype`; none if `dim` is 0. An existing data set in the folder is replaced.
    ///
    /// Unsorted edges go to files in the folder, one per range of destinations, which are then sorted one after
    /// another. Takes 20 bytes per vertex and about `memory` bytes (more if names are not shuffled, which makes the
    /// ranges uneven); on disk, while it runs, 8 bytes per drawn edge and direction. O(edges * (scale + log memory)).
    /// Calls `progress` with the current step and how much of it is done, from 0 to 1. If it fails, or anything else,
    /// no file of the data set is left in the folder.
    ///
    /// Errors: the graph is symmetric but keeps parallel edges, `n_classes` is not in `1..=MAX_CLASSES`, those of
    /// [`Rmat::generate`] and of `progress`, or a file cannot be written.
    pub fn write(
        &self,
        folder: impl AsRef<Path>,
        dtype: FeatureDtype,
        memory: u64,
        progress: &mut dyn FnMut(&str, f64) -> Result<()>,
    ) -> Result<()> {
        let folder = folder.as_ref();
        self.check()?;
        if self.graph.symmetric && !self.graph.deduplicate {
            return Err(Error::invalid("deduplicate", false, "true for a symmetric graph that is written"));
        }
        let n = usize::try_from(self.graph.n_vertices()).unwrap_or(usize::MAX);
        feature_len(n, self.dim)?;
        clear(folder)?;
        let written = self.write_files(folder, n, dtype, memory, progress);
        if written.is_err() {
            // The first error counts.
            let _ = clear(folder);
        }
        written
    }

    /// Removes from a folder what a [`write`](RmatData::write) that was ended in the midst has left, as far as that is
    /// possible: for a process that is about to be ended itself.
    pub fn remove_unfinished(folder: impl AsRef<Path>) {
        let entries = std::fs::read_dir(folder.as_ref()).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(UNSORTED)) {
            // Files that are made meanwhile keep their folder from being removed.
            let _ = (0..100).any(|_| std::fs::remove_dir_all(entry.path()).is_ok() || !entry.path().exists());
        }
        let _ = clear(folder.as_ref());
    }

    fn write_files(
        &self,
        folder: &Path,
        n: usize,
        dtype: FeatureDtype,
        memory: u64,
        progress: &mut dyn FnMut(&str, f64) -> Result<()>,
    ) -> Result<()> {
        let files = UnsortedEdges::draw(&self.graph, folder, memory, progress)?;
        let linked = files.sort(&self.graph, folder, progress)?;
        if self.dim > 0 {
            let path = array_path(folder, "feat");
            match dtype {
                FeatureDtype::F32 => self.write_features(&path, Dtype::F32, |v| v, progress)?,
                FeatureDtype::F16 => self.write_features(&path, Dtype::F16, f16::from_f32, progress)?,
                FeatureDtype::Bf16 => self.write_features(&path, Dtype::U16, bf16::from_f32, progress)?,
            }
        }
        npy::write(&array_path(folder, "labels"), Dtype::I32, &[n], &self.labels(n)?)?;
        let split = random_split(linked, self.graph.seed)?;
        for (name, part) in [("train_idx", split.train), ("val_idx", split.val), ("test_idx", split.test)] {
            npy::write(&array_path(folder, name), Dtype::U32, &[part.len()], &part)?;
        }
        let has_features = self.dim > 0;
        let meta = Meta {
            name: Some("rmat".to_owned()),
            n_classes: Some(self.n_classes),
            n_relations: None,
            feature_dtype: has_features.then_some(dtype),
            feature_dim: has_features.then_some(self.dim),
        };
        write_meta(folder, &meta)
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_CLASSES).contains(&self.n_classes) {
            return Err(Error::invalid("n_classes", self.n_classes, format!("1 to {MAX_CLASSES}")));
        }
        self.graph.check().map(|_| ())
    }

    fn feature(&self, i: u64) -> f32 {
        normal(self.graph.seed, NOISE, i) as f32
    }

    fn labels(&self, n: usize) -> Result<Vec<i32>> {
        let label = |v| bounded(self.graph.seed, RANDOM_LABELS, v as u64, self.n_classes as u64) as i32;
        let labels = (0..n).into_par_iter().map(label);
        try_collect_parallel("labels", labels, format_args!("there are {n} vertices"))
    }

    fn write_features<T: bytemuck::Pod + Send>(
        &self,
        path: &Path,
        dtype: Dtype,
        narrow: impl Fn(f32) -> T + Sync,
        progress: &mut dyn FnMut(&str, f64) -> Result<()>,
    ) -> Result<()> {
        let mut file = Writer::create(path, dtype, Some(self.dim))?;
        let len = self.graph.n_vertices() * self.dim as u64;
        let asked = format_args!("{len} features, some at a time");
        let mut values = try_capacity("features to write", len.min(CHUNK) as usize, asked)?;
        for first in (0..len).step_by(CHUNK as usize) {
            progress("features", first as f64 / len as f64)?;
            let chunk = first..len.min(first + CHUNK);
            let chunk = (chunk.start as usize..chunk.end as usize).into_par_iter();
            chunk.map(|i| narrow(self.feature(i as u64))).collect_into_vec(&mut values);
            file.write(&values)?;
        }
        file.finish()
    }
}

/// A file of unsorted edges.
struct EdgeFile {
    path: PathBuf,
    file: File,
    /// Those that are not written yet: fewer than `KEYS_PER_WRITE`, for which there is room.
    keys: Vec<u64>,
}

impl EdgeFile {
    fn flush(&mut self) -> Result<()> {
        let written = self.file.write_all(bytemuck::cast_slice(&self.keys));
        self.keys.clear();
        written.map_err(|e| Error::io(&self.path, e))
    }
}

/// Files of unsorted edges, one per range of destinations. They are removed at the end, or if something fails.
struct UnsortedEdges {
    folder: tempfile::TempDir,
    n_files: usize,
    /// Destinations per file: `2^shift`.
    shift: u32,
}

impl UnsortedEdges {
    fn draw(
        graph: &Rmat,
        folder: &Path,
        memory: u64,
        progress: &mut dyn FnMut(&str, f64) -> Result<()>,
    ) -> Result<Self> {
        let n_edges = graph.check()?;
        let directions = if graph.symmetric { 2 } else { 1 };
        // Sorting needs memory for the edges and the sources taken from them.
        let bytes = n_edges * directions * (EDGE_BYTES + 4);
        let wanted = bytes.div_ceil(memory.max(1)).clamp(1, 1 << 12).next_power_of_two();
        let n_files = wanted.min(graph.n_vertices());
        let shift = graph.scale - n_files.trailing_zeros();
        let temporary = tempfile::Builder::new().prefix(UNSORTED).tempdir_in(folder);
        let temporary = temporary.map_err(|e| Error::io(folder, e))?;
        let edges = UnsortedEdges { folder: temporary, n_files: n_files as usize, shift };
        let create = |i| {
            let path = edges.path(i);
            let asked = format_args!("{} files of edges", edges.n_files);
            let keys = try_capacity("edges to write", KEYS_PER_WRITE, asked)?;
            let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
            Ok(EdgeFile { path, file, keys })
        };
        let mut files = (0..edges.n_files).map(create).collect::<Result<Vec<_>>>()?;
        let names = graph.names()?;
        let asked = format_args!("{n_edges} edges to draw, some at a time");
        let mut drawn = try_capacity("drawn edges", n_edges.min(CHUNK) as usize, asked)?;
        for first in (0..n_edges).step_by(CHUNK as usize) {
            progress("drawing edges", first as f64 / n_edges as f64)?;
            let chunk = first..n_edges.min(first + CHUNK);
            let chunk = (chunk.start as usize..chunk.end as usize).into_par_iter();
            chunk.map(|i| graph.named_edge(i as u64, &names)).collect_into_vec(&mut drawn);
            for &(source, destination) in &drawn {
                edges.append(&mut files, source, destination)?;
                if graph.symmetric {
                    edges.append(&mut files, destination, source)?;
                }
            }
        }
        files.iter_mut().try_for_each(EdgeFile::flush)?;
        Ok(edges)
    }

    fn path(&self, file: usize) -> PathBuf {
        self.folder.path().join(file.to_string())
    }

    fn append(&self, files: &mut [EdgeFile], source: u32, destination: u32) -> Result<()> {
        let file = &mut files[(u64::from(destination) >> self.shift) as usize];
        file.keys.push(u64::from(destination) << 32 | u64::from(source));
        // There is always room for one more.
        if file.keys.len() == KEYS_PER_WRITE { file.flush() } else { Ok(()) }
    }

    /// Writes `indptr.npy` and `indices.npy`; returns the vertices that have in-edges.
    fn sort(
        self,
        graph: &Rmat,
        folder: &Path,
        progress: &mut dyn FnMut(&str, f64) -> Result<()>,
    ) -> Result<Vec<u32>> {
        let mut indptr = Writer::create(&array_path(folder, "indptr"), Dtype::U64, None)?;
        let mut indices = Writer::create(&array_path(folder, "indices"), Dtype::U32, None)?;
        let mut linked = Vec::new();
        let asked = format!("there are {} vertices", graph.n_vertices());
        let mut n_edges = 0u64;
        indptr.write(&[n_edges])?;
        for i in 0..self.n_files {
            progress("sorting edges", i as f64 / self.n_files as f64)?;
            let path = self.path(i);
            let io = |e| Error::io(&path, e);
            let mut file = File::open(&path).map_err(io)?;
            let n_keys = (file.metadata().map_err(io)?.len() / EDGE_BYTES) as usize;
            let in_range = format_args!("{n_keys} edges of a range of vertices");
            let mut keys: Vec<u64> = try_zeroed("edges to sort", n_keys, in_range)?;
            file.read_exact(bytemuck::cast_slice_mut(&mut keys)).map_err(io)?;
            drop(file);
            std::fs::remove_file(&path).map_err(io)?;
            keys.par_sort_unstable();
            if graph.deduplicate {
                keys.dedup();
            }
            let first = (i as u64) << self.shift;
            let mut counts = try_filled("a range's offsets", 0u64, 1 << self.shift, &asked)?;
            keys.iter().for_each(|key| counts[((key >> 32) - first) as usize] += 1);
            for (vertex, count) in (first..).zip(&mut counts) {
                if *count > 0 {
                    try_extend(&mut linked, "the vertices with in-edges", once(vertex as u32), &asked)?;
                }
                n_edges += *count;
                *count = n_edges;
            }
            indptr.write(&counts)?;
            let few = keys.len().min(CHUNK as usize);
            let mut sources: Vec<u32> = try_capacity("sources to write", few, in_range)?;
            for part in keys.chunks(CHUNK as usize) {
                sources.clear();
                sources.extend(part.iter().map(|&key| key as u32));
                indices.write(&sources)?;
            }
        }
        indptr.finish()?;
        indices.finish()?;
        Ok(linked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    /// The files that `write` streams are those of the whole in memory.
    #[test]
    fn a_streamed_folder_is_the_data_set_in_memory() {
        let directed = Rmat { symmetric: false, deduplicate: false, ..Rmat::graph500(6, 5.5, 4) };
        for (graph, memory) in [
            (Rmat::graph500(9, 7.25, 3), 10_000),
            (Rmat::graph500(9, 7.25, 3), u64::MAX),
            (directed, 1),
            (Rmat { deduplicate: true, ..directed }, 0),
            (Rmat { shuffle_names: false, ..Rmat::graph500(5, 3, 1) }, 500),
            (Rmat::graph500(0, 3, 1), 1),
            (Rmat::graph500(4, 0, 1), 1),
        ] {
            for dtype in [FeatureDtype::F32, FeatureDtype::F16, FeatureDtype::Bf16] {
                let set = RmatData { graph, dim: 3, n_classes: 5 };
                let mut expected = set.generate().unwrap();
                expected.features = expected.features.to_dtype(dtype).unwrap();
                let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
                expected.write(folders[0].path()).unwrap();
                set.write(folders[1].path(), dtype, memory, &mut |_, part| {
                    assert!((0.0..=1.0).contains(&part));
                    Ok(())
                })
                .unwrap();
                let files = |folder: &tempfile::TempDir| {
                    let file = |entry: std::io::Result<std::fs::DirEntry>| {
                        let entry = entry.unwrap();
                        (entry.file_name(), std::fs::read(entry.path()).unwrap())
                    };
                    let mut files: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(file).collect();
                    files.sort();
                    files
                };
                assert!(files(&folders[0]) == files(&folders[1]), "{graph:?} {dtype}");
                data::load(folders[1].path()).unwrap();
            }
        }
    }

    #[test]
    fn a_folder_without_features_loads() {
        let folder = tempfile::tempdir().unwrap();
        let set = RmatData { graph: Rmat::graph500(5, 3, 1), dim: 0, n_classes: 2 };
        set.write(folder.path(), FeatureDtype::F16, 1 << 20, &mut |_, _| Ok(())).unwrap();
        assert!(data::load(folder.path()).unwrap().features.is_none());
    }

    #[test]
    fn nothing_is_left_when_it_is_interrupted() {
        let folder = tempfile::tempdir().unwrap();
        let set = RmatData { graph: Rmat::graph500(5, 3, 1), dim: 2, n_classes: 2 };
        for step in ["drawing edges", "sorting edges", "features"] {
            let mut steps = 0;
            let interrupted = set.write(folder.path(), FeatureDtype::F32, 100, &mut |what, _| {
                steps += 1;
                if what == step { Err(Error::Interrupted { epochs: 0 }) } else { Ok(()) }
            });
            assert!(matches!(interrupted, Err(Error::Interrupted { .. })) && steps > 0, "{step}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{step}");
        }
    }

    #[test]
    fn what_an_ended_process_has_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let set = RmatData { graph: Rmat::graph500(5, 3, 1), dim: 2, n_classes: 2 };
        std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        let mut progress = |what: &str, _| {
            if what == "sorting edges" {
                RmatData::remove_unfinished(folder.path());
                let left: Vec<_> =
                    std::fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
                assert_eq!(left, ["notes.txt"]);
                return Err(Error::Interrupted { epochs: 0 });
            }
            Ok(())
        };
        let ended = set.write(folder.path(), FeatureDtype::F32, 100, &mut progress);
        assert!(matches!(ended, Err(Error::Interrupted { .. })));
    }

    #[test]
    fn errors_name_what_is_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let good = RmatData { graph: Rmat::graph500(3, 2, 0), dim: 2, n_classes: 2 };
        let message = |set: RmatData| {
            set.write(folder.path(), FeatureDtype::F32, 1, &mut |_, _| Ok(())).unwrap_err().to_string()
        };
        assert!(message(RmatData { n_classes: 0, ..good }).starts_with("n_classes is 0"));
        // More than a data set may have.
        let many = RmatData { n_classes: MAX_CLASSES + 1, ..good };
        assert!(message(many).starts_with("n_classes is 16777217: expected 1 to 16777216"));
        assert!(message(RmatData { dim: usize::MAX, ..good }).starts_with("the feature matrix"));
        let graph = Rmat { deduplicate: false, ..good.graph };
        assert!(message(RmatData { graph, ..good }).starts_with("deduplicate is false"));
        assert!(message(RmatData { graph: Rmat::graph500(40, 1, 0), ..good }).starts_with("scale is 40"));
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(good.write(&file, FeatureDtype::F32, 1, &mut |_, _| Ok(())).is_err());
    }
}
