//! Neighbour sampling on CUDA; see `cuda/sample_*.cu` and `cuda/relabel.cu`.
//!
//! A block is made in three steps, between which the host reads a few totals to allocate what comes next: the rows are
//! looked up and what they keep is counted ([`Layer`]); the edges are picked ([`pick`], [`labor`], [`walk`]); their
//! sources are relabelled ([`relabel`]). Where the fanout bounds the number of edges, memory is allocated for as many,
//! and the host reads once, at the end. Every decision is the CPU's, bit for bit: the same block.

mod labor;
mod pick;
mod relabel;
#[cfg(test)]
pub(super) mod tests;
mod walk;

use self::relabel::Relabelled;
use std::ffi::c_void;
use std::sync::Arc;

use super::memory::{CudaBuffer, CudaView};
use super::{Cuda, dtype, ffi};
use crate::device::sample::{check_edges, check_method, no_vertex, no_weights, repeated};
use crate::device::{
    DegreeFactors, LaborIterations, Method, Sample, SampleSpec, SampledBlock, Scalar, Storage,
};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::rng::Variates;

/// The most edges that memory is allocated for without knowing that there are so many; each costs some 40 bytes. Few on
/// the emulator, so that tests reach both ways.
const MOST_UNREAD: usize = if cfg!(feature = "emulate") { 1 << 12 } else { 1 << 24 };

/// A graph in the memory of a CUDA device. Clones share it.
#[derive(Clone, Debug)]
pub struct CudaGraph {
    arrays: Arc<GraphArrays>,
}

#[derive(Debug)]
struct GraphArrays {
    n_vertices: usize,
    largest_degree: u64,
    indptr: CudaBuffer<u64>,
    indices: CudaBuffer<u32>,
    edge_type: Option<CudaBuffer<u16>>,
    edge_weight: Option<CudaBuffer<f32>>,
    /// `[n_vertices]`: sums of the weights of in-edges, if there are weights.
    weighted_in_degree: Option<CudaBuffer<f64>>,
}

impl CudaGraph {
    fn for_kernels(&self) -> ffi::cohop_graph {
        let arrays = &*self.arrays;
        ffi::cohop_graph {
            n_vertices: arrays.n_vertices as u64,
            indptr: arrays.indptr.pointer(),
            indices: arrays.indices.pointer(),
            edge_type: pointer_or_null(arrays.edge_type.as_ref()),
            edge_weight: pointer_or_null(arrays.edge_weight.as_ref()),
        }
    }

    /// Number of bits that hold every place in a row: at least one.
    fn place_bits(&self) -> u32 {
        (u64::BITS - self.arrays.largest_degree.leading_zeros()).max(1)
    }
}

/// The pointer of an optional buffer, null if it is absent.
fn pointer_or_null<T>(buffer: Option<&CudaBuffer<T>>) -> *mut T {
    buffer.map_or(std::ptr::null_mut(), CudaBuffer::pointer)
}

impl<S: Scalar> Sample for Cuda<S> {
    type Graph = CudaGraph;

    /// Errors: those of [`upload`](Storage::upload), or a vertex has more than `u32::MAX` in-edges, as places in a row
    /// are 32-bit.
    fn load_graph(&self, graph: &Arc<Graph>) -> Result<CudaGraph> {
        let indptr = graph.indptr();
        let largest_degree = indptr.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
        if largest_degree > u64::from(u32::MAX) {
            let limit = u64::from(u32::MAX);
            return Err(Error::TooLarge {
                what: "a vertex's in-edge list on CUDA",
                count: largest_degree,
                limit,
            });
        }
        let arrays = GraphArrays {
            n_vertices: graph.n_vertices(),
            largest_degree,
            indptr: self.upload(indptr)?,
            indices: self.upload(graph.indices())?,
            edge_type: graph.edge_type().map(|edge_type| self.upload(edge_type)).transpose()?,
            edge_weight: graph.edge_weight().map(|edge_weight| self.upload(edge_weight)).transpose()?,
            weighted_in_degree: graph.weighted_in_degrees()?.map(|sums| self.upload(sums)).transpose()?,
        };
        Ok(CudaGraph { arrays: Arc::new(arrays) })
    }

