//! Read-only arrays: in our own memory or somebody else's, or mapped from a file.

use std::any::Any;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{Error, Result};
use crate::huge_pages;

/// An immutable array: owned, somebody else's, or a part of a memory-mapped file. Cloning shares it.
///
/// A [`Graph`](crate::graph::Graph) and features use their arrays' memory without a copy:
///
/// ```
/// # fn main() -> cohop::Result<()> {
/// use std::sync::Arc;
///
/// use cohop::prelude::*;
///
/// let sources: Arc<[u32]> = Arc::new([1, 0]); // shared with other code
/// let graph = Graph::from_csr(vec![0, 1, 2], sources.clone())?;
/// assert_eq!(graph.indices().as_ptr(), sources.as_ptr());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Array<T> {
    source: Source<T>,
}

#[derive(Clone)]
enum Source<T> {
    Owned(Arc<Vec<T>>),
    Foreign(Foreign<T>),
    Mapped { map: Arc<Mmap>, path: Arc<Path>, offset: usize, len: usize },
}

/// Memory of `len` elements that stays valid and unchanged as long as `owner` lives.
struct Foreign<T> {
    pointer: *const T,
    len: usize,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the elements are only read, as through a `&[T]`, and the owner may be dropped by any thread.
unsafe impl<T: Sync> Send for Foreign<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Foreign<T> {}

impl<T> Clone for Foreign<T> {
    fn clone(&self) -> Self {
        Foreign { pointer: self.pointer, len: self.len, owner: self.owner.clone() }
    }
}

impl<T> Array<T> {
    /// An array over memory that `owner` keeps alive, for example an array of another language. Nothing is copied;
    /// `owner` is dropped with the last clone.
    ///
    /// # Safety
    /// `pointer` is aligned and valid for reads of `len` initialised elements, at most `isize::MAX` bytes in total, and
    /// these are neither freed nor written to until `owner` is dropped, which any thread may do. If `len` is 0,
    /// `pointer` may be anything.
    pub unsafe fn from_raw(pointer: *const T, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let pointer = if len == 0 { std::ptr::NonNull::dangling().as_ptr() } else { pointer };
        Array { source: Source::Foreign(Foreign { pointer, len, owner }) }
    }

    /// An array over the elements of `owner`: a shared buffer, an arena, or your own type. Nothing is copied; `owner`
    /// is dropped with the last clone.
    pub fn from_owner<O: AsRef<[T]> + Send + Sync + 'static>(owner: O) -> Self {
        let owner = Arc::new(owner);
        let elements: &[T] = (*owner).as_ref();
        let (pointer, len) = (elements.as_ptr(), elements.len());
        // SAFETY: the slice is borrowed from the owner, which the array keeps in place and gives to nobody: the borrow
        // could last until the owner is dropped.
        unsafe { Array::from_raw(pointer, len, owner) }
    }
}

impl<T: bytemuck::Pod> Array<T> {
    /// Maps `len` elements that start `offset` bytes into a file.
    ///
    /// The file must not be changed while it is mapped; a program can have a message at least
    /// ([`explain_truncated_files`](crate::signals::explain_truncated_files)). Errors: the file cannot be opened, is
    /// shorter than `offset + len * size_of::<T>()` bytes, or `offset` is not a multiple of `T`'s alignment.
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
        Ok(Array { source: Source::Mapped { map: Arc::new(map), path: path.into(), offset, len } })
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        match &self.source {
            Source::Owned(vec) => vec,
            // SAFETY: the caller of `from_raw` vouched for the memory as long as the owner lives, which `self` holds.
            Source::Foreign(memory) => unsafe { std::slice::from_raw_parts(memory.pointer, memory.len) },
            Source::Mapped { map, offset, len, .. } => {
                bytemuck::cast_slice(&map[*offset..*offset + *len * size_of::<T>()])
            }
        }
    }

    /// Tells the system that elements will be read at random: a page fault then reads only its own page from the file,
    /// and memory does not fill up with pages that nobody needs.
    pub(crate) fn expect_random_reads(&self) {
        #[cfg(unix)]
        if let Source::Mapped { map, .. } = &self.source {
            // If the system refuses, only speed suffers.
            let _ = map.advise(memmap2::Advice::Random);
        }
    }

    /// An error about the elements, with the file if they are mapped: it may come long after the file was opened.
    pub(crate) fn with_file(&self, error: Error) -> Error {
        match &self.source {
            Source::Mapped { path, .. } => Error::format(&**path, error),
            Source::Owned(_) | Source::Foreign(_) => error,
        }
    }

    /// Whether the elements are mapped from a file, and so read on demand.
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

impl<T> From<Arc<Vec<T>>> for Array<T> {
    fn from(vec: Arc<Vec<T>>) -> Self {
        Array { source: Source::Owned(vec) }
    }
}

impl<T: Send + Sync + 'static> From<Arc<[T]>> for Array<T> {
    fn from(elements: Arc<[T]>) -> Self {
        Array::from_owner(elements)
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
            Source::Foreign(memory) => write!(f, "Array(somebody else's memory, {} elements)", memory.len),
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often it is dropped.
    struct Owner {
        values: Vec<f32>,
        drops: Arc<AtomicUsize>,
    }

    impl Drop for Owner {
        fn drop(&mut self) {
            self.values.fill(f32::NAN);
            self.drops.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl AsRef<[f32]> for Owner {
        fn as_ref(&self) -> &[f32] {
            &self.values
        }
    }

    #[test]
    fn foreign_memory_stays_where_it_is_and_its_owner_is_dropped_once_with_the_last_clone() {
        let drops = Arc::new(AtomicUsize::new(0));
        let owner = || Owner { values: vec![1.0, 2.0, 3.0, 4.0], drops: drops.clone() };
        let first = owner();
        let pointer = first.values.as_ptr();
        let array = Array::from_owner(first);
        assert_eq!((array.as_ptr(), &array[..]), (pointer, &[1.0, 2.0, 3.0, 4.0][..]));
        let clone = array.clone();
        drop(array);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        assert_eq!(clone[..], [1.0, 2.0, 3.0, 4.0]);
        std::thread::spawn(move || drop(clone)).join().unwrap();
        assert_eq!(drops.load(Ordering::Relaxed), 1);

        let second = Arc::new(owner());
        // SAFETY: the last two elements of a vector that its owner, given away here, does not change before its drop.
        let array = unsafe { Array::from_raw(second.values[2..].as_ptr(), 2, second.clone()) };
        let pointer = second.values[2..].as_ptr();
        drop(second);
        assert_eq!((array.as_ptr(), &array[..]), (pointer, &[3.0, 4.0][..]));
        assert_eq!(drops.load(Ordering::Relaxed), 1);
        drop(array);
        assert_eq!(drops.load(Ordering::Relaxed), 2);

        // SAFETY: no elements.
        let empty = unsafe { Array::<u32>::from_raw(std::ptr::null(), 0, Arc::new(())) };
        assert!(empty.is_empty() && !empty.is_mapped());
    }

    #[test]
    fn shared_slices_and_vectors_are_shared() {
        let slice: Arc<[u64]> = Arc::new([1, 2, 3]);
        assert_eq!(Array::from(slice.clone()).as_ptr(), slice.as_ptr());
        let vec = Arc::new(vec![1u16, 2]);
        assert_eq!(Array::from(vec.clone()).as_ptr(), vec.as_ptr());
        assert_eq!(Arc::strong_count(&slice) + Arc::strong_count(&vec), 2, "dropped with the arrays");
    }

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
