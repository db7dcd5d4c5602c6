//! Device memory: buffers from a pool, views of them, and the status word in which kernels report.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::driver::{Driver, Event};
use super::ffi;
use crate::device::{Element, buffer_bytes};
use crate::error::{Error, Result};

/// An address in device memory, or in host memory that both sides reach.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address(pub *mut u8);

// SAFETY: an address is a number; what is behind it is accessed by the device, in stream order.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

/// Free blocks by size, so that only the first step allocates memory from the driver.
///
/// A pool belongs to the stream of `driver`. Where that stream also uses the blocks, a free block may be reused at
/// once: new work is queued behind the work that may still use it. The blocks of a stream that uploads are used by
/// another stream, `user`; then a free block has an event of `user`, to be waited for before it is reused.
#[derive(Debug)]
pub(super) struct Pool {
    driver: Arc<Driver>,
    user: Arc<Driver>,
    free: Mutex<HashMap<usize, Vec<Free>>>,
}

/// A block that works of its pool's stream may use, once the event is passed if there is one.
#[derive(Debug)]
pub(super) struct Free {
    pub(super) address: Address,
    pub(super) used_until: Option<Event>,
}

/// The pools of all streams of a GPU, in this process.
#[derive(Debug, Default)]
pub(super) struct Pools(Mutex<Vec<Weak<Pool>>>);

impl Pools {
    fn add(&self, pool: &Arc<Pool>) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    /// Gives the free blocks of all pools back to the driver, after waiting for work that may still use them.
    ///
    /// Errors: the device has failed.
    pub(super) fn trim(&self) -> Result<()> {
        let pools = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let pools: Vec<_> = pools.iter().filter_map(Weak::upgrade).collect();
        trim(&pools.iter().map(|pool| &**pool).collect::<Vec<_>>())
    }
}

/// Gives all free blocks of pools of one GPU back to the driver. All their streams are waited for first: the driver
/// itself may wait for the whole GPU when it frees, and looks at nothing meanwhile.
fn trim(pools: &[&Pool]) -> Result<()> {
    // Taken before the device is waited for: blocks that come back meanwhile may still be in use.
    let taken: Vec<_> = pools.iter().map(|pool| std::mem::take(&mut *pool.free())).collect();
    let is_idle = pools.iter().try_for_each(|pool| {
        pool.user.synchronize()?;
        pool.driver.synchronize()
    });
    for (pool, taken) in pools.iter().zip(taken) {
        for (bytes, mut blocks) in taken {
            if is_idle.is_err() {
                pool.free().entry(bytes).or_default().append(&mut blocks);
            }
            for Free { address, .. } in blocks {
                // SAFETY: the block came from `allocate` with as many bytes, nobody owns it, and the device is idle.
                unsafe { pool.driver.free(address, bytes) };
            }
        }
    }
    is_idle
}

/// The driver's code for memory that it does not have.
const OUT_OF_MEMORY: i32 = 2;

impl Pool {
    pub(super) fn new(driver: Arc<Driver>, user: Arc<Driver>) -> Arc<Self> {
        let pool = Arc::new(Pool { driver, user, free: Mutex::default() });
        pool.driver.pools().add(&pool);
        pool
    }

    pub(super) fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// A buffer with unspecified contents.
    pub(super) fn allocate<T: Element>(self: &Arc<Self>, len: usize) -> Result<CudaBuffer<T>> {
        let bytes = buffer_bytes::<T>(len)?;
        let bytes = Driver::size_class(bytes);
        let reused = self.free().get_mut(&bytes).and_then(Vec::pop);
        let address = match reused {
            Some(Free { address, used_until }) => {
                if let Some(event) = used_until {
                    self.driver.wait_for(&event)?;
                }
                address
            }
            None if bytes == 0 => Address(std::ptr::without_provenance_mut(Driver::ALIGNMENT)),
            None => self.driver.allocate(bytes).or_else(|error| match error {
                // Free blocks of other sizes and streams may hold the memory that is missing.
                Error::Device { code: OUT_OF_MEMORY, .. } => {
                    self.driver.pools().trim()?;
                    self.driver.allocate(bytes)
                }
                error => Err(error),
            })?,
        };
        Ok(CudaBuffer { address, len, bytes, place: Place::Device, pool: self.clone(), element: PhantomData })
    }

