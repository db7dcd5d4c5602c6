//! Sparse times dense on the CPU.
//!
//! Rows go to tasks balanced by entries. A row is computed in tiles of columns whose sums stay in registers: per entry
//! and tile one load and one addition a vector, and one store a row. Rows of `x` that come later are prefetched, as
//! the hardware cannot guess where they are. Sums run in the entries' order: the same result for any number of threads.

use std::ops::Range;

use super::parallel::{
    ByEdges, Rows, Tile, check_csr, for_elements, for_parts, for_tiles, prefetch, vectorized, write_tile,
};
use crate::device::{
    Cpu, Csr, Matrix, MatrixMut, Scalar, Spmm, Weights, Write, check_no_edge, check_product, check_transpose,
    check_weights, positions_of_transpose,
};
use crate::error::{Result, check_length};

impl<S: Scalar> Spmm for Cpu<S> {
    fn spmm(
        &self,
        a: Csr<'_, Self>,
        weights: Weights<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
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

    fn spmm_max(
        &self,
        a: Csr<'_, Self>,
        x: Matrix<'_, Self>,
        out: MatrixMut<'_, Self>,
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
                if dim == 0 {
                    return;
                }
                vectorized(
                    #[inline(always)]
                    || {
                        let rows = out.data.chunks_exact_mut(dim).zip(argmax.data.chunks_exact_mut(dim));
                        for (i, (out, argmax)) in range.zip(rows) {
                            let first = a.indptr[i];
                            let indices = &a.indices[first as usize..a.indptr[i + 1] as usize];
                            for_tiles(dim, &mut MaxRow { x: x.data, indices, first, out, argmax });
                        }
                    },
                );
            },
        );
        Ok(())
    }

    fn spmm_max_backward(
        &self,
        a: Csr<'_, Self>,
        argmax: &[u32],
        dout: Matrix<'_, Self>,
        dx: MatrixMut<'_, Self>,
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
            vectorized(
                #[inline(always)]
                || {
                    for (j, dx) in range.zip(dx.data.chunks_exact_mut(dim)) {
                        let entries = a.indptr[j] as usize..a.indptr[j + 1] as usize;
                        let (indices, edge) = (&a.indices[entries.clone()], &edge[entries]);
                        for_tiles(
                            dim,
                            &mut MaxBackwardRow { indices, edge, argmax, dout: dout.data, write, dx },
                        );
                    }
                },
            );
        });
        Ok(())
    }

    fn transpose(
        &self,
        a: Csr<'_, Self>,
        indptr: &mut [u32],
        indices: &mut [u32],
        edge: &mut [u32],
    ) -> Result<()> {
        check_csr(&a)?;
        check_transpose(&a, &indptr, &indices, &edge)?;
        // A counting sort by column. `indptr[j + 1]` first counts column j, then is where its next entry goes, and
        // ends as where its entries end.
        indptr.fill(0);
        let (_, next) = indptr.split_at_mut(1);
        for &j in a.indices {
            next[j as usize] += 1;
        }
        let mut begin = 0;
        for next in next.iter_mut() {
            (*next, begin) = (begin, begin + *next);
        }
        for i in 0..a.n_rows {
            let entries = a.indptr[i]..a.indptr[i + 1];
            for (e, &j) in entries.clone().zip(&a.indices[entries.start as usize..entries.end as usize]) {
                let position = next[j as usize] as usize;
                next[j as usize] += 1;
                indices[position] = i as u32;
                edge[position] = e;
            }
        }
        Ok(())
    }

    fn inverse_degree(&self, indptr: &[u32], offset: f64, out: &mut [S]) -> Result<()> {
        check_length("indptr", indptr.len(), out.len() + 1)?;
        for_elements(out, |range, out| {
            vectorized(
                #[inline(always)]
                || {
                    let (begins, ends) = (&indptr[range.clone()], &indptr[range.start + 1..]);
                    for (out, (&begin, &end)) in out.iter_mut().zip(begins.iter().zip(ends)) {
                        let degree = f64::from(end.saturating_sub(begin)) + offset;
                        *out = S::from_f64(if degree == 0.0 { 0.0 } else { 1.0 / degree });
                    }
                },
            );
        });
        Ok(())
    }
}

/// Columns `column..column + W` of row `j`. Panics if they are not inside `x`.
#[inline(always)]
fn row_tile<T, const W: usize>(x: &[T], dim: usize, j: u32, column: usize) -> &[T; W] {
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

/// How many entries ahead a row of `x` is prefetched, into the rows of `out` that come next too.
const PREFETCH_ENTRIES: usize = 8;

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
}

