//! Cached feature rows, managed by a directory.

use std::fmt;

use rayon::prelude::*;

use super::counts::Counts;
use super::index::NONE;
use super::policy::Policy;
use super::sharded::ShardedDirectory;
use crate::data::Dense;
use crate::device::cpu::{RowCopy, copy_rows, widen_row};
use crate::device::{Cpu, Element, FeatureElement, MatrixMut, Scalar, check_matrix_mut, check_same_shape};
use crate::error::{Error, Result, check_length, try_zeroed};

/// A cache of rows of a feature matrix, which may be mapped from a file: `[n_slots, dim]`, in the stored type.
///
/// It keeps a clone of the matrix (the memory is shared), so that its rows cannot come from another one.
pub struct FeatureCache<E: FeatureElement> {
    table: Dense<E>,
    directory: ShardedDirectory,
    /// `[n_slots, dim]`
    rows: Vec<E>,
    /// Rows read from the table at a time, before they are copied to the output and the slots: few enough to stay in
    /// the processor's caches.
    rows_per_chunk: usize,
    /// What a gather has to do. Kept to reuse its memory.
    plan: GatherPlan,
    chunk: Chunk<E>,
}

/// Bytes that each thread reads between two waits for the others: they fit its second-level cache, with what it writes.
const CHUNK_BYTES: usize = 1 << 18;

impl<E: FeatureElement> FeatureCache<E> {
    /// An empty cache of `capacity` rows of `table`, or of all its rows if there are fewer.
    ///
    /// Errors: those of [`Directory::new`](super::Directory::new), or no memory for `n_slots * dim` elements.
    pub fn new(policy: Policy, capacity: usize, table: Dense<E>) -> Result<Self> {
        let directory = ShardedDirectory::new(policy, capacity, table.n_rows())?;
        FeatureCache::over(directory, table)
    }

    fn over(directory: ShardedDirectory, table: Dense<E>) -> Result<Self> {
        let (n_slots, dim) = (directory.n_slots(), table.dim());
        let asked = format_args!("{n_slots} rows of {dim} columns");
        let rows = try_zeroed("the feature cache", n_slots.saturating_mul(dim), asked)?;
        let row_bytes = (dim * size_of::<E>()).max(1);
        Ok(FeatureCache {
            table,
            directory,
            rows,
            rows_per_chunk: (CHUNK_BYTES * rayon::current_num_threads() / row_bytes).max(1),
            plan: GatherPlan::default(),
            chunk: Chunk::default(),
        })
    }

    #[cfg(test)]
    pub(super) fn with_shards(
        policy: Policy,
        capacity: usize,
        table: Dense<E>,
        n_shards: usize,
    ) -> Result<Self> {
        let directory = ShardedDirectory::with_shards(policy, capacity, table.n_rows(), n_shards)?;
        FeatureCache::over(directory, table)
    }

    #[cfg(test)]
    pub(super) fn with_rows_per_chunk(mut self, n_rows: usize) -> Self {
        self.rows_per_chunk = n_rows;
        self
    }

    /// `out[i, :] = table[ids[i], :]`, widened: exactly what [`Gather`](crate::device::Gather) gives, whatever is
    /// cached.
    ///
    /// `out: [ids.len(), dim]`; ids may repeat, and may be more than the cache has slots. Cached rows are copied from
    /// the cache; the others are read from the table once each, in ascending order of id, and stored if they are still
    /// in the cache at the end. Returns the counts of this call: the same as if the ids were accessed one by one.
    /// Looks ids up, and copies, on rayon's current thread pool; nothing depends on its number of threads. O(ids.len()
    /// * (dim + log ids.len())).
    ///
    /// Errors: an id is not a row of the table, `out` has the wrong shape, or there are more than 2^32 - 1 ids; nothing
    /// has changed then.
    pub fn gather<S: Scalar>(&mut self, ids: &[u32], out: MatrixMut<'_, Cpu<S>>) -> Result<Counts> {
        check_matrix_mut(&out)?;
        let dim = self.table.dim();
        check_same_shape("gather", "out", out.shape(), "required", [ids.len(), dim])?;
        check_count(ids)?;
        self.directory.check(ids)?;
        Ok(self.gather_into(ids, out.data, widen_row::<E, S>))
    }

    /// [`gather`](FeatureCache::gather) in the stored type; `out: [ids.len(), dim]`.
    ///
    /// Errors: the same.
    pub(crate) fn gather_stored(&mut self, ids: &[u32], out: &mut [E]) -> Result<Counts> {
        check_length("out", out.len(), ids.len() * self.table.dim())?;
        check_count(ids)?;
        self.directory.check(ids)?;
        Ok(self.gather_into(ids, out, copy_row))
    }

    /// Ids, of which there are at most 2^32 - 1, are rows of the table.
    fn gather_into<T: Element>(
        &mut self,
        ids: &[u32],
        out: &mut [T],
        convert: impl Fn(&[E], &mut [T]) + Sync + Copy,
    ) -> Counts {
        let counts = self.plan(ids);
        // Before anything is stored: a slot that is hit may be evicted later in the same call.
        copy_rows(&self.rows, &self.plan.hits, out, self.table.dim(), convert);
        self.read(out, convert);
        self.directory.settle();
        counts
    }

