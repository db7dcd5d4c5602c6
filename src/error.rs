//! The one error type of the crate.
//!
//! Every public function that can be given bad input returns [`Result`]. An error names the argument or array, the
//! value found and what was expected, as data: match on it, or print it.

use std::any::Any;
use std::fmt::{self, Display, Write};
use std::io::ErrorKind;
use std::path::PathBuf;

use rayon::prelude::*;

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
    #[error("{array}[{position}] = {value} is out of range: expected {}", Below { value: *value, limit: *limit })]
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
    #[error("{array} has {actual} element{}, expected {expected}", if *actual == 1 { "" } else { "s" })]
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
    #[error("{argument} is {}: expected {}", Plain(value), Plain(expected))]
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
    #[error("{what} has {} elements: at most {limit} are supported", Count(*count))]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its number of elements; `u64::MAX` if that is more than 64 bits can count.
        count: u64,
        /// The largest number supported.
        limit: u64,
    },
    /// The system has no memory for something whose size a file or an option has asked for.
    #[error("{what} needs {} of memory, which the system does not give: {asked}", Bytes(*bytes), asked = Plain(asked))]
    OutOfMemory {
        /// What the memory is for.
        what: &'static str,
        /// How much was asked for.
        bytes: u64,
        /// Which numbers ask for so much.
        asked: String,
    },
    /// The file system refused.
    #[error("{}: {}", Plain(path.display()), Reason(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The reason given by the operating system.
        source: std::io::Error,
    },
    /// A file is not what its name or header promises.
    #[error("{}: {}", Plain(path.display()), Plain(problem))]
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
        "the loss of batch {} of epoch {} is {loss}: lower the learning rate, or look for extreme features",
        .batch + 1, .epoch + 1
    )]
    Diverged {
        /// Epoch, from 0.
        epoch: u64,
        /// Batch within the epoch, from 0.
        batch: u64,
        /// The loss.
        loss: f64,
    },
    /// After an epoch, the model gives validation vertices scores that are NaN or infinite.
    #[error(
        "after epoch {} scores of validation vertices are not finite: lower the learning rate, or look for extreme \
         features",
        .epoch + 1
    )]
    DivergedInValidation {
        /// Epoch, from 0.
        epoch: u64,
    },
    /// The run was asked to stop.
    #[error("interrupted after {epochs} epochs")]
    Interrupted {
        /// Number of epochs done.
        epochs: u64,
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

    /// The [`Error::Io`] of a folder that could not be made: names the file that is in its place, or in that of one
    /// above it.
    pub fn no_folder(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        let path = path.into();
        match path.ancestors().find(|place| place.exists()) {
            Some(file) if !file.is_dir() => {
                let text = "is a file, expected a folder";
                Error::io(file, std::io::Error::new(ErrorKind::AlreadyExists, text))
            }
            _ => Error::io(path, source),
        }
    }

    /// An [`Error::Format`] at `path`.
    pub fn format(path: impl Into<PathBuf>, problem: impl ToString) -> Self {
        Error::Format { path: path.into(), problem: problem.to_string() }
    }
}

/// Text that comes from outside, for a message of one line: without control characters, which a terminal would obey,
/// and with the middle of a long text left out.
pub(crate) struct Plain<T>(pub(crate) T);

impl<T: Display> Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        /// The longest text that is shown whole, and how much of a longer one is shown at either end.
        const LONGEST: usize = 1000;
        const HEAD: usize = 400;
        const TAIL: usize = 100;
        let text = self.0.to_string();
        let escaped = |f: &mut fmt::Formatter<'_>, text: &str| {
            text.chars().try_for_each(|c| match c {
                // Those of Unicode that turn the direction of writing, or cannot be seen.
                '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' => {
                    write!(f, "{}", c.escape_unicode())
                }
                c if c.is_control() => write!(f, "{}", c.escape_default()),
                c => f.write_char(c),
            })
        };
        // Bytes, so as not to count the characters of every message.
        if text.len() <= LONGEST {
            return escaped(f, &text);
        }
        let boundary = |at: &usize| text.is_char_boundary(*at);
        // The beginning and the end of a text are boundaries.
        let head = (0..=HEAD).rev().find(boundary).unwrap_or(0);
        let tail = (text.len() - TAIL..=text.len()).find(boundary).unwrap_or(text.len());
        escaped(f, &text[..head])?;
        write!(f, " [... {} bytes ...] ", tail - head)?;
        escaped(f, &text[tail..])
    }
}

