//! Named matrices in a safetensors file, which many programs read.
//!
//! The metadata entry `checksum` is the CRC-32 of the whole file, where the checksum's own eight digits are taken for
//! zeros. All matrices hold finite numbers only: neither are others written, nor are they read.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use crate::device::{Device, Scalar};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

fn dtype<S: Scalar>() -> Dtype {
    if size_of::<S>() == 8 { Dtype::F64 } else { Dtype::F32 }
}

/// The name of the checksum in the metadata.
const CHECKSUM: &str = "checksum";

/// What stands for the checksum while it is calculated.
const NO_CHECKSUM: &str = "00000000";

/// Ends the names of files that are not complete.
pub(crate) const TEMPORARY: &str = ".new";

/// Where the digits of the checksum are in a file.
fn place_of_checksum(bytes: &[u8]) -> Option<Range<usize>> {
    // Inside of a JSON string the quotes have backslashes before them: these bytes are the entry itself.
    let entry = format!("\"{CHECKSUM}\":\"");
    let begin = bytes.windows(entry.len()).position(|window| window == entry.as_bytes())? + entry.len();
    let place = begin..begin + NO_CHECKSUM.len();
    (bytes.get(place.end) == Some(&b'"')).then_some(place)
}

/// The checksum of a file with its digits in this place.
fn checksum(bytes: &[u8], place: &Range<usize>) -> String {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes[..place.start]);
    crc.update(NO_CHECKSUM.as_bytes());
    crc.update(&bytes[place.end..]);
    format!("{:08x}", crc.finalize())
}

/// `Ok` if all numbers of a matrix of a file are finite.
fn check_finite<S: Scalar>(path: &Path, name: &str, columns: usize, values: &[S]) -> Result<()> {
    let Some(at) = values.iter().position(|v| !v.is_finite()) else { return Ok(()) };
    let (row, column) = (at / columns, at % columns);
    let problem = format!(
        "{name} has the value {} in row {row}, column {column}: expected a finite number",
        values[at].widen_f64()
    );
    Err(Error::format(path, problem))
}

/// Replaces a file in one step: whatever happens, the old content or the new is there, and after `Ok` the new one is on
/// the disk. The new content is first in a file of its own beside it, which is always a new one.
///
/// Errors: the file cannot be written.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (temporary, mut file) = loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}-{number}{TEMPORARY}", std::process::id()));
        let temporary = PathBuf::from(name);
        // Neither an existing file nor what a link points to is opened.
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            Ok(file) => break (temporary, file),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io(temporary, e)),
        }
    };
    // `sync_all` reports what `close` could: after it nothing is left to be written.
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    drop(file);
    let replaced = written
        .map_err(|e| Error::io(&temporary, e))
        .and_then(|()| fs::rename(&temporary, path).map_err(|e| Error::io(path, e)));
    if replaced.is_err() {
        // What is left of it helps nobody; the error to tell is the first.
        let _ = fs::remove_file(&temporary);
        return replaced;
    }
    sync_folder_of(path)
}

/// Waits until the name of a file is on the disk.
#[cfg(unix)]
fn sync_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder).and_then(|f| f.sync_all()).map_err(|e| Error::io(folder, e))
}

/// Waits until the name of a file is on the disk, where folders can be opened.
#[cfg(not(unix))]
fn sync_folder_of(_: &Path) -> Result<()> {
    Ok(())
}

/// Puts the texts of a file's header in the order of their names, so that the same content makes the same bytes.
fn sort_metadata(bytes: &mut [u8]) -> serde_json::Result<()> {
    /// The header but for its order: matrices have an order already.
    #[derive(Deserialize, Serialize)]
    struct Header {
        #[serde(rename = "__metadata__")]
        metadata: BTreeMap<String, String>,
        #[serde(flatten)]
        matrices: BTreeMap<String, Matrix>,
    }
    #[derive(Deserialize, Serialize)]
    struct Matrix {
        dtype: String,
        shape: Vec<usize>,
        data_offsets: [usize; 2],
    }
    let Some((length, rest)) = bytes.split_first_chunk_mut::<8>() else { return Ok(()) };
    let Some(header) = rest.get_mut(..u64::from_le_bytes(*length) as usize) else { return Ok(()) };
    let sorted = serde_json::to_vec(&serde_json::from_slice::<Header>(header)?)?;
    // As long as before: nothing but the order differs. Spaces follow.
    if let Some(place) = header.get_mut(..sorted.len()) {
        place.copy_from_slice(&sorted);
    }
    Ok(())
}

