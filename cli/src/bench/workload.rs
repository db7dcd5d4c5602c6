//! The graph of the benchmarks: read from a folder, or generated.

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use rayon::prelude::*;

use cohop::array::Array;
use cohop::block::Block;
use cohop::data::npy::NpyArray;
use cohop::data::{self, Dataset, Features, LoadOptions, Split};
use cohop::device::Device;
use cohop::graph::{Graph, Rmat};
use cohop::rng::{self, Purpose};
use cohop::sample::Batches;
use cohop::{Error, Result};

/// Seeds per batch.
pub(super) const BATCH: usize = 1024;
const FEATURES: usize = 100;
const MAX_BATCHES: usize = 100;
const CLASSES: u64 = 47;
const RELATIONS: u64 = 8;
/// Share of training vertices.
const TRAIN_SHARE: f64 = 0.08;

/// How large a generated graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Size {
    /// A trial: 2^12 vertices, 59 thousand edges, and other benchmarks are smaller too
    #[value(name = "XS")]
    Xs,
    /// 2^17 vertices, 2.2 million edges
    #[value(name = "S")]
    S,
    /// 2^20 vertices, 32.3 million edges
    #[value(name = "M")]
    M,
}

impl Size {
    fn name(self) -> &'static str {
        match self {
            Size::Xs => "XS",
            Size::S => "S",
            Size::M => "M",
        }
    }

    /// Logarithm of the number of vertices, and edges drawn per vertex.
    fn rmat(self) -> (u32, f64) {
        match self {
            Size::Xs => (12, 9.0),
            Size::S => (17, 9.0),
            Size::M => (20, 16.5),
        }
    }

    fn n_batches(self) -> usize {
        if self == Size::Xs { 4 } else { MAX_BATCHES }
    }
}

/// A symmetric graph with features, classes, relations and batches.
#[derive(Debug)]
pub(super) struct Workload {
    /// The name in printed rows.
    pub name: String,
    /// The graph, without relations; features, classes and training vertices.
    pub dataset: Arc<Dataset>,
    /// `[n_edges]`
    pub edge_type: Array<u16>,
    /// Number of relations: above all edge types.
    pub n_relations: usize,
    /// Seeds of each batch.
    pub batches: Vec<Vec<u32>>,
    /// Whether benchmarks may process the whole graph; else they only sample from it.
    pub is_in_memory: bool,
}

impl Workload {
    /// Reads the arrays `rowptr, col, x, y, train, batches, etype` of a folder, from the `.npy` files of these names.
    /// The graph and features of a data set folder are mapped, and stay on disk until they are used.
    pub(super) fn read(folder: &Path, seed: u64) -> Result<Self> {
        if folder.join("indptr.npy").exists() {
            let dataset = data::load_with(folder, &LoadOptions { trust_indices: true })?;
            return Ok(Workload {
                name: dataset.name.clone(),
                batches: draw_batches(&dataset.train_idx, MAX_BATCHES, seed)?,
                dataset: Arc::new(dataset),
                edge_type: Vec::new().into(),
                n_relations: 0,
                is_in_memory: false,
            });
        }
        let open = |name: &str| NpyArray::open(&folder.join(format!("{name}.npy")), name);
        let (rowptr, col) = (open("rowptr")?, open("col")?);
        rowptr.vector()?;
        col.vector()?;
        let graph = Graph::from_csr(rowptr.offsets()?, col.ids()?)?;
        let n_vertices = graph.n_vertices();

        let x = open("x")?;
        let [rows, dim] = x.matrix()?;
        check_length("rows of x", rows, n_vertices)?;
        let features = Features::dense(x.floats()?, rows, dim)?;
        let y = open("y")?;
        check_length("y", y.vector()?, n_vertices)?;
        let labels = y.labels()?;
        let n_classes = labels.iter().max().map_or(0, |&label| usize::try_from(label + 1).unwrap_or(0));
        let train = open("train")?;
        train.vector()?;
        let split = Split { train: train.ids()?.to_vec(), ..Split::default() };

        let batches = open("batches")?;
        let [n_batches, batch_size] = batches.matrix()?;
        if n_batches * batch_size == 0 {
            return Err(
                batches.error(format!("has shape [{n_batches}, {batch_size}], expected a seed at least"))
            );
        }
        let seeds = batches.ids()?;
        if let Some(position) = seeds.iter().position(|&seed| seed as usize >= n_vertices) {
            return Err(Error::IndexOutOfRange {
                array: "batches",
                position: position as u64,
                value: i64::from(seeds[position]),
                limit: n_vertices as u64,
            });
        }
        let etype = open("etype")?;
        check_length("etype", etype.vector()?, graph.indices().len())?;

        let name = folder.file_name().map_or_else(|| folder.to_string_lossy(), |name| name.to_string_lossy());
        let dataset = Dataset::new(name, graph, features, labels, n_classes, split)?;
        Self::new(dataset, etype.kinds()?, seeds.chunks_exact(batch_size).map(<[u32]>::to_vec).collect())
    }

