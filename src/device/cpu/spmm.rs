//! Sparse times dense on the CPU.
//!
//! Rows go to tasks balanced by entries. A row is computed in tiles of columns whose sums stay in registers: per entry
//! and tile one load and one addition per vector. Rows of `x` that come later are prefetched, as the hardware cannot
//! guess where they are; long rows are cut into runs of entries, between which the sums wait in memory, so that every
//! tile but the first finds what it reads in a nearby cache. Sums run in the entries' order: the same result for any
//! number of threads.

mod max;

use std::ops::Range;

use self::max::{MaxGradient, MaxRow};
use super::kernels::kernels;
use super::parallel::{ByEdges, Rows, Tile, check_csr, for_parts, for_tiles, runs, write_tile};
use super::prefetch::Prefetch;
use super::vectors::{Vectors, vectorized};
use crate::device::{
    Cpu, Csr, Matrix, MatrixMut, Scalar, Spmm, Weights, Write, check_no_edge, check_product,
    check_spmm_heads, check_weights, positions_of_transpose,
};
use crate::error::{Result, check_length};

kernels! {
    impl Spmm by SpmmKernels {
        fn spmm(
            a: Csr<'_, Cpu<S>>,
            weights: Weights<'_, Cpu<S>>,
            x: Matrix<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
        fn spmm_heads(a: Csr<'_, Cpu<S>>,
            weight: &[S],
            heads: usize,
            x: Matrix<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
        fn spmm_max(
            a: Csr<'_, Cpu<S>>,
            x: Matrix<'_, Cpu<S>>,
            out: MatrixMut<'_, Cpu<S>>,
            argmax: &mut [u32],
        ) -> Result<()>;
        fn spmm_max_backward(
            a: Csr<'_, Cpu<S>>,
            argmax: &[u32],
            dout: Matrix<'_, Cpu<S>>,
            dx: MatrixMut<'_, Cpu<S>>,
            write: Write,
        ) -> Result<()>;
    }
}

fn spmm<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    weights: Weights<'_, Cpu<S>>,
    x: Matrix<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    check_product("spmm", &a, &x, &out)?;
    check_weights(&a, &weights)?;
    let dim = x.cols;
    let work = ByEdges { indptr: a.indptr, dim };
    let rows = Rows { data: out.data, cols: dim };
    let product = Product {
        indptr: a.indptr,
        indices: a.indices,
        positions: a.edge,
        edge: weights.edge,
        row: weights.row,
        column: weights.column,
        x: x.data,
        write,
        prefetch: Prefetch::for_sums(),
    };
    if weights.edge.is_none() && weights.column.is_none() {
        for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
            product.rows::<false>(range, out);
        });
    } else {
        for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
            product.rows::<true>(range, out);
        });
    }
    Ok(())
}

fn spmm_heads<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    weight: &[S],
    heads: usize,
    x: Matrix<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    check_spmm_heads(&a, &weight, heads, &x, &out)?;
    let (width, dim) = (x.cols, x.cols / heads);
    let work = ByEdges { indptr: a.indptr, dim: width };
    let rows = Rows { data: out.data, cols: width };
    let (indices, positions, prefetch) = (a.indices, a.edge, Prefetch::for_sums());
    for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
        each_row(
            range,
            out,
            #[inline(always)]
            |vectors, i, row, partial| {
                let entries = a.indptr[i] as usize..a.indptr[i + 1] as usize;
                // One head after the other: the rows that the first has read are still in cache when the others read
                // them.
                for (head, row) in row.chunks_exact_mut(dim).enumerate() {
                    let x = x.data;
                    let terms = HeadRows { indices, positions, weight, heads, head, x, width, dim, prefetch };
                    sum_row(vectors, &terms, entries.clone(), row, partial, None, write);
                }
            },
        );
    });
    Ok(())
}

fn spmm_max<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    x: Matrix<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    argmax: &mut [u32],
) -> Result<()> {
    check_csr(&a)?;
    check_product("spmm_max", &a, &x, &out)?;
    check_no_edge(&a)?;
    check_length("argmax", argmax.len(), out.data.len())?;
    let dim = x.cols;
    let work = ByEdges { indptr: a.indptr, dim };
    let rows = (Rows { data: out.data, cols: dim }, Rows { data: argmax, cols: dim });
    for_parts(
        &work,
        0..a.n_rows,
        rows,
        &|range: Range<usize>, (out, argmax): (Rows<'_, S>, Rows<'_, u32>)| {
            let prefetch = Prefetch::for_sums();
            if dim == 0 {
                return;
            }
            vectorized!(
                S,
                #[inline(always)]
                |vectors| {
                    let rows = out.data.chunks_exact_mut(dim).zip(argmax.data.chunks_exact_mut(dim));
                    for (i, (out, argmax)) in range.zip(rows) {
                        let entries = a.indptr[i] as usize..a.indptr[i + 1] as usize;
                        for run in runs(entries.clone()) {
                            let (indices, row, x) = (a.indices, entries.clone(), x.data);
                            for_tiles(
                                vectors,
                                dim,
                                &mut MaxRow { x, indices, row, run, out, argmax, prefetch },
                            );
                        }
                    }
                },
            );
        },
    );
    Ok(())
}

