//! The factors of GCN's symmetric normalisation on sampled blocks.

use std::sync::Arc;

use crate::device::sample::no_weights;
use crate::device::{Cpu, DegreeFactors, Scalar, Storage, factors_of_degree};
use crate::error::Result;
use crate::graph::Graph;

/// [`Sample::degree_factors`](crate::device::Sample::degree_factors).
pub(super) fn degree_factors<S: Scalar>(
    cpu: &Cpu<S>,
    graph: &Arc<Graph>,
    src: &[u32],
    indptr: &[u32],
    has_estimates: bool,
    weighted: bool,
) -> Result<DegreeFactors<Cpu<S>>> {
    let sums = if weighted { Some(graph.weighted_in_degrees()?.ok_or_else(no_weights)?) } else { None };
    let n_dst = indptr.len().saturating_sub(1);
    let (mut row, mut column, mut own) =
        (cpu.allocate::<S>(n_dst)?, cpu.allocate::<S>(src.len())?, cpu.allocate::<S>(n_dst)?);
    for (i, &v) in src.iter().enumerate() {
        let degree = graph.in_degree(v) as f64;
        let weighted = sums.map_or(degree, |sums| sums[v as usize]);
        let n_edge = if i < n_dst { indptr[i + 1] - indptr[i] } else { 0 };
        let factors = factors_of_degree(degree, weighted, n_edge, has_estimates).map(S::from_f64);
        column[i] = factors[1];
        if i < n_dst {
            (row[i], own[i]) = (factors[0], factors[2]);
        }
    }
    Ok(DegreeFactors { row, column, own })
}
