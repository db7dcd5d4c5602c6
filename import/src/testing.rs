//! Files for tests, written as NumPy and pandas write them, and what a reader makes of them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use cohop::Result;
use cohop::data::npy::NpyArray;
use cohop::data::{Dataset, FeatureDtype, load};

use crate::sink::Sink;
use crate::{Format, Found, Imported, Options, Progress, ReadOptions, SplitFrom, import};

/// A text file, compressed if its name ends in `.gz`; with its folders.
pub(crate) fn text(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    if path.extension().is_some_and(|e| e == "gz") {
        let mut gz =
            flate2::write::GzEncoder::new(File::create(path).unwrap(), flate2::Compression::default());
        gz.write_all(text.as_bytes()).unwrap();
        gz.finish().unwrap();
    } else {
        std::fs::write(path, text).unwrap();
    }
}

/// The bytes of a `.npy` file, version 1.0, as NumPy's `format.py` describes them.
pub(crate) fn npy<T: bytemuck::NoUninit>(descr: &str, fortran: bool, shape: &[usize], data: &[T]) -> Vec<u8> {
    let comma = if shape.len() == 1 { "," } else { "" };
    let shape = shape.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ") + comma;
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(bytemuck::cast_slice(data));
    bytes
}

/// Writes bytes, with the file's folders.
pub(crate) fn file(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// An archive as of `numpy.savez_compressed` or `numpy.savez`, which both allow members beyond 4 GiB.
pub(crate) fn npz(path: &Path, compressed: bool, arrays: &[(&str, Vec<u8>)]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut zip = zip::ZipWriter::new(File::create(path).unwrap());
    let method = if compressed { zip::CompressionMethod::Deflated } else { zip::CompressionMethod::Stored };
    let options = zip::write::SimpleFileOptions::default().compression_method(method).large_file(true);
    for (name, bytes) in arrays {
        zip.start_file(format!("{name}.npy"), options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap();
}

/// Edges in the order in which they came.
#[derive(Default)]
struct Collected(Vec<(u32, u32, f32, u16)>);

impl Sink for Collected {
    fn edge(&mut self, source: u32, destination: u32, weight: f32, kind: u16) -> Result<()> {
        self.0.push((source, destination, weight, kind));
        Ok(())
    }
}

/// What a reader found.
pub(crate) struct Read {
    pub(crate) found: Found,
    pub(crate) folder: tempfile::TempDir,
    edges: Vec<(u32, u32, f32, u16)>,
}

type Reader = fn(&Path, &ReadOptions, &Path, &mut dyn Sink, Progress<'_>) -> Result<Found>;
/// One that writes nothing itself, as all it finds are edges.
type FileReader = fn(&Path, &ReadOptions, &mut dyn Sink, Progress<'_>) -> Result<Found>;

/// Reads a file.
pub(crate) fn read_file(reader: FileReader, input: &Path, options: &ReadOptions) -> Result<Read> {
    read_by(&|input, options, _, sink, progress| reader(input, options, sink, progress), input, options)
}

/// Reads a folder.
pub(crate) fn read(reader: Reader, input: &Path, options: &ReadOptions) -> Result<Read> {
    read_by(&reader, input, options)
}

type AnyReader<'a> = &'a dyn Fn(&Path, &ReadOptions, &Path, &mut dyn Sink, Progress<'_>) -> Result<Found>;

fn read_by(reader: AnyReader<'_>, input: &Path, options: &ReadOptions) -> Result<Read> {
    let folder = tempfile::tempdir().unwrap();
    let mut edges = Collected::default();
    let progress = &mut |_: &str, part: f64| {
        assert!((0.0..=1.0).contains(&part));
        Ok(())
    };
    let found = reader(input, options, folder.path(), &mut edges, progress)?;
    let read = Read { found, folder, edges: edges.0 };
    // What it says it wrote is what there is, and no temporary file.
    let mut names: Vec<_> = std::fs::read_dir(read.folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| Some(path) != read.found.edge_features.as_ref())
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let mut said = read.found.files.clone();
    names.sort_unstable();
    said.sort_unstable();
    assert_eq!(names, said);
    Ok(read)
}

impl Read {
    /// Source, destination and relation of each edge.
    pub(crate) fn edges(&self) -> Vec<(u32, u32, u16)> {
        assert!(self.edges.iter().all(|edge| edge.2 == 1.0));
        self.edges.iter().map(|&(source, destination, _, kind)| (source, destination, kind)).collect()
    }

    /// Source, destination and weight of each edge.
    pub(crate) fn weighted(&self) -> Vec<(u32, u32, f32)> {
        self.edges.iter().map(|&(source, destination, weight, _)| (source, destination, weight)).collect()
    }

    fn array(&self, name: &str) -> NpyArray {
        NpyArray::open(&self.folder.path().join(format!("{name}.npy")), name).unwrap()
    }

    pub(crate) fn ids(&self, name: &str) -> Vec<u32> {
        self.array(name).ids().unwrap().to_vec()
    }

    pub(crate) fn labels(&self) -> Vec<i32> {
        self.array("labels").labels().unwrap().to_vec()
    }

    pub(crate) fn vertex_types(&self) -> Vec<u16> {
        self.array("vertex_type").kinds().unwrap().to_vec()
    }

    /// A matrix, by rows.
    pub(crate) fn matrix(&self, name: &str) -> Vec<Vec<f32>> {
        let array = self.array(name);
        let [_, columns] = array.matrix().unwrap();
        array.floats().unwrap().chunks(columns).map(<[f32]>::to_vec).collect()
    }

    pub(crate) fn edge_features(&self) -> Vec<Vec<f32>> {
        let name = self.found.edge_features.as_ref().unwrap().file_stem().unwrap();
        self.matrix(name.to_str().unwrap())
    }

    /// Whether a note has this text.
    pub(crate) fn notes(&self, text: &str) -> bool {
        self.found.notes.iter().any(|note| note.contains(text))
    }
}

/// Asserts that the reader refuses the folder, naming all of `texts`.
pub(crate) fn refused(reader: Reader, input: &Path, options: &ReadOptions, texts: &[&str]) {
    assert_refused(read(reader, input, options), texts);
}

/// Asserts that the reader refuses the file, naming all of `texts`.
pub(crate) fn refused_file(reader: FileReader, input: &Path, options: &ReadOptions, texts: &[&str]) {
    assert_refused(read_file(reader, input, options), texts);
}

fn assert_refused(result: Result<Read>, texts: &[&str]) {
    let Err(error) = result else { panic!("no error: expected {texts:?}") };
    let error = error.to_string();
    for text in texts {
        assert!(error.contains(text), "{error}: expected {text}");
    }
}

/// Files to import, and what came of them.
pub(crate) struct Case {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) options: Options,
}

impl Case {
    /// A list of edges.
    pub(crate) fn new(edges: &str) -> Self {
        let case = Case { folder: tempfile::tempdir().unwrap(), options: Options::default() };
        text(&case.at("edges.txt"), edges);
        case
    }

    /// The same with ids of any kind.
    pub(crate) fn mapped(edges: &str) -> Self {
        let mut case = Case::new(edges);
        case.options.read.text.map_ids = true;
        case
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn import(&self) -> cohop::Result<(Imported, Dataset)> {
        let options = Options { memory: 16 << 20, overwrite: true, ..self.options.clone() };
        let out = self.at("out");
        let imported = import(Format::Edges, &[self.at("edges.txt")], &out, &options, &mut |_, _| Ok(()))?;
        Ok((imported, load(out)?))
    }

    /// Asserts that the import is refused, with all of `texts` in the message.
    pub(crate) fn refused(&self, texts: &[&str]) {
        let Err(error) = self.import() else { panic!("no error: expected {texts:?}") };
        let error = error.to_string();
        assert!(texts.iter().all(|text| error.contains(text)), "{error}: expected {texts:?}");
    }

    /// The classes that a file of labels gives, and their number.
    pub(crate) fn classes(&mut self, labels: &str) -> (Vec<i32>, usize) {
        self.label(labels);
        let (_, set) = self.import().unwrap();
        (set.labels.to_vec(), set.n_classes)
    }

    pub(crate) fn label(&mut self, labels: &str) {
        text(&self.at("labels.csv"), labels);
        self.options.labels = Some(self.at("labels.csv"));
    }

    pub(crate) fn array(&self, name: &str, bytes: &[u8]) -> PathBuf {
        file(&self.at(name), bytes);
        self.at(name)
    }

    /// The parts that three files give.
    pub(crate) fn split(&mut self, files: [PathBuf; 3]) -> [Vec<u32>; 3] {
        self.options.split = Some(SplitFrom::Files(files));
        let (_, set) = self.import().unwrap();
        [&set.train_idx, &set.val_idx, &set.test_idx].map(|part| part.to_vec())
    }

    /// The rows of features that a file gives.
    pub(crate) fn features(&mut self, path: PathBuf) -> Vec<Vec<f32>> {
        self.options.features = Some(path);
        let (_, set) = self.import().unwrap();
        let features = set.features.to_dtype(FeatureDtype::F32).unwrap();
        let cohop::data::Features::F32(dense) = features else { panic!("not dense") };
        (0..dense.n_rows()).map(|row| dense.row(row).to_vec()).collect()
    }

    pub(crate) fn written(&self, name: &str) -> String {
        std::fs::read_to_string(self.at("out").join(name)).unwrap()
    }
}
