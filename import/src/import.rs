//! From a format's files to a data set folder.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use cohop::data::npy::NpyArray;
use cohop::data::{FeatureDtype, LoadOptions, load_with};
use cohop::graph::{MAX_RELATIONS, MAX_VERTICES};
use cohop::{Error, Result};

use crate::collect::{Collector, Turn};
use crate::edges::{Ids, Reader};
use crate::rows::{self, Counts, Shape, numbers_path, reorder};
use crate::split::{self, PARTS, SplitFrom};
use crate::vertices::Vertices;
use crate::{Found, Progress, ReadOptions, by_id, edge_index, graphbolt, matrix_market, npz_csr, ogb};

/// What files are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text lists of edges: CSV, TSV, or separated by spaces; also `.gz`. SNAP, KONECT.
    Edges,
    /// Matrix Market's coordinate files.
    MatrixMarket,
    /// SciPy's sparse matrices.
    NpzCsr,
    /// Arrays of pairs, as PyTorch Geometric's `edge_index`.
    EdgeIndex,
    /// Folders of the Open Graph Benchmark's node property sets.
    Ogb,
    /// GraphBolt's on-disk data sets.
    GraphBolt,
}

/// What becomes of self-loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SelfLoops {
    /// They stay as they are.
    #[default]
    Keep,
    /// Each vertex gets one, unless it has one.
    Add,
    /// None stay.
    Remove,
}

impl FromStr for SelfLoops {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "keep" => Ok(SelfLoops::Keep),
            "add" => Ok(SelfLoops::Add),
            "remove" => Ok(SelfLoops::Remove),
            _ => Err(Error::invalid("--self-loops", format!("{name:?}"), "add, remove or keep")),
        }
    }
}

/// What is done beside reading.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// How the format is read. Its `memory` is set from that of these options.
    pub read: ReadOptions,
    /// Bytes that the import may take, at least 16 MiB. What the operating system keeps of files does not count.
    pub memory: u64,
    /// Sources become destinations.
    pub reverse: bool,
    /// The reverse of each edge is added, unless it is there.
    pub undirected: bool,
    /// Parallel edges of the same relation become one, of the sum of their weights.
    pub deduplicate: bool,
    /// What becomes of self-loops.
    pub self_loops: SelfLoops,
    /// Labels that the format has not: see [`Options::split`] for ids. `.npy`, one for each vertex (with mapped ids,
    /// row k is that of the id k); or text: a class a line, or lines of id and class. In text, classes may be names.
    pub labels: Option<PathBuf>,
    /// Features that the format has not: a row for each vertex by number, `.npy` or text.
    pub features: Option<PathBuf>,
    /// Rows of features are found by id, in any order: in text, the first column is the id; of a `.npy`, row k is that
    /// of the id k. A vertex without a row is an error.
    pub features_by_id: bool,
    /// The split, instead of the format's own. Ids in files are those of the edges' files.
    pub split: Option<SplitFrom>,
    /// The seed of a random split.
    pub seed: u64,
    /// An existing folder is replaced.
    pub overwrite: bool,
    /// Gets the folder, beside the new one, that has all that is unfinished: who ends the process in the midst can
    /// remove it. Locked while the data set is moved to its place.
    pub unfinished: Arc<Mutex<Option<PathBuf>>>,
}

/// Least memory that makes sense.
const LEAST_MEMORY: u64 = 16 << 20;

/// What an import made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Vertices of the data set.
    pub vertices: u64,
    /// Edges of the data set.
    pub edges: u64,
    /// Edges that were read.
    pub edges_read: u64,
    /// What was converted, and what looks odd, for people.
    pub notes: Vec<String>,
}

