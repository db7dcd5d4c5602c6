//! Reading the headers of `.npy` files.

use std::io::{ErrorKind, Read};

use super::{DTYPES, Dtype, MAGIC};
use crate::error::Result;

/// NumPy itself refuses longer headers by default.
const MAX_HEADER_BYTES: usize = 10_000;

/// The contents of a header.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    /// The element type.
    pub dtype: Dtype,
    /// The number of elements in each dimension.
    pub shape: Vec<usize>,
    /// The number of elements: the product of the shape, which memory could hold.
    pub len: usize,
    /// Whether the first index runs fastest in the file, and not the last.
    pub fortran_order: bool,
}

impl Header {
    pub(super) fn in_c_order(self) -> Result<Self, String> {
        match self.fortran_order {
            true => Err("is in Fortran order: save numpy.ascontiguousarray(..) of it".into()),
            false => Ok(self),
        }
    }
}

/// Reads a header. Returns it and its number of bytes, after which the data begins.
///
/// Errors: texts, to which the caller adds the file: the header is cut off, or not a supported one.
pub fn read_header(reader: &mut impl Read) -> Result<(Header, usize), String> {
    let mut fixed = [0; 10];
    reader.read_exact(&mut fixed).map_err(cut_off)?;
    if &fixed[..6] != MAGIC {
        return Err("does not begin with the .npy magic bytes".into());
    }
    let mut begin = 10;
    let text_bytes = match fixed[6] {
        1 => usize::from(u16::from_le_bytes([fixed[8], fixed[9]])),
        2 | 3 => {
            let mut high = [0; 2];
            reader.read_exact(&mut high).map_err(cut_off)?;
            begin = 12;
            u32::from_le_bytes([fixed[8], fixed[9], high[0], high[1]]) as usize
        }
        version => return Err(format!(".npy version {version} is not supported")),
    };
    if text_bytes > MAX_HEADER_BYTES {
        return Err(format!("the .npy header has {text_bytes} bytes, more than {MAX_HEADER_BYTES}"));
    }
    let mut text = vec![0; text_bytes];
    reader.read_exact(&mut text).map_err(cut_off)?;
    let text = std::str::from_utf8(&text).map_err(|_| "the .npy header is not text")?;
    Ok((parse_header(text)?, begin + text_bytes))
}

/// What keeps a header from being read.
fn cut_off(error: std::io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof => "the file ends within the .npy header".into(),
        _ => format!("the .npy header cannot be read: {error}"),
    }
}

/// Parses `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn parse_header(text: &str) -> Result<Header, String> {
    let value_of = |key: &str| -> Result<&str, String> {
        let quoted = format!("'{key}':");
        let (_, value) =
            text.split_once(&quoted).ok_or(format!("the .npy header has no {key}: {}", text.trim()))?;
        Ok(value.trim_start())
    };
    let descr = value_of("descr")?;
    let name = descr
        .strip_prefix('\'')
        .and_then(|d| d.split_once('\''))
        .ok_or(format!("dtype {descr:.40} is not a plain number"))?
        .0;
    let Some(&(dtype, _, bytes)) = DTYPES.iter().find(|(_, known, _)| *known == name) else {
        let known: Vec<&str> = DTYPES.iter().map(|(_, known, _)| *known).collect();
        return Err(format!("dtype {name} is not supported: expected one of {}", known.join(" ")));
    };
    let fortran_order = value_of("fortran_order")?.starts_with("True");
    let shape_text = value_of("shape")?
        .strip_prefix('(')
        .and_then(|s| s.split_once(')'))
        .ok_or("the .npy header has no shape tuple")?
        .0;
    let mut shape = Vec::new();
    for part in shape_text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        shape.push(part.parse::<usize>().map_err(|_| format!("the shape ({shape_text}) is not valid"))?);
    }
    let len = shape
        .iter()
        .try_fold(1usize, |len, &n| len.checked_mul(n))
        .filter(|len| len.checked_mul(bytes).is_some_and(|bytes| bytes < isize::MAX as usize))
        .ok_or(format!("the shape ({shape_text}) is too large"))?;
    Ok(Header { dtype, shape, len, fortran_order })
}
