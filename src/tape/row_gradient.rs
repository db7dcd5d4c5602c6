//! Gradients of tables of which only some rows were read.

use crate::device::{Device, Scalar, Storage, Weights, Write};
use crate::error::{Error, Result, check_length};
use crate::pattern::Pattern;
use crate::tensor::Tensor;

/// A matrix with few rows that are not zero: their numbers, ascending, each once, and their values.
pub struct RowGradient<D: Storage> {
    n_rows: usize,
    index: D::Buffer<u32>,
    values: Tensor<D>,
}

impl<D: Storage> std::fmt::Debug for RowGradient<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowGradient({} of {} rows)", D::len(&self.index), self.n_rows)
    }
}

impl<D: Device> RowGradient<D> {
    /// `Σ values[i, :]` in row `index[i]`, of `n_rows` rows. Repeated rows are merged, their values added in order of
    /// `i`: the same result each time. O(n log n) for `n` rows; O(n), without a copy of `values`, if `index` ascends
    /// strictly.
    ///
    /// Errors: `index` does not have one element per row of `values`, or one that is not below `n_rows`.
    pub fn new(device: &D, n_rows: usize, index: &[u32], values: Tensor<D>) -> Result<Self> {
        check_length("index", index.len(), values.rows())?;
        if let Some(position) = index.iter().position(|&i| i as usize >= n_rows) {
            return Err(Error::IndexOutOfRange {
                array: "index",
                position: position as u64,
                value: i64::from(index[position]),
                limit: n_rows as u64,
            });
        }
        if index.windows(2).all(|pair| pair[0] < pair[1]) {
            return Ok(RowGradient { n_rows, index: device.upload(index)?, values });
        }
        let mut order: Vec<u32> = (0..index.len() as u32).collect();
        order.sort_by_key(|&i| index[i as usize]);
        let (mut rows, mut indptr) = (Vec::new(), Vec::new());
        for (position, &i) in order.iter().enumerate() {
            let row = index[i as usize];
            if rows.last() != Some(&row) {
                rows.push(row);
                indptr.push(position as u32);
            }
        }
        indptr.push(order.len() as u32);
        let pattern = Pattern::from_host(device, index.len(), &indptr, &order)?;
        let mut merged = Tensor::allocate(device, rows.len(), values.cols())?;
        let out = merged.make_mut(device)?;
        device.spmm(pattern.csr(), Weights::ones(), values.matrix(), out, Write::Assign)?;
        Ok(RowGradient { n_rows, index: device.upload(&rows)?, values: merged })
    }

    /// The sum of both, which have the same shape.
    pub(super) fn merge(&self, device: &D, other: &Self) -> Result<Self> {
        let cols = self.values.cols();
        check_length("columns", other.values.cols(), cols)?;
        check_length("rows", other.n_rows, self.n_rows)?;
        let mut index = device.download(self.index())?;
        index.extend(device.download(other.index())?);
        let mut values = Tensor::allocate(device, index.len(), cols)?;
        let middle = self.values.rows() * cols;
        device.copy(self.values.view(), D::slice_mut(values.make_mut(device)?.data, 0..middle))?;
        let end = index.len() * cols;
        device.copy(other.values.view(), D::slice_mut(values.make_mut(device)?.data, middle..end))?;
        RowGradient::new(device, self.n_rows, &index, values)
    }

    /// `[n_rows, cols]` of the whole matrix.
    pub fn shape(&self) -> [usize; 2] {
        [self.n_rows, self.values.cols()]
    }

    /// `[n]`: the rows, strictly ascending.
    pub fn index(&self) -> D::View<'_, u32> {
        D::view(&self.index)
    }

    /// `[n, cols]`: their values.
    pub fn values(&self) -> &Tensor<D> {
        &self.values
    }

    pub(super) fn values_mut(&mut self) -> &mut Tensor<D> {
        &mut self.values
    }

    /// The whole matrix.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn to_dense(&self, device: &D) -> Result<Tensor<D>> {
        let mut dense = Tensor::allocate(device, self.n_rows, self.values.cols())?;
        device.fill(D::Scalar::from_f64(0.0), dense.make_mut(device)?.data)?;
        device.scatter_add(self.values.matrix(), self.index(), dense.make_mut(device)?)?;
        Ok(dense)
    }
}

/// The gradient of a leaf.
#[derive(Debug)]
pub enum Gradient<D: Storage> {
    /// All of it.
    Dense(Tensor<D>),
    /// The rows that are not zero.
    Rows(RowGradient<D>),
}

impl<D: Device> Gradient<D> {
    /// `[rows, cols]`, those that are zero included.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            Gradient::Dense(values) => values.shape(),
            Gradient::Rows(rows) => rows.shape(),
        }
    }
}
