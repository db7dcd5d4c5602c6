//! NCCL, whose library is looked for when it is first needed (see `library`).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::nccl::sys::{ncclComm_t, ncclDataType_t, ncclResult_t, ncclUniqueId};
use libloading::Library;

use super::driver::Driver;
use super::library::open_library;
use super::link::Part;
use crate::error::{Error, Result, check_length};

/// A result, as a number: later versions of NCCL may have others than this enumeration.
type Code = c_int;

const SUCCESS: Code = ncclResult_t::ncclSuccess as Code;
const IN_PROGRESS: Code = ncclResult_t::ncclInProgress as Code;
type Stream = *mut c_void;

/// The functions of NCCL that are called, and its library.
struct Functions {
    get_unique_id: unsafe extern "C" fn(*mut ncclUniqueId) -> Code,
    comm_init_rank: unsafe extern "C" fn(*mut ncclComm_t, c_int, ncclUniqueId, c_int) -> Code,
    comm_get_async_error: unsafe extern "C" fn(ncclComm_t, *mut Code) -> Code,
    comm_abort: unsafe extern "C" fn(ncclComm_t) -> Code,
    comm_destroy: unsafe extern "C" fn(ncclComm_t) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    send: unsafe extern "C" fn(*const c_void, usize, ncclDataType_t, c_int, ncclComm_t, Stream) -> Code,
    recv: unsafe extern "C" fn(*mut c_void, usize, ncclDataType_t, c_int, ncclComm_t, Stream) -> Code,
    get_error_string: unsafe extern "C" fn(Code) -> *const c_char,
    _library: Library,
}

/// NCCL's functions.
///
/// Errors: [`Error::Unavailable`] if there is no library, or it has not all of them.
fn functions() -> Result<&'static Functions> {
    static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let functions = Functions::load()?;
    Ok(FUNCTIONS.get_or_init(|| functions))
}

impl Functions {
    fn load() -> Result<Self> {
        let library = open_library(&["libnccl.so.2", "libnccl.so"])?;
        let missing = |error: libloading::Error| Error::Unavailable {
            what: "NCCL".into(),
            remedy: format!("install version 2.10 or later; the one that was found is too old: {error}"),
        };
        // SAFETY: the functions have had these arguments since NCCL 2.7, and stay as long as the library, which is
        // kept.
        unsafe {
            Ok(Functions {
                get_unique_id: *library.get(b"ncclGetUniqueId\0").map_err(missing)?,
                comm_init_rank: *library.get(b"ncclCommInitRank\0").map_err(missing)?,
                comm_get_async_error: *library.get(b"ncclCommGetAsyncError\0").map_err(missing)?,
                comm_abort: *library.get(b"ncclCommAbort\0").map_err(missing)?,
                comm_destroy: *library.get(b"ncclCommDestroy\0").map_err(missing)?,
                group_start: *library.get(b"ncclGroupStart\0").map_err(missing)?,
                group_end: *library.get(b"ncclGroupEnd\0").map_err(missing)?,
                send: *library.get(b"ncclSend\0").map_err(missing)?,
                recv: *library.get(b"ncclRecv\0").map_err(missing)?,
                get_error_string: *library.get(b"ncclGetErrorString\0").map_err(missing)?,
                _library: library,
            })
        }
    }

    fn check(&self, code: Code) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        // SAFETY: returns text that ends with a zero and stays.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(code)) }.to_string_lossy();
        Err(Error::Device {
            operation: "NCCL",
            code,
            name: format!("result {code}"),
            message: format!(": {text}; NCCL tells more with NCCL_DEBUG=WARN in the environment"),
        })
    }
}

/// One rank's communicator.
pub(super) struct Nccl {
    functions: &'static Functions,
    comm: ncclComm_t,
    /// Held while a group is queued, and while the communicator is ended.
    use_: Mutex<()>,
    is_aborted: AtomicBool,
}