fn spmm_max_backward<S: Scalar>(
    _device: &Cpu<S>,
    a: Csr<'_, Cpu<S>>,
    argmax: &[u32],
    dout: Matrix<'_, Cpu<S>>,
    dx: MatrixMut<'_, Cpu<S>>,
    write: Write,
) -> Result<()> {
    check_csr(&a)?;
    check_product("spmm_max_backward", &a, &dout, &dx)?;
    check_length("argmax", argmax.len(), dout.data.len())?;
    let edge = positions_of_transpose(&a)?;
    let dim = dout.cols;
    let work = ByEdges { indptr: a.indptr, dim };
    let rows = Rows { data: dx.data, cols: dim };
    for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, dx: Rows<'_, S>| {
        if dim == 0 {
            return;
        }
        let mut partial = Vec::new();
        let (indices, prefetch) = (a.indices, Prefetch::for_sums());
        let terms = MaxGradient { indices, edge, argmax, dout: dout.data, dim, prefetch };
        vectorized!(
            S,
            #[inline(always)]
            |vectors| {
                for (j, dx) in range.zip(dx.data.chunks_exact_mut(dim)) {
                    let entries = a.indptr[j] as usize..a.indptr[j + 1] as usize;
                    sum_row(vectors, &terms, entries, dx, &mut partial, None, write);
                }
            },
        );
    });
    Ok(())
}

/// Columns `column..column + W` of row `j`. Panics if they are not inside `x`.
#[inline(always)]
pub(super) fn row_tile<T, const W: usize>(x: &[T], dim: usize, j: u32, column: usize) -> &[T; W] {
    let begin = j as usize * dim + column;
    match x.get(begin..).and_then(<[T]>::first_chunk) {
        Some(tile) => tile,
        None => column_out_of_range(j),
    }
}

#[cold]
fn column_out_of_range(j: u32) -> ! {
    panic!("column {j} of a sparse matrix is out of range");
}

/// The terms of a row's sum, one per entry.
pub(super) trait Terms<S> {
    /// Prefetches, at entry `e`, what a later entry will read.
    fn prefetch(&self, e: usize);

    /// Adds columns `column..column + W` of the term of entry `e` to `sum`.
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]);
}

/// `out (= | +=) factor · Σ_e term(e)`. For use inside of [`vectorized`].
///
/// Between runs of entries, the sums wait in `partial`: in one half of it while the other is computed.
#[inline(always)]
pub(super) fn sum_row<S: Scalar, T: Terms<S>>(
    vectors: Vectors,
    terms: &T,
    entries: Range<usize>,
    out: &mut [S],
    partial: &mut Vec<S>,
    factor: Option<S>,
    write: Write,
) {
    let (first, last, dim) = (entries.start, entries.end, out.len());
    let mut swap = false;
    for entries in runs(entries) {
        let (begun, ends) = (entries.start > first, entries.end == last);
        if !begun && !ends {
            partial.resize(2 * dim, S::zero());
        }
        let (a, b) = partial.split_at_mut(if begun || !ends { dim } else { 0 });
        let (before, after) = if swap { (b, a) } else { (a, b) };
        let before = begun.then_some(&*before);
        let mut tile = match ends {
            true => RowRun { terms, entries, before, factor, out, write },
            false => RowRun { terms, entries, before, factor: None, out: after, write: Write::Assign },
        };
        for_tiles(vectors, dim, &mut tile);
        swap = !swap;
    }
}

/// Adds the terms of `entries` to `sum`, which are columns `column..column + W`.
#[inline(always)]
fn add_terms<S: Scalar, const W: usize>(
    terms: &impl Terms<S>,
    entries: Range<usize>,
    column: usize,
    sum: &mut [S; W],
) {
    for e in entries {
        if column == 0 {
            terms.prefetch(e);
        }
        terms.add(e, column, sum);
    }
}

/// A run of a row's entries.
struct RowRun<'a, S, T> {
    terms: &'a T,
    entries: Range<usize>,
    /// The sums of the runs before.
    before: Option<&'a [S]>,
    factor: Option<S>,
    out: &'a mut [S],
    write: Write,
}

impl<S: Scalar, T: Terms<S>> Tile for RowRun<'_, S, T> {
    const MAX_WIDTH: usize = 64;
    const MAX_WIDTH_AVX512: usize = 128;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, skip: usize) {
        let before = self.before.and_then(|before| before[column..].first_chunk::<W>());
        let mut sum = before.copied().unwrap_or([S::zero(); W]);
        add_terms(self.terms, self.entries.clone(), column, &mut sum);
        if let (Some(factor), false) = (self.factor, self.entries.is_empty()) {
            sum.iter_mut().for_each(|sum| *sum *= factor);
        }
        write_tile(self.out, column, skip, &sum, self.write);
    }
}

