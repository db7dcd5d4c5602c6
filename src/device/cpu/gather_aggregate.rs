//! Rows gathered and aggregated in one pass: what a first layer needs of the features, straight from the table of all
//! vertices' rows.
//!
//! The rows of a block's sources are the largest matrix of most minibatches. A layer that is linear in them needs, for
//! each destination, its own row and a weighted sum of its sources' rows: the sources' rows are read where they are in
//! the table, and never copied.

use std::ops::Range;

use super::gather::widen_row;
use super::parallel::{ByEdges, Rows, check_csr, check_index, for_parts};
use super::prefetch::Prefetch;
use super::spmm::{Terms, each_row, entry_weight, row_tile, sum_row};
use super::vectors::Vectors;
use crate::device::{
    Cpu, Csr, FeatureElement, IndexedRows, MatrixMut, Scalar, Weights, Write, check_gather_aggregate,
};
use crate::error::Result;

/// [`Gather::gather_aggregate`](crate::device::Gather::gather_aggregate).
pub(super) fn gather_aggregate<E: FeatureElement, S: Scalar>(
    x: IndexedRows<'_, Cpu<S>, E>,
    a: Csr<'_, Cpu<S>>,
    weights: Weights<'_, Cpu<S>>,
    own: Option<&[S]>,
    out: MatrixMut<'_, Cpu<S>>,
) -> Result<()> {
    check_csr(&a)?;
    let dim = check_gather_aggregate(&x, &a, &weights, own.as_ref(), &out)?;
    check_index("index", x.index, x.n_table)?;
    let work = ByEdges { indptr: a.indptr, dim };
    let rows = Rows { data: out.data, cols: out.cols };
    let pass = Pass {
        table: x.table,
        index: x.index,
        dim,
        indptr: a.indptr,
        indices: a.indices,
        edge: weights.edge,
        row: weights.row,
        column: weights.column,
        own,
        prefetch: Prefetch::for_table_sums(),
    };
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

/// What the pass reads.
struct Pass<'a, E, S> {
    table: &'a [E],
    index: &'a [u32],
    dim: usize,
    indptr: &'a [u32],
    indices: &'a [u32],
    edge: Option<&'a [S]>,
    row: Option<&'a [S]>,
    column: Option<&'a [S]>,
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
            |vectors, t, out, partial| self.row::<WEIGHTED>(vectors, t, out, partial),
        );
    }

    #[inline(always)]
    fn row<const WEIGHTED: bool>(&self, vectors: Vectors, t: usize, out: &mut [S], partial: &mut Vec<S>) {
        let &Pass { table, index, .. } = self;
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
        let entries = self.indptr[t] as usize..self.indptr[t + 1] as usize;
        let factor = self.row.map(|row| row[t]);
        sum_row(vectors, &TableRows::<E, S, WEIGHTED>(self), entries, sums, partial, factor, write);
    }
}

/// How many destinations ahead their own rows are prefetched: fewer than entries, as each destination has several.
const OWN_ROWS_AHEAD: usize = 16;

/// The sources' rows in the table, widened, and times their weights if they have any.
struct TableRows<'p, 'a, E, S, const WEIGHTED: bool>(&'p Pass<'a, E, S>);

impl<E: FeatureElement, S: Scalar, const WEIGHTED: bool> Terms<S> for TableRows<'_, '_, E, S, WEIGHTED> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        let &Pass { table, index, dim, indices, prefetch, .. } = self.0;
        if let Some(&j) = indices.get(e + prefetch.ahead)
            && let Some(&i) = index.get(j as usize)
        {
            prefetch.row(table, dim, i as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let &Pass { table, index, dim, indices, edge, column: factors, .. } = self.0;
        let j = indices[e];
        let mut row = [S::zero(); W];
        widen_row(row_tile::<E, W>(table, dim, index[j as usize], column), &mut row);
        if WEIGHTED {
            let weight = entry_weight(edge, factors, || e, j);
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
