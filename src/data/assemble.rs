//! Makes a data set of named arrays, in a folder or an archive.

use std::path::{Path, PathBuf};

use half::bf16;
use serde::{Deserialize, Serialize};

use self::splits::splits;
use super::Dataset;
use super::features::{Dense, FeatureDtype, Features, SparseFeatures};
use super::folder::ARRAYS;
use super::load::LoadOptions;
use super::npy::{Dtype, NpyArray};
use crate::array::Array;
use crate::error::{Error, Plain, Result, check_length, try_capacity, try_filled};
use crate::graph::{Graph, GraphBuilder, sort_rows};

mod splits;

/// `meta.json`: what the arrays do not say themselves. Everything is optional.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Meta {
    /// Name of the data set; else that of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Number of classes; else one more than the largest label.
    #[serde(default, alias = "num_classes", skip_serializing_if = "Option::is_none")]
    pub(super) n_classes: Option<usize>,
    /// Number of relations; else one more than the largest relation.
    #[serde(default, alias = "num_relations", skip_serializing_if = "Option::is_none")]
    pub(super) n_relations: Option<usize>,
    /// Needed for `bf16`, which NumPy stores as `u2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feature_dtype: Option<FeatureDtype>,
    /// Columns of sparse features.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) feature_dim: Option<usize>,
}

/// Where arrays come from that are stored as NumPy stores them, in the bytes of a `.npy` file: [`NpyArray::open`] takes
/// such a file, [`NpyArray::read`] reads one out of something else. Nothing else makes an [`NpyArray`].
pub(super) trait Source {
    /// The file or folder, for messages and, without another, for the data set's name.
    fn path(&self) -> &Path;
    /// The array of that name, one of those that [`load`](super::load()) documents; `None` if there is none. A source
    /// that calls its arrays otherwise translates the name.
    fn array(&mut self, name: &str) -> Result<Option<NpyArray>>;
    /// The names of all arrays that there are, to tell of those that are not used; none if the source cannot say.
    fn names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What importers write and nothing uses yet.
const NOT_USED_YET: [&str; 3] = ["edge_feat", "edge_time", "multi_labels"];

/// Tells of arrays that no data set has: their names may be misspelt.
fn tell_of_unknown(names: &[String]) {
    let unknown = names.iter().filter(|name| !ARRAYS.contains(&name.as_str()));
    for name in unknown.filter(|name| !NOT_USED_YET.contains(&name.as_str())) {
        let common = |known: &str| known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
        let near = ARRAYS.into_iter().filter(|known| common(known) + 2 >= known.len().max(name.len()));
        let near = near.max_by_key(|known| common(known));
        let hint = near.map_or_else(String::new, |known| format!(": {known} is meant?"));
        log::warn!("array {} is not used: no data set has one of this name{hint}", Plain(name));
    }
}

/// A source, and what had to be done with its arrays, for people to read.
struct Arrays<'a, S> {
    source: &'a mut S,
    notes: Vec<String>,
    /// The arrays found so far, with the files that they are in.
    found: Vec<(String, PathBuf)>,
}

/// What arrays are called in errors of [`Graph`], [`Features`] and [`Dataset`], and in files, if the names differ.
const NAMES_IN_FILES: [(&str, &[&str]); 11] = [
    ("edge sources", &["edges"]),
    ("edge destinations", &["edges"]),
    ("feature indices", &["feat_indices", "x_indices"]),
    ("feature indptr", &["feat_indptr", "x_indptr"]),
    ("feature values", &["feat_data", "x_data"]),
    ("features", &["feat", "x", "feat_indptr", "x_indptr"]),
    ("labels", &["labels", "y"]),
    ("test_idx", &["test_idx", "test_masks", "test_mask"]),
    ("train_idx", &["train_idx", "train_masks", "train_mask"]),
    ("val_idx", &["val_idx", "val_masks", "val_mask"]),
    ("vertex_type", &["vertex_type", "node_type"]),
];

