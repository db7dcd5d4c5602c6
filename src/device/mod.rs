//! Devices: where buffers live and kernels run.
//!
//! [`Storage`] owns memory; each *kernel family* is a trait of its own ([`Gather`], [`Spmm`], [`Gemm`], …) whose docs
//! are the contract that every device meets: shapes, what is overwritten (`=`) and what is added to (`+=`), and what
//! is an error. [`Device`] is all of them together; the modules above are generic over it. There are two devices:
//! [`Cpu`] and, with the feature `cuda`, `Cuda`.
//!
//! Conventions of all kernels:
//! * inputs are plain views ([`Storage::View`]: on the CPU a slice), outputs are views too: no kernel allocates its
//!   result, except the samplers and [`Relation::group_relations`], which find out its size;
//! * matrices are dense, row-major, without padding between rows;
//! * the letters `n_dst, n_src, n_edge, dim, heads` mean the same everywhere;
//! * sums are taken in a fixed order: the same result on every run and for every number of threads;
//! * zero rows, zero columns and zero edges are valid everywhere;
//! * a call returns an error for wrong lengths, shapes and parameters; an index out of range that only the device's
//!   memory shows may be returned later, see [`Storage::synchronize`].

mod attention;
mod batch_norm;
pub mod cpu;
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub mod cuda;
mod elementwise;
mod exchange;
mod gather;
mod gemm;
mod loss;
mod narrow;
mod optimizer;
mod precision;
mod relation;
mod sample;
mod sddmm;
mod spmm;
mod storage;
mod structure;
#[cfg(test)]
pub(crate) mod test_kernels;

pub use attention::{Attention, AttentionDropout, AttentionSpec, GatGradients, GatSaved, Gatv2Operands};
pub use batch_norm::BatchNorm;
pub use cpu::{Cpu, CpuBuffer, MemoryStatistics};
#[cfg(any(feature = "cuda", feature = "emulate"))]
pub use cuda::Cuda;
pub use elementwise::{Activation, Elementwise, Function};
pub(crate) use elementwise::{check_columns, check_probability};
pub use exchange::{Exchange, LinkFailure, NoLink, Offer, OfferedRows};
pub(crate) use gather::aggregate_gathered;
#[cfg(test)]
pub(crate) use gather::gather_aggregate_apart;
pub use gather::{Gather, IndexedRows};
pub(crate) use gather::{check_gather, check_gather_aggregate, check_narrow_index, check_scatter_add};
pub use gemm::Gemm;
pub(crate) use gemm::{check_gemm, check_terms, linear_apart};
pub use loss::{ElementLoss, IGNORED, Loss};
pub(crate) use loss::{check_element_loss, check_element_loss_backward};
pub use narrow::{Half, Narrow};
pub(crate) use narrow::{
    Rows, check_narrow, check_spmm_max_backward_narrow, check_spmm_max_narrow, check_spmm_narrow,
};
pub use optimizer::{AdamParameter, AdamStep, Optimizer, SgdParameter, SgdStep};
pub use precision::Precision;
pub use relation::{Direction, Order, Relation, RelationEdges, RelationGroups};
pub(crate) use sample::factors_of_degree;
pub use sample::{DegreeFactors, LaborIterations, Method, Sample, SampleSpec, SampledBlock};
pub use sddmm::Sddmm;
pub(crate) use sddmm::{check_sddmm_add, check_sddmm_dot};
pub use spmm::{Csr, Spmm, Weights};
pub(crate) use spmm::{
    check_csr, check_csr_lengths, check_no_edge, check_product, check_spmm_heads, check_weights, longest_row,
    on_host, positions_of_transpose,
};
pub use storage::{Dtype, Element, FeatureElement, Matrix, MatrixMut, Scalar, Storage, Write};
pub(crate) use storage::{
    buffer_bytes, check_matrix, check_matrix_length, check_matrix_mut, check_same_shape,
};
pub use structure::Structure;
pub(crate) use structure::{check_inverse_weight_sum, check_transpose};

/// A device with all kernel families: what tensors, layers and trainers are generic over.
pub trait Device:
    Storage
    + Attention
    + BatchNorm
    + Elementwise
    + Exchange
    + Gather
    + Gemm
    + Loss
    + Narrow
    + Optimizer
    + Relation
    + Sample
    + Sddmm
    + Spmm
    + Structure
{
}

impl<T> Device for T where
    T: Storage
        + Attention
        + BatchNorm
        + Elementwise
        + Exchange
        + Gather
        + Gemm
        + Loss
        + Narrow
        + Optimizer
        + Relation
        + Sample
        + Sddmm
        + Spmm
        + Structure
{
}
