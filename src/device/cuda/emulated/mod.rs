//! What [`Cuda`](super::Cuda) needs of a driver, on the CPU: several devices, whose memory is host memory, and streams
//! whose works run later (see `timeline`).
//!
//! What a device would let pass in silence shows here: memory that goes back to the pool is overwritten when the stream
//! is done with it, or freed, where the address sanitizer watches; a copy from page-locked memory reads it when the
//! copy runs, and one of other memory when it is called, as CUDA's does; page-locked memory that is unlocked before a
//! copy from it has run, or that is not whole pages, is an error, which every later call returns.

mod host_memory;
pub(super) mod nccl;
#[cfg(test)]
mod tests;
mod timeline;

use std::alloc::Layout;
use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use self::host_memory::Pending;
use self::timeline::{Clock, Lost, Mark, Stream, Work};
use super::lost::Failure;
use super::memory::{Address, Free, Pools};
use super::watches::Watches;
use crate::error::{Error, Result};

/// How many emulated GPUs there are.
const N_DEVICES: usize = 4;

/// One emulated GPU and one stream on it.
#[derive(Debug)]
pub(super) struct Driver {
    device: Arc<EmulatedDevice>,
    stream: Arc<Stream>,
    /// Where blocks end that another stream uses too.
    ends: Stream,
    /// What launchers are given: at one place as long as they may queue.
    launchers: Box<Launchers>,
}

/// What the streams of a device share that one `Cuda` has opened.
#[derive(Debug)]
struct EmulatedDevice {
    ordinal: usize,
    pools: Pools,
    /// Bytes that it has, and those that are allocated.
    memory: AtomicUsize,
    allocated: AtomicUsize,
}

impl EmulatedDevice {
    fn new(ordinal: usize) -> Self {
        let (memory, allocated) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        EmulatedDevice { ordinal, pools: Pools::default(), memory, allocated }
    }

    /// Bytes that are not allocated.
    fn free(&self) -> usize {
        self.memory.load(Ordering::Relaxed).saturating_sub(self.allocated.load(Ordering::Relaxed))
    }

    fn allocate(&self, bytes: usize) -> Result<Address> {
        let layout = layout(bytes);
        let limit = self.memory.load(Ordering::Relaxed);
        let grow = |allocated: usize| allocated.checked_add(bytes).filter(|&grown| grown <= limit);
        let is_there = self.allocated.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grow).is_ok();
        // SAFETY: the pool asks for at least one byte.
        let pointer = if is_there { unsafe { std::alloc::alloc(layout) } } else { std::ptr::null_mut() };
        if pointer.is_null() {
            if is_there {
                self.allocated.fetch_sub(bytes, Ordering::Relaxed);
            }
            let name = "out of memory".to_string();
            let message = format!(": {bytes} bytes were requested, {} are free", self.free());
            return Err(Error::Device { operation: "allocate", code: 2, name, message });
        }
        Ok(Address(pointer))
    }

    /// # Safety
    /// `address` came from [`allocate`](EmulatedDevice::allocate) with as many bytes, and nothing uses it any more.
    unsafe fn free_block(&self, address: Address, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(address.0, layout(bytes)) };
        self.allocated.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// `emulate::Stream` of `cuda/emulate/runtime.h`, and what stands behind it.
#[derive(Debug)]
#[repr(C)]
struct Launchers {
    queue: unsafe extern "C" fn(*const Launchers, *const c_char, bool, Run, Discard, *mut c_void),
    stream: Arc<Stream>,
}

type Run = unsafe extern "C" fn(*mut c_void) -> i32;
type Discard = unsafe extern "C" fn(*mut c_void);

/// A launcher's work, freed when it is dropped.
struct Launch {
    work: *mut c_void,
    run: Run,
    discard: Discard,
}

// SAFETY: a launch holds copies of its arguments and device addresses, and may run on any thread.
unsafe impl Send for Launch {}

