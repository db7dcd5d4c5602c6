//! Graphs whose vertices and edges have types, each with arrays of its own: as OGB and GraphBolt store them. The
//! vertices of each type get consecutive numbers.

use std::path::{Path, PathBuf};

use cohop::Result;
use cohop::data::FeatureDtype;
use cohop::data::npy::{Dtype, Writer};
use cohop::graph::{MAX_RELATIONS, MAX_VERTICES};
use half::{bf16, f16};

use crate::array::{ArrayStream, Place};
use crate::labels::of_type;
use crate::once::{Marks, Take, listed, repeated};
use crate::sink::Sink;
use crate::table::Table;
use crate::{Found, Progress};

/// A type of vertices.
#[derive(Clone, Debug)]
pub(crate) struct VertexType {
    /// Empty if there is only one, without a name.
    pub(crate) name: String,
    pub(crate) n: u64,
    pub(crate) features: Option<Place>,
}

/// A type of edges.
#[derive(Clone, Debug)]
pub(crate) struct Relation {
    /// Empty if there is only one, without a name.
    pub(crate) name: String,
    /// The type of sources.
    pub(crate) source: usize,
    /// The type of destinations.
    pub(crate) destination: usize,
    /// Rows of source, destination in text; two rows, all sources and all destinations, in an array.
    pub(crate) edges: Place,
    /// How many there must be, and what says so.
    pub(crate) n: Option<(u64, Place)>,
    pub(crate) features: Option<Place>,
}

/// Vertices and edges by type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) types: Vec<VertexType>,
    pub(crate) relations: Vec<Relation>,
    /// Every edge is followed by its reverse, with the same features.
    pub(crate) add_inverse: bool,
}

impl Typed {
    /// Where the vertices of each type begin, and the number of all. `place` is where the numbers are from.
    pub(crate) fn starts(&self, place: &Place) -> Result<Vec<u64>> {
        let mut starts = vec![0u64];
        for kind in &self.types {
            let total = starts[starts.len() - 1].saturating_add(kind.n);
            if total > MAX_VERTICES {
                let problem = format!("makes {total} vertices or more: at most {MAX_VERTICES} are supported");
                return Err(place.error(problem));
            }
            starts.push(total);
        }
        for (what, n) in [("vertices", self.types.len()), ("edges", self.relations.len())] {
            // Both are 16-bit numbers.
            if n == 0 || n > MAX_RELATIONS {
                return Err(place.error(format!("has {n} types of {what}: expected 1 to {MAX_RELATIONS}")));
            }
        }
        Ok(starts)
    }

    /// Writes `vertex_type.npy`, if there are several types, and `feat.npy`, if any has features: without a wanted type
    /// as f16 if all are stored so, else as f32.
    pub(crate) fn write_vertices(
        &self,
        folder: &Path,
        dtype: Option<FeatureDtype>,
        found: &mut Found,
        progress: Progress<'_>,
    ) -> Result<()> {
        if self.types.len() > 1 {
            let mut writer = Writer::create(&folder.join("vertex_type.npy"), Dtype::U16, None)?;
            let mut start = 0;
            let mut ranges = Vec::new();
            for (i, kind) in self.types.iter().enumerate() {
                for _ in 0..kind.n {
                    writer.write(&[i as u16])?;
                }
                ranges.push(format!("{i} {} ({} from {start})", kind.name, kind.n));
                start += kind.n;
            }
            writer.finish()?;
            found.files.push("vertex_type.npy".into());
            found
                .notes
                .push(format!("vertex types, their numbers and first vertices: {}", ranges.join(", ")));
        }
        let part = |kind: &VertexType| Part {
            name: kind.name.clone(),
            rows: kind.n,
            place: kind.features.clone(),
            repeat: 1,
        };
        let parts: Vec<Part> = self.types.iter().map(part).collect();
        let dtype = match dtype {
            Some(dtype) => dtype,
            None => usual_dtype(self.types.iter().filter_map(|kind| kind.features.as_ref()))?,
        };
        if write_matrix(&folder.join("feat.npy"), dtype, &parts, "features", found, progress)? {
            found.files.push("feat.npy".into());
        } else {
            found.notes.push("vertices have no features".into());
        }
        Ok(())
    }