/// What the system says of a file, in plain words where its own are not.
struct Reason<'a>(&'a std::io::Error);

impl Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.kind() {
            ErrorKind::NotADirectory => f.write_str("a part of this path is a file, expected a folder"),
            ErrorKind::IsADirectory => f.write_str("is a folder, expected a file"),
            // Of `read_exact`.
            ErrorKind::UnexpectedEof => f.write_str("ends too early: is it truncated or damaged?"),
            _ => self.0.fmt(f),
        }
    }
}

/// Which values are in range, for one that is not.
struct Below {
    value: i64,
    limit: u64,
}

impl Display for Below {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Below { limit: 0, .. } => f.write_str("none, as there is nothing to refer to"),
            Below { value: ..0, limit } => write!(f, "a value from 0 to {}", limit - 1),
            Below { limit, .. } => write!(f, "a value below {limit}"),
        }
    }
}

/// A number of elements that may be too large for its type.
struct Count(u64);

impl Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == u64::MAX { f.write_str("2^64 or more") } else { self.0.fmt(f) }
    }
}

/// A number of bytes, for people.
struct Bytes(u64);

impl Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("16 EiB or more"),
            bytes @ ..0x10_0000 => write!(f, "{bytes} bytes"),
            bytes @ ..0x4000_0000 => write!(f, "{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
            bytes => write!(f, "{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
        }
    }
}

/// An empty list with room for `len` elements. `what` names it, `asked` tells where the number comes from.
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_capacity<T>(what: &'static str, len: usize, asked: impl Display) -> Result<Vec<T>> {
    let mut list = Vec::new();
    list.try_reserve_exact(len).map_err(|_| {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        Error::OutOfMemory { what, bytes, asked: asked.to_string() }
    })?;
    Ok(list)
}

/// Appends items to a list; `what` and `asked` as for [`try_capacity`].
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_extend<T>(
    list: &mut Vec<T>,
    what: &'static str,
    items: impl ExactSizeIterator<Item = T>,
    asked: impl Display,
) -> Result<()> {
    try_reserve(list, what, items.len(), asked)?;
    list.extend(items);
    Ok(())
}

/// Makes room for `n` more elements in a list that grows; `what` and `asked` as for [`try_capacity`].
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_reserve<T>(
    list: &mut Vec<T>,
    what: &'static str,
    n: usize,
    asked: impl Display,
) -> Result<()> {
    let len = list.len() as u64;
    list.try_reserve(n).map_err(|_| {
        let bytes = len.saturating_add(n as u64).saturating_mul(size_of::<T>() as u64);
        Error::OutOfMemory { what, bytes, asked: asked.to_string() }
    })
}

/// A list of `len` equal elements; `what` and `asked` as for [`try_capacity`].
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_filled<T: Clone>(
    what: &'static str,
    value: T,
    len: usize,
    asked: impl Display,
) -> Result<Vec<T>> {
    let mut list = try_capacity(what, len, asked)?;
    list.resize(len, value);
    Ok(list)
}

/// A list of the items of an iterator that knows how many there are; `what` and `asked` as for [`try_capacity`].
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_collect<T>(
    what: &'static str,
    items: impl ExactSizeIterator<Item = T>,
    asked: impl Display,
) -> Result<Vec<T>> {
    let mut list = try_capacity(what, items.len(), asked)?;
    list.extend(items);
    Ok(list)
}

/// [`try_collect`] by several threads.
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_collect_parallel<T: Send>(
    what: &'static str,
    items: impl IndexedParallelIterator<Item = T>,
    asked: impl Display,
) -> Result<Vec<T>> {
    let mut list = try_capacity(what, items.len(), asked)?;
    items.collect_into_vec(&mut list);
    Ok(list)
}

/// A list of `len` zeros, whose pages the system gives when they are first written; `what` and `asked` as for
/// [`try_capacity`].
///
/// Errors: [`Error::OutOfMemory`].
pub(crate) fn try_zeroed<T: bytemuck::Zeroable>(
    what: &'static str,
    len: usize,
    asked: impl Display,
) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(len).map_err(|()| {
        let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
        Error::OutOfMemory { what, bytes, asked: asked.to_string() }
    })
}

