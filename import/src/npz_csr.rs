//! Sparse matrices as `scipy.sparse.save_npz` writes them: CSR, CSC and COO.

use std::path::Path;

use cohop::Result;
use cohop::graph::MAX_VERTICES;

use crate::array::{ArrayStream, Place, array_names, member_bytes};
use crate::matrix_market::need_rows;
use crate::sink::Sink;
use crate::{Found, Progress, ReadOptions, Rows};

/// Entries that are read at a time.
const AT_A_TIME: usize = 1 << 14;

/// A stream of numbers one by one.
struct Numbers {
    stream: ArrayStream,
    numbers: Vec<f64>,
    at: usize,
}

impl Numbers {
    fn open(place: &Place) -> Result<Self> {
        let stream = ArrayStream::open(place)?;
        if stream.header().shape.len() != 1 {
            return Err(place.error(format!("has shape {:?}, expected one dimension", stream.header().shape)));
        }
        Ok(Numbers { stream, numbers: Vec::new(), at: 0 })
    }

    fn len(&self) -> usize {
        self.stream.header().len
    }

    /// The next number, 0 after the last.
    fn next(&mut self) -> Result<f64> {
        if self.at == self.numbers.len() {
            self.stream.next(AT_A_TIME, &mut self.numbers)?;
            self.at = 0;
        }
        let number = self.numbers.get(self.at).copied();
        self.at += usize::from(number.is_some());
        Ok(number.unwrap_or(0.0))
    }
}

/// Where the index of an entry along the compressed dimension comes from.
enum Major {
    /// The ends of rows (or columns), the current one and its end.
    Compressed {
        ends: Numbers,
        row: u64,
        end: f64,
    },
    Listed(Numbers),
}

