//! Classes in text: one a line, for the vertices in order; or lines of id and class.

use std::path::Path;

use cohop::data::MAX_CLASSES;
use cohop::{Error, Result};

use crate::labels::{self, Scattered};
use crate::names::{Names, Sorted};
use crate::text::{Lines, fields, line_error, separator, shown};
use crate::vertices::Vertices;
use crate::{Found, Progress};

/// What a column of classes is called, where nothing else tells a name from a class.
const HEADERS: [&str; 8] = ["label", "labels", "class", "classes", "category", "target", "topic", "y"];

/// The file that says which class has which number.
const CLASSES: &str = "classes.txt";

/// A line.
struct Row {
    /// `None`: lines are the vertices in order.
    id: Option<String>,
    label: String,
    line: u64,
}

/// The lines of a file that are neither empty nor comments.
struct Rows<'a> {
    path: &'a Path,
    lines: Lines,
    /// Fields of the first line, and what separates them.
    form: Option<(usize, Option<char>)>,
    /// Which of several columns of labels.
    column: Option<usize>,
    /// The first blank line: where lines are the vertices in order, no other may follow.
    blank: Option<u64>,
}

impl<'a> Rows<'a> {
    fn open(path: &'a Path, column: Option<usize>) -> Result<Self> {
        Ok(Rows { path, lines: Lines::open(path)?, form: None, column, blank: None })
    }

    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            let number = self.lines.number + 1;
            let fail = |problem: String| line_error(self.path, number, problem);
            let Some(line) = self.lines.next_line()? else { return Ok(None) };
            // Not trimmed: the last class may be empty in a line that ends in a tab.
            if line.trim().is_empty() {
                self.blank.get_or_insert(number);
                continue;
            }
            if line.starts_with(['#', '%']) {
                continue;
            }
            let (n, by) = *self.form.get_or_insert_with(|| (0, separator(line)));
            // A first line of one value says nothing of what separates several.
            let by = by.or_else(|| separator(line).filter(|_| n == 1));
            let fields = fields(line, by).map_err(fail)?;
            if n == 0 {
                self.form = Some((fields.len(), by));
            } else if fields.len() != n {
                return Err(fail(format!("has {} values, the first line has {n}", fields.len())));
            }
            let (id, labels) = match &fields[..] {
                [label] => (None, std::slice::from_ref(label)),
                [id, labels @ ..] => (Some(id.to_string()), labels),
                [] => continue,
            };
            if let (None, Some(blank)) = (&id, self.blank) {
                let problem = "is blank, but lines are the classes of all vertices in order: expected a class, or \"\" \
                               where there is none";
                return Err(line_error(self.path, blank, problem));
            }
            if self.column.is_none() && labels.len() > 1 {
                let expected = "expected a class, or an id and a class, or --label-column to choose one";
                return Err(fail(format!("has {n} values: {expected}", n = fields.len())));
            }
            let column = self.column.unwrap_or(0);
            let Some(label) = labels.get(column) else {
                let expected =
                    format!("below {}, the columns of labels of {}", labels.len(), self.path.display());
                return Err(Error::invalid("--label-column", column, expected));
            };
            return Ok(Some(Row { id, label: label.to_string(), line: number }));
        }
    }

    fn error(&self, row: &Row, problem: impl std::fmt::Display) -> Error {
        line_error(self.path, row.line, problem)
    }

    /// An error at a label that is a number where there are names, or a name where there are numbers. `other`: the line
    /// of one that is not so, and what it is.
    fn mixed(&self, row: &Row, other: Option<(u64, String)>) -> Error {
        let label = shown(&row.label);
        let is_number = matches!(row.kind(), Label::Number(_));
        let (this, others) = if is_number { ("number", "name") } else { ("name", "number") };
        let seen = match other {
            Some((line, other)) => format!("the label of line {line}, {}, is a {others}", shown(&other)),
            None => format!("the labels before it are {others}s"),
        };
        let expected = "expected classes that are all numbers or all names";
        self.error(row, format!("label {label} is a {this}, but {seen}: {expected}"))
    }
}

