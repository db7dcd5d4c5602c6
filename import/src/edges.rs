//! Text edge lists: CSV, TSV or space separated.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cohop::data::npy::{Dtype, Writer};
use cohop::graph::{MAX_RELATIONS, MAX_VERTICES};
use cohop::{Error, Result};

use crate::columns::{self, Column};
use crate::names::{Names, Sorted};
use crate::sink::Sink;
use crate::text::{Lines, heap_bytes, line_error, quoted, separator, shown};
use crate::{Found, Progress, ReadOptions};

/// How text edge lists are read.
#[derive(Clone, Debug)]
pub struct EdgeText {
    /// What each column holds.
    pub columns: Vec<Column>,
    /// Whether the first line that is no comment names columns; `None`: if its ends are no integers.
    pub header: Option<bool>,
    /// Vertices are numbered by first appearance; otherwise ids are vertex numbers.
    pub map_ids: bool,
}

impl Default for EdgeText {
    fn default() -> Self {
        EdgeText { columns: vec![Column::Source, Column::Destination], header: None, map_ids: false }
    }
}

/// Vertex numbers of ids, by first appearance.
#[derive(Default)]
pub(crate) struct Ids {
    numbers: HashMap<Box<str>, u32>,
    /// Memory of the texts.
    bytes: u64,
}

/// An entry of the table and its byte of control.
const ENTRY_BYTES: u64 = size_of::<(Box<str>, u32)>() as u64 + 1;

impl Ids {
    fn number(&mut self, id: &str, memory: u64) -> Result<u32> {
        if let Some(number) = self.get(id) {
            return Ok(number);
        }
        self.bytes += heap_bytes(id.len());
        if self.memory_with_one_more() > memory {
            let n = self.len();
            let expected = format!("more: beyond {n}, ids take more than the quarter that is theirs");
            return Err(Error::invalid("--memory", format!("{} bytes", 4 * memory), expected));
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(id.into(), number);
        Ok(number)
    }

    /// What texts and table take while the next id comes: where the table is full, it is copied to one of twice the
    /// size.
    fn memory_with_one_more(&self) -> u64 {
        // Of 8 places, 7 are used at most.
        let places = (self.numbers.capacity() as u64).div_ceil(7) * 8;
        let tables = if self.numbers.len() == self.numbers.capacity() { 3 * places.max(4) } else { places };
        self.bytes + tables * ENTRY_BYTES
    }

    /// The number of an id that was seen.
    pub(crate) fn get(&self, id: &str) -> Option<u32> {
        self.numbers.get(id).copied()
    }

    /// The number of the vertex whose id is an integer. Beyond 2^53 they are not exact, and none is found.
    pub(crate) fn get_integer(&self, id: f64) -> Option<u32> {
        (id.abs() <= 2f64.powi(53)).then(|| self.get(&id.to_string())).flatten()
    }

    /// The first id, in the order of their numbers, of those that `wanted` takes.
    pub(crate) fn first(&self, wanted: impl Fn(&str) -> bool) -> Option<&str> {
        let all = self.numbers.iter().filter(|(id, _)| wanted(id));
        all.min_by_key(|(_, number)| **number).map(|(id, _)| &**id)
    }

    /// The id of a vertex. Takes a look at all of them.
    pub(crate) fn name(&self, vertex: u32) -> Option<&str> {
        self.numbers.iter().find(|(_, number)| **number == vertex).map(|(id, _)| &**id)
    }

    /// How many ids there are.
    pub(crate) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// All ids, in the order of their numbers.
    pub(crate) fn into_list(self) -> Vec<Box<str>> {
        let mut ids: Vec<_> = self.numbers.into_iter().collect();
        ids.sort_unstable_by_key(|&(_, number)| number);
        ids.into_iter().map(|(id, _)| id).collect()
    }
}

/// The file that says which type of edges has which number.
const RELATIONS: &str = "relations.txt";

/// Where times of edges are written, in the order of the lines.
fn times_path(scratch: &Path) -> PathBuf {
    scratch.join("unordered_edge_time.npy")
}

/// What is the same for all lines of all files.
pub(crate) struct Reader<'a> {
    text: &'a EdgeText,
    has_weights: bool,
    has_kinds: bool,
    /// Bytes that ids may take.
    memory: u64,
    /// More vertices there are not.
    n_vertices: Option<u64>,
    pub(crate) ids: Ids,
    times: Option<Writer>,
    largest_kind: u16,
    /// If types of edges are names.
    kinds: Option<Sorted>,
    /// What first lines were taken for.
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    /// Times go to a file in `scratch`.
    pub(crate) fn new(options: &'a ReadOptions, scratch: &Path, sink: &mut dyn Sink) -> Result<Self> {
        let text = &options.text;
        let has = |column| text.columns.contains(&column);
        columns::check(&text.columns)?;
        let times = has(Column::Time).then(|| Writer::create(&times_path(scratch), Dtype::F64, None));
        let (has_weights, has_kinds) = (has(Column::Weight) && !options.without_weights, has(Column::Type));
        sink.expect(has_weights, has_kinds, times.is_some());
        let (ids, times) = (Ids::default(), times.transpose()?);
        let memory = options.memory;
        Ok(Reader {
            text,
            has_weights,
            has_kinds,
            memory,
            n_vertices: options.n_vertices,
            ids,
            times,
            largest_kind: 0,
            kinds: None,
            notes: Vec::new(),
        })
    }

