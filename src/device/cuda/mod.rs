//! The CUDA device: hand-written kernels (`cuda/*.cu`) on one GPU, in streams.
//!
//! Kernels are queued on the device's stream and run asynchronously. A kernel that meets an index out of range skips it
//! and records it in a status word, which [`Storage::download`] and [`Storage::synchronize`] check after they have
//! waited for the stream: they return the error, with the array's name, the position and the value.
//!
//! With the feature `emulate` the same kernels run on the CPU, thread by thread (`cuda/emulate/`): a test bed, not a
//! product. [`Cuda`] is the same in both builds; only `driver` differs.

mod activity;
mod attention;
mod batch_norm;
mod elementwise;
mod exchange;
// The whole interface is bound, used or not.
#[allow(dead_code)]
mod ffi;
mod gather;
mod gemm;
#[cfg(any(test, not(feature = "emulate")))]
pub(crate) mod library;
mod link;
mod loss;
mod lost;
mod memory;
mod narrow;
mod optimizer;
mod relation;
mod sample;
mod sddmm;
#[cfg(any(test, not(feature = "emulate")))]
mod shared;
mod spmm;
mod structure;
#[cfg(any(test, not(feature = "emulate")))]
mod support;
#[cfg(test)]
pub(crate) mod tests;
mod watches;

#[cfg(not(feature = "emulate"))]
mod context;
#[cfg(not(feature = "emulate"))]
mod cublas;
#[cfg(not(feature = "emulate"))]
#[path = "driver.rs"]
mod driver;
#[cfg(feature = "emulate")]
#[path = "emulated/mod.rs"]
mod driver;

#[cfg(feature = "emulate")]
use driver::nccl;
#[cfg(all(feature = "cuda", not(feature = "emulate")))]
mod nccl;

use std::any::Any;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, PoisonError};

use crate::device::cpu::PageLock;
use crate::device::{Cpu, CpuBuffer, Dtype, Element, FeatureElement, Precision, Scalar, Storage, Write};
use crate::error::{Result, check_length};

pub use activity::Activity;
use activity::Counters;
use driver::Driver;
pub use driver::Event;
pub use link::Link;
use lost::Failure;
pub use memory::{CudaBuffer, CudaView, CudaViewMut};
use memory::{Pool, Status};
pub use relation::GroupsByRow;
pub use sample::CudaGraph;

/// A CUDA device, computing in `f32` or `f64`. Clones share its memory pool and its stream.
///
/// Some errors lose the device: an access to a wrong address, say. Then every later call returns the first of them, on
/// all that this process has opened on the same GPU.
pub struct Cuda<S: Scalar = f32> {
    queue: Arc<Queue>,
    precision: Precision,
    scalar: PhantomData<S>,
}

/// A stream, its memory, and what its kernels report.
struct Queue {
    pool: Arc<Pool>,
    status: Status,
    counters: Counters,
    /// Host buffers that are being copied from, and the events that mark the ends of the copies.
    in_flight: Mutex<Vec<(Event, Box<dyn Any + Send>)>>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        // Copies in progress still read the host buffers, which are freed next.
        let _ = self.pool.driver().synchronize();
    }
}

impl<S: Scalar> Cuda<S> {
    /// Opens the GPU number `ordinal`.
    ///
    /// Errors: there is no NVIDIA driver or no such GPU ([`Error::NoCudaDevice`]), or the GPU fails.
    pub fn new(ordinal: usize) -> Result<Self> {
        let driver = Arc::new(Driver::open(ordinal)?);
        Self::with_pool(Pool::new(driver.clone(), driver))
    }

    fn with_pool(pool: Arc<Pool>) -> Result<Self> {
        let status = Status::new(pool.driver())?;
        let queue = Queue { pool, status, counters: Counters::default(), in_flight: Mutex::default() };
        Ok(Cuda { queue: Arc::new(queue), precision: Precision::F32, scalar: PhantomData })
    }

    /// What this device and its clones have been asked to do since it was opened; what runs
    /// [`beside`](Storage::beside) it counts for itself.
    pub fn activity(&self) -> Activity {
        self.queue.counters.activity(self.driver().launches())
    }

    /// Seconds that the device is at what `work` asks it for, by two events of its stream, one before and one after:
    /// what the host does meanwhile counts only where the device waits for it. What ran before is not counted, and the
    /// work is done when this returns.
    ///
    /// A launch takes the host some microseconds, so that a short kernel is timed by many launches in one `work`. On
    /// the emulator the clock is the host's.
    ///
    /// Errors: those of `work`, or the device fails.
    pub fn time(&self, work: impl FnOnce() -> Result<()>) -> Result<f64> {
        self.synchronize()?;
        let begin = self.driver().record_timed()?;
        work()?;
        let end = self.driver().record_timed()?;
        self.synchronize()?;
        begin.seconds_until(&end)
    }

