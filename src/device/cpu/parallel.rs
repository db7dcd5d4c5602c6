//! How kernels are cut into tasks and tiles, and how their arguments are checked.
//!
//! Two rules make results the same for every number of threads: an output element is computed by one task, in one
//! fixed order; and where partial sums are added up ([`sum_over_rows`]), the parts depend on the shape alone.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use super::vectors::{Vectors, vectorized};
use crate::device::{Cpu, Csr, Scalar, Write, check_csr_lengths};
use crate::error::{Error, Result, check_length};

/// Work on at most this many scalars is not cut further: less (about 10 µs) would not be worth waking a thread for.
pub(super) const TASK_ELEMENTS: usize = 1 << 15;

/// Scalars in a block of rows that is summed up on its own.
const SUM_BLOCK_ELEMENTS: usize = 1 << 16;

/// Entries are taken in runs of this many, or of up to twice as many at the end, so that the rows that one tile of
/// columns has read are still in a nearby cache when the next tile reads them.
const RUN: usize = 32;

/// `range` cut into runs; an empty one is a run too.
#[inline(always)]
pub(super) fn runs(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let mut first = Some(range.start);
    std::iter::from_fn(move || {
        let begin = first?;
        let is_last = range.end - begin <= 2 * RUN;
        let end = if is_last { range.end } else { begin + RUN };
        first = (!is_last).then_some(end);
        Some(begin..end)
    })
}

/// Output that can be cut in two between items (elements or rows), so that tasks own what they write.
pub(super) trait Split: Send + Sized {
    /// The first `at` items, and the others.
    fn split(self, at: usize) -> (Self, Self);
}

impl<T: Send> Split for &mut [T] {
    fn split(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

impl<A: Split, B: Split> Split for (A, B) {
    fn split(self, at: usize) -> (Self, Self) {
        let (a, b) = (self.0.split(at), self.1.split(at));
        ((a.0, b.0), (a.1, b.1))
    }
}

/// Rows of a matrix as output: items are rows.
pub(super) struct Rows<'a, T> {
    pub data: &'a mut [T],
    pub cols: usize,
}

impl<T: Send> Split for Rows<'_, T> {
    fn split(self, at: usize) -> (Self, Self) {
        let (head, tail) = self.data.split_at_mut(at * self.cols);
        (Rows { data: head, cols: self.cols }, Rows { data: tail, cols: self.cols })
    }
}

/// How much work a range of items is, and where to cut it.
pub(super) trait Work {
    /// Scalars that the items touch.
    fn elements(&self, range: &Range<usize>) -> usize;
    /// An item that has about half of the work before it; strictly inside of `range`, which has two items or more.
    fn middle(&self, range: &Range<usize>) -> usize;
}

/// Every item touches this many scalars.
pub(super) struct Even(pub usize);

impl Work for Even {
    fn elements(&self, range: &Range<usize>) -> usize {
        range.len().saturating_mul(self.0)
    }
    fn middle(&self, range: &Range<usize>) -> usize {
        range.start + range.len() / 2
    }
}

/// Rows of a sparse matrix, balanced by their entries: real graphs have hubs.
pub(super) struct ByEdges<'a> {
    pub indptr: &'a [u32],
    /// Scalars per entry, and per row.
    pub dim: usize,
}

impl ByEdges<'_> {
    /// Entries before row `i`, plus `i`: a row costs about as much as an entry.
    fn before(&self, i: usize) -> usize {
        self.indptr[i] as usize + i
    }
}

