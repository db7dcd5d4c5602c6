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

use std::io::Read;
use std::path::{Path, PathBuf};

use half::f16;
use rayon::prelude::*;

pub use self::header::{Header, read_header};
pub use self::write::{Writer, write};
use crate::array::Array;
use crate::error::{Error, Result, try_capacity};

mod header;
mod write;

const MAGIC: &[u8; 6] = b"\x93NUMPY";
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

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        self.entry().1
    }
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
    /// Errors: it is no file (a folder, a pipe, a device) or cannot be read, its header is not a supported one, or it
    /// is shorter than its shape needs.
    pub fn open(path: &Path, name: &str) -> Result<Self> {
        let mut file = open_regular(path)?;
        let fail = |problem: String| Error::format(path, problem);
        let (header, offset) = read_header(&mut file).map_err(fail)?;
        let header = header.in_c_order().map_err(fail)?;
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
        let header = read_header(reader).and_then(|(header, _)| header.in_c_order()).map_err(fail)?;
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

    /// The array's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The file that the array is in.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The number of elements in each dimension.
    pub(super) fn shape(&self) -> &[usize] {
        &self.header.shape
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
                let bytes: Array<u8> = Array::map(&self.path, *offset, self.header.len * size_of::<T>())?;
                self.copied(&bytes)
            }
            Body::Memory(bytes) => self.copied(bytes),
        }
    }

    /// Room for as many elements as the array has.
    fn room<T>(&self) -> Result<Vec<T>> {
        try_capacity(
            "an array",
            self.header.len,
            format_args!("{}: array {} has shape {:?}", self.path.display(), self.name, self.header.shape),
        )
    }

    /// Elements of these bytes, which need not be aligned.
    fn copied<T: bytemuck::Pod>(&self, bytes: &[u8]) -> Result<Array<T>> {
        let mut out = self.room()?;
        out.resize(self.header.len, T::zeroed());
        bytemuck::cast_slice_mut(&mut out).copy_from_slice(bytes);
        Ok(out.into())
    }

    /// The elements, converted one by one. An error is that of the first that `convert` refuses.
    fn mapped_by<S: bytemuck::Pod, T: bytemuck::Pod>(
        &self,
        convert: impl Fn(S) -> Result<T, String>,
    ) -> Result<Vec<T>> {
        let stored = self.as_stored::<S>()?;
        let mut out = self.room()?;
        for (position, &value) in stored.iter().enumerate() {
            let bad = |problem| self.error(format!("entry {position} {problem}"));
            out.push(convert(value).map_err(bad)?);
        }
        Ok(out)
    }

    /// The error for entry `position`, a negative number where ids or offsets are expected.
    fn negative(&self, position: usize, value: i64) -> Error {
        self.error(format!("entry {position} is {value}: expected a number of at least 0"))
    }

    /// Signed integers whose bits are used as unsigned ones: none may be negative.
    fn check_signs(&self) -> Result<()> {
        let first = match self.dtype() {
            Dtype::I32 => {
                let stored = self.as_stored::<i32>()?;
                let position = stored.par_iter().with_min_len(1 << 14).position_first(|&v| v < 0);
                position.map(|position| (position, i64::from(stored[position])))
            }
            Dtype::I64 => {
                let stored = self.as_stored::<i64>()?;
                let position = stored.par_iter().with_min_len(1 << 14).position_first(|&v| v < 0);
                position.map(|position| (position, stored[position]))
            }
            _ => None,
        };
        first.map_or(Ok(()), |(position, value)| Err(self.negative(position, value)))
    }

    /// `error`, or a better one if it is about an entry of this array that is negative: the bits of an `i32` were taken
    /// for those of a `u32`.
    pub(super) fn with_sign(&self, error: Error) -> Error {
        match error {
            Error::IndexOutOfRange { position, value, .. }
                if self.dtype() == Dtype::I32
                    && value > i64::from(i32::MAX)
                    && value <= i64::from(u32::MAX) =>
            {
                self.negative(position as usize, i64::from(value as u32 as i32))
            }
            error => error,
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
        self.mapped_by(|value: S| {
            let value: i128 = value.into();
            T::try_from(value).map_err(|_| match value < 0 && T::try_from(-1).is_err() {
                true => format!("is {value}: expected a number of at least 0"),
                false => format!("is {value}, which does not fit the {} bits it needs", 8 * size_of::<T>()),
            })
        })
    }

    /// Offsets: mapped from `u64` and `i64`, else converted.
    ///
    /// Errors: the array does not hold integers, one of them is negative, or the file cannot be read.
    pub fn offsets(&self) -> Result<Array<u64>> {
        match self.dtype() {
            Dtype::U64 => self.as_stored(),
            Dtype::I64 => self.check_signs().and_then(|()| self.as_stored()),
            _ => Ok(self.converted::<u64>()?.into()),
        }
    }

    /// Vertex ids or columns: mapped from `u32` and `i32`, else converted.
    ///
    /// Errors: the array does not hold integers, one of them is negative or does not fit a `u32`, or the file cannot be
    /// read.
    pub fn ids(&self) -> Result<Array<u32>> {
        if self.dtype() == Dtype::I32 {
            self.check_signs()?;
        }
        self.ids_as_they_are()
    }

    /// [`ids`](NpyArray::ids) that need not be read here: a negative `i32` becomes huge, and fails the check of range,
    /// whose error [`with_sign`](NpyArray::with_sign) puts right.
    pub(super) fn ids_as_they_are(&self) -> Result<Array<u32>> {
        match self.dtype() {
            Dtype::U32 | Dtype::I32 => self.as_stored(),
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

    /// Labels: mapped from `i32`, else converted. Floats must be whole numbers; NaN becomes -1, no label. Booleans are
    /// classes 0 and 1.
    ///
    /// Errors: an entry is no whole number, or does not fit an `i32`, or the file cannot be read.
    pub fn labels(&self) -> Result<Array<i32>> {
        let whole = |value: f64| match value {
            _ if value.is_nan() => Ok(-1),
            _ if value.fract() == 0.0 && value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX) => {
                Ok(value as i32)
            }
            _ => Err(format!("is {value}: expected a whole number of 32 bits, or NaN for none")),
        };
        match self.dtype() {
            Dtype::I32 => self.as_stored(),
            Dtype::F64 => Ok(self.mapped_by(whole)?.into()),
            Dtype::F32 => Ok(self.mapped_by(|value: f32| whole(value.into()))?.into()),
            Dtype::F16 => Ok(self.mapped_by(|value: f16| whole(value.into()))?.into()),
            Dtype::Bool => Ok(self.mapped_by(|value: u8| Ok(i32::from(value != 0)))?.into()),
            _ => Ok(self.converted::<i32>()?.into()),
        }
    }

    /// 32-bit floats: mapped from `f32`, converted from everything else; integers beyond 2^24 are rounded.
    ///
    /// Errors: a finite `f64` is beyond the range of `f32`, or the file cannot be read.
    pub fn floats(&self) -> Result<Array<f32>> {
        let narrow = |value: f64| match value as f32 {
            narrow if narrow.is_finite() || !value.is_finite() => Ok(narrow),
            _ => Err(format!("is {value:e}, which is beyond the range of 32-bit floats")),
        };
        let out = match self.dtype() {
            Dtype::F32 => return self.as_stored(),
            Dtype::F64 => self.mapped_by(narrow)?,
            Dtype::F16 => self.mapped_by(|value: f16| Ok(value.to_f32()))?,
            Dtype::Bool => self.mapped_by(|value: u8| Ok(f32::from(u8::from(value != 0))))?,
            Dtype::U8 => self.mapped_by(|value: u8| Ok(f32::from(value)))?,
            Dtype::I8 => self.mapped_by(|value: i8| Ok(f32::from(value)))?,
            Dtype::U16 => self.mapped_by(|value: u16| Ok(f32::from(value)))?,
            Dtype::I16 => self.mapped_by(|value: i16| Ok(f32::from(value)))?,
            Dtype::U32 => self.mapped_by(|value: u32| Ok(value as f32))?,
            Dtype::I32 => self.mapped_by(|value: i32| Ok(value as f32))?,
            Dtype::U64 => self.mapped_by(|value: u64| Ok(value as f32))?,
            Dtype::I64 => self.mapped_by(|value: i64| Ok(value as f32))?,
        };
        Ok(out.into())
    }

    /// Masks: nonzero elements are true.
    ///
    /// Errors: the array holds floats, or the file cannot be read.
    pub fn bytes(&self) -> Result<Array<u8>> {
        let out = match self.dtype() {
            Dtype::U8 | Dtype::Bool | Dtype::I8 => return self.as_stored(),
            Dtype::U16 | Dtype::I16 => self.mapped_by(|value: u16| Ok(u8::from(value != 0)))?,
            Dtype::U32 | Dtype::I32 => self.mapped_by(|value: u32| Ok(u8::from(value != 0)))?,
            Dtype::U64 | Dtype::I64 => self.mapped_by(|value: u64| Ok(u8::from(value != 0)))?,
            Dtype::F16 | Dtype::F32 | Dtype::F64 => {
                return Err(self.wrong_dtype("|b1, |u1 or other integers"));
            }
        };
        Ok(out.into())
    }

    /// The only integer of the array.
    ///
    /// Errors: the array does not hold exactly one integer, or it is negative.
    pub fn scalar(&self) -> Result<u64> {
        if self.header.len != 1 {
            return Err(self.error(format!("has shape {:?}, expected a single value", self.header.shape)));
        }
        Ok(self.converted::<u64>()?[0])
    }
}

/// Opens a file, and nothing else that has a name: a pipe could be waited for for ever, a device has no end.
///
/// Errors: there is no such file, or it is no file.
pub(super) fn open_regular(path: &Path) -> Result<std::fs::File> {
    // Before it is opened: to open a pipe is to wait for its writer.
    let metadata = std::fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if !metadata.is_file() {
        let kind = if metadata.is_dir() { "a folder" } else { "a pipe or a device" };
        return Err(Error::format(path, format!("is {kind}: expected a file")));
    }
    std::fs::File::open(path).map_err(|e| Error::io(path, e))
}

// Data is used directly from the file.
#[cfg(target_endian = "big")]
compile_error!(
    "data sets are little-endian files, mapped without conversion: big-endian hosts are not supported"
);