    /// Generates a graph of this size.
    pub(super) fn generate(size: Size, seed: u64) -> Result<Self> {
        let (scale, edge_factor) = size.rmat();
        let graph = Rmat::graph500(scale, edge_factor, seed).generate()?.remove_self_loops()?;
        let n = graph.n_vertices();
        let stream = |index| Purpose::Features.stream(index);
        let features: Vec<f32> = (0..(n * FEATURES) as u64)
            .into_par_iter()
            .map(|i| rng::normal(seed, stream(0), i) as f32)
            .collect();
        let labels: Vec<i32> =
            (0..n as u64).map(|v| rng::bounded(seed, stream(1), v, CLASSES) as i32).collect();
        let edge_type: Vec<u16> =
            (0..graph.n_edges()).map(|e| rng::bounded(seed, stream(2), e, RELATIONS) as u16).collect();

        // R-MAT leaves many vertices without edges, which are useless as seeds.
        let mut train: Vec<u32> = (0..n as u32).filter(|&v| graph.in_degree(v) > 0).collect();
        rng::shuffle(seed, Purpose::Split.stream(0), &mut train);
        train.truncate(((TRAIN_SHARE * n as f64) as usize).max(BATCH));
        let batches = draw_batches(&train, size.n_batches(), seed)?;

        let features = Features::dense(features, n, FEATURES)?;
        let split = Split { train, ..Split::default() };
        let dataset = Dataset::new(size.name(), graph, features, labels, CLASSES as usize, split)?;
        Self::new(dataset, edge_type.into(), batches)
    }

    fn new(dataset: Dataset, edge_type: Array<u16>, batches: Vec<Vec<u32>>) -> Result<Self> {
        // Checks of answers use reverse edges, and a block counts its edges in 32 bits.
        let graph = &dataset.graph;
        let n_edges = graph.n_edges();
        if n_edges > u64::from(u32::MAX) {
            return Err(Error::TooLarge {
                what: "a block's edge list",
                count: n_edges,
                limit: u64::from(u32::MAX),
            });
        }
        let repeated = (0..graph.n_vertices() as u32).into_par_iter().find_map_first(|t| {
            graph.in_neighbors(t).windows(2).find(|pair| pair[0] == pair[1]).map(|pair| (pair[0], t))
        });
        if let Some((s, t)) = repeated {
            return Err(Error::invalid("col", format!("an edge {s} -> {t} twice"), "every edge once"));
        }
        let one_way = (0..graph.n_vertices() as u32).into_par_iter().find_map_first(|t| {
            graph
                .in_neighbors(t)
                .iter()
                .find(|&&s| graph.in_neighbors(s).binary_search(&t).is_err())
                .map(|s| (*s, t))
        });
        if let Some((s, t)) = one_way {
            return Err(Error::invalid(
                "col",
                format!("an edge {s} -> {t} without its reverse"),
                "both directions",
            ));
        }
        Ok(Workload {
            name: dataset.name.clone(),
            n_relations: edge_type.iter().max().map_or(0, |&r| usize::from(r) + 1),
            dataset: Arc::new(dataset),
            edge_type,
            batches,
            is_in_memory: true,
        })
    }

    pub(super) fn graph(&self) -> &Graph {
        &self.dataset.graph
    }

    /// The whole graph as a block.
    pub(super) fn block<D: Device>(&self, device: &D) -> Result<Block<D>> {
        let graph = self.graph();
        let indptr: Vec<u32> = graph.indptr().iter().map(|&offset| offset as u32).collect();
        Block::from_csr(device, graph.n_vertices(), &indptr, graph.indices())
    }

    /// The same with relations.
    pub(super) fn typed_block<D: Device>(&self, device: &D) -> Result<Block<D>> {
        self.block(device)?.with_edge_types(device.upload(&self.edge_type)?)
    }

