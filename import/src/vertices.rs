//! Labels, features and splits that come in files of their own, beside a format that has none.

use std::path::{Path, PathBuf};

use cohop::data::npy::{Dtype, NpyArray, Writer};
use cohop::rng::{Purpose, shuffle};
use cohop::{Error, Result};

use crate::array::Place;
use crate::edges::Ids;
use crate::labels;
use crate::text::{Lines, shown};
use crate::typed::{Part, usual_dtype, write_matrix, write_split};
use crate::{Found, Progress, ReadOptions, label_text};

/// Where the parts of a split come from.
#[derive(Clone, Debug, PartialEq)]
pub enum SplitFrom {
    /// Shares of the vertices, or of those with a label if there are labels: training, validation, test.
    Fractions([f64; 3]),
    /// Files of ids, `.npy` or a line each: training, validation, test.
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

/// The vertices of a data set in the making.
pub(crate) struct Vertices<'a> {
    pub(crate) n: u64,
    /// If ids are not the vertices' numbers.
    pub(crate) ids: Option<&'a Ids>,
    pub(crate) options: &'a ReadOptions,
    pub(crate) folder: &'a Path,
    pub(crate) scratch: &'a Path,
}

impl Vertices<'_> {
    /// Writes labels: a class for each vertex in order (`.npy`, or a text of one column), or text of id and class.
    pub(crate) fn labels(&self, path: &Path, found: &mut Found, progress: Progress<'_>) -> Result<()> {
        if is_npy(path) {
            return labels::write(
                self.folder,
                &[("", self.n, Some(&Place::npy(path)))],
                self.options,
                found,
                progress,
            );
        }
        label_text::write(self, path, found, progress)
    }

    /// The number of the vertex with an id.
    pub(crate) fn number(&self, id: &str) -> Option<u32> {
        match self.ids {
            Some(ids) => ids.get(id),
            None => id.parse::<u32>().ok().filter(|&v| u64::from(v) < self.n),
        }
    }

    /// Whether a text in the column of ids may be one, and not the column's name: a number, if ids are.
    pub(crate) fn may_be_id(&self, id: &str) -> bool {
        match self.ids {
            Some(ids) => ids.get(id).is_some(),
            None => id.parse::<f64>().is_ok(),
        }
    }

    /// Writes features: a row for each vertex, in the order of their numbers, of numbers in `.npy` or text.
    pub(crate) fn features(&self, path: &Path, found: &mut Found, progress: Progress<'_>) -> Result<()> {
        let place = if is_npy(path) { Place::npy(path) } else { Place::text(path) };
        let dtype = match self.options.feature_dtype {
            Some(dtype) => dtype,
            None => usual_dtype(std::iter::once(&place))?,
        };
        let part = Part { name: String::new(), rows: self.n, place: Some(place), repeat: 1 };
        if write_matrix(&self.folder.join("feat.npy"), dtype, &[part], "features", found, progress)? {
            found.files.push("feat.npy".into());
        }
        Ok(())
    }

    /// Writes a split.
    pub(crate) fn split(
        &self,
        split: &SplitFrom,
        seed: u64,
        found: &mut Found,
        progress: Progress<'_>,
    ) -> Result<()> {
        let fractions = match split {
            SplitFrom::Fractions(fractions) => fractions,
            SplitFrom::Files(files) => {
                for (name, path) in PARTS.into_iter().zip(files) {
                    match self.ids {
                        Some(ids) if !is_npy(path) => self.named_part(name, path, ids, found)?,
                        _ => {
                            let place = if is_npy(path) { Place::npy(path) } else { Place::text(path) };
                            write_split(self.folder, name, &[(place, 0, self.n)], found, &mut *progress)?;
                        }
                    }
                }
                return Ok(());
            }
        };
        progress("splitting", 0.0)?;
        let mut vertices: Vec<u32> = Vec::new();
        let no_memory = |_| Error::invalid("--split", self.n, "vertices whose numbers fit in memory");
        vertices.try_reserve_exact(self.n as usize).map_err(no_memory)?;
        let path = self.folder.join("labels.npy");
        if path.is_file() {
            let labels = NpyArray::open(&path, "labels")?.labels()?;
            vertices.extend((0..).zip(labels.iter()).filter(|(_, label)| **label >= 0).map(|(v, _)| v));
        } else {
            found.notes.push("there are no labels: the split is drawn from all vertices".into());
            vertices.extend((0..self.n).map(|v| v as u32));
        }
        shuffle(seed, Purpose::Split.stream(0), &mut vertices);
        let n = vertices.len() as f64;
        let mut from = 0;
        let mut sum = 0.0;
        for (name, fraction) in PARTS.into_iter().zip(fractions) {
            sum += fraction;
            // Thirds and tenths are not exact.
            let to = ((n * sum + 1e-6) as usize).min(vertices.len());
            let part = &mut vertices[from..to];
            part.sort_unstable();
            let mut writer = Writer::create(&self.folder.join(name), Dtype::U32, None)?;
            writer.write(part)?;
            writer.finish()?;
            found.files.push(name.into());
            from = to;
        }
        Ok(())
    }

    /// A part of ids that are not numbers.
    fn named_part(&self, name: &str, path: &Path, ids: &Ids, found: &mut Found) -> Result<()> {
        let mut writer = Writer::create(&self.folder.join(name), Dtype::U32, None)?;
        let mut lines = Lines::open(path)?;
        while let Some(line) = lines.next_line()? {
            let id = line.trim().to_owned();
            if id.is_empty() || id.starts_with(['#', '%']) {
                continue;
            }
            let number = ids.get(&id);
            let number = number.ok_or_else(|| lines.error(format!("id {}: no edge has it", shown(&id))))?;
            writer.write(&[number])?;
        }
        found.files.push(name.into());
        writer.finish()
    }
}

fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "npy")
}

#[cfg(test)]
mod tests;
