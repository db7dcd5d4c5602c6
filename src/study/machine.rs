//! Bandwidths of machines.

use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use crate::device::{Cpu, Gemm, Write};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A machine, by the bandwidths of one processing element (PE) that the cost model needs, in bytes per second, and its
/// rate of arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the machine.
    pub name: String,
    /// Number of PEs.
    pub n_pes: usize,
    /// γ: of the device's memory.
    pub memory: f64,
    /// α: between PEs, in one direction.
    pub interconnect: f64,
    /// β: from storage, in one direction.
    pub storage: f64,
    /// Operations in `f32` per second, a multiplication and an addition counting as two. Only
    /// [`predict_model`](super::predict_model) looks at it.
    pub arithmetic: f64,
    /// Whether all PEs share these bandwidths, and the arithmetic, instead of each PE having them.
    pub shared: bool,
}

impl Machine {
    /// Names that [`preset`](Machine::preset) takes.
    pub const NAMES: [&'static str; 5] = ["4xA100", "8xA100", "16xV100", "8xH200", THIS];

    /// A machine by name: with published bandwidths, or `this-machine`, whose bandwidths are measured.
    ///
    /// Data sheets give NVLink and PCI-e bandwidths for both directions together; this takes half of them. Arithmetic
    /// is that of FP32 without tensor cores.
    ///
    /// Errors: `name` is not one of [`NAMES`](Machine::NAMES).
    pub fn preset(name: &str) -> Result<Self> {
        let gpus = |n_pes, memory, interconnect, storage, teraflops: f64| Machine {
            name: name.to_owned(),
            n_pes,
            memory: memory * 1e9,
            interconnect: interconnect * 1e9,
            storage: storage * 1e9,
            arithmetic: teraflops * 1e12,
            shared: false,
        };
        match name {
            // NVIDIA A100 data sheet (80 GB, SXM): HBM2e 2,039 GB/s, NVLink 600 GB/s, PCI-e generation 4 64 GB/s, FP32
            // 19.5 TFLOPS. Of
            // four GPUs as of eight (over NVSwitch), each reaches the others with all of its NVLinks.
            "4xA100" => Ok(gpus(4, 2039.0, 300.0, 32.0, 19.5)),
            "8xA100" => Ok(gpus(8, 2039.0, 300.0, 32.0, 19.5)),
            // NVIDIA V100 data sheet (32 GB, SXM): HBM2 900 GB/s, NVLink 300 GB/s, PCI-e 32 GB/s, FP32 15.7 TFLOPS; 16
            // over NVSwitch are a DGX-2.
            "16xV100" => Ok(gpus(16, 900.0, 150.0, 16.0, 15.7)),
            // NVIDIA H200 data sheet (SXM): HBM3e 4.8 TB/s, NVLink 900 GB/s, PCI-e generation 5 128 GB/s,
            // FP32 67 TFLOPS.
            "8xH200" => Ok(gpus(8, 4800.0, 450.0, 64.0, 67.0)),
            THIS => Machine::this(),
            _ => Err(Error::invalid("machine", name, Machine::NAMES.join(", "))),
        }
    }

    /// This machine, whose PEs are threads: they share its memory, and copy rows to exchange or load them.
    ///
    /// Errors: there is no memory for what is multiplied.
    fn this() -> Result<Self> {
        let copied = measure_copy_bandwidth(1 << 26, 5);
        let n_pes = std::thread::available_parallelism().map_or(1, usize::from);
        // Each copied byte is read and written.
        let (memory, interconnect, storage) = (2.0 * copied, copied, copied);
        let arithmetic = measure_arithmetic(1 << 13, 5)?;
        Ok(Machine { name: THIS.to_owned(), n_pes, memory, interconnect, storage, arithmetic, shared: true })
    }

    /// `[memory, interconnect, storage]` of each of `n_pes` PEs.
    pub(super) fn bandwidths(&self, n_pes: usize) -> [f64; 3] {
        let divisor = if self.shared { n_pes as f64 } else { 1.0 };
        [self.memory, self.interconnect, self.storage].map(|bandwidth| bandwidth / divisor)
    }

    /// Operations per second of each of `n_pes` PEs.
    pub(super) fn arithmetic_of(&self, n_pes: usize) -> f64 {
        if self.shared { self.arithmetic / n_pes as f64 } else { self.arithmetic }
    }

    /// `Ok` if all bandwidths and the arithmetic are positive.
    pub(super) fn check(&self) -> Result<()> {
        for (name, bandwidth) in [
            ("memory bandwidth", self.memory),
            ("interconnect bandwidth", self.interconnect),
            ("storage bandwidth", self.storage),
        ] {
            if !(bandwidth > 0.0 && bandwidth.is_finite()) {
                return Err(Error::invalid(name, bandwidth, "a positive number of bytes per second"));
            }
        }
        if !(self.arithmetic > 0.0 && self.arithmetic.is_finite()) {
            return Err(Error::invalid(
                "arithmetic",
                self.arithmetic,
                "a positive number of operations per second",
            ));
        }
        Ok(())
    }
}

const THIS: &str = "this-machine";

/// Bytes per second that all threads together copy within memory: the best of `repeats` copies of `bytes` bytes, which
/// should be more than caches hold.
pub fn measure_copy_bandwidth(bytes: usize, repeats: usize) -> f64 {
    const CHUNK: usize = 1 << 16;
    let words = bytes.div_ceil(8).max(1);
    let source: Vec<u64> = (0..words as u64).collect();
    let mut target = vec![0u64; words];
    let mut seconds = f64::INFINITY;
    for _ in 0..repeats.max(1) {
        let start = Instant::now();
        let pairs = target.par_chunks_mut(CHUNK).zip(source.par_chunks(CHUNK));
        pairs.for_each(|(target, source)| target.copy_from_slice(source));
        seconds = seconds.min(start.elapsed().as_secs_f64());
        // Else the compiler might remove the copy.
        std::hint::black_box(&mut target);
    }
    (words * 8) as f64 / seconds.max(1e-9)
}

/// Operations per second of all threads together in the product of a layer's rows, `[rows, 256]`, with a weight of as
/// many columns: the best of `repeats`.
///
/// Errors: there is no memory for the matrices.
pub fn measure_arithmetic(rows: usize, repeats: usize) -> Result<f64> {
    const COLS: usize = 256;
    let cpu = Cpu::<f32>::new();
    let (x, weight) = (Tensor::zeros(&cpu, rows, COLS)?, Tensor::zeros(&cpu, COLS, COLS)?);
    let mut out = Tensor::allocate(&cpu, rows, COLS)?;
    let mut seconds = f64::INFINITY;
    for _ in 0..repeats.max(1) {
        let start = Instant::now();
        cpu.gemm(x.matrix(), false, weight.matrix(), false, out.make_mut(&cpu)?, Write::Assign)?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
        // Else the compiler might remove the product.
        std::hint::black_box(&mut out);
    }
    Ok(2.0 * (rows * COLS * COLS) as f64 / seconds.max(1e-9))
}