    /// A buffer in host memory that kernels can access too, with the elements of `host`.
    pub(super) fn upload_shared<T: Element>(self: &Arc<Self>, host: &[T]) -> Result<CudaBuffer<T>> {
        let (len, bytes) = (host.len(), size_of_val(host));
        if bytes == 0 {
            return self.allocate(len);
        }
        let address = self.driver.allocate_shared(bytes)?;
        // SAFETY: both hold as many bytes; no kernel has the new memory yet.
        unsafe { std::ptr::copy_nonoverlapping(host.as_ptr().cast(), address.0, bytes) };
        Ok(CudaBuffer { address, len, bytes, place: Place::Host, pool: self.clone(), element: PhantomData })
    }

    /// Frees what [`upload_shared`](Pool::upload_shared) allocated, after waiting for work that may still use it.
    fn free_shared(&self, address: Address, bytes: usize) {
        let is_idle =
            self.driver.bind().and_then(|_| self.user.synchronize()).and_then(|()| self.driver.synchronize());
        // If the device was lost, a kernel may still use the memory: it is not freed.
        if is_idle.is_ok() {
            // SAFETY: allocated by `allocate_shared` with as many bytes, nobody owns it, and the device is idle.
            unsafe { self.driver.free_shared(address, bytes) };
        }
    }

    fn take_back(&self, address: Address, bytes: usize) {
        if bytes == 0 {
            return;
        }
        // SAFETY: the block came from `allocate` with as many bytes, and its only owner is gone.
        let retired = unsafe { self.driver.retire(&self.user, address, bytes) };
        // An error: the context is lost, and the memory with it.
        let Ok(Some(free)) = retired else { return };
        self.free().entry(bytes).or_default().push(free);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Vec<Free>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // If the device was lost, there is nothing to give back.
        let _ = trim(&[self]);
    }
}

/// Where a buffer's memory is.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Device,
    /// Page-locked, and read by kernels through the bus.
    Host,
}

/// Owned memory that a CUDA device reaches.
pub struct CudaBuffer<T> {
    address: Address,
    len: usize,
    bytes: usize,
    place: Place,
    pool: Arc<Pool>,
    element: PhantomData<T>,
}

impl<T> CudaBuffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all elements but the first `len`; their memory stays with the buffer.
    pub(super) fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    pub(super) fn view(&self) -> CudaView<'_, T> {
        CudaView { address: self.address, len: self.len, lifetime: PhantomData }
    }

    pub(super) fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        CudaViewMut { address: self.address, len: self.len, lifetime: PhantomData }
    }

    /// The memory, to be handed to a kernel.
    pub(super) fn pointer(&self) -> *mut T {
        self.address.0.cast()
    }
}

impl<T> Drop for CudaBuffer<T> {
    fn drop(&mut self) {
        match self.place {
            Place::Device => self.pool.take_back(self.address, self.bytes),
            Place::Host => self.pool.free_shared(self.address, self.bytes),
        }
    }
}

impl<T> std::fmt::Debug for CudaBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CudaBuffer[{} x {}]", self.len, std::any::type_name::<T>())
    }
}

/// A shared view of device memory: an address, a length and a lifetime.
pub struct CudaView<'a, T> {
    address: Address,
    len: usize,
    lifetime: PhantomData<&'a [T]>,
}

impl<T> Clone for CudaView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for CudaView<'_, T> {}