/// Reads a square matrix.
pub(crate) fn read(
    input: &Path,
    options: &ReadOptions,
    sink: &mut dyn Sink,
    progress: Progress<'_>,
) -> Result<Found> {
    let place = |name: &str| Place::member(input, name);
    let names = array_names(input)?;
    let has = |name: &str| names.iter().any(|n| n == name);
    let Some(rows) = options.rows else { return Err(need_rows(input)) };
    let format = member_bytes(&place("format"), 64)?;
    // As bytes or as UTF-32, from Python 2 and 3.
    let format: String = format.iter().filter(|&&b| b != 0).map(|&b| char::from(b)).collect();
    let is_column = match format.as_str() {
        "csr" => false,
        "csc" => true,
        "coo" => false,
        other => {
            let shown = crate::text::shown(other);
            return Err(place("format").error(format!("is {shown}: expected csr, csc or coo")));
        }
    };
    let mut shape = Numbers::open(&place("shape"))?;
    let [n, columns] = [shape.next()?, shape.next()?];
    if shape.len() != 2 || n != columns || n.fract() != 0.0 || !(0.0..=MAX_VERTICES as f64).contains(&n) {
        return Err(place("shape")
            .error(format!("is ({n}, {columns}): expected a square matrix of at most {MAX_VERTICES} rows")));
    }
    let (mut major, minor) = if format == "coo" {
        (Major::Listed(Numbers::open(&place("row"))?), "col")
    } else {
        let mut ends = Numbers::open(&place("indptr"))?;
        if ends.len() as f64 != n + 1.0 || ends.next()? != 0.0 {
            return Err(place("indptr").error(format!("expected {} offsets, the first of them 0", n + 1.0)));
        }
        (Major::Compressed { ends, row: 0, end: 0.0 }, "indices")
    };
    let minor_place = place(minor);
    let mut minor = Numbers::open(&minor_place)?;
    let n_entries = minor.len();
    let mut found = Found { n_vertices: Some(n as u64), ..Found::default() };
    let mut data = None;
    if has("data") && !options.without_weights {
        let mut values = Numbers::open(&place("data"))?;
        if values.len() != n_entries {
            let problem = format!("has {} values for {n_entries} entries", values.len());
            return Err(place("data").error(problem));
        }
        // Adjacency matrices are full of ones, which are no weights.
        let mut all_one = true;
        for i in 0..n_entries {
            all_one = values.next()? == 1.0;
            if !all_one {
                break;
            }
            if i % (1 << 20) == 0 {
                progress("reading values", i as f64 / n_entries as f64)?;
            }
        }
        if all_one {
            found.notes.push("all values are 1: edges have no weights".into());
        } else {
            data = Some(Numbers::open(&place("data"))?);
        }
    }
    found.has_weights = data.is_some();
    sink.expect(found.has_weights, false, false);
    for i in 0..n_entries {
        if i % (1 << 16) == 0 {
            progress("reading edges", i as f64 / n_entries as f64)?;
        }
        let other = minor.next()?;
        let first = match &mut major {
            Major::Listed(rows) => rows.next()?,
            Major::Compressed { ends, row, end } => {
                while i as f64 >= *end && *row < n as u64 {
                    let next = ends.next()?;
                    if next < *end || next > n_entries as f64 {
                        let problem = format!(
                            "offset {}: {next} after {end}: expected offsets that rise to {n_entries}",
                            *row + 1
                        );
                        return Err(place("indptr").error(problem));
                    }
                    (*row, *end) = (*row + 1, next);
                }
                if i as f64 >= *end {
                    return Err(
                        place("indptr").error(format!("ends at {end}, but there are {n_entries} entries"))
                    );
                }
                *row as f64 - 1.0
            }
        };
        let in_range = |v: f64| v.fract() == 0.0 && (0.0..n).contains(&v);
        if !in_range(first) || !in_range(other) {
            return Err(
                minor_place.error(format!("entry {i} is ({first}, {other}): expected indices below {n}"))
            );
        }
        let weight = match &mut data {
            None => 1.0,
            Some(data) => {
                let value = data.next()?;
                if !(value.is_finite() && (0.0..=f64::from(f32::MAX)).contains(&value)) {
                    return Err(place("data").error(format!(
                        "value {i} is {value}: expected a finite weight of at least 0, or --no-weights"
                    )));
                }
                value as f32
            }
        };
        let (row, column) = if is_column { (other, first) } else { (first, other) };
        let (source, destination) = if rows == Rows::Sources { (row, column) } else { (column, row) };
        sink.edge(source as u32, destination as u32, weight, 0)?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{npy, npz, read_file, refused_file};

    /// `save_npz` of csr_matrix(([.5, 2, 1], ([0, 2, 2], [1, 0, 2])), shape=(4, 4)).
    fn csr(indptr: &[i32], indices: &[i32], data: &[f64]) -> Vec<(&'static str, Vec<u8>)> {
        vec![
            ("indices", npy("<i4", false, &[indices.len()], indices)),
            ("indptr", npy("<i4", false, &[indptr.len()], indptr)),
            ("format", npy::<u8>("|S3", false, &[], b"csr")),
            ("shape", npy("<i8", false, &[2], &[4i64, 4])),
            ("data", npy("<f8", false, &[data.len()], data)),
        ]
    }

    fn rows(rows: Rows) -> ReadOptions {
        ReadOptions { rows: Some(rows), ..ReadOptions::default() }
    }

    #[test]
    fn compressed_rows_and_columns_and_lists_are_read_by_what_rows_are() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.npz");
        let arrays = csr(&[0, 1, 1, 3, 3], &[1, 0, 2], &[0.5, 2.0, 1.0]);
        let by_rows = [(0, 1, 0.5), (2, 0, 2.0), (2, 2, 1.0)];
        let turned = by_rows.map(|(s, d, w)| (d, s, w));
        for compressed in [true, false] {
            npz(&path, compressed, &arrays);
            assert_eq!(read_file(super::read, &path, &rows(Rows::Sources)).unwrap().weighted(), by_rows);
            assert_eq!(read_file(super::read, &path, &rows(Rows::Destinations)).unwrap().weighted(), turned);
        }
        refused_file(super::read, &path, &ReadOptions::default(), &["--rows"]);
        // The same arrays as columns, with the name in UTF-32.
        let mut arrays = arrays;
        let name: Vec<u32> = "csc".chars().map(u32::from).collect();
        arrays[2].1 = npy("<U3", false, &[], &name);
        npz(&path, true, &arrays);
        assert_eq!(read_file(super::read, &path, &rows(Rows::Sources)).unwrap().weighted(), turned);
        let coo = [
            ("row", npy("<i4", false, &[2], &[3i32, 0])),
            ("col", npy("<i4", false, &[2], &[1i32, 0])),
            ("format", npy::<u8>("|S3", false, &[], b"coo")),
            ("shape", npy("<i8", false, &[2], &[4i64, 4])),
            ("data", npy("|b1", false, &[2], &[1u8, 1])),
        ];
        npz(&path, true, &coo);
        let found = read_file(super::read, &path, &rows(Rows::Sources)).unwrap();
        assert_eq!(found.edges(), [(3, 1, 0), (0, 0, 0)]);
        assert!(found.notes("all values are 1"));
    }

    #[test]
    fn wrong_arrays_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.npz");
        let one = [1.0; 3];
        for (arrays, text) in [
            (csr(&[0, 1, 1, 3], &[1, 0, 2], &one), "expected 5 offsets"),
            (csr(&[0, 1, 0, 3, 3], &[1, 0, 2], &one), "offset 2"),
            (csr(&[0, 1, 1, 9, 9], &[1, 0, 2], &one), "offset 3"),
            (csr(&[0, 1, 1, 2, 2], &[1, 0, 2], &one), "ends at 2"),
            (csr(&[0, 1, 1, 3, 3], &[1, 0, 4], &one), "below 4"),
            (csr(&[0, 1, 1, 3, 3], &[1, -1, 2], &one), "below 4"),
            (csr(&[0, 1, 1, 3, 3], &[1, 0, 2], &[1.0; 2]), "2 values for 3 entries"),
            (csr(&[0, 1, 1, 3, 3], &[1, 0, 2], &[1.0, f64::NAN, 1.0]), "value 1 is NaN"),
            (csr(&[0, 1, 1, 3, 3], &[1, 0, 2], &[1.0, -2.0, 1.0]), "--no-weights"),
        ] {
            npz(&path, true, &arrays);
            refused_file(super::read, &path, &rows(Rows::Sources), &[text]);
        }
        let mut arrays = csr(&[0, 1, 1, 3, 3], &[1, 0, 2], &one);
        arrays[2].1 = npy::<u8>("|S3", false, &[], b"bsr");
        npz(&path, true, &arrays);
        refused_file(super::read, &path, &rows(Rows::Sources), &["bsr", "csr, csc or coo"]);
        arrays.remove(2);
        npz(&path, true, &arrays);
        refused_file(super::read, &path, &rows(Rows::Sources), &["no array format"]);
        arrays[2].1 = npy("<i8", false, &[2], &[4i64, 5]);
        arrays.push(("format", npy::<u8>("|S3", false, &[], b"csr")));
        npz(&path, true, &arrays);
        refused_file(super::read, &path, &rows(Rows::Sources), &["square"]);
    }
}