    fn sample_block(
        &self,
        graph: &CudaGraph,
        dst: CudaView<'_, u32>,
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
    ) -> Result<SampledBlock<Self>> {
        let arrays = &*graph.arrays;
        check_method(arrays.edge_type.is_some(), arrays.edge_weight.is_some(), spec, variates)?;
        let takes_edges = spec.method.takes_edges();
        let edge_type = takes_edges && arrays.edge_type.is_some();
        let (kept, relabelled) = if dst.is_empty() {
            let kept = Kept {
                n_edge: 0,
                is_bound: false,
                indptr: self.upload(&[0])?,
                edge_id: takes_edges.then(|| self.scratch(0)).transpose()?,
                source: None,
                weight: None,
            };
            (kept, Relabelled::nothing(self, edge_type, spec.edge_weights)?)
        } else {
            let layer = Layer::begin(self, graph, dst, spec, variates, layer)?;
            let mut kept = match spec.method {
                Method::Walk { walks, length, restart } => layer.walk(walks, length, restart)?,
                Method::Labor { iterations, fixed_size, layer_dependent }
                    if iterations != LaborIterations::Fixed(0) && spec.fanout > 0 =>
                {
                    layer.labor(iterations, fixed_size, layer_dependent)?
                }
                _ => layer.pick()?,
            };
            let relabelled = layer.relabel(&mut kept, edge_type)?;
            (kept, relabelled)
        };
        let weight = match kept.weight {
            None if spec.method.has_weights() => Some(self.scratch(0)?),
            weight => weight,
        };
        Ok(SampledBlock {
            n_dst: dst.len(),
            src: relabelled.src,
            indptr: kept.indptr,
            indices: relabelled.indices,
            edge_id: kept.edge_id.filter(|_| spec.edge_ids),
            weight,
            edge_type: relabelled.edge_type,
            edge_weight: relabelled.edge_weight,
        })
    }

    fn degree_factors(
        &self,
        graph: &CudaGraph,
        src: CudaView<'_, u32>,
        indptr: CudaView<'_, u32>,
        has_estimates: bool,
        weighted: bool,
    ) -> Result<DegreeFactors<Self>> {
        let sums = match (&graph.arrays.weighted_in_degree, weighted) {
            (_, false) => None,
            (None, true) => return Err(no_weights()),
            (sums, true) => sums.as_ref(),
        };
        let (n_src, n_dst) = (src.len(), indptr.len().saturating_sub(1));
        let [row, column, own] = [self.scratch::<S>(n_dst)?, self.scratch(n_src)?, self.scratch(n_dst)?];
        let stream = self.stream()?;
        // SAFETY: the arrays have the lengths that they are given; sources are vertices of the graph, and `sums`, if
        // there are any, are as many as vertices.
        let code = unsafe {
            ffi::cohop_sample_degree_factors(
                dtype::<S>(),
                graph.for_kernels(),
                pointer_or_null(sums),
                n_src as u64,
                n_dst as u64,
                src.pointer(),
                indptr.pointer(),
                has_estimates,
                row.pointer().cast(),
                column.pointer().cast(),
                own.pointer().cast(),
                stream,
            )
        };
        self.check("sample_degree_factors", code)?;
        Ok(DegreeFactors { row, column, own })
    }
}

/// What the rows of a block keep.
struct Kept<S: Scalar> {
    n_edge: usize,
    /// Whether `n_edge` is only a bound: then the ids of edges that there are not are `u64::MAX`, at the end.
    is_bound: bool,
    indptr: CudaBuffer<u32>,
    /// `None` for walks.
    edge_id: Option<CudaBuffer<u64>>,
    /// `[n_edge]`: global ids of the sources, if they do not follow from `edge_id`.
    source: Option<CudaBuffer<u32>>,
    weight: Option<CudaBuffer<S>>,
}

