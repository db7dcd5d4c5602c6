//! All benches in one program, so that kernels, which are generic, are compiled once: `cargo bench -- spmm` runs those
//! of one kind.

// A panic is how these fail.
#![allow(clippy::unwrap_used)]

mod attention;
mod cache;
mod epoch;
mod gather;
mod gemm;
mod relation;
mod sampling;
mod spmm;
mod support;

criterion::criterion_main!(
    attention::benches,
    cache::benches,
    epoch::benches,
    gather::benches,
    gemm::benches,
    relation::benches,
    sampling::benches,
    spmm::benches,
);