/// What a field says.
enum Label<'a> {
    /// Empty, or NaN.
    None,
    Number(f64),
    Name(&'a str),
}

impl Row {
    fn kind(&self) -> Label<'_> {
        match self.label.parse::<f64>() {
            _ if self.label.is_empty() => Label::None,
            Ok(number) if number.is_nan() => Label::None,
            Ok(number) => Label::Number(number),
            Err(_) => Label::Name(&self.label),
        }
    }
}

/// How a file is to be understood.
struct Form {
    has_header: bool,
    /// `None`: classes are numbers.
    classes: Option<Sorted>,
}

/// Reads as much of the file as tells its form: all of it, if classes are names.
fn form(vertices: &Vertices<'_>, path: &Path, found: &mut Found, progress: Progress<'_>) -> Result<Form> {
    let mut rows = Rows::open(path, vertices.options.label_column)?;
    let Some(first) = rows.next()? else {
        return Err(Error::format(
            path,
            "has no labels: expected a class for each vertex, or ids and classes",
        ));
    };
    let numbers = |has_header| Ok(Form { has_header, classes: None });
    if matches!(first.kind(), Label::Number(_)) {
        return numbers(false);
    }
    let mut names = Names::new(vertices.options.memory, MAX_CLASSES);
    // The first one, for messages.
    let mut named: Option<(u64, String)> = None;
    let mut number = None;
    while let Some(row) = rows.next()? {
        match row.kind() {
            Label::None => {}
            Label::Number(_) if named.is_some() => return Err(rows.mixed(&row, named)),
            Label::Number(_) => {
                number = Some(row);
                break;
            }
            Label::Name(name) => {
                names.insert(name).map_err(|problem| rows.error(&row, problem))?;
                named.get_or_insert_with(|| (row.line, name.to_owned()));
            }
        }
        if row.line % (1 << 16) == 0 {
            progress("reading names of classes", rows.lines.part())?;
        }
    }
    let has_header = match (first.kind(), &first.id) {
        (Label::Name(_), Some(id)) => !vertices.may_be_id(id),
        (Label::Name(name), None) => {
            number.is_some() || HEADERS.contains(&name.to_ascii_lowercase().as_str())
        }
        _ => false,
    };
    if !has_header && let Label::Name(name) = first.kind() {
        if let Some(row) = number {
            return Err(rows.mixed(&row, Some((first.line, first.label))));
        }
        named.get_or_insert_with(|| (first.line, name.to_owned()));
        names.insert(name).map_err(|problem| rows.error(&first, problem))?;
    }
    if has_header {
        let names = first.id.iter().chain([&first.label]).map(|name| shown(name)).collect::<Vec<_>>();
        found.notes.push(format!(
            "the first line of {} is taken for names of columns: {}",
            path.display(),
            names.join(", ")
        ));
    }
    if named.is_none() {
        return numbers(has_header);
    }
    Ok(Form { has_header, classes: Some(names.sorted()) })
}