/// Writes matrices under their names, which must differ, and texts in the file's metadata, as [`replace`] does.
///
/// Errors: a number is not finite, the file cannot be written, or the device fails.
pub(crate) fn write<'a, D: Device>(
    device: &D,
    path: &Path,
    tensors: impl IntoIterator<Item = (String, &'a Tensor<D>)>,
    mut texts: HashMap<String, String>,
) -> Result<()> {
    let mut values: Vec<(String, [usize; 2], Vec<u8>)> = Vec::new();
    for (name, tensor) in tensors {
        let host = tensor.to_vec(device)?;
        check_finite(path, &format!("not written: {name}"), tensor.cols(), &host)?;
        values.push((name, tensor.shape(), bytemuck::cast_slice(&host).to_vec()));
    }
    let views = values
        .iter()
        .map(|(name, shape, bytes)| {
            let view = TensorView::new(dtype::<D::Scalar>(), shape.to_vec(), bytes);
            view.map(|v| (name.as_str(), v)).map_err(|e| Error::format(path, e))
        })
        .collect::<Result<Vec<_>>>()?;
    texts.insert(CHECKSUM.to_owned(), NO_CHECKSUM.to_owned());
    let mut bytes = safetensors::serialize(views, Some(texts)).map_err(|e| Error::format(path, e))?;
    sort_metadata(&mut bytes).map_err(|e| Error::format(path, e))?;
    let place = place_of_checksum(&bytes).ok_or_else(|| Error::format(path, "no place for the checksum"))?;
    let digits = checksum(&bytes, &place);
    bytes[place].copy_from_slice(digits.as_bytes());
    replace(path, &bytes)
}

/// A file that was read into memory.
pub(crate) struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Reads a file.
    ///
    /// Errors: the file cannot be read, or is not what its checksum says.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file =
            TensorFile { path: path.to_owned(), bytes: fs::read(path).map_err(|e| Error::io(path, e))? };
        let (_, metadata) = SafeTensors::read_metadata(&file.bytes).map_err(|e| {
            Error::format(path, format!("is no safetensors file, or truncated or damaged: {e}"))
        })?;
        if let Some(stored) = metadata.metadata().as_ref().and_then(|texts| texts.get(CHECKSUM)) {
            let found = place_of_checksum(&file.bytes).map(|place| checksum(&file.bytes, &place));
            if found.as_ref() != Some(stored) {
                let found = found.unwrap_or_else(|| "another form".to_owned());
                let problem = format!("is damaged: its checksum is {found}, expected {stored}");
                return Err(Error::format(path, problem));
            }
        }
        Ok(file)
    }

    /// `Ok` if the file has a checksum, which [`read`](TensorFile::read) has compared then. Files of other programs
    /// have none.
    ///
    /// Errors: there is none.
    pub(crate) fn has_checksum(&self) -> Result<()> {
        self.text(CHECKSUM).map(|_| ())
    }

    /// The text with this name.
    ///
    /// Errors: the file is not safetensors, or has no such text.
    pub(crate) fn text(&self, name: &str) -> Result<String> {
        let (_, metadata) =
            SafeTensors::read_metadata(&self.bytes).map_err(|e| Error::format(&self.path, e))?;
        let text = metadata.metadata().as_ref().and_then(|texts| texts.get(name)).cloned();
        text.ok_or_else(|| Error::format(&self.path, format!("has no metadata entry \"{name}\"")))
    }

    /// The matrices.
    ///
    /// Errors: the file is not safetensors, or damaged.
    pub(crate) fn tensors(&self) -> Result<Tensors<'_>> {
        let tensors = SafeTensors::deserialize(&self.bytes).map_err(|e| Error::format(&self.path, e))?;
        Ok(Tensors { path: &self.path, tensors })
    }
}

/// The matrices of a [`TensorFile`].
pub(crate) struct Tensors<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl Tensors<'_> {
    /// The matrix with this name.
    ///
    /// Errors: there is none, it has another shape or type or a number that is not finite, or the device is out of
    /// memory.
    pub(crate) fn get<D: Device>(&self, device: &D, name: &str, shape: [usize; 2]) -> Result<Tensor<D>> {
        let view = self.tensors.tensor(name).map_err(|e| Error::format(self.path, format!("{name}: {e}")))?;
        let expected = dtype::<D::Scalar>();
        if view.shape() != shape || view.dtype() != expected {
            let (found, of) = (view.dtype(), view.shape());
            let problem = format!("{name} is {found:?} {of:?}, expected {expected:?} {shape:?}");
            return Err(Error::format(self.path, problem));
        }
        let values: Vec<D::Scalar> = bytemuck::pod_collect_to_vec(view.data());
        check_finite(self.path, name, shape[1], &values)?;
        Tensor::from_slice(device, shape[0], shape[1], &values)
    }

    /// Number of matrices.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }
}

