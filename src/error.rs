//! The one error type of the crate.
//!
//! Every public function that can be given bad input returns [`Result`]. An error names the argument or array, the
//! value found and what was expected, as data: match on it, or print it.

use std::any::Any;
use std::path::PathBuf;

/// `std::result::Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with the values that tell why.
///
/// ```
/// use cohop::{Error, graph::Graph};
///
/// let error = Graph::from_edges(2, &[(0, 1), (2, 0)]).unwrap_err();
/// assert!(matches!(error, Error::IndexOutOfRange { position: 1, value: 2, limit: 2, .. }));
/// assert_eq!(error.to_string(), "edge sources[1] = 2 is out of range: expected a value below 2");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An entry of an index array points outside of what it indexes.
    #[error("{array}[{position}] = {value} is out of range: expected a value below {limit}")]
    IndexOutOfRange {
        /// Name of the array.
        array: &'static str,
        /// Position of the entry in the array.
        position: u64,
        /// The entry.
        value: i64,
        /// One more than the largest valid entry.
        limit: u64,
    },
    /// An offset array (CSR `indptr`) decreases.
    #[error(
        "{array}[{position}] = {value} is below the entry before it ({previous}): offsets must not decrease"
    )]
    NotMonotone {
        /// Name of the array.
        array: &'static str,
        /// Position of the entry in the array.
        position: u64,
        /// The entry.
        value: u64,
        /// The entry before it.
        previous: u64,
    },
    /// An array has the wrong number of elements.
    #[error("{array} has {actual} elements, expected {expected}")]
    WrongLength {
        /// Name of the array.
        array: &'static str,
        /// Number of elements found.
        actual: u64,
        /// Number of elements that its companions require.
        expected: u64,
    },
    /// Two operands do not fit together.
    #[error("shape mismatch in {op}: {left_name} is {left:?}, {right_name} is {right:?}")]
    ShapeMismatch {
        /// The operation.
        op: &'static str,
        /// Name of the first operand.
        left_name: &'static str,
        /// Rows and columns of the first operand.
        left: [usize; 2],
        /// Name of the second operand.
        right_name: &'static str,
        /// Rows and columns of the second operand (or those required).
        right: [usize; 2],
    },
    /// An argument has a value that it must not have.
    #[error("{argument} is {value}: expected {expected}")]
    InvalidArgument {
        /// Name of the argument.
        argument: &'static str,
        /// The value, printed.
        value: String,
        /// What would have been valid.
        expected: String,
    },
    /// A value that must be finite is NaN or infinite.
    #[error("{array} has the value {value} in row {row}, column {column}: expected a finite number")]
    NotFinite {
        /// Name of the array.
        array: &'static str,
        /// Row of the value.
        row: u64,
        /// Column of the value.
        column: u64,
        /// The value, widened.
        value: f64,
    },
    /// Something has more elements than its index type can address.
    #[error("{what} has {count} elements, more than the {limit} that can be addressed")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its number of elements.
        count: u64,
        /// The largest number supported.
        limit: u64,
    },
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason given by the operating system.
        source: std::io::Error,
    },
    /// A file is not what its name or header promises.
    #[error("{path}: {problem}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong in it, and what was expected.
        problem: String,
    },
    /// A device, a cargo feature or a system library is missing.
    #[error("{what} is not available: {remedy}")]
    Unavailable {
        /// What is missing.
        what: String,
        /// How to get it.
        remedy: String,
    },
    /// No GPU can be used.
    #[error("no CUDA device: {reason}")]
    NoCudaDevice {
        /// Why not.
        reason: String,
    },
    /// A GPU, its driver or a kernel on it failed.
    #[error("{operation} failed on the device: {name} ({code}){message}")]
    Device {
        /// The operation that failed, or that noticed the failure of work still running on the device.
        operation: &'static str,
        /// The error's number: a `CUresult`, a `cudaError_t`, a `cublasStatus_t`, or one of the emulator's.
        code: i32,
        /// The error's name.
        name: String,
        /// Empty, or a colon and what else is known.
        message: String,
    },
    /// A background worker panicked.
    #[error("{worker} failed: {problem}")]
    Worker {
        /// Which worker.
        worker: String,
        /// The panic message.
        problem: String,
    },
    /// An exchange between processing elements failed.
    #[error("processing element {rank} failed: {problem}")]
    Communication {
        /// The processing element that failed first.
        rank: usize,
        /// What happened there.
        problem: String,
    },
    /// The same number, computed in two ways, came out different: a bug of this crate.
    #[error("{what} is {found} by one way and {expected} by another: please report this bug")]
    Disagreement {
        /// What was counted.
        what: String,
        /// The count in question.
        found: u64,
        /// The count to agree with.
        expected: u64,
    },
    /// Training produced a loss that is NaN or infinite.
    #[error(
        "the loss of batch {batch} in epoch {epoch} is {loss}: lower the learning rate, or look for extreme features"
    )]
    Diverged {
        /// Epoch, from 0.
        epoch: u64,
        /// Batch within the epoch, from 0.
        batch: u64,
        /// The loss.
        loss: f64,
    },
}

impl Error {
    /// An [`Error::InvalidArgument`].
    pub fn invalid(argument: &'static str, value: impl ToString, expected: impl ToString) -> Self {
        Error::InvalidArgument { argument, value: value.to_string(), expected: expected.to_string() }
    }

    /// An [`Error::Io`] at `path`.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Error::Io { path: path.into(), source }
    }

    /// An [`Error::Format`] at `path`.
    pub fn format(path: impl Into<PathBuf>, problem: impl ToString) -> Self {
        Error::Format { path: path.into(), problem: problem.to_string() }
    }
}

/// `Ok` if `array` (by name) has the expected number of elements.
pub(crate) fn check_length(array: &'static str, actual: usize, expected: usize) -> Result<()> {
    if actual == expected {
        Ok(())
    } else {
        Err(Error::WrongLength { array, actual: actual as u64, expected: expected as u64 })
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
