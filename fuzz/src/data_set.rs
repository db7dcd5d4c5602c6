//! Single arrays, folders of them, and archives.

use std::io::{Cursor, Write};
use std::path::Path;
use std::sync::Arc;

use cohop::Result;
use cohop::data::npy::{self, Dtype, NpyArray};
use cohop::data::{self, Dataset, FeatureDtype, Features, SparseFeatures, Split};
use cohop::device::Cpu;
use cohop::graph::Graph;
use cohop::nn::ModelKind;
use cohop::train::{TrainConfig, Trainer};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::mutate::{mutate, put_integer};
use crate::random::Random;
use crate::{End, File, Target};

pub const NPY: Target = Target {
    name: "npy",
    samples: arrays,
    change: |files, random| change_one(files, random),
    load: |folder, _, _| use_array(folder),
};

pub const FOLDER: Target = Target {
    name: "folder",
    samples: folders,
    change: |files, random| change_one(files, random),
    load: |folder, _, random| use_data_set(folder, random),
};

pub const NPZ: Target = Target {
    name: "npz",
    samples: members,
    change: change_archive,
    load: |folder, _, random| use_data_set(&folder.join("set.npz"), random),
};

/// One to three changes to one of the files: to all of it, or to the numbers of an array only, which more often leave
/// something that can be loaded.
fn change_one(files: &mut [File], random: &mut Random) {
    let chosen = random.index(files.len());
    let (name, bytes) = &mut files[chosen];
    let of_numbers = name.ends_with(".npy") && random.index(2) == 0;
    let mut numbers = if of_numbers { bytes.split_off(HEADER.min(bytes.len())) } else { Vec::new() };
    for _ in 0..=random.index(3) {
        match of_numbers {
            true => put_integer(&mut numbers, random),
            false => mutate(bytes, random),
        }
    }
    bytes.append(&mut numbers);
}

/// Bytes before the numbers, in all these files.
const HEADER: usize = 128;

/// Changes to a member, or to the archive, or to both.
fn change_archive(files: &mut Vec<File>, random: &mut Random) {
    let what = random.index(3);
    if what > 0 {
        change_one(files, random);
    }
    let method = [CompressionMethod::Stored, CompressionMethod::Deflated][random.index(2)];
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files.iter() {
        archive
            .start_file(name, SimpleFileOptions::default().compression_method(method))
            .and_then(|()| archive.write_all(bytes).map_err(Into::into))
            .expect("memory takes what is written");
    }
    let mut archive = archive.finish().expect("memory takes what is written").into_inner();
    if what < 2 {
        mutate(&mut archive, random);
    }
    *files = vec![("set.npz".to_owned(), archive)];
}

/// The files of a folder.
fn read_all(folder: &Path) -> Result<Vec<File>> {
    let io = |error| cohop::Error::io(folder, error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push((name, std::fs::read(&path).map_err(io)?));
    }
    files.sort();
    Ok(files)
}

/// What `write` leaves in a new folder.
fn written(write: impl FnOnce(&Path) -> Result<()>) -> Result<Vec<File>> {
    let folder = tempfile::tempdir().map_err(|error| cohop::Error::io("a temporary folder", error))?;
    write(folder.path())?;
    read_all(folder.path())
}

/// Arrays of all types and of several shapes, each a file.
fn arrays() -> Result<Vec<Vec<File>>> {
    // Small whole numbers of any type of integers, and no NaN of any type of floats.
    let bytes: Vec<u8> = (0..12 * 8).map(|i| u8::from(i % 8 == 0)).collect();
    let names = ["|b1", "|u1", "<u2", "<u4", "<u8", "|i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8"];
    let shapes = [("(12,)", 12), ("(3, 4)", 12), ("(1,)", 1)];
    let sample = |name: &str, shape: (&str, usize)| {
        let width = usize::from(name.as_bytes()[2] - b'0');
        let header = format!("{{'descr': '{name}', 'fortran_order': False, 'shape': {}, }}", shape.0);
        let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        file.extend(format!("{header:<117}\n").bytes());
        file.extend(&bytes[..shape.1 * width]);
        vec![("array.npy".to_owned(), file)]
    };
    Ok(names.iter().flat_map(|name| shapes.map(|shape| sample(name, shape))).collect())
}