impl Launch {
    fn run(self) -> std::result::Result<(), Lost> {
        unsafe extern "C" {
            fn cohop_emulate_message() -> *const c_char;
            fn cohop_emulate_error_name(code: i32) -> *const c_char;
        }
        // SAFETY: the launcher's promise: to be run once.
        let code = unsafe { (self.run)(self.work) };
        if code == 0 {
            return Ok(());
        }
        // SAFETY: both return text that ends with a zero; the message is this thread's, of the run above.
        let text = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
        // SAFETY: functions without conditions.
        let (name, message) = unsafe { (cohop_emulate_error_name(code), cohop_emulate_message()) };
        Err(Lost { code, name: text(name), message: text(message) })
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // SAFETY: the launcher's promise: to be freed once, run or not.
        unsafe { (self.discard)(self.work) };
    }
}

/// # Safety
/// `launchers` is that of a live driver; the others are as `emulate::Stream` describes them.
unsafe extern "C" fn queue_launch(
    launchers: *const Launchers,
    _name: *const c_char,
    is_launch: bool,
    run: Run,
    discard: Discard,
    work: *mut c_void,
) {
    let launch = Launch { work, run, discard };
    // SAFETY: the caller's promise.
    let stream = unsafe { &(*launchers).stream };
    if is_launch {
        stream.count_launch();
    }
    stream.queue(Work::Run(Box::new(move || launch.run())));
}

impl Driver {
    /// The alignment of every block, as the CUDA driver promises it.
    pub(super) const ALIGNMENT: usize = 256;

    /// Whether free blocks are kept for reuse, as on a device. Where the address sanitizer or the race detector
    /// watches, they are freed, so that a use after that is seen.
    pub(super) const POOLED: bool = matches!(env!("COHOP_EMULATE_MODE").as_bytes(), b"plain");

    pub(super) fn open(ordinal: usize) -> Result<Self> {
        if ordinal < N_DEVICES {
            let device = Arc::new(EmulatedDevice::new(ordinal));
            return Ok(Driver::with_stream(device, Stream::new(Arc::new(Clock::default()))));
        }
        let reason = format!("number {ordinal}: the emulator has {N_DEVICES}, numbered from 0");
        Err(Error::NoCudaDevice { reason })
    }

    fn with_stream(device: Arc<EmulatedDevice>, stream: Stream) -> Self {
        let (ends, stream) = (Stream::new(stream.clock().clone()), Arc::new(stream));
        let launchers = Box::new(Launchers { queue: queue_launch, stream: stream.clone() });
        Driver { device, stream, ends, launchers }
    }

    /// The same GPU with a stream of its own.
    pub(super) fn fork(&self) -> Result<Self> {
        self.bind()?;
        Ok(Driver::with_stream(self.device.clone(), Stream::new(self.stream.clock().clone())))
    }

    pub(super) fn describe(&self) -> String {
        format!("cuda:{} (emulated)", self.device.ordinal)
    }

    /// How many GPUs there are.
    pub(super) fn count(&self) -> Result<usize> {
        Ok(N_DEVICES)
    }

    pub(super) fn ordinal(&self) -> usize {
        self.device.ordinal
    }

    /// What is asked while somebody waits for the device.
    pub(super) fn watches(&self) -> &Watches {
        self.stream.clock().watches()
    }

    /// Whether kernels of this device can read the memory of another one.
    pub(super) fn reaches(&self, ordinal: usize) -> Result<bool> {
        Ok(ordinal < N_DEVICES)
    }

    /// The stream as launchers take it.
    pub(super) fn bind(&self) -> Result<*mut c_void> {
        self.stream.clock().check("use the device")?;
        Ok((&raw const *self.launchers).cast_mut().cast())
    }

