//! Memory of a device, views of it, and the element types that it holds.

use std::fmt::Debug;
use std::ops::Range;

use half::{bf16, f16};

use crate::device::Precision;
use crate::device::cpu::{Cpu, CpuBuffer, Gathered, Kernels};
use crate::error::{Error, Result};

/// Only the types here are elements: kernels are compiled for them.
mod sealed {
    pub trait Sealed {}
}

/// What a buffer can hold: plain bytes, any bit pattern valid. Sealed.
pub trait Element: sealed::Sealed + bytemuck::Pod + Debug + PartialEq + PartialOrd + Send + Sync {}

macro_rules! element {
    ($($type:ty),*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {}
    )*};
}

element!(u8, u16, u32, u64, i32, f16, bf16, f32, f64);

/// The type that a device computes in: `f32`, or `f64` for gradient checks. Sealed, as all [`Element`]s.
pub trait Scalar:
    FeatureElement + Kernels + num_traits::Float + num_traits::NumAssign + std::iter::Sum
{
    /// Rounds to nearest.
    fn from_f64(value: f64) -> Self;
}

impl Scalar for f32 {
    fn from_f64(value: f64) -> Self {
        value as f32
    }
}

impl Scalar for f64 {
    fn from_f64(value: f64) -> Self {
        value
    }
}

/// A floating-point type, as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dtype {
    /// [`half::f16`]
    F16,
    /// [`half::bf16`]
    Bf16,
    /// [`f32`]
    F32,
    /// [`f64`]
    F64,
}

/// Types in which vertex features may be stored; they are widened to the device's [`Scalar`] when they are gathered.
/// Sealed, as all [`Element`]s.
pub trait FeatureElement: Element + Gathered<f32> + Gathered<f64> {
    /// Which type this is.
    const DTYPE: Dtype;

    /// The value as `f32`: exact for `f16`, `bf16` and `f32`, rounded for `f64`.
    fn widen_f32(self) -> f32;
    /// The value as `f64`, exact.
    fn widen_f64(self) -> f64;
}

macro_rules! feature_element {
    ($($type:ty: $dtype:ident, $narrow:expr, $wide:expr;)*) => {$(
        impl FeatureElement for $type {
            const DTYPE: Dtype = Dtype::$dtype;

            #[inline(always)]
            fn widen_f32(self) -> f32 {
                ($narrow)(self)
            }
            #[inline(always)]
            fn widen_f64(self) -> f64 {
                ($wide)(self)
            }
        }
    )*};
}

feature_element! {
    f16: F16, f16::to_f32, f16::to_f64;
    bf16: Bf16, bf16::to_f32, bf16::to_f64;
    f32: F32, |v| v, f64::from;
    f64: F64, |v| v as f32, |v| v;
}