/// Imports files into a new data set folder, which appears at the end, complete or not at all.
///
/// Takes about `options.memory` bytes, and on disk 8 to 24 bytes per edge (twice that with `undirected`) beside the
/// result. O(edges * log edges). An error of `progress` ends it.
///
/// Errors: an input cannot be read or is not as its format says, which names the file and the line or array; `out`
/// exists and is not to be overwritten, or cannot be written; options that do not go together.
pub fn import(
    format: Format,
    inputs: &[PathBuf],
    out: &Path,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Imported> {
    check(format, inputs, out, options)?;
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let name =
        out.file_name().ok_or_else(|| Error::invalid("--out", out.display(), "a folder with a name"))?;
    fs::create_dir_all(parent).map_err(|e| Error::no_folder(parent, e))?;
    let prefix = format!(".{}.", name.to_string_lossy());
    let unfinished = || options.unfinished.lock().unwrap_or_else(PoisonError::into_inner);
    let mut noted = unfinished();
    // Removed when it is dropped.
    let made =
        tempfile::Builder::new().prefix(&prefix).tempdir_in(parent).map_err(|e| Error::io(parent, e))?;
    *noted = Some(made.path().to_owned());
    drop(noted);
    let folder = made.path().join("data");
    let scratch = made.path().join("scratch");
    for path in [&folder, &scratch] {
        fs::create_dir(path).map_err(|e| Error::io(path, e))?;
    }
    let mut imported = fill(format, inputs, &name.to_string_lossy(), &folder, &scratch, options, progress)?;
    // Trusted: the edges were checked before they were written.
    let loaded = load_with(&folder, &LoadOptions { trust_indices: true });
    let loaded = loaded.map_err(|error| of_input(error, &folder, &inputs[0], options))?;
    split::tell_unlabelled(&loaded, &mut imported.notes);
    // Its files are mapped.
    drop(loaded);
    let rename = || -> std::io::Result<()> {
        let old = made.path().join("old");
        let replaced = out.exists();
        if replaced {
            fs::rename(out, &old)?;
        }
        fs::rename(&folder, out).inspect_err(|_| {
            if replaced {
                // Else the old one would go with the temporary folder.
                let _ = fs::rename(&old, out);
            }
        })
    };
    let noted = unfinished();
    rename().map_err(|e| Error::io(out, e))?;
    drop(noted);
    Ok(imported)
}

/// An error about a file of the new folder, which nobody will see, as one about the file that it is made of.
fn of_input(error: Error, folder: &Path, input: &Path, options: &Options) -> Error {
    let Error::Format { path, problem } = error else { return error };
    let array = match path.strip_prefix(folder) {
        Ok(array) => array.to_string_lossy().into_owned(),
        Err(_) => return Error::Format { path, problem },
    };
    let part = ["train_", "val_", "test_"].iter().position(|part| array.starts_with(part));
    let given = match (array.as_str(), part, &options.split) {
        (_, Some(part), Some(SplitFrom::Files(files))) => Some(&files[part]),
        ("labels.npy", ..) => options.labels.as_ref(),
        ("feat.npy", ..) => options.features.as_ref(),
        _ => None,
    };
    let mut problem = problem;
    if let (Some(SplitFrom::Files(files)), Some(_)) = (&options.split, part) {
        // Which part is in which file, of what shape.
        for (name, file) in PARTS.iter().map(|name| name.trim_end_matches(".npy")).zip(files) {
            if problem.contains(name) {
                problem += &format!("; {name} is of {}{}", file.display(), split::shape(file));
            }
        }
    }
    Error::Format { path: given.map_or(input, PathBuf::as_path).to_owned(), problem }
}

/// `Ok` if the options go together, and the folder can be made.
fn check(format: Format, inputs: &[PathBuf], out: &Path, options: &Options) -> Result<()> {
    if inputs.is_empty() || (inputs.len() > 1 && format != Format::Edges) {
        let expected = "one file or folder (several only of edges)";
        return Err(Error::invalid("IN", format!("{} of them", inputs.len()), expected));
    }
    if options.memory < LEAST_MEMORY {
        return Err(Error::invalid("--memory", options.memory, format!("at least {LEAST_MEMORY} bytes")));
    }
    if let Some(n) = options.read.n_vertices.filter(|n| !(1..=MAX_VERTICES).contains(n)) {
        return Err(Error::invalid("--num-vertices", n, format!("1 to {MAX_VERTICES}")));
    }
    let is_folder = matches!(format, Format::Ogb | Format::GraphBolt);
    for input in inputs {
        fs::metadata(input).map_err(|e| Error::io(input, e))?;
    }
    for file in inputs.iter().filter(|_| is_folder).map(PathBuf::as_path).chain([out]) {
        if file.exists() && !file.is_dir() {
            return Err(Error::format(file, "is a file, expected a folder"));
        }
    }
    if out.exists() && !options.overwrite {
        return Err(Error::format(out, "exists: --overwrite replaces it"));
    }
    // All of it would be removed: not a folder of something else, named by mistake.
    let is_data_set = || ["indptr.npy", "meta.json"].iter().all(|name| out.join(name).is_file());
    let is_empty = || fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_none());
    if out.exists() && !is_data_set() && !is_empty() {
        return Err(Error::format(out, "is no data set: --overwrite replaces only one, or an empty folder"));
    }
    if options.features_by_id && options.features.is_none() {
        return Err(Error::invalid("--features-by-id", "given", "--features with it"));
    }
    Ok(())
}

