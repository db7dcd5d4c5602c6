//! Lines of text files, plain or gzipped, with their numbers.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cohop::{Error, Result};

/// A longer line is no line of an edge list.
const MAX_LINE: u64 = 1 << 20;

struct Counted(File, Arc<AtomicU64>);

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.0.read(buffer)?;
        self.1.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// The lines of a file.
pub(crate) struct Lines {
    path: PathBuf,
    reader: Box<dyn BufRead>,
    bytes_read: Arc<AtomicU64>,
    bytes: u64,
    line: Vec<u8>,
    /// Number of the current line, from 1.
    pub(crate) number: u64,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let metadata = file.metadata().map_err(|e| Error::io(path, e))?;
        if !metadata.is_file() {
            return Err(Error::format(path, "is no file"));
        }
        let bytes = metadata.len();
        let bytes_read = Arc::new(AtomicU64::new(0));
        let file = Counted(file, bytes_read.clone());
        let reader: Box<dyn BufRead> = match path.extension() {
            Some(e) if e == "gz" => {
                let inner = BufReader::with_capacity(1 << 17, file);
                Box::new(BufReader::with_capacity(1 << 17, flate2::bufread::MultiGzDecoder::new(inner)))
            }
            _ => Box::new(BufReader::with_capacity(1 << 18, file)),
        };
        Ok(Lines { path: path.to_owned(), reader, bytes_read, bytes, line: Vec::new(), number: 0 })
    }

    /// How much of the file has been read, from 0 to 1.
    pub(crate) fn part(&self) -> f64 {
        (self.bytes_read.load(Ordering::Relaxed) as f64 / self.bytes.max(1) as f64).min(1.0)
    }

    /// The next line, without its end; `None` after the last.
    pub(crate) fn next_line(&mut self) -> Result<Option<&str>> {
        self.line.clear();
        self.number += 1;
        let read = (&mut *self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
        let n = read.map_err(|e| self.error(format!("{e}: is the file truncated or damaged?")))?;
        if n == 0 {
            return Ok(None);
        }
        if n as u64 == MAX_LINE {
            return Err(self.error(format!("is longer than {MAX_LINE} bytes: expected text lines")));
        }
        match std::str::from_utf8(&self.line) {
            Ok(text) => Ok(Some(text.trim_end_matches(['\n', '\r']).trim_start_matches('\u{feff}'))),
            Err(_) => Err(self.error("is not UTF-8 text")),
        }
    }

    /// An error at the current line.
    pub(crate) fn error(&self, problem: impl std::fmt::Display) -> Error {
        line_error(&self.path, self.number, problem)
    }
}

/// An error at a line of a file.
pub(crate) fn line_error(path: &Path, line: u64, problem: impl std::fmt::Display) -> Error {
    Error::format(path, format!("line {line}: {problem}"))
}

/// What separates the fields of a file whose first line this is: comma, semicolon or tab; `None`: spaces.
pub(crate) fn separator(line: &str) -> Option<char> {
    const SEPARATORS: [char; 3] = [',', ';', '\t'];
    let outside = |separator: &char| line.split('"').step_by(2).any(|part| part.contains(*separator));
    // A quote may also be one that nothing ends, such as inches.
    SEPARATORS.into_iter().find(outside).or_else(|| SEPARATORS.into_iter().find(|&c| line.contains(c)))
}

/// The fields of a line, without the spaces around them. Those in quotes may have separators in them, and two quotes
/// for one. An error is a text.
pub(crate) fn fields(line: &str, by: Option<char>) -> Result<Vec<Cow<'_, str>>, String> {
    if !line.contains('"') {
        let borrowed = |field| Cow::Borrowed(str::trim(field));
        return Ok(match by {
            Some(by) => line.split(by).map(borrowed).collect(),
            None => line.split_ascii_whitespace().map(borrowed).collect(),
        });
    }
    let record = quoted(line, by.unwrap_or(' '))?;
    let owned = record.iter().map(|field| Cow::<str>::Owned(field.trim().to_owned()));
    // Several spaces are one, but an empty value may be alone in its line.
    let keep_empty = by.is_some() || record.len() == 1;
    Ok(owned.filter(|field| keep_empty || !field.is_empty()).collect())
}

/// The fields of a line with quotes. An error is a text.
pub(crate) fn quoted(line: &str, by: char) -> Result<csv::StringRecord, String> {
    let mut csv = csv::ReaderBuilder::new();
    let mut csv = csv.delimiter(by as u8).has_headers(false).from_reader(line.as_bytes());
    let mut record = csv::StringRecord::new();
    csv.read_record(&mut record).map_err(|e| e.to_string())?;
    Ok(record)
}

/// About what a text of so many bytes takes of the heap: allocators add 8 bytes and round up to 16, and to 32 at least.
pub(crate) fn heap_bytes(bytes: usize) -> u64 {
    (bytes as u64 + 8).next_multiple_of(16).max(32)
}

/// What a message shows of a text: not all of a long one, and no control characters.
pub(crate) fn shown(text: &str) -> String {
    format!("{:?}", text.chars().take(40).collect::<String>())
}
