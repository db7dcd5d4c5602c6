//! The split into training, validation and test vertices, where a format has none.

use std::path::{Path, PathBuf};

use cohop::data::npy::{Dtype, NpyArray, Writer};
use cohop::data::{Dataset, MAX_SPLITS};
use cohop::rng::{Purpose, bounded};
use cohop::{Error, Result};

use crate::array::{ArrayStream, Place};
use crate::edges::Ids;
use crate::once::{self, Marks, Take, listed};
use crate::sort::Sorter;
use crate::text::{Lines, shown};
use crate::typed::{out_of_range, vertex};
use crate::vertices::{Vertices, is_npy};
use crate::{Found, Progress};

/// Where the parts of a split come from.
#[derive(Clone, Debug, PartialEq)]
pub enum SplitFrom {
    /// Shares of the vertices, or of those with a label if there are labels: training, validation, test. Each part has
    /// exactly its share, rounded.
    Fractions([f64; 3]),
    /// Files of ids, a line each or `.npy`, or of masks in `.npy`: training, validation, test. Masks of several splits
    /// are `[n_vertices, n_splits]`; a part that is not given so is the same in all splits.
    Files([PathBuf; 3]),
}

impl std::str::FromStr for SplitFrom {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let expected =
            "three fractions whose sum is at most 1 (.6,.2,.2), or three files (train.npy,val.npy,test.npy)";
        let fail = || Error::invalid("--split", format!("{text:?}"), expected);
        let parts: Vec<&str> = text.split(',').collect();
        let parts: [&str; 3] = parts.try_into().map_err(|_| fail())?;
        let numbers: Vec<f64> = parts.iter().filter_map(|part| part.parse().ok()).collect();
        let Ok(fractions) = <[f64; 3]>::try_from(numbers) else {
            if parts.contains(&"") {
                return Err(fail());
            }
            return Ok(SplitFrom::Files(parts.map(PathBuf::from)));
        };
        let sum: f64 = fractions.iter().sum();
        if !(fractions.iter().all(|f| (0.0..=1.0).contains(f)) && sum > 0.0 && sum <= 1.0 + 1e-9) {
            return Err(fail());
        }
        Ok(SplitFrom::Fractions(fractions))
    }
}

/// Names of the files of a split's parts.
pub(crate) const PARTS: [&str; 3] = ["train_idx.npy", "val_idx.npy", "test_idx.npy"];
/// Those of parts of several splits, `[n_splits, n_vertices]`.
const MASKS: [&str; 3] = ["train_masks.npy", "val_masks.npy", "test_masks.npy"];

/// Numbers of an array that are looked at together.
const AT_A_TIME: usize = 1 << 14;

