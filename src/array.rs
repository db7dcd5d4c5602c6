//! Read-only arrays that are in memory or mapped from a file.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::huge_pages;

/// An immutable array: owned, or a part of a memory-mapped file. Cloning shares it.
#[derive(Clone)]
pub struct Array<T> {
    source: Source<T>,
}

#[derive(Clone)]
enum Source<T> {
    Owned(Arc<Vec<T>>),
    Mapped { map: Arc<Mmap>, offset: usize, len: usize },
}

impl<T: bytemuck::Pod> Array<T> {
    /// Maps `len` elements that start `offset` bytes into a file.
    ///
    /// The file must not be changed while it is mapped. Errors: the file cannot be opened, is shorter than
    /// `offset + len * size_of::<T>()` bytes, or `offset` is not a multiple of `T`'s alignment.
    pub fn map(path: &Path, offset: usize, len: usize) -> Result<Self> {
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
        // SAFETY: the mapping is private to this array and only read. That nobody truncates or rewrites the file
        // meanwhile is the documented condition on the caller, as for every mapped data set.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        let end = len.checked_mul(size_of::<T>()).and_then(|bytes| bytes.checked_add(offset));
        match end {
            Some(end) if end <= map.len() => {}
            _ => {
                return Err(Error::format(
                    path,
                    format!(
                        "has {} bytes, too few for {len} elements from byte {offset}: is it truncated?",
                        map.len()
                    ),
                ));
            }
        }
        if !offset.is_multiple_of(align_of::<T>()) {
            return Err(Error::format(path, format!("data begins at byte {offset}, which is not aligned")));
        }
        Ok(Array { source: Source::Mapped { map: Arc::new(map), offset, len } })
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        match &self.source {
            Source::Owned(vec) => vec,
            Source::Mapped { map, offset, len } => {
                bytemuck::cast_slice(&map[*offset..*offset + *len * size_of::<T>()])
            }
        }
    }

    /// Says that elements will be read here and there: a miss then reads its own page from the file and no others, of
    /// which memory would fill up in vain.
    pub(crate) fn expect_random_reads(&self) {
        #[cfg(unix)]
        if let Source::Mapped { map, .. } = &self.source {
            // A refusal costs speed alone.
            let _ = map.advise(memmap2::Advice::Random);
        }
    }

    /// Whether the elements are read from a file on demand.
    pub fn is_mapped(&self) -> bool {
        matches!(self.source, Source::Mapped { .. })
    }
}

impl<T> From<Vec<T>> for Array<T> {
    fn from(vec: Vec<T>) -> Self {
        huge_pages::collapse(&vec);
        Array { source: Source::Owned(Arc::new(vec)) }
    }
}

impl<T: bytemuck::Pod> Deref for Array<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T> std::fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.source {
            Source::Owned(vec) => write!(f, "Array(in memory, {} elements)", vec.len()),
            Source::Mapped { len, .. } => write!(f, "Array(mapped, {len} elements)"),
        }
    }
}

/// Bytes of arrays, by where they are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Bytes {
    pub(crate) memory: u64,
    pub(crate) mapped: u64,
}

impl Bytes {
    pub(crate) fn add<T: bytemuck::Pod>(&mut self, array: &Array<T>) {
        let bytes = size_of_val(array.as_slice()) as u64;
        if array.is_mapped() { self.mapped += bytes } else { self.memory += bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_a_part_of_a_file_and_refuses_a_truncated_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("numbers");
        let numbers: Vec<u32> = (0..10).collect();
        std::fs::write(&path, bytemuck::cast_slice(&numbers)).unwrap();
        assert_eq!(&Array::<u32>::map(&path, 8, 5).unwrap()[..], &[2, 3, 4, 5, 6]);
        let error = Array::<u32>::map(&path, 8, 9).unwrap_err().to_string();
        assert!(error.contains("40 bytes") && error.contains("truncated"), "{error}");
        let error = Array::<u32>::map(&path, 2, 1).unwrap_err().to_string();
        assert!(error.contains("not aligned"), "{error}");
    }
}
