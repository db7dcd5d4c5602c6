//! What [`Cuda`](super::Cuda) needs of a driver, on the CPU: device memory is host memory, and streams run at once.

use std::alloc::Layout;
use std::ffi::c_void;

use super::memory::Address;
use crate::error::{Error, Result};

/// The emulated GPU.
#[derive(Debug)]
pub(super) struct Driver;

impl Driver {
    /// The alignment of every block, as the CUDA driver promises it.
    pub(super) const ALIGNMENT: usize = 256;

    /// Blocks are freed at once, so that the address sanitizer sees a use after free.
    pub(super) const POOLED: bool = false;

    pub(super) fn open(ordinal: usize) -> Result<Self> {
        if ordinal == 0 {
            return Ok(Driver);
        }
        Err(Error::NoCudaDevice { reason: format!("number {ordinal}: the emulator has one, number 0") })
    }

    pub(super) fn fork(&self) -> Result<Self> {
        Ok(Driver)
    }

    pub(super) fn describe(&self) -> String {
        "cuda (emulated)".into()
    }

    pub(super) fn bind(&self) -> Result<*mut c_void> {
        Ok(std::ptr::null_mut())
    }

    /// Exact sizes: the address sanitizer sees an access to the first byte beyond.
    pub(super) fn size_class(bytes: usize) -> usize {
        bytes
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<Address> {
        let layout = layout(bytes);
        // SAFETY: the pool asks for at least one byte.
        let pointer = unsafe { std::alloc::alloc(layout) };
        if pointer.is_null() {
            let name = "out of memory".to_string();
            return Err(Error::Device {
                operation: "allocate",
                code: 2,
                name,
                message: format!(": {bytes} bytes"),
            });
        }
        // Makes reads of unwritten memory visible: all bits set is a NaN, and an index out of any range. SAFETY: just
        // allocated with as many bytes.
        unsafe { pointer.write_bytes(0xff, bytes) };
        Ok(Address(pointer))
    }

    /// # Safety
    /// `address` came from [`allocate`](Driver::allocate) with as many bytes, and nothing uses it any more.
    pub(super) unsafe fn free(&self, address: Address, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::dealloc(address.0, layout(bytes)) };
    }

    pub(super) fn allocate_shared(&self, bytes: usize) -> Result<Address> {
        self.allocate(bytes)
    }

    /// # Safety
    /// `address` came from [`allocate_shared`](Driver::allocate_shared) with as many bytes and is not used any more.
    pub(super) unsafe fn free_shared(&self, address: Address, bytes: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.free(address, bytes) };
    }

    /// # Safety
    /// None: there is nothing to lock.
    pub(super) unsafe fn pin(&self, _: *mut u8, _: usize) -> bool {
        true
    }

    /// # Safety
    /// As for [`pin`](Driver::pin).
    pub(super) unsafe fn unpin(&self, _: *mut u8) {}

    /// # Safety
    /// Both hold `bytes` bytes and do not overlap.
    pub(super) unsafe fn copy_to_device(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise; the device's memory is the host's.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
        Ok(())
    }

    /// # Safety
    /// As for [`copy_to_device`](Driver::copy_to_device).
    pub(super) unsafe fn copy_to_host(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_to_device(from, to, bytes) }
    }

    /// # Safety
    /// As for [`copy_to_device`](Driver::copy_to_device).
    pub(super) unsafe fn copy_on_device(&self, from: *const u8, to: *mut u8, bytes: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy_to_device(from, to, bytes) }
    }

    pub(super) fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    pub(super) fn record(&self) -> Result<Event> {
        Ok(Event)
    }

    pub(super) fn wait_for(&self, _: &Event) -> Result<()> {
        Ok(())
    }
}

/// A point in a stream that runs at once: always passed.
#[derive(Debug)]
pub struct Event;

impl Event {
    pub(super) fn is_done(&self) -> bool {
        true
    }
}

/// The layout of a block; the pool has checked its size.
fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, Driver::ALIGNMENT)
        .expect("the pool allocates less than isize::MAX / 2 bytes")
}
