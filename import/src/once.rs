//! The vertices that files list, each of which may be there once.

use std::path::PathBuf;

use cohop::{Error, Result};

use crate::Progress;
use crate::array::Place;
use crate::table::Table;

/// Takes a vertex of a list, and what says where in its file that is: `line 5`, `row 4`.
pub(crate) type Take<'a> = &'a mut dyn FnMut(u32, &dyn Fn() -> String) -> Result<()>;

/// A bit for each vertex: whether it has been there.
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// No vertex of `n` has been there.
    pub(crate) fn new(n: u64) -> Result<Self> {
        let words = n.div_ceil(64) as usize;
        let mut marks = Vec::new();
        marks.try_reserve_exact(words).map_err(|_| {
            let asked = format!("there are {n} vertices");
            Error::OutOfMemory { what: "a mark for each vertex", bytes: 8 * words as u64, asked }
        })?;
        marks.resize(words, 0);
        Ok(Marks(marks))
    }

    /// Whether the vertex, which is below `n`, is here for the first time.
    pub(crate) fn is_new(&mut self, vertex: u32) -> bool {
        let (word, bit) = (&mut self.0[vertex as usize / 64], 1 << (vertex % 64));
        std::mem::replace(word, *word | bit) & bit == 0
    }
}

/// Gives the vertices of a table of one column to `take`; `number` tells the vertex of an id, or what is wrong with it.
pub(crate) fn listed(
    place: &Place,
    number: &dyn Fn(f64) -> Result<u32, String>,
    take: Take<'_>,
    progress: Progress<'_>,
) -> Result<()> {
    let mut table = Table::open(place)?;
    if table.columns() > 1 {
        return Err(place.error(format!("has {} columns, expected one: vertices", table.columns())));
    }
    while let Some(row) = table.next()? {
        let id = row[0];
        let vertex = number(id).map_err(|problem| table.error(problem))?;
        take(vertex, &|| table.at())?;
        if table.n_given() % (1 << 16) == 0 {
            progress("reading splits", table.part())?;
        }
    }
    Ok(())
}

/// The error of a vertex (by its `name`) that is at a place of the last of some files, and has been in one of them
/// before. `read` reads a file: it is read again to tell where.
pub(crate) fn repeated(
    files: &[PathBuf],
    at: &str,
    vertex: u32,
    name: &str,
    read: &mut dyn FnMut(&PathBuf, Take<'_>) -> Result<()>,
) -> Error {
    let Some(last) = files.last() else { return Error::format("", "has no files") };
    for file in files {
        let mut first = None;
        let result = read(file, &mut |other, at| match other == vertex {
            true => {
                first = Some(at());
                // Ends the reading.
                Err(Error::Interrupted { epochs: 0 })
            }
            false => Ok(()),
        });
        let before = match (first, result) {
            (Some(first), _) if file == last => first,
            (Some(first), _) => format!("{first} of {}", file.display()),
            (None, Ok(())) => continue,
            (None, Err(error)) => return error,
        };
        let problem =
            format!("{at}: {name} is already in {before}: expected every vertex at most once in a split");
        return Error::format(last, problem);
    }
    // The files have changed meanwhile.
    Error::format(last, format!("{at}: {name} is in the split already"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_tell_the_first_time() {
        let mut marks = Marks::new(130).unwrap();
        for vertex in [0, 63, 64, 129] {
            assert!(marks.is_new(vertex) && !marks.is_new(vertex));
        }
        assert!(marks.is_new(65));
        let error = Marks::new(u64::MAX).map(|_| ()).unwrap_err().to_string();
        assert!(error.starts_with("a mark for each vertex needs"), "{error}");
    }
}
