//! Arrays of `.npy` files and of `.npz` archives, in pieces: any size in little memory.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use cohop::data::npy::{self, Dtype, Header};
use cohop::{Error, Result};
use half::f16;
use zip::{CompressionMethod, ZipArchive};

/// Bytes of a file that are read at a time.
const BUFFER: usize = 1 << 17;

/// Where numbers are: a text file, a `.npy` file, or an array of an `.npz` file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    /// The array's name; `None`: the file is not an archive.
    member: Option<String>,
    /// Whether this is an array, and not text.
    pub(crate) is_array: bool,
}

impl Place {
    pub(crate) fn text(path: impl Into<PathBuf>) -> Self {
        Place { path: path.into(), member: None, is_array: false }
    }

    pub(crate) fn npy(path: impl Into<PathBuf>) -> Self {
        Place { path: path.into(), member: None, is_array: true }
    }

    /// An array of an `.npz`.
    pub(crate) fn member(path: impl Into<PathBuf>, name: &str) -> Self {
        Place { path: path.into(), member: Some(name.to_owned()), is_array: true }
    }

    /// An error about what is here.
    pub(crate) fn error(&self, problem: impl std::fmt::Display) -> Error {
        match &self.member {
            Some(name) => Error::format(&self.path, format!("array {name}: {problem}")),
            None => Error::format(&self.path, problem),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.member {
            Some(name) => write!(f, "array {name} of {}", self.path.display()),
            None => write!(f, "{}", self.path.display()),
        }
    }
}

/// Opens a file, and nothing else that has a name: a pipe could be waited for for ever.
fn open_file(path: &Path) -> Result<(File, u64)> {
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !metadata.is_file() {
        return Err(Error::format(path, "is no file"));
    }
    Ok((File::open(path).map_err(|e| Error::io(path, e))?, metadata.len()))
}

fn open_archive(path: &Path) -> Result<ZipArchive<BufReader<File>>> {
    let (file, _) = open_file(path)?;
    ZipArchive::new(BufReader::new(file))
        .map_err(|e| Error::format(path, format!("is not a readable .npz: {e}: is it truncated or damaged?")))
}

/// The names of the arrays of an `.npz`, sorted.
pub(crate) fn array_names(path: &Path) -> Result<Vec<String>> {
    let archive = open_archive(path)?;
    let mut names: Vec<_> =
        archive.file_names().filter_map(|name| name.strip_suffix(".npy")).map(str::to_owned).collect();
    names.sort_unstable();
    Ok(names)
}

/// An array that is read from its beginning to its end.
pub(crate) struct ArrayStream {
    place: Place,
    header: Header,
    reader: Box<dyn Read>,
    /// Elements that have been read.
    n_read: usize,
    bytes: Vec<u8>,
}

impl ArrayStream {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        let (mut reader, size) = match &place.member {
            Some(name) => open_member(place, name)?,
            None => {
                let (file, size) = open_file(&place.path)?;
                (Box::new(BufReader::with_capacity(BUFFER, file)) as Box<dyn Read>, size)
            }
        };
        let (header, offset) = npy::read_header(&mut reader).map_err(|problem| place.error(problem))?;
        let expected = offset as u64 + (header.len * header.dtype.bytes()) as u64;
        // An archive's array ends where its data ends; a file may have more.
        if size < expected || (place.member.is_some() && size > expected) {
            let shape = &header.shape;
            return Err(place.error(format!(
                "has {size} bytes, {expected} are needed for shape {shape:?}: is it truncated?"
            )));
        }
        Ok(ArrayStream { place: place.clone(), header, reader, n_read: 0, bytes: Vec::new() })
    }

    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// How much has been read, from 0 to 1.
    pub(crate) fn part(&self) -> f64 {
        self.n_read as f64 / self.header.len.max(1) as f64
    }