    /// Accesses all of `ids` in the directory, and plans what to copy.
    fn plan(&mut self, ids: &[u32]) -> Counts {
        let FeatureCache { directory, plan, .. } = self;
        plan.clear();
        let counts = directory.access_all(ids, &mut plan.slots);
        for ((&id, &from), to) in ids.iter().zip(&plan.slots).zip(0u32..) {
            if from == NONE {
                plan.reads.push(pair(id, to));
            } else {
                plan.hits.push(RowCopy { to, from });
            }
        }
        // A slot that was filled several times keeps the last row.
        directory.for_filled(|id, slot| plan.stores.push(pair(id, slot)));
        plan.reads.par_sort_unstable();
        plan.stores.par_sort_unstable();
        counts
    }

    /// Reads the planned rows, to `out` and to the slots.
    fn read<T: Element>(&mut self, out: &mut [T], convert: impl Fn(&[E], &mut [T]) + Sync + Copy) {
        let FeatureCache { table, rows, rows_per_chunk, plan, chunk, .. } = self;
        let dim = table.dim();
        if dim == 0 {
            return;
        }
        let (mut reads, mut stores) = (&plan.reads[..], &plan.stores[..]);
        while !reads.is_empty() {
            (reads, stores) = chunk.take(reads, stores, *rows_per_chunk);
            chunk.rows.resize(*rows_per_chunk * dim, E::zeroed());
            copy_rows(table.data(), &chunk.reads, &mut chunk.rows, dim, copy_row);
            copy_rows(&chunk.rows, &chunk.outputs, out, dim, convert);
            copy_rows(&chunk.rows, &chunk.stores, rows, dim, copy_row);
        }
    }

    /// The matrix whose rows are cached.
    pub fn table(&self) -> &Dense<E> {
        &self.table
    }

    /// What is cached, and the counts of all calls.
    pub fn directory(&self) -> &ShardedDirectory {
        &self.directory
    }

    /// Sets the counts to 0; cached rows stay.
    pub fn reset_counts(&mut self) {
        self.directory.reset_counts();
    }

    /// Empties the cache; the counts stay.
    pub fn clear(&mut self) {
        self.directory.clear();
    }
}

#[inline(always)]
fn copy_row<E: FeatureElement>(row: &[E], out: &mut [E]) {
    out.copy_from_slice(row);
}

/// `Ok` if positions among `ids` fit into 32 bits.
fn check_count(ids: &[u32]) -> Result<()> {
    match u32::try_from(ids.len()) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::TooLarge { what: "ids", count: ids.len() as u64, limit: u32::MAX.into() }),
    }
}

/// `id` and a position in one word, so that words sort by id, then by position.
fn pair(id: u32, place: u32) -> u64 {
    u64::from(id) << 32 | u64::from(place)
}

fn unpair(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// What a gather has to do.
#[derive(Default)]
struct GatherPlan {
    /// Copies from slots to rows of the output.
    hits: Vec<RowCopy>,
    /// Pairs: an id to read, and its row of the output.
    reads: Vec<u64>,
    /// `[ids]`: the slot that holds the id's row, or [`NONE`].
    slots: Vec<u32>,
    /// Pairs: a filled slot's id, which is also in `reads`, and the slot.
    stores: Vec<u64>,
}

impl GatherPlan {
    fn clear(&mut self) {
        self.hits.clear();
        self.reads.clear();
        self.stores.clear();
    }
}

/// Rows that are read at a time.
struct Chunk<E> {
    /// `[rows_per_chunk, dim]`
    rows: Vec<E>,
    /// Copies from the table to `rows`.
    reads: Vec<RowCopy>,
    /// Copies from `rows` to the output.
    outputs: Vec<RowCopy>,
    /// Copies from `rows` to slots.
    stores: Vec<RowCopy>,
}

impl<E> Default for Chunk<E> {
    fn default() -> Self {
        Chunk { rows: Vec::new(), reads: Vec::new(), outputs: Vec::new(), stores: Vec::new() }
    }
}

impl<E> Chunk<E> {
    /// Takes the first `n_rows` ids of `reads`, and their `stores`; returns what is left of both.
    fn take<'a>(&mut self, reads: &'a [u64], stores: &'a [u64], n_rows: usize) -> (&'a [u64], &'a [u64]) {
        self.reads.clear();
        self.outputs.clear();
        self.stores.clear();
        let (mut n_reads, mut n_stores) = (0, 0);
        while let Some(&read) = reads.get(n_reads) {
            let (id, to) = unpair(read);
            if self.reads.last().is_none_or(|last| last.from != id) {
                if self.reads.len() == n_rows {
                    break;
                }
                let place = self.reads.len() as u32;
                self.reads.push(RowCopy { to: place, from: id });
                // Each id is in at most one slot.
                if let Some((_, slot)) = stores.get(n_stores).map(|&s| unpair(s)).filter(|s| s.0 == id) {
                    self.stores.push(RowCopy { to: slot, from: place });
                    n_stores += 1;
                }
            }
            self.outputs.push(RowCopy { to, from: self.reads.len() as u32 - 1 });
            n_reads += 1;
        }
        self.outputs.sort_unstable();
        self.stores.sort_unstable();
        (&reads[n_reads..], &stores[n_stores..])
    }
}

impl<E: FeatureElement> fmt::Debug for FeatureCache<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeatureCache({:?}, dim {})", self.directory, self.table.dim())
    }
}
