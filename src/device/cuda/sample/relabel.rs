//! From global ids to positions in the block.

use super::{Kept, Layer, pointer_or_null};
use crate::device::Scalar;
use crate::device::cuda::memory::CudaBuffer;
use crate::device::cuda::{Cuda, dtype, ffi};
use crate::error::{Error, Result};

/// Sources and their positions.
pub(super) struct Relabelled<S: Scalar> {
    pub(super) src: CudaBuffer<u32>,
    pub(super) indices: CudaBuffer<u32>,
    pub(super) edge_type: Option<CudaBuffer<u16>>,
    pub(super) edge_weight: Option<CudaBuffer<S>>,
}

impl<S: Scalar> Relabelled<S> {
    /// Of no destinations.
    pub(super) fn nothing(cuda: &Cuda<S>, with_edge_type: bool, with_edge_weight: bool) -> Result<Self> {
        Ok(Relabelled {
            src: cuda.scratch(0)?,
            indices: cuda.scratch(0)?,
            edge_type: with_edge_type.then(|| cuda.scratch(0)).transpose()?,
            edge_weight: with_edge_weight.then(|| cuda.scratch(0)).transpose()?,
        })
    }
}

impl<S: Scalar> Layer<'_, S> {
    /// Destinations first, then new sources in order of first occurrence; the edges' relations if wanted, and their
    /// weights. If only a bound of the number of edges is known, `kept` gets the number.
    ///
    /// Errors: more than `u32::MAX` destinations and edges together, as positions in the table are 32-bit, those of
    /// [`found`](Layer::found), or the device fails.
    pub(super) fn relabel(&self, kept: &mut Kept<S>, with_edge_type: bool) -> Result<Relabelled<S>> {
        let (cuda, n_dst, n_edge) = (self.cuda, self.n(), kept.n_edge);
        let n_ids = n_dst as u64 + n_edge as u64;
        if n_ids > u64::from(u32::MAX) {
            let what = "a block's list of destinations and edges on CUDA";
            return Err(Error::TooLarge { what, count: n_ids, limit: u64::from(u32::MAX) });
        }
        let mut indices = cuda.scratch::<u32>(n_edge)?;
        let mut edge_type = with_edge_type.then(|| cuda.scratch(n_edge)).transpose()?;
        let mut edge_weight = self.spec.edge_weights.then(|| cuda.scratch::<S>(n_edge)).transpose()?;
        let sources_of_edges = if kept.source.is_none() { Some(cuda.scratch::<u32>(n_edge)?) } else { None };
        let source = pointer_or_null(kept.source.as_ref().or(sources_of_edges.as_ref()));
        let rank = cuda.scratch::<u32>(n_edge + 1)?;
        let mut n_new = 0;
        if n_edge > 0 {
            // Of destinations it may not be known yet whether they are vertices.
            let most_ids = self.graph.arrays.n_vertices as u64 + n_dst as u64;
            let n_slots = 2 * n_ids.min(most_ids);
            let table = cuda.scratch::<u64>(n_slots as usize)?;
            // SAFETY: a function of its argument.
            let scratch = cuda.scratch::<u8>(unsafe { ffi::cohop_relabel_bytes(n_edge as u64) } as usize)?;
            let total = self.found.pointer().wrapping_add(ffi::COHOP_FOUND_NEW as usize);
            let stream = self.stream()?;
            // SAFETY: arrays of edges have `n_edge` elements, `rank` one more; edge ids are those of the graph, or of
            // no edge; the table has two slots for each id: no more than there are vertices, and destinations that may
            // be none. `found` has the entry.
            let code = unsafe {
                ffi::cohop_relabel_find(
                    self.graph.for_kernels(),
                    dtype::<S>(),
                    n_dst as u64,
                    self.dst.pointer(),
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
                    total,
                    cuda.status(),
                    stream,
                )
            };
            cuda.check("relabel", code)?;
            let found = self.found()?;
            n_new = found.new as usize;
            if std::mem::take(&mut kept.is_bound) {
                kept.n_edge = found.kept as usize;
                kept.edge_id.iter_mut().for_each(|ids| ids.shorten(kept.n_edge));
                indices.shorten(kept.n_edge);
                edge_type.iter_mut().for_each(|types| types.shorten(kept.n_edge));
                edge_weight.iter_mut().for_each(|weights| weights.shorten(kept.n_edge));
            }
        }
        let src = cuda.scratch::<u32>(n_dst + n_new)?;
        let stream = self.stream()?;
        // SAFETY: as above; `src` has room for the destinations and the new sources. `indices` is read as the first
        // occurrences and then overwritten, element by element.
        let code = unsafe {
            ffi::cohop_relabel_finish(
                n_dst as u64,
                self.dst.pointer(),
                kept.n_edge as u64,
                source,
                indices.pointer(),
                rank.pointer(),
                src.pointer(),
                indices.pointer(),
                stream,
            )
        };
        cuda.check("relabel", code)?;
        Ok(Relabelled { src, indices, edge_type, edge_weight })
    }
}
