//! The `.npy` format: headers, and arrays that are mapped or read.
//!
//! Versions 1.0 to 3.0, little-endian plain dtypes, C order. Where the type fits, the data is used directly from the
//! file.
//!
//! ```
//! use cohop::data::npy::{self, Dtype, NpyArray};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let path = folder.path().join("labels.npy");
//! npy::write(&path, Dtype::I32, &[3], &[0i32, 2, -1])?;
//! assert_eq!(&NpyArray::open(&path, "labels")?.labels()?[..], [0, 2, -1]);
//! # Ok::<(), cohop::Error>(())
//! ```

use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use half::f16;

use crate::array::Array;
use crate::error::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// NumPy itself refuses longer headers by default.
const MAX_HEADER_BYTES: usize = 10_000;
/// The data begins at a multiple of this, as in files that NumPy writes.
const ALIGNMENT: usize = 64;

/// Element types that data sets use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 1 byte.
    U8,
    /// Unsigned, 2 bytes; also bfloat16, where meta.json says so.
    U16,
    /// Unsigned, 4 bytes.
    U32,
    /// Unsigned, 8 bytes.
    U64,
    /// Signed, 1 byte.
    I8,
    /// Signed, 2 bytes.
    I16,
    /// Signed, 4 bytes.
    I32,
    /// Signed, 8 bytes.
    I64,
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
}

/// NumPy's name and the bytes of each dtype.
const DTYPES: [(Dtype, &str, usize); 12] = [
    (Dtype::Bool, "|b1", 1),
    (Dtype::U8, "|u1", 1),
    (Dtype::U16, "<u2", 2),
    (Dtype::U32, "<u4", 4),
    (Dtype::U64, "<u8", 8),
    (Dtype::I8, "|i1", 1),
    (Dtype::I16, "<i2", 2),
    (Dtype::I32, "<i4", 4),
    (Dtype::I64, "<i8", 8),
    (Dtype::F16, "<f2", 2),
    (Dtype::F32, "<f4", 4),
    (Dtype::F64, "<f8", 8),
];

impl Dtype {
    fn entry(self) -> (&'static str, usize) {
        let (_, name, bytes) = DTYPES[self as usize];
        (name, bytes)
    }

    /// NumPy's name, such as `<f4`.
    pub fn name(self) -> &'static str {
        self.entry().0
    }

    fn bytes(self) -> usize {
        self.entry().1
    }
}

/// The contents of a header.
#[derive(Clone, Debug, PartialEq)]
struct Header {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Product of the shape.
    len: usize,
}

/// An array: a file in a folder, or a member of an archive.
pub struct NpyArray {
    /// The file that messages name.
    path: PathBuf,
    /// The array's name in messages.
    name: String,
    header: Header,
    body: Body,
}

enum Body {
    /// In its own file, from this byte on.
    File { offset: usize },
    /// All bytes.
    Memory(Vec<u8>),
}

impl NpyArray {
    /// Opens a `.npy` file and reads its header. Errors call the array `name`.
    ///
    /// Errors: the file cannot be read, its header is not a supported one, or it is shorter than its shape needs.
    pub fn open(path: &Path, name: &str) -> Result<Self> {
        let mut file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
        let (header, offset) = read_header(&mut file).map_err(|problem| Error::format(path, problem))?;
        let bytes = file.metadata().map_err(|e| Error::io(path, e))?.len();
        let expected = offset as u64 + (header.len * header.dtype.bytes()) as u64;
        if bytes < expected {
            return Err(Error::format(
                path,
                format!(
                    "has {bytes} bytes, {expected} are needed for shape {:?}: is it truncated?",
                    header.shape
                ),
            ));
        }
        Ok(NpyArray { path: path.to_owned(), name: name.to_owned(), header, body: Body::File { offset } })
    }

    /// Reads the member `name` of the archive at `path`.
    ///
    /// Errors: the member cannot be read, its header is not a supported one, or its length does not fit its shape.
    pub fn read(path: &Path, name: &str, reader: &mut impl Read) -> Result<Self> {
        let fail = |problem: String| Error::format(path, format!("array {name}: {problem}"));
        let (header, _) = read_header(reader).map_err(fail)?;
        let expected = header.len * header.dtype.bytes();
        let mut bytes = Vec::new();
        // One byte more than expected: reading to the end makes the archive check its checksum.
        let got = reader
            .take(expected as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| fail(format!("{e}: is the file truncated or damaged?")))?;
        if got != expected {
            let more = if got > expected { "or more " } else { "" };
            return Err(fail(format!(
                "has {got} {more}bytes of data, shape {:?} needs {expected}",
                header.shape
            )));
        }
        Ok(NpyArray { path: path.to_owned(), name: name.to_owned(), header, body: Body::Memory(bytes) })
    }

