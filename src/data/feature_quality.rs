//! What may be odd about features: columns that say nothing, rows of zeros, numbers that are none.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;

use super::features::{Dense, Features, SparseFeatures};
use crate::device::FeatureElement;
use crate::error::{Result, try_collect};

/// Counts of some rows, or all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Quality {
    /// How many rows were read.
    pub(super) rows: u64,
    /// Columns with the same number in all of these rows; 0 if that is one row or none.
    pub(super) constant_columns: u64,
    /// Rows of zeros.
    pub(super) zero_rows: u64,
    /// Numbers that are NaN or infinite.
    pub(super) not_finite: u64,
}

/// The most elements that are read.
const MOST_ELEMENTS: usize = 1 << 28;

impl Features {
    /// Reads all rows, or evenly spaced ones with 2^28 stored elements or so if there are more, in parallel.
    ///
    /// Errors: there is no memory for a mark per column, or mapped sparse features have been changed.
    pub(super) fn quality(&self) -> Result<Quality> {
        self.quality_of(MOST_ELEMENTS)
    }

    fn quality_of(&self, most: usize) -> Result<Quality> {
        match self {
            Features::None => Ok(Quality::default()),
            Features::F32(x) => dense(x, most),
            Features::F16(x) => dense(x, most),
            Features::Bf16(x) => dense(x, most),
            Features::Sparse(x) => sparse(x, most),
        }
    }
}

/// Every how many rows one is read.
fn stride(elements: usize, most: usize) -> usize {
    elements.div_ceil(most).max(1)
}

/// A mark for each column that it has different numbers.
fn marks(dim: usize) -> Result<Vec<AtomicBool>> {
    let marks = (0..dim).map(|_| AtomicBool::new(false));
    try_collect("a mark for each feature column", marks, format_args!("there are {dim} columns"))
}

fn count(marks: &[AtomicBool], rows: u64) -> u64 {
    let constant = marks.iter().filter(|mark| !mark.load(Ordering::Relaxed)).count() as u64;
    if rows > 1 { constant } else { 0 }
}

/// Written only once, so that threads do not take the line from each other.
fn mark(mark: &AtomicBool) {
    if !mark.load(Ordering::Relaxed) {
        mark.store(true, Ordering::Relaxed);
    }
}

fn dense<T: FeatureElement>(x: &Dense<T>, most: usize) -> Result<Quality> {
    let stride = stride(x.data().len(), most);
    let n = x.n_rows().div_ceil(stride);
    if n == 0 {
        return Ok(Quality::default());
    }
    let (varies, first) = (marks(x.dim())?, x.row(0));
    let (zero_rows, not_finite) = (0..n)
        .into_par_iter()
        .with_min_len(64)
        .map(|i| {
            let (mut is_zero, mut not_finite) = (true, 0);
            for ((value, first), varies) in x.row(i * stride).iter().zip(first).zip(&varies) {
                let value = value.widen_f32();
                is_zero &= value == 0.0;
                not_finite += u64::from(!value.is_finite());
                if value != first.widen_f32() {
                    mark(varies);
                }
            }
            (u64::from(is_zero), not_finite)
        })
        .reduce(|| (0, 0), |(a, b), (c, d)| (a + c, b + d));
    Ok(Quality { rows: n as u64, constant_columns: count(&varies, n as u64), zero_rows, not_finite })
}

