//! Sorted edges become the graph's files.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytemuck::Pod;
use cohop::data::npy::{self, Dtype, Writer};
use cohop::{Error, Result};

use crate::Progress;
use crate::collect::{Edge, Stream};

/// Edges between two calls of the progress function.
const BETWEEN_CALLS: u64 = 1 << 16;

/// What is written, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) n_vertices: u64,
    /// Of the edges given; self-loops that are added get a relation of their own if this is above 1.
    pub(crate) n_relations: u64,
    pub(crate) has_weights: bool,
    pub(crate) has_features: bool,
    /// Parallel edges of the same relation become one, of the sum of their weights.
    pub(crate) deduplicate: bool,
    /// A self-loop for each vertex without one.
    pub(crate) add_self_loops: bool,
    /// How many edges are expected at most, for the progress.
    pub(crate) n_sorted: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) edges: u64,
    /// Reverse edges that were not there.
    pub(crate) added: u64,
    pub(crate) added_loops: u64,
    /// Edges that went into another.
    pub(crate) merged: u64,
    /// Edges with the ends and the relation of one before.
    pub(crate) parallel: u64,
    pub(crate) loops: u64,
}

/// The edge number of a row of zeros.
const NO_EDGE: u64 = u64::MAX;

/// Writers of a graph's arrays.
struct Rows<'a> {
    shape: &'a Shape,
    indptr: Writer,
    indices: Writer,
    edge_type: Option<Writer>,
    edge_weight: Option<Writer>,
    /// The number of each edge.
    numbers: Option<Writer>,
    counts: Counts,
    /// The row that edges are added to.
    row: u64,
    has_loop: bool,
}

/// Where the numbers of the edges are written, if there are features.
pub(crate) fn numbers_path(scratch: &Path) -> PathBuf {
    scratch.join("numbers.npy")
}

/// Writes `indptr.npy`, `indices.npy` and, if there is reason to, `edge_type.npy` and `edge_weight.npy`.
pub(crate) fn write(
    mut stream: Box<dyn Stream>,
    shape: &Shape,
    folder: &Path,
    scratch: &Path,
    progress: Progress<'_>,
) -> Result<Counts> {
    let vector = |name: &str, dtype| Writer::create(&folder.join(name), dtype, None);
    let optional = |wanted: bool, name, dtype| if wanted { vector(name, dtype).map(Some) } else { Ok(None) };
    let mut rows = Rows {
        shape,
        indptr: vector("indptr.npy", Dtype::U64)?,
        indices: vector("indices.npy", Dtype::U32)?,
        edge_type: optional(shape.n_relations > 1, "edge_type.npy", Dtype::U16)?,
        edge_weight: optional(shape.has_weights, "edge_weight.npy", Dtype::F32)?,
        numbers: match shape.has_features {
            true => Some(Writer::create(&numbers_path(scratch), Dtype::U64, None)?),
            false => None,
        },
        counts: Counts::default(),
        row: 0,
        has_loop: false,
    };
    rows.indptr.write(&[0u64])?;
    let mut taken = 0u64;
    // The last edge taken, not yet written; and whether one of its ends and relation was given.
    let mut last: Option<(Edge, bool)> = None;
    while let Some((edge, added)) = stream.next()? {
        if taken.is_multiple_of(BETWEEN_CALLS) {
            progress("writing edges", (taken as f64 / shape.n_sorted.max(1) as f64).min(1.0))?;
        }
        taken += 1;
        let same = last.filter(|(last, _)| last.key() == edge.key());
        if added && same.is_some_and(|(_, given)| given) {
            continue;
        }
        rows.counts.added += u64::from(added);
        match (same, &mut last) {
            (Some(_), Some((kept, _))) if shape.deduplicate => {
                rows.counts.merged += 1;
                kept.weight += edge.weight;
                continue;
            }
            _ => {}
        }
        rows.counts.parallel += u64::from(same.is_some());
        if let Some((before, _)) = last.replace((edge, !added)) {
            rows.push(&before)?;
        }
    }
    if let Some((before, _)) = last {
        rows.push(&before)?;
    }
    while rows.row < shape.n_vertices {
        rows.end_row()?;
    }
    for writer in [Some(rows.indptr), Some(rows.indices), rows.edge_type, rows.edge_weight, rows.numbers] {
        writer.map_or(Ok(()), Writer::finish)?;
    }
    Ok(rows.counts)
}