    /// The element type.
    pub fn dtype(&self) -> Dtype {
        self.header.dtype
    }

    /// An error about this array, which it names.
    pub fn error(&self, problem: impl std::fmt::Display) -> Error {
        Error::format(&self.path, format!("array {}: {problem}", self.name))
    }

    /// The error for a wrong dtype of this array.
    pub fn wrong_dtype(&self, expected: &str) -> Error {
        self.error(format!("has dtype {}, expected {expected}", self.dtype().name()))
    }

    /// The number of elements.
    ///
    /// Errors: the array does not have one dimension.
    pub fn vector(&self) -> Result<usize> {
        match self.header.shape[..] {
            [len] => Ok(len),
            _ => Err(self.error(format!("has shape {:?}, expected one dimension", self.header.shape))),
        }
    }

    /// Rows and columns.
    ///
    /// Errors: the array does not have two dimensions.
    pub fn matrix(&self) -> Result<[usize; 2]> {
        match self.header.shape[..] {
            [rows, cols] => Ok([rows, cols]),
            _ => Err(self.error(format!("has shape {:?}, expected two dimensions", self.header.shape))),
        }
    }

    /// The elements as they are in the file; mapped if the array has its own file.
    ///
    /// Errors: `T` and the dtype have different sizes, or the file cannot be read.
    pub fn as_stored<T: bytemuck::Pod>(&self) -> Result<Array<T>> {
        if size_of::<T>() != self.dtype().bytes() {
            return Err(self.wrong_dtype(&format!("one of {} bytes per element", size_of::<T>())));
        }
        match &self.body {
            Body::File { offset } if offset.is_multiple_of(align_of::<T>()) => {
                Array::map(&self.path, *offset, self.header.len)
            }
            Body::File { offset } => {
                let bytes = std::fs::read(&self.path).map_err(|e| Error::io(&self.path, e))?;
                let end = offset + self.header.len * size_of::<T>();
                let body = bytes.get(*offset..end).ok_or_else(|| self.error("is truncated"))?;
                Ok(bytemuck::pod_collect_to_vec(body).into())
            }
            Body::Memory(bytes) => Ok(bytemuck::pod_collect_to_vec(bytes).into()),
        }
    }

    /// Integers of any kind, converted. An error names the first that `T` cannot hold.
    fn converted<T: TryFrom<i128> + bytemuck::Pod>(&self) -> Result<Vec<T>> {
        match self.dtype() {
            Dtype::U8 => self.convert_from::<u8, T>(),
            Dtype::U16 => self.convert_from::<u16, T>(),
            Dtype::U32 => self.convert_from::<u32, T>(),
            Dtype::U64 => self.convert_from::<u64, T>(),
            Dtype::I8 => self.convert_from::<i8, T>(),
            Dtype::I16 => self.convert_from::<i16, T>(),
            Dtype::I32 => self.convert_from::<i32, T>(),
            Dtype::I64 => self.convert_from::<i64, T>(),
            Dtype::Bool | Dtype::F16 | Dtype::F32 | Dtype::F64 => Err(self.wrong_dtype("integers")),
        }
    }

    fn convert_from<S, T>(&self) -> Result<Vec<T>>
    where
        S: bytemuck::Pod + Into<i128>,
        T: TryFrom<i128> + bytemuck::Pod,
    {
        let stored = self.as_stored::<S>()?;
        let mut out = Vec::with_capacity(stored.len());
        for (position, &value) in stored.iter().enumerate() {
            let value: i128 = value.into();
            out.push(T::try_from(value).map_err(|_| {
                let limit = 8 * size_of::<T>();
                self.error(format!(
                    "entry {position} is {value}, which does not fit the {limit} bits it needs"
                ))
            })?);
        }
        Ok(out)
    }

    /// Offsets: mapped from `u64` and `i64` (a negative one becomes huge, and fails the check of order), else
    /// converted.
    ///
    /// Errors: the array does not hold integers, one of them is negative, or the file cannot be read.
    pub fn offsets(&self) -> Result<Array<u64>> {
        match (self.dtype(), &self.body) {
            (Dtype::U64, _) | (Dtype::I64, Body::File { .. }) => self.as_stored(),
            _ => Ok(self.converted::<u64>()?.into()),
        }
    }

