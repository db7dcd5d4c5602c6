//! What [`Cuda`](super::Cuda) needs of the CUDA driver, through `cudarc`, which loads it at the first call: the same
//! binary runs on machines without a driver.

use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

use cudarc::cublas::CudaBlas;
use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, result, sys};

use super::memory::{Address, Free};
use crate::error::{Error, Result};

/// One GPU's primary context and one stream on it.
#[derive(Debug)]
pub(super) struct Driver {
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    name: String,
    blas: OnceLock<CudaBlas>,
}

impl Driver {
    /// The alignment of every block.
    pub(super) const ALIGNMENT: usize = 256;

    pub(super) fn open(ordinal: usize) -> Result<Self> {
        // cudarc panics if it cannot open the driver's library.
        // SAFETY: looks for a library and closes it again.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoCudaDevice { reason: "no NVIDIA driver (libcuda) on this machine".into() });
        }
        let none =
            |error: DriverError| Error::NoCudaDevice { reason: format!("number {ordinal}: {}", name(error)) };
        // The primary context, which is also the one that launchers use.
        let context = CudaContext::new(ordinal).map_err(none)?;
        let stream = context.new_stream().map_err(device_error("create a stream"))?;
        let name = context.name().map_err(device_error("query the name"))?;
        Ok(Driver { context, stream, name, blas: OnceLock::new() })
    }

    /// The same GPU with a stream of its own.
    pub(super) fn fork(&self) -> Result<Self> {
        let stream = self.context.new_stream().map_err(device_error("create a stream"))?;
        Ok(Driver { context: self.context.clone(), stream, name: self.name.clone(), blas: OnceLock::new() })
    }

    pub(super) fn describe(&self) -> String {
        format!("cuda:{}, {}", self.context.ordinal(), self.name)
    }

    /// Makes the context the calling thread's; returns the stream as launchers take it.
    pub(super) fn bind(&self) -> Result<*mut c_void> {
        self.context.bind_to_thread().map_err(device_error("use the device"))?;
        Ok(self.stream.cu_stream().cast())
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
        self.bind()?;
        // SAFETY: the memory's contents are never read before they are written, or are unspecified by contract.
        let address = unsafe { result::malloc_sync(bytes) };
        let address = address.map_err(|error| {
            let (free, total) = result::mem_get_info().unwrap_or_default();
            let message = format!(": {bytes} bytes were requested, {free} of {total} are free");
            Error::Device { operation: "allocate", code: error.0 as i32, name: name(error), message }
        })?;
        Ok(Address(address as *mut u8))
    }

    /// # Safety
    /// `address` came from [`allocate`](Driver::allocate), and nothing uses it any more.
    pub(super) unsafe fn free(&self, address: Address, _bytes: usize) {
        // SAFETY: the caller's promise. An error means that the context is lost, and its memory with it.
        let _ = self.bind().map(|_| unsafe { result::free_sync(address.0 as sys::CUdeviceptr) });
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
        self.bind()?;
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: written before it is read.
        let pointer = unsafe { result::malloc_host(bytes, flags) };
        let pointer = pointer.map_err(|error| Error::Device {
            operation: "allocate page-locked host memory",
            code: error.0 as i32,
            name: name(error),
            message: format!(": {bytes} bytes were requested"),
        })?;
        Ok(Address(pointer.cast()))
    }

    /// # Safety
    /// `address` came from [`allocate_shared`](Driver::allocate_shared) and is not used any more.
    pub(super) unsafe fn free_shared(&self, address: Address, _bytes: usize) {
        // SAFETY: the caller's promise. An error means that the context is lost.
        let _ = self.bind().map(|_| unsafe { result::free_host(address.0.cast()) });
    }

    /// Page-locks host memory, so that copies from it are asynchronous. `false` if the system refuses: then they are
    /// not.
    ///
    /// # Safety
    /// The memory stays allocated until [`unpin`](Driver::unpin).
    pub(super) unsafe fn pin(&self, memory: *mut u8, bytes: usize) -> bool {
        let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
        // SAFETY: the caller's promise.
        self.bind().is_ok()
            && unsafe { sys::cuMemHostRegister_v2(memory.cast(), bytes, flags) }.result().is_ok()
    }

    /// # Safety
    /// `memory` was pinned, and no copy from it is under way.
    pub(super) unsafe fn unpin(&self, memory: *mut u8) {
        // SAFETY: the caller's promise. An error means that the context is lost.
        let _ = self.bind().map(|_| unsafe { sys::cuMemHostUnregister(memory.cast()) });
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
            sys::cuMemcpyHtoDAsync_v2(to as sys::CUdeviceptr, from.cast(), bytes, self.stream.cu_stream())
        };
        code.result().map_err(device_error("copy to the device"))
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
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from as sys::CUdeviceptr, bytes, self.stream.cu_stream())
        };
        code.result().map_err(device_error("copy to the host"))
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
        let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, self.stream.cu_stream()) };
        code.result().map_err(device_error("copy on the device"))
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
        let code = unsafe { sys::cuMemcpyAsync(to, from, bytes, self.stream.cu_stream()) };
        code.result().map_err(device_error("copy from another device"))
    }

    /// Waits for the stream.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.bind()?;
        self.stream.synchronize().map_err(device_error("wait for the device"))
    }

    /// An event that follows all work given to the stream so far.
    pub(super) fn record(&self) -> Result<Event> {
        self.stream.record_event(None).map(Event).map_err(device_error("record an event"))
    }

    /// The same, with the time at which the stream passes it.
    pub(super) fn record_timed(&self) -> Result<Event> {
        let flags = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
        self.stream.record_event(flags).map(Event).map_err(device_error("record an event"))
    }

    /// Makes all work given to the stream from now on wait for `event`.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        self.stream.wait(&event.0).map_err(device_error("wait for an event"))
    }

    /// cuBLAS on this stream, opened at the first product.
    pub(super) fn blas(&self) -> Result<&CudaBlas> {
        if let Some(blas) = self.blas.get() {
            return Ok(blas);
        }
        // As with the driver, cudarc would panic. SAFETY: looks for a library and closes it again.
        if !unsafe { cudarc::cublas::sys::is_culib_present() } {
            let remedy = "install cuBLAS 13 where the dynamic linker finds it (libcublas.so)".into();
            return Err(Error::Unavailable { what: "cuBLAS".into(), remedy });
        }
        let blas = CudaBlas::new(self.stream.clone()).map_err(|error| Error::Device {
            operation: "open cuBLAS",
            code: error.0 as i32,
            name: format!("{:?}", error.0),
            message: String::new(),
        })?;
        Ok(self.blas.get_or_init(|| blas))
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event(CudaEvent);

impl Event {
    /// Whether the stream has passed it.
    pub(super) fn is_done(&self) -> bool {
        self.0.is_complete()
    }

    /// Seconds from this event to `end`, both [timed](Driver::record_timed). Waits for them.
    pub(super) fn seconds_until(&self, end: &Event) -> Result<f64> {
        let milliseconds = self.0.elapsed_ms(&end.0).map_err(device_error("read the time between events"))?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

fn name(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned())
}

/// The error of an operation.
fn device_error(operation: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| {
        let text = error.error_string().map(|text| format!(": {}", text.to_string_lossy()));
        Error::Device {
            operation,
            code: error.0 as i32,
            name: name(error),
            message: text.unwrap_or_default(),
        }
    }
}