impl<T> CudaView<'_, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn pointer(&self) -> *const T {
        self.address.0.cast()
    }

    pub(super) fn slice(self, range: Range<usize>) -> Self {
        let (address, len) = part::<T>(self.address, self.len, range);
        CudaView { address, len, ..self }
    }
}

/// An exclusive view of device memory.
pub struct CudaViewMut<'a, T> {
    address: Address,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

impl<T> CudaViewMut<'_, T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn pointer(&self) -> *mut T {
        self.address.0.cast()
    }

    pub(super) fn slice(self, range: Range<usize>) -> Self {
        let (address, len) = part::<T>(self.address, self.len, range);
        CudaViewMut { address, len, ..self }
    }

    pub(super) fn reborrow(&mut self) -> CudaViewMut<'_, T> {
        CudaViewMut { address: self.address, len: self.len, lifetime: PhantomData }
    }
}

/// The pointer of an optional view, null if it is absent.
pub(super) fn pointer_or_null<T>(view: Option<CudaView<'_, T>>) -> *const T {
    view.map_or(std::ptr::null(), |view| view.pointer())
}

/// Address and length of a part; panics if it is not inside.
fn part<T>(address: Address, len: usize, range: Range<usize>) -> (Address, usize) {
    assert!(range.start <= range.end && range.end <= len, "{range:?} is not inside 0..{len}");
    (Address(address.0.wrapping_add(range.start * size_of::<T>())), range.len())
}

/// The status word in which kernels report the first index out of range; in memory that host and device can access.
pub(super) struct Status {
    driver: Arc<Driver>,
    address: Address,
}

impl Status {
    pub(super) fn new(driver: &Arc<Driver>) -> Result<Self> {
        let address = driver.allocate_shared(size_of::<ffi::cohop_status>())?;
        let status = Status { driver: driver.clone(), address };
        // SAFETY: the memory is large enough and no kernel has it yet.
        unsafe { status.pointer().write(NOTHING) };
        Ok(status)
    }

    pub(super) fn pointer(&self) -> *mut ffi::cohop_status {
        self.address.0.cast()
    }

    /// What kernels reported since the last call, as an error. To be called while no kernel runs.
    pub(super) fn check(&self) -> Result<()> {
        // SAFETY: the memory is valid as long as `self`, and the host may read and write it while no kernel runs. It
        // is read as volatile because the device writes it.
        let status = unsafe {
            let status = self.pointer().read_volatile();
            if status.array != 0 {
                self.pointer().write_volatile(NOTHING);
            }
            status
        };
        let array = match ffi::cohop_array(status.array) {
            ffi::cohop_array::COHOP_ARRAY_NONE => return Ok(()),
            ffi::cohop_array::COHOP_ARRAY_LABELS => "labels",
            ffi::cohop_array::COHOP_ARRAY_EDGE_TYPE => "edge_type",
            ffi::cohop_array::COHOP_ARRAY_PERMUTATION => "permutation",
            ffi::cohop_array::COHOP_ARRAY_DST => "dst",
            ffi::cohop_array::COHOP_ARRAY_INDPTR => "indptr",
            ffi::cohop_array::COHOP_ARRAY_ASCENDING => {
                let value = format!("{} after {}", status.value, status.limit);
                return Err(Error::invalid("index", value, "strictly ascending rows"));
            }
            _ => "index",
        };
        Err(Error::IndexOutOfRange {
            array,
            position: status.position,
            value: status.value,
            limit: status.limit,
        })
    }
}

const NOTHING: ffi::cohop_status = ffi::cohop_status { array: 0, position: 0, value: 0, limit: 0 };

impl Drop for Status {
    fn drop(&mut self) {
        if self.driver.bind().and_then(|_| self.driver.synchronize()).is_ok() {
            // SAFETY: allocated by `allocate_shared` with as many bytes, and the device is idle.
            unsafe { self.driver.free_shared(self.address, size_of::<ffi::cohop_status>()) };
        }
    }
}