fn fill(
    format: Format,
    inputs: &[PathBuf],
    name: &str,
    folder: &Path,
    scratch: &Path,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Imported> {
    // Sorting and readers take turns, but ids of text stay.
    let read = ReadOptions { memory: options.memory / 4, ..options.read.clone() };
    let turn = Turn {
        reverse: options.reverse,
        undirected: options.undirected,
        remove_self_loops: options.self_loops == SelfLoops::Remove,
    };
    let mut sink = Collector::new(scratch, options.memory / 2, turn);
    let input = &inputs[0];
    let mut ids = None;
    let mut found = match format {
        Format::Edges => {
            let mut reader = Reader::new(&read, scratch, &mut sink)?;
            reader.read_kinds(inputs, &mut *progress)?;
            for input in inputs {
                reader.read(input, &mut sink, &mut *progress)?;
            }
            let found = reader.found(folder, scratch, read.n_vertices)?;
            ids = read.text.map_ids.then_some(reader.ids);
            found
        }
        Format::MatrixMarket => matrix_market::read(input, &read, &mut sink, &mut *progress)?,
        Format::NpzCsr => npz_csr::read(input, &read, &mut sink, &mut *progress)?,
        Format::EdgeIndex => edge_index::read(input, &read, &mut sink, &mut *progress)?,
        Format::Ogb => ogb::read(input, &read, folder, &mut sink, &mut *progress)?,
        Format::GraphBolt => graphbolt::read(input, &read, folder, &mut sink, &mut *progress)?,
    };
    let n = n_vertices(&sink, &mut found, &read, ids.as_ref(), input)?;
    if format == Format::Edges && ids.is_none() && sink.smallest.is_some_and(|id| id > 0) {
        found.notes.push(
            "no edge has the id 0: if ids count from 1, --ids map leaves no vertex without edges".into(),
        );
    }
    let least_id = sink.smallest.filter(|_| format == Format::Edges && ids.is_none());
    let (n_read, n_removed_loops) = (sink.n_edges, sink.n_removed_loops);
    let counts = write_graph(sink, n, &found, folder, scratch, options, &mut *progress)?;
    tell(&mut found, n_removed_loops, counts, options);
    let vertices = Vertices { n, ids: ids.as_ref(), least_id, options: &read, folder, scratch };
    for (option, path, array) in
        [("--labels", &options.labels, "labels.npy"), ("--features", &options.features, "feat.npy")]
    {
        let Some(path) = path else { continue };
        if folder.join(array).exists() {
            return Err(Error::invalid(option, path.display(), "none, for the format has them itself"));
        }
        match array {
            "labels.npy" => vertices.labels(path, &mut found, &mut *progress)?,
            _ if options.features_by_id => by_id::features(&vertices, path, &mut found, &mut *progress)?,
            _ => {
                if ids.is_some() {
                    found.notes.push(
                        "rows of features are taken in the order of ids.txt, not by id (--features-by-id)"
                            .into(),
                    );
                }
                vertices.features(path, &mut found, &mut *progress)?;
            }
        }
    }
    if let Some(split) = &options.split {
        vertices.split(split, options.seed, &mut found, &mut *progress)?;
    }
    write_ids(ids, folder, &mut found)?;
    write_meta(name, folder, &found, options)?;
    Ok(Imported { vertices: n, edges: counts.edges, edges_read: n_read, notes: found.notes })
}

/// How many vertices there are.
fn n_vertices(
    sink: &Collector<'_>,
    found: &mut Found,
    read: &ReadOptions,
    ids: Option<&Ids>,
    input: &Path,
) -> Result<u64> {
    let least = sink.largest.map_or(0, |(id, _)| u64::from(id) + 1);
    let n = match (ids, read.n_vertices.or(found.n_vertices)) {
        (Some(ids), given) => given.unwrap_or(ids.len() as u64),
        (None, Some(n)) => n,
        (None, None) => {
            found.notes.push(format!(
                "{least} vertices, as the largest id is one less: --num-vertices says otherwise"
            ));
            least
        }
    };
    if n < least {
        let (id, number) = sink.largest.unwrap_or_default();
        let value = format!("{n}, but edge {number} has vertex {id}");
        return Err(Error::invalid("--num-vertices", value, "more than all ids"));
    }
    if n > MAX_VERTICES {
        return Err(Error::invalid("--num-vertices", n, format!("at most {MAX_VERTICES}")));
    }
    if n == 0 {
        return Err(Error::format(input, "has neither vertices nor edges"));
    }
    found.n_vertices = Some(n);
    Ok(n)
}

/// Sorts the edges and writes them, and what they have.
fn write_graph(
    sink: Collector<'_>,
    n: u64,
    found: &Found,
    folder: &Path,
    scratch: &Path,
    options: &Options,
    progress: Progress<'_>,
) -> Result<Counts> {
    let n_relations = u64::from(found.n_relations).max(u64::from(sink.largest_kind) + 1);
    let add_self_loops = options.self_loops == SelfLoops::Add;
    let of_loops = u64::from(add_self_loops && n_relations > 1);
    if n_relations + of_loops > MAX_RELATIONS as u64 {
        let (count, limit) = (n_relations + of_loops, MAX_RELATIONS as u64);
        return Err(Error::TooLarge { what: "the set of relations", count, limit });
    }
    let attributes = [("edge_feat.npy", &found.edge_features), ("edge_time.npy", &found.edge_times)];
    let n_edges = sink.n_edges;
    let shape = Shape {
        n_vertices: n,
        n_relations,
        has_weights: found.has_weights,
        has_features: attributes.iter().any(|(_, path)| path.is_some()),
        deduplicate: options.deduplicate,
        add_self_loops,
        n_sorted: n_edges * if options.undirected { 2 } else { 1 },
    };
    progress("sorting edges", 0.0)?;
    let counts = rows::write(sink.stream()?, &shape, folder, scratch, &mut *progress)?;
    for (name, from) in attributes {
        let Some(from) = from else { continue };
        let numbers = NpyArray::open(&numbers_path(scratch), "numbers")?.offsets()?;
        let mut numbers = numbers.iter().copied();
        let mut say =
            |done: u64| progress("ordering what edges have", done as f64 / counts.edges.max(1) as f64);
        reorder(from, n_edges, &mut || Ok(numbers.next()), &folder.join(name), &mut say)?;
        fs::remove_file(from).map_err(|e| Error::io(from, e))?;
    }
    Ok(counts)
}

/// Notes of what was done to edges.
fn tell(found: &mut Found, n_removed_loops: u64, counts: Counts, options: &Options) {
    let Counts { added, added_loops, merged, parallel, loops, .. } = counts;
    let mut say = |n: u64, text: &str| {
        if n > 0 {
            found.notes.push(format!("{n} {text}"));
        }
    };
    say(n_removed_loops, "self-loops were removed");
    say(added, "reverse edges were added");
    say(added_loops, "self-loops were added");
    say(merged, "parallel edges went into others");
    say(parallel, "edges are parallel to others: --deduplicate makes them one");
    if options.self_loops == SelfLoops::Keep {
        say(loops, "self-loops");
    }
    for (file, path) in [("edge_feat.npy", &found.edge_features), ("edge_time.npy", &found.edge_times)] {
        if path.is_some() {
            found.files.push(file.into());
            found
                .notes
                .push(format!("{file} is written, in the order of the graph's edges; nothing uses it yet"));
        }
    }
}

/// Writes `ids.txt`: the id of each vertex, a line each.
fn write_ids(ids: Option<Ids>, folder: &Path, found: &mut Found) -> Result<()> {
    let Some(ids) = ids else { return Ok(()) };
    let path = folder.join("ids.txt");
    let io = |e| Error::io(&path, e);
    let mut file = BufWriter::new(File::create(&path).map_err(io)?);
    for id in ids.into_list() {
        writeln!(file, "{id}").map_err(io)?;
    }
    file.flush().map_err(io)?;
    found.files.push("ids.txt".into());
    found.notes.push("ids.txt has the id of each vertex, a line each".into());
    Ok(())
}

fn write_meta(name: &str, folder: &Path, found: &Found, options: &Options) -> Result<()> {
    let mut meta = serde_json::Map::new();
    meta.insert("name".into(), name.into());
    if let Some(n) = found.n_classes.filter(|_| folder.join("labels.npy").exists()) {
        meta.insert("n_classes".into(), n.into());
    }
    if folder.join("edge_type.npy").exists() {
        let loops = u32::from(options.self_loops == SelfLoops::Add);
        meta.insert("n_relations".into(), (found.n_relations + loops).into());
    }
    let features = folder.join("feat.npy");
    if options.read.feature_dtype == Some(FeatureDtype::Bf16) && features.exists() {
        meta.insert("feature_dtype".into(), "bf16".into());
    }
    let path = folder.join("meta.json");
    let text = serde_json::to_string_pretty(&meta).map_err(|e| Error::format(&path, e))?;
    fs::write(&path, text + "\n").map_err(|e| Error::io(path, e))
}

#[cfg(test)]
mod tests;