#[cfg(test)]
mod tests {
    // A panic is how these fail.
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::device::Cpu;

    fn file_of(values: &[f32]) -> (tempfile::TempDir, PathBuf, Result<()>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let device = Cpu::<f32>::new();
        let tensor = Tensor::from_slice(&device, 1, values.len(), values).unwrap();
        let texts = HashMap::from([("text".to_owned(), "with \"checksum\":\"00000000\" in it".to_owned())]);
        let written = write(&device, &path, [("matrix".to_owned(), &tensor)], texts);
        (folder, path, written)
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else_is_left() {
        let (folder, path, written) = file_of(&[1.0, -2.5, 3.0]);
        written.unwrap();
        let file = TensorFile::read(&path).unwrap();
        file.has_checksum().unwrap();
        assert!(file.text("text").unwrap().contains("in it"));
        let read = file.tensors().unwrap().get(&Cpu::<f32>::new(), "matrix", [1, 3]).unwrap();
        assert_eq!(read.to_vec(&Cpu::<f32>::new()).unwrap(), [1.0, -2.5, 3.0]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_same_content_makes_the_same_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let device = Cpu::<f32>::new();
        let tensor = Tensor::from_slice(&device, 1, 3, &[1.0, 2.0, 3.0]).unwrap();
        let save = |name: &str| {
            // Each map has an order of its own.
            let texts = (0..20).map(|i| (format!("text {i}"), format!("\"{i}\" \u{e9}\n"))).collect();
            let path = folder.path().join(name);
            write(&device, &path, [("b", &tensor), ("a", &tensor)].map(|(n, t)| (n.to_owned(), t)), texts)
                .unwrap();
            let file = TensorFile::read(&path).unwrap();
            file.has_checksum().unwrap();
            assert_eq!(file.text("text 7").unwrap(), "\"7\" \u{e9}\n");
            file.tensors().unwrap().get(&device, "b", [1, 3]).unwrap();
            fs::read(&path).unwrap()
        };
        let first = save("first");
        (0..5).for_each(|_| assert!(save("again") == first));
    }

    #[test]
    fn numbers_that_are_not_finite_are_neither_written_nor_read() {
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (_folder, path, written) = file_of(&[1.0, value]);
            let error = written.unwrap_err().to_string();
            assert!(error.contains("not written: matrix has the value"), "{error}");
            assert!(error.contains("row 0, column 1") && !path.exists(), "{error}");
        }
        // As another program may write it.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let data = f32::NAN.to_le_bytes();
        let view = TensorView::new(Dtype::F32, vec![1, 1], &data).unwrap();
        fs::write(&path, safetensors::serialize([("matrix", view)], None).unwrap()).unwrap();
        let file = TensorFile::read(&path).unwrap();
        assert!(file.has_checksum().is_err());
        let error = file.tensors().unwrap().get(&Cpu::<f32>::new(), "matrix", [1, 1]).unwrap_err();
        assert!(error.to_string().contains("the value NaN"), "{error}");
    }

    #[test]
    #[cfg(unix)]
    fn nothing_that_lies_there_is_written_through() {
        let (folder, path, written) = file_of(&[1.0]);
        written.unwrap();
        let victim = folder.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&victim).unwrap()),
            (b"new".to_vec(), b"precious".to_vec())
        );
        // A file that cannot replace what is there leaves nothing behind.
        fs::create_dir(folder.path().join("in the way")).unwrap();
        replace(&folder.path().join("in the way"), b"new").unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn every_flip_of_a_bit_and_every_cut_is_an_error() {
        let (_folder, path, written) = file_of(&[1.0, 2.0]);
        written.unwrap();
        let bytes = fs::read(&path).unwrap();
        let damaged = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            TensorFile::read(&path).and_then(|file| file.has_checksum()).is_err()
        };
        for bit in 0..8 * bytes.len() {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(damaged(&changed), "bit {bit}");
        }
        for end in 0..bytes.len() {
            assert!(damaged(&bytes[..end]), "cut at {end}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn flips_of_several_bits_are_errors(
            values in proptest::collection::vec(-1e6f32..1e6, 1..50),
            flips in proptest::collection::vec(any::<proptest::sample::Index>(), 1..6),
        ) {
            let (_folder, path, written) = file_of(&values);
            written.unwrap();
            let bytes = fs::read(&path).unwrap();
            let mut changed = bytes.clone();
            for flip in flips {
                let bit = flip.index(8 * bytes.len());
                changed[bit / 8] ^= 1 << (bit % 8);
            }
            prop_assume!(changed != bytes);
            fs::write(&path, &changed).unwrap();
            prop_assert!(TensorFile::read(&path).and_then(|file| file.has_checksum()).is_err());
        }
    }
}
