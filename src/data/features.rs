//! Vertex features, dense or sparse.

use std::fmt;
use std::str::FromStr;

use half::{bf16, f16};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::array::{Array, Bytes};
use crate::device::FeatureElement;
use crate::error::{Error, Result, check_length, try_capacity, try_collect, try_zeroed};

/// The element type of dense features.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureDtype {
    /// 32-bit IEEE.
    F32,
    /// 16-bit IEEE: 11 significant bits, up to 65504.
    F16,
    /// The upper half of an `f32`: 8 significant bits.
    Bf16,
}

impl FeatureDtype {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            FeatureDtype::F32 => 4,
            FeatureDtype::F16 | FeatureDtype::Bf16 => 2,
        }
    }
}

impl fmt::Display for FeatureDtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            FeatureDtype::F32 => "f32",
            FeatureDtype::F16 => "f16",
            FeatureDtype::Bf16 => "bf16",
        })
    }
}

impl FromStr for FeatureDtype {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "f32" => Ok(FeatureDtype::F32),
            "f16" => Ok(FeatureDtype::F16),
            "bf16" => Ok(FeatureDtype::Bf16),
            _ => Err(Error::invalid("feature dtype", name, "f32, f16 or bf16")),
        }
    }
}

/// A dense row-major matrix of features, `[n_rows, dim]`.
#[derive(Clone, Debug)]
pub struct Dense<T> {
    data: Array<T>,
    n_rows: usize,
    dim: usize,
}

impl<T: FeatureElement> Dense<T> {
    /// A matrix over `data: [n_rows, dim]`. In memory, every value is checked to be finite: O(n_rows * dim). Mapped
    /// data is not read: whatever slices rows for a batch checks them then, with the same error, and
    /// [`Features::check_finite`] checks all of them.
    ///
    /// Errors: `data` does not have `n_rows * dim` elements, or a value in memory is not finite.
    pub fn new(data: impl Into<Array<T>>, n_rows: usize, dim: usize) -> Result<Self> {
        let data = data.into();
        let Some(expected) = n_rows.checked_mul(dim) else {
            return Err(Error::TooLarge {
                what: "the feature matrix",
                count: u64::MAX,
                limit: usize::MAX as u64,
            });
        };
        check_length("features", data.len(), expected)?;
        let dense = Dense { data, n_rows, dim };
        if dense.data.is_mapped() {
            dense.data.expect_random_reads();
        } else {
            dense.check_finite()?;
        }
        Ok(dense)
    }

    /// Checks rows where they are used, if they are mapped and so have not been checked: `Ok` if all of `rows` are
    /// finite.
    fn check_rows(&self, rows: impl Iterator<Item = u32>) -> Result<()> {
        for row in rows {
            let row = row as usize;
            if let Some(column) = self.row(row).iter().position(|v| !v.widen_f32().is_finite()) {
                return Err(self.not_finite(row * self.dim + column));
            }
        }
        Ok(())
    }

    /// The error about an element that is NaN or infinite.
    fn not_finite(&self, position: usize) -> Error {
        self.data.with_file(Error::NotFinite {
            array: "features",
            row: (position / self.dim) as u64,
            column: (position % self.dim) as u64,
            value: self.data[position].widen_f64(),
        })
    }

    fn check_finite(&self) -> Result<()> {
        match self.data.par_iter().with_min_len(1 << 14).position_first(|v| !v.widen_f32().is_finite()) {
            None => Ok(()),
            Some(position) => Err(self.not_finite(position)),
        }
    }

