//! Sorting more records than memory holds: sorted runs in files, then a merge.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use cohop::{Error, Result};
use rayon::prelude::*;

/// Files that are merged at a time.
const FAN_IN: usize = 128;

/// Collects records, and gives them back in ascending order.
pub(crate) struct Sorter<T> {
    folder: PathBuf,
    memory: usize,
    buffer: Vec<T>,
    runs: Vec<(PathBuf, u64)>,
    n_made: usize,
}

impl<T: Pod + Ord + Send> Sorter<T> {
    /// A sorter with about `memory` bytes, whose files lie in `folder`.
    pub(crate) fn new(folder: &Path, memory: u64) -> Self {
        let memory = usize::try_from(memory).unwrap_or(usize::MAX);
        Sorter { folder: folder.to_owned(), memory, buffer: Vec::new(), runs: Vec::new(), n_made: 0 }
    }

    pub(crate) fn push(&mut self, record: T) -> Result<()> {
        if self.buffer.len() == self.buffer.capacity() {
            // Growing has the old and the new buffer in memory for a moment.
            let most = (self.memory / 2 / size_of::<T>()).max(4);
            if self.buffer.len() >= most {
                self.spill()?;
            } else {
                let more = self.buffer.len().max(1 << 12).min(most - self.buffer.len());
                if self.buffer.try_reserve_exact(more).is_err() {
                    let expected = "no more than the machine has";
                    return Err(Error::invalid("--memory", self.memory, expected));
                }
            }
        }
        self.buffer.push(record);
        Ok(())
    }

    fn new_file(&mut self) -> Result<(PathBuf, BufWriter<File>)> {
        let path = self.folder.join(format!("run{}", self.n_made));
        self.n_made += 1;
        let file = File::create(&path).map_err(|e| Error::io(&path, e))?;
        Ok((path, BufWriter::with_capacity(1 << 16, file)))
    }

    fn spill(&mut self) -> Result<()> {
        self.buffer.par_sort_unstable();
        let (path, mut file) = self.new_file()?;
        let written = file.write_all(bytemuck::cast_slice(&self.buffer)).and_then(|()| file.flush());
        written.map_err(|e| Error::io(&path, e))?;
        self.runs.push((path, self.buffer.len() as u64));
        self.buffer.clear();
        Ok(())
    }

    /// Calls `take` with every record, in ascending order.
    pub(crate) fn finish(mut self, take: &mut dyn FnMut(T) -> Result<()>) -> Result<()> {
        if self.runs.is_empty() {
            self.buffer.par_sort_unstable();
            return self.buffer.iter().try_for_each(|&record| take(record));
        }
        if !self.buffer.is_empty() {
            self.spill()?;
        }
        self.buffer = Vec::new();
        while self.runs.len() > FAN_IN {
            let group: Vec<_> = self.runs.drain(..FAN_IN).collect();
            let (path, mut file) = self.new_file()?;
            let write = &mut |r: T| file.write_all(bytemuck::bytes_of(&r)).map_err(|e| Error::io(&path, e));
            merge(&group, self.memory, write)?;
            file.flush().map_err(|e| Error::io(&path, e))?;
            self.runs.push((path, group.iter().map(|(_, n)| n).sum()));
        }
        merge(&self.runs, self.memory, take)
    }
}

/// Merges sorted files, and removes them.
fn merge<T: Pod + Ord>(
    runs: &[(PathBuf, u64)],
    memory: usize,
    take: &mut dyn FnMut(T) -> Result<()>,
) -> Result<()> {
    let bytes = (memory / 2 / runs.len().max(1)).clamp(1 << 9, 1 << 20);
    let mut files = Vec::with_capacity(runs.len());
    let mut heap = BinaryHeap::with_capacity(runs.len());
    for (i, (path, n)) in runs.iter().enumerate() {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        files.push((BufReader::with_capacity(bytes, file), *n));
        if let Some(record) = next(&mut files[i], path)? {
            heap.push(Reverse((record, i)));
        }
    }
    while let Some(mut top) = heap.peek_mut() {
        let Reverse((record, i)) = *top;
        take(record)?;
        match next(&mut files[i], &runs[i].0)? {
            Some(record) => *top = Reverse((record, i)),
            None => {
                std::collections::binary_heap::PeekMut::pop(top);
            }
        }
    }
    runs.iter().try_for_each(|(path, _)| std::fs::remove_file(path).map_err(|e| Error::io(path, e)))
}

fn next<T: Pod>((file, left): &mut (BufReader<File>, u64), path: &Path) -> Result<Option<T>> {
    if *left == 0 {
        return Ok(None);
    }
    *left -= 1;
    let mut record = T::zeroed();
    file.read_exact(bytemuck::bytes_of_mut(&mut record)).map_err(|e| Error::io(path, e))?;
    Ok(Some(record))
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
