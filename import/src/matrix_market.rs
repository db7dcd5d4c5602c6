//! Matrix Market's coordinate files (Boisvert, Pozo & Remington, NISTIR 5935, 1996).

use std::path::Path;

use cohop::graph::MAX_VERTICES;
use cohop::{Error, Result};

use crate::sink::Sink;
use crate::text::{Lines, shown};
use crate::{Found, Progress, ReadOptions, Rows};

/// What the first line says of the values.
#[derive(Clone, Copy, PartialEq)]
enum Field {
    Pattern,
    Real,
    Integer,
}

/// What the first line says of entries across the diagonal.
#[derive(Clone, Copy, PartialEq)]
enum Symmetry {
    General,
    Symmetric,
    Skew,
}

const BANNER: &str = "%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric|skew-symmetric";

fn banner(line: &str) -> Option<(Field, Symmetry)> {
    let words: Vec<String> = line.split_ascii_whitespace().map(str::to_ascii_lowercase).collect();
    let [mark, object, form, field, symmetry] = &words[..] else { return None };
    if mark != "%%matrixmarket" || object != "matrix" || form != "coordinate" {
        return None;
    }
    let field = match field.as_str() {
        "pattern" => Field::Pattern,
        "real" | "double" => Field::Real,
        "integer" => Field::Integer,
        _ => return None,
    };
    let symmetry = match symmetry.as_str() {
        "general" => Symmetry::General,
        "symmetric" => Symmetry::Symmetric,
        "skew-symmetric" => Symmetry::Skew,
        _ => return None,
    };
    Some((field, symmetry))
}