    /// Gives all edges to the sink, and writes their features.
    pub(crate) fn read_edges(
        &self,
        starts: &[u64],
        folder: &Path,
        sink: &mut dyn Sink,
        found: &mut Found,
        progress: Progress<'_>,
    ) -> Result<()> {
        let mut parts = Vec::new();
        let has_features = self.relations.iter().any(|relation| relation.features.is_some());
        sink.expect(false, self.relations.len() > 1, has_features);
        for (kind, relation) in self.relations.iter().enumerate() {
            let mut edge = |[source, destination]: [u32; 2]| {
                sink.edge(source, destination, 1.0, kind as u16)?;
                if self.add_inverse {
                    sink.edge(destination, source, 1.0, kind as u16)?;
                }
                Ok(())
            };
            let end = |of: usize| (starts[of], self.types[of].n);
            let ends = [end(relation.source), end(relation.destination)];
            let n = read_pairs(&relation.edges, ends, &mut edge, &mut *progress)?;
            if let Some((expected, by)) = relation.n.as_ref().filter(|(expected, _)| *expected != n) {
                return Err(relation.edges.error(format!("has {n} edges, but {by} says {expected}")));
            }
            let (name, place) = (relation.name.clone(), relation.features.clone());
            parts.push(Part { name, rows: n, place, repeat: 1 + usize::from(self.add_inverse) });
        }
        found.n_relations = self.relations.len() as u32;
        if self.relations.len() > 1 {
            let names: Vec<String> =
                self.relations.iter().enumerate().map(|(i, r)| format!("{i} {}", r.name)).collect();
            found.notes.push(format!("relations: {}", names.join(", ")));
        }
        let path = folder.join("unordered_edge_feat.npy");
        if write_matrix(&path, FeatureDtype::F32, &parts, "edge features", found, progress)? {
            found.edge_features = Some(path);
        }
        Ok(())
    }
}