/// What `out (= | +=) A x` reads: the arrays of a [`Csr`], its [`Weights`] and `x`.
pub(super) struct Product<'a, S> {
    pub indptr: &'a [u32],
    pub indices: &'a [u32],
    pub positions: Option<&'a [u32]>,
    pub edge: Option<&'a [S]>,
    pub row: Option<&'a [S]>,
    pub column: Option<&'a [S]>,
    pub x: &'a [S],
    pub write: Write,
    pub prefetch: Prefetch,
}

impl<S: Scalar> Product<'_, S> {
    /// Rows `range` of the product. Without `WEIGHTED`, there are no factors that differ within a row.
    pub(super) fn rows<const WEIGHTED: bool>(&self, range: Range<usize>, out: Rows<'_, S>) {
        each_row(
            range,
            out,
            #[inline(always)]
            |vectors, i, row, partial| self.row::<WEIGHTED>(vectors, i, row, partial),
        );
    }

    /// One row of the product. For use inside of [`vectorized`].
    #[inline(always)]
    pub(super) fn row<const WEIGHTED: bool>(
        &self,
        vectors: Vectors,
        i: usize,
        out: &mut [S],
        partial: &mut Vec<S>,
    ) {
        let entries = self.indptr[i] as usize..self.indptr[i + 1] as usize;
        let terms = WeightedRows::<S, WEIGHTED> { product: self, dim: out.len() };
        let factor = self.row.map(|row| row[i]);
        sum_row(vectors, &terms, entries, out, partial, factor, self.write);
    }
}

/// Calls `compute` on each of the rows `range` and memory for [`sum_row`], compiled for the machine's vectors. Mark it
/// `#[inline(always)]`.
#[inline(always)]
pub(super) fn each_row<S: Scalar>(
    range: Range<usize>,
    out: Rows<'_, S>,
    compute: impl Fn(Vectors, usize, &mut [S], &mut Vec<S>),
) {
    if out.cols == 0 {
        return;
    }
    let mut partial = Vec::new();
    vectorized!(
        S,
        #[inline(always)]
        |vectors| {
            for (i, row) in range.zip(out.data.chunks_exact_mut(out.cols)) {
                compute(vectors, i, row, &mut partial);
            }
        },
    );
}

/// The factors that differ within a row, of the entry in column `j` whose weight is at `position()`.
#[inline(always)]
pub(super) fn entry_weight<S: Scalar>(
    edge: Option<&[S]>,
    column: Option<&[S]>,
    position: impl FnOnce() -> usize,
    j: u32,
) -> S {
    let factor = column.map_or(S::one(), |factors| factors[j as usize]);
    edge.map_or(factor, |edge| factor * edge[position()])
}

/// The rows of `x`, times their weights if they have any.
struct WeightedRows<'a, S, const WEIGHTED: bool> {
    product: &'a Product<'a, S>,
    dim: usize,
}

impl<S: Scalar, const WEIGHTED: bool> Terms<S> for WeightedRows<'_, S, WEIGHTED> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        let &Product { indices, x, prefetch, .. } = self.product;
        if let Some(&j) = indices.get(e + prefetch.ahead) {
            prefetch.row(x, self.dim, j as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let &Product { indices, positions, edge, column: factors, x, .. } = self.product;
        let j = indices[e];
        let x = row_tile::<S, W>(x, self.dim, j, column);
        if WEIGHTED {
            let position = || positions.map_or(e, |positions| positions[e] as usize);
            let weight = entry_weight(edge, factors, position, j);
            for k in 0..W {
                sum[k] += weight * x[k];
            }
        } else {
            for k in 0..W {
                sum[k] += x[k];
            }
        }
    }
}

/// One head of the rows of `x`, times the entries' weights for that head.
struct HeadRows<'a, S> {
    indices: &'a [u32],
    positions: Option<&'a [u32]>,
    weight: &'a [S],
    heads: usize,
    head: usize,
    x: &'a [S],
    /// Columns of `x`, and of a head.
    width: usize,
    dim: usize,
    prefetch: Prefetch,
}

impl<S: Scalar> Terms<S> for HeadRows<'_, S> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        if self.head == 0
            && let Some(&j) = self.indices.get(e + self.prefetch.ahead)
        {
            self.prefetch.row(self.x, self.width, j as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let x = row_tile::<S, W>(self.x, self.width, self.indices[e], self.head * self.dim + column);
        let position = self.positions.map_or(e, |positions| positions[e] as usize);
        let weight = self.weight[position * self.heads + self.head];
        for k in 0..W {
            sum[k] += weight * x[k];
        }
    }
}