impl Vertices<'_> {
    /// Writes a split.
    pub(crate) fn split(
        &self,
        split: &SplitFrom,
        seed: u64,
        found: &mut Found,
        progress: Progress<'_>,
    ) -> Result<()> {
        let files = match split {
            SplitFrom::Fractions(fractions) => return self.draw(fractions, seed, found, progress),
            SplitFrom::Files(files) => files,
        };
        // How many splits there are, and the file that says so first.
        let mut several: Option<(usize, &Path)> = None;
        let mut marks = Marks::new(self.n)?;
        for (i, ((name, masks), path)) in PARTS.into_iter().zip(MASKS).zip(files).enumerate() {
            if let Some(n_splits) = several_splits(path)? {
                if let Some((other, first)) = several.filter(|(other, _)| *other != n_splits) {
                    let problem = format!("has masks of {n_splits} splits, {} of {other}", first.display());
                    return Err(Error::format(path, problem));
                }
                several = Some((n_splits, path));
                self.masks(masks, n_splits, &Place::npy(path), &mut *progress)?;
                // The format's own.
                let _ = std::fs::remove_file(self.folder.join(name));
                found.files.retain(|file| file != name);
                found.files.push(masks.into());
                continue;
            }
            let mut writer = Writer::create(&self.folder.join(name), Dtype::U32, None)?;
            let mut take = |vertex, at: &dyn Fn() -> String| match marks.is_new(vertex) {
                true => writer.write(&[vertex]),
                false => Err(self.repeated(&files[..=i], &at(), vertex)),
            };
            self.part(path, &mut take, &mut *progress)?;
            writer.finish()?;
            found.files.push(name.into());
        }
        if let Some((n_splits, _)) = several {
            found.notes.push(format!("there are {n_splits} splits: --split of train and infer chooses one"));
        }
        Ok(())
    }

    /// Gives the vertices of a part of a single split to `take`.
    fn part(&self, path: &Path, take: Take<'_>, progress: Progress<'_>) -> Result<()> {
        let number = |id: f64| match self.ids {
            Some(ids) => ids.get_integer(id).ok_or_else(|| format!("id {id}: no edge has it")),
            None => vertex(id, 0, self.n).ok_or_else(|| out_of_range("vertex", id, self.n)),
        };
        match (self.ids, is_npy(path)) {
            (Some(ids), false) => named_part(path, ids, take),
            (None, false) => listed(&Place::text(path), &number, take, progress),
            (_, true) => {
                let place = Place::npy(path);
                match is_mask(&place)? {
                    true => self.mask(&place, take, progress),
                    false => listed(&place, &number, take, progress),
                }
            }
        }
    }

    /// The error of a vertex that is in the last of some files, and was in one of them before.
    fn repeated(&self, files: &[PathBuf], at: &str, vertex: u32) -> Error {
        once::repeated(files, at, vertex, &self.name(vertex), &mut |file, take| {
            // Of several splits, they are told apart when all are there.
            match several_splits(file)? {
                Some(_) => Ok(()),
                None => self.part(file, take, &mut |_, _| Ok(())),
            }
        })
    }

    /// Writes a part of several splits as a data set's folder has them, of masks `[vertices, splits]`. With mapped ids,
    /// row k is that of the vertex with the id k.
    fn masks(&self, name: &str, n_splits: usize, place: &Place, progress: Progress<'_>) -> Result<()> {
        let mut stream = ArrayStream::open(place)?;
        let (shape, by_splits) = (stream.header().shape.clone(), stream.header().fortran_order);
        let rows = shape[0] as u64;
        if self.ids.is_none() && rows != self.n {
            let problem =
                format!("has shape {shape:?}, expected [{}, splits], a mask for each split", self.n);
            return Err(place.error(problem));
        }
        // Members, by split and vertex.
        let mut members = Sorter::<u64>::new(self.scratch, self.options.memory);
        let mut numbers = Vec::new();
        let mut at = 0;
        loop {
            progress("reading splits", stream.part())?;
            stream.next(AT_A_TIME, &mut numbers)?;
            if numbers.is_empty() {
                break;
            }
            for (at, &value) in (at..).zip(&numbers).filter(|(_, value)| **value != 0.0) {
                let n = n_splits as u64;
                let (row, split) = if by_splits { (at % rows, at / rows) } else { (at / n, at % n) };
                if value != 1.0 {
                    let problem = "expected 0 or 1, as in masks of several splits";
                    return Err(place.error(format!("row {row}, column {split}: {value}: {problem}")));
                }
                let vertex = self.ids.map_or(Some(row as u32), |ids| ids.get(&row.to_string()));
                let problem = || place.error(format!("row {row}: no edge has the id {row}"));
                members.push(split << 32 | u64::from(vertex.ok_or_else(problem)?))?;
            }
            at += numbers.len() as u64;
        }
        let mut writer = Writer::create(&self.folder.join(name), Dtype::U8, Some(self.n as usize))?;
        let mut written = 0u64;
        let mut zeros = |writer: &mut Writer, to: u64| -> Result<()> {
            while written < to {
                let some = (to - written).min(AT_A_TIME as u64);
                writer.write(&[0u8; AT_A_TIME][..some as usize])?;
                written += some;
            }
            written += 1;
            Ok(())
        };
        members.finish(&mut |member| {
            zeros(&mut writer, (member >> 32) * self.n + (member & u64::from(u32::MAX)))?;
            writer.write(&[1u8])
        })?;
        zeros(&mut writer, n_splits as u64 * self.n)?;
        writer.finish()
    }

    /// A random split whose parts have exactly their shares, in one pass over the vertices: a vertex goes to a part
    /// with the chance that the places left in the part are of the vertices left (Knuth's selection sampling). Memory
    /// does not grow with the vertices.
    fn draw(&self, fractions: &[f64; 3], seed: u64, found: &mut Found, progress: Progress<'_>) -> Result<()> {
        let path = self.folder.join("labels.npy");
        let labels = match path.is_file() {
            true => Some(NpyArray::open(&path, "labels")?.labels()?),
            false => None,
        };
        if labels.is_none() {
            found.notes.push("there are no labels: the split is drawn from all vertices".into());
        }
        let mut left = match &labels {
            Some(labels) => labels.iter().filter(|label| **label >= 0).count() as u64,
            None => self.n,
        };
        let mut places = [0u64; 3];
        let (n, mut sum, mut from) = (left as f64, 0.0, 0);
        for (place, fraction) in places.iter_mut().zip(fractions) {
            sum += fraction;
            // Thirds and tenths are not exact.
            let to = ((n * sum + 1e-6) as u64).min(left);
            *place = to - from;
            from = to;
        }
        let create = |name| Writer::create(&self.folder.join(name), Dtype::U32, None);
        let mut writers = [create(PARTS[0])?, create(PARTS[1])?, create(PARTS[2])?];
        for v in 0..self.n {
            if v % (1 << 20) == 0 {
                progress("splitting", v as f64 / self.n as f64)?;
            }
            if labels.as_ref().is_some_and(|labels| labels[v as usize] < 0) {
                continue;
            }
            let mut draw = bounded(seed, Purpose::Split.stream(0), v, left);
            left -= 1;
            for (place, writer) in places.iter_mut().zip(&mut writers) {
                if draw < *place {
                    *place -= 1;
                    writer.write(&[v as u32])?;
                    break;
                }
                draw -= *place;
            }
        }
        for (writer, name) in writers.into_iter().zip(PARTS) {
            writer.finish()?;
            found.files.push(name.into());
        }
        Ok(())
    }

    /// Gives the vertices of a mask to `take`. With mapped ids, row k is that of the vertex with the id k.
    fn mask(&self, place: &Place, take: Take<'_>, progress: Progress<'_>) -> Result<()> {
        let mut stream = ArrayStream::open(place)?;
        let n = stream.header().len as u64;
        if self.ids.is_none() && n != self.n {
            return Err(place.error(format!("is a mask of {n} values, expected {}, one a vertex", self.n)));
        }
        let mut numbers = Vec::new();
        let mut v = 0;
        while v < n {
            progress("reading splits", stream.part())?;
            stream.next(AT_A_TIME, &mut numbers)?;
            for (id, _) in (v..).zip(&numbers).filter(|(_, wanted)| **wanted != 0.0) {
                let vertex = self.ids.map_or(Some(id as u32), |ids| ids.get(&id.to_string()));
                let problem = || place.error(format!("row {id}: no edge has the id {id}"));
                take(vertex.ok_or_else(problem)?, &|| format!("row {id}"))?;
            }
            v += numbers.len() as u64;
        }
        Ok(())
    }
}