/// Totals that the host reads.
struct Found {
    kept: u64,
    scratch: u64,
    expected: u64,
    new: u64,
}

/// One layer's sampling, and what is known of its rows.
struct Layer<'a, S: Scalar> {
    cuda: &'a Cuda<S>,
    graph: &'a CudaGraph,
    dst: CudaView<'a, u32>,
    spec: &'a SampleSpec,
    variates: &'a Variates,
    number: u32,
    start: CudaBuffer<u64>,
    degree: CudaBuffer<u32>,
    hub: CudaBuffer<u32>,
    found: CudaBuffer<u64>,
}

impl<'a, S: Scalar> Layer<'a, S> {
    /// Looks up the destinations. Errors in them are returned by the first [`found`](Self::found).
    fn begin(
        cuda: &'a Cuda<S>,
        graph: &'a CudaGraph,
        dst: CudaView<'a, u32>,
        spec: &'a SampleSpec,
        variates: &'a Variates,
        number: u32,
    ) -> Result<Self> {
        let n = dst.len();
        let layer = Layer {
            cuda,
            graph,
            dst,
            spec,
            variates,
            number,
            start: cuda.scratch(n)?,
            degree: cuda.scratch(n)?,
            hub: cuda.scratch(n)?,
            found: cuda.scratch(ffi::COHOP_FOUND_ENTRIES as usize)?,
        };
        let table = cuda.scratch::<u64>(2 * n)?;
        let (graph, rows, stream) = (layer.graph.for_kernels(), layer.rows(), layer.stream()?);
        // SAFETY: the graph's arrays and the rows' have the lengths that they say, the table two slots per row.
        let code = unsafe { ffi::cohop_sample_rows(graph, rows, table.pointer(), stream) };
        cuda.check("sample_rows", code)?;
        Ok(layer)
    }

    fn stream(&self) -> Result<*mut c_void> {
        self.cuda.stream()
    }

    fn rows(&self) -> ffi::cohop_rows {
        ffi::cohop_rows {
            n: self.dst.len() as u64,
            vertex: self.dst.pointer(),
            start: self.start.pointer(),
            degree: self.degree.pointer(),
            hub: self.hub.pointer(),
            found: self.found.pointer(),
        }
    }

    fn variates(&self) -> ffi::cohop_variates {
        let ([first, second, renewal, renewed_below], [cos, sin]) = self.variates.parts();
        ffi::cohop_variates { first, second, renewal, renewed_below, cos, sin }
    }

    fn n(&self) -> usize {
        self.dst.len()
    }

    fn fanout(&self) -> u64 {
        self.spec.fanout as u64
    }

    /// Room for a count per row, from the second element on, and for their sums.
    fn room_for_offsets(&self) -> Result<CudaBuffer<u64>> {
        self.cuda.scratch(self.n() + 1)
    }

    /// Prefix sums of the rows' counts by a rule. Their total goes to entry `total` of `found`.
    fn offsets(&self, rule: ffi::cohop_count_rule, total: u32) -> Result<CudaBuffer<u64>> {
        let offsets = self.room_for_offsets()?;
        let stream = self.stream()?;
        // SAFETY: there is room for a count per row after the first element.
        let code =
            unsafe { ffi::cohop_sample_count(self.rows(), rule, self.fanout(), offsets.pointer(), stream) };
        self.cuda.check("sample_count", code)?;
        self.sum_up(offsets, total)
    }

    /// Turns counts into prefix sums.
    fn sum_up(&self, offsets: CudaBuffer<u64>, total: u32) -> Result<CudaBuffer<u64>> {
        let n = self.n() as u64;
        // SAFETY: a function of its argument.
        let scratch = self.cuda.scratch::<u8>(unsafe { ffi::cohop_sample_offsets_bytes(n) } as usize)?;
        let total = self.found.pointer().wrapping_add(total as usize);
        let stream = self.stream()?;
        // SAFETY: `offsets` has one element more than there are rows, `found` has that entry, and the scratch memory
        // is as large as was asked for.
        let code = unsafe {
            ffi::cohop_sample_offsets(n, offsets.pointer(), scratch.pointer().cast(), total, stream)
        };
        self.cuda.check("sample_offsets", code)?;
        Ok(offsets)
    }

