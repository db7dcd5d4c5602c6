//! Writing `.npy` files, at once and piece by piece.

use std::io::{BufWriter, Seek, Write};
use std::path::{Path, PathBuf};

use super::{ALIGNMENT, Dtype, MAGIC};
use crate::error::{Error, Result};

/// Writes a `.npy` file. `shape` must be that of `data`, and `dtype` must have the size of `T`.
///
/// Errors: the shape is not that of `data`, the dtype has another size than `T`, or the file cannot be written.
pub fn write<T: bytemuck::Pod>(path: &Path, dtype: Dtype, shape: &[usize], data: &[T]) -> Result<()> {
    check_size::<T>(dtype)?;
    if shape.iter().try_fold(1usize, |len, &n| len.checked_mul(n)) != Some(data.len()) {
        return Err(Error::invalid(
            "shape",
            format!("{shape:?}"),
            format!("that of {} elements", data.len()),
        ));
    }
    let inner = || -> std::io::Result<()> {
        let mut file = BufWriter::new(std::fs::File::create(path)?);
        file.write_all(&header_bytes(dtype, shape, 0))?;
        file.write_all(bytemuck::cast_slice(data))?;
        file.into_inner().map_err(|e| e.into_error())?.sync_all()
    };
    inner().map_err(|e| Error::io(path, e))
}

/// Writes a `.npy` file piece by piece.
pub struct Writer {
    path: PathBuf,
    file: BufWriter<std::fs::File>,
    dtype: Dtype,
    cols: Option<usize>,
    header_len: usize,
    n_written: usize,
}

impl Writer {
    /// A writer for a vector, or for rows of `cols` elements.
    ///
    /// Errors: the file cannot be made or written.
    pub fn create(path: &Path, dtype: Dtype, cols: Option<usize>) -> Result<Self> {
        let header = header_bytes(dtype, &shape(usize::MAX, cols), 0);
        let create = || -> std::io::Result<_> {
            let mut file = BufWriter::new(std::fs::File::create(path)?);
            file.write_all(&header)?;
            Ok(file)
        };
        let file = create().map_err(|e| Error::io(path, e))?;
        Ok(Writer { path: path.to_owned(), file, dtype, cols, header_len: header.len(), n_written: 0 })
    }

    /// Appends elements; `T` must have the size of the dtype.
    ///
    /// Errors: `T` has another size, or the file cannot be written.
    pub fn write<T: bytemuck::Pod>(&mut self, data: &[T]) -> Result<()> {
        check_size::<T>(self.dtype)?;
        self.n_written += data.len();
        self.file.write_all(bytemuck::cast_slice(data)).map_err(|e| Error::io(&self.path, e))
    }

    /// Writes the header, now that the length is known.
    ///
    /// Errors: the file cannot be written.
    pub fn finish(self) -> Result<()> {
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

/// `Ok` if elements of type `T` can be those of a dtype.
fn check_size<T>(dtype: Dtype) -> Result<()> {
    if size_of::<T>() == dtype.bytes() {
        return Ok(());
    }
    let expected = format!("one of {} bytes per element", size_of::<T>());
    Err(Error::invalid("dtype", dtype.name(), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_refuses_elements_of_another_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::create(&folder.path().join("a.npy"), Dtype::U32, None).unwrap();
        writer.write(&[1u32]).unwrap();
        assert!(writer.write(&[1u64]).unwrap_err().to_string().contains("8 bytes per element"));
        writer.finish().unwrap();
    }
}