    fn driver(&self) -> &Arc<Driver> {
        self.queue.pool.driver()
    }

    /// The stream for launchers. Makes the device current on the calling thread.
    fn stream(&self) -> Result<*mut c_void> {
        self.driver().bind()
    }

    /// The error that a launcher's code stands for.
    fn check(&self, operation: &'static str, code: i32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        // SAFETY: both functions return null or text that ends with a zero and is valid until this thread's next
        // call, and `text` copies it.
        let (name, message) =
            unsafe { (text(ffi::cohop_error_name(code)), text(ffi::cohop_error_message(code))) };
        let message = if message.is_empty() { message } else { format!(": {message}") };
        Err(self.driver().fail(Failure { operation, code, name, message }))
    }

    /// Where kernels report indices out of range.
    fn status(&self) -> *mut ffi::cohop_status {
        self.queue.status.pointer()
    }

    /// A copy of `host`, which is held until it is done.
    fn copy_and_hold<T: Element>(
        &self,
        host: impl Deref<Target = [T]> + Send + 'static,
    ) -> Result<CudaBuffer<T>> {
        self.stream()?;
        let buffer = self.scratch::<T>(host.len())?;
        let bytes = size_of_val(&host[..]);
        // SAFETY: both hold as many elements; the host's memory is held until the copy is done.
        unsafe { self.driver().copy_to_device(host.as_ptr().cast(), buffer.pointer().cast(), bytes)? };
        self.queue.counters.copy_to_device(bytes);
        let done = self.driver().record()?;
        let mut in_flight = self.queue.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        in_flight.retain(|(done, _)| !done.is_done());
        in_flight.push((done, Box::new(host)));
        Ok(buffer)
    }

    /// Device memory for a kernel's own use, given back when dropped.
    fn scratch<T: Element>(&self, len: usize) -> Result<CudaBuffer<T>> {
        // The pool may have a block, though the device is lost.
        self.stream()?;
        self.queue.pool.allocate(len)
    }
}

/// The text at `pointer`; empty if it is null.
///
/// # Safety
/// `pointer` is null or points to text that ends with a zero.
unsafe fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

/// A launcher's name for a floating-point type.
const fn dtype<T: FeatureElement>() -> ffi::cohop_dtype {
    match T::DTYPE {
        Dtype::F16 => ffi::cohop_dtype::COHOP_F16,
        Dtype::Bf16 => ffi::cohop_dtype::COHOP_BF16,
        Dtype::F32 => ffi::cohop_dtype::COHOP_F32,
        Dtype::F64 => ffi::cohop_dtype::COHOP_F64,
    }
}

/// Whether a launcher adds.
fn adds(write: Write) -> bool {
    write == Write::Add
}

impl<S: Scalar> Clone for Cuda<S> {
    fn clone(&self) -> Self {
        Cuda { queue: self.queue.clone(), ..*self }
    }
}

impl<S: Scalar> std::fmt::Debug for Cuda<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.describe())
    }
}

impl<S: Scalar> Storage for Cuda<S> {
    type Scalar = S;
    type Buffer<T: Element> = CudaBuffer<T>;
    type View<'a, T: Element> = CudaView<'a, T>;
    type ViewMut<'a, T: Element> = CudaViewMut<'a, T>;

