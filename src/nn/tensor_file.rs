//! Named matrices in a safetensors file, which many programs read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use crate::device::{Device, Scalar};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

fn dtype<S: Scalar>() -> Dtype {
    if size_of::<S>() == 8 { Dtype::F64 } else { Dtype::F32 }
}

/// Writes matrices under their names, which must differ, and texts in the file's metadata. The new file replaces the
/// old one when it is complete, so that a crash leaves the old one.
///
/// Errors: the file cannot be written, or the device fails.
pub(crate) fn write<'a, D: Device>(
    device: &D,
    path: &Path,
    tensors: impl IntoIterator<Item = (String, &'a Tensor<D>)>,
    texts: HashMap<String, String>,
) -> Result<()> {
    let mut values: Vec<(String, [usize; 2], Vec<u8>)> = Vec::new();
    for (name, tensor) in tensors {
        let host = tensor.to_vec(device)?;
        values.push((name, tensor.shape(), bytemuck::cast_slice(&host).to_vec()));
    }
    let views = values
        .iter()
        .map(|(name, shape, bytes)| {
            let view = TensorView::new(dtype::<D::Scalar>(), shape.to_vec(), bytes);
            view.map(|v| (name.as_str(), v)).map_err(|e| Error::format(path, e))
        })
        .collect::<Result<Vec<_>>>()?;
    let texts = (!texts.is_empty()).then_some(texts);
    let bytes = safetensors::serialize(views, texts).map_err(|e| Error::format(path, e))?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let temporary = PathBuf::from(temporary);
    std::fs::write(&temporary, bytes).map_err(|e| Error::io(&temporary, e))?;
    std::fs::rename(&temporary, path).map_err(|e| Error::io(path, e))
}

/// A file that was read into memory.
pub(crate) struct TensorFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl TensorFile {
    /// Reads a file.
    ///
    /// Errors: the file cannot be read.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        Ok(TensorFile { path: path.to_owned(), bytes: std::fs::read(path).map_err(|e| Error::io(path, e))? })
    }

    /// The text with this name.
    ///
    /// Errors: the file is not safetensors, or has no such text.
    pub(crate) fn text(&self, name: &str) -> Result<String> {
        let (_, metadata) =
            SafeTensors::read_metadata(&self.bytes).map_err(|e| Error::format(&self.path, e))?;
        let text = metadata.metadata().as_ref().and_then(|texts| texts.get(name)).cloned();
        text.ok_or_else(|| Error::format(&self.path, format!("has no metadata entry \"{name}\"")))
    }

    /// The matrices.
    ///
    /// Errors: the file is not safetensors, or damaged.
    pub(crate) fn tensors(&self) -> Result<Tensors<'_>> {
        let tensors = SafeTensors::deserialize(&self.bytes).map_err(|e| Error::format(&self.path, e))?;
        Ok(Tensors { path: &self.path, tensors })
    }
}

/// The matrices of a [`TensorFile`].
pub(crate) struct Tensors<'a> {
    path: &'a Path,
    tensors: SafeTensors<'a>,
}

impl Tensors<'_> {
    /// The matrix with this name.
    ///
    /// Errors: there is none, it has another shape or type, or the device is out of memory.
    pub(crate) fn get<D: Device>(&self, device: &D, name: &str, shape: [usize; 2]) -> Result<Tensor<D>> {
        let view = self.tensors.tensor(name).map_err(|e| Error::format(self.path, format!("{name}: {e}")))?;
        let expected = dtype::<D::Scalar>();
        if view.shape() != shape || view.dtype() != expected {
            let (found, of) = (view.dtype(), view.shape());
            let problem = format!("{name} is {found:?} {of:?}, expected {expected:?} {shape:?}");
            return Err(Error::format(self.path, problem));
        }
        let values: Vec<D::Scalar> = bytemuck::pod_collect_to_vec(view.data());
        Tensor::from_slice(device, shape[0], shape[1], &values)
    }

    /// Number of matrices.
    pub(crate) fn len(&self) -> usize {
        self.tensors.len()
    }
}
