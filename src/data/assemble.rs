//! Makes a data set of named arrays, in a folder or an archive.

use std::path::Path;

use half::bf16;
use serde::{Deserialize, Serialize};

use super::features::{Dense, FeatureDtype, Features, SparseFeatures};
use super::load::LoadOptions;
use super::npy::{Dtype, NpyArray};
use super::{Dataset, Split};
use crate::array::Array;
use crate::error::{Error, Result};
use crate::graph::{Graph, GraphBuilder};

/// `meta.json`: what the arrays do not say themselves. Everything is optional.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Meta {
    /// Name of the data set; else that of the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    /// Number of classes; else one more than the largest label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) n_classes: Option<usize>,
    /// Number of relations; else one more than the largest relation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
}

/// Reads an array that may have several names: the first that exists.
fn find(source: &mut impl Source, names: &[&str]) -> Result<Option<NpyArray>> {
    for name in names {
        if let Some(array) = source.array(name)? {
            return Ok(Some(array));
        }
    }
    Ok(None)
}

fn require(source: &mut impl Source, names: &[&str], why: &str) -> Result<NpyArray> {
    let found = find(source, names)?;
    found.ok_or_else(|| Error::format(source.path(), format!("has no array {}{why}", names.join(" or "))))
}

/// The data set that the arrays of `source` describe; [`Dataset::new`] and [`Dataset::validate`] have passed it.
pub(super) fn assemble(source: &mut impl Source, meta: Meta, options: &LoadOptions) -> Result<Dataset> {
    let labels = match find(source, &["labels", "y"])? {
        Some(array) => {
            array.vector()?;
            Some(array.labels()?)
        }
        None => None,
    };
    let graph = graph(source, &meta, options, labels.as_ref().map(|labels| labels.len()))?;
    let n = graph.n_vertices();
    let features = features(source, &meta, n)?;
    let labels: Array<i32> = labels.unwrap_or_else(|| vec![-1; n].into());
    let n_classes = match (meta.n_classes, source.array("num_classes")?) {
        (Some(n), _) => n,
        (None, Some(array)) => array.scalar()? as usize,
        // Validation reports labels below -1.
        (None, None) => labels.iter().max().map_or(0, |&l| usize::try_from(i64::from(l) + 1).unwrap_or(0)),
    };
    let splits = splits(source, n)?;
    let mut idx = |name: &str| -> Result<Option<Vec<u32>>> {
        let Some(array) = source.array(name)? else { return Ok(None) };
        array.vector()?;
        Ok(Some(array.ids()?.to_vec()))
    };
    let (train, val, test) = (idx("train_idx")?, idx("val_idx")?, idx("test_idx")?);
    let split = match (train.is_some() || val.is_some() || test.is_some(), splits.first()) {
        (false, Some(first)) => first.clone(),
        _ => Split {
            train: train.unwrap_or_default(),
            val: val.unwrap_or_default(),
            test: test.unwrap_or_default(),
        },
    };
    let vertex_type = match find(source, &["vertex_type", "node_type"])? {
        Some(array) => {
            array.vector()?;
            Some(array.kinds()?)
        }
        None => None,
    };
    let name = meta.name.unwrap_or_else(|| {
        source
            .path()
            .file_stem()
            .map_or_else(|| "data set".into(), |stem| stem.to_string_lossy().into_owned())
    });
    let mut dataset = Dataset::new(name, graph, features, labels, n_classes, split)?;
    (dataset.splits, dataset.vertex_type) = (splits, vertex_type);
    dataset.validate()?;
    Ok(dataset)
}

fn graph(
    source: &mut impl Source,
    meta: &Meta,
    options: &LoadOptions,
    n_labels: Option<usize>,
) -> Result<Graph> {
    let edge_type = match source.array("edge_type")? {
        Some(array) => {
            array.vector()?;
            Some(array.kinds()?)
        }
        None => None,
    };
    let n_relations = match (meta.n_relations, &edge_type) {
        (Some(n), _) => n,
        (None, None) => 0,
        (None, Some(types)) => match source.array("num_relations")? {
            Some(array) => array.scalar()? as usize,
            None => types.iter().max().map_or(0, |&r| usize::from(r) + 1),
        },
    };
    let edge_weight = match source.array("edge_weight")? {
        Some(array) => {
            array.vector()?;
            Some(array.floats()?)
        }
        None => None,
    };
    if let Some(array) = source.array("edges")? {
        let count = require(source, &["num_nodes"], " (edges needs it)")?;
        let n_vertices = count.scalar()?;
        // Check before allocating memory: the number may be damaged.
        if let Some(n_labels) = n_labels.filter(|&n| n as u64 != n_vertices) {
            return Err(count.error(format!("is {n_vertices}, but there are {n_labels} labels")));
        }
        let [_, two] = array.matrix()?;
        if two != 2 {
            return Err(array.error(format!("has {two} columns, expected 2: source, destination")));
        }
        let edges: Vec<(u32, u32)> = array.ids()?.chunks_exact(2).map(|ends| (ends[0], ends[1])).collect();
        let mut builder = GraphBuilder::new(n_vertices, &edges);
        if let Some(types) = &edge_type {
            builder = builder.types(types, n_relations);
        }
        if let Some(weights) = &edge_weight {
            builder = builder.weights(weights);
        }
        return builder.build();
    }
    let indptr = require(source, &["indptr"], " (nor edges)")?;
    let indices = require(source, &["indices"], "")?;
    indptr.vector()?;
    indices.vector()?;
    let (indptr, indices) = (indptr.offsets()?, indices.ids()?);
    let mut graph = match options.trust_indices {
        true => Graph::from_csr_trusted(indptr, indices)?,
        false => Graph::from_csr(indptr, indices)?,
    };
    if let Some(types) = edge_type {
        graph = graph.with_edge_types(types, n_relations)?;
    }
    if let Some(weights) = edge_weight {
        graph = graph.with_edge_weights(weights)?;
    }
    Ok(graph)
}