/// Notes of vertices in parts of a split that have no label, where any vertex has one.
pub(crate) fn tell_unlabelled(dataset: &Dataset, found: &mut Vec<String>) {
    if dataset.n_classes == 0 {
        return;
    }
    let parts = [
        (&dataset.train_idx, "training", "nothing is learnt from them"),
        (&dataset.val_idx, "validation", "they do not count"),
        (&dataset.test_idx, "test", "they do not count"),
    ];
    let of = if dataset.splits.len() > 1 { " of the first split" } else { "" };
    for (part, name, meaning) in parts {
        let n = part.iter().filter(|&&v| dataset.labels[v as usize] < 0).count();
        if n > 0 {
            found.push(format!("{n} {name} vertices{of} have no label: {meaning}"));
        }
    }
}

/// The shape of an array for messages, as in ` of shape [5, 3]`; nothing for text.
pub(crate) fn shape(path: &Path) -> String {
    let stream = is_npy(path).then(|| ArrayStream::open(&Place::npy(path)).ok()).flatten();
    stream.map_or_else(String::new, |stream| format!(" of shape {:?}", stream.header().shape))
}

/// How many splits a file has masks of, if it is an array of several columns.
fn several_splits(path: &Path) -> Result<Option<usize>> {
    if !is_npy(path) {
        return Ok(None);
    }
    let place = Place::npy(path);
    match ArrayStream::open(&place)?.header().shape[..] {
        [_, n_splits] if n_splits > MAX_SPLITS => {
            Err(place.error(format!("has {n_splits} splits: at most {MAX_SPLITS} are supported")))
        }
        [_, n_splits] if n_splits > 1 => Ok(Some(n_splits)),
        _ => Ok(None),
    }
}

/// Whether an array has a truth value for each vertex, and not ids: these are distinct, so that more than two values
/// that are all 0 or 1 are none.
fn is_mask(place: &Place) -> Result<bool> {
    let mut stream = ArrayStream::open(place)?;
    if !matches!(stream.header().shape[..], [_] | [_, 1]) {
        return Ok(false);
    }
    if stream.header().dtype == Dtype::Bool {
        return Ok(true);
    }
    if stream.header().len <= 2 {
        return Ok(false);
    }
    let mut numbers = Vec::new();
    loop {
        stream.next(AT_A_TIME, &mut numbers)?;
        match numbers.iter().all(|&v| v == 0.0 || v == 1.0) {
            true if numbers.is_empty() => return Ok(true),
            true => {}
            false => return Ok(false),
        }
    }
}

/// Gives the vertices of a part of ids that are any text to `take`.
fn named_part(path: &Path, ids: &Ids, take: Take<'_>) -> Result<()> {
    let mut lines = Lines::open(path)?;
    while let Some(line) = lines.next_line()? {
        let id = line.trim().to_owned();
        if id.is_empty() || id.starts_with(['#', '%']) {
            continue;
        }
        let number = ids.get(&id);
        let number = number.ok_or_else(|| lines.error(format!("id {}: no edge has it", shown(&id))))?;
        take(number, &|| format!("line {}", lines.number))?;
    }
    Ok(())
}
