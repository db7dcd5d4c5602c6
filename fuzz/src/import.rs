//! Files of other formats, which are imported, and the data sets that come of them.

use std::io::Write;
use std::path::Path;

use cohop::Result;
use cohop_import::{Format, Options, ReadOptions, Rows, import};
use flate2::Compression;
use flate2::write::GzEncoder;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::data_set::{refused, use_data_set};
use crate::mutate::{mutate, put_integer};
use crate::random::Random;
use crate::{End, File, Target};

pub const EDGES: Target = Target {
    name: "edges",
    samples: edges,
    change: |files, random| change(files, random),
    load: |folder, _, random| load(Format::Edges, &folder.join("e.txt"), folder, random),
};

pub const MATRIX_MARKET: Target = Target {
    name: "mtx",
    samples: matrices,
    change: |files, random| change(files, random),
    load: |folder, _, random| load(Format::MatrixMarket, &folder.join("m.mtx"), folder, random),
};

pub const NPZ_CSR: Target = Target {
    name: "npz-csr",
    samples: sparse,
    change: |files, random| change(files, random),
    load: |folder, _, random| {
        pack(folder, "m.npz")?;
        load(Format::NpzCsr, &folder.join("m.npz"), folder, random)
    },
};

pub const EDGE_INDEX: Target = Target {
    name: "edge-index",
    samples: || Ok(vec![vec![("e.npy".to_owned(), array("<i8", "(2, 3)", &[0, 1, 2, 1, 2, 3]))]]),
    change: |files, random| change(files, random),
    load: |folder, _, random| load(Format::EdgeIndex, &folder.join("e.npy"), folder, random),
};

pub const OGB: Target = Target {
    name: "ogb",
    samples: ogb,
    change: |files, random| change(files, random),
    load: |folder, _, random| load(Format::Ogb, folder, folder, random),
};

pub const GRAPHBOLT: Target = Target {
    name: "graphbolt",
    samples: graphbolt,
    change: |files, random| change(files, random),
    load: |folder, _, random| load(Format::GraphBolt, folder, folder, random),
};

/// One to three changes to one of the files. Of a text that goes compressed, the text is changed or what is compressed.
fn change(files: &mut [File], random: &mut Random) {
    let chosen = random.index(files.len());
    let compressed_first = random.index(2) == 0;
    for (i, (name, bytes)) in files.iter_mut().enumerate() {
        let goes_compressed = name.ends_with(".gz");
        if goes_compressed && compressed_first {
            *bytes = gz(bytes);
        }
        if i == chosen {
            for _ in 0..=random.index(3) {
                match name.ends_with(".npy") && bytes.len() > 128 && random.index(2) == 0 {
                    true => put_integer(&mut bytes[128..], random),
                    false => mutate(bytes, random),
                }
            }
        }
        if goes_compressed && !compressed_first {
            *bytes = gz(bytes);
        }
    }
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory takes what is written")
}

/// The arrays of a folder as one archive.
fn pack(folder: &Path, name: &str) -> std::result::Result<(), String> {
    let pack = || -> std::io::Result<()> {
        let mut archive = ZipWriter::new(std::fs::File::create(folder.join(name))?);
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "npy") {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                archive.start_file(name, SimpleFileOptions::default())?;
                archive.write_all(&std::fs::read(&path)?)?;
            }
        }
        archive.finish().map(drop).map_err(Into::into)
    };
    pack().map_err(|error| format!("{name}: {error}"))
}

/// Imports, and uses what came of it. A file may rightly say that there are billions of vertices: the size of files is
/// limited here, and that it is must be an error.
fn load(
    format: Format,
    input: &Path,
    folder: &Path,
    random: &mut Random,
) -> std::result::Result<End, String> {
    let out = folder.join("imported");
    let read = ReadOptions { rows: Some(Rows::Sources), label_column: None, ..ReadOptions::default() };
    let beside =
        |name: &str| Some(folder.join(name)).filter(|path| path.is_file() && format == Format::Edges);
    let options = Options {
        read,
        memory: 16 << 20,
        undirected: random.index(2) == 0,
        deduplicate: random.index(2) == 0,
        labels: beside("y.csv"),
        features_by_id: beside("x.csv").is_some(),
        features: beside("x.csv"),
        ..Options::default()
    };
    match import(format, &[input.to_owned()], &out, &options, &mut |_, _| Ok(())) {
        Err(error) if out.exists() => Err(format!("a failed import left a data set: {error}")),
        Err(error) => refused(&error),
        Ok(_) => use_data_set(&out, random),
    }
}