    /// The error to be returned for a failure that a launcher tells.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        failure.into_error()
    }

    /// All pools of this device's memory.
    pub(super) fn pools(&self) -> &Pools {
        &self.device.pools
    }

    /// From now on the device has so many bytes.
    #[cfg(test)]
    fn limit_memory(&self, bytes: usize) {
        self.device.memory.store(bytes, Ordering::Relaxed);
    }

    /// Kernels launched in this stream.
    pub(super) fn launches(&self) -> u64 {
        self.stream.launches()
    }

    /// As on a device where memory is pooled; else exact sizes: the address sanitizer sees an access to the first byte
    /// beyond.
    pub(super) fn size_class(bytes: usize) -> usize {
        if Driver::POOLED { bytes.next_multiple_of(512) } else { bytes }
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Address> {
        self.bind()?;
        let address = self.device.allocate(bytes)?;
        // SAFETY: just allocated with as many bytes.
        unsafe { poison(address, bytes) };
        Ok(address)
    }

    /// # Safety
    /// `address` came from [`allocate`](Driver::allocate) with as many bytes, and nothing uses it any more.
    pub(super) unsafe fn free(&self, address: Address, bytes: usize) {
        // The block may still be to be overwritten. An error is told by the next call.
        let _ = self.ends.wait();
        // SAFETY: the caller's promise.
        unsafe { self.device.free_block(address, bytes) };
    }

    /// Called when a buffer is dropped that works of this stream, and of `user`'s, may still use. `None`: the block is
    /// freed when they have run.
    ///
    /// # Safety
    /// `address` came from [`allocate`](Driver::allocate) with as many bytes, and nothing uses it that is queued from
    /// now on, unless the block is used again.
    pub(super) unsafe fn retire(
        &self,
        user: &Driver,
        address: Address,
        bytes: usize,
    ) -> Result<Option<Free>> {
        let is_shared = !Arc::ptr_eq(&self.stream, &user.stream);
        // Blocks that two streams use end in a third, so that neither waits for the other.
        let last = if is_shared { &self.ends } else { &*self.stream };
        if is_shared {
            last.queue(Work::WaitFor(self.stream.mark()));
            last.queue(Work::WaitFor(user.stream.mark()));
        }
        let device = self.device.clone();
        last.queue(Work::CleanUp(Box::new(move || {
            let address = address;
            // SAFETY: the caller's promise; the streams have passed what used the block.
            unsafe {
                if Driver::POOLED {
                    poison(address, bytes);
                } else {
                    device.free_block(address, bytes);
                }
            }
        })));
        let used_until = is_shared.then(|| Event(last.mark(), last.clock().clone()));
        Ok(Driver::POOLED.then_some(Free { address, used_until }))
    }

    pub(super) fn allocate_shared(&self, bytes: usize) -> Result<Address> {
        let address = self.allocate(bytes)?;
        host_memory::lock(address.0, bytes);
        Ok(address)
    }

    /// # Safety
    /// `address` came from [`allocate_shared`](Driver::allocate_shared) with as many bytes and is not used any more.
    pub(super) unsafe fn free_shared(&self, address: Address, bytes: usize) {
        // SAFETY: the caller's promises.
        unsafe {
            self.unpin(address.0);
            self.free(address, bytes);
        }
    }

    /// Page-locks host memory, so that copies from it are asynchronous.
    ///
    /// # Safety
    /// The memory stays allocated until [`unpin`](Driver::unpin).
    pub(super) unsafe fn pin(&self, memory: *mut u8, bytes: usize) -> bool {
        if !host_memory::is_whole_pages(memory, bytes) {
            self.stream.clock().lose(Lost {
                code: 1,
                name: "invalid value".into(),
                message: format!(
                    "{bytes} bytes at {memory:?} were to be page-locked, which are not whole pages"
                ),
            });
            return false;
        }
        host_memory::lock(memory, bytes)
    }

    /// # Safety
    /// `memory` was pinned, and no copy from it is under way.
    pub(super) unsafe fn unpin(&self, memory: *mut u8) {
        if !host_memory::unlock(memory) {
            self.stream.clock().lose(Lost {
                code: 1,
                name: "invalid value".into(),
                message: "page-locked memory was unlocked before a copy from or to it had run".into(),
            });
        }
    }

    /// # Safety
    /// Both hold `bytes` bytes; if `from` is page-locked, it is neither freed nor changed before the copy is done.
    pub(super) unsafe fn copy_to_device(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        self.bind()?;
        if let Some(pending) = Pending::new(from, bytes) {
            // SAFETY: the caller's promise.
            unsafe { self.queue_copy(from, to, bytes, Some(pending)) };
        } else {
            // SAFETY: the caller's promise. CUDA takes what is not page-locked before it returns.
            let taken = unsafe { std::slice::from_raw_parts(from, bytes) }.to_vec();
            let to = Address(to);
            self.stream.queue(Work::Run(Box::new(move || {
                let to = to;
                // SAFETY: the caller's promise.
                unsafe { std::ptr::copy_nonoverlapping(taken.as_ptr(), to.0, taken.len()) };
                Ok(())
            })));
        }
        Ok(())
    }

    /// # Safety
    /// Both hold `bytes` bytes, and `to` is not freed before the copy is done.
    pub(super) unsafe fn copy_to_host(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        self.bind()?;
        let pending = Pending::new(to, bytes);
        let is_locked = pending.is_some();
        // SAFETY: the caller's promise.
        unsafe { self.queue_copy(from, to, bytes, pending) };
        // CUDA returns when memory that is not page-locked has been written.
        if is_locked { Ok(()) } else { self.stream.wait() }
    }

    /// # Safety
    /// Both hold `bytes` bytes and do not overlap.
    pub(super) unsafe fn copy_on_device(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's promise.
        unsafe { self.queue_copy(from, to, bytes, None) };
        Ok(())
    }

    /// # Safety
    /// Both hold `bytes` bytes, `from` on any GPU, and do not overlap.
    pub(super) unsafe fn copy_from_peer(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_on_device(from, to, bytes) }
    }

    /// # Safety
    /// Both hold `bytes` bytes until the copy has run.
    unsafe fn queue_copy(&self, from: *const u8, to: *mut u8, bytes: usize, pending: Option<Pending>) {
        let (from, to) = (Address(from.cast_mut()), Address(to));
        self.stream.queue(Work::Run(Box::new(move || {
            let (from, to, _pending) = (from, to, pending);
            // SAFETY: the caller's promise; the device's memory is the host's.
            unsafe { std::ptr::copy(from.0, to.0, bytes) };
            Ok(())
        })));
    }

    /// Queues what a library of CUDA's would do on the device, as work of the host.
    pub(super) fn queue(&self, work: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
        self.bind()?;
        self.stream.queue(Work::Run(Box::new(move || {
            work().map_err(|error| Lost { code: 1, name: "invalid value".into(), message: error.to_string() })
        })));
        Ok(())
    }

    /// Waits for the stream.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.stream.wait()
    }

    /// An event that follows all work given to the stream so far.
    pub(super) fn record(&self) -> Result<Event> {
        self.bind()?;
        Ok(Event(self.stream.mark(), self.stream.clock().clone()))
    }

    /// The same: every event here has its time.
    pub(super) fn record_timed(&self) -> Result<Event> {
        self.record()
    }

    /// Makes all work given to the stream from now on wait for `event`.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        self.bind()?;
        self.stream.queue(Work::WaitFor(event.0.clone()));
        Ok(())
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event(Arc<Mark>, Arc<Clock>);

impl Event {
    /// Whether the stream has passed it.
    pub(super) fn is_done(&self) -> bool {
        self.0.is_passed()
    }

    /// Waits until the stream has passed it.
    pub(super) fn reach(&self) -> Result<()> {
        self.1.reach(&self.0)
    }

    /// Seconds of the host's clock from this event to `end`, both passed.
    pub(super) fn seconds_until(&self, end: &Event) -> Result<f64> {
        self.0.seconds_until(&end.0).ok_or_else(|| Error::Device {
            operation: "read the time between events",
            code: 600,
            name: "not ready".into(),
            message: String::new(),
        })
    }
}

/// Makes reads of memory that nothing has written since visible: all bits set is a NaN, and an index out of any range.
///
/// # Safety
/// `address` is that of as many bytes.
unsafe fn poison(address: Address, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { address.0.write_bytes(0xff, bytes) };
}

/// The layout of a block; the pool has checked its size.
fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, Driver::ALIGNMENT)
        .expect("the pool allocates less than isize::MAX / 2 bytes")
}