/// Writes vertices of a part of a split: ids of each type's rows in `parts`, with the type's first vertex and number.
pub(crate) fn write_split(
    folder: &Path,
    name: &str,
    parts: &[(Place, u64, u64)],
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<()> {
    let mut writer = Writer::create(&folder.join(name), Dtype::U32, None)?;
    for (place, start, n) in parts {
        let mut marks = Marks::new(*n)?;
        let number = |id| vertex(id, 0, *n).ok_or_else(|| out_of_range("vertex", id, *n));
        let mut take = |vertex, at: &dyn Fn() -> String| match marks.is_new(vertex) {
            true => writer.write(&[(start + u64::from(vertex)) as u32]),
            false => {
                let mut read = |_: &PathBuf, take: Take<'_>| listed(place, &number, take, &mut |_, _| Ok(()));
                let (file, name) = (std::slice::from_ref(&place.path), format!("vertex {vertex}"));
                Err(repeated(file, &at(), vertex, &name, &mut read))
            }
        };
        listed(place, &number, &mut take, &mut *progress)?;
    }
    found.files.push(name.into());
    writer.finish()
}

/// The number of the vertex that its type numbers `id`.
pub(crate) fn vertex(id: f64, start: u64, n: u64) -> Option<u32> {
    // Below 2^32, `f64` is exact.
    (id.fract() == 0.0 && id >= 0.0 && id < n as f64).then(|| (start + id as u64) as u32)
}

pub(crate) fn out_of_range(what: &str, id: f64, n: u64) -> String {
    match n {
        0 => format!("{what} {id}: there are no such vertices"),
        _ => format!("{what} {id}: expected an integer from 0 to {}", n - 1),
    }
}

/// Calls `edge` with the vertices of every edge; the numbers in the file are those within a type, which has a first
/// vertex and a number of vertices. Returns how many there are.
pub(crate) fn read_pairs(
    place: &Place,
    ends: [(u64, u64); 2],
    edge: &mut dyn FnMut([u32; 2]) -> Result<()>,
    progress: Progress<'_>,
) -> Result<u64> {
    const NAMES: [&str; 2] = ["source", "destination"];
    let check = |i: usize, id: f64| {
        let (start, n) = ends[i];
        vertex(id, start, n).ok_or_else(|| out_of_range(NAMES[i], id, n))
    };
    let pair = |source: f64, destination: f64| Ok([check(0, source)?, check(1, destination)?]);
    if !place.is_array {
        let mut table = Table::open(place)?;
        // A file without lines has no columns.
        if ![0, 2].contains(&table.columns()) {
            return Err(
                place.error(format!("has {} columns, expected 2: source, destination", table.columns()))
            );
        }
        while let Some(row) = table.next()? {
            let ends = pair(row[0], row[1]).map_err(|problem: String| table.error(problem))?;
            edge(ends)?;
            if table.n_given() % (1 << 16) == 0 {
                progress("reading edges", table.part())?;
            }
        }
        return Ok(table.n_given());
    }
    let mut first = ArrayStream::open(place)?;
    let fortran = first.header().fortran_order;
    // Rows of pairs lie in memory as columns of pairs do in Fortran order.
    let (n, alternate, axis) = match first.header().shape[..] {
        [2, n] => (n, fortran, "column"),
        [n, 2] => (n, !fortran, "row"),
        _ => {
            let shape = &first.header().shape;
            let expected = "expected [2, edges], sources and destinations, or [edges, 2]";
            return Err(place.error(format!("has shape {shape:?}, {expected}")));
        }
    };
    const AT_A_TIME: usize = 1 << 14;
    let (mut sources, mut destinations) = (Vec::new(), Vec::new());
    // Where sources and destinations do not alternate, the destinations follow all sources, and are read by a second
    // stream.
    let mut second = match alternate {
        true => None,
        false => {
            let mut second = ArrayStream::open(place)?;
            for done in (0..n).step_by(1 << 20) {
                progress("reading edges", 0.0)?;
                second.skip((1 << 20).min(n - done))?;
            }
            Some(second)
        }
    };
    let mut n_read = 0;
    while n_read < n {
        let some = AT_A_TIME.min(n - n_read);
        match &mut second {
            Some(second) => {
                first.next(some, &mut sources)?;
                second.next(some, &mut destinations)?;
            }
            None => {
                first.next(2 * some, &mut destinations)?;
                sources.clear();
                sources.extend(destinations.iter().step_by(2));
                destinations = destinations.into_iter().skip(1).step_by(2).collect();
            }
        }
        for (i, (&source, &destination)) in sources.iter().zip(&destinations).enumerate() {
            let fail = |problem: String| place.error(format!("{axis} {}: {problem}", n_read + i));
            edge(pair(source, destination).map_err(fail)?)?;
        }
        n_read += some;
        progress("reading edges", n_read as f64 / n as f64)?;
    }
    Ok(n as u64)
}

/// Some rows of a matrix.
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) rows: u64,
    /// Where they are; `None`: zeros.
    pub(crate) place: Option<Place>,
    /// How often each is written.
    pub(crate) repeat: usize,
}

