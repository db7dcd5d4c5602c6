//! How exactly a device computes what tolerates less than its scalar.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// In which precision a device multiplies dense matrices and aggregates rows over edges.
///
/// | | dense products on a GPU | rows that are aggregated |
/// |---|---|---|
/// | `F32` | f32 | f32 |
/// | `Tf32` | factors of 10 mantissa bits (TF32) | f32 |
/// | `Bf16` | factors in bf16 | bf16 |
/// | `F16` | as `Tf32`: of as many bits as f16 has, and of f32's range | f16, each row times a power of two |
///
/// Whatever the precision, all sums are in f32, and so are parameters, the optimiser's state, the loss, and everything
/// that is neither a dense product nor an aggregation over edges. A GPU's tensor cores do the products. On the CPU they
/// are in f32 always: there the precision is that of rows, and `Tf32` changes nothing. Devices that compute in f64 do
/// so in their products.
///
/// Rows that are aggregated are those of sums, means and maxima over in-edges, and in the backward pass those of their
/// gradients: they are rounded to nearest once, and read as often as they have edges. Attention, aggregation and
/// products by relations, and activations that processing elements exchange are in f32. Features are stored in a type
/// of their own: see [`Features`](crate::data::Features).
///
/// f16 has a small range, so that its rows are scaled, each by a power of two of its own that makes its largest element
/// at least 2^14 and less than 2^15, and scaled back exactly where they are added up: nothing overflows, no gradient
/// vanishes because all are small, and there is no loss scale to choose. Within a row, what is less than 2^-40 of the
/// largest becomes 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Everything in f32.
    #[default]
    F32,
    /// Dense products of factors with 10 mantissa bits.
    Tf32,
    /// Dense products of factors in bf16, and rows to be aggregated in bf16.
    Bf16,
    /// Dense products as in `Tf32`, and rows to be aggregated in f16.
    F16,
}

impl Precision {
    /// All of them.
    pub const ALL: [Precision; 4] = [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16];
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        })
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Precision::ALL
            .into_iter()
            .find(|precision| precision.to_string() == name)
            .ok_or_else(|| Error::invalid("precision", name, "f32, tf32, bf16 or f16"))
    }
}