impl Work for ByEdges<'_> {
    fn elements(&self, range: &Range<usize>) -> usize {
        (self.before(range.end) - self.before(range.start)).saturating_mul(self.dim)
    }

    fn middle(&self, range: &Range<usize>) -> usize {
        let target = self.before(range.start).midpoint(self.before(range.end));
        let (mut low, mut high) = (range.start + 1, range.end - 1);
        while low < high {
            let middle = low.midpoint(high);
            if self.before(middle) < target {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Parts per thread at most: enough that a thread which is done early finds another part.
const PARTS_PER_THREAD: usize = 32;

/// Calls `body` on parts of `range` and of `out`, in parallel where the work is worth it.
pub(super) fn for_parts<O: Split>(
    work: &dyn Work,
    range: Range<usize>,
    out: O,
    body: &(impl Fn(Range<usize>, O) + Sync),
) {
    let Some(parts) = parts(work, &range) else { return body(range, out) };
    for_each_part(parts, out, &|_, range, out| body(range, out));
}

/// Calls `body` on blocks of `block` of the `n` items of `out`, the last of which may be shorter, in parallel: with the
/// number of the block and its items. The first error by number is returned, after all have run.
pub(super) fn for_blocks<O: Split>(
    n: usize,
    block: usize,
    out: O,
    body: &(impl Fn(usize, Range<usize>, O) -> Result<()> + Sync),
) -> Result<()> {
    let n_blocks = n.div_ceil(block.max(1));
    if n_blocks == 1 {
        return body(0, 0..n, out);
    }
    let ranges = (0..n_blocks).map(|i| i * block..((i + 1) * block).min(n)).collect();
    let failure = Mutex::new(None);
    for_each_part(ranges, out, &|i, range, out| {
        if let Err(error) = body(i, range, out) {
            let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
            if failure.as_ref().is_none_or(|&(first, _)| i < first) {
                *failure = Some((i, error));
            }
        }
    });
    match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// `range` in parts that are each worth a task, in order; None if it is not worth two.
fn parts(work: &dyn Work, range: &Range<usize>) -> Option<Vec<Range<usize>>> {
    fn cut(work: &dyn Work, range: Range<usize>, elements: usize, parts: &mut Vec<Range<usize>>) {
        if range.len() < 2 || work.elements(&range) <= elements {
            return parts.push(range);
        }
        let middle = work.middle(&range);
        cut(work, range.start..middle, elements, parts);
        cut(work, middle..range.end, elements, parts);
    }
    let n_threads = rayon::current_num_threads();
    let elements = work.elements(range);
    if range.len() < 2 || elements <= TASK_ELEMENTS || n_threads == 1 {
        return None;
    }
    let mut parts = Vec::new();
    cut(work, range.clone(), TASK_ELEMENTS.max(elements / (PARTS_PER_THREAD * n_threads)), &mut parts);
    Some(parts)
}

/// Calls `body` with each of `ranges`, which adjoin, and its part of `out`, in parallel.
fn for_each_part<O: Split>(
    ranges: Vec<Range<usize>>,
    out: O,
    body: &(impl Fn(usize, Range<usize>, O) + Sync),
) {
    let mut rest = Some(out);
    let last = ranges.len().saturating_sub(1);
    let mut parts = Vec::with_capacity(ranges.len());
    for (i, range) in ranges.into_iter().enumerate() {
        let Some(out) = rest.take() else { break };
        let part = if i == last {
            out
        } else {
            let (part, others) = out.split(range.len());
            rest = Some(others);
            part
        };
        parts.push(Mutex::new(Some((range, part))));
    }
    in_parallel(parts.len(), &|i| {
        let part = parts[i].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((range, out)) = part {
            body(i, range, out);
        }
    });
}

/// Calls `task` with each of `0..n`, in parallel.
///
/// The one place where kernels meet the thread pool: it takes any task, so that the pool's code is compiled once and
/// not for each kernel (it was a fifth of all code).
pub(super) fn in_parallel(n: usize, task: &(dyn Fn(usize) + Sync)) {
    (0..n).into_par_iter().with_max_len(1).for_each(task);
}

/// Calls `body` on parts of the elements of `out`: for kernels that are a map.
pub(super) fn for_elements<T: Send>(out: &mut [T], body: impl Fn(Range<usize>, &mut [T]) + Sync) {
    for_parts(&Even(1), 0..out.len(), out, &body);
}

/// Calls `body` on parts of the rows of `out`.
pub(super) fn for_rows<T: Send>(out: &mut [T], cols: usize, body: impl Fn(Range<usize>, &mut [T]) + Sync) {
    let Some(rows) = out.len().checked_div(cols) else { return };
    for_parts(&Even(cols), 0..rows, Rows { data: out, cols }, &|range, out: Rows<'_, T>| {
        body(range, out.data);
    });
}

/// `out (= | +=)` the sum over rows of what `body` adds to a zeroed `[out.len]` for a range of rows.
///
/// Rows are summed in blocks, and the blocks' sums in order: blocks depend on the shape alone, and a long column loses
/// less to rounding than in one running sum.
pub(super) fn sum_over_rows<S: Scalar>(
    rows: usize,
    cols: usize,
    out: &mut [S],
    write: Write,
    body: impl Fn(Range<usize>, &mut [S]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    let block = (SUM_BLOCK_ELEMENTS / cols.max(1)).max(1);
    let mut partial = vec![S::zero(); rows.div_ceil(block).max(1) * out.len()];
    let parts = Rows { data: &mut partial[..], cols: out.len() };
    let n_blocks = rows.div_ceil(block);
    for_parts(&Even(block * cols), 0..n_blocks, parts, &|blocks: Range<usize>, parts: Rows<'_, S>| {
        for (i, part) in blocks.zip(parts.data.chunks_mut(parts.cols)) {
            body(i * block..((i + 1) * block).min(rows), part);
        }
    });
    let (total, others) = partial.split_at_mut(out.len());
    for part in others.chunks(out.len()) {
        add_assign(total, part);
    }
    write_all(out, total.iter().copied(), write);
}

/// `out[i] += x[i]`
#[inline(always)]
pub(super) fn add_assign<S: Scalar>(out: &mut [S], x: &[S]) {
    for (out, &x) in out.iter_mut().zip(x) {
        *out += x;
    }
}

/// `out[i] (= | +=) values[i]`
#[inline(always)]
pub(super) fn write_all<S: Scalar>(out: &mut [S], values: impl Iterator<Item = S>, write: Write) {
    match write {
        Write::Assign => {
            for (out, value) in out.iter_mut().zip(values) {
                *out = value;
            }
        }
        Write::Add => {
            for (out, value) in out.iter_mut().zip(values) {
                *out += value;
            }
        }
    }
}

/// `out[column + k] (= | +=) tile[k]` for `skip <= k < W`.
///
/// The tile is indexed by constants only, or it would not stay in registers.
#[inline(always)]
pub(super) fn write_tile<S: Scalar, const W: usize>(
    out: &mut [S],
    column: usize,
    skip: usize,
    tile: &[S; W],
    write: Write,
) {
    let Some(out) = out[column..].first_chunk_mut::<W>() else { return };
    match write {
        // Columns that are already done are written again, with the same values.
        Write::Assign => *out = *tile,
        // A choice per column, not a copy of the first ones, which would keep the tile in memory.
        Write::Add => {
            for k in 0..W {
                out[k] = if k < skip { out[k] } else { out[k] + tile[k] };
            }
        }
    }
}

/// The sum over chunks of `0..len`, in order; `part` sums one chunk of at most `chunk` elements, given its range.
pub(super) fn sum_chunks(len: usize, chunk: usize, part: impl Fn(Range<usize>) -> f64 + Sync) -> f64 {
    let range = |i: usize| i * chunk..((i + 1) * chunk).min(len);
    let n_chunks = len.div_ceil(chunk);
    if len <= TASK_ELEMENTS || rayon::current_num_threads() == 1 {
        return (0..n_chunks).map(|i| part(range(i))).sum();
    }
    let mut parts = vec![0.0; n_chunks];
    for_parts(&Even(chunk), 0..n_chunks, &mut parts[..], &|chunks: Range<usize>, parts: &mut [f64]| {
        for (i, sum) in chunks.zip(parts) {
            *sum = part(range(i));
        }
    });
    parts.into_iter().sum()
}

/// `Ok` if the arrays of `a` fit together. An index out of range panics when it is used.
pub(super) fn check_csr<S: Scalar>(a: &Csr<'_, Cpu<S>>) -> Result<()> {
    check_csr_lengths(a)?;
    check_length("indices", a.indices.len(), a.indptr[a.n_rows] as usize)
}

/// `Ok` if every entry of `index` is below `limit`.
pub(super) fn check_index(array: &'static str, index: &[u32], limit: usize) -> Result<()> {
    // The maximum takes one vectorised pass; entries are searched one by one only if it is too large.
    let largest = vectorized!(
        #[inline(always)]
        |_| index.iter().fold(0, |largest: u32, &i| largest.max(i)),
    );
    if (largest as usize) < limit || index.is_empty() {
        return Ok(());
    }
    let position = index.iter().position(|&i| i as usize >= limit).unwrap_or_default();
    Err(Error::IndexOutOfRange {
        array,
        position: position as u64,
        value: i64::from(index[position]),
        limit: limit as u64,
    })
}

/// What computes one tile of columns with its sums in registers.
pub(super) trait Tile {
    /// The widest tile: wider ones would not stay in registers.
    const MAX_WIDTH: usize;

    /// The widest tile for the registers of AVX-512, which are twice as many of twice the width.
    const MAX_WIDTH_AVX512: usize = Self::MAX_WIDTH;

    /// Computes columns `column..column + W`; the first `skip` of them are already done: they
    /// may be written again with the same values, but not added to.
    fn run<const W: usize>(&mut self, column: usize, skip: usize);
}

/// Covers `dim` columns with tiles. A ragged end is covered by a tile that overlaps its neighbour: one wide tile costs
/// less than several narrow ones, and each column's sum is the same whichever tile computes it.
#[inline(always)]
pub(super) fn for_tiles<T: Tile>(vectors: Vectors, dim: usize, tile: &mut T) {
    let mut column = 0;
    macro_rules! cover {
        ($($width:literal)*) => {$(
            if $width <= T::MAX_WIDTH || ($width <= T::MAX_WIDTH_AVX512 && vectors == Vectors::Avx512) {
                // One call for the tiles of a width, whether they overlap or not: each call is compiled anew.
                while dim > column && dim >= $width && dim - column > $width / 2 {
                    let skip = usize::saturating_sub($width, dim - column);
                    tile.run::<$width>(column - skip, skip);
                    column += $width - skip;
                }
                if column == dim {
                    return;
                }
            }
        )*};
    }
    cover!(128 64 32 16 8 4 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cover(Vec<u32>);
    impl Tile for Cover {
        const MAX_WIDTH: usize = 64;

        fn run<const W: usize>(&mut self, column: usize, skip: usize) {
            self.0[column + skip..column + W].iter_mut().for_each(|count| *count += 1);
        }
    }

    #[test]
    fn tiles_cover_each_column_once() {
        for dim in 0..400 {
            let mut cover = Cover(vec![0; dim]);
            for_tiles(Vectors::Portable, dim, &mut cover);
            assert_eq!(cover.0, vec![1; dim], "dim {dim}");
        }
    }

    #[test]
    fn runs_cover_a_range_once_and_are_short() {
        for n in 0..300 {
            let runs: Vec<_> = runs(7..7 + n).collect();
            assert_eq!(
                runs.iter().flat_map(Clone::clone).collect::<Vec<_>>(),
                (7..7 + n).collect::<Vec<_>>()
            );
            assert!(!runs.is_empty() && runs.iter().all(|run| run.len() <= 2 * RUN));
            assert!(n == 0 || runs.iter().all(|run| !run.is_empty()));
        }
    }

    #[test]
    fn parts_cover_the_rows_once_and_hubs_stand_alone() {
        let mut indptr = vec![0u32];
        for i in 0..5000u32 {
            indptr.push(indptr[i as usize] + if i == 1234 { 100_000 } else { i % 3 });
        }
        let work = ByEdges { indptr: &indptr, dim: 16 };
        let mut seen = vec![0u32; 5000];
        for_parts(&work, 0..5000, &mut seen[..], &|range: Range<usize>, out: &mut [u32]| {
            assert_eq!(range.len(), out.len());
            assert!(
                range.len() == 1
                    || work.elements(&range) <= TASK_ELEMENTS
                    || rayon::current_num_threads() == 1
            );
            out.iter_mut().for_each(|count| *count += 1);
        });
        assert_eq!(seen, vec![1; 5000]);
    }
}