impl<S: Source> Arrays<'_, S> {
    /// Reads an array that may have several names: the first that exists.
    fn find(&mut self, names: &[&str]) -> Result<Option<NpyArray>> {
        for name in names {
            if let Some(array) = self.source.array(name)? {
                self.found.push(((*name).to_owned(), array.path().to_owned()));
                return Ok(Some(array));
            }
        }
        Ok(None)
    }

    /// An error of what the arrays are made into, with the file of the array that it is about; or with the source's
    /// path, if that cannot be told.
    fn with_file(&self, error: Error) -> Error {
        let array = match &error {
            Error::IndexOutOfRange { array, .. }
            | Error::NotMonotone { array, .. }
            | Error::WrongLength { array, .. }
            | Error::NotFinite { array, .. } => array,
            Error::ShapeMismatch { left_name, .. } => left_name,
            Error::InvalidArgument { argument, .. } => argument,
            Error::TooLarge { what, .. } => what,
            // They have a path, or are not about what is in a file.
            _ => return error,
        };
        let array = &array.trim_end_matches("[0]");
        let renamed = NAMES_IN_FILES.iter().find(|(name, _)| name == array);
        let names = renamed.map_or(std::slice::from_ref(array), |(_, names)| names);
        let of_name = |name: &&str| self.found.iter().find(|(found, _)| found == name);
        match names.iter().find_map(of_name) {
            Some((name, path)) if array.starts_with(name.as_str()) => Error::format(path, error),
            Some((name, path)) => Error::format(path, format!("array {name}: {error}")),
            None => Error::format(self.source.path(), error),
        }
    }

    fn require(&mut self, names: &[&str], why: &str) -> Result<NpyArray> {
        let missing = format!("has no array {}{why}", names.join(" or "));
        self.find(names)?.ok_or_else(|| Error::format(self.source.path(), missing))
    }

    /// A vector; noted if it has none of the `native` types, and so is converted.
    fn vector(&mut self, names: &[&str], native: &[Dtype]) -> Result<Option<NpyArray>> {
        let Some(array) = self.find(names)? else { return Ok(None) };
        array.vector()?;
        self.converted(&array, native);
        Ok(Some(array))
    }

    fn converted(&mut self, array: &NpyArray, native: &[Dtype]) {
        if !native.contains(&array.dtype()) {
            self.notes.push(format!(
                "{} is converted from {} to {}",
                array.name(),
                array.dtype().name(),
                native[0].name()
            ));
        }
    }
}

const OFFSETS: &[Dtype] = &[Dtype::U64, Dtype::I64];
const IDS: &[Dtype] = &[Dtype::U32, Dtype::I32];
const KINDS: &[Dtype] = &[Dtype::U16];
const FLOATS: &[Dtype] = &[Dtype::F32];

/// The data set that the arrays of `source` describe, which [`Dataset::new`] and [`Dataset::validate`] have passed; and
/// what had to be converted.
pub(super) fn assemble(
    source: &mut impl Source,
    meta: Meta,
    options: &LoadOptions,
) -> Result<(Dataset, Vec<String>)> {
    tell_of_unknown(&source.names());
    let mut arrays = Arrays { source, notes: Vec::new(), found: Vec::new() };
    let dataset = dataset(&mut arrays, meta, options).map_err(|error| arrays.with_file(error))?;
    Ok((dataset, arrays.notes))
}

fn dataset<S: Source>(arrays: &mut Arrays<'_, S>, meta: Meta, options: &LoadOptions) -> Result<Dataset> {
    let labels = match arrays.vector(&["labels", "y"], &[Dtype::I32])? {
        Some(array) => Some((array.labels()?, array)),
        None => None,
    };
    let graph = graph(arrays, &meta, options, labels.as_ref().map(|(labels, _)| labels.len()))?;
    let n = graph.n_vertices();
    let features = features(arrays, &meta, n)?;
    let n_classes = match (meta.n_classes, arrays.find(&["num_classes", "n_classes"])?, &labels) {
        (Some(n), ..) => n,
        (None, Some(array), _) => size(array.scalar()?),
        (None, None, None) => 0,
        (None, None, Some((labels, array))) => count_classes(labels, array)?,
    };
    let labels: Array<i32> = match labels {
        Some((labels, _)) => labels,
        None => try_filled("labels", -1, n, format_args!("there are {n} vertices"))?.into(),
    };
    let (split, splits) = splits(arrays, n)?;
    let vertex_type = match arrays.vector(&["vertex_type", "node_type"], KINDS)? {
        Some(array) => Some(array.kinds()?),
        None => None,
    };
    let name = meta.name.unwrap_or_else(|| {
        let stem = arrays.source.path().file_stem();
        stem.map_or_else(|| "data set".into(), |stem| stem.to_string_lossy().into_owned())
    });
    let mut dataset = Dataset::new(name, graph, features, labels, n_classes, split)?;
    (dataset.splits, dataset.vertex_type) = (splits, vertex_type);
    dataset.validate()?;
    Ok(dataset)
}

