//! Dense matrices on a device.
//!
//! ```
//! use cohop::device::Cpu;
//! use cohop::tensor::Tensor;
//!
//! let device = Cpu::<f32>::new();
//! let x = Tensor::from_slice(&device, 2, 3, &[1., 2., 3., 4., 5., 6.])?;
//! let first_row = x.prefix(1)?; // shares the memory
//! assert_eq!(first_row.to_vec(&device)?, [1., 2., 3.]);
//! assert_eq!(x.reshape(3, 2)?.shape(), [3, 2]);
//! # Ok::<(), cohop::Error>(())
//! ```

use std::sync::Arc;

use crate::device::{Cpu, Device, Matrix, MatrixMut, Storage};
use crate::error::{Error, Result, check_length};

/// A dense row-major matrix on a device, of the device's scalar type.
///
/// Cloning shares the memory; writing through [`make_mut`](Tensor::make_mut) copies it first if it is shared. A
/// [`prefix`](Tensor::prefix) of rows shares it too. Vectors are matrices of one row, numbers are `[1, 1]`.
pub struct Tensor<D: Storage> {
    buffer: Arc<D::Buffer<D::Scalar>>,
    rows: usize,
    cols: usize,
}

impl<D: Storage> Clone for Tensor<D> {
    fn clone(&self) -> Self {
        Tensor { buffer: self.buffer.clone(), rows: self.rows, cols: self.cols }
    }
}

impl<D: Storage> std::fmt::Debug for Tensor<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor[{}, {}]", self.rows, self.cols)
    }
}

impl<D: Device> Tensor<D> {
    /// A matrix with unspecified contents, to be overwritten.
    ///
    /// Errors: `rows * cols` overflows, or the device is out of memory.
    pub fn allocate(device: &D, rows: usize, cols: usize) -> Result<Self> {
        let len = rows.checked_mul(cols).ok_or(Error::TooLarge {
            what: "a matrix",
            count: u64::MAX,
            limit: usize::MAX as u64,
        })?;
        Ok(Tensor { buffer: Arc::new(device.allocate(len)?), rows, cols })
    }

    /// A matrix of zeros.
    ///
    /// Errors: as [`allocate`](Tensor::allocate).
    pub fn zeros(device: &D, rows: usize, cols: usize) -> Result<Self> {
        let mut tensor = Tensor::allocate(device, rows, cols)?;
        device.fill(num_traits::Zero::zero(), tensor.make_mut(device)?.data)?;
        Ok(tensor)
    }

    /// A matrix with the values of `host`, row after row.
    ///
    /// Errors: `host` does not have `rows * cols` elements, or the device is out of memory.
    pub fn from_slice(device: &D, rows: usize, cols: usize, host: &[D::Scalar]) -> Result<Self> {
        check_length("tensor values", host.len(), rows.saturating_mul(cols))?;
        Ok(Tensor { buffer: Arc::new(device.upload(host)?), rows, cols })
    }

    /// A matrix over a buffer.
    ///
    /// Errors: `buffer` does not have `rows * cols` elements.
    pub fn from_buffer(buffer: D::Buffer<D::Scalar>, rows: usize, cols: usize) -> Result<Self> {
        check_length("tensor values", D::len(&buffer), rows.saturating_mul(cols))?;
        Ok(Tensor { buffer: Arc::new(buffer), rows, cols })
    }

    /// Moves a host tensor to `device`: on the CPU the same memory, unless it is shared.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn from_host(device: &D, host: Tensor<Cpu<D::Scalar>>) -> Result<Self> {
        let Tensor { buffer, rows, cols } = host;
        let whole = Cpu::<D::Scalar>::len(&buffer) == rows * cols;
        match Arc::try_unwrap(buffer) {
            Ok(buffer) if whole => Tensor::from_buffer(device.adopt(buffer)?, rows, cols),
            Ok(buffer) => Tensor::from_slice(device, rows, cols, &buffer[..rows * cols]),
            Err(shared) => Tensor::from_slice(device, rows, cols, &shared[..rows * cols]),
        }
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// `[rows, cols]`
    pub fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    /// All elements, row after row.
    pub fn view(&self) -> D::View<'_, D::Scalar> {
        D::slice(D::view(&self.buffer), 0..self.rows * self.cols)
    }

    /// The matrix, as kernels take it.
    pub fn matrix(&self) -> Matrix<'_, D> {
        Matrix { data: self.view(), rows: self.rows, cols: self.cols }
    }

    /// The matrix, to be written; copied first if its memory is shared.
    ///
    /// Errors: the device fails or is out of memory.
    pub fn make_mut(&mut self, device: &D) -> Result<MatrixMut<'_, D>> {
        if Arc::get_mut(&mut self.buffer).is_none() {
            let mut copy = device.allocate(self.rows * self.cols)?;
            device.copy(self.view(), D::view_mut(&mut copy))?;
            self.buffer = Arc::new(copy);
        }
        let (rows, cols) = (self.rows, self.cols);
        let buffer = Arc::get_mut(&mut self.buffer).ok_or_else(|| {
            Error::invalid("tensor", "shared", "exclusive ownership, which the copy just made ensures")
        })?;
        Ok(MatrixMut { data: D::slice_mut(D::view_mut(buffer), 0..rows * cols), rows, cols })
    }

    /// The first `rows` rows, sharing the memory.
    ///
    /// Errors: `rows` is larger than the number of rows.
    pub fn prefix(&self, rows: usize) -> Result<Self> {
        if rows > self.rows {
            return Err(Error::invalid("rows", rows, format!("at most the tensor's {}", self.rows)));
        }
        Ok(Tensor { buffer: self.buffer.clone(), rows, cols: self.cols })
    }

    /// The same elements, row after row, as `[rows, cols]`, sharing the memory.
    ///
    /// Errors: `rows * cols` is not the number of elements.
    pub fn reshape(&self, rows: usize, cols: usize) -> Result<Self> {
        crate::device::check_matrix_length(self.rows * self.cols, rows, cols)?;
        Ok(Tensor { buffer: self.buffer.clone(), rows, cols })
    }

    /// The elements on the host, row after row; waits for the device.
    ///
    /// Errors: the device fails.
    pub fn to_vec(&self, device: &D) -> Result<Vec<D::Scalar>> {
        device.download(self.view())
    }

    /// The element of a `[1, 1]` tensor; waits for the device.
    ///
    /// Errors: the shape is not `[1, 1]`, or the device fails.
    pub fn item(&self, device: &D) -> Result<D::Scalar> {
        if self.shape() != [1, 1] {
            return Err(Error::ShapeMismatch {
                op: "item",
                left_name: "tensor",
                left: self.shape(),
                right_name: "required",
                right: [1, 1],
            });
        }
        Ok(self.to_vec(device)?[0])
    }
}
