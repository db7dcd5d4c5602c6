//! Data sets in one `.npz`: read into memory.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use zip::ZipArchive;
use zip::result::ZipError;

use super::Dataset;
use super::assemble::{Meta, Source, assemble};
use super::load::LoadOptions;
use super::npy::NpyArray;
use crate::error::{Error, Result};

struct NpzSource {
    path: PathBuf,
    archive: ZipArchive<BufReader<File>>,
}

impl Source for NpzSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn array(&mut self, name: &str) -> Result<Option<NpyArray>> {
        let mut member = match self.archive.by_name(&format!("{name}.npy")) {
            Err(ZipError::FileNotFound) => return Ok(None),
            member => member.map_err(|e| Error::format(&self.path, format!("array {name}: {e}")))?,
        };
        NpyArray::read(&self.path, name, &mut member).map(Some)
    }

    fn names(&self) -> Vec<String> {
        self.archive.file_names().filter_map(|name| name.strip_suffix(".npy")).map(str::to_owned).collect()
    }
}

/// Reads a data set from an `.npz`.
pub(super) fn read(path: &Path, options: &LoadOptions) -> Result<(Dataset, Vec<String>)> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    let archive = ZipArchive::new(BufReader::new(file)).map_err(|e| {
        Error::format(path, format!("is not a readable .npz: {e}: is it truncated or damaged?"))
    })?;
    assemble(&mut NpzSource { path: path.to_owned(), archive }, Meta::default(), options)
}
