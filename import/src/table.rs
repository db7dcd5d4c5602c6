//! Rows of numbers, one after the other, from text or from an array.

use cohop::{Error, Result};

use crate::array::{ArrayStream, Place};
use crate::text::{Lines, shown};

/// More columns are taken for damage.
const MAX_COLUMNS: usize = 1 << 20;
/// Numbers of an array that are read at a time, unless a row has more.
const AT_A_TIME: usize = 1 << 13;

/// A matrix that is read row by row; a vector is one of one column.
pub(crate) struct Table {
    source: Source,
    columns: usize,
    /// Text: the current row. Arrays: several rows, the next of which begins at `at`.
    numbers: Vec<f64>,
    at: usize,
    /// Whether the first row of a text has been read, but not given out.
    ahead: bool,
    n_given: u64,
}

enum Source {
    /// Values by commas, without a header, as pandas writes them.
    Text(Lines),
    Array(ArrayStream),
}

impl Table {
    pub(crate) fn open(place: &Place) -> Result<Self> {
        if !place.is_array {
            let lines = Lines::open(&place.path)?;
            let source = Source::Text(lines);
            let mut table =
                Table { source, columns: 0, numbers: Vec::new(), at: 0, ahead: false, n_given: 0 };
            table.ahead = table.read_line()?;
            table.columns = table.numbers.len();
            return Ok(table);
        }
        let stream = ArrayStream::open(place)?;
        let header = stream.header();
        let columns = match header.shape[..] {
            [_] => 1,
            [_, columns] => columns,
            _ => {
                let problem = format!("has shape {:?}, expected rows and columns", header.shape);
                return Err(place.error(problem));
            }
        };
        if !(1..=MAX_COLUMNS).contains(&columns) {
            return Err(place.error(format!("has {columns} columns: expected 1 to {MAX_COLUMNS}")));
        }
        if header.fortran_order {
            return Err(place.error("is in Fortran order: save numpy.ascontiguousarray(..) of it"));
        }
        let source = Source::Array(stream);
        Ok(Table { source, columns, numbers: Vec::new(), at: 0, ahead: false, n_given: 0 })
    }

    /// Columns; 0 for a text without lines.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// How much has been read, from 0 to 1.
    pub(crate) fn part(&self) -> f64 {
        match &self.source {
            Source::Text(lines) => lines.part(),
            Source::Array(stream) => stream.part(),
        }
    }

    /// Rows that have been given out.
    pub(crate) fn n_given(&self) -> u64 {
        self.n_given
    }

    /// The next row; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<&[f64]>> {
        if let Source::Array(stream) = &mut self.source {
            self.at += self.columns;
            if self.at >= self.numbers.len() {
                let rows = (AT_A_TIME / self.columns).max(1);
                stream.next(rows * self.columns, &mut self.numbers)?;
                self.at = 0;
            }
            let row = self.numbers.get(self.at..self.at + self.columns);
            self.n_given += u64::from(row.is_some());
            return Ok(row);
        }
        if !std::mem::take(&mut self.ahead) && !self.read_line()? {
            return Ok(None);
        }
        self.n_given += 1;
        if self.numbers.len() != self.columns {
            let (n, columns) = (self.numbers.len(), self.columns);
            return Err(self.error(format!("has {n} values, the first line has {columns}")));
        }
        Ok(Some(&self.numbers))
    }

    /// Reads a line of text into `numbers`; false after the last. Empty lines are left out, as pandas does.
    fn read_line(&mut self) -> Result<bool> {
        let Source::Text(lines) = &mut self.source else { return Ok(false) };
        self.numbers.clear();
        while self.numbers.is_empty() {
            let Some(line) = lines.next_line()? else { return Ok(false) };
            if line.is_empty() {
                continue;
            }
            for field in line.split(',') {
                // An empty value is none, which pandas quotes if it is alone in its line.
                let field = field.trim().trim_matches('"');
                let number = if field.is_empty() { Ok(f64::NAN) } else { field.parse() };
                let Ok(number) = number else {
                    let problem = format!("{}: expected a number", shown(field));
                    return Err(lines.error(problem));
                };
                self.numbers.push(number);
            }
        }
        Ok(true)
    }

    /// Where the row is that was given out last: `line 5` of a text, `row 4` of an array.
    pub(crate) fn at(&self) -> String {
        match &self.source {
            Source::Text(lines) => format!("line {}", lines.number),
            Source::Array(_) => format!("row {}", self.n_given.saturating_sub(1)),
        }
    }

    /// An error about the row that was given out last, or the line that was read last.
    pub(crate) fn error(&self, problem: impl std::fmt::Display) -> Error {
        match &self.source {
            Source::Text(lines) => lines.error(problem),
            Source::Array(stream) => {
                let row = self.n_given.saturating_sub(1);
                stream.place().error(format!("row {row}: {problem}"))
            }
        }
    }
}
