//! Rows gathered and aggregated in one pass: what a first layer needs of the features, straight from the table of all
//! vertices' rows.
//!
//! The rows of a block's sources are the largest matrix of most minibatches. A layer that is linear in them needs, for each
//! destination, its own row and a weighted sum of its sources' rows: the sources' are read where they lie, and never
//! written side by side.

use std::ops::Range;

use super::gather::widen_row;
use super::parallel::{ByEdges, Rows, check_csr, check_index, for_parts};
use super::prefetch::Prefetch;
use super::spmm::{Terms, each_row, entry_weight, row_tile, sum_row};
use crate::device::{
    Cpu, Csr, FeatureElement, MatrixMut, Scalar, Weights, Write, check_matrix_length, check_matrix_mut,
    check_no_edge, check_weights,
};
use crate::error::{Error, Result, check_length};

/// Rows of a table by index: row `i` is `table[index[i], :]`.
#[derive(Clone, Copy)]
pub(crate) struct IndexedRows<'a, E> {
    /// `[n_table, dim]`
    pub table: &'a [E],
    /// Number of rows of the table.
    pub n_table: usize,
    /// `[n]`
    pub index: &'a [u32],
}

impl<S: Scalar> Cpu<S> {
    /// For each row `t` of `a`, whose columns are the rows `x` (of which the first `a.n_rows` are the destinations'):
    ///
    /// * with `own`: `out[t, :] = own[t] · x[t, :] + Σ_e weight(e) · x[indices[e], :]`, `out: [a.n_rows, dim]`;
    /// * without: `out[t, :] = [x[t, :] | Σ_e weight(e) · x[indices[e], :]]`, `out: [a.n_rows, 2 · dim]`.
    ///
    /// The same numbers, bit for bit, as [`gather`](crate::device::Gather::gather) and
    /// [`spmm`](crate::device::Spmm::spmm) give. `own: [a.n_rows]`; `a.edge` must be absent. An index at or above
    /// `n_table` is [`IndexOutOfRange`](Error::IndexOutOfRange). Reads `(n_rows + n_edge) · dim` elements of the table.
    pub(crate) fn gather_aggregate<'a, E: FeatureElement>(
        &self,
        x: IndexedRows<'a, E>,
        a: Csr<'a, Self>,
        weights: Weights<'a, Self>,
        own: Option<&'a [S]>,
        out: MatrixMut<'_, Self>,
    ) -> Result<()> {
        check_csr(&a)?;
        check_no_edge(&a)?;
        check_weights(&a, &weights)?;
        check_matrix_mut(&out)?;
        check_length("rows of out", out.rows, a.n_rows)?;
        check_length("index", x.index.len(), a.n_cols)?;
        check_length("own", own.map_or(a.n_rows, <[S]>::len), a.n_rows)?;
        if a.n_rows > a.n_cols {
            return Err(Error::invalid("n_rows", a.n_rows, format!("at most the {} columns", a.n_cols)));
        }
        let parts = if own.is_some() { 1 } else { 2 };
        let dim = out.cols / parts;
        check_length("columns of out", out.cols, parts * dim)?;
        check_matrix_length(x.table.len(), x.n_table, dim)?;
        check_index("index", x.index, x.n_table)?;
        let work = ByEdges { indptr: a.indptr, dim };
        let rows = Rows { data: out.data, cols: out.cols };
        let pass = Pass { x, dim, a, weights, own, prefetch: Prefetch::for_table_sums() };
        if weights.edge.is_none() && weights.column.is_none() {
            for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
                pass.rows::<false>(range, out);
            });
        } else {
            for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
                pass.rows::<true>(range, out);
            });
        }
        Ok(())
    }
}

/// What the pass reads.
struct Pass<'a, E, S: Scalar> {
    x: IndexedRows<'a, E>,
    dim: usize,
    a: Csr<'a, Cpu<S>>,
    weights: Weights<'a, Cpu<S>>,
    own: Option<&'a [S]>,
    prefetch: Prefetch,
}

impl<E: FeatureElement, S: Scalar> Pass<'_, E, S> {
    /// Rows `range`. Without `WEIGHTED`, there are no factors that differ within a row.
    fn rows<const WEIGHTED: bool>(&self, range: Range<usize>, out: Rows<'_, S>) {
        each_row(
            range,
            out,
            #[inline(always)]
            |t, out, partial| self.row::<WEIGHTED>(t, out, partial),
        );
    }

    #[inline(always)]
    fn row<const WEIGHTED: bool>(&self, t: usize, out: &mut [S], partial: &mut Vec<S>) {
        let IndexedRows { table, index, .. } = self.x;
        if let Some(&later) = index.get(t + OWN_ROWS_AHEAD) {
            self.prefetch.row(table, self.dim, later as usize);
        }
        let own_row = &table[index[t] as usize * self.dim..][..self.dim];
        let (head, tail) = out.split_at_mut(self.dim);
        widen_row(own_row, head);
        let (sums, write) = match self.own {
            None => (tail, Write::Assign),
            Some(own) => {
                head.iter_mut().for_each(|value| *value *= own[t]);
                (head, Write::Add)
            }
        };
        let entries = self.a.indptr[t] as usize..self.a.indptr[t + 1] as usize;
        let factor = self.weights.row.map(|row| row[t]);
        sum_row(&TableRows::<E, S, WEIGHTED>(self), entries, sums, partial, factor, write);
    }
}

/// A destination has some entries, which are asked for by themselves.
const OWN_ROWS_AHEAD: usize = 16;

/// The sources' rows in the table, widened, and times their weights if they have any.
struct TableRows<'p, 'a, E, S: Scalar, const WEIGHTED: bool>(&'p Pass<'a, E, S>);

impl<E: FeatureElement, S: Scalar, const WEIGHTED: bool> Terms<S> for TableRows<'_, '_, E, S, WEIGHTED> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        let Pass { x, dim, a, prefetch, .. } = self.0;
        if let Some(&j) = a.indices.get(e + prefetch.ahead)
            && let Some(&i) = x.index.get(j as usize)
        {
            prefetch.row(x.table, *dim, i as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let Pass { x, dim, a, weights, .. } = self.0;
        let j = a.indices[e];
        let mut row = [S::zero(); W];
        widen_row(row_tile::<E, W>(x.table, *dim, x.index[j as usize], column), &mut row);
        if WEIGHTED {
            let weight = entry_weight(weights.edge, weights.column, || e, j);
            for k in 0..W {
                sum[k] += weight * row[k];
            }
        } else {
            for k in 0..W {
                sum[k] += row[k];
            }
        }
    }
}

#[cfg(test)]
mod tests;
