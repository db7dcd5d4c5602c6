//! Labels and features that come in files of their own, beside a format that has none.

use std::path::Path;

use cohop::Result;

use crate::array::Place;
use crate::edges::Ids;
use crate::labels;
use crate::text::shown;
use crate::typed::{Part, usual_dtype, write_matrix};
use crate::{Found, Progress, ReadOptions, by_id, label_text};

/// The vertices of a data set in the making.
pub(crate) struct Vertices<'a> {
    pub(crate) n: u64,
    /// If ids are not the vertices' numbers.
    pub(crate) ids: Option<&'a Ids>,
    /// The least number of a vertex that has edges, where ids are numbers that a text gives.
    pub(crate) least_id: Option<u32>,
    pub(crate) options: &'a ReadOptions,
    pub(crate) folder: &'a Path,
    pub(crate) scratch: &'a Path,
}

impl Vertices<'_> {
    /// Writes labels: a class for each vertex in order (`.npy`, or a text of one column), or text of id and class.
    pub(crate) fn labels(&self, path: &Path, found: &mut Found, progress: Progress<'_>) -> Result<()> {
        if let Some(ids) = self.ids.filter(|_| is_npy(path)) {
            return by_id::labels(self, ids, &Place::npy(path), found, progress);
        }
        if is_npy(path) {
            return labels::write(
                self.folder,
                &[("", self.n, Some(&Place::npy(path)))],
                self.options,
                &|n| self.hint(n),
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

    /// What helps where a file has `n` rows, and there should be one for each vertex: a text that follows a message.
    pub(crate) fn hint(&self, n: u64) -> &'static str {
        match self.least_id {
            Some(1..) if n < self.n => "; no edge has the id 0: if ids count from 1, --ids map",
            _ => "",
        }
    }

    /// What a message calls a vertex.
    pub(crate) fn name(&self, vertex: u32) -> String {
        match self.ids.and_then(|ids| ids.name(vertex)) {
            Some(id) => format!("id {}", shown(id)),
            None => format!("vertex {vertex}"),
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
}

pub(crate) fn is_npy(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "npy")
}

#[cfg(test)]
mod tests;
