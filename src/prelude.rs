//! What most programs name: `use cohop::prelude::*;` is enough to run kernels on one's own arrays, to sample, and to
//! differentiate.
//!
//! ```
//! # fn main() -> cohop::Result<()> {
//! use cohop::prelude::*;
//!
//! // Mean of the in-neighbours' features, over arrays that somebody else made.
//! let (indptr, indices) = (vec![0, 2, 2, 3], vec![1, 2, 0]);
//! let features = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0_f32]; // [3, 2]
//! let device = Cpu::new();
//! let a = Csr::new(&indptr, &indices, 3)?;
//! let mut inverse_degree = [0.0; 3];
//! device.inverse_degree(&indptr, 0.0, &mut inverse_degree)?;
//! let mut mean = vec![0.0; 6];
//! let (x, out) = (Matrix::new(&features, 3, 2)?, MatrixMut::new(&mut mean, 3, 2)?);
//! device.spmm(a, Weights::per_row(&inverse_degree), x, out, Write::Assign)?;
//! assert_eq!(mean, [4.0, 5.0, 0.0, 0.0, 1.0, 2.0]);
//!
//! // A falling `indptr` and a column out of range are errors.
//! assert!(Csr::<Cpu>::new(&[0, 2, 1], &[0, 0], 3).is_err());
//! assert!(Csr::<Cpu>::new(&[0, 1], &[3], 3).is_err());
//! # Ok(())
//! # }
//! ```

pub use crate::array::Array;
pub use crate::block::Block;
pub use crate::device::{
    Attention, BatchNorm, Cpu, Csr, Device, Elementwise, Gather, Gemm, IndexedRows, LaborIterations, Loss,
    Matrix, MatrixMut, Method, Optimizer, Relation, Sample, SampleSpec, SampledBlock, Scalar, Sddmm, Spmm,
    Storage, Structure, Weights, Write,
};
pub use crate::error::{Error, Result};
pub use crate::graph::{EdgeSet, Graph, GraphBuilder};
pub use crate::pattern::Pattern;
pub use crate::rng::{Dependence, Kappa, Purpose, Variates};
pub use crate::sample::{Batches, Fanouts, Sampler, SamplerConfig};
pub use crate::tape::Tape;
pub use crate::tensor::Tensor;