impl<S: Scalar> Product<'_, S> {
    /// Rows `range` of the product. Without `WEIGHTED`, there are no factors that differ within a row.
    pub(super) fn rows<const WEIGHTED: bool>(&self, range: Range<usize>, out: Rows<'_, S>) {
        if out.cols == 0 {
            return;
        }
        vectorized(
            #[inline(always)]
            || {
                for (i, row) in range.zip(out.data.chunks_exact_mut(out.cols)) {
                    let entries = self.indptr[i] as usize..self.indptr[i + 1] as usize;
                    let factor = self.row.map(|row| row[i]);
                    for_tiles(
                        out.cols,
                        &mut SumRow::<S, WEIGHTED> { product: self, entries, factor, out: row },
                    );
                }
            },
        );
    }

    /// One row of the product, without a factor of the row. For use inside of [`vectorized`].
    #[inline(always)]
    pub(super) fn row(&self, i: usize, out: &mut [S]) {
        let entries = self.indptr[i] as usize..self.indptr[i + 1] as usize;
        for_tiles(out.len(), &mut SumRow::<S, true> { product: self, entries, factor: None, out });
    }

    /// The factors of entry `e` in column `j` that differ within a row.
    #[inline(always)]
    fn weight(&self, e: usize, j: u32) -> S {
        let factor = self.column.map_or(S::one(), |factors| factors[j as usize]);
        match self.edge {
            Some(edge) => factor * edge[self.positions.map_or(e, |positions| positions[e] as usize)],
            None => factor,
        }
    }
}

/// One row of `out (= | +=) A x`.
struct SumRow<'a, S, const WEIGHTED: bool> {
    product: &'a Product<'a, S>,
    entries: Range<usize>,
    factor: Option<S>,
    out: &'a mut [S],
}

impl<S: Scalar, const WEIGHTED: bool> Tile for SumRow<'_, S, WEIGHTED> {
    const MAX_WIDTH: usize = 64;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, skip: usize) {
        let (dim, product) = (self.out.len(), self.product);
        let mut sum = [S::zero(); W];
        for (e, &j) in self.entries.clone().zip(&product.indices[self.entries.clone()]) {
            if let Some(&later) = product.indices.get(e + PREFETCH_ENTRIES) {
                let begin = later as usize * dim + column;
                if let Some(tile) = product.x.get(begin..begin + W) {
                    prefetch(tile);
                }
            }
            let x = row_tile::<S, W>(product.x, dim, j, column);
            if WEIGHTED {
                let weight = product.weight(e, j);
                for k in 0..W {
                    sum[k] += weight * x[k];
                }
            } else {
                for k in 0..W {
                    sum[k] += x[k];
                }
            }
        }
        if let (Some(factor), false) = (self.factor, self.entries.is_empty()) {
            sum.iter_mut().for_each(|sum| *sum *= factor);
        }
        write_tile(self.out, column, skip, &sum, product.write);
    }
}

/// One row of the maximum and of where it is attained; `first` is the position of the row's first entry.
struct MaxRow<'a, S> {
    x: &'a [S],
    indices: &'a [u32],
    first: u32,
    out: &'a mut [S],
    argmax: &'a mut [u32],
}

impl<S: Scalar> Tile for MaxRow<'_, S> {
    const MAX_WIDTH: usize = 16;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, _skip: usize) {
        let dim = self.out.len();
        if self.indices.is_empty() {
            self.out[column..column + W].fill(S::zero());
            self.argmax[column..column + W].fill(u32::MAX);
            return;
        }
        let (mut max, mut argmax) = ([S::neg_infinity(); W], [u32::MAX; W]);
        for (e, &j) in (self.first..).zip(self.indices) {
            let x = row_tile::<S, W>(self.x, dim, j, column);
            for k in 0..W {
                // Strictly greater, so that the first of equals stays; no NaN is.
                let greater = x[k] > max[k];
                max[k] = if greater { x[k] } else { max[k] };
                argmax[k] = if greater { e } else { argmax[k] };
            }
        }
        // A tile that overlaps its neighbour writes the same there.
        self.out[column..column + W].copy_from_slice(&max);
        self.argmax[column..column + W].copy_from_slice(&argmax);
        if self.argmax[column..column + W].contains(&u32::MAX) {
            (column..column + W).for_each(|column| self.fill_in(column));
        }
    }
}

impl<S: Scalar> MaxRow<'_, S> {
    /// Completes a column in which nothing exceeds −∞: its first number, or else its first NaN.
    #[cold]
    fn fill_in(&mut self, column: usize) {
        if self.argmax[column] == u32::MAX {
            let value = |j: u32| self.x[j as usize * self.out.len() + column];
            let first = self.indices.iter().position(|&j| !value(j).is_nan()).unwrap_or(0);
            self.argmax[column] = self.first + first as u32;
            self.out[column] = value(self.indices[first]);
        }
    }
}

/// One row of the gradient of the maximum: `indices` and `edge` are those of the row of the transpose.
struct MaxBackwardRow<'a, S> {
    indices: &'a [u32],
    edge: &'a [u32],
    argmax: &'a [u32],
    dout: &'a [S],
    write: Write,
    dx: &'a mut [S],
}

impl<S: Scalar> Tile for MaxBackwardRow<'_, S> {
    const MAX_WIDTH: usize = 16;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, skip: usize) {
        let dim = self.dx.len();
        let mut sum = [S::zero(); W];
        for (&i, &e) in self.indices.iter().zip(self.edge) {
            let argmax = row_tile::<u32, W>(self.argmax, dim, i, column);
            let dout = row_tile::<S, W>(self.dout, dim, i, column);
            for k in 0..W {
                sum[k] += if argmax[k] == e { dout[k] } else { S::zero() };
            }
        }
        write_tile(self.dx, column, skip, &sum, self.write);
    }
}