    /// Vertex ids or columns: mapped from `u32` and `i32` (a negative one becomes huge, and fails the check of range),
    /// else converted.
    ///
    /// Errors: the array does not hold integers, one of them does not fit a `u32`, or the file cannot be read.
    pub fn ids(&self) -> Result<Array<u32>> {
        match (self.dtype(), &self.body) {
            (Dtype::U32, _) | (Dtype::I32, Body::File { .. }) => self.as_stored(),
            _ => Ok(self.converted::<u32>()?.into()),
        }
    }

    /// Relations or vertex types: mapped from `u16`, else converted.
    ///
    /// Errors: the array does not hold integers, one of them does not fit a `u16`, or the file cannot be read.
    pub fn kinds(&self) -> Result<Array<u16>> {
        match self.dtype() {
            Dtype::U16 => self.as_stored(),
            _ => Ok(self.converted::<u16>()?.into()),
        }
    }

    /// Labels: mapped from `i32`, else converted.
    ///
    /// Errors: the array does not hold integers, one of them does not fit an `i32`, or the file cannot be read.
    pub fn labels(&self) -> Result<Array<i32>> {
        match self.dtype() {
            Dtype::I32 => self.as_stored(),
            _ => Ok(self.converted::<i32>()?.into()),
        }
    }

    /// 32-bit floats: mapped from `f32`, converted from `f64` and `f16`.
    ///
    /// Errors: the array has another dtype, or the file cannot be read.
    pub fn floats(&self) -> Result<Array<f32>> {
        match self.dtype() {
            Dtype::F32 => self.as_stored(),
            Dtype::F64 => Ok(self.as_stored::<f64>()?.iter().map(|&v| v as f32).collect::<Vec<_>>().into()),
            Dtype::F16 => Ok(self.as_stored::<f16>()?.iter().map(|v| v.to_f32()).collect::<Vec<_>>().into()),
            _ => Err(self.wrong_dtype("<f4, <f2 or <f8")),
        }
    }

    /// Masks: nonzero bytes are true.
    ///
    /// Errors: the array does not have elements of one byte, or the file cannot be read.
    pub fn bytes(&self) -> Result<Array<u8>> {
        match self.dtype() {
            Dtype::U8 | Dtype::Bool | Dtype::I8 => self.as_stored(),
            _ => Err(self.wrong_dtype("|u1 or |b1")),
        }
    }

    /// The only integer of the array.
    ///
    /// Errors: the array does not hold exactly one integer, or it is negative.
    pub fn scalar(&self) -> Result<u64> {
        match self.converted::<u64>()?[..] {
            [value] => Ok(value),
            _ => Err(self.error(format!("has shape {:?}, expected a single value", self.header.shape))),
        }
    }
}

/// The header, and its number of bytes. Errors are texts, to which the caller adds the file.
fn read_header(reader: &mut impl Read) -> Result<(Header, usize), String> {
    let mut fixed = [0; 10];
    reader.read_exact(&mut fixed).map_err(|e| format!("no .npy header: {e}"))?;
    if &fixed[..6] != MAGIC {
        return Err("does not begin with the .npy magic bytes".into());
    }
    let mut begin = 10;
    let text_bytes = match fixed[6] {
        1 => usize::from(u16::from_le_bytes([fixed[8], fixed[9]])),
        2 | 3 => {
            let mut high = [0; 2];
            reader.read_exact(&mut high).map_err(|e| format!("the .npy header is cut off: {e}"))?;
            begin = 12;
            u32::from_le_bytes([fixed[8], fixed[9], high[0], high[1]]) as usize
        }
        version => return Err(format!(".npy version {version} is not supported")),
    };
    if text_bytes > MAX_HEADER_BYTES {
        return Err(format!("the .npy header has {text_bytes} bytes, more than {MAX_HEADER_BYTES}"));
    }
    let mut text = vec![0; text_bytes];
    reader.read_exact(&mut text).map_err(|e| format!("the .npy header is cut off: {e}"))?;
    let text = std::str::from_utf8(&text).map_err(|_| "the .npy header is not text")?;
    Ok((parse_header(text)?, begin + text_bytes))
}

/// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse_header(text: &str) -> Result<Header, String> {
    let value_of = |key: &str| -> Result<&str, String> {
        let quoted = format!("'{key}':");
        let (_, value) =
            text.split_once(&quoted).ok_or(format!("the .npy header has no {key}: {}", text.trim()))?;
        Ok(value.trim_start())
    };
    let descr = value_of("descr")?;
    let name = descr
        .strip_prefix('\'')
        .and_then(|d| d.split_once('\''))
        .ok_or(format!("dtype {descr:.40} is not a plain number"))?
        .0;
    let Some(&(dtype, _, bytes)) = DTYPES.iter().find(|(_, known, _)| *known == name) else {
        let known: Vec<&str> = DTYPES.iter().map(|(_, known, _)| *known).collect();
        return Err(format!("dtype {name} is not supported: expected one of {}", known.join(" ")));
    };
    if !value_of("fortran_order")?.starts_with("False") {
        return Err("is in Fortran order: save numpy.ascontiguousarray(..) of it".into());
    }
    let shape_text = value_of("shape")?
        .strip_prefix('(')
        .and_then(|s| s.split_once(')'))
        .ok_or("the .npy header has no shape tuple")?
        .0;
    let mut shape = Vec::new();
    for part in shape_text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        shape.push(part.parse::<usize>().map_err(|_| format!("the shape ({shape_text}) is not valid"))?);
    }
    let len = shape
        .iter()
        .try_fold(1usize, |len, &n| len.checked_mul(n))
        .filter(|len| len.checked_mul(bytes).is_some_and(|bytes| bytes < isize::MAX as usize))
        .ok_or(format!("the shape ({shape_text}) is too large"))?;
    Ok(Header { dtype, shape, len })
}

/// Writes a `.npy` file. `shape` must be that of `data`, and `dtype` must have the size of `T`.
///
/// Errors: the file cannot be written.
pub fn write<T: bytemuck::Pod>(path: &Path, dtype: Dtype, shape: &[usize], data: &[T]) -> Result<()> {
    debug_assert_eq!(size_of::<T>(), dtype.bytes());
    debug_assert_eq!(shape.iter().product::<usize>(), data.len());
    let inner = || -> std::io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        file.write_all(&header_bytes(dtype, shape, 0))?;
        file.write_all(bytemuck::cast_slice(data))?;
        file.into_inner().map_err(|e| e.into_error())?.sync_all()
    };
    inner().map_err(|e| Error::io(path, e))
}

/// Writes a `.npy` file piece by piece.
pub(super) struct Writer {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
    dtype: Dtype,
    cols: Option<usize>,
    header_len: usize,
    n_written: usize,
}

impl Writer {
    /// A writer for a vector, or for rows of `cols` elements.
    pub(super) fn create(path: &Path, dtype: Dtype, cols: Option<usize>) -> Result<Self> {
        let header = header_bytes(dtype, &shape(usize::MAX, cols), 0);
        let create = || -> std::io::Result<_> {
            let mut file = BufWriter::new(std::fs::File::create(path)?);
            file.write_all(&header)?;
            Ok(file)
        };
        let file = create().map_err(|e| Error::io(path, e))?;
        Ok(Writer { path: path.to_owned(), file, dtype, cols, header_len: header.len(), n_written: 0 })
    }

    pub(super) fn write<T: bytemuck::Pod>(&mut self, data: &[T]) -> Result<()> {
        debug_assert_eq!(size_of::<T>(), self.dtype.bytes());
        self.n_written += data.len();
        self.file.write_all(bytemuck::cast_slice(data)).map_err(|e| Error::io(&self.path, e))
    }

    /// Writes the header, now that the length is known.
    pub(super) fn finish(self) -> Result<()> {
        let n_rows = self.cols.map_or(self.n_written, |cols| self.n_written.checked_div(cols).unwrap_or(0));
        let header = header_bytes(self.dtype, &shape(n_rows, self.cols), self.header_len);
        debug_assert_eq!(header.len(), self.header_len);
        let finish = || -> std::io::Result<()> {
            let mut file = self.file.into_inner().map_err(|e| e.into_error())?;
            file.rewind()?;
            file.write_all(&header)?;
            file.sync_all()
        };
        finish().map_err(|e| Error::io(self.path, e))
    }
}

fn shape(n: usize, cols: Option<usize>) -> Vec<usize> {
    std::iter::once(n).chain(cols).collect()
}

/// The header, padded to `at_least` bytes.
fn header_bytes(dtype: Dtype, shape: &[usize], at_least: usize) -> Vec<u8> {
    let dims: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let comma = if shape.len() == 1 { "," } else { "" };
    let dims = dims.join(", ") + comma;
    let mut text = format!("{{'descr': '{}', 'fortran_order': False, 'shape': ({dims}), }}", dtype.name());
    let unpadded = MAGIC.len() + 4 + text.len() + 1;
    let padded = unpadded.max(at_least).next_multiple_of(ALIGNMENT);
    text.push_str(&" ".repeat(padded - unpadded));
    text.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend([1, 0]);
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}

// Data is used directly from the file.
#[cfg(target_endian = "big")]
compile_error!(
    "data sets are little-endian files, mapped without conversion: big-endian hosts are not supported"
);