/// A number of a file as one of memory; what is too large for it is too large for all that follows.
fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// One more than the largest label, unless one label alone makes most of the classes: then it is damaged.
fn count_classes(labels: &[i32], array: &NpyArray) -> Result<usize> {
    /// So many classes need no vertices.
    const ALWAYS: usize = 1 << 10;
    let Some((position, &largest)) = labels.iter().enumerate().max_by_key(|(_, label)| **label) else {
        return Ok(0);
    };
    // Validation reports labels below -1.
    let n_classes = usize::try_from(i64::from(largest) + 1).unwrap_or(0);
    if n_classes > labels.len().max(ALWAYS) {
        return Err(array.error(format!(
            "entry {position} is {largest}, which would make {n_classes} classes for {} vertices: \
             is it damaged? (If it is right, n_classes in meta.json or an array says so.)",
            labels.len()
        )));
    }
    Ok(n_classes)
}

fn graph<S: Source>(
    arrays: &mut Arrays<'_, S>,
    meta: &Meta,
    options: &LoadOptions,
    n_labels: Option<usize>,
) -> Result<Graph> {
    let edge_type = match arrays.vector(&["edge_type"], KINDS)? {
        Some(array) => Some(array.kinds()?),
        None => None,
    };
    let n_relations = match (meta.n_relations, &edge_type) {
        (Some(n), _) => n,
        (None, None) => 0,
        (None, Some(types)) => match arrays.find(&["num_relations", "n_relations"])? {
            Some(array) => size(array.scalar()?),
            None => types.iter().max().map_or(0, |&r| usize::from(r) + 1),
        },
    };
    let edge_weight = match arrays.vector(&["edge_weight"], FLOATS)? {
        Some(array) => Some(array.floats()?),
        None => None,
    };
    if let Some(array) = arrays.find(&["edges"])? {
        let count = arrays.require(&["num_nodes"], " (edges needs it)")?;
        let n_vertices = count.scalar()?;
        // Check before allocating memory: the number may be damaged.
        if let Some(n_labels) = n_labels.filter(|&n| n as u64 != n_vertices) {
            return Err(count.error(format!("is {n_vertices}, but there are {n_labels} labels")));
        }
        let [n_edges, two] = array.matrix()?;
        if two != 2 {
            return Err(array.error(format!("has {two} columns, expected 2: source, destination")));
        }
        let limit = (n_edges as u64).saturating_mul(16).max(MAX_UNLABELLED);
        if n_labels.is_none() && n_vertices > limit {
            return Err(count.error(format!(
                "is {n_vertices}, for {n_edges} edges and no labels: without labels, expected at most {limit}"
            )));
        }
        let ids = array.ids()?;
        let mut edges: Vec<(u32, u32)> = try_capacity("edges", n_edges, format_args!("{n_edges} edges"))?;
        edges.extend(ids.chunks_exact(2).map(|ends| (ends[0], ends[1])));
        arrays.notes.push("edges are sorted into rows by destination".into());
        let mut builder = GraphBuilder::new(n_vertices, &edges);
        if let Some(types) = &edge_type {
            builder = builder.types(types, n_relations);
        }
        if let Some(weights) = &edge_weight {
            builder = builder.weights(weights);
        }
        return builder.build();
    }
    let indptr = arrays.require(&["indptr"], " (nor edges)")?;
    let indices = arrays.require(&["indices"], "")?;
    indptr.vector()?;
    indices.vector()?;
    arrays.converted(&indptr, OFFSETS);
    arrays.converted(&indices, IDS);
    let (offsets, sources) = (indptr.offsets()?, indices.ids_as_they_are()?);
    let mut order = None;
    let mut graph = match options.trust_indices {
        true => Graph::from_csr_trusted(offsets, sources)?,
        false => match Graph::from_csr(offsets.clone(), sources.clone()) {
            Ok(graph) => graph,
            // Valid but for the order; SciPy and others do not promise one.
            Err(Error::InvalidArgument { argument: "indices", .. }) => {
                let n = offsets.len() as u64 - 1;
                check_below("indices", &sources, n).map_err(|error| indices.with_sign(error))?;
                let (sorted, places) = sort_rows(&offsets, &sources)?;
                let note = "rows of indices do not ascend: they are sorted on loading";
                log::warn!("{}: {note}", Plain(arrays.source.path().display()));
                arrays.notes.push(note.into());
                order = Some(places);
                Graph::from_csr(offsets, sorted)?
            }
            Err(error) => return Err(indices.with_sign(error)),
        },
    };
    if let Some(types) = edge_type {
        check_length("edge_type", types.len(), graph.indices().len())?;
        graph = graph.with_edge_types(in_order(types, &order)?, n_relations)?;
    }
    if let Some(weights) = edge_weight {
        check_length("edge_weight", weights.len(), graph.indices().len())?;
        graph = graph.with_edge_weights(in_order(weights, &order)?)?;
    }
    Ok(graph)
}