/// Reads a square matrix: an entry is an edge, a symmetric one off the diagonal is two.
pub(crate) fn read(
    input: &Path,
    options: &ReadOptions,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Found> {
    let mut lines = Lines::open(input)?;
    let first = lines.next_line()?.unwrap_or_default().to_owned();
    let Some((field, symmetry)) = banner(&first) else {
        return Err(lines.error(format!("{}: expected {BANNER}", shown(&first))));
    };
    let rows = match (options.rows, symmetry) {
        (Some(rows), _) => rows,
        (None, Symmetry::General) => return Err(need_rows(input)),
        (None, _) => Rows::Sources,
    };
    let Some(sizes) = content(&mut lines)? else { return Err(lines.error("has no line of sizes")) };
    let numbers: Option<Vec<u64>> = sizes.split_ascii_whitespace().map(|word| word.parse().ok()).collect();
    let Some([n, columns, n_entries]) = numbers.and_then(|n| <[u64; 3]>::try_from(n).ok()) else {
        return Err(lines.error(format!("{}: expected rows, columns, entries", shown(&sizes))));
    };
    if n != columns {
        return Err(lines.error(format!("{n} rows and {columns} columns: expected a square matrix")));
    }
    if n > MAX_VERTICES {
        return Err(lines.error(format!("{n} rows: at most {MAX_VERTICES} vertices are supported")));
    }
    let has_weights = field != Field::Pattern && !options.without_weights;
    sink.expect(has_weights, false, false);
    for done in 0..n_entries {
        if done % (1 << 16) == 0 {
            progress("reading edges", lines.part())?;
        }
        let Some(line) = content(&mut lines)? else {
            return Err(lines.error(format!("ends after {done} of {n_entries} entries: is it truncated?")));
        };
        let mut words = line.split_ascii_whitespace();
        let mut id = || {
            let number = words.next()?.parse::<u64>().ok()?;
            (1..=n).contains(&number).then(|| (number - 1) as u32)
        };
        let (Some(i), Some(j)) = (id(), id()) else {
            return Err(lines.error(format!("{}: expected a row and a column, 1 to {n}", shown(&line))));
        };
        let mut weight = 1.0;
        if has_weights {
            let number = words.next().and_then(|word| word.parse::<f32>().ok());
            weight = number.filter(|w| w.is_finite() && *w >= 0.0).ok_or_else(|| {
                lines.error(format!(
                    "{}: expected a finite value of at least 0 as the weight, or --no-weights",
                    shown(&line)
                ))
            })?;
            if symmetry == Symmetry::Skew && weight > 0.0 {
                return Err(
                    lines.error("a skew-symmetric matrix has negative weights: --no-weights leaves them out")
                );
            }
        }
        let (source, destination) = if rows == Rows::Sources { (i, j) } else { (j, i) };
        sink.edge(source, destination, weight, 0)?;
        if symmetry != Symmetry::General && i != j {
            sink.edge(destination, source, weight, 0)?;
        }
    }
    if let Some(line) = content(&mut lines)? {
        return Err(lines.error(format!("{}: the file has more than its {n_entries} entries", shown(&line))));
    }
    Ok(Found { n_vertices: Some(n), has_weights, ..Found::default() })
}

/// The next line that is neither empty nor a comment.
fn content(lines: &mut Lines) -> Result<Option<String>> {
    while let Some(line) = lines.next_line()? {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('%') {
            return Ok(Some(line.to_owned()));
        }
    }
    Ok(None)
}

/// The error of a matrix of which nothing says what its rows are.
pub(crate) fn need_rows(path: &Path) -> Error {
    let expected = format!(
        "sources or destinations: does entry (i, j) of {} mean an edge from i to j, or from j to i?",
        path.display()
    );
    Error::invalid("--rows", "not given", expected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{read_file, refused_file, text};

    const GENERAL: &str =
        "%%MatrixMarket matrix coordinate real general\n% a comment\n\n4 4 3\n1 2 0.5\n4 1 2\n2 2 1e0\n";

    #[test]
    fn entries_are_edges_by_what_rows_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mtx.gz");
        text(&path, GENERAL);
        let rows = |rows| ReadOptions { rows: Some(rows), ..ReadOptions::default() };
        let found = read_file(super::read, &path, &rows(Rows::Sources)).unwrap();
        assert_eq!(found.weighted(), [(0, 1, 0.5), (3, 0, 2.0), (1, 1, 1.0)]);
        assert_eq!((found.found.n_vertices, found.found.has_weights), (Some(4), true));
        let found = read_file(super::read, &path, &rows(Rows::Destinations)).unwrap();
        assert_eq!(found.weighted(), [(1, 0, 0.5), (0, 3, 2.0), (1, 1, 1.0)]);
        let options = ReadOptions { without_weights: true, ..rows(Rows::Sources) };
        let found = read_file(super::read, &path, &options).unwrap();
        assert_eq!(found.edges(), [(0, 1, 0), (3, 0, 0), (1, 1, 0)]);
        refused_file(super::read, &path, &ReadOptions::default(), &["--rows", "from i to j"]);
    }

    #[test]
    fn symmetric_entries_are_edges_both_ways() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mtx");
        // As scipy.io.mmwrite writes the lower triangle.
        text(&path, "%%MatrixMarket matrix coordinate pattern symmetric\n%\n3 3 2\n2 1\n3 3\n");
        let found = read_file(super::read, &path, &ReadOptions::default()).unwrap();
        assert_eq!(found.edges(), [(1, 0, 0), (0, 1, 0), (2, 2, 0)]);
        text(&path, "%%MatrixMarket matrix coordinate real skew-symmetric\n2 2 1\n2 1 -3\n");
        refused_file(super::read, &path, &ReadOptions::default(), &["line 3", "--no-weights"]);
        let options = ReadOptions { without_weights: true, ..ReadOptions::default() };
        assert_eq!(read_file(super::read, &path, &options).unwrap().edges(), [(1, 0, 0), (0, 1, 0)]);
    }

    #[test]
    fn wrong_files_are_refused_with_the_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.mtx");
        let options = ReadOptions { rows: Some(Rows::Sources), ..ReadOptions::default() };
        let body = |body: &str| format!("%%MatrixMarket matrix coordinate real general\n{body}");
        for (wrong, texts) in [
            ("1 2\n".into(), ["line 1", "%%MatrixMarket"]),
            ("%%MatrixMarket matrix array real general\n2 2\n".into(), ["line 1", "coordinate"]),
            ("%%MatrixMarket matrix coordinate complex general\n2 2 0\n".into(), ["line 1", "pattern"]),
            (body("2 3 1\n1 1 1\n"), ["line 2", "square"]),
            (body("2 2\n"), ["line 2", "rows, columns, entries"]),
            (body("2 2 18446744073709551615\n1 1 1\n"), ["line 4", "ends after 1"]),
            (body("9999999999 9999999999 1\n1 1 1\n"), ["line 2", "at most"]),
            (body("2 2 1\n0 1 1\n"), ["line 3", "1 to 2"]),
            (body("2 2 1\n3 1 1\n"), ["line 3", "1 to 2"]),
            (body("2 2 1\n1 1 nan\n"), ["line 3", "finite"]),
            (body("2 2 1\n1 1\n"), ["line 3", "finite"]),
            (body("2 2 1\n1 1 1\n2 2 1\n"), ["line 4", "more than its 1"]),
        ] {
            text(&path, &wrong);
            refused_file(super::read, &path, &options, &texts);
        }
    }
}
