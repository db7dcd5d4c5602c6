//! The terms of a row's maximum and of its gradient.

use std::ops::Range;

use super::{Terms, row_tile};
use crate::device::Scalar;
use crate::device::cpu::parallel::Tile;
use crate::device::cpu::prefetch::Prefetch;

/// `dout` where entry `e` of the transpose was the maximum, and 0 elsewhere.
pub(super) struct MaxGradient<'a, S> {
    pub indices: &'a [u32],
    pub edge: &'a [u32],
    pub argmax: &'a [u32],
    pub dout: &'a [S],
    pub dim: usize,
    pub prefetch: Prefetch,
}

impl<S: Scalar> Terms<S> for MaxGradient<'_, S> {
    #[inline(always)]
    fn prefetch(&self, e: usize) {
        if let Some(&i) = self.indices.get(e + self.prefetch.ahead) {
            self.prefetch.row(self.argmax, self.dim, i as usize);
            self.prefetch.row(self.dout, self.dim, i as usize);
        }
    }

    #[inline(always)]
    fn add<const W: usize>(&self, e: usize, column: usize, sum: &mut [S; W]) {
        let (i, e) = (self.indices[e], self.edge[e]);
        let argmax = row_tile::<u32, W>(self.argmax, self.dim, i, column);
        let dout = row_tile::<S, W>(self.dout, self.dim, i, column);
        for k in 0..W {
            sum[k] += if argmax[k] == e { dout[k] } else { S::zero() };
        }
    }
}

/// One row of the maximum and of where it is attained.
pub(super) struct MaxRow<'a, S> {
    pub x: &'a [S],
    pub indices: &'a [u32],
    /// All entries of the row.
    pub row: Range<usize>,
    /// The entries to look at now; all before them are done.
    pub run: Range<usize>,
    pub out: &'a mut [S],
    pub argmax: &'a mut [u32],
    pub prefetch: Prefetch,
}

impl<S: Scalar> Tile for MaxRow<'_, S> {
    const MAX_WIDTH: usize = 32;
    const MAX_WIDTH_AVX512: usize = 128;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, _skip: usize) {
        let dim = self.out.len();
        let (out, argmax) = (self.out[column..].first_chunk_mut(), self.argmax[column..].first_chunk_mut());
        let (Some(out), Some(argmax)) = (out, argmax) else { return };
        if self.row.is_empty() {
            (*out, *argmax) = ([S::zero(); W], [u32::MAX; W]);
            return;
        }
        let (mut max, mut position) = ([S::neg_infinity(); W], [u32::MAX; W]);
        if self.run.start > self.row.start {
            (max, position) = (*out, *argmax);
        }
        for e in self.run.clone() {
            if column == 0
                && let Some(&later) = self.indices.get(e + self.prefetch.ahead)
            {
                self.prefetch.row(self.x, dim, later as usize);
            }
            let x = row_tile::<S, W>(self.x, dim, self.indices[e], column);
            for k in 0..W {
                // Strictly greater, so that the first of equal values stays; a NaN never is.
                let greater = x[k] > max[k];
                max[k] = if greater { x[k] } else { max[k] };
                position[k] = if greater { e as u32 } else { position[k] };
            }
        }
        // A tile that overlaps its neighbour finds the same there.
        (*out, *argmax) = (max, position);
        if self.run.end == self.row.end && position.contains(&u32::MAX) {
            (column..column + W).for_each(|column| self.fill_in(column));
        }
    }
}

impl<S: Scalar> MaxRow<'_, S> {
    /// Completes a column in which nothing exceeds −∞: its first number, or else its first NaN.
    #[cold]
    fn fill_in(&mut self, column: usize) {
        if self.argmax[column] == u32::MAX {
            let value = |e: &usize| self.x[self.indices[*e] as usize * self.out.len() + column];
            let first = self.row.clone().find(|e| !value(e).is_nan()).unwrap_or(self.row.start);
            self.out[column] = value(&first);
            self.argmax[column] = first as u32;
        }
    }
}
