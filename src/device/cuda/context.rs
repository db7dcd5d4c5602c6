//! The driver's handles, through `cudarc`'s raw functions: a context for each GPU of the process, streams and events.
//! They are given back without a panic whatever has happened to the GPU, and each call's error passes
//! [`Context::check`], which recognises a lost context.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::{DriverError, sys};

use super::lost::{Failure, Lost};
use super::memory::Pools;
use super::shared::PerOrdinal;
use super::support::{Build, obstacle};
use super::watches::Watches;
use crate::error::{Error, Result};

/// The primary context of a GPU, which is also the one that launchers use.
#[derive(Debug)]
pub(super) struct Context {
    ordinal: usize,
    device: sys::CUdevice,
    raw: sys::CUcontext,
    name: String,
    lost: Lost,
    pools: Pools,
    watches: Watches,
    /// By ordinal: the other contexts whose memory kernels of this one read; `None` if they cannot.
    reached: Mutex<BTreeMap<usize, Option<Arc<Context>>>>,
}

// SAFETY: the driver's handles may be used by any thread.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// The context of the GPU number `ordinal`: one for the process, as long as anything uses it.
    pub(super) fn open(ordinal: usize) -> Result<Arc<Self>> {
        static CONTEXTS: PerOrdinal<Context> = PerOrdinal::new();
        CONTEXTS.get_or_open(ordinal, || Context::new(ordinal))
    }

    fn new(ordinal: usize) -> Result<Self> {
        // cudarc panics if it cannot open the driver's library.
        // SAFETY: looks for a library and closes it again.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::NoCudaDevice { reason: "no NVIDIA driver (libcuda) on this machine".into() });
        }
        let none = |code: sys::CUresult| {
            let error = code.result();
            error
                .map_err(|error| Error::NoCudaDevice { reason: format!("number {ordinal}: {}", name(error)) })
        };
        let (mut driver, mut device, mut raw) = (0, 0, std::ptr::null_mut());
        // An ordinal that is too large for the driver's type is none of a GPU.
        let number = i32::try_from(ordinal).unwrap_or(i32::MAX);
        let mut capability = [0; 2];
        use sys::CUdevice_attribute_enum as Attribute;
        let numbers = [
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        ];
        // SAFETY: the driver is initialised first; each call writes what it is given during the call only.
        unsafe {
            none(sys::cuInit(0))?;
            none(sys::cuDriverGetVersion(&mut driver))?;
            none(sys::cuDeviceGet(&mut device, number))?;
            for (value, attribute) in capability.iter_mut().zip(numbers) {
                none(sys::cuDeviceGetAttribute(value, attribute, device))?;
            }
        }
        let [major, minor] = capability.map(i32::unsigned_abs);
        if let Some(obstacle) = obstacle(&build(), driver.unsigned_abs(), (major, minor)) {
            return Err(Error::NoCudaDevice { reason: format!("number {ordinal}: {obstacle}") });
        }
        // SAFETY: written during the call only.
        none(unsafe { sys::cuDevicePrimaryCtxRetain(&mut raw, device) })?;
        // From here on the context is released when it is dropped.
        let mut context = Context {
            ordinal,
            device,
            raw,
            name: String::new(),
            lost: Lost::default(),
            pools: Pools::default(),
            watches: Watches::default(),
            reached: Mutex::default(),
        };
        let mut text = [0u8; 256];
        // SAFETY: writes at most that many bytes of text that ends with a zero.
        let code = unsafe { sys::cuDeviceGetName(text.as_mut_ptr().cast(), text.len() as i32, device) };
        context.check("query the name", code)?;
        context.name = String::from_utf8_lossy(text.split(|&byte| byte == 0).next().unwrap_or(&[])).into();
        Ok(context)
    }

    pub(super) fn ordinal(&self) -> usize {
        self.ordinal
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The pools whose memory is this GPU's.
    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    /// What is asked while somebody waits for the GPU.
    pub(super) fn watches(&self) -> &Watches {
        &self.watches
    }

    /// Whether kernels of this GPU can read the memory of another one, whose context is kept from then on.
    pub(super) fn reaches(&self, ordinal: usize) -> Result<bool> {
        if ordinal == self.ordinal {
            return Ok(true);
        }
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = reached.get(&ordinal) {
            return Ok(known.is_some());
        }
        let peer = Context::open(ordinal)?;
        self.bind()?;
        let mut can = 0;
        // SAFETY: written during the call only.
        let code = unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.device, peer.device) };
        self.check("ask for access to another GPU", code)?;
        let known = if can == 0 {
            None
        } else {
            // SAFETY: both contexts are live, and the other one as long as this is.
            let code = unsafe { sys::cuCtxEnablePeerAccess(peer.raw, 0) };
            if code != sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
                self.check("access another GPU", code)?;
            }
            Some(peer)
        };
        Ok(reached.entry(ordinal).or_insert(known).is_some())
    }

    /// Makes the context the calling thread's.
    ///
    /// Errors: the context is lost.
    pub(super) fn bind(&self) -> Result<()> {
        self.lost.check()?;
        // SAFETY: the context is live.
        self.check("use the device", unsafe { sys::cuCtxSetCurrent(self.raw) })
    }

    /// The error that a driver's code stands for; once the context is lost, what it was lost by.
    pub(super) fn check(&self, operation: &'static str, code: sys::CUresult) -> Result<()> {
        self.check_with(operation, code, String::new)
    }

    /// As [`check`](Context::check), with more to say in the error.
    pub(super) fn check_with(
        &self,
        operation: &'static str,
        code: sys::CUresult,
        more: impl FnOnce() -> String,
    ) -> Result<()> {
        code.result().map_err(|error| {
            let text = error.error_string().map(|text| format!(": {}", text.to_string_lossy()));
            let message = text.unwrap_or_default() + &more();
            self.fail(Failure { operation, code: error.0 as i32, name: name(error), message })
        })
    }

    /// Waits for what `query` asks about as long as works may wait for other devices: those may never end, and a call
    /// of the driver that waits for them would not either.
    fn watch(&self, query: impl Fn() -> sys::CUresult) -> Result<()> {
        self.bind()?;
        while !self.watches.is_empty() && query() == sys::CUresult::CUDA_ERROR_NOT_READY {
            self.watches.look()?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The error to be returned for a failure, of the driver or of a library over it.
    pub(super) fn fail(&self, failure: Failure) -> Error {
        self.lost.fail(failure)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it was retained once, and nothing uses it any more. An error has no one to be told.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

/// A queue of work that waits for no other stream's.
#[derive(Debug)]
pub(super) struct Stream {
    raw: sys::CUstream,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Stream {}
// SAFETY: as for `Context`.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn new(context: &Arc<Context>) -> Result<Self> {
        context.bind()?;
        let mut raw = std::ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: written during the call only.
        context.check("create a stream", unsafe { sys::cuStreamCreate(&mut raw, flags) })?;
        Ok(Stream { raw, context: context.clone() })
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Waits for all work given to the stream so far.
    pub(super) fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream is live.
        self.context.watch(|| unsafe { sys::cuStreamQuery(self.raw) })?;
        // SAFETY: the stream is live.
        self.context.check("wait for the device", unsafe { sys::cuStreamSynchronize(self.raw) })
    }

    /// Asks whether its work has failed, without waiting for it.
    pub(super) fn query(&self, operation: &'static str) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the stream is live.
        match unsafe { sys::cuStreamQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(()),
            code => self.context.check(operation, code),
        }
    }

    /// An event that follows all work given to the stream so far.
    pub(super) fn record(&self) -> Result<Event> {
        self.record_with(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// The same, with the time at which the stream passes it.
    pub(super) fn record_timed(&self) -> Result<Event> {
        self.record_with(sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn record_with(&self, flags: sys::CUevent_flags) -> Result<Event> {
        self.context.bind()?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: written during the call only.
        self.context.check("create an event", unsafe { sys::cuEventCreate(&mut raw, flags as u32) })?;
        let event = Event { raw, context: self.context.clone() };
        // SAFETY: both are live, and of this context.
        self.context.check("record an event", unsafe { sys::cuEventRecord(raw, self.raw) })?;
        Ok(event)
    }

    /// Makes all work given to the stream from now on wait for `event`, of any GPU.
    pub(super) fn wait_for(&self, event: &Event) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are live.
        self.context.check("wait for an event", unsafe { sys::cuStreamWaitEvent(self.raw, event.raw, 0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A lost context has taken the stream along.
        if self.context.bind().is_ok() {
            // SAFETY: nothing uses the stream any more. The error of work that has failed is kept for later calls.
            let _ = self.context.check("give back a stream", unsafe { sys::cuStreamDestroy_v2(self.raw) });
        }
    }
}

/// A point in a stream.
#[derive(Debug)]
pub struct Event {
    raw: sys::CUevent,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Event {}
// SAFETY: as for `Context`.
unsafe impl Sync for Event {}

impl Event {
    /// Whether the stream has passed it.
    pub(super) fn is_done(&self) -> bool {
        if self.context.bind().is_err() {
            return false;
        }
        // SAFETY: the event is live.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => false,
            code => self.context.check("query an event", code).is_ok(),
        }
    }
}

impl Event {
    /// Seconds from this event to `end`, both [timed](Stream::record_timed) and passed.
    pub(super) fn seconds_until(&self, end: &Event) -> Result<f64> {
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are live; written during the call only.
        let code = unsafe { sys::cuEventElapsedTime_v2(&mut milliseconds, self.raw, end.raw) };
        self.context.check("read the time between events", code)?;
        Ok(f64::from(milliseconds) / 1e3)
    }

    /// Waits until the stream has passed it.
    pub(super) fn reach(&self) -> Result<()> {
        // SAFETY: the event is live.
        self.context.watch(|| unsafe { sys::cuEventQuery(self.raw) })?;
        // SAFETY: as above.
        self.context.check("wait for an event", unsafe { sys::cuEventSynchronize(self.raw) })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: nothing uses the event any more. As for a stream.
            let _ = self.context.check("give back an event", unsafe { sys::cuEventDestroy_v2(self.raw) });
        }
    }
}

/// What the build script compiled the kernels by and for.
fn build() -> Build<'static> {
    // It writes a number.
    let toolkit = env!("COHOP_CUDA_TOOLKIT").parse().unwrap_or(0);
    Build { toolkit, architectures: env!("COHOP_CUDA_COMPILED_FOR") }
}

fn name(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned())
}
