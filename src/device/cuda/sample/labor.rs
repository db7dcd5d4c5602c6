//! LABOR-i and LABOR-*: sampling by optimised probabilities.

use super::{Kept, Layer, pointer_or_null};
use crate::device::cuda::dtype;
use crate::device::cuda::ffi::{self, cohop_count_rule as Rule};
use crate::device::cuda::memory::CudaBuffer;
use crate::device::sample::{has_converged, source_stream};
use crate::device::{LaborIterations, Scalar};
use crate::error::Result;

/// Candidates have slots by their ids in graphs of up to this many vertices per in-edge of the block's destinations.
const VERTICES_PER_IN_EDGE: u64 = 4;

/// What is known of the candidates; see `cohop_labor` in `cuda/cohop.h`.
struct LaborPlan {
    offsets: CudaBuffer<u64>,
    slot: Option<CudaBuffer<u32>>,
    id: CudaBuffer<u32>,
    word: CudaBuffer<u32>,
    pi: CudaBuffer<f64>,
    largest: CudaBuffer<f64>,
    scale: CudaBuffer<f64>,
}

impl LaborPlan {
    fn for_kernels(&self) -> ffi::cohop_labor {
        ffi::cohop_labor {
            n_slots: self.id.len() as u64,
            id: self.id.pointer(),
            word: self.word.pointer(),
            pi: self.pi.pointer(),
            largest: self.largest.pointer(),
            scale: self.scale.pointer(),
            offsets: self.offsets.pointer(),
            slot: pointer_or_null(self.slot.as_ref()),
        }
    }
}

impl<S: Scalar> Layer<'_, S> {
    pub(super) fn labor(
        &self,
        iterations: LaborIterations,
        fixed_size: bool,
        layer_dependent: bool,
    ) -> Result<Kept<S>> {
        let plan = self.plan(source_stream(self.number, layer_dependent), iterations)?;
        let labor = plan.for_kernels();
        let (graph, rows, fanout) = (self.graph.for_kernels(), self.rows(), self.fanout());
        let kept = if fixed_size {
            let offsets = self.offsets(Rule::COHOP_COUNT_AT_MOST, ffi::COHOP_FOUND_KEPT)?;
            self.kept(&offsets, |_, indptr, edge_id| {
                let (indptr, edge_id, stream) = (indptr.pointer(), edge_id.pointer(), self.stream()?);
                // SAFETY: `indptr` has room for the smaller of fanout and degree for each row, and so has `edge_id`;
                // the plan is that of these rows.
                let code = unsafe {
                    ffi::cohop_sample_labor_smallest(graph, rows, fanout, labor, indptr, edge_id, stream)
                };
                self.cuda.check("sample_labor_smallest", code)
            })?
        } else {
            self.pick_poisson(|counts, indptr, edge_id| {
                let stream = self.stream()?;
                // SAFETY: either there is room for a count per row, or `indptr` has room for as many edges as were
                // counted; the plan is that of these rows.
                let code = unsafe {
                    ffi::cohop_sample_labor_poisson(
                        graph, rows, fanout, labor, counts, indptr, edge_id, stream,
                    )
                };
                self.cuda.check("sample_labor_poisson", code)
            })?
        };
        let weight = self.cuda.scratch::<S>(kept.n_edge)?;
        let (indptr, edge_id) = (kept.indptr.pointer(), pointer_or_null(kept.edge_id.as_ref()));
        let stream = self.stream()?;
        // SAFETY: `weight` has an element for each of the edges, which are of these rows.
        let code = unsafe {
            let (scalar, weight) = (dtype::<S>(), weight.pointer().cast());
            ffi::cohop_sample_labor_weights(
                scalar, graph, rows, fanout, labor, indptr, edge_id, weight, stream,
            )
        };
        self.cuda.check("sample_labor_weights", code)?;
        Ok(Kept { weight: Some(weight), ..kept })
    }

    /// Finds the candidates, and their probabilities by fixed-point iteration.
    fn plan(&self, stream_number: u64, iterations: LaborIterations) -> Result<LaborPlan> {
        let offsets = self.offsets(Rule::COHOP_COUNT_ALL, ffi::COHOP_FOUND_SCRATCH)?;
        let n_in_edges = self.found()?.scratch;
        let n_vertices = self.graph.arrays.n_vertices as u64;
        let by_id = n_vertices <= VERTICES_PER_IN_EDGE.saturating_mul(n_in_edges);
        let n_slots = if by_id { n_vertices } else { 2 * n_in_edges } as usize;
        let cuda = self.cuda;
        let mut plan = LaborPlan {
            offsets,
            slot: (!by_id).then(|| cuda.scratch(n_in_edges as usize)).transpose()?,
            id: cuda.scratch(n_slots)?,
            word: cuda.scratch(n_slots)?,
            pi: cuda.scratch(n_slots)?,
            largest: cuda.scratch(n_slots)?,
            scale: cuda.scratch(self.n())?,
        };
        let (graph, rows, labor) = (self.graph.for_kernels(), self.rows(), plan.for_kernels());
        let (variates, status, stream) = (self.variates(), cuda.status(), self.stream()?);
        // SAFETY: the rows have `n_in_edges` in-edges, and there are a slot for every vertex or two for every in-edge.
        let code = unsafe {
            ffi::cohop_sample_labor_gather(
                graph,
                rows,
                n_in_edges,
                variates,
                stream_number,
                labor,
                status,
                stream,
            )
        };
        cuda.check("sample_labor_gather", code)?;
        self.solve(&plan)?;
        let mut done = 0;
        let converges = iterations == LaborIterations::Converged;
        let mut expected = if converges { self.found()?.expected } else { 0 };
        while iterations != LaborIterations::Fixed(done) {
            std::mem::swap(&mut plan.pi, &mut plan.largest);
            self.solve(&plan)?;
            done = done.saturating_add(1);
            if converges {
                let before = expected;
                expected = self.found()?.expected;
                if has_converged(before, expected) {
                    break;
                }
            }
        }
        Ok(plan)
    }

    fn solve(&self, plan: &LaborPlan) -> Result<()> {
        let (graph, rows, labor) = (self.graph.for_kernels(), self.rows(), plan.for_kernels());
        let stream = self.stream()?;
        // SAFETY: the plan is that of these rows, and all of its slots are filled.
        let code = unsafe { ffi::cohop_sample_labor_solve(graph, rows, self.fanout(), labor, stream) };
        self.cuda.check("sample_labor_solve", code)
    }
}