    fn describe(&self) -> String {
        format!("{}, {}", self.driver().describe(), std::any::type_name::<S>())
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn with_precision(self, precision: Precision) -> Self {
        Cuda { precision, ..self }
    }

    fn allocate<T: Element>(&self, len: usize) -> Result<CudaBuffer<T>> {
        self.scratch(len)
    }

    fn upload<T: Element>(&self, host: &[T]) -> Result<CudaBuffer<T>> {
        self.stream()?;
        let buffer = self.scratch::<T>(host.len())?;
        // SAFETY: both hold `host.len()` elements. The slice may be page-locked memory, whose copy is asynchronous: the
        // copy is waited for, as the slice may be freed after this call.
        unsafe {
            self.driver().copy_to_device(host.as_ptr().cast(), buffer.pointer().cast(), size_of_val(host))?;
        }
        self.queue.counters.copy_to_device(size_of_val(host));
        self.queue.counters.wait();
        self.driver().synchronize()?;
        Ok(buffer)
    }

    fn upload_to_host<T: Element>(&self, host: &[T]) -> Result<CudaBuffer<T>> {
        self.stream()?;
        self.queue.pool.upload_shared(host)
    }

    fn send<T: Element>(&self, host: Vec<T>) -> Result<CudaBuffer<T>> {
        self.copy_and_hold(host)
    }

    fn adopt<T: Element>(&self, host: CpuBuffer<T>) -> Result<CudaBuffer<T>> {
        self.copy_and_hold(host)
    }

    fn download<T: Element>(&self, view: CudaView<'_, T>) -> Result<Vec<T>> {
        self.stream()?;
        let mut host = vec![T::zeroed(); view.len()];
        // SAFETY: both hold `view.len()` elements, and `host` lives until the copy is done.
        unsafe {
            self.driver().copy_to_host(
                view.pointer().cast(),
                host.as_mut_ptr().cast(),
                size_of_val(&host[..]),
            )?;
        }
        self.queue.counters.copy_to_host(size_of_val(&host[..]));
        self.synchronize()?;
        Ok(host)
    }

    fn as_host<'a, T: Element>(_: Self::View<'a, T>) -> Option<&'a [T]> {
        None
    }

    fn fill<T: Element>(&self, value: T, out: CudaViewMut<'_, T>) -> Result<()> {
        let (stream, from) = (self.stream()?, (&raw const value).cast());
        let bytes = size_of::<T>() as u32;
        // SAFETY: `out` is exclusive and holds `out.len()` elements of that many bytes.
        let code = unsafe { ffi::cohop_fill(bytes, from, out.len() as u64, out.pointer().cast(), stream) };
        self.check("fill", code)
    }

    fn copy<T: Element>(&self, x: CudaView<'_, T>, out: CudaViewMut<'_, T>) -> Result<()> {
        check_length("out", out.len(), x.len())?;
        self.stream()?;
        let bytes = x.len() * size_of::<T>();
        // SAFETY: both hold `x.len()` elements, and `out` is exclusive, so they do not overlap.
        unsafe { self.driver().copy_on_device(x.pointer().cast(), out.pointer().cast(), bytes) }
    }

    fn len<T: Element>(buffer: &CudaBuffer<T>) -> usize {
        buffer.len()
    }

    fn view<T: Element>(buffer: &CudaBuffer<T>) -> CudaView<'_, T> {
        buffer.view()
    }

    fn view_mut<T: Element>(buffer: &mut CudaBuffer<T>) -> CudaViewMut<'_, T> {
        buffer.view_mut()
    }

    fn slice<'a, T: Element>(view: Self::View<'a, T>, range: Range<usize>) -> Self::View<'a, T> {
        view.slice(range)
    }

    fn slice_mut<'a, T: Element>(view: Self::ViewMut<'a, T>, range: Range<usize>) -> Self::ViewMut<'a, T> {
        view.slice(range)
    }

    fn reborrow<'a, T: Element>(view: &'a mut Self::ViewMut<'_, T>) -> Self::ViewMut<'a, T> {
        view.reborrow()
    }

    fn view_len<T: Element>(view: &CudaView<'_, T>) -> usize {
        view.len()
    }

    fn view_mut_len<T: Element>(view: &CudaViewMut<'_, T>) -> usize {
        view.len()
    }

    fn synchronize(&self) -> Result<()> {
        self.stream()?;
        self.queue.counters.wait();
        self.driver().synchronize()?;
        self.queue.status.check()
    }

    type Event = Event;

    fn beside(&self) -> Result<Self> {
        let driver = Arc::new(self.driver().fork()?);
        let beside = Self::with_pool(Pool::new(driver, self.driver().clone()))?;
        Ok(beside.with_precision(self.precision))
    }

    fn record(&self) -> Result<Event> {
        self.stream()?;
        self.driver().record()
    }

    fn wait_for(&self, event: &Event) -> Result<()> {
        self.stream()?;
        self.driver().wait_for(event)
    }

    fn reach(&self, event: &Event) -> Result<()> {
        self.stream()?;
        self.queue.counters.wait_for_event();
        event.reach()
    }

    fn host(&self) -> Cpu<S> {
        Cpu::page_locked(self.driver().clone())
    }
}

impl PageLock for Driver {
    unsafe fn lock(&self, memory: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.pin(memory, bytes) }
    }

    unsafe fn unlock(&self, memory: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.unpin(memory) };
    }
}