    /// Finds out whether types of edges are names, and then which there are: for this, all files are read.
    pub(crate) fn read_kinds(&mut self, paths: &[PathBuf], progress: Progress<'_>) -> Result<()> {
        if !self.has_kinds {
            return Ok(());
        }
        let mut names = Names::new(self.memory, MAX_RELATIONS);
        let (mut is_number, mut n_names) = (false, 0u64);
        for path in paths {
            let mut first = true;
            rows(self.text, path, "reading names of types", &mut *progress, &mut |row, fail| {
                let is_header = std::mem::take(&mut first) && self.is_header(row, true);
                if is_header {
                    self.check_header(row, fail)?;
                }
                let Some(kind) = row.kind.filter(|_| !is_header) else { return Ok(true) };
                if kind.parse::<f64>().is_err() {
                    n_names += 1;
                    return names.insert(kind).map(|()| true).map_err(fail);
                }
                // One name before the first number may be that of the column.
                is_number = n_names <= 1;
                match is_number {
                    true => Ok(false),
                    false => Err(fail(format!("type {}: those before are names, no numbers", shown(kind)))),
                }
            })?;
            if is_number {
                return Ok(());
            }
        }
        self.kinds = Some(names.sorted()).filter(|_| n_names > 0);
        Ok(())
    }

    /// What all files had. Names of types are written to `folder`.
    pub(crate) fn found(&mut self, folder: &Path, scratch: &Path, n_vertices: Option<u64>) -> Result<Found> {
        let notes = std::mem::take(&mut self.notes);
        let mut found = Found { has_weights: self.has_weights, n_vertices, notes, ..Found::default() };
        found.n_relations = if self.has_kinds { u32::from(self.largest_kind) + 1 } else { 1 };
        if let Some(kinds) = &self.kinds {
            kinds.write(&folder.join(RELATIONS))?;
            found.files.push(RELATIONS.into());
            found.notes.push(format!(
                "types of edges have names: {RELATIONS} has them, a line each, in the order of their numbers"
            ));
        }
        if let Some(times) = self.times.take() {
            times.finish()?;
            found.edge_times = Some(times_path(scratch));
        }
        Ok(found)
    }

    /// Reads a file. Errors name the file and the line.
    pub(crate) fn read(&mut self, path: &Path, sink: &mut dyn Sink, progress: Progress<'_>) -> Result<()> {
        let mut first = true;
        let text = self.text;
        // The first edge, if its ends may be names of columns.
        let mut doubtful = None;
        let are_numbers = |row: &Row<'_>| row.ends().map(|end| end.parse::<f64>().is_ok());
        rows(text, path, "reading edges", progress, &mut |row, fail| {
            if std::mem::take(&mut first) {
                let ends = row.ends().map(shown).join(", ");
                if self.is_header(row, self.kinds.is_some()) {
                    self.check_header(row, fail)?;
                    if text.header.is_none() {
                        self.notes.push(format!(
                            "the first line of {} is taken for names of columns: {ends} (--header false: for an edge)",
                            path.display()
                        ));
                    }
                    return Ok(true);
                }
                let told = text.header.is_some() || are_numbers(row) != [false, false];
                doubtful = (!told).then_some(ends);
            } else if let Some(ends) = doubtful.take()
                && are_numbers(row) == [true, true]
            {
                self.notes.push(format!(
                    "the first line of {} is taken for an edge: {ends} (--header true: for names of columns)",
                    path.display()
                ));
            }
            self.edge(row, sink, fail).map(|()| true)
        })
    }

