//! The few functions of cuBLAS that are needed, from the library that [`open_library`](super::library::open_library)
//! finds, and a handle that is destroyed without complaint.

use std::ffi::{c_char, c_void};
use std::sync::{Arc, OnceLock};

use super::context::Stream;
use super::library::open_library_with;
use super::lost::Failure;
use crate::device::{Dtype, Precision};
use crate::error::{Error, Result};

/// `cublasStatus_t`, of which 0 is success; `cublasOperation_t`, `cudaDataType`, `cublasComputeType_t` and
/// `cublasGemmAlgo_t` are numbers as well.
type Status = i32;

type Create = unsafe extern "C" fn(*mut *mut c_void) -> Status;
type Destroy = unsafe extern "C" fn(*mut c_void) -> Status;
type SetStream = unsafe extern "C" fn(*mut c_void, *mut c_void) -> Status;
type StatusName = unsafe extern "C" fn(Status) -> *const c_char;
/// handle, transposes, m, n, k, alpha, A with type and leading dimension, B likewise, beta, C likewise, compute type,
/// algorithm.
type GemmEx = unsafe extern "C" fn(
    *mut c_void,
    i32,
    i32,
    i64,
    i64,
    i64,
    *const c_void,
    *const c_void,
    i32,
    i64,
    *const c_void,
    i32,
    i64,
    *const c_void,
    *mut c_void,
    i32,
    i64,
    i32,
    i32,
) -> Status;

/// The library's functions. The library stays open: closing it while a device is in use ends badly.
struct Functions {
    create: Create,
    destroy: Destroy,
    set_stream: SetStream,
    status_name: StatusName,
    gemm_ex: GemmEx,
}

/// The 64-bit interface came with cuBLAS 12.
const NAMES: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
/// What cuBLAS itself opens.
const NEEDED: [&str; 3] = ["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"];

impl Functions {
    /// Those of the library, opened at the first call.
    fn get() -> Result<&'static Functions> {
        static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
        if let Some(functions) = FUNCTIONS.get() {
            return Ok(functions);
        }
        let functions = Functions::open()?;
        Ok(FUNCTIONS.get_or_init(|| functions))
    }

    fn open() -> Result<Functions> {
        let library = Box::leak(Box::new(open_library_with(&NAMES, &NEEDED)?));
        /// The function of that name.
        ///
        /// # Safety
        /// It has the type `F`.
        unsafe fn find<F: Copy>(library: &libloading::Library, name: &str) -> Result<F> {
            // SAFETY: the caller's promise.
            let found = unsafe { library.get::<F>(name) };
            found.map(|function| *function).map_err(|_| Error::Unavailable {
                what: format!("{name} in cuBLAS"),
                remedy: "the library that was found is too old: install cuBLAS 13".into(),
            })
        }
        // SAFETY: the types are those of cublas_api.h, whose names are versioned where they have changed.
        unsafe {
            Ok(Functions {
                create: find(library, "cublasCreate_v2")?,
                destroy: find(library, "cublasDestroy_v2")?,
                set_stream: find(library, "cublasSetStream_v2")?,
                status_name: find(library, "cublasGetStatusName")?,
                gemm_ex: find(library, "cublasGemmEx_64")?,
            })
        }
    }

    fn failure(&self, operation: &'static str, status: Status) -> Failure {
        // SAFETY: returns text that ends with a zero and stays.
        let name = unsafe { super::text((self.status_name)(status)) };
        Failure { operation, code: status, name, message: String::new() }
    }
}

/// cuBLAS on one stream.
pub(super) struct Cublas {
    functions: &'static Functions,
    handle: *mut c_void,
    stream: Arc<Stream>,
}

// SAFETY: cuBLAS allows calls with one handle from several threads, as long as none changes its settings; these are
// made before the handle is shared.
unsafe impl Send for Cublas {}
// SAFETY: as above.
unsafe impl Sync for Cublas {}

