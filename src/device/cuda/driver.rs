//! What [`Cuda`](super::Cuda) needs of the CUDA driver, through `cudarc`, which loads it at the first call: the same
//! binary runs on machines without a driver.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys;

pub use super::context::Event;
use super::context::{Context, Stream};
use super::cublas::Cublas;
use super::lost::Failure;
use super::memory::{Address, Free, Pools};
use super::watches::Watches;
use crate::error::{Error, Result};

/// One GPU's primary context and one stream on it.
#[derive(Debug)]
pub(super) struct Driver {
    blas: OnceLock<Cublas>,
    stream: Arc<Stream>,
}

impl Driver {
    /// The alignment of every block.
    pub(super) const ALIGNMENT: usize = 256;

    pub(super) fn open(ordinal: usize) -> Result<Self> {
        Driver::with_stream_of(&Context::open(ordinal)?)
    }

    fn with_stream_of(context: &Arc<Context>) -> Result<Self> {
        Ok(Driver { stream: Arc::new(Stream::new(context)?), blas: OnceLock::new() })
    }

    fn context(&self) -> &Arc<Context> {
        self.stream.context()
    }

    /// The same GPU with a stream of its own.
    pub(super) fn fork(&self) -> Result<Self> {
        Driver::with_stream_of(self.context())
    }

    pub(super) fn describe(&self) -> String {
        format!("cuda:{}, {}", self.context().ordinal(), self.context().name())
    }

    /// How many GPUs there are: one at least, where one is open.
    pub(super) fn count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: written during the call only.
        self.context().check("count GPUs", unsafe { sys::cuDeviceGetCount(&mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0).max(1))
    }

    pub(super) fn ordinal(&self) -> usize {
        self.context().ordinal()
    }

    /// What is asked while somebody waits for the device.
    pub(super) fn watches(&self) -> &Watches {
        self.context().watches()
    }

    /// Whether kernels of this device can read the memory of another one.
    pub(super) fn reaches(&self, ordinal: usize) -> Result<bool> {
        self.context().reaches(ordinal)
    }

    /// Makes the context the calling thread's; returns the stream as launchers take it.
    ///
    /// Errors: the context is lost.
    pub(super) fn bind(&self) -> Result<*mut c_void> {
        self.context().bind()?;
        Ok(self.stream.raw().cast())
    }

    /// As [`bind`](Driver::bind), before calls in which the driver may wait for whole GPUs: once no exchange is under
    /// way, which the driver would keep from ending.
    fn settle(&self) -> Result<()> {
        self.bind()?;
        self.watches().settle(|| self.bind().map(drop))
    }

    /// Likewise, before memory is given back: also when an exchange has failed, which has ended then. Whether the
    /// context is usable still.
    fn settle_or_end(&self) -> bool {
        let _ = self.settle();
        self.bind().is_ok()
    }