    /// Whether a file's first line names its columns. `names`: types are names.
    fn is_header(&self, row: &Row<'_>, names: bool) -> bool {
        if let Some(header) = self.text.header {
            return header;
        }
        if !self.text.map_ids {
            // A number that is no id is an error of its line, not a name.
            let is_number = |field: Option<&str>| field.is_some_and(|f| f.parse::<f64>().is_ok());
            return !is_number(row.source) && !is_number(row.destination);
        }
        // Ids may be any text: a header is told by what must be numbers, or by names that ends often have.
        let no_number = |field: Option<&str>| field.is_some_and(|f| f.parse::<f64>().is_err());
        (self.has_weights && no_number(row.weight))
            || (self.has_kinds && !names && no_number(row.kind))
            || (self.text.columns.contains(&Column::Time) && no_number(row.time))
            || columns::name_columns(row.ends())
    }

    /// `Ok` if the names of a header do not say that its columns hold something else than they are taken for.
    fn check_header(&self, row: &Row<'_>, fail: &dyn Fn(String) -> Error) -> Result<()> {
        let Some(problem) = columns::contradiction(&self.text.columns, &row.names) else { return Ok(()) };
        // Of ids that are any text, it may be an edge.
        let or_edge = match self.text.header.is_none() && self.text.map_ids {
            true => " (--header false: it is an edge)",
            false => "",
        };
        Err(fail(problem + or_edge))
    }

    fn edge(&mut self, row: &Row<'_>, sink: &mut dyn Sink, fail: &dyn Fn(String) -> Error) -> Result<()> {
        let need = |field: Option<&str>, name: &str| {
            field
                .map(str::to_owned)
                .ok_or_else(|| fail(format!("has no {name}: expected a value in its column")))
        };
        let (Some(source), Some(destination)) = (row.source, row.destination) else {
            need(row.source, "source")?;
            need(row.destination, "destination")?;
            return Ok(());
        };
        let (source, destination) = (self.vertex(source, fail)?, self.vertex(destination, fail)?);
        let mut weight = 1.0;
        if self.has_weights {
            let field = need(row.weight, "weight")?;
            weight = field.parse::<f32>().ok().filter(|w| w.is_finite() && *w >= 0.0).ok_or_else(|| {
                let expected = "expected a finite number of at least 0, or --no-weights";
                fail(format!("weight {}: {expected}", shown(&field)))
            })?;
        }
        let mut kind = 0;
        if self.has_kinds {
            let field = need(row.kind, "type")?;
            let number = match &self.kinds {
                Some(kinds) => kinds.number(&field).map(|kind| kind as u16),
                None => field.parse::<u16>().ok(),
            };
            let expected = || {
                format!("type {}: expected an integer below {MAX_RELATIONS}, or names only", shown(&field))
            };
            kind = number.ok_or_else(|| fail(expected()))?;
            self.largest_kind = self.largest_kind.max(kind);
        }
        if let Some(times) = &mut self.times {
            let field = need(row.time, "time")?;
            let time = field.parse::<f64>().ok().filter(|time| time.is_finite());
            let time =
                time.ok_or_else(|| fail(format!("time {}: expected a finite number", shown(&field))))?;
            times.write(&[time])?;
        }
        sink.edge(source, destination, weight, kind)
    }

    /// The number of a vertex.
    fn vertex(&mut self, id: &str, fail: &dyn Fn(String) -> Error) -> Result<u32> {
        let limit = self.n_vertices.unwrap_or(MAX_VERTICES);
        if self.text.map_ids {
            let number = self.ids.number(id, self.memory)?;
            return match u64::from(number) < limit {
                true => Ok(number),
                false => {
                    Err(fail(format!("id {} is one more than the {limit} of --num-vertices", shown(id))))
                }
            };
        }
        let number = id.parse::<u32>().ok().filter(|&v| u64::from(v) < limit.min(MAX_VERTICES));
        number.ok_or_else(|| {
            // What --num-vertices does not allow is no reason to map ids.
            let is_number = id.parse::<u32>().is_ok_and(|v| u64::from(v) < MAX_VERTICES);
            let (most, or) = match is_number {
                true => (limit - 1, format!(", as --num-vertices is {limit}")),
                false => (MAX_VERTICES - 1, ", or --ids map".to_owned()),
            };
            fail(format!("id {}: expected an integer from 0 to {most}{or}", shown(id)))
        })
    }
}

