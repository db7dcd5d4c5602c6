//! Reads the arrays of an `.npz` as NumPy writes them, by other code than the library's.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use zip::ZipArchive;

/// An array of numbers of 8 bytes, in C order.
pub struct NpzArray {
    is_float: bool,
    pub shape: Vec<usize>,
    data: Vec<u8>,
}

impl NpzArray {
    /// The numbers as `f64`. Panics if they are integers.
    pub fn floats(&self) -> Vec<f64> {
        assert!(self.is_float, "integers");
        bytemuck::pod_collect_to_vec(&self.data)
    }

    /// The numbers as `i64`. Panics if they are not.
    pub fn integers(&self) -> Vec<i64> {
        assert!(!self.is_float, "not integers");
        bytemuck::pod_collect_to_vec(&self.data)
    }

    pub fn is_float(&self) -> bool {
        self.is_float
    }
}

/// The names of the arrays in a file.
pub fn names(path: &Path) -> Vec<String> {
    let archive = ZipArchive::new(File::open(path).unwrap()).unwrap();
    archive.file_names().map(|name| name.strip_suffix(".npy").unwrap().to_owned()).collect()
}

/// An array of a file. Panics if there is none of this name, or its dtype is neither `<f8` nor `<i8`.
pub fn array(path: &Path, name: &str) -> NpzArray {
    let mut archive = ZipArchive::new(File::open(path).unwrap()).unwrap();
    let member = archive.by_name(&format!("{name}.npy"));
    let mut bytes = Vec::new();
    member.unwrap_or_else(|e| panic!("{}: {name}: {e}", path.display())).read_to_end(&mut bytes).unwrap();
    assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00", "{name}");
    let begin = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let header = std::str::from_utf8(&bytes[10..begin]).unwrap();
    let is_float = header.contains("'<f8'");
    assert!(is_float || header.contains("'<i8'"), "{name}: {header}");
    assert!(header.contains("'fortran_order': False"), "{name}: {header}");
    let (_, shape) = header.split_once('(').unwrap();
    let (shape, _) = shape.split_once(')').unwrap();
    let shape: Vec<usize> =
        shape.split(',').map(str::trim).filter(|n| !n.is_empty()).map(|n| n.parse().unwrap()).collect();
    let data = bytes[begin..].to_vec();
    assert_eq!(data.len(), 8 * shape.iter().product::<usize>(), "{name}");
    NpzArray { is_float, shape, data }
}