/// Writes the rows of all parts, with zeros where one has fewer columns than another. Writes nothing, and returns
/// false, if no part has any.
pub(crate) fn write_matrix(
    path: &Path,
    dtype: FeatureDtype,
    parts: &[Part],
    what: &str,
    found: &mut Found,
    progress: Progress<'_>,
) -> Result<bool> {
    let mut columns = Vec::with_capacity(parts.len());
    for part in parts {
        columns.push(part.place.as_ref().map_or(Ok(0), |place| Table::open(place).map(|t| t.columns()))?);
    }
    let dim = columns.iter().copied().max().unwrap_or(0);
    if dim == 0 {
        return Ok(false);
    }
    let mut writer = Writer::create(path, stored(dtype), Some(dim))?;
    let mut not_finite = NotFinite::default();
    for (part, &columns) in parts.iter().zip(&columns) {
        if columns < dim && part.rows > 0 {
            let have = if columns == 0 { "no".into() } else { format!("only {columns}") };
            let of = of_type(&part.name);
            found
                .notes
                .push(format!("{what}{of} have {have} columns: zeros take the place of the others to {dim}"));
        }
        let mut row = vec![0.0; dim];
        let Some(place) = &part.place else {
            for _ in 0..part.rows {
                (0..part.repeat).try_for_each(|_| write_row(&mut writer, dtype, &row))?;
            }
            continue;
        };
        let mut table = Table::open(place)?;
        while let Some(read) = table.next()? {
            row[..columns].copy_from_slice(read);
            if let Some(value) = too_large(dtype, read) {
                return Err(table.error(format!("{value:e} is beyond the range of {dtype}")));
            }
            not_finite.look(&row[..columns], &|| format!("{} of {place}", table.at()));
            (0..part.repeat).try_for_each(|_| write_row(&mut writer, dtype, &row))?;
            if table.n_given() % (1 << 10) == 0 {
                progress(&format!("reading {what}"), table.part())?;
            }
        }
        let (rows, n) = (table.n_given(), part.rows);
        if rows != n {
            let of = of_type(&part.name);
            return Err(place.error(format!("has {rows} rows of {what}, expected {n}, one each{of}")));
        }
    }
    writer.finish()?;
    not_finite.tell(what, found);
    Ok(true)
}

/// Values that are NaN or infinite.
#[derive(Default)]
pub(crate) struct NotFinite {
    n: u64,
    /// Where the first is.
    first: Option<String>,
}

impl NotFinite {
    /// Counts those of a row; `at` tells where that is.
    pub(crate) fn look(&mut self, row: &[f64], at: &dyn Fn() -> String) {
        let n = row.iter().filter(|value| !value.is_finite()).count() as u64;
        if n > 0 {
            self.n += n;
            self.first.get_or_insert_with(at);
        }
    }

    /// A note of them, if there are any.
    pub(crate) fn tell(self, what: &str, found: &mut Found) {
        if let Some(first) = self.first {
            let n = self.n;
            found.notes.push(format!("{n} values of {what} are NaN or infinite, the first in {first}"));
        }
    }
}

/// The type of features that nobody asked for one of: f16 if all are stored so, else f32.
pub(crate) fn usual_dtype<'a>(places: impl Iterator<Item = &'a Place>) -> Result<FeatureDtype> {
    for place in places {
        if !place.is_array || ArrayStream::open(place)?.header().dtype != Dtype::F16 {
            return Ok(FeatureDtype::F32);
        }
    }
    Ok(FeatureDtype::F16)
}

/// How a type of features is stored.
pub(crate) fn stored(dtype: FeatureDtype) -> Dtype {
    match dtype {
        FeatureDtype::F32 => Dtype::F32,
        FeatureDtype::F16 => Dtype::F16,
        FeatureDtype::Bf16 => Dtype::U16,
    }
}

/// A finite value that the type cannot hold.
pub(crate) fn too_large(dtype: FeatureDtype, row: &[f64]) -> Option<f64> {
    let limit = match dtype {
        FeatureDtype::F16 => f64::from(f16::MAX),
        FeatureDtype::F32 => f64::from(f32::MAX),
        FeatureDtype::Bf16 => f64::from(bf16::MAX),
    };
    row.iter().copied().find(|v| v.is_finite() && v.abs() > limit)
}

pub(crate) fn write_row(writer: &mut Writer, dtype: FeatureDtype, row: &[f64]) -> Result<()> {
    match dtype {
        FeatureDtype::F32 => writer.write(&row.iter().map(|&v| v as f32).collect::<Vec<_>>()),
        FeatureDtype::F16 => writer.write(&row.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>()),
        FeatureDtype::Bf16 => writer.write(&row.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>()),
    }
}