/// Owns memory on a device.
///
/// `Buffer` owns, `View` and `ViewMut` borrow a contiguous part. On the CPU the views are slices; on a GPU they are a
/// pointer, a length and a lifetime.
pub trait Storage: Clone + Debug + Send + Sync + 'static {
    /// What the device computes in.
    type Scalar: Scalar;
    /// Owned memory for `T`s.
    type Buffer<T: Element>: Debug + Send + Sync;
    /// A shared view.
    type View<'a, T: Element>: Copy + Send + Sync;
    /// An exclusive view.
    type ViewMut<'a, T: Element>: Send;

    /// The device in words, for messages and benches.
    fn describe(&self) -> String;

    /// In which precision the device multiplies dense matrices, and the operations of a tape aggregate rows:
    /// [`Precision::F32`] unless [`with_precision`](Storage::with_precision) said something else.
    fn precision(&self) -> Precision;

    /// The same device, with the same memory and queue, in another precision.
    fn with_precision(self, precision: Precision) -> Self;

    /// A buffer of `len` elements with unspecified contents (never uninitialised memory on the CPU).
    ///
    /// Errors: `len` elements are more than memory can address ([`TooLarge`](Error::TooLarge)), or the device fails or
    /// is out of memory.
    fn allocate<T: Element>(&self, len: usize) -> Result<Self::Buffer<T>>;

    /// A buffer with the elements of `host`.
    ///
    /// Errors: the device fails or is out of memory.
    fn upload<T: Element>(&self, host: &[T]) -> Result<Self::Buffer<T>>;

    /// A buffer with the elements of `host` that stays in host memory, for data that does not fit on the device: for a
    /// GPU the memory is page-locked, and kernels read it through the bus. On the CPU all memory is the host's.
    ///
    /// Errors: the memory cannot be allocated or page-locked, or the device fails.
    fn upload_to_host<T: Element>(&self, host: &[T]) -> Result<Self::Buffer<T>>;

    /// [`upload`](Storage::upload) of a list that is handed over, so that nobody waits for the copy.
    ///
    /// Errors: the device fails or is out of memory.
    fn send<T: Element>(&self, host: Vec<T>) -> Result<Self::Buffer<T>> {
        self.upload(&host)
    }

    /// Takes over a host buffer: on the CPU the same memory, elsewhere a copy.
    ///
    /// Errors: the device fails or is out of memory.
    fn adopt<T: Element>(&self, host: CpuBuffer<T>) -> Result<Self::Buffer<T>>;

    /// The elements of `view` on the host; waits for the device.
    ///
    /// Errors: those of [`synchronize`](Storage::synchronize).
    fn download<T: Element>(&self, view: Self::View<'_, T>) -> Result<Vec<T>>;

    /// The elements themselves if the device's memory is the host's; `None` if they must be
    /// [downloaded](Storage::download).
    fn as_host<'a, T: Element>(view: Self::View<'a, T>) -> Option<&'a [T]>;

    /// Whether kernels run on rayon's current pool: those of the CPU do.
    const RUNS_ON_POOL: bool = false;

    /// `out[i] = value`.
    ///
    /// Errors: the device fails.
    fn fill<T: Element>(&self, value: T, out: Self::ViewMut<'_, T>) -> Result<()>;

    /// `out[i] = x[i]`; both have the same length.
    ///
    /// Errors: `x` and `out` differ in length, or the device fails.
    fn copy<T: Element>(&self, x: Self::View<'_, T>, out: Self::ViewMut<'_, T>) -> Result<()>;

    /// Number of elements of a buffer.
    fn len<T: Element>(buffer: &Self::Buffer<T>) -> usize;

    /// All of a buffer, shared.
    fn view<T: Element>(buffer: &Self::Buffer<T>) -> Self::View<'_, T>;

    /// All of a buffer, exclusive.
    fn view_mut<T: Element>(buffer: &mut Self::Buffer<T>) -> Self::ViewMut<'_, T>;

    /// Part of a view. Panics if `range` is not inside it.
    fn slice<'a, T: Element>(view: Self::View<'a, T>, range: Range<usize>) -> Self::View<'a, T>;

    /// Part of an exclusive view. Panics if `range` is not inside it.
    fn slice_mut<'a, T: Element>(view: Self::ViewMut<'a, T>, range: Range<usize>) -> Self::ViewMut<'a, T>;

    /// Reborrows an exclusive view, for a shorter time.
    fn reborrow<'a, T: Element>(view: &'a mut Self::ViewMut<'_, T>) -> Self::ViewMut<'a, T>;

    /// Number of elements of a view.
    fn view_len<T: Element>(view: &Self::View<'_, T>) -> usize;

    /// Number of elements of an exclusive view.
    fn view_mut_len<T: Element>(view: &Self::ViewMut<'_, T>) -> usize;

    /// Waits until all work given to the device is done.
    ///
    /// On a device that works asynchronously, an error that only its data can show (an index out of range) may be
    /// returned by a later call on the same queue, at the latest by this one or by [`download`](Storage::download), and
    /// only once.
    ///
    /// Errors: work that was given to the device failed, or a kernel met an index out of range
    /// ([`IndexOutOfRange`](Error::IndexOutOfRange)).
    fn synchronize(&self) -> Result<()>;

    /// A point in the work given to the device.
    type Event: Debug + Send + Sync;

    /// A second queue of the same device, whose work (uploads, say) may run at the same time as that of this one.
    ///
    /// Memory that it allocates may be used in this queue after a [`wait_for`](Storage::wait_for) an event of the
    /// second one. When such memory is freed, it is not used again before this queue has finished with it.
    ///
    /// Errors: the device fails or is out of memory.
    fn beside(&self) -> Result<Self>;

    /// The point at which all work given to this queue so far is done.
    ///
    /// Errors: the device fails.
    fn record(&self) -> Result<Self::Event>;

    /// Work given to this queue from now on runs after `event`.
    ///
    /// Errors: the device fails.
    fn wait_for(&self, event: &Self::Event) -> Result<()>;

    /// Waits, on the host, until `event` is passed, and not for work given to its queue after that. Reports nothing
    /// that kernels found: [`synchronize`](Storage::synchronize) and [`download`](Storage::download) do.
    ///
    /// Errors: the device fails.
    fn reach(&self, event: &Self::Event) -> Result<()>;

    /// A CPU device whose buffers [`adopt`](Storage::adopt) copies fast: for a GPU they are page-locked.
    fn host(&self) -> Cpu<Self::Scalar>;
}

/// The size in bytes of a buffer of `len` elements.
///
/// Errors: [`Error::TooLarge`], in elements, if that is more than half of what addresses can tell apart: a device may
/// round sizes up.
pub(crate) fn buffer_bytes<T>(len: usize) -> Result<usize> {
    const MOST: usize = isize::MAX as usize / 2;
    len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= MOST).ok_or(Error::TooLarge {
        what: "a buffer",
        count: len as u64,
        limit: (MOST / size_of::<T>().max(1)) as u64,
    })
}

