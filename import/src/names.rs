//! Names that stand for numbers: classes and types of edges in text.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use cohop::{Error, Result};

use crate::text::{heap_bytes, shown};

/// Distinct names, as they come.
pub(crate) struct Names {
    names: BTreeSet<Box<str>>,
    /// Memory they take.
    bytes: u64,
    memory: u64,
    /// More of them are not supported.
    limit: usize,
}

impl Names {
    /// Takes up to `limit` names of up to `memory` bytes.
    pub(crate) fn new(memory: u64, limit: usize) -> Self {
        Names { names: BTreeSet::new(), bytes: 0, memory, limit }
    }

    /// Adds a name, if it is new. An error is a text.
    pub(crate) fn insert(&mut self, name: &str) -> Result<(), String> {
        if self.names.contains(name) {
            return Ok(());
        }
        // Nodes of the tree are at least half full.
        self.bytes += heap_bytes(name.len()) + 2 * size_of::<Box<str>>() as u64;
        if self.names.len() == self.limit || self.bytes > self.memory {
            let problem = format!("{} is one name more than the {}", shown(name), self.names.len());
            return Err(match self.names.len() == self.limit {
                true => format!("{problem} that are supported: is this the right column?"),
                false => format!("{problem} that fit into memory: --memory allows more"),
            });
        }
        self.names.insert(name.into());
        Ok(())
    }

    /// The names in the order of their bytes, which is that of their numbers.
    pub(crate) fn sorted(self) -> Sorted {
        Sorted(self.names.into_iter().collect())
    }
}

/// Names with their numbers.
pub(crate) struct Sorted(Vec<Box<str>>);

impl Sorted {
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.0.binary_search_by(|other| (**other).cmp(name)).ok()
    }

    /// Writes a name a line: the first is that of number 0.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let io = |e| Error::io(path, e);
        let mut file = BufWriter::new(File::create(path).map_err(io)?);
        for name in &self.0 {
            writeln!(file, "{name}").map_err(io)?;
        }
        file.flush().map_err(io)
    }
}
