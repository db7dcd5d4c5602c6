//! From global ids to positions in the block.

use super::{CudaGraph, Kept, pointer_or_null};
use crate::device::cuda::memory::{CudaBuffer, CudaView};
use crate::device::cuda::{Cuda, dtype, ffi};
use crate::device::{Scalar, Storage};
use crate::error::{Error, Result};

/// Sources and their positions.
pub(super) struct Relabelled<S: Scalar> {
    pub(super) src: CudaBuffer<u32>,
    pub(super) indices: CudaBuffer<u32>,
    pub(super) edge_type: Option<CudaBuffer<u16>>,
    pub(super) edge_weight: Option<CudaBuffer<S>>,
}

impl<S: Scalar> Cuda<S> {
    /// Destinations first, then new sources in order of first occurrence; the edges' relations and weights if wanted.
    ///
    /// Errors: more than `u32::MAX` destinations and edges together, as positions in the table are 32-bit, or the
    /// device fails.
    pub(super) fn relabel(
        &self,
        graph: &CudaGraph,
        dst: CudaView<'_, u32>,
        kept: &Kept<S>,
        with_edge_type: bool,
        with_edge_weight: bool,
    ) -> Result<Relabelled<S>> {
        let (n_dst, n_edge) = (dst.len(), kept.n_edge);
        let n_ids = n_dst as u64 + n_edge as u64;
        if n_ids > u64::from(u32::MAX) {
            let what = "a block's list of destinations and edges on CUDA";
            return Err(Error::TooLarge { what, count: n_ids, limit: u64::from(u32::MAX) });
        }
        let indices = self.scratch::<u32>(n_edge)?;
        let edge_type = with_edge_type.then(|| self.scratch(n_edge)).transpose()?;
        let edge_weight = with_edge_weight.then(|| self.scratch::<S>(n_edge)).transpose()?;
        let sources_of_edges = if kept.source.is_none() { Some(self.scratch::<u32>(n_edge)?) } else { None };
        let source = pointer_or_null(kept.source.as_ref().or(sources_of_edges.as_ref()));
        let rank = self.scratch::<u32>(n_edge + 1)?;
        let mut n_new = 0;
        if n_edge > 0 {
            let n_slots = 2 * n_ids.min(graph.arrays.n_vertices as u64);
            let table = self.scratch::<u64>(n_slots as usize)?;
            // SAFETY: a function of its argument.
            let scratch = self.scratch::<u8>(unsafe { ffi::cohop_relabel_bytes(n_edge as u64) } as usize)?;
            let total = self.scratch::<u64>(1)?;
            let stream = self.stream()?;
            // SAFETY: arrays of edges have `n_edge` elements, `rank` one more; edge ids are those of the graph; the
            // table has two slots for each id, of which there are no more than vertices.
            let code = unsafe {
                ffi::cohop_relabel_find(
                    graph.for_kernels(),
                    dtype::<S>(),
                    n_dst as u64,
                    dst.pointer(),
                    n_edge as u64,
                    pointer_or_null(kept.edge_id.as_ref()),
                    source,
                    indices.pointer(),
                    rank.pointer(),
                    n_slots,
                    table.pointer(),
                    pointer_or_null(edge_type.as_ref()),
                    pointer_or_null(edge_weight.as_ref()).cast(),
                    scratch.pointer().cast(),
                    total.pointer(),
                    self.status(),
                    stream,
                )
            };
            self.check("relabel", code)?;
            n_new = self.download(total.view())?[0] as usize;
        }
        let src = self.scratch::<u32>(n_dst + n_new)?;
        let stream = self.stream()?;
        // SAFETY: as above; `src` has room for the destinations and the new sources. `indices` is read as the first
        // occurrences and then overwritten, element by element.
        let code = unsafe {
            ffi::cohop_relabel_finish(
                n_dst as u64,
                dst.pointer(),
                n_edge as u64,
                source,
                indices.pointer(),
                rank.pointer(),
                src.pointer(),
                indices.pointer(),
                stream,
            )
        };
        self.check("relabel", code)?;
        Ok(Relabelled { src, indices, edge_type, edge_weight })
    }
}