    /// Waits for the totals. Errors: a destination is out of range or repeated, or the block has too many edges.
    fn found(&self) -> Result<Found> {
        let found = self.cuda.download(self.found.view())?;
        let entry = |entry: u32| found[entry as usize];
        let vertex_at = |position: u64| -> Result<u32> {
            let position = position as usize;
            Ok(self.cuda.download(self.dst.slice(position..position + 1))?[0])
        };
        let out_of_range = entry(ffi::COHOP_FOUND_OUT_OF_RANGE);
        if out_of_range != u64::MAX {
            return Err(no_vertex(out_of_range, vertex_at(out_of_range)?, self.graph.arrays.n_vertices));
        }
        let again = entry(ffi::COHOP_FOUND_REPEATED);
        if again != u64::MAX {
            return Err(repeated(again, vertex_at(again)?));
        }
        let kept = entry(ffi::COHOP_FOUND_KEPT);
        check_edges(kept)?;
        let (scratch, expected) = (entry(ffi::COHOP_FOUND_SCRATCH), entry(ffi::COHOP_FOUND_EXPECTED));
        Ok(Found { kept, scratch, expected, new: entry(ffi::COHOP_FOUND_NEW) })
    }

    /// The block's `indptr`.
    fn indptr(&self, offsets: &CudaBuffer<u64>) -> Result<CudaBuffer<u32>> {
        let indptr = self.cuda.scratch(self.n() + 1)?;
        let stream = self.stream()?;
        // SAFETY: both have one element more than there are rows.
        let code =
            unsafe { ffi::cohop_sample_indptr(self.n() as u64, offsets.pointer(), indptr.pointer(), stream) };
        self.cuda.check("sample_indptr", code)?;
        Ok(indptr)
    }

    /// A block whose edges `fill` picks, after memory for them was allocated.
    fn kept(
        &self,
        offsets: &CudaBuffer<u64>,
        fill: impl FnOnce(u64, &CudaBuffer<u32>, &CudaBuffer<u64>) -> Result<()>,
    ) -> Result<Kept<S>> {
        let n_edge = self.found()?.kept;
        self.kept_edges(n_edge, offsets, fill)
    }

    /// The same for a known number of edges.
    fn kept_edges(
        &self,
        n_edge: u64,
        offsets: &CudaBuffer<u64>,
        fill: impl FnOnce(u64, &CudaBuffer<u32>, &CudaBuffer<u64>) -> Result<()>,
    ) -> Result<Kept<S>> {
        let indptr = self.indptr(offsets)?;
        let edge_id = self.cuda.scratch(n_edge as usize)?;
        if n_edge > 0 {
            fill(n_edge, &indptr, &edge_id)?;
        }
        let (n_edge, edge_id) = (n_edge as usize, Some(edge_id));
        Ok(Kept { n_edge, is_bound: false, indptr, edge_id, source: None, weight: None })
    }

    /// A block of at most `fanout` edges a row, which `fill` picks into memory for as many: the host need not know yet
    /// how many there are. Reads their number if that would be too much memory.
    fn kept_at_most(
        &self,
        offsets: &CudaBuffer<u64>,
        fill: impl FnOnce(u64, &CudaBuffer<u32>, &CudaBuffer<u64>) -> Result<()>,
    ) -> Result<Kept<S>> {
        let n_edge = self.n().saturating_mul(self.spec.fanout);
        if n_edge > MOST_UNREAD {
            return self.kept(offsets, fill);
        }
        let indptr = self.indptr(offsets)?;
        let mut edge_id = self.cuda.scratch(n_edge)?;
        self.cuda.fill(u64::MAX, edge_id.view_mut())?;
        fill(n_edge as u64, &indptr, &edge_id)?;
        let edge_id = Some(edge_id);
        Ok(Kept { n_edge, is_bound: true, indptr, edge_id, source: None, weight: None })
    }
}