impl Rows<'_> {
    fn push(&mut self, edge: &Edge) -> Result<()> {
        while self.row < u64::from(edge.destination) {
            self.end_row()?;
        }
        if edge.source >= edge.destination {
            self.loop_before(edge.source)?;
        }
        self.put(edge)
    }

    /// Adds the row's self-loop, if it is due before an edge from `source` and not there.
    fn loop_before(&mut self, source: u32) -> Result<()> {
        let vertex = self.row as u32;
        if self.has_loop || std::mem::replace(&mut self.has_loop, true) || !self.shape.add_self_loops {
            return Ok(());
        }
        if source == vertex {
            return Ok(());
        }
        let kind = if self.shape.n_relations > 1 { self.shape.n_relations as u16 } else { 0 };
        self.counts.added_loops += 1;
        self.put(&Edge { source: vertex, destination: vertex, kind, number: NO_EDGE, weight: 1.0 })
    }

    fn end_row(&mut self) -> Result<()> {
        // No vertex has this id: it is behind all.
        self.loop_before(u32::MAX)?;
        self.has_loop = false;
        self.row += 1;
        self.indptr.write(&[self.counts.edges])
    }

    fn put(&mut self, edge: &Edge) -> Result<()> {
        if !edge.weight.is_finite() {
            let value = format!("a sum beyond the range of f32 from {} to {}", edge.source, edge.destination);
            return Err(Error::invalid(
                "edge_weight",
                value,
                "parallel edges whose weights have a finite sum",
            ));
        }
        self.counts.edges += 1;
        self.counts.loops += u64::from(edge.source == edge.destination);
        self.indices.write(&[edge.source])?;
        if let Some(edge_type) = &mut self.edge_type {
            edge_type.write(&[edge.kind])?;
        }
        if let Some(edge_weight) = &mut self.edge_weight {
            edge_weight.write(&[edge.weight])?;
        }
        if let Some(numbers) = &mut self.numbers {
            numbers.write(&[edge.number])?;
        }
        Ok(())
    }
}

/// Writes the rows of `from`, a `.npy` file of `n` rows, in the order of `numbers`; a row of zeros for those that are
/// not below `n`. Only rows are in memory.
pub(crate) fn reorder(
    from: &Path,
    n: u64,
    numbers: &mut dyn FnMut() -> Result<Option<u64>>,
    to: &Path,
    progress: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()> {
    let fail = |problem: String| Error::format(from, problem);
    let mut file = File::open(from).map_err(|e| Error::io(from, e))?;
    let (header, offset) = npy::read_header(&mut file).map_err(fail)?;
    let (rows, columns) = match header.shape[..] {
        [rows] => (rows, None),
        [rows, columns] => (rows, Some(columns)),
        _ => return Err(fail(format!("has shape {:?}, expected rows and columns", header.shape))),
    };
    if rows as u64 != n || header.fortran_order {
        return Err(fail(format!("has {rows} rows, expected {n} in C order")));
    }
    let mut writer = Writer::create(to, header.dtype, columns)?;
    let mut row = vec![0u8; columns.unwrap_or(1) * header.dtype.bytes()];
    let mut done = 0u64;
    while let Some(number) = numbers()? {
        if done.is_multiple_of(BETWEEN_CALLS) {
            progress(done)?;
        }
        done += 1;
        match number < n {
            true => {
                let at = offset as u64 + number * row.len() as u64;
                file.read_exact_at(&mut row, at).map_err(|e| Error::io(from, e))?;
            }
            false => row.fill(0),
        }
        match header.dtype.bytes() {
            1 => writer.write(&row)?,
            2 => writer.write(&elements::<u16>(&row))?,
            4 => writer.write(&elements::<u32>(&row))?,
            _ => writer.write(&elements::<u64>(&row))?,
        }
    }
    writer.finish()
}

/// The elements of bytes that need not be aligned.
fn elements<T: Pod>(bytes: &[u8]) -> Vec<T> {
    bytemuck::pod_collect_to_vec(bytes)
}