/// A product of column-major matrices, `out = first second` or `out += first second`.
pub(super) struct Product {
    pub(super) dtype: Dtype,
    pub(super) precision: Precision,
    /// Rows and columns of `out`, and what is summed over.
    pub(super) shape: [i64; 3],
    pub(super) first: Factor,
    pub(super) second: Factor,
    pub(super) out: *mut c_void,
    /// Whether it is added to `out`.
    pub(super) adds: bool,
}

/// A matrix to be multiplied, whose columns are `lead` elements apart.
pub(super) struct Factor {
    pub(super) data: *const c_void,
    pub(super) lead: i64,
    pub(super) is_transposed: bool,
}

/// `CUBLAS_GEMM_DEFAULT`.
const ANY_ALGORITHM: i32 = -1;

impl Cublas {
    pub(super) fn open(stream: &Arc<Stream>) -> Result<Self> {
        let functions = Functions::get()?;
        stream.context().bind()?;
        let mut handle = std::ptr::null_mut();
        // SAFETY: the context is current, and the handle is written during the call only.
        let status = unsafe { (functions.create)(&mut handle) };
        let cublas = Cublas { functions, handle, stream: stream.clone() };
        cublas.check("open cuBLAS", status)?;
        // SAFETY: both are live, and the stream is held as long as the handle.
        let status = unsafe { (functions.set_stream)(handle, stream.raw().cast()) };
        cublas.check("open cuBLAS", status)?;
        Ok(cublas)
    }

    /// Queues the product: of f32s in its precision, in which the factors are rounded and the sums are in f32.
    ///
    /// # Safety
    /// The matrices are as large as `product` says, in the device's memory; nothing else uses `out` meanwhile.
    pub(super) unsafe fn multiply(&self, product: &Product) -> Result<()> {
        let Product { dtype, precision, shape: [m, n, k], first, second, out, adds } = product;
        let is_double = *dtype == Dtype::F64;
        // CUDA_R_64F or CUDA_R_32F, and CUBLAS_COMPUTE_64F, or CUBLAS_COMPUTE_32F, _FAST_TF32 or _FAST_16BF.
        let (kind, compute) = match (is_double, precision) {
            (true, _) => (1, 70),
            (false, Precision::F32) => (0, 68),
            (false, Precision::Tf32 | Precision::F16) => (0, 77),
            (false, Precision::Bf16) => (0, 75),
        };
        // What the product and `out` are multiplied by is of the type that is computed in.
        let (doubles, singles) = ([0.0f64, 1.0], [0.0f32, 1.0]);
        let [zero, one] = [0, 1].map(|i| match is_double {
            true => (&raw const doubles[i]).cast::<c_void>(),
            false => (&raw const singles[i]).cast(),
        });
        // SAFETY: the caller's promise; the factors live until the call returns, which reads them.
        let status = unsafe {
            (self.functions.gemm_ex)(
                self.handle,
                i32::from(first.is_transposed),
                i32::from(second.is_transposed),
                *m,
                *n,
                *k,
                one,
                first.data,
                kind,
                first.lead,
                second.data,
                kind,
                second.lead,
                if *adds { one } else { zero },
                *out,
                kind,
                *m,
                compute,
                ANY_ALGORITHM,
            )
        };
        self.check("gemm", status)
    }

    /// cuBLAS says little of why it fails: a lost context is recognised by asking for the stream.
    fn check(&self, operation: &'static str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        self.stream.query(operation)?;
        Err(self.stream.context().fail(self.functions.failure(operation, status)))
    }
}

impl Drop for Cublas {
    fn drop(&mut self) {
        // A lost context has taken the handle along.
        if !self.handle.is_null() && self.stream.context().bind().is_ok() {
            // SAFETY: the handle is live, and this is its last use. An error has no one to be told.
            let _ = unsafe { (self.functions.destroy)(self.handle) };
        }
    }
}

impl std::fmt::Debug for Cublas {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cublas")
    }
}