    /// `[n_rows, dim]`, row-major.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// The array that holds the features.
    pub fn array(&self) -> &Array<T> {
        &self.data
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// `[dim]`: a row. Panics if `row` is out of range.
    pub fn row(&self, row: usize) -> &[T] {
        &self.data[row * self.dim..(row + 1) * self.dim]
    }

    /// Rounds to nearest. An error names a value that is beyond the range of `U`.
    fn converted<U: FeatureElement>(&self, narrow: impl Fn(f32) -> U + Sync) -> Result<Dense<U>> {
        let asked = format_args!("{} rows of {} columns", self.n_rows, self.dim);
        let mut data: Vec<U> = try_capacity("the converted feature matrix", self.data.len(), asked)?;
        self.data.par_iter().map(|v| narrow(v.widen_f32())).collect_into_vec(&mut data);
        let overflow = data.par_iter().position_first(|v| !v.widen_f32().is_finite());
        if let Some(position) = overflow {
            // A mapped value may have been NaN or infinite before.
            self.check_finite()?;
            let (row, column) = (position / self.dim, position % self.dim);
            let value = format!("{} in row {row}, column {column}", self.data[position].widen_f32());
            let expected = "finite values in the range of the requested dtype";
            return Err(self.data.with_file(Error::invalid("features", value, expected)));
        }
        Ok(Dense { data: data.into(), n_rows: self.n_rows, dim: self.dim })
    }

    fn row_normalized(&self, narrow: impl Fn(f32) -> T + Sync) -> Result<Self> {
        if self.data.is_mapped() {
            self.check_finite()?;
        }
        let asked = format_args!("{} rows of {} columns", self.n_rows, self.dim);
        let mut data = try_capacity("the normalised feature matrix", self.data.len(), asked)?;
        data.extend_from_slice(&self.data);
        data.par_chunks_mut(self.dim.max(1)).for_each(|row| {
            let sum: f64 = row.iter().map(|v| v.widen_f64()).sum();
            if sum != 0.0 {
                row.iter_mut().for_each(|v| *v = narrow((v.widen_f64() / sum) as f32));
            }
        });
        Dense::new(data, self.n_rows, self.dim)
    }
}

/// Sparse features (bag of words): compressed rows of `f32`.
#[derive(Clone, Debug)]
pub struct SparseFeatures {
    indptr: Array<u64>,
    indices: Array<u32>,
    values: Array<f32>,
    dim: usize,
}

impl SparseFeatures {
    /// Features from compressed rows: `indptr: [n_rows + 1]`, `indices: [nnz]`, the columns, and `values: [nnz]`.
    /// Everything is read and checked: O(n_rows + nnz).
    ///
    /// Errors: `indptr` does not ascend from 0 to the number of entries, a column is not below `dim` or not above the
    /// one before it in its row, there is not one value per column, or a value is not finite.
    pub fn new(
        indptr: impl Into<Array<u64>>,
        indices: impl Into<Array<u32>>,
        values: impl Into<Array<f32>>,
        dim: usize,
    ) -> Result<Self> {
        let sparse =
            SparseFeatures { indptr: indptr.into(), indices: indices.into(), values: values.into(), dim };
        sparse.check_offsets()?;
        check_length("feature values", sparse.values.len(), sparse.indices.len())?;
        for row in 0..sparse.n_rows() {
            sparse.check_row(row)?;
        }
        Ok(sparse)
    }

    fn check_offsets(&self) -> Result<()> {
        let Some((&last, _)) = self.indptr.split_last() else {
            return Err(Error::WrongLength { array: "feature indptr", actual: 0, expected: 1 });
        };
        if self.indptr[0] != 0 {
            return Err(Error::invalid("feature indptr[0]", self.indptr[0], "0"));
        }
        if let Some(row) = self.indptr.windows(2).position(|ends| ends[1] < ends[0]) {
            return Err(Error::NotMonotone {
                array: "feature indptr",
                position: row as u64 + 1,
                value: self.indptr[row + 1],
                previous: self.indptr[row],
            });
        }
        if last != self.indices.len() as u64 {
            return Err(Error::WrongLength {
                array: "feature indices",
                actual: self.indices.len() as u64,
                expected: last,
            });
        }
        Ok(())
    }

    fn check_row(&self, row: usize) -> Result<()> {
        let first = self.indptr[row];
        let mut previous = None;
        let (columns, values) = self.row(row);
        for ((position, &column), &value) in (first..).zip(columns).zip(values) {
            if column as usize >= self.dim {
                return Err(Error::IndexOutOfRange {
                    array: "feature indices",
                    position,
                    value: i64::from(column),
                    limit: self.dim as u64,
                });
            }
            if previous.is_some_and(|p| p >= column) {
                return Err(Error::invalid(
                    "feature indices",
                    format!("{column} at position {position}"),
                    "strictly ascending columns within a row",
                ));
            }
            previous = Some(column);
            if !value.is_finite() {
                return Err(Error::NotFinite {
                    array: "features",
                    row: row as u64,
                    column: u64::from(column),
                    value: f64::from(value),
                });
            }
        }
        Ok(())
    }

    /// `[n_rows + 1]`: where each row's entries begin.
    pub fn indptr(&self) -> &[u64] {
        &self.indptr
    }

    /// `[nnz]`: columns.
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// `[nnz]`: values.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.indptr.len() - 1
    }

    /// Number of columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Columns and values of a row. Panics if `row` is out of range.
    pub fn row(&self, row: usize) -> (&[u32], &[f32]) {
        let entries = self.indptr[row] as usize..self.indptr[row + 1] as usize;
        (&self.indices[entries.clone()], &self.values[entries])
    }

