//! PinSAGE's random walks.

use super::{Kept, Layer};
use crate::device::cuda::{dtype, ffi};
use crate::device::{Scalar, Storage};
use crate::error::Result;

/// Visits that are in memory at once, of whole rows; few on the emulator, so that tests need several parts.
const VISITS_AT_ONCE: usize = if cfg!(feature = "emulate") { 1 << 12 } else { 1 << 23 };

impl<S: Scalar> Layer<'_, S> {
    pub(super) fn walk(&self, walks: u32, length: u32, restart: f64) -> Result<Kept<S>> {
        let (cuda, n) = (self.cuda, self.n());
        let n_visits = walks as usize * length as usize;
        let most = self.spec.fanout.min(n_visits);
        let mut offsets = self.room_for_offsets()?;
        let counts = offsets.pointer().wrapping_add(1);
        if most == 0 {
            cuda.fill(0, offsets.view_mut())?;
            let kept = self.kept(&offsets, |_, _, _| Ok(()))?;
            return Ok(Kept { edge_id: None, source: Some(cuda.scratch(0)?), ..kept });
        }
        let room = n.saturating_mul(most);
        let (vertex, visits) = (cuda.scratch::<u32>(room)?, cuda.scratch::<u32>(room)?);
        let rows_at_once = (VISITS_AT_ONCE / n_visits).clamp(1, n);
        let at_once = rows_at_once * n_visits;
        let (key, sorted) = (cuda.scratch::<u64>(at_once)?, cuda.scratch::<u64>(at_once)?);
        let times = cuda.scratch::<u32>(at_once)?;
        // SAFETY: a function of its argument.
        let bytes = unsafe { ffi::cohop_sample_sort_bytes(at_once as u64) };
        let scratch = cuda.scratch::<u8>(bytes as usize)?;
        let stream = self.stream()?;
        for first in (0..n).step_by(rows_at_once) {
            let n_rows = rows_at_once.min(n - first);
            // SAFETY: there is room for the visits of so many rows and for their sort; for the neighbours of all rows,
            // and for a count per row after the first element of `offsets`.
            let code = unsafe {
                ffi::cohop_sample_walks(
                    self.graph.for_kernels(),
                    self.rows(),
                    first as u64,
                    n_rows as u64,
                    self.variates(),
                    self.number,
                    walks,
                    length,
                    restart,
                    most as u64,
                    key.pointer(),
                    sorted.pointer(),
                    times.pointer(),
                    scratch.pointer().cast(),
                    vertex.pointer(),
                    visits.pointer(),
                    counts,
                    cuda.status(),
                    stream,
                )
            };
            cuda.check("sample_walks", code)?;
        }
        let offsets = self.sum_up(offsets, ffi::COHOP_FOUND_KEPT)?;
        let n_edge = self.found()?.kept as usize;
        let indptr = self.indptr(&offsets)?;
        let (source, weight) = (cuda.scratch::<u32>(n_edge)?, cuda.scratch::<S>(n_edge)?);
        // SAFETY: `indptr` has room for as many neighbours as were counted, and so have `source` and `weight`.
        let code = unsafe {
            ffi::cohop_sample_walk_neighbors(
                dtype::<S>(),
                n as u64,
                most as u64,
                indptr.pointer(),
                vertex.pointer(),
                visits.pointer(),
                source.pointer(),
                weight.pointer().cast(),
                stream,
            )
        };
        cuda.check("sample_walk_neighbors", code)?;
        Ok(Kept {
            n_edge,
            is_bound: false,
            indptr,
            edge_id: None,
            source: Some(source),
            weight: Some(weight),
        })
    }
}
