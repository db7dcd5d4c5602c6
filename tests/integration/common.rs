//! What several tests need.

use std::io::Write;
use std::path::{Path, PathBuf};

use cohop::device::{Cpu, Device, Scalar};

#[path = "../../src/testing/close.rs"]
mod close;

pub use close::assert_close;

/// A path below the folder of shared test data: `$COHOP_SHARED`, else `../shared` beside the repository. Where it is
/// absent, says so on stderr, and the caller is expected to pass.
pub fn shared(path: impl AsRef<Path>) -> Option<PathBuf> {
    let root = std::env::var_os("COHOP_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let full = root.join(path);
    if full.exists() {
        return Some(full);
    }
    let text =
        format!("SKIPPED: {} is absent: set COHOP_SHARED to the folder of shared data\n", full.display());
    // Not by `eprintln!`, which the test harness keeps to itself when a test passes.
    let _ = std::io::stderr().write_all(text.as_bytes());
    None
}

/// All files below `folder` with one of these extensions.
pub fn files_below(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path, extensions));
        } else if path.extension().is_some_and(|e| extensions.iter().any(|&extension| e == extension)) {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Whether the long forms of tests are asked for (`COHOP_LONG=1`).
pub fn long() -> bool {
    std::env::var_os("COHOP_LONG").is_some_and(|v| v == "1")
}

/// A device of a kind, new.
pub trait Fresh: Device {
    fn fresh() -> Self;
}

impl<S: Scalar> Fresh for Cpu<S> {
    fn fresh() -> Self {
        Cpu::new()
    }
}

#[cfg(any(feature = "cuda", feature = "emulate"))]
impl<S: Scalar> Fresh for cohop::device::Cuda<S> {
    fn fresh() -> Self {
        cohop::device::Cuda::new(0).unwrap()
    }
}

/// Whether there is a CUDA device (the emulator is one); says so if there is none.
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub fn has_cuda() -> bool {
    match cohop::device::Cuda::<f32>::new(0) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("SKIPPED: {error}");
            false
        }
    }
}

/// Calls a function generic over a [`Fresh`] device for every device and scalar.
macro_rules! on_devices {
    ($body:ident $(, $argument:expr)*) => {
        $body::<cohop::device::Cpu<f64>>($($argument),*);
        $body::<cohop::device::Cpu<f32>>($($argument),*);
        #[cfg(any(feature = "cuda", feature = "emulate"))]
        if $crate::common::has_cuda() {
            $body::<cohop::device::Cuda<f64>>($($argument),*);
            $body::<cohop::device::Cuda<f32>>($($argument),*);
        }
    };
}
pub(crate) use on_devices;
