//! Rows of several tables: how processing elements that share memory read each other's rows, without packing them.

use std::ops::Range;

use super::parallel::{ByEdges, Rows, add_assign, for_parts, for_rows};
use super::prefetch::Prefetch;
use super::vectors::vectorized;
use crate::device::Scalar;

/// A row of one of several tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteRow {
    /// Which table.
    pub table: u32,
    /// Which of its rows.
    pub row: u32,
}

/// Not generic, so that they are compiled in this crate, as the CPU kernels are.
pub trait RemoteRows: Sized {
    /// `out[i, :] = tables[rows[i].table][rows[i].row, :]`, each `[_, dim]`.
    ///
    /// Panics if a row is out of range.
    fn gather_remote(tables: &[&[Self]], rows: &[RemoteRow], dim: usize, out: &mut [Self]);

    /// `out[i, :] = Σ_k tables[rows[k].table][rows[k].row, :]` over `indptr[i] ≤ k < indptr[i + 1]`, in that order.
    ///
    /// Panics if a row is out of range.
    fn sum_remote(tables: &[&[Self]], indptr: &[u32], rows: &[RemoteRow], dim: usize, out: &mut [Self]);
}

macro_rules! remote_rows {
    ($($scalar:ty),*) => {$(
        impl RemoteRows for $scalar {
            fn gather_remote(tables: &[&[Self]], rows: &[RemoteRow], dim: usize, out: &mut [Self]) {
                gather_remote(tables, rows, dim, out);
            }

            fn sum_remote(
                tables: &[&[Self]],
                indptr: &[u32],
                rows: &[RemoteRow],
                dim: usize,
                out: &mut [Self],
            ) {
                sum_remote(tables, indptr, rows, dim, out);
            }
        }
    )*};
}

remote_rows!(f32, f64);

fn gather_remote<S: Scalar>(tables: &[&[S]], rows: &[RemoteRow], dim: usize, out: &mut [S]) {
    assert_eq!(out.len(), rows.len() * dim);
    for_rows(out, dim, |range: Range<usize>, out| {
        let (prefetch, rows) = (Prefetch::for_copies(), &rows[range]);
        for (k, (at, out)) in rows.iter().zip(out.chunks_exact_mut(dim)).enumerate() {
            if let Some(later) = rows.get(k + prefetch.ahead) {
                prefetch.row(tables[later.table as usize], dim, later.row as usize);
            }
            out.copy_from_slice(&tables[at.table as usize][at.row as usize * dim..][..dim]);
        }
    });
}

fn sum_remote<S: Scalar>(tables: &[&[S]], indptr: &[u32], rows: &[RemoteRow], dim: usize, out: &mut [S]) {
    let n = indptr.len() - 1;
    assert_eq!(out.len(), n * dim);
    if dim == 0 {
        return;
    }
    let parts = Rows { data: out, cols: dim };
    for_parts(&ByEdges { indptr, dim }, 0..n, parts, &|range: Range<usize>, out: Rows<'_, S>| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let prefetch = Prefetch::for_sums();
                for (i, out) in range.zip(out.data.chunks_exact_mut(dim)) {
                    out.fill(S::zero());
                    for k in indptr[i] as usize..indptr[i + 1] as usize {
                        if let Some(later) = rows.get(k + prefetch.ahead) {
                            prefetch.row(tables[later.table as usize], dim, later.row as usize);
                        }
                        let at = rows[k];
                        add_assign(out, &tables[at.table as usize][at.row as usize * dim..][..dim]);
                    }
                }
            },
        );
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_of_several_tables_are_copied_and_added_up(
            dim in 0usize..40,
            n_rows in prop::collection::vec(1usize..9, 1..5),
            picks in prop::collection::vec(prop::collection::vec((any::<u32>(), any::<u32>()), 0..6), 0..30),
        ) {
            let value = |table: usize, row: usize, column: usize| (table * 1000 + row * 50 + column) as f32;
            let data: Vec<Vec<f32>> = n_rows
                .iter()
                .enumerate()
                .map(|(t, &n)| (0..n * dim).map(|at| value(t, at / dim, at % dim)).collect())
                .collect();
            let tables: Vec<&[f32]> = data.iter().map(Vec::as_slice).collect();
            let (mut indptr, mut rows) = (vec![0], Vec::new());
            for picks in &picks {
                rows.extend(picks.iter().map(|&(table, row)| {
                    let table = table as usize % n_rows.len();
                    RemoteRow { table: table as u32, row: row % n_rows[table] as u32 }
                }));
                indptr.push(rows.len() as u32);
            }
            let at = |row: RemoteRow, column| value(row.table as usize, row.row as usize, column);
            let mut copied = vec![f32::NAN; rows.len() * dim];
            f32::gather_remote(&tables, &rows, dim, &mut copied);
            let expected: Vec<f32> = rows.iter().flat_map(|&r| (0..dim).map(move |c| at(r, c))).collect();
            prop_assert_eq!(copied, expected);
            // Sums of small integers are exact.
            let mut sums = vec![f32::NAN; picks.len() * dim];
            f32::sum_remote(&tables, &indptr, &rows, dim, &mut sums);
            let sum = |i: usize, c| rows[indptr[i] as usize..indptr[i + 1] as usize].iter().map(|&r| at(r, c)).sum();
            let expected: Vec<f32> = (0..picks.len()).flat_map(|i| (0..dim).map(move |c| sum(i, c))).collect();
            prop_assert_eq!(sums, expected);
        }
    }
}