fn texts(files: &[(&str, &str)]) -> Vec<File> {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

fn array(descr: &str, shape: &str, numbers: &[i64]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{header:<117}\n").bytes());
    for &number in numbers {
        match descr {
            "<f4" => file.extend((number as f32).to_le_bytes()),
            "<i4" => file.extend((number as i32).to_le_bytes()),
            _ => file.extend(number.to_le_bytes()),
        }
    }
    file
}

fn edges() -> Result<Vec<Vec<File>>> {
    let lists =
        ["# SNAP\n0\t1\n1\t2\n3\t0\n", "source,target\n0,1\n1,2\n", "% KONECT\n0 1\n2 1\n", "0;1\n\"2\";1\n"];
    let mut samples: Vec<_> = lists.iter().map(|list| texts(&[("e.txt", list)])).collect();
    samples.push(texts(&[
        ("e.txt", "0 1\n1 2\n"),
        ("y.csv", "id,class\n1,\"a, b\"\n0,c\n2,\n"),
        ("x.csv", ",0,1\n2,0.5,\n0,1,2\n\"1\",3,4\n"),
    ]));
    Ok(samples)
}

fn matrices() -> Result<Vec<Vec<File>>> {
    let general =
        "%%MatrixMarket matrix coordinate real general\n% a comment\n4 4 3\n1 2 0.5\n4 1 2\n2 2 1e0\n";
    let symmetric = "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n";
    Ok(vec![texts(&[("m.mtx", general)]), texts(&[("m.mtx", symmetric)])])
}

fn sparse() -> Result<Vec<Vec<File>>> {
    let mut format = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    format.extend(format!("{:<117}\n", "{'descr': '|S3', 'fortran_order': False, 'shape': (), }").bytes());
    format.extend(b"csr");
    Ok(vec![vec![
        ("indptr.npy".to_owned(), array("<i4", "(5,)", &[0, 1, 1, 3, 3])),
        ("indices.npy".to_owned(), array("<i4", "(3,)", &[1, 0, 2])),
        ("format.npy".to_owned(), format),
        ("shape.npy".to_owned(), array("<i8", "(2,)", &[4, 4])),
        ("data.npy".to_owned(), array("<f4", "(3,)", &[1, 2, 3])),
    ]])
}

fn ogb() -> Result<Vec<Vec<File>>> {
    Ok(vec![texts(&[
        ("raw/edge.csv.gz", "0,1\n1,2\n2,3\n"),
        ("raw/num-node-list.csv.gz", "4\n"),
        ("raw/num-edge-list.csv.gz", "3\n"),
        ("raw/node-feat.csv.gz", "0.5,1\n1,2\n0,0\n3,1\n"),
        ("raw/node-label.csv.gz", "0\n1\n0\n1\n"),
        ("split/time/train.csv.gz", "0\n1\n"),
        ("split/time/valid.csv.gz", "2\n"),
        ("split/time/test.csv.gz", "3\n"),
    ])])
}

fn graphbolt() -> Result<Vec<Vec<File>>> {
    let metadata = "dataset_name: tiny\ngraph:\n  nodes:\n    - num: 4\n  edges:\n    - format: csv\n\
                    \x20     path: e.csv\n\
                    feature_data:\n  - domain: node\n    name: feat\n    format: numpy\n    path: x.npy\n\
                    tasks:\n  - name: node_classification\n    num_classes: 2\n    train_set:\n      - data:\n\
                    \x20         - name: seeds\n            format: numpy\n            path: seeds.npy\n\
                    \x20         - name: labels\n            format: numpy\n            path: labels.npy\n";
    let mut files = texts(&[("metadata.yaml", metadata), ("e.csv", "0,1\n1,2\n2,3\n")]);
    files.push(("x.npy".to_owned(), array("<f4", "(4, 2)", &[0, 1, 2, 3, 4, 5, 6, 7])));
    files.push(("seeds.npy".to_owned(), array("<i8", "(2,)", &[0, 3])));
    files.push(("labels.npy".to_owned(), array("<i8", "(2,)", &[0, 1])));
    Ok(vec![files])
}