/// `Ok` if all `ids` are below `limit`.
pub(crate) fn check_ids(array: &'static str, ids: &[u32], limit: usize) -> Result<()> {
    let Some(position) = ids.iter().position(|&id| id as usize >= limit) else { return Ok(()) };
    let value = ids[position].into();
    Err(Error::IndexOutOfRange { array, position: position as u64, value, limit: limit as u64 })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_is_escaped_and_cut() {
        let nasty = "a\u{1b}[31mred\r\n\u{9b}2J\u{202e}end";
        let escaped = "a\\u{1b}[31mred\\r\\n\\u{9b}2J\\u{202e}end";
        for error in [
            Error::format(nasty, nasty),
            Error::io(nasty, std::io::Error::other("refused")),
            Error::invalid("name", nasty, nasty),
        ] {
            let text = error.to_string();
            assert!(text.contains(escaped) && !text.contains(char::is_control), "{text}");
        }
        // Other writing is left as it is.
        assert_eq!(Error::format("größe/数据", "«ok»").to_string(), "größe/数据: «ok»");
        let long = "é".repeat(9000);
        let text = Error::format("file", &long).to_string();
        assert!(text.len() < 600 && text.contains("[... 17500 bytes ...]"), "{text}");
        assert_eq!(Error::format("file", "x".repeat(1000)).to_string().len(), 1006);
    }

    #[test]
    fn a_file_in_the_place_of_a_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("plain.txt");
        std::fs::write(&file, "").unwrap();
        let expected = format!("{}: is a file, expected a folder", file.display());
        for path in [file.clone(), file.join("x"), file.join("x/y")] {
            let error = std::fs::create_dir_all(&path).map_err(|e| Error::no_folder(&path, e)).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        let within = file.join("x");
        let error = Error::io(&within, std::fs::File::open(&within).unwrap_err()).to_string();
        assert_eq!(error, format!("{}: a part of this path is a file, expected a folder", within.display()));
        let error = Error::io(folder.path(), std::fs::read(folder.path()).unwrap_err()).to_string();
        assert!(error.ends_with(": is a folder, expected a file"), "{error}");
    }

    #[test]
    fn numbers_that_cannot_be_right_are_not_shown_as_if_they_were() {
        let range =
            |value, limit| Error::IndexOutOfRange { array: "labels", position: 1, value, limit }.to_string();
        assert_eq!(range(7, 3), "labels[1] = 7 is out of range: expected a value below 3");
        assert_eq!(range(-100, 3), "labels[1] = -100 is out of range: expected a value from 0 to 2");
        assert!(range(0, 0).ends_with("expected none, as there is nothing to refer to"));
        let length = Error::WrongLength { array: "x", actual: 1, expected: 4 };
        assert_eq!(length.to_string(), "x has 1 element, expected 4");
        let large = |count| Error::TooLarge { what: "the list", count, limit: 5 }.to_string();
        assert_eq!(large(6), "the list has 6 elements: at most 5 are supported");
        assert_eq!(large(u64::MAX), "the list has 2^64 or more elements: at most 5 are supported");
    }

    #[test]
    fn memory_that_there_is_not_is_an_error_with_its_numbers() {
        for error in [
            try_capacity::<u64>("the list", usize::MAX, "n is 3").unwrap_err(),
            try_filled("the list", 1u64, usize::MAX, "n is 3").unwrap_err(),
            try_zeroed::<u64>("the list", usize::MAX, "n is 3").unwrap_err(),
        ] {
            let expected = "the list needs 16 EiB or more of memory, which the system does not give: n is 3";
            assert_eq!(error.to_string(), expected);
        }
        assert_eq!(try_filled("the list", 1, 3, "").unwrap(), [1; 3]);
        assert_eq!(try_collect("the list", 1..4, "").unwrap(), [1, 2, 3]);
        assert_eq!(try_collect_parallel("the list", (1..4usize).into_par_iter(), "").unwrap(), [1, 2, 3]);
        assert_eq!(try_zeroed::<f32>("the list", 3, "").unwrap(), [0.0; 3]);
        assert_eq!(Bytes(3 << 29).to_string(), "1.5 GiB");
    }
}