/// A dense row-major matrix on a device, shared. `data` has exactly `rows * cols` elements.
pub struct Matrix<'a, D: Storage> {
    /// `[rows, cols]`
    pub(crate) data: D::View<'a, D::Scalar>,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Number of columns.
    pub(crate) cols: usize,
}

impl<D: Storage> Clone for Matrix<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D: Storage> Copy for Matrix<'_, D> {}

impl<'a, S: Scalar> Matrix<'a, Cpu<S>> {
    /// A matrix over a slice, vector or array in host memory, row after row.
    ///
    /// Errors: its length is not `rows * cols`.
    pub fn new(data: &'a [S], rows: usize, cols: usize) -> Result<Self> {
        Matrix::from_view(data, rows, cols)
    }
}

impl<'a, D: Storage> Matrix<'a, D> {
    /// A matrix over memory of any device, row after row.
    ///
    /// Errors: its length is not `rows * cols`.
    pub fn from_view(data: D::View<'a, D::Scalar>, rows: usize, cols: usize) -> Result<Self> {
        check_matrix_length(D::view_len(&data), rows, cols)?;
        Ok(Matrix { data, rows, cols })
    }

    /// All elements, row after row.
    pub fn data(&self) -> D::View<'a, D::Scalar> {
        self.data
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
}

/// A dense row-major matrix on a device, exclusive. `data` has exactly `rows * cols` elements.
pub struct MatrixMut<'a, D: Storage> {
    /// `[rows, cols]`
    pub(crate) data: D::ViewMut<'a, D::Scalar>,
    /// Number of rows.
    pub(crate) rows: usize,
    /// Number of columns.
    pub(crate) cols: usize,
}

impl<'a, S: Scalar> MatrixMut<'a, Cpu<S>> {
    /// A matrix over a slice, vector or array in host memory, row after row.
    ///
    /// Errors: its length is not `rows * cols`.
    pub fn new(data: &'a mut [S], rows: usize, cols: usize) -> Result<Self> {
        MatrixMut::from_view(data, rows, cols)
    }
}

impl<'a, D: Storage> MatrixMut<'a, D> {
    /// A matrix over memory of any device, row after row.
    ///
    /// Errors: its length is not `rows * cols`.
    pub fn from_view(data: D::ViewMut<'a, D::Scalar>, rows: usize, cols: usize) -> Result<Self> {
        check_matrix_length(D::view_mut_len(&data), rows, cols)?;
        Ok(MatrixMut { data, rows, cols })
    }

    /// All elements, row after row.
    pub fn into_data(self) -> D::ViewMut<'a, D::Scalar> {
        self.data
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

    /// Reborrows the matrix, for a shorter time.
    pub fn reborrow(&mut self) -> MatrixMut<'_, D> {
        MatrixMut { data: D::reborrow(&mut self.data), rows: self.rows, cols: self.cols }
    }
}

/// `Ok` if a matrix of `rows * cols` elements fits a buffer of `len`.
pub(crate) fn check_matrix_length(len: usize, rows: usize, cols: usize) -> Result<()> {
    if rows.checked_mul(cols) == Some(len) {
        return Ok(());
    }
    Err(Error::invalid("matrix data", format!("{len} elements"), format!("{rows} x {cols} elements")))
}

/// `Ok` if `x.data` has `rows * cols` elements.
pub(crate) fn check_matrix<D: Storage>(x: &Matrix<'_, D>) -> Result<()> {
    check_matrix_length(D::view_len(&x.data), x.rows, x.cols)
}

/// `Ok` if `x.data` has `rows * cols` elements.
pub(crate) fn check_matrix_mut<D: Storage>(x: &MatrixMut<'_, D>) -> Result<()> {
    check_matrix_length(D::view_mut_len(&x.data), x.rows, x.cols)
}

/// Whether a kernel overwrites its output or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// `out = result`; what was there, NaN included, does not matter.
    Assign,
    /// `out += result`.
    Add,
}

/// `Ok` if two shapes are equal.
pub(crate) fn check_same_shape(
    op: &'static str,
    left_name: &'static str,
    left: [usize; 2],
    right_name: &'static str,
    right: [usize; 2],
) -> Result<()> {
    if left == right { Ok(()) } else { Err(Error::ShapeMismatch { op, left_name, left, right_name, right }) }
}
