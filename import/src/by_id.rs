//! Labels and features whose rows are found by id, in any order.

use std::path::Path;

use cohop::data::npy::Writer;
use cohop::{Error, Result};

use crate::array::Place;
use crate::edges::Ids;
use crate::labels::{self, Scattered};
use crate::rows::reorder;
use crate::sort::Sorter;
use crate::table::Table;
use crate::text::{Lines, fields, line_error, separator, shown};
use crate::typed::{NotFinite, stored, too_large, usual_dtype, write_row};
use crate::vertices::{Vertices, is_npy};
use crate::{Found, Progress};

/// Writes `labels.npy` of an array whose row k is that of the vertex with the id k.
pub(crate) fn labels(
    vertices: &Vertices<'_>,
    ids: &Ids,
    place: &Place,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<()> {
    let mut table = Table::open(place)?;
    let column = labels::column(place, table.columns(), vertices.options)?;
    let mut labels = Scattered::new(vertices.scratch, vertices.options.memory);
    let mut n_used = 0;
    while let Some(row) = table.next()? {
        let class = labels::class(row[column]);
        let id = table.n_given() - 1;
        if let Some(vertex) = ids.get(&id.to_string()) {
            labels.push(vertex, class.map_err(|problem| table.error(problem))?)?;
            n_used += 1;
        }
        if table.n_given() % (1 << 16) == 0 {
            progress("reading labels", table.part())?;
        }
    }
    let n = table.n_given();
    if n_used < ids.len() as u64 {
        let is_row = |id: &str| id.parse::<u64>().is_ok_and(|k| k < n && k.to_string() == id);
        let id = shown(ids.first(|id| !is_row(id)).unwrap_or_default());
        return Err(place.error(format!(
            "has {n} rows, none for id {id}: with --ids map, row k is that of id k, or ids and classes are text"
        )));
    }
    tell(place, n - n_used, found);
    let conflict = |vertex, [a, b]: [i32; 2]| {
        place.error(format!("has the classes {a} and {b} for {}", vertices.name(vertex)))
    };
    labels.write(vertices.folder, vertices.n, found, &conflict)
}

/// Says what rows of an array are of no vertex.
fn tell(place: &Place, n_left_out: u64, found: &mut Found) {
    found.notes.push(format!("row k of {place} is taken as that of id k"));
    if n_left_out > 0 {
        found.notes.push(format!("{n_left_out} rows of {place} are left out: no edge has their ids"));
    }
}

/// Writes `feat.npy` of text whose first column is the id, or of an array whose row k is that of the vertex with the id
/// k.
pub(crate) fn features(
    vertices: &Vertices<'_>,
    path: &Path,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<()> {
    let place = if is_npy(path) { Place::npy(path) } else { Place::text(path) };
    let mut rows = Rows::new(vertices, &place)?;
    match place.is_array {
        true => rows.read_array(&place, found, &mut *progress)?,
        false => rows.read_text(&place, found, &mut *progress)?,
    }
    let Rows { writer, order, n_rows, not_finite, .. } = rows;
    if let Some(writer) = writer {
        writer.finish()?;
    }
    not_finite.tell("features", found);
    if n_rows == 0 {
        return Err(place.error(format!("has no row for {}", vertices.name(0))));
    }
    let mut order = order.sorted()?;
    let mut next = 0u64;
    let mut numbers = || {
        let record = order.next()?;
        let vertex = record.map_or(vertices.n, |record| record >> 32);
        if vertex > next {
            return Err(place.error(format!("has no row for {}", vertices.name(next as u32))));
        }
        if vertex < next {
            return Err(two_rows(vertices, path, vertex as u32));
        }
        next += 1;
        Ok(record.map(|record| record & u64::from(u32::MAX)))
    };
    let from = unordered(vertices);
    let n = vertices.n as f64;
    let mut say = |done: u64| progress("ordering features", done as f64 / n);
    reorder(&from, n_rows, &mut numbers, &vertices.folder.join("feat.npy"), &mut say)?;
    std::fs::remove_file(&from).map_err(|e| Error::io(from, e))?;
    found.files.push("feat.npy".into());
    Ok(())
}

/// The error of a vertex with two rows of a text (of an array, each row has another id): it is read again to tell the
/// lines.
fn two_rows(vertices: &Vertices<'_>, path: &Path, vertex: u32) -> Error {
    let find = || -> Result<Option<Error>> {
        let mut lines = Lines::open(path)?;
        let (mut by, mut first) = (None, None);
        loop {
            let number = lines.number + 1;
            let Some(line) = lines.next_line()? else { return Ok(None) };
            if line.trim().is_empty() || line.starts_with(['#', '%']) {
                continue;
            }
            let by = *by.get_or_insert_with(|| separator(line));
            let fields = fields(line, by).map_err(|problem| line_error(path, number, problem))?;
            let is_of_vertex = fields.first().and_then(|id| vertices.number(id)) == Some(vertex);
            match first.filter(|_| is_of_vertex) {
                Some(first) => {
                    let name = vertices.name(vertex);
                    let problem = format!("has a second row for {name}, after that of line {first}");
                    return Ok(Some(line_error(path, number, problem + ": expected one each")));
                }
                None if is_of_vertex => first = Some(number),
                None => {}
            }
        }
    };
    match find() {
        Ok(Some(error)) | Err(error) => error,
        // The file has changed meanwhile.
        Ok(None) => Error::format(path, format!("has two rows for {}", vertices.name(vertex))),
    }
}

/// Where rows are written in the order in which they come.
fn unordered(vertices: &Vertices<'_>) -> std::path::PathBuf {
    vertices.scratch.join("unordered_feat.npy")
}

/// Rows of features on their way.
struct Rows<'a> {
    vertices: &'a Vertices<'a>,
    dtype: cohop::data::FeatureDtype,
    /// Made for the first row, which says how many columns there are.
    writer: Option<Writer>,
    /// The vertex in the upper half, the number of its row in the lower one.
    order: Sorter<u64>,
    n_rows: u64,
    not_finite: NotFinite,
}

impl<'a> Rows<'a> {
    fn new(vertices: &'a Vertices<'a>, place: &Place) -> Result<Self> {
        let dtype = match vertices.options.feature_dtype {
            Some(dtype) => dtype,
            None => usual_dtype(std::iter::once(place))?,
        };
        let order = Sorter::new(vertices.scratch, vertices.options.memory);
        Ok(Rows { vertices, dtype, writer: None, order, n_rows: 0, not_finite: NotFinite::default() })
    }

    /// Takes the row of a vertex; all must have the same length.
    fn push(&mut self, vertex: u32, row: &[f64], place: &Place, at: &dyn Fn() -> String) -> Result<()> {
        let fail = |problem: String| place.error(format!("{}: {problem}", at()));
        if let Some(value) = too_large(self.dtype, row) {
            return Err(fail(format!("{value:e} is beyond the range of {}", self.dtype)));
        }
        let number = u32::try_from(self.n_rows).map_err(|_| fail("is beyond the 2^32nd row".into()))?;
        self.not_finite.look(row, &|| format!("{} of {place}", at()));
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => {
                let writer = Writer::create(&unordered(self.vertices), stored(self.dtype), Some(row.len()))?;
                none.insert(writer)
            }
        };
        write_row(writer, self.dtype, row)?;
        self.n_rows += 1;
        self.order.push(u64::from(vertex) << 32 | u64::from(number))
    }

    fn read_array(&mut self, place: &Place, found: &mut Found, progress: Progress<'_>) -> Result<()> {
        let mut table = Table::open(place)?;
        while let Some(row) = table.next()?.map(<[f64]>::to_vec) {
            let id = table.n_given() - 1;
            if let Some(vertex) = self.vertices.number(&id.to_string()) {
                self.push(vertex, &row, place, &|| table.at())?;
            }
            if table.n_given() % (1 << 10) == 0 {
                progress("reading features", table.part())?;
            }
        }
        tell(place, table.n_given() - self.n_rows, found);
        Ok(())
    }

    fn read_text(&mut self, place: &Place, found: &mut Found, progress: Progress<'_>) -> Result<()> {
        let path = &*place.path;
        let mut lines = Lines::open(path)?;
        // Fields of the first line, and what separates them.
        let mut form = None;
        let mut row = Vec::new();
        loop {
            let (number, part) = (lines.number + 1, lines.part());
            let fail = |problem: String| line_error(path, number, problem);
            let Some(line) = lines.next_line()? else { return Ok(()) };
            if line.trim().is_empty() || line.starts_with(['#', '%']) {
                continue;
            }
            let is_first = form.is_none();
            let by = form.map_or_else(|| separator(line), |(_, by)| by);
            let fields = fields(line, by).map_err(fail)?;
            let (n, _) = *form.get_or_insert((fields.len(), by));
            if fields.len() != n || n < 2 {
                let expected = if n < 2 {
                    "expected an id and features".into()
                } else {
                    format!("the first line has {n}")
                };
                return Err(fail(format!("has {} values, {expected}", fields.len())));
            }
            row.clear();
            // Empty values are none, as pandas writes them.
            row.extend(
                fields[1..].iter().map_while(|f| if f.is_empty() { Some(f64::NAN) } else { f.parse().ok() }),
            );
            let (id, wrong) = (&*fields[0], fields[1..].get(row.len()));
            if is_first && !self.vertices.may_be_id(id) {
                // pandas leaves the name of the ids out, and numbers the other columns.
                let is_name = id.is_empty() || id.eq_ignore_ascii_case("id");
                if is_name || wrong.is_some() {
                    let (id, first) = (shown(id), shown(&fields[1]));
                    let names = format!("the first line of {} is taken for names of columns", path.display());
                    found.notes.push(format!("{names}: {id}, {first}, .."));
                    continue;
                }
            }
            let vertex = self.vertices.number(id);
            let vertex = vertex.ok_or_else(|| {
                let hint = match self.vertices.ids.is_none() && !self.vertices.may_be_id(id) {
                    true => ": expected a number, or --ids map",
                    false => "",
                };
                fail(format!("id {}: there is no such vertex{hint}", shown(id)))
            })?;
            if let Some(wrong) = wrong {
                return Err(fail(format!("{}: expected a number", shown(wrong))));
            }
            self.push(vertex, &row, place, &|| format!("line {number}"))?;
            if self.n_rows.is_multiple_of(1 << 10) {
                progress("reading features", part)?;
            }
        }
    }
}