/// A ring of 40 vertices with edges in both directions; class and features go by even and odd.
pub fn ring(features: Features) -> Result<Dataset> {
    let edges: Vec<(u32, u32)> = (0..40).flat_map(|v| [(v, (v + 1) % 40), ((v + 1) % 40, v)]).collect();
    let graph = Graph::from_edges(40, &edges)?;
    let split = Split { train: (0..20).collect(), val: (20..30).collect(), test: (30..40).collect() };
    Dataset::new("ring", graph, features, (0..40).map(|v| v % 2).collect::<Vec<_>>(), 2, split)
}

pub fn dense() -> Result<Features> {
    Features::dense((0..120u8).map(|i| f32::from(i % 2)).collect::<Vec<_>>(), 40, 3)
}

fn sparse() -> Result<Features> {
    let indptr = (0..=40).collect::<Vec<u64>>();
    let indices = (0..40).map(|v| v % 5).collect::<Vec<u32>>();
    Ok(Features::Sparse(SparseFeatures::new(indptr, indices, vec![1.0; 40], 5)?))
}

/// A ring with all that a data set may have.
fn everything(features: Features) -> Result<Dataset> {
    let mut set = ring(features)?;
    let graph = (*set.graph).clone();
    let graph = graph.with_edge_types((0..80).map(|e| e % 3).collect::<Vec<_>>(), 3)?;
    set.graph = graph.with_edge_weights((0..80u8).map(|e| f32::from(e) / 8.0).collect::<Vec<_>>())?.into();
    set.vertex_type = Some((0..40).map(|v| v % 4).collect::<Vec<_>>().into());
    let rotated = Split { train: (10..30).collect(), val: (30..40).collect(), test: (0..10).collect() };
    let first = Split { train: set.train_idx.clone(), val: set.val_idx.clone(), test: set.test_idx.clone() };
    set.splits = vec![first, rotated];
    Ok(set)
}

/// Arrays as others write them: other types, masks, rows that do not ascend, labels as floats.
fn foreign(folder: &Path) -> Result<()> {
    let file = |name: &str| folder.join(name).with_extension("npy");
    let indptr: Vec<i32> = (0..=40).map(|v| 2 * v).collect();
    npy::write(&file("indptr"), Dtype::I32, &[41], &indptr)?;
    let indices: Vec<i64> = (0..40).flat_map(|v| [(v + 1) % 40, (v + 39) % 40]).collect();
    npy::write(&file("indices"), Dtype::I64, &[80], &indices)?;
    let features: Vec<f64> = (0..80).map(f64::from).collect();
    npy::write(&file("x"), Dtype::F64, &[40, 2], &features)?;
    let labels: Vec<f32> = (0..40u8).map(|v| if v % 7 == 0 { f32::NAN } else { f32::from(v % 3) }).collect();
    npy::write(&file("y"), Dtype::F32, &[40], &labels)?;
    for (name, part) in [("train_mask", 0..20), ("val_mask", 20..30), ("test_mask", 30..40)] {
        let mask: Vec<u8> = (0..40).flat_map(|v| [u8::from(part.contains(&v)); 2]).collect();
        npy::write(&file(name), Dtype::Bool, &[40, 2], &mask)?;
    }
    npy::write(&file("node_type"), Dtype::I64, &[40], &[1i64; 40])?;
    npy::write(&file("n_classes"), Dtype::I64, &[1], &[3i64])
}

/// A list of edges, and nothing else.
fn edges(folder: &Path) -> Result<()> {
    let edges: Vec<i32> = (0..40).flat_map(|v| [v, (v + 3) % 40]).collect();
    npy::write(&folder.join("edges.npy"), Dtype::I32, &[40, 2], &edges)?;
    npy::write(&folder.join("num_nodes.npy"), Dtype::U64, &[1], &[40u64])
}

fn folders() -> Result<Vec<Vec<File>>> {
    Ok(vec![
        written(|folder| ring(dense()?)?.write(folder))?,
        written(|folder| everything(sparse()?)?.write(folder))?,
        written(|folder| everything(dense()?.to_dtype(FeatureDtype::Bf16)?)?.write(folder))?,
        written(foreign)?,
        written(edges)?,
    ])
}