    /// The position of a row's first entry, its columns and its values, checked again: mapped arrays may have been
    /// changed meanwhile.
    ///
    /// Errors: the row's offsets are not inside of the arrays, or a column is not below the number of columns.
    pub(crate) fn checked_row(&self, row: usize) -> Result<(u64, &[u32], &[f32])> {
        let (first, end) = (self.indptr[row], self.indptr[row + 1]);
        if end < first {
            let (array, position) = ("feature indptr", row as u64 + 1);
            let error = Error::NotMonotone { array, position, value: end, previous: first };
            return Err(self.indptr.with_file(error));
        }
        if end > self.indices.len() as u64 {
            let value = i64::try_from(end).unwrap_or(i64::MAX);
            let (position, limit) = (row as u64 + 1, self.indices.len() as u64 + 1);
            let error = Error::IndexOutOfRange { array: "feature indptr", position, value, limit };
            return Err(self.indptr.with_file(error));
        }
        let entries = first as usize..end as usize;
        let (columns, values) = (&self.indices[entries.clone()], &self.values[entries]);
        if let Some(place) = columns.iter().position(|&column| column as usize >= self.dim) {
            return Err(self.indices.with_file(Error::IndexOutOfRange {
                array: "feature indices",
                position: first + place as u64,
                value: columns[place].into(),
                limit: self.dim as u64,
            }));
        }
        Ok((first, columns, values))
    }

    fn to_dense<T: FeatureElement>(&self, narrow: impl Fn(f32) -> T + Sync) -> Result<Dense<T>> {
        let too_large =
            Error::TooLarge { what: "the dense feature matrix", count: u64::MAX, limit: usize::MAX as u64 };
        let len = self.n_rows().checked_mul(self.dim).ok_or(too_large)?;
        let asked = format_args!("{} rows of {} columns", self.n_rows(), self.dim);
        let mut data: Vec<T> = try_zeroed("the dense feature matrix", len, asked)?;
        data.par_chunks_mut(self.dim.max(1)).enumerate().for_each(|(row, out)| {
            let (columns, values) = self.row(row);
            for (&column, &value) in columns.iter().zip(values) {
                out[column as usize] = narrow(value);
            }
        });
        Dense::new(data, self.n_rows(), self.dim)
    }

    fn row_normalized(&self) -> Result<Self> {
        let asked = format_args!("{} entries", self.values.len());
        let mut values = try_collect("the normalised features", self.values.iter().copied(), asked)?;
        for row in 0..self.n_rows() {
            let row = &mut values[self.indptr[row] as usize..self.indptr[row + 1] as usize];
            let sum: f64 = row.iter().map(|&v| f64::from(v)).sum();
            if sum != 0.0 {
                row.iter_mut().for_each(|v| *v = (f64::from(*v) / sum) as f32);
            }
        }
        SparseFeatures::new(self.indptr.clone(), self.indices.clone(), values, self.dim)
    }
}

/// The features of all vertices.
#[derive(Clone, Debug)]
pub enum Features {
    /// None: a model learns an embedding.
    None,
    /// Dense `f32`.
    F32(Dense<f32>),
    /// Dense `f16`.
    F16(Dense<f16>),
    /// Dense `bf16`.
    Bf16(Dense<bf16>),
    /// Compressed rows of `f32`.
    Sparse(SparseFeatures),
}

/// Runs `$body` with `$dense` bound to the [`Dense`] of any dtype.
macro_rules! dispatch {
    ($features:expr, $dense:ident => $body:expr, none => $none:expr, $sparse:ident => $sparse_body:expr) => {
        match $features {
            Features::None => $none,
            Features::F32($dense) => $body,
            Features::F16($dense) => $body,
            Features::Bf16($dense) => $body,
            Features::Sparse($sparse) => $sparse_body,
        }
    };
}

impl Features {
    /// Dense `f32` features, `data: [n_rows, dim]`; see [`Dense::new`].
    ///
    /// Errors: those of [`Dense::new`].
    pub fn dense(data: impl Into<Array<f32>>, n_rows: usize, dim: usize) -> Result<Self> {
        Ok(Features::F32(Dense::new(data, n_rows, dim)?))
    }

    /// Number of rows; 0 if there are no features.
    pub fn n_rows(&self) -> usize {
        dispatch!(self, d => d.n_rows(), none => 0, s => s.n_rows())
    }

    /// Number of columns; 0 if there are no features.
    pub fn dim(&self) -> usize {
        dispatch!(self, d => d.dim(), none => 0, s => s.dim())
    }

