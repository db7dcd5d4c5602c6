//! Edges of rows, by every method that decides row by row.

use super::{Kept, Layer};
use crate::device::cuda::ffi::{self, cohop_count_rule as Rule, cohop_key as Key};
use crate::device::cuda::memory::CudaBuffer;
use crate::device::sample::source_stream;
use crate::device::{Method, Scalar};
use crate::error::Result;
use crate::rng::Purpose;

/// Rows of up to this many edges are sorted by a warp.
const SORTED_BY_A_WARP: u64 = 32;

/// Memory for keys of edges and their sort.
struct SortMemory {
    key: CudaBuffer<u64>,
    sorted: CudaBuffer<u64>,
    order: CudaBuffer<u32>,
    scratch: CudaBuffer<u8>,
}

impl<S: Scalar> Layer<'_, S> {
    pub(super) fn pick(&self) -> Result<Kept<S>> {
        match self.spec.method {
            Method::Full | Method::Walk { .. } => self.pick_all(Rule::COHOP_COUNT_ALL),
            Method::Neighbor { replace: true, weighted } if self.spec.fanout != usize::MAX => {
                if weighted {
                    self.pick_draws_by_weight()
                } else {
                    self.pick_draws()
                }
            }
            Method::Neighbor { weighted: true, .. } => {
                let offsets = self.count_weighted(false)?;
                let stream = Purpose::Key.stream(self.number);
                self.kept(&offsets, |_, indptr, edge_id| {
                    self.fill_smallest(Key::COHOP_KEY_WEIGHTED, stream, indptr, edge_id)
                })
            }
            // Rows that are kept whole, or not at all. No `_`: to another method the fanout may mean something else.
            Method::Neighbor { .. } | Method::Labor { .. }
                if self.fanout() == 0 || self.fanout() >= self.graph.arrays.largest_degree =>
            {
                self.pick_all(Rule::COHOP_COUNT_AT_MOST)
            }
            Method::Neighbor { .. } if self.spec.per_relation => self.pick_per_relation(),
            Method::Neighbor { .. } if self.variates.rotates() => {
                self.pick_smallest(Key::COHOP_KEY_EDGE, Purpose::Edge.stream(self.number))
            }
            Method::Neighbor { .. } => self.pick_subset(),
            Method::Labor { fixed_size, layer_dependent, iterations: _ } => {
                let stream = source_stream(self.number, layer_dependent);
                if fixed_size {
                    self.pick_smallest(Key::COHOP_KEY_SOURCE, stream)
                } else {
                    self.pick_labor0(stream)
                }
            }
        }
    }

    fn pick_all(&self, rule: Rule) -> Result<Kept<S>> {
        let offsets = self.offsets(rule, ffi::COHOP_FOUND_KEPT)?;
        self.kept(&offsets, |n_edge, indptr, edge_id| {
            let stream = self.stream()?;
            // SAFETY: `indptr` ends with `n_edge`, and `edge_id` has as many elements.
            let code = unsafe {
                ffi::cohop_sample_all(self.rows(), indptr.pointer(), n_edge, edge_id.pointer(), stream)
            };
            self.cuda.check("sample_all", code)
        })
    }

    fn pick_smallest(&self, key: Key, stream_number: u64) -> Result<Kept<S>> {
        let offsets = self.offsets(Rule::COHOP_COUNT_AT_MOST, ffi::COHOP_FOUND_KEPT)?;
        self.kept_at_most(&offsets, |_, indptr, edge_id| {
            self.fill_smallest(key, stream_number, indptr, edge_id)
        })
    }

    fn fill_smallest(
        &self,
        key: Key,
        stream_number: u64,
        indptr: &CudaBuffer<u32>,
        edge_id: &CudaBuffer<u64>,
    ) -> Result<()> {
        let (graph, rows, variates) = (self.graph.for_kernels(), self.rows(), self.variates());
        let (indptr, edge_id, stream) = (indptr.pointer(), edge_id.pointer(), self.stream()?);
        // SAFETY: `indptr` has room for what each row keeps, and so has `edge_id`; weighted keys are only used where
        // the graph has weights.
        let code = unsafe {
            let fanout = self.fanout();
            ffi::cohop_sample_smallest(
                graph,
                rows,
                indptr,
                variates,
                stream_number,
                key,
                fanout,
                edge_id,
                stream,
            )
        };
        self.cuda.check("sample_smallest", code)
    }

    fn pick_subset(&self) -> Result<Kept<S>> {
        let offsets = self.offsets(Rule::COHOP_COUNT_AT_MOST, ffi::COHOP_FOUND_KEPT)?;
        let (variates, fanout, layer) = (self.variates(), self.fanout(), self.number);
        if fanout <= u64::from(ffi::COHOP_SUBSET_MAX_FANOUT) {
            return self.kept_at_most(&offsets, |_, indptr, edge_id| {
                let (rows, indptr, edge_id) = (self.rows(), indptr.pointer(), edge_id.pointer());
                let stream = self.stream()?;
                // SAFETY: `indptr` has room for the smaller of fanout and degree for each row, and so has `edge_id`.
                let code = unsafe {
                    ffi::cohop_sample_subset(rows, indptr, variates, layer, fanout, edge_id, stream)
                };
                self.cuda.check("sample_subset", code)
            });
        }
        self.kept(&offsets, |n_edge, indptr, edge_id| {
            let (rows, indptr, edge_id) = (self.rows(), indptr.pointer(), edge_id.pointer());
            let stream = self.stream()?;
            let memory = self.sort_memory(n_edge)?;
            let repeated = self.cuda.scratch::<u8>(n_edge as usize)?;
            // SAFETY: as above; all arrays have `n_edge` elements, the scratch memory as many bytes as were asked for.
            let code = unsafe {
                ffi::cohop_sample_subset_sorted(
                    rows,
                    indptr,
                    n_edge,
                    variates,
                    layer,
                    fanout,
                    self.graph.place_bits(),
                    memory.key.pointer(),
                    memory.sorted.pointer(),
                    memory.order.pointer(),
                    repeated.pointer(),
                    memory.scratch.pointer().cast(),
                    edge_id,
                    stream,
                )
            };
            self.cuda.check("sample_subset_sorted", code)
        })
    }

    fn sort_memory(&self, n_edge: u64) -> Result<SortMemory> {
        let n = n_edge as usize;
        // SAFETY: a function of its argument.
        let bytes = unsafe { ffi::cohop_sample_sort_bytes(n_edge) };
        Ok(SortMemory {
            key: self.cuda.scratch(n)?,
            sorted: self.cuda.scratch(n)?,
            order: self.cuda.scratch(n)?,
            scratch: self.cuda.scratch(bytes as usize)?,
        })
    }

    fn pick_draws(&self) -> Result<Kept<S>> {
        let offsets = self.offsets(Rule::COHOP_COUNT_DRAWS, ffi::COHOP_FOUND_KEPT)?;
        self.kept(&offsets, |n_edge, indptr, edge_id| self.fill_draws(None, n_edge, indptr, edge_id))
    }

    fn pick_draws_by_weight(&self) -> Result<Kept<S>> {
        let offsets = self.count_weighted(true)?;
        let words = self.offsets(Rule::COHOP_COUNT_WORDS, ffi::COHOP_FOUND_SCRATCH)?;
        let found = self.found()?;
        let n_words = found.scratch as usize;
        self.kept_edges(found.kept, &offsets, |n_edge, indptr, edge_id| {
            let sums = Sums {
                running: self.cuda.scratch(n_words)?,
                of_row: self.cuda.scratch(self.n())?,
                last: self.cuda.scratch(self.n())?,
                words,
            };
            let (graph, rows, stream) = (self.graph.for_kernels(), self.rows(), self.stream()?);
            // SAFETY: the graph has weights, and there is room for a sum for every 32 edges of each row.
            let code = unsafe {
                ffi::cohop_sample_running_sums(
                    graph,
                    rows,
                    sums.words.pointer(),
                    sums.running.pointer(),
                    sums.of_row.pointer(),
                    sums.last.pointer(),
                    stream,
                )
            };
            self.cuda.check("sample_running_sums", code)?;
            self.fill_draws(Some(&sums), n_edge, indptr, edge_id)
        })
    }

    fn fill_draws(
        &self,
        sums: Option<&Sums>,
        n_edge: u64,
        indptr: &CudaBuffer<u32>,
        edge_id: &CudaBuffer<u64>,
    ) -> Result<()> {
        let (graph, rows, variates, layer) =
            (self.graph.for_kernels(), self.rows(), self.variates(), self.number);
        let (indptr, edge_id, stream) = (indptr.pointer(), edge_id.pointer(), self.stream()?);
        let words = sums.map_or(std::ptr::null(), |sums| sums.words.pointer());
        let running = sums.map_or(std::ptr::null(), |sums| sums.running.pointer());
        let of_row = sums.map_or(std::ptr::null(), |sums| sums.of_row.pointer());
        let last = sums.map_or(std::ptr::null(), |sums| sums.last.pointer());
        // SAFETY: `indptr` ends with `n_edge` and only rows with edges have draws; the sums are those of the rows.
        let code = unsafe {
            ffi::cohop_sample_draws(
                graph, rows, indptr, n_edge, variates, layer, words, running, of_row, last, edge_id, stream,
            )
        };
        self.cuda.check("sample_draws", code)?;
        if self.fanout() <= SORTED_BY_A_WARP {
            // SAFETY: no row has more draws than a warp has lanes.
            let code = unsafe { ffi::cohop_sample_sort_rows(self.n() as u64, indptr, edge_id, stream) };
            return self.cuda.check("sample_sort_rows", code);
        }
        let memory = self.sort_memory(n_edge)?;
        // SAFETY: all arrays have `n_edge` elements, the scratch memory as many bytes as were asked for.
        let code = unsafe {
            ffi::cohop_sample_sort_long_rows(
                rows,
                indptr,
                n_edge,
                self.graph.place_bits(),
                memory.key.pointer(),
                memory.sorted.pointer(),
                memory.order.pointer(),
                memory.scratch.pointer().cast(),
                edge_id,
                stream,
            )
        };
        self.cuda.check("sample_sort_long_rows", code)
    }

    /// Sums of what each row keeps of its edges of positive weight.
    fn count_weighted(&self, draws: bool) -> Result<CudaBuffer<u64>> {
        let offsets = self.room_for_offsets()?;
        let (graph, rows, stream) = (self.graph.for_kernels(), self.rows(), self.stream()?);
        let counts = offsets.pointer().wrapping_add(1);
        // SAFETY: the graph has weights, and there is room for a count per row after the first element.
        let code =
            unsafe { ffi::cohop_sample_count_weighted(graph, rows, self.fanout(), draws, counts, stream) };
        self.cuda.check("sample_count_weighted", code)?;
        self.sum_up(offsets, ffi::COHOP_FOUND_KEPT)
    }

    fn pick_per_relation(&self) -> Result<Kept<S>> {
        let words = self.offsets(Rule::COHOP_COUNT_WORDS_ABOVE, ffi::COHOP_FOUND_SCRATCH)?;
        let marks = self.cuda.scratch::<u32>(self.found()?.scratch as usize)?;
        let offsets = self.room_for_offsets()?;
        let (graph, rows, variates, fanout) =
            (self.graph.for_kernels(), self.rows(), self.variates(), self.fanout());
        let (stream, stream_number) = (self.stream()?, Purpose::Edge.stream(self.number));
        // SAFETY: the graph has edge types; there is room for a bit for each edge of the rows that are not kept whole,
        // and for a count per row after the first element of `offsets`.
        let code = unsafe {
            ffi::cohop_sample_mark_relations(
                graph,
                rows,
                variates,
                stream_number,
                fanout,
                words.pointer(),
                marks.pointer(),
                offsets.pointer().wrapping_add(1),
                stream,
            )
        };
        self.cuda.check("sample_mark_relations", code)?;
        let offsets = self.sum_up(offsets, ffi::COHOP_FOUND_KEPT)?;
        self.kept(&offsets, |_, indptr, edge_id| {
            let (words, marks) = (words.pointer(), marks.pointer());
            let (indptr, edge_id, stream) = (indptr.pointer(), edge_id.pointer(), self.stream()?);
            // SAFETY: as above; `indptr` has room for as many edges of each row as are marked.
            let code =
                unsafe { ffi::cohop_sample_marked(rows, indptr, fanout, words, marks, edge_id, stream) };
            self.cuda.check("sample_marked", code)
        })
    }

    fn pick_labor0(&self, stream_number: u64) -> Result<Kept<S>> {
        let run = |counts: *mut u64, indptr: *const u32, edge_id: *mut u64| {
            let (graph, rows, variates) = (self.graph.for_kernels(), self.rows(), self.variates());
            let (fanout, stream) = (self.fanout(), self.stream()?);
            // SAFETY: either there is room for a count per row, or `indptr` has room for as many edges as were counted.
            let code = unsafe {
                ffi::cohop_sample_labor0(
                    graph,
                    rows,
                    variates,
                    stream_number,
                    fanout,
                    counts,
                    indptr,
                    edge_id,
                    stream,
                )
            };
            self.cuda.check("sample_labor0", code)
        };
        self.pick_poisson(run)
    }

    /// Counts the edges of each row and then picks them, both with the same kernel.
    pub(super) fn pick_poisson(
        &self,
        run: impl Fn(*mut u64, *const u32, *mut u64) -> Result<()>,
    ) -> Result<Kept<S>> {
        let offsets = self.room_for_offsets()?;
        run(offsets.pointer().wrapping_add(1), std::ptr::null(), std::ptr::null_mut())?;
        let offsets = self.sum_up(offsets, ffi::COHOP_FOUND_KEPT)?;
        self.kept(&offsets, |_, indptr, edge_id| {
            run(std::ptr::null_mut(), indptr.pointer(), edge_id.pointer())
        })
    }
}

/// Running sums of rows' weights.
struct Sums {
    words: CudaBuffer<u64>,
    running: CudaBuffer<f64>,
    of_row: CudaBuffer<f64>,
    last: CudaBuffer<u32>,
}