/// The same as the members of archives, which have no meta.json.
fn members() -> Result<Vec<Vec<File>>> {
    let mut samples = vec![
        written(|folder| ring(dense()?)?.write(folder))?,
        written(|folder| {
            everything(sparse()?)?.write(folder)?;
            npy::write(&folder.join("feat_shape.npy"), Dtype::I64, &[2], &[40i64, 5])
        })?,
        written(foreign)?,
        written(edges)?,
    ];
    samples.iter_mut().for_each(|files| files.retain(|(name, _)| name.ends_with(".npy")));
    Ok(samples)
}

/// An error is a text of some lines at most, which a terminal can show.
pub fn refused(error: &cohop::Error) -> Result<End, String> {
    let text = error.to_string();
    match text.chars().count() > 2000 || text.chars().any(|c| c.is_control() && c != '\n') {
        true => Err(format!("an error that nobody can read: {text:?}")),
        false => Ok(End::Refused),
    }
}

fn use_array(folder: &Path) -> Result<End, String> {
    let array = match NpyArray::open(&folder.join("array.npy"), "array") {
        Ok(array) => array,
        Err(error) => return refused(&error),
    };
    let counts = [
        array.vector(),
        array.matrix().map(|[rows, columns]| rows * columns),
        array.floats().map(|a| a.len()),
        array.labels().map(|a| a.len()),
        array.offsets().map(|a| a.len()),
        array.ids().map(|a| a.len()),
        array.kinds().map(|a| a.len()),
        array.bytes().map(|a| a.len()),
    ];
    let mut first = None;
    for count in counts {
        match count {
            Ok(count) if *first.get_or_insert(count) != count => {
                return Err(format!("has {first:?} elements, or {count}"));
            }
            Ok(_) => {}
            Err(error) => {
                refused(&error)?;
            }
        }
    }
    Ok(if first.is_some() { End::Loaded } else { End::Refused })
}

pub fn use_data_set(path: &Path, random: &mut Random) -> Result<End, String> {
    let set = match data::load(path) {
        Ok(set) => Arc::new(set),
        Err(error) => return refused(&error),
    };
    let must = |result: Result<()>, what: &str| result.map_err(|error| format!("{what}: {error}"));
    must(set.validate(), "what was loaded is not valid")?;
    let n = set.n_vertices();
    // Sparse features may have more columns than there is memory to count.
    let summary = match set.summary() {
        Ok(summary) => summary,
        Err(error) => return refused(&error),
    };
    if summary.class_counts.iter().sum::<u64>() + summary.unlabelled != n as u64 {
        return Err(format!("classes are not counted: {summary:?}"));
    }
    // Work grows with what a file may rightly have.
    let cost = (n + set.n_classes).max(set.features.dim()).max(set.graph.n_relations());
    if cost <= 2000 {
        if (0..n as u32).any(|v| set.graph.in_neighbors(v).iter().any(|&u| u as usize >= n)) {
            return Err("there are edges from vertices that there are not".to_owned());
        }
        train(&set)?;
        // Not always: writing waits for the disk.
        if random.index(8) == 0 {
            must(again(path, &set), "what was loaded cannot be written and read")?;
        }
    }
    Ok(End::Loaded)
}

/// Trains for an epoch and predicts, unless an error says why not.
fn train(set: &Arc<Dataset>) -> Result<(), String> {
    let mut config = TrainConfig { batch_size: Some(8), epochs: 1, workers: 0, ..TrainConfig::default() };
    config.model.hidden = 4;
    config.model.kind = if set.graph.n_relations() > 0 { ModelKind::Rgcn } else { ModelKind::Sage };
    let all = || {
        let mut trainer = Trainer::new(Cpu::<f32>::new(), set.clone(), config)?;
        trainer.run_epoch(&mut ())?;
        let last = set.n_vertices().saturating_sub(1) as u32;
        trainer.predict(&[0, last])
    };
    all().map(|_| ()).or_else(|error| refused(&error).map(|_| ()))
}

/// Writes the data set beside its files, and compares what is read then.
fn again(path: &Path, set: &Dataset) -> Result<()> {
    let folder = path.with_extension("again");
    set.write(&folder)?;
    let (again, was) = (data::load(&folder)?.summary()?, set.summary()?);
    let is_same =
        (again.vertices, again.edges, again.classes, &again.class_counts, again.train, again.splits)
            == (was.vertices, was.edges, was.classes, &was.class_counts, was.train, was.splits);
    match is_same {
        true => Ok(()),
        false => Err(cohop::Error::format(folder, format!("{again:?} is not {was:?}"))),
    }
}