    /// Bytes of a row as it is stored; `None` if rows differ, as sparse ones do, or there are none.
    pub(crate) fn bytes_of_row(&self) -> Option<usize> {
        let is_dense = !matches!(self, Features::Sparse(_) | Features::None);
        self.dtype().filter(|_| is_dense).map(|dtype| dtype.bytes() * self.dim())
    }

    /// Whether there are no features.
    pub fn is_none(&self) -> bool {
        matches!(self, Features::None)
    }

    /// The element type; `None` without features.
    pub fn dtype(&self) -> Option<FeatureDtype> {
        match self {
            Features::None => None,
            Features::F32(_) | Features::Sparse(_) => Some(FeatureDtype::F32),
            Features::F16(_) => Some(FeatureDtype::F16),
            Features::Bf16(_) => Some(FeatureDtype::Bf16),
        }
    }

    pub(super) fn add_bytes(&self, bytes: &mut Bytes) {
        dispatch!(self, d => bytes.add(&d.data), none => {}, s => {
            bytes.add(&s.indptr);
            bytes.add(&s.indices);
            bytes.add(&s.values);
        });
    }

    /// Reads and checks all values, mapped ones too.
    ///
    /// Errors: a value is NaN or infinite: [`Error::NotFinite`] names the first one's row and column; of mapped ones,
    /// [`Error::Format`] with the same text and the file.
    pub fn check_finite(&self) -> Result<()> {
        dispatch!(self, d => d.check_finite(), none => Ok(()), s => (0..s.n_rows()).try_for_each(|r| s.check_row(r)))
    }

    /// Whether values may be NaN or infinite: mapped dense features are not read before they are used.
    pub(crate) fn are_unchecked(&self) -> bool {
        dispatch!(self, d => d.data.is_mapped(), none => false, _s => false)
    }

    /// Checks the given rows, which must be in range.
    ///
    /// Errors: those of [`check_finite`](Features::check_finite), for the first bad row in the given order.
    pub(crate) fn check_rows(&self, rows: &[u32]) -> Result<()> {
        let rows = rows.iter().copied();
        dispatch!(self, d => d.check_rows(rows), none => Ok(()), _s => Ok(()))
    }

    /// Each row divided by its sum (taken in `f64`); rows that sum to zero stay as they are. In memory, in the same
    /// form.
    ///
    /// Errors: a mapped value is not finite, or a quotient overflows, as it can in rows whose sum is close to 0.
    pub fn row_normalize(&self) -> Result<Self> {
        Ok(match self {
            Features::None => Features::None,
            Features::F32(d) => Features::F32(d.row_normalized(|v| v)?),
            Features::F16(d) => Features::F16(d.row_normalized(f16::from_f32)?),
            Features::Bf16(d) => Features::Bf16(d.row_normalized(bf16::from_f32)?),
            Features::Sparse(s) => Features::Sparse(s.row_normalized()?),
        })
    }

    /// Dense features of the given `dtype`: sparse features get explicit zeros, values are rounded to nearest. If
    /// nothing has to change, the data is shared, not copied.
    ///
    /// Errors: a value is beyond the range of `dtype`, a mapped one is not finite, or `n_rows * dim` overflows.
    pub fn to_dtype(&self, dtype: FeatureDtype) -> Result<Self> {
        if self.dtype() == Some(dtype) && !matches!(self, Features::Sparse(_)) {
            return Ok(self.clone());
        }
        Ok(match dtype {
            FeatureDtype::F32 => {
                dispatch!(self, d => Features::F32(d.converted(|v| v)?), none => Features::None,
                    s => Features::F32(s.to_dense(|v| v)?))
            }
            FeatureDtype::F16 => {
                dispatch!(self, d => Features::F16(d.converted(f16::from_f32)?), none => Features::None,
                    s => Features::F16(s.to_dense(f16::from_f32)?))
            }
            FeatureDtype::Bf16 => {
                dispatch!(self, d => Features::Bf16(d.converted(bf16::from_f32)?), none => Features::None,
                    s => Features::Bf16(s.to_dense(bf16::from_f32)?))
            }
        })
    }

    /// Sparse features as a dense `f32` matrix (`n_rows * dim * 4` bytes); dense features, or none, as they are.
    ///
    /// Errors: `n_rows * dim` overflows.
    pub fn to_dense(&self) -> Result<Self> {
        match self {
            Features::Sparse(s) => Ok(Features::F32(s.to_dense(|v| v)?)),
            _ => Ok(self.clone()),
        }
    }
}