    /// The error to be returned for a failure that a launcher tells.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        self.context().fail(failure)
    }

    /// All pools of this GPU's memory.
    pub(super) fn pools(&self) -> &Pools {
        self.context().pools()
    }

    /// Kernels that this process has launched.
    pub(super) fn launches(&self) -> u64 {
        // SAFETY: reads a counter.
        unsafe { super::ffi::cohop_launches() }
    }

    /// Four sizes per power of two, so that batches of about the same size reuse each other's memory.
    pub(super) fn size_class(bytes: usize) -> usize {
        let step = (bytes.next_power_of_two() / 8).max(512);
        bytes.div_ceil(step) * step
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Address> {
        self.settle()?;
        let mut address = 0;
        // SAFETY: written during the call only. The memory's contents are never read before they are written, or are
        // unspecified by contract.
        let code = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
        self.context().check_with("allocate", code, || {
            let (mut free, mut total) = (0, 0);
            // SAFETY: both are written during the call only. After an error they are 0.
            let _ = unsafe { sys::cuMemGetInfo_v2(&mut free, &mut total) };
            format!(": {bytes} bytes were requested, {free} of {total} are free")
        })?;
        Ok(Address(address as *mut u8))
    }

    /// # Safety
    /// `address` came from [`allocate`](Driver::allocate), and nothing uses it any more.
    pub(super) unsafe fn free(&self, address: Address, _bytes: usize) {
        // A lost context has taken its memory along.
        if self.settle_or_end() {
            // SAFETY: the caller's promise.
            let code = unsafe { sys::cuMemFree_v2(address.0 as sys::CUdeviceptr) };
            let _ = self.context().check("free", code);
        }
    }

    /// Called when a buffer is dropped that works of this stream, and of `user`'s, may still use.
    ///
    /// # Safety
    /// None here.
    pub(super) unsafe fn retire(
        &self,
        user: &Driver,
        address: Address,
        _bytes: usize,
    ) -> Result<Option<Free>> {
        let is_shared = !Arc::ptr_eq(&self.stream, &user.stream);
        let used_until = if is_shared { Some(user.record()?) } else { None };
        Ok(Some(Free { address, used_until }))
    }

    /// Page-locked host memory at an address that is valid on both sides.
    pub(super) fn allocate_shared(&self, bytes: usize) -> Result<Address> {
        self.settle()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is written during the call only; the memory, before it is read.
        let code = unsafe { sys::cuMemHostAlloc(&mut pointer, bytes, flags) };
        self.context().check_with("allocate page-locked host memory", code, || {
            format!(": {bytes} bytes were requested")
        })?;
        Ok(Address(pointer.cast()))
    }

    /// # Safety
    /// `address` came from [`allocate_shared`](Driver::allocate_shared) and is not used any more.
    pub(super) unsafe fn free_shared(&self, address: Address, _bytes: usize) {
        if self.settle_or_end() {
            // SAFETY: the caller's promise.
            let code = unsafe { sys::cuMemFreeHost(address.0.cast()) };
            let _ = self.context().check("free page-locked host memory", code);
        }
    }

    /// Page-locks host memory, so that copies from it are asynchronous. `false` if the system refuses: then they are
    /// not.
    ///
    /// # Safety
    /// The memory stays allocated until [`unpin`](Driver::unpin).
    pub(super) unsafe fn pin(&self, memory: *mut u8, bytes: usize) -> bool {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        if self.settle().is_err() {
            return false;
        }
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuMemHostRegister_v2(memory.cast(), bytes, flags) };
        self.context().check("page-lock host memory", code).is_ok()
    }

    /// # Safety
    /// `memory` was pinned, and no copy from it is under way.
    pub(super) unsafe fn unpin(&self, memory: *mut u8) {
        if self.settle_or_end() {
            // SAFETY: the caller's promise.
            let code = unsafe { sys::cuMemHostUnregister(memory.cast()) };
            let _ = self.context().check("unlock host memory", code);
        }
    }

    /// # Safety
    /// Both hold `bytes` bytes; if `from` is page-locked, it is neither freed nor changed before the copy is done.
    pub(super) unsafe fn copy_to_device(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller's promise.
        let code = unsafe {
            sys::cuMemcpyHtoDAsync_v2(to as sys::CUdeviceptr, from.cast(), bytes, self.stream.raw())
        };
        self.context().check("copy to the device", code)
    }

    /// # Safety
    /// Both hold `bytes` bytes, and `to` is not freed before the copy is done.
    pub(super) unsafe fn copy_to_host(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        // SAFETY: the caller's promise.
        let code = unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from as sys::CUdeviceptr, bytes, self.stream.raw())
        };
        self.context().check("copy to the host", code)
    }

    /// # Safety
    /// Both hold `bytes` bytes and do not overlap.
    pub(super) unsafe fn copy_on_device(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        let (from, to) = (from as sys::CUdeviceptr, to as sys::CUdeviceptr);
        // SAFETY: the caller's promise.
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.raw()) };
        self.context().check("copy on the device", code)
    }

    /// # Safety
    /// Both hold `bytes` bytes, `from` on any GPU, and do not overlap.
    pub(super) unsafe fn copy_from_peer(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        let (from, to) = (from as sys::CUdeviceptr, to as sys::CUdeviceptr);
        // SAFETY: the caller's promise. Addresses are unified: they tell on which GPU they are.
        let code = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream.raw()) };
        self.context().check("copy from another device", code)
    }

    /// Waits for the stream.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }

    /// An event that follows all work given to the stream so far.
    pub(super) fn record(&self) -> Result<Event> {
        self.stream.record()
    }

    /// The same, with the time at which the stream passes it.
    pub(super) fn record_timed(&self) -> Result<Event> {
        self.stream.record_timed()
    }

    /// Makes all work given to the stream from now on wait for `event`.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        self.stream.wait_for(event)
    }

    /// cuBLAS on this stream, opened at the first product.
    pub(super) fn blas(&self) -> Result<&Cublas> {
        if let Some(blas) = self.blas.get() {
            return Ok(blas);
        }
        let blas = Cublas::open(&self.stream).or_else(|_| {
            // It takes memory for itself, which free blocks may hold.
            self.pools().trim()?;
            Cublas::open(&self.stream)
        })?;
        Ok(self.blas.get_or_init(|| blas))
    }
}