    /// Replaces `out` by the next elements, at most `most`, as 64-bit floats: beyond 2^53, integers are rounded. None
    /// are left if `out` is empty afterwards.
    pub(crate) fn next(&mut self, most: usize, out: &mut Vec<f64>) -> Result<()> {
        out.clear();
        let n = most.min(self.header.len - self.n_read);
        self.read_bytes(n)?;
        match self.header.dtype {
            Dtype::Bool | Dtype::U8 => widen(&self.bytes, out, |v: u8| f64::from(v)),
            Dtype::I8 => widen(&self.bytes, out, |v: i8| f64::from(v)),
            Dtype::U16 => widen(&self.bytes, out, |v: u16| f64::from(v)),
            Dtype::I16 => widen(&self.bytes, out, |v: i16| f64::from(v)),
            Dtype::U32 => widen(&self.bytes, out, |v: u32| f64::from(v)),
            Dtype::I32 => widen(&self.bytes, out, |v: i32| f64::from(v)),
            Dtype::U64 => widen(&self.bytes, out, |v: u64| v as f64),
            Dtype::I64 => widen(&self.bytes, out, |v: i64| v as f64),
            Dtype::F16 => widen(&self.bytes, out, |v: f16| v.to_f64()),
            Dtype::F32 => widen(&self.bytes, out, |v: f32| f64::from(v)),
            Dtype::F64 => widen(&self.bytes, out, |v: f64| v),
        }
        Ok(())
    }

    /// Leaves out elements.
    pub(crate) fn skip(&mut self, mut n: usize) -> Result<()> {
        while n > 0 {
            let some = n.min(BUFFER / 8);
            self.read_bytes(some)?;
            n -= some;
        }
        Ok(())
    }

    fn read_bytes(&mut self, n: usize) -> Result<()> {
        self.bytes.resize(n * self.header.dtype.bytes(), 0);
        let mut read = self.reader.read_exact(&mut self.bytes);
        self.n_read += n;
        if read.is_ok() && self.n_read == self.header.len && self.place.member.is_some() {
            // At the end of the member its checksum is compared.
            read = self.reader.read(&mut [0]).map(drop);
        }
        read.map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => self.place.error("ends too early: is the file truncated or damaged?"),
            _ => self.place.error(format!("{e}: is the file truncated or damaged?")),
        })
    }
}

fn widen<T: Pod>(bytes: &[u8], out: &mut Vec<f64>, convert: impl Fn(T) -> f64) {
    out.extend(bytes.chunks_exact(size_of::<T>()).map(|b| convert(bytemuck::pod_read_unaligned(b))));
}

/// The data of an array of at most `most` bytes, whatever its type is.
pub(crate) fn member_bytes(place: &Place, most: u64) -> Result<Vec<u8>> {
    let name = place.member.as_deref().unwrap_or_default();
    let mut bytes = Vec::new();
    let (reader, _) = open_member(place, name)?;
    // A header takes 128 bytes.
    let most = most + 128;
    let read = reader.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|e| place.error(format!("{e}: is the file truncated or damaged?")))?;
    match bytes.iter().position(|&b| b == b'\n') {
        Some(end) if bytes.len() as u64 <= most => Ok(bytes.split_off(end + 1)),
        _ => Err(place.error("is no array of a few bytes")),
    }
}

/// A reader of a member's contents, and their size.
fn open_member(place: &Place, name: &str) -> Result<(Box<dyn Read>, u64)> {
    let path = &place.path;
    let mut archive = open_archive(path)?;
    let index = archive.index_for_name(&format!("{name}.npy")).ok_or_else(|| {
        let names = array_names(path).unwrap_or_default().join(", ");
        Error::format(path, format!("has no array {name}: it has {names}"))
    })?;
    let member = archive.by_index_raw(index).map_err(|e| place.error(e))?;
    if member.encrypted() {
        return Err(place.error("is encrypted"));
    }
    let start = member.data_start().ok_or_else(|| place.error("has no place in the archive"))?;
    let (packed, size, method) = (member.compressed_size(), member.size(), member.compression());
    let crc32 = member.crc32();
    drop(member);
    let mut file = archive.into_inner().into_inner();
    file.seek(SeekFrom::Start(start)).map_err(|e| Error::io(path, e))?;
    let packed = BufReader::with_capacity(BUFFER, file.take(packed));
    let reader: Box<dyn Read> = match method {
        CompressionMethod::Stored => Box::new(packed),
        CompressionMethod::Deflated => Box::new(flate2::bufread::DeflateDecoder::new(packed)),
        method => return Err(place.error(format!("is compressed by {method}: expected numpy.savez's ways"))),
    };
    Ok((Box::new(Checked { reader, crc: flate2::Crc::new(), expected: crc32 }), size))
}

/// Compares the checksum at the end.
struct Checked {
    reader: Box<dyn Read>,
    crc: flate2::Crc,
    expected: u32,
}

impl Read for Checked {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.reader.read(buffer)?;
        self.crc.update(&buffer[..n]);
        if n == 0 && !buffer.is_empty() && self.crc.sum() != self.expected {
            return Err(std::io::Error::other("its checksum is wrong"));
        }
        Ok(n)
    }
}