fn sparse(x: &SparseFeatures, most: usize) -> Result<Quality> {
    let stride = stride(x.values().len(), most);
    let n = x.n_rows().div_ceil(stride);
    if n == 0 {
        return Ok(Quality::default());
    }
    let (varies, (_, columns, values)) = (marks(x.dim())?, x.checked_row(0)?);
    // What is not stored is 0.
    let find = |column: u32| columns.binary_search(&column).map_or(0.0, |place| values[place]);
    let (zero_rows, not_finite) = (0..n)
        .into_par_iter()
        .with_min_len(64)
        .map(|i| {
            let (_, own, values) = x.checked_row(i * stride)?;
            for (&column, &value) in own.iter().zip(values) {
                if value != find(column) {
                    mark(&varies[column as usize]);
                }
            }
            for column in columns.iter().filter(|column| own.binary_search(column).is_err()) {
                if find(*column) != 0.0 {
                    mark(&varies[*column as usize]);
                }
            }
            let is_zero = values.iter().all(|&value| value == 0.0);
            Ok((u64::from(is_zero), values.iter().filter(|value| !value.is_finite()).count() as u64))
        })
        .try_reduce(|| (0, 0), |(a, b), (c, d)| Ok((a + c, b + d)))?;
    Ok(Quality { rows: n as u64, constant_columns: count(&varies, n as u64), zero_rows, not_finite })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;
    use crate::array::Array;
    use crate::data::FeatureDtype;

    /// By the definitions, over every `stride`th row.
    fn naive(rows: &[f32], dim: usize, stride: usize) -> Quality {
        let rows: Vec<&[f32]> = rows.chunks(dim).step_by(stride).collect();
        let constant = |&c: &usize| rows.iter().all(|row| row[c] == rows[0][c]);
        Quality {
            rows: rows.len() as u64,
            constant_columns: if rows.len() > 1 { (0..dim).filter(constant).count() as u64 } else { 0 },
            zero_rows: rows.iter().filter(|row| row.iter().all(|&v| v == 0.0)).count() as u64,
            not_finite: rows.iter().flat_map(|row| *row).filter(|v| !v.is_finite()).count() as u64,
        }
    }

    #[test]
    fn a_matrix_spelled_out() {
        let rows = vec![1.0, 0.0, 2.0, 1.0, 0.0, 3.0, 1.0, 0.0, 2.0];
        let features = Features::dense(rows, 3, 3).unwrap();
        let expected = Quality { rows: 3, constant_columns: 2, zero_rows: 0, not_finite: 0 };
        assert_eq!(features.quality().unwrap(), expected);
        assert_eq!(Features::None.quality().unwrap(), Quality::default());
    }

    /// Only mapped features can have them: others are checked before.
    #[test]
    fn numbers_that_are_none_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("feat");
        let rows = [0.0, 1.0, f32::NAN, 1.0, 0.0, f32::INFINITY, 0.0, 0.0];
        std::fs::write(&path, bytemuck::cast_slice(&rows)).unwrap();
        let features = Features::F32(Dense::new(Array::map(&path, 0, 8).unwrap(), 4, 2).unwrap());
        assert_eq!(features.quality().unwrap(), naive(&rows, 2, 1));
        assert_eq!(features.quality().unwrap().not_finite, 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(6), ..ProptestConfig::default() })]

        #[test]
        fn counts_are_naive_ones(
            n in 0usize..9,
            dim in 1usize..5,
            values in proptest::collection::vec(0u8..3, 45),
            most in 1usize..60,
        ) {
            let rows: Vec<f32> = values[..n * dim].iter().map(|&v| f32::from(v / 2)).collect();
            let dense = Features::dense(rows.clone(), n, dim).unwrap();
            let expected = |elements| naive(&rows, dim, stride(elements, most));
            prop_assert_eq!(dense.quality_of(most).unwrap(), expected(rows.len()));
            let half = dense.to_dtype(FeatureDtype::Bf16).unwrap();
            prop_assert_eq!(half.quality_of(most).unwrap(), expected(rows.len()));
            let (mut indptr, mut columns, mut stored) = (vec![0], Vec::new(), Vec::new());
            for row in rows.chunks(dim) {
                // Some zeros are stored, too.
                for (column, &value) in row.iter().enumerate().filter(|(c, v)| **v != 0.0 || c % 2 == 1) {
                    columns.push(column as u32);
                    stored.push(value);
                }
                indptr.push(columns.len() as u64);
            }
            let n_stored = stored.len();
            let sparse = Features::Sparse(SparseFeatures::new(indptr, columns, stored, dim).unwrap());
            prop_assert_eq!(sparse.quality_of(most).unwrap(), expected(n_stored));
        }
    }
}
