//! Sorting more records than memory holds: sorted runs in files, then a merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use cohop::{Error, Result};
use rayon::prelude::*;

/// Files that are merged at a time.
const FAN_IN: usize = 128;
/// Records that are reserved at first.
const AT_FIRST: usize = 1 << 12;
/// Names of run files are never used twice in a process, so that several sorters can share a folder.
static NEXT_NAME: AtomicU64 = AtomicU64::new(0);

/// Collects records, and gives them back in ascending order.
pub(crate) struct Sorter<T> {
    folder: PathBuf,
    memory: usize,
    buffer: Vec<T>,
    runs: Vec<Run>,
}

/// A file of sorted records. It is removed with this.
struct Run {
    path: PathBuf,
    n: u64,
}

impl Drop for Run {
    fn drop(&mut self) {
        // What cannot be removed goes with the folder.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl<T: Pod + Ord + Send> Sorter<T> {
    /// A sorter with about `memory` bytes, whose files lie in `folder`.
    pub(crate) fn new(folder: &Path, memory: u64) -> Self {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        Sorter { folder: folder.to_owned(), memory, buffer: Vec::new(), runs: Vec::new() }
    }

    pub(crate) fn push(&mut self, record: T) -> Result<()> {
        if self.buffer.len() == self.buffer.capacity() {
            self.make_room()?;
        }
        self.buffer.push(record);
        Ok(())
    }

    fn make_room(&mut self) -> Result<()> {
        let most = (self.memory / size_of::<T>()).max(4);
        if self.buffer.len() >= most {
            return self.spill();
        }
        let more = self.buffer.len().max(AT_FIRST).min(most - self.buffer.len());
        self.buffer
            .try_reserve_exact(more)
            .map_err(|_| Error::invalid("--memory", self.memory, "no more bytes than the machine has"))
    }

    fn new_file(&mut self) -> Result<(Run, BufWriter<File>)> {
        let name = NEXT_NAME.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("run{name}"));
        let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
        Ok((Run { path, n: 0 }, BufWriter::with_capacity(1 << 16, file)))
    }

    /// Moves all records to files.
    fn spill(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        self.buffer.par_sort_unstable();
        let (mut run, mut file) = self.new_file()?;
        let written = file.write_all(bytemuck::cast_slice(&self.buffer)).and_then(|()| file.flush());
        written.map_err(|e| Error::io(&run.path, e))?;
        run.n = self.buffer.len() as u64;
        self.runs.push(run);
        self.buffer.clear();
        Ok(())
    }

    /// The records in ascending order.
    pub(crate) fn sorted(mut self) -> Result<Sorted<T>> {
        if self.runs.is_empty() {
            self.buffer.par_sort_unstable();
            return Ok(Sorted::Memory(self.buffer.into_iter()));
        }
        self.spill()?;
        self.buffer = Vec::new();
        while self.runs.len() > FAN_IN {
            let group: Vec<Run> = self.runs.drain(..FAN_IN).collect();
            let (mut run, mut file) = self.new_file()?;
            let mut merge = Merge::<T>::new(group, self.memory)?;
            while let Some(record) = merge.next()? {
                file.write_all(bytemuck::bytes_of(&record)).map_err(|e| Error::io(&run.path, e))?;
                run.n += 1;
            }
            file.flush().map_err(|e| Error::io(&run.path, e))?;
            self.runs.push(run);
        }
        Ok(Sorted::Files(Merge::new(std::mem::take(&mut self.runs), self.memory)?))
    }

    /// Calls `take` with every record, in ascending order.
    pub(crate) fn finish(self, take: &mut dyn FnMut(T) -> Result<()>) -> Result<()> {
        let mut sorted = self.sorted()?;
        while let Some(record) = sorted.next()? {
            take(record)?;
        }
        Ok(())
    }
}

/// Records in ascending order.
pub(crate) enum Sorted<T> {
    /// There were few.
    Memory(std::vec::IntoIter<T>),
    Files(Merge<T>),
}

impl<T: Pod + Ord> Sorted<T> {
    /// The next record; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<T>> {
        match self {
            Sorted::Memory(records) => Ok(records.next()),
            Sorted::Files(merge) => merge.next(),
        }
    }
}

/// A merge of sorted files.
pub(crate) struct Merge<T> {
    files: Vec<Input>,
    /// The next record of each file that has one, and the file's place.
    heap: BinaryHeap<Reverse<(T, usize)>>,
}

struct Input {
    reader: BufReader<File>,
    left: u64,
    run: Run,
}

impl<T: Pod + Ord> Merge<T> {
    fn new(runs: Vec<Run>, memory: usize) -> Result<Self> {
        let bytes = (memory / 2 / runs.len().max(1)).clamp(1 << 9, 1 << 20);
        let mut merge = Merge { files: Vec::with_capacity(runs.len()), heap: BinaryHeap::new() };
        for (i, run) in runs.into_iter().enumerate() {
            let file = File::open(&run.path).map_err(|e| Error::io(&run.path, e))?;
            let mut input = Input { reader: BufReader::with_capacity(bytes, file), left: run.n, run };
            if let Some(record) = input.next()? {
                merge.heap.push(Reverse((record, i)));
            }
            merge.files.push(input);
        }
        Ok(merge)
    }

    fn next(&mut self) -> Result<Option<T>> {
        let Some(mut top) = self.heap.peek_mut() else { return Ok(None) };
        let Reverse((record, i)) = *top;
        match self.files[i].next()? {
            Some(next) => *top = Reverse((next, i)),
            None => {
                PeekMut::pop(top);
            }
        }
        Ok(Some(record))
    }
}

impl Input {
    fn next<T: Pod>(&mut self) -> Result<Option<T>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut record = T::zeroed();
        self.reader
            .read_exact(bytemuck::bytes_of_mut(&mut record))
            .map_err(|e| Error::io(&self.run.path, e))?;
        Ok(Some(record))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn little_memory_gives_the_order_of_a_sort_in_memory(
            mut records in prop::collection::vec((0..9u64, 0..9u64), 0..1500),
            memory in 0..3000u64,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut sorter = Sorter::<[u64; 2]>::new(folder.path(), memory);
            records.iter().for_each(|&(a, b)| sorter.push([a, b]).unwrap());
            let mut sorted = Vec::new();
            sorter.finish(&mut |[a, b]| { sorted.push((a, b)); Ok(()) }).unwrap();
            records.sort_unstable();
            prop_assert_eq!(sorted, records);
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }
}