/// Writes `labels.npy`, and `classes.txt` if classes have names.
pub(crate) fn write(
    vertices: &Vertices<'_>,
    path: &Path,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<()> {
    let Form { mut has_header, classes } = form(vertices, path, found, &mut *progress)?;
    let mut rows = Rows::open(path, vertices.options.label_column)?;
    let mut labels = Scattered::new(vertices.scratch, vertices.options.memory);
    let had_header = has_header;
    // Lines of classes alone.
    let mut n_alone = 0u64;
    let (mut n_rows, mut n_none) = (0u64, 0u64);
    let mut first_too_many = None;
    while let Some(row) = rows.next()? {
        if std::mem::take(&mut has_header) {
            continue;
        }
        n_rows += 1;
        n_alone += u64::from(row.id.is_none());
        if row.line % (1 << 16) == 0 {
            progress("reading labels", rows.lines.part())?;
        }
        if n_alone > vertices.n {
            first_too_many.get_or_insert(row);
            continue;
        }
        let class = match (row.kind(), &classes) {
            (Label::None, _) => -1,
            (Label::Number(number), None) => {
                labels::class(number).map_err(|problem| rows.error(&row, problem))?
            }
            (Label::Name(name), Some(classes)) => classes.number(name).map_or(-1, |class| class as i32),
            _ => return Err(rows.mixed(&row, None)),
        };
        n_none += u64::from(class < 0);
        let vertex = match &row.id {
            Some(id) => vertices.number(id),
            None => Some((n_alone - 1) as u32),
        };
        let vertex = vertex.ok_or_else(|| {
            let id = shown(row.id.as_deref().unwrap_or_default());
            rows.error(&row, format!("{id}: there is no such vertex, of {} that there are", vertices.n))
        })?;
        labels.push(vertex, class)?;
    }
    let counts = format!("{n_alone} labels, there are {} vertices: expected one each", vertices.n);
    if let Some(row) = first_too_many {
        let problem = format!("label {} is the first too many: the file has {counts}", shown(&row.label));
        // One more than there should be, and nothing tells a name of classes from that of their column.
        let hint = match classes.is_some() && !had_header && n_alone == vertices.n + 1 {
            true => "; if the first line is the name of the column, remove it",
            false => "",
        };
        return Err(rows.error(&row, problem + hint));
    }
    if n_alone > 0 && n_alone < vertices.n {
        return Err(Error::format(path, format!("has {counts}{}", vertices.hint(n_alone))));
    }
    if n_rows == 0 {
        return Err(Error::format(path, "has no labels, but only names of columns"));
    }
    if n_none > 0 {
        found.notes.push(format!("{n_none} labels are empty, NaN or -1: these vertices have none"));
    }
    if n_alone > 0 && vertices.ids.is_some() {
        found.notes.push(format!(
            "labels of {} are taken in the order of ids.txt, not by id (lines of id and class)",
            path.display()
        ));
    }
    if let Some(classes) = classes {
        classes.write(&vertices.folder.join(CLASSES))?;
        found.files.push(CLASSES.into());
        found.notes.push(format!(
            "classes have names: {CLASSES} has them, a line each, in the order of their numbers"
        ));
    }
    let conflict = |vertex, _| two_classes(vertices, path, vertex);
    labels.write(vertices.folder, vertices.n, found, &conflict)
}

/// The error of a vertex with two classes: the file is read again to tell the lines.
fn two_classes(vertices: &Vertices<'_>, path: &Path, vertex: u32) -> Error {
    let find = || -> Result<Option<Error>> {
        let mut rows = Rows::open(path, vertices.options.label_column)?;
        let mut first: Option<Row> = None;
        while let Some(row) = rows.next()? {
            let is_of_vertex = row.id.as_deref().and_then(|id| vertices.number(id)) == Some(vertex);
            if !is_of_vertex || matches!(row.kind(), Label::None) {
                continue;
            }
            match &first {
                None => first = Some(row),
                Some(first) if first.label != row.label => {
                    let id = shown(row.id.as_deref().unwrap_or_default());
                    let (line, other, label) = (first.line, shown(&first.label), shown(&row.label));
                    let problem = format!("id {id} has the class {label}, but {other} in line {line}");
                    return Ok(Some(rows.error(&row, format!("{problem}: expected one class a vertex"))));
                }
                Some(_) => {}
            }
        }
        Ok(None)
    };
    match find() {
        Ok(Some(error)) | Err(error) => error,
        // The file has changed meanwhile.
        Ok(None) => Error::format(path, format!("has two classes for {}", vertices.name(vertex))),
    }
}

#[cfg(test)]
mod tests;