fn features(source: &mut impl Source, meta: &Meta, n_vertices: usize) -> Result<Features> {
    if let Some(array) = find(source, &["feat", "x"])? {
        let [rows, dim] = array.matrix()?;
        let declared = meta.feature_dtype;
        let stored = match array.dtype() {
            Dtype::U16 if declared == Some(FeatureDtype::Bf16) => FeatureDtype::Bf16,
            Dtype::U16 => {
                return Err(array
                    .error("has dtype <u2: for bfloat16 meta.json must have \"feature_dtype\": \"bf16\""));
            }
            Dtype::F16 => FeatureDtype::F16,
            Dtype::F32 | Dtype::F64 => FeatureDtype::F32,
            _ => return Err(array.wrong_dtype("<f4, <f2, <f8, or <u2 for bfloat16")),
        };
        if let Some(declared) = declared.filter(|&d| d != stored) {
            return Err(array.error(format!("is {stored}, but meta.json says {declared}")));
        }
        return Ok(match stored {
            FeatureDtype::F32 => Features::F32(Dense::new(array.floats()?, rows, dim)?),
            FeatureDtype::F16 => Features::F16(Dense::new(array.as_stored::<half::f16>()?, rows, dim)?),
            FeatureDtype::Bf16 => Features::Bf16(Dense::new(array.as_stored::<bf16>()?, rows, dim)?),
        });
    }
    let Some(indptr) = find(source, &["feat_indptr", "x_indptr"])? else { return Ok(Features::None) };
    let why = " (sparse features need it)";
    let indices = require(source, &["feat_indices", "x_indices"], why)?;
    let values = require(source, &["feat_data", "x_data"], why)?;
    for array in [&indptr, &indices, &values] {
        array.vector()?;
    }
    let (rows, dim) = match (meta.feature_dim, find(source, &["feat_shape", "x_shape"])?) {
        (_, Some(array)) => match array.offsets()?[..] {
            [rows, dim] => (rows as usize, dim as usize),
            _ => return Err(array.error("must hold two numbers: rows, columns")),
        },
        (Some(dim), None) => (n_vertices, dim),
        (None, None) => {
            let missing = "has sparse features but no array x_shape, nor feature_dim in meta.json";
            return Err(Error::format(source.path(), missing));
        }
    };
    if indptr.vector()? != rows.saturating_add(1) {
        return Err(
            indptr.error(format!("has {} entries, {rows} rows need one more than that", indptr.vector()?))
        );
    }
    Ok(Features::Sparse(SparseFeatures::new(indptr.offsets()?, indices.ids()?, values.floats()?, dim)?))
}

/// The published splits of `train_masks`, `val_masks`, `test_masks: [n_splits, n_vertices]`.
fn splits(source: &mut impl Source, n_vertices: usize) -> Result<Vec<Split>> {
    let Some(train) = source.array("train_masks")? else { return Ok(Vec::new()) };
    let [n_splits, _] = train.matrix()?;
    let lists = |array: NpyArray| -> Result<Vec<Vec<u32>>> {
        if array.matrix()? != [n_splits, n_vertices] {
            let found = array.matrix()?;
            return Err(array.error(format!("has shape {found:?}, expected {:?}", [n_splits, n_vertices])));
        }
        let masks = array.bytes()?;
        let members = |mask: &[u8]| (0..).zip(mask).filter(|(_, m)| **m != 0).map(|(v, _)| v).collect();
        // `max`: without vertices there are no chunks, and every list is empty.
        let mut lists: Vec<Vec<u32>> = masks.chunks(n_vertices.max(1)).map(members).collect();
        lists.resize(n_splits, Vec::new());
        Ok(lists)
    };
    let train = lists(train)?;
    let val = lists(require(source, &["val_masks"], " (train_masks is there)")?)?;
    let test = lists(require(source, &["test_masks"], " (train_masks is there)")?)?;
    let parts = train.into_iter().zip(val).zip(test);
    Ok(parts.map(|((train, val), test)| Split { train, val, test }).collect())
}
