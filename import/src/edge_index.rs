//! Pairs of ids in an array: PyTorch Geometric's `edge_index`, `[2, edges]`, or a list of edges, `[edges, 2]`.

use std::path::Path;

use cohop::graph::MAX_VERTICES;
use cohop::{Error, Result};

use crate::array::{ArrayStream, Place, array_names};
use crate::sink::Sink;
use crate::typed::read_pairs;
use crate::{Found, Progress, ReadOptions};

/// The array of an `.npz` that has the edges.
const NAME: &str = "edge_index";

/// Reads a `.npy`, or `edge_index` of an `.npz`: sources, then destinations.
pub(crate) fn read(
    input: &Path,
    options: &ReadOptions,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Found> {
    let mut found = Found { n_vertices: options.n_vertices, ..Found::default() };
    let place = match input.extension() {
        Some(e) if e == "npz" => {
            let names = array_names(input)?;
            let others: Vec<_> = names.iter().filter(|name| *name != NAME).cloned().collect();
            if !others.is_empty() {
                found.notes.push(format!(
                    "of {} only {NAME} is imported, not {}",
                    input.display(),
                    others.join(", ")
                ));
            }
            Place::member(input, NAME)
        }
        Some(e) if e == "npy" => Place::npy(input),
        _ => return Err(Error::format(input, "is named neither .npy nor .npz")),
    };
    if ArrayStream::open(&place)?.header().shape == [2, 2] {
        found.notes.push(format!(
            "{place} has shape [2, 2], which could be read both ways: it is taken as [2, edges], a row of sources \
             and a row of destinations"
        ));
    }
    sink.expect(false, false, false);
    let n = options.n_vertices.unwrap_or(MAX_VERTICES);
    read_pairs(
        &place,
        [(0, n); 2],
        &mut |[source, destination]| sink.edge(source, destination, 1.0, 0),
        progress,
    )?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{file, npy, npz, read_file, refused_file};

    #[test]
    fn rows_and_columns_of_pairs_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.npy");
        let expected = [(0, 4, 0), (1, 5, 0), (2, 6, 0)];
        let plain = ReadOptions::default();
        file(&path, &npy("<i8", false, &[2, 3], &[0i64, 1, 2, 4, 5, 6]));
        assert_eq!(read_file(super::read, &path, &plain).unwrap().edges(), expected);
        file(&path, &npy("<i4", true, &[2, 3], &[0i32, 4, 1, 5, 2, 6]));
        assert_eq!(read_file(super::read, &path, &plain).unwrap().edges(), expected);
        file(&path, &npy("<i4", false, &[3, 2], &[0i32, 4, 1, 5, 2, 6]));
        assert_eq!(read_file(super::read, &path, &plain).unwrap().edges(), expected);
        file(&path, &npy("<i8", true, &[3, 2], &[0i64, 1, 2, 4, 5, 6]));
        let found = read_file(super::read, &path, &plain).unwrap();
        assert_eq!(found.edges(), expected);
        assert!(!found.notes("shape"));
        // Two edges, as [2, edges].
        file(&path, &npy("<i8", false, &[2, 2], &[0i64, 1, 2, 3]));
        let found = read_file(super::read, &path, &plain).unwrap();
        assert_eq!(found.edges(), [(0, 2, 0), (1, 3, 0)]);
        assert!(found.notes("e.npy has shape [2, 2]") && found.notes("taken as [2, edges]"));
        let path = folder.path().join("e.npz");
        let edges = npy("<i8", false, &[2, 1], &[7i64, 8]);
        npz(&path, true, &[("edge_index", edges), ("x", npy("<f4", false, &[1], &[0f32]))]);
        let found = read_file(super::read, &path, &ReadOptions { n_vertices: Some(9), ..plain }).unwrap();
        assert_eq!((found.edges(), found.found.n_vertices), (vec![(7, 8, 0)], Some(9)));
        assert!(found.notes("not x"));
    }

    #[test]
    fn wrong_arrays_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.npy");
        let plain = ReadOptions::default();
        file(&path, &npy("<i8", false, &[3], &[0i64, 1, 2]));
        refused_file(super::read, &path, &plain, &["[3]", "[2, edges]"]);
        file(&path, &npy("<i8", false, &[2, 1], &[0i64, -1]));
        refused_file(super::read, &path, &plain, &["destination -1"]);
        file(&path, &npy("<i8", false, &[2, 1], &[0i64, 5]));
        refused_file(super::read, &path, &ReadOptions { n_vertices: Some(5), ..plain.clone() }, &["0 to 4"]);
        // The position is that of the edge, along the axis of edges.
        file(&path, &npy("<i8", false, &[2, 3], &[0i64, 1, 2, 3, 4, -1]));
        refused_file(super::read, &path, &plain, &["e.npy: column 2: destination -1"]);
        file(&path, &npy("<i8", false, &[3, 2], &[0i64, 1, 2, 3, 4, -1]));
        refused_file(super::read, &path, &plain, &["e.npy: row 2: destination -1"]);
        file(&path, &npy("<i8", false, &[2, 9], &[0i64, 5]));
        refused_file(super::read, &path, &plain, &["truncated"]);
        refused_file(super::read, &folder.path().join("e.pt"), &plain, &[".npy nor .npz"]);
    }
}
