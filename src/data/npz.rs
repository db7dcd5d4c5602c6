//! Data sets in one `.npz`: read into memory.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use npyz::npz::{NpzArchive, file_name_from_array_name};

use super::Dataset;
use super::assemble::{Meta, Source, assemble};
use super::load::LoadOptions;
use super::npy::NpyArray;
use crate::error::{Error, Result};

struct NpzSource {
    path: PathBuf,
    archive: NpzArchive<BufReader<File>>,
}

impl Source for NpzSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn array(&mut self, name: &str) -> Result<Option<NpyArray>> {
        if !self.archive.array_names().any(|n| n == name) {
            return Ok(None);
        }
        // The zip member itself: npyz's own reader takes the shape of a damaged header at its word.
        let member = self.archive.zip_archive().by_name(&file_name_from_array_name(name));
        let mut member = member.map_err(|e| Error::format(&self.path, format!("array {name}: {e}")))?;
        NpyArray::read(&self.path, name, &mut member).map(Some)
    }
}

/// Reads a data set from an `.npz`.
pub(super) fn read(path: &Path, options: &LoadOptions) -> Result<Dataset> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let archive = NpzArchive::new(BufReader::new(file)).map_err(|e| {
        Error::format(path, format!("is not a readable .npz: {e}: is it truncated or damaged?"))
    })?;
    assemble(&mut NpzSource { path: path.to_owned(), archive }, Meta::default(), options)
}
