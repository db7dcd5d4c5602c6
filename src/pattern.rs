//! Sparse patterns on a device, with the transpose made on demand.
//!
//! ```
//! use cohop::device::Cpu;
//! use cohop::pattern::Pattern;
//!
//! let device = Cpu::<f32>::new();
//! let pattern = Pattern::from_host(&device, 3, &[0, 2, 3], &[0, 2, 1])?; // 2 rows, 3 columns
//! let transpose = pattern.transpose(&device)?;
//! assert_eq!((transpose.indptr(), transpose.indices()), (&[0, 1, 2, 3][..], &[0, 1, 0][..]));
//! # Ok::<(), cohop::Error>(())
//! ```

use std::sync::OnceLock;

use crate::device::{Csr, Device, Storage, check_csr, longest_row, on_host};
use crate::error::{Result, check_length};

/// A sparse pattern in compressed rows that owns its memory. Keeps its transpose after the first use.
#[derive(Debug)]
pub struct Pattern<D: Storage> {
    n_rows: usize,
    n_cols: usize,
    indptr: D::Buffer<u32>,
    indices: D::Buffer<u32>,
    /// The most entries of a row, where that is known.
    longest_row: Option<usize>,
    transpose: OnceLock<Transpose<D>>,
    in_transpose: OnceLock<D::Buffer<u32>>,
}

#[derive(Debug)]
struct Transpose<D: Storage> {
    indptr: D::Buffer<u32>,
    indices: D::Buffer<u32>,
    edge: D::Buffer<u32>,
}

impl<D: Device> Pattern<D> {
    /// A pattern from arrays in the device's memory, which are checked; a GPU's arrays are copied to the host for this.
    ///
    /// Errors: `indptr` is empty or does not ascend from 0 to the number of `indices`, an index is not below `n_cols`,
    /// or the device fails.
    pub fn new(device: &D, n_cols: usize, indptr: D::Buffer<u32>, indices: D::Buffer<u32>) -> Result<Self> {
        let (ends, longest_row) = {
            let ends = on_host(device, D::view(&indptr))?;
            check_csr(&ends, &on_host(device, D::view(&indices))?, n_cols)?;
            (ends.len(), longest_row(&ends))
        };
        Ok(Pattern::from_valid(ends - 1, n_cols, indptr, indices)?.with_longest_row(Some(longest_row)))
    }

    /// A pattern from arrays that are known to be valid (see [`Csr`]): a kernel made them, or they were checked.
    ///
    /// Errors: `indptr` does not have `n_rows + 1` elements.
    pub(crate) fn from_valid(
        n_rows: usize,
        n_cols: usize,
        indptr: D::Buffer<u32>,
        indices: D::Buffer<u32>,
    ) -> Result<Self> {
        check_length("indptr", D::len(&indptr), n_rows + 1)?;
        Ok(Pattern {
            n_rows,
            n_cols,
            indptr,
            indices,
            longest_row: None,
            transpose: OnceLock::new(),
            in_transpose: OnceLock::new(),
        })
    }

    /// A pattern from host arrays, checked as by [`new`](Pattern::new).
    ///
    /// Errors: `indptr` is empty or does not ascend from 0 to `indices.len()`, an index is not below `n_cols`, or the
    /// device is out of memory.
    pub fn from_host(device: &D, n_cols: usize, indptr: &[u32], indices: &[u32]) -> Result<Self> {
        check_csr(indptr, indices, n_cols)?;
        let (ends, columns) = (device.upload(indptr)?, device.upload(indices)?);
        let pattern = Pattern::from_valid(indptr.len() - 1, n_cols, ends, columns)?;
        Ok(pattern.with_longest_row(Some(longest_row(indptr))))
    }

    /// Says how many entries a row has at most, where that is known, so that a device need not look for rows of very
    /// many. A wrong number changes no result.
    pub(crate) fn with_longest_row(mut self, longest_row: Option<usize>) -> Self {
        self.longest_row = longest_row;
        self
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// Number of entries.
    pub fn n_edge(&self) -> usize {
        D::len(&self.indices)
    }

    /// The pattern by row.
    pub fn csr(&self) -> Csr<'_, D> {
        Csr {
            n_rows: self.n_rows,
            n_cols: self.n_cols,
            indptr: D::view(&self.indptr),
            indices: D::view(&self.indices),
            edge: None,
            longest_row: self.longest_row,
        }
    }

    /// The pattern by column: `n_cols` rows, `edge` set. Made by the first call.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        let t = get_or_try_init(&self.transpose, || {
            let mut indptr = device.allocate(self.n_cols + 1)?;
            let mut indices = device.allocate(self.n_edge())?;
            let mut edge = device.allocate(self.n_edge())?;
            device.transpose(
                self.csr(),
                D::view_mut(&mut indptr),
                D::view_mut(&mut indices),
                D::view_mut(&mut edge),
            )?;
            Ok(Transpose { indptr, indices, edge })
        })?;
        Ok(Csr {
            n_rows: self.n_cols,
            n_cols: self.n_rows,
            indptr: D::view(&t.indptr),
            indices: D::view(&t.indices),
            edge: Some(D::view(&t.edge)),
            longest_row: None,
        })
    }

    /// The pattern by row, for values stored in the transpose's order: `n_rows` rows, whose columns are the entries'
    /// positions in the [`transpose`](Pattern::transpose). Made by the first call.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn csr_into_transpose(&self, device: &D) -> Result<Csr<'_, D>> {
        let edge = self.transpose(device)?.edge;
        let positions = get_or_try_init(&self.in_transpose, || {
            let mut positions = device.allocate(self.n_edge())?;
            if let Some(edge) = edge {
                device.invert_permutation(edge, D::view_mut(&mut positions))?;
            }
            Ok(positions)
        })?;
        let (n_cols, indices) = (self.n_edge(), D::view(positions));
        Ok(Csr { n_cols, indices, ..self.csr() })
    }

    /// The parts, without the transpose: rows, columns, `indptr`, `indices`.
    pub(crate) fn into_parts(self) -> (usize, usize, D::Buffer<u32>, D::Buffer<u32>) {
        (self.n_rows, self.n_cols, self.indptr, self.indices)
    }
}

/// `OnceLock::get_or_try_init`, which is not stable. Two threads may both compute; the first result stays.
pub(crate) fn get_or_try_init<T>(cell: &OnceLock<T>, init: impl FnOnce() -> Result<T>) -> Result<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = init()?;
    Ok(cell.get_or_init(|| value))
}