/// Without labels, which would say how many there are: more vertices than this need edges.
const MAX_UNLABELLED: u64 = 1 << 24;

/// The elements in another order, if there is one.
fn in_order<T: bytemuck::Pod>(elements: Array<T>, order: &Option<Vec<u64>>) -> Result<Array<T>> {
    let Some(order) = order else { return Ok(elements) };
    let mut out = try_capacity("elements in order", order.len(), format_args!("{} entries", order.len()))?;
    out.extend(order.iter().map(|&place| elements[place as usize]));
    Ok(out.into())
}

fn check_below(array: &'static str, entries: &[u32], limit: u64) -> Result<()> {
    match entries.iter().position(|&entry| u64::from(entry) >= limit) {
        None => Ok(()),
        Some(position) => Err(Error::IndexOutOfRange {
            array,
            position: position as u64,
            value: entries[position].into(),
            limit,
        }),
    }
}

fn features<S: Source>(arrays: &mut Arrays<'_, S>, meta: &Meta, n_vertices: usize) -> Result<Features> {
    if let Some(array) = arrays.find(&["feat", "x"])? {
        let [rows, dim] = array.matrix()?;
        let declared = meta.feature_dtype;
        let stored = match array.dtype() {
            Dtype::U16 if declared == Some(FeatureDtype::Bf16) => FeatureDtype::Bf16,
            Dtype::U16 => {
                return Err(array.error(
                    "has dtype <u2: for bfloat16 meta.json must have \"feature_dtype\": \"bf16\", numbers go as <i4 or \
                     <f4",
                ));
            }
            Dtype::F16 => FeatureDtype::F16,
            _ => FeatureDtype::F32,
        };
        if let Some(declared) = declared.filter(|&d| d != stored) {
            return Err(array.error(format!("is {stored}, but meta.json says {declared}")));
        }
        return Ok(match stored {
            FeatureDtype::F32 => {
                arrays.converted(&array, FLOATS);
                Features::F32(Dense::new(array.floats()?, rows, dim)?)
            }
            FeatureDtype::F16 => Features::F16(Dense::new(array.as_stored::<half::f16>()?, rows, dim)?),
            FeatureDtype::Bf16 => Features::Bf16(Dense::new(array.as_stored::<bf16>()?, rows, dim)?),
        });
    }
    let Some(indptr) = arrays.vector(&["feat_indptr", "x_indptr"], OFFSETS)? else {
        return Ok(Features::None);
    };
    let why = " (sparse features need it)";
    let indices = arrays.require(&["feat_indices", "x_indices"], why)?;
    let values = arrays.require(&["feat_data", "x_data"], why)?;
    for (array, native) in [(&indices, IDS), (&values, FLOATS)] {
        array.vector()?;
        arrays.converted(array, native);
    }
    let (rows, dim) = match (meta.feature_dim, arrays.find(&["feat_shape", "x_shape"])?) {
        (_, Some(array)) => match array.offsets()?[..] {
            [rows, dim] => (size(rows), size(dim)),
            _ => return Err(array.error("must hold two numbers: rows, columns")),
        },
        (Some(dim), None) => (n_vertices, dim),
        (None, None) => {
            let missing = "has sparse features but no array x_shape, nor feature_dim in meta.json";
            return Err(Error::format(arrays.source.path(), missing));
        }
    };
    if indptr.vector()? != rows.saturating_add(1) {
        return Err(
            indptr.error(format!("has {} entries, {rows} rows need one more than that", indptr.vector()?))
        );
    }
    let (offsets, columns, values) = (indptr.offsets()?, indices.ids()?, values.floats()?);
    match SparseFeatures::new(offsets.clone(), columns.clone(), values.clone(), dim) {
        Ok(sparse) => Ok(Features::Sparse(sparse)),
        // Valid but, as far as it was read, for the order.
        Err(Error::InvalidArgument { argument: "feature indices", .. }) => {
            check_below("feature indices", &columns, dim as u64)?;
            let (sorted, order) = sort_rows(&offsets, &columns)?;
            let values = in_order(values, &Some(order))?;
            // Columns that repeat are still an error.
            let sparse = SparseFeatures::new(offsets, sorted, values, dim)?;
            let note = "rows of the sparse features do not ascend: they are sorted on loading";
            log::warn!("{}: {note}", Plain(arrays.source.path().display()));
            arrays.notes.push(note.into());
            Ok(Features::Sparse(sparse))
        }
        Err(error) => Err(error),
    }
}