type TakeRow<'a> = &'a mut dyn FnMut(&Row<'_>, &dyn Fn(String) -> Error) -> Result<bool>;

/// Calls `take` with every line that is neither empty nor a comment, and with what makes errors of it, until it returns
/// false.
fn rows(text: &EdgeText, path: &Path, doing: &str, progress: Progress<'_>, take: TakeRow<'_>) -> Result<()> {
    let mut lines = Lines::open(path)?;
    let mut by = None;
    let mut is_first = true;
    loop {
        let part = lines.part();
        if lines.number % (1 << 16) == 0 {
            progress(doing, part)?;
        }
        let number = lines.number + 1;
        let Some(line) = lines.next_line()? else { return Ok(()) };
        let trimmed = line.trim();
        if number == 1 && trimmed.starts_with("%%MatrixMarket") {
            return Err(line_error(path, number, "is a Matrix Market file: its format is mtx"));
        }
        if trimmed.is_empty() || trimmed.starts_with(['#', '%']) {
            continue;
        }
        let fail = |problem: String| line_error(path, number, problem);
        let by = *by.get_or_insert_with(|| separator(trimmed));
        let mut row = Row { wants_names: std::mem::take(&mut is_first), ..Row::default() };
        let goes_on = match by {
            Some(by) if line.contains('"') => {
                let record = quoted(line, by).map_err(fail)?;
                row.take(text, record.iter());
                take(&row, &fail)?
            }
            // Mixed tabs and spaces are common, as are several in a row.
            None | Some('\t') if !(by.is_some() && text.map_ids) => {
                row.take(text, trimmed.split_ascii_whitespace());
                take(&row, &fail)?
            }
            by => {
                row.take(text, line.split(by.unwrap_or(' ')).map(str::trim));
                take(&row, &fail)?
            }
        };
        if !goes_on {
            return Ok(());
        }
    }
}

/// The fields of a line.
#[derive(Default)]
struct Row<'a> {
    source: Option<&'a str>,
    destination: Option<&'a str>,
    weight: Option<&'a str>,
    kind: Option<&'a str>,
    time: Option<&'a str>,
    /// All fields of a file's first line.
    names: Vec<&'a str>,
    wants_names: bool,
}

impl<'a> Row<'a> {
    /// Source and destination, empty if there is none.
    fn ends(&self) -> [&'a str; 2] {
        [self.source, self.destination].map(Option::unwrap_or_default)
    }

    fn take(&mut self, text: &EdgeText, fields: impl Iterator<Item = &'a str>) {
        let mut fields = fields.inspect(|field| {
            if self.wants_names {
                self.names.push(field);
            }
        });
        for (column, field) in text.columns.iter().zip(&mut fields) {
            let field = Some(field).filter(|f| !f.is_empty());
            match column {
                Column::Source => self.source = field,
                Column::Destination => self.destination = field,
                Column::Weight => self.weight = field,
                Column::Type => self.kind = field,
                Column::Time => self.time = field,
                Column::Skip => {}
            }
        }
        if self.wants_names {
            fields.for_each(drop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By what the table says of itself and what glibc's `malloc` takes: 32 bytes for a text of up to 24, 48 up to 40.
    #[test]
    fn ids_take_no_more_memory_than_is_counted() {
        let memory = 1 << 20;
        let mut ids = Ids::default();
        let (mut n, mut texts) = (0u64, 0);
        let error = loop {
            let id = if n % 2 == 0 { format!("{n:010}") } else { format!("{n:030}") };
            let before = ids.numbers.capacity();
            if let Err(error) = ids.number(&id, memory) {
                break error.to_string();
            }
            assert_eq!(ids.number(&id, memory).unwrap(), n as u32);
            n += 1;
            texts += if n % 2 == 1 { 32 } else { 48 };
            // Entries of 24 bytes and 1, in a table with room for an eighth more; the old one too while it is copied.
            let grown = if ids.numbers.capacity() == before { 0 } else { before };
            let tables = (ids.numbers.capacity() + grown) as u64 * 8 / 7 * 25;
            assert!(tables + texts <= memory, "{tables} and {texts} for {n} ids");
        };
        // Nothing is refused too early: 14,336 ids fill a table that would take more than all memory when it grows.
        assert_eq!(n, 14_336);
        assert!(error.contains("4194304") && error.contains(&format!("beyond {n}")), "{error}");
    }
}