// SAFETY: NCCL's communicators may be used by any thread, one at a time, which `use_` sees to.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// What the ranks of a new communicator are told by one of them.
    pub(super) fn new_id() -> Result<Vec<u8>> {
        let functions = functions()?;
        let mut id = ncclUniqueId { internal: [0; 128] };
        // SAFETY: writes the id.
        functions.check(unsafe { (functions.get_unique_id)(&raw mut id) })?;
        Ok(id.internal.map(|byte| byte as u8).to_vec())
    }

    /// This rank's end, when all have come.
    ///
    /// Errors: those of NCCL, also where two ranks have one GPU.
    pub(super) fn connect(driver: &Driver, id: &[u8], rank: usize, size: usize) -> Result<Self> {
        let functions = functions()?;
        check_length("id of a link", id.len(), 128)?;
        let mut unique = ncclUniqueId { internal: [0; 128] };
        for (to, &byte) in unique.internal.iter_mut().zip(id) {
            *to = byte as c_char;
        }
        let number = |n: usize| c_int::try_from(n).map_err(|_| Error::invalid("rank", n, "one of a few"));
        let (rank, size) = (number(rank)?, number(size)?);
        driver.bind()?;
        let mut comm: ncclComm_t = std::ptr::null_mut();
        // SAFETY: the device's context is the thread's; writes the communicator.
        functions.check(unsafe { (functions.comm_init_rank)(&raw mut comm, size, unique, rank) })?;
        Ok(Nccl { functions, comm, use_: Mutex::default(), is_aborted: AtomicBool::new(false) })
    }

    fn using(&self) -> MutexGuard<'_, ()> {
        self.use_.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a group of sends and receives in the stream of `driver`.
    ///
    /// # Safety
    /// The memory stays until the stream has passed the group, and nothing that is not ordered after it writes it, or
    /// reads what is received.
    pub(super) unsafe fn group(&self, driver: &Driver, sends: Vec<Part>, receives: Vec<Part>) -> Result<()> {
        let (functions, comm, stream) = (self.functions, self.comm, driver.bind()?);
        let _using = self.using();
        self.check_aborted()?;
        // SAFETY: the communicator is live; of a group that was started the end is called, whatever comes between.
        unsafe {
            functions.check((functions.group_start)())?;
            let byte = ncclDataType_t::ncclUint8;
            let send = |part: &Part| {
                let from = part.address.0.cast_const().cast();
                functions.check((functions.send)(from, part.bytes, byte, part.peer as c_int, comm, stream))
            };
            let receive = |part: &Part| {
                let to = part.address.0.cast();
                functions.check((functions.recv)(to, part.bytes, byte, part.peer as c_int, comm, stream))
            };
            let queued = sends.iter().try_for_each(send).and_then(|()| receives.iter().try_for_each(receive));
            let ended = functions.check((functions.group_end)());
            queued.and(ended)
        }
    }

    fn check_aborted(&self) -> Result<()> {
        if !self.is_aborted.load(Ordering::Acquire) {
            return Ok(());
        }
        let (name, message) = ("aborted".to_owned(), ": an exchange has failed before".to_owned());
        Err(Error::Device { operation: "NCCL", code: 0, name, message })
    }

    /// Ends all that is under way.
    pub(super) fn abort(&self) {
        let _using = self.using();
        if !self.is_aborted.swap(true, Ordering::AcqRel) {
            // SAFETY: the communicator is live, and is not used after this. There is another error to report already.
            let _ = unsafe { (self.functions.comm_abort)(self.comm) };
        }
    }

    /// An error that came up while groups ran.
    pub(super) fn check(&self) -> Result<()> {
        let _using = self.using();
        self.check_aborted()?;
        let mut found = SUCCESS;
        // SAFETY: the communicator is live; writes a code.
        let code = unsafe { (self.functions.comm_get_async_error)(self.comm, &raw mut found) };
        self.functions.check(code)?;
        if found == IN_PROGRESS { Ok(()) } else { self.functions.check(found) }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if !*self.is_aborted.get_mut() {
            // SAFETY: the communicator is live, this was its last owner. It waits for what is under way; an error means
            // that the device is lost.
            let _ = unsafe { (self.functions.comm_destroy)(self.comm) };
        }
    }
}
