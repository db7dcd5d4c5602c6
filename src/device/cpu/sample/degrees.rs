//! The factors of GCN's symmetric normalisation on sampled blocks.

use std::sync::Arc;

use crate::device::sample::no_weights;
use crate::device::{Cpu, DegreeFactors, Scalar, Storage};
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
        let with_loop = sums.as_ref().map_or(degree, |sums| sums[v as usize]) + 1.0;
        let root = with_loop.sqrt();
        column[i] = S::from_f64(1.0 / root);
        if i < n_dst {
            own[i] = S::from_f64(1.0 / with_loop);
            let n_edge = indptr[i + 1] - indptr[i];
            let share = if has_estimates { 1.0 } else { f64::from(n_edge) };
            row[i] = S::from_f64(if n_edge > 0 { degree / share / root } else { 0.0 });
        }
    }
    Ok(DegreeFactors { row, column, own })
}
