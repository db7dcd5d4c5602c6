//! Text edge lists: CSV, TSV or space separated.

use std::collections::HashMap;
use std::path::Path;
use std::str::FromStr;

use cohop::{Error, Result};

use crate::Progress;
use crate::sink::Sink;
use crate::text::{Lines, line_error, shown};

/// What a column of an edge list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Where an edge begins.
    Source,
    /// Where an edge ends.
    Destination,
    /// A finite number.
    Weight,
    /// A relation, 0 to 65535.
    Type,
    /// Not read.
    Skip,
}

impl FromStr for Column {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "source" => Ok(Column::Source),
            "destination" => Ok(Column::Destination),
            "weight" => Ok(Column::Weight),
            "type" => Ok(Column::Type),
            "-" => Ok(Column::Skip),
            _ => Err(Error::invalid("--columns", name, "source, destination, weight, type or -")),
        }
    }
}

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
    bytes: u64,
}

impl Ids {
    fn number(&mut self, id: &str, memory: u64) -> Result<u64> {
        if let Some(&number) = self.numbers.get(id) {
            return Ok(u64::from(number));
        }
        // An entry of the table, its share of free ones, and the text with what its allocation costs.
        self.bytes += 64 + id.len() as u64;
        if self.bytes > memory {
            return Err(Error::invalid("--memory", memory, "more: the ids alone need more than half of it"));
        }
        let number = self.numbers.len() as u32;
        self.numbers.insert(id.into(), number);
        Ok(u64::from(number))
    }

    /// All ids, in the order of their numbers.
    pub(crate) fn into_list(self) -> Vec<Box<str>> {
        let mut ids: Vec<_> = self.numbers.into_iter().collect();
        ids.sort_unstable_by_key(|&(_, number)| number);
        ids.into_iter().map(|(id, _)| id).collect()
    }
}

/// Reads a file. Errors name the file and the line.
pub(crate) fn read(
    path: &Path,
    text: &EdgeText,
    ids: &mut Ids,
    memory: u64,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<()> {
    let mut lines = Lines::open(path)?;
    let mut separator = None;
    let mut first = true;
    loop {
        let part = lines.part();
        if lines.number % (1 << 16) == 0 {
            progress("reading edges", part)?;
        }
        let number = lines.number + 1;
        let Some(line) = lines.next_line()? else { return Ok(()) };
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', '%']) {
            continue;
        }
        let fail = |problem: String| line_error(path, number, problem);
        let by =
            *separator.get_or_insert_with(|| [',', ';', '\t'].into_iter().find(|&c| trimmed.contains(c)));
        let mut row = Row::default();
        match by {
            Some(by) if line.contains('"') => {
                let mut csv = csv::ReaderBuilder::new();
                let mut csv = csv.delimiter(by as u8).has_headers(false).from_reader(line.as_bytes());
                let mut record = csv::StringRecord::new();
                csv.read_record(&mut record).map_err(|e| fail(e.to_string()))?;
                row.take(text, record.iter());
                edge(text, &row, &mut first, ids, memory, sink, &fail)?;
            }
            // Mixed tabs and spaces are common, as are several in a row.
            None | Some('\t') if !(by.is_some() && text.map_ids) => {
                row.take(text, trimmed.split_ascii_whitespace());
                edge(text, &row, &mut first, ids, memory, sink, &fail)?;
            }
            by => {
                row.take(text, line.split(by.unwrap_or(' ')).map(str::trim));
                edge(text, &row, &mut first, ids, memory, sink, &fail)?;
            }
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
}

impl<'a> Row<'a> {
    fn take(&mut self, text: &EdgeText, fields: impl Iterator<Item = &'a str>) {
        for (column, field) in text.columns.iter().zip(fields) {
            let field = Some(field).filter(|f| !f.is_empty());
            match column {
                Column::Source => self.source = field,
                Column::Destination => self.destination = field,
                Column::Weight => self.weight = field,
                Column::Type => self.kind = field,
                Column::Skip => {}
            }
        }
    }
}

fn edge(
    text: &EdgeText,
    row: &Row<'_>,
    first: &mut bool,
    ids: &mut Ids,
    memory: u64,
    sink: &mut dyn Sink,
    fail: &dyn Fn(String) -> Error,
) -> Result<()> {
    let need = |field: Option<&'_ str>, name: &str| {
        field.map(str::to_owned).ok_or_else(|| fail(format!("has no {name}: expected a value in its column")))
    };
    if std::mem::take(first) {
        let is_id = |field: Option<&str>| field.is_some_and(|f| f.parse::<i64>().is_ok());
        let names = !is_id(row.source) && !is_id(row.destination);
        if text.header == Some(true) || (text.header.is_none() && !text.map_ids && names) {
            return Ok(());
        }
    }
    let (Some(source), Some(destination)) = (row.source, row.destination) else {
        need(row.source, "source")?;
        need(row.destination, "destination")?;
        return Ok(());
    };
    let mut vertex = |id: &str| match text.map_ids {
        true => ids.number(id, memory / 2),
        false => id.parse::<u64>().ok().filter(|&v| v < cohop::graph::MAX_VERTICES).ok_or_else(|| {
            let most = cohop::graph::MAX_VERTICES - 1;
            fail(format!("id {}: expected an integer from 0 to {most}, or --ids map", shown(id)))
        }),
    };
    let (source, destination) = (vertex(source)? as u32, vertex(destination)? as u32);
    let mut weight = 1.0;
    if text.columns.contains(&Column::Weight) {
        let field = need(row.weight, "weight")?;
        weight = field
            .parse::<f32>()
            .ok()
            .filter(|w| w.is_finite())
            .ok_or_else(|| fail(format!("weight {}: expected a finite number", shown(&field))))?;
    }
    let mut kind = 0;
    if text.columns.contains(&Column::Type) {
        let field = need(row.kind, "type")?;
        kind = field
            .parse::<u16>()
            .map_err(|_| fail(format!("type {}: expected an integer from 0 to 65535", shown(&field))))?;
    }
    sink.edge(source, destination, weight, kind)
}