    /// A few rows to check answers at. Each has an edge, but not so many that the check takes long.
    pub(super) fn rows_to_check(&self) -> Vec<u32> {
        let graph = self.graph();
        let n = graph.n_vertices() as u32;
        let few = |&v: &u32| (1..=64).contains(&graph.in_degree(v));
        (0..n).step_by((n as usize / 200).max(1)).filter(few).take(20).collect()
    }
}

/// `n_batches` batches of training vertices, all of the same size, in the order of epochs.
fn draw_batches(train: &[u32], n_batches: usize, seed: u64) -> Result<Vec<Vec<u32>>> {
    let batch_size = BATCH.min(train.len());
    if batch_size == 0 {
        return Err(Error::invalid("training vertices", 0, "one at least"));
    }
    let order = Batches::new(train.to_vec(), batch_size, seed)?;
    let mut batches: Vec<Vec<u32>> = Vec::new();
    for epoch in 0.. {
        let epoch = order.epoch(epoch);
        batches
            .extend(epoch.iter().map(|(_, seeds)| seeds.to_vec()).filter(|seeds| seeds.len() == batch_size));
        if batches.len() >= n_batches {
            break;
        }
    }
    batches.truncate(n_batches);
    Ok(batches)
}

/// `Ok` if the array that errors call `array` has the expected number of elements.
fn check_length(array: &'static str, actual: usize, expected: usize) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(Error::WrongLength { array, actual: actual as u64, expected: expected as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn npy(path: &Path, descr: &str, shape: &str, data: &[u8]) {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        std::fs::write(path, bytes).unwrap();
    }

    fn integers(values: &[i64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()).collect()
    }

    /// A path of three vertices.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, shape: &str, values: &[i64]| {
            npy(&folder.path().join(format!("{name}.npy")), "<i8", shape, &integers(values));
        };
        write("rowptr", "4,", &[0, 1, 3, 4]);
        write("col", "4,", &[1, 0, 2, 1]);
        write("y", "3,", &[0, 4, 2]);
        write("train", "2,", &[0, 2]);
        write("batches", "2, 1", &[0, 2]);
        write("etype", "4,", &[0, 1, 0, 2]);
        npy(&folder.path().join("x.npy"), "<f4", "3, 2", &[0; 24]);
        folder
    }

    #[test]
    fn a_folder_is_read() {
        let folder = folder();
        let workload = Workload::read(folder.path(), 0).unwrap();
        assert_eq!(workload.graph().in_neighbors(1), [0, 2]);
        assert_eq!((workload.n_relations, workload.dataset.n_classes), (3, 5));
        assert_eq!(workload.batches, [[0], [2]]);
    }

    #[test]
    fn a_data_set_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        data::load("rmat").unwrap().write(folder.path()).unwrap();
        let workload = Workload::read(folder.path(), 1).unwrap();
        assert_eq!((workload.batches.len(), workload.batches[99].len()), (MAX_BATCHES, BATCH));
        assert!(!workload.is_in_memory);
    }

    #[test]
    fn a_damaged_folder_is_an_error_that_names_the_array() {
        let cases: [(&str, &str, &[i64], &str); 6] = [
            ("col", "4,", &[1, 0, 3, 1], "3"),
            ("col", "4,", &[1, 0, -2, 1], "col"),
            ("rowptr", "4,", &[0, 1, 3, 5], "indices"),
            ("batches", "2, 1", &[0, 3], "batches"),
            ("etype", "3,", &[0, 1, 0], "etype"),
            ("train", "2,", &[0], "train"),
        ];
        for (name, shape, values, message) in cases {
            let folder = folder();
            npy(&folder.path().join(format!("{name}.npy")), "<i8", shape, &integers(values));
            let error = Workload::read(folder.path(), 0).unwrap_err().to_string();
            assert!(error.contains(message), "{name}: {error}");
        }
        let folder = folder();
        std::fs::remove_file(folder.path().join("x.npy")).unwrap();
        assert!(Workload::read(folder.path(), 0).unwrap_err().to_string().contains("x.npy"));
    }

    #[test]
    fn an_edge_without_its_reverse_is_an_error() {
        let folder = folder();
        npy(&folder.path().join("col.npy"), "<i8", "4,", &integers(&[2, 0, 2, 1]));
        assert!(Workload::read(folder.path(), 0).unwrap_err().to_string().contains("reverse"));
    }
}
