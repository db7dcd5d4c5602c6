//! The CPU device: kernels on rayon's current thread pool, with SIMD chosen at run time.

mod attention;
mod batch_norm;
mod buffer;
mod elementwise;
mod finite;
mod gather;
mod gather_aggregate;
mod gemm;
mod kernels;
mod loss;
mod narrow;
mod optimizer;
mod parallel;
mod prefetch;
mod relation;
mod remote_rows;
mod sample;
mod sddmm;
mod spmm;
mod structure;
mod vectors;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use self::parallel::for_elements;
use self::vectors::Vectors;
use crate::device::{Element, Precision, Scalar, Storage};
use crate::error::{Result, check_length, try_collect};

#[cfg(any(feature = "cuda", feature = "emulate"))]
pub(in crate::device) use buffer::PageLock;
pub use buffer::{CpuBuffer, MemoryStatistics};
pub(in crate::device) use gather::Gathered;
pub(crate) use gather::{RowCopy, copy_rows, widen_row};
#[cfg(feature = "emulate")]
pub(in crate::device) use gemm::multiply_matrices;
pub(crate) use loss::argmax;
pub(in crate::device) use narrow::Narrowed;
pub use remote_rows::{RemoteRow, RemoteRows};
pub(crate) use sample::{LaborPeers, fixed_point_probability};

/// What the CPU's kernels need of a scalar. Nothing outside this crate can implement it.
pub trait Kernels:
    attention::AttentionKernels<Self>
    + batch_norm::BatchNormKernels<Self>
    + elementwise::ElementwiseKernels<Self>
    + finite::Finite
    + gather::GatherKernels<Self>
    + gemm::GemmKernels<Self>
    + gemm::Multiply
    + loss::LossKernels<Self>
    + narrow::NarrowKernels<Self>
    + optimizer::OptimizerKernels<Self>
    + relation::RelationKernels<Self>
    + RemoteRows
    + sddmm::SddmmKernels<Self>
    + spmm::SpmmKernels<Self>
    + structure::StructureKernels<Self>
    + Sized
{
}

impl Kernels for f32 {}
impl Kernels for f64 {}

/// The CPU, computing in `f32` or `f64`. Clones share one memory pool.
///
/// Kernels run on rayon's current thread pool: use `ThreadPool::install` to choose the number of threads.
pub struct Cpu<S: Scalar = f32> {
    shared: Arc<Shared>,
    precision: Precision,
    scalar: PhantomData<S>,
}

#[derive(Default)]
struct Shared {
    pool: Arc<buffer::Pool>,
    workspaces: sample::Workspaces,
}

impl<S: Scalar> Cpu<S> {
    /// A CPU device with a memory pool of its own.
    pub fn new() -> Self {
        // Says at the start what is wrong with the environment, and not in the middle of the work.
        Vectors::get();
        Cpu { shared: Arc::default(), precision: Precision::F32, scalar: PhantomData }
    }

    /// A CPU device whose larger buffers are page-locked by `page_lock`.
    #[cfg(any(feature = "cuda", feature = "emulate"))]
    pub(in crate::device) fn page_locked(page_lock: Arc<dyn PageLock>) -> Self {
        let pool = Arc::new(buffer::Pool::page_locked(page_lock));
        let shared = Arc::new(Shared { pool, ..Shared::default() });
        Cpu { shared, precision: Precision::F32, scalar: PhantomData }
    }

    /// How much memory buffers of this device and its clones hold, and have held.
    pub fn memory_statistics(&self) -> MemoryStatistics {
        self.shared.pool.statistics()
    }

    /// Sets the peak to the current memory, so that a phase's own peak can be measured.
    pub fn reset_peak_memory(&self) {
        self.shared.pool.reset_peak();
    }
}

impl<S: Scalar> Default for Cpu<S> {
    fn default() -> Self {
        Cpu::new()
    }
}

impl<S: Scalar> Clone for Cpu<S> {
    fn clone(&self) -> Self {
        Cpu { shared: self.shared.clone(), ..*self }
    }
}

impl<S: Scalar> std::fmt::Debug for Cpu<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl<S: Scalar> Storage for Cpu<S> {
    const RUNS_ON_POOL: bool = true;
    type Scalar = S;
    type Buffer<T: Element> = CpuBuffer<T>;
    type View<'a, T: Element> = &'a [T];
    type ViewMut<'a, T: Element> = &'a mut [T];

    fn describe(&self) -> String {
        format!("cpu, {} threads, {}", rayon::current_num_threads(), std::any::type_name::<S>())
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn with_precision(self, precision: Precision) -> Self {
        Cpu { precision, ..self }
    }

    fn allocate<T: Element>(&self, len: usize) -> Result<CpuBuffer<T>> {
        self.shared.pool.allocate(len)
    }

    fn upload<T: Element>(&self, host: &[T]) -> Result<CpuBuffer<T>> {
        let mut buffer = self.shared.pool.allocate(host.len())?;
        buffer.copy_from_slice(host);
        Ok(buffer)
    }

    fn upload_to_host<T: Element>(&self, host: &[T]) -> Result<CpuBuffer<T>> {
        self.upload(host)
    }

    fn adopt<T: Element>(&self, host: CpuBuffer<T>) -> Result<CpuBuffer<T>> {
        Ok(host)
    }

    fn download<T: Element>(&self, view: &[T]) -> Result<Vec<T>> {
        try_collect("a copy of an array", view.iter().copied(), format_args!("{} elements", view.len()))
    }

    fn as_host<'a, T: Element>(view: Self::View<'a, T>) -> Option<&'a [T]> {
        Some(view)
    }

    fn fill<T: Element>(&self, value: T, out: &mut [T]) -> Result<()> {
        for_elements(out, |_, out| out.fill(value));
        Ok(())
    }

    fn copy<T: Element>(&self, x: &[T], out: &mut [T]) -> Result<()> {
        check_length("out", out.len(), x.len())?;
        for_elements(out, |range, out| out.copy_from_slice(&x[range]));
        Ok(())
    }

    fn len<T: Element>(buffer: &CpuBuffer<T>) -> usize {
        buffer.len()
    }

    fn view<T: Element>(buffer: &CpuBuffer<T>) -> &[T] {
        buffer
    }

    fn view_mut<T: Element>(buffer: &mut CpuBuffer<T>) -> &mut [T] {
        buffer
    }

    fn slice<'a, T: Element>(view: Self::View<'a, T>, range: Range<usize>) -> Self::View<'a, T> {
        &view[range]
    }

    fn slice_mut<'a, T: Element>(view: Self::ViewMut<'a, T>, range: Range<usize>) -> Self::ViewMut<'a, T> {
        &mut view[range]
    }

    fn reborrow<'a, T: Element>(view: &'a mut Self::ViewMut<'_, T>) -> Self::ViewMut<'a, T> {
        view
    }

    fn view_len<T: Element>(view: &&[T]) -> usize {
        view.len()
    }

    fn view_mut_len<T: Element>(view: &&mut [T]) -> usize {
        view.len()
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    type Event = ();

    fn beside(&self) -> Result<Self> {
        Ok(self.clone())
    }

    fn record(&self) -> Result<()> {
        Ok(())
    }

    fn wait_for(&self, (): &()) -> Result<()> {
        Ok(())
    }

    fn reach(&self, (): &()) -> Result<()> {
        Ok(())
    }

    fn host(&self) -> Cpu<S> {
        self.clone()
    }
}
