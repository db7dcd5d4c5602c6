//! LABOR-0's variates of all vertices in one table, for batches that read more in-edges than there are vertices.

use super::pick::for_words;
use super::relabel::MAX_STAMPED_VERTICES;
use crate::device::SampleSpec;
use crate::device::cpu::vectors::Vectors;
use crate::error::{Result, try_capacity};
use crate::graph::InEdges;
use crate::huge_pages;
use crate::rng::Variates;

/// Bytes beyond the last vertex's that a read of four bytes there touches.
const PADDING: usize = 3;

/// Sources are taken in parts of `PART`, and within a part `LANES` at a time.
const PART: usize = 1024;
const LANES: usize = 16;

/// The places found in a part, with room for one vector more.
pub(super) type Found = [u32; PART + LANES];

/// The most significant byte of every vertex's variate: a quarter of the memory of the variates, so that it stays in
/// the second-level cache up to a million vertices, and only one edge of 256 has to be decided by the other bytes. One
/// table serves the layers of a batch that share a stream, and the batches that share a seed.
#[derive(Default)]
pub(super) struct VariateTable {
    /// `[n_vertices + PADDING]`
    bytes: Vec<u8>,
    /// The variates and the stream that the bytes belong to.
    of: Option<(Variates, u64)>,
}

impl VariateTable {
    /// Fills the table, if sampling `dst` reads so many edges that it pays: looking up a byte takes a fifth of the time
    /// of drawing a variate, and a fiftieth if minibatches are dependent. Returns `None` otherwise.
    pub(super) fn get(
        &mut self,
        graph: InEdges<'_>,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        stream: u64,
    ) -> Result<Option<TopBytes<'_>>> {
        let n = graph.n_vertices;
        let has_them = self.of == Some((*variates, stream)) && self.bytes.len() == n + PADDING;
        if !has_them {
            let degree = |&vertex: &u32| {
                let edges = graph.positions(vertex);
                // What is wrong is found where the row is read.
                edges.end.saturating_sub(edges.start)
            };
            let degrees = dst.iter().map(degree).filter(|&degree| degree > spec.fanout as u64);
            let scanned = degrees.fold(0, u64::saturating_add);
            if n > MAX_STAMPED_VERTICES || scanned < n as u64 {
                return Ok(None);
            }
            self.bytes.clear();
            if self.bytes.capacity() < n + PADDING {
                let asked = format_args!("the graph has {n} vertices");
                self.bytes = try_capacity("a table of the vertices' variates", n + PADDING, asked)?;
                huge_pages::prefer(self.bytes.spare_capacity_mut());
            }
            for_words(
                variates,
                stream,
                n as u64,
                |id| id,
                |_, words| {
                    self.bytes.extend(words.iter().map(|word| (word >> 24) as u8));
                },
            );
            self.bytes.resize(n + PADDING, 0);
            self.of = Some((*variates, stream));
        }
        Ok(Some(TopBytes { bytes: &self.bytes }))
    }
}

/// A filled [`VariateTable`].
#[derive(Clone, Copy)]
pub(super) struct TopBytes<'t> {
    /// `[n_vertices + PADDING]`
    bytes: &'t [u8],
}

impl TopBytes<'_> {
    /// The byte of a vertex; 255 for what is no vertex, which the caller finds if it keeps the edge.
    #[inline(always)]
    pub(super) fn of(self, vertex: u32) -> u8 {
        self.bytes.get(vertex as usize).copied().unwrap_or(u8::MAX)
    }

    /// Calls `each` with the places of the sources whose bytes are at most `limit`, ascending. `found` is memory to
    /// work with.
    #[inline(always)]
    pub(super) fn for_each_at_most(
        self,
        sources: &[u32],
        limit: u8,
        found: &mut Found,
        mut each: impl FnMut(usize),
    ) {
        for (first, sources) in (0..).step_by(PART).zip(sources.chunks(PART)) {
            let n = self.find(sources, limit, found);
            found[..n].iter().for_each(|&place| each(first + place as usize));
        }
    }

    /// Writes the places of the sources whose bytes are at most `limit`, ascending, to `found`. Returns how many there
    /// are. No branch depends on a byte, as none could be predicted.
    #[inline(always)]
    fn find(self, sources: &[u32], limit: u8, found: &mut Found) -> usize {
        #[cfg(target_arch = "x86_64")]
        if Vectors::get() == Vectors::Avx512 {
            // SAFETY: this machine has AVX-512.
            return unsafe { self.find_avx512(sources, limit, found) };
        }
        self.find_portable(sources, limit, found)
    }

    #[inline(always)]
    fn find_portable(self, sources: &[u32], limit: u8, found: &mut Found) -> usize {
        let mut n = 0;
        for (place, &source) in sources.iter().enumerate() {
            found[n] = place as u32;
            n += usize::from(self.of(source) <= limit);
        }
        n
    }

    /// Panics if there are more than `PART` sources.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,popcnt")]
    fn find_avx512(self, sources: &[u32], limit: u8, found: &mut Found) -> usize {
        use std::arch::x86_64::*;
        // At most 2^28, see `VariateTable::get`: ids below it are not negative to a gather.
        let n_vertices = _mm512_set1_epi32((self.bytes.len() - PADDING) as i32);
        let limit = _mm512_set1_epi32(limit.into());
        let mut places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut n = 0;
        for lanes in sources.chunks(LANES) {
            let there = u16::MAX >> (LANES - lanes.len());
            // SAFETY: `there` has a bit for each element of `lanes`, and only these are read.
            let ids = unsafe { _mm512_maskz_loadu_epi32(there, lanes.as_ptr().cast()) };
            let there = _mm512_mask_cmplt_epu32_mask(there, ids, n_vertices);
            // SAFETY: the four bytes at each id below `n_vertices` are inside of `bytes`, which is longer by `PADDING`;
            // others are not read.
            let four_bytes = unsafe {
                let bytes = self.bytes.as_ptr().cast();
                _mm512_mask_i32gather_epi32::<1>(_mm512_setzero_si512(), there, ids, bytes)
            };
            let bytes = _mm512_and_si512(four_bytes, _mm512_set1_epi32(0xff));
            let at_most = _mm512_mask_cmple_epu32_mask(there, bytes, limit);
            let out: &mut [u32; LANES] = found[n..].first_chunk_mut().expect("room for all lanes");
            // SAFETY: `out` has room for all lanes.
            unsafe {
                _mm512_storeu_si512(out.as_mut_ptr().cast(), _mm512_maskz_compress_epi32(at_most, places))
            };
            n += at_most.count_ones() as usize;
            places = _mm512_add_epi32(places, _mm512_set1_epi32(LANES as i32));
        }
        n
    }
}

/// Calls `each` with the numbers of the bits that are set.
#[inline(always)]
pub(super) fn for_each_bit(mut bits: u32, mut each: impl FnMut(usize)) {
    while bits != 0 {
        each(bits.trailing_zeros() as usize);
        bits &= bits - 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Method;
    use crate::graph::Rmat;
    use crate::rng::{Dependence, Kappa, Purpose, bounded};

    #[test]
    fn a_table_is_made_where_many_edges_are_looked_at_and_holds_their_variates() {
        let graph = Rmat::graph500(8, 10, 1).generate().unwrap();
        let n = graph.n_vertices() as u32;
        let spec = SampleSpec {
            method: Method::Full,
            fanout: 2,
            per_relation: false,
            edge_ids: false,
            edge_weights: false,
        };
        let mut table = VariateTable::default();
        let all: Vec<u32> = (0..n).collect();
        let steps = [(0, 1, 0), (1, 1, 0), (1, 1, 1), (2, 4, 1), (3, 4, 1)];
        let both = [Dependence::Renew, Dependence::Rotate];
        for (dependence, (batch, kappa, layer)) in both.into_iter().flat_map(|d| steps.map(|step| (d, step)))
        {
            let variates = Variates::new(7, batch, Kappa::steps(kappa).unwrap(), dependence);
            let stream = Purpose::Source.stream(layer);
            // A single destination is not enough, unless the table is there.
            assert!(table.get(graph.in_edges(), &all[..1], &spec, &variates, stream).unwrap().is_none());
            let bytes = table.get(graph.in_edges(), &all, &spec, &variates, stream).unwrap().unwrap();
            let word = |vertex: u32| variates.word(stream, vertex.into());
            assert!(all.iter().all(|&vertex| u32::from(bytes.of(vertex)) == word(vertex) >> 24));
            assert!(table.get(graph.in_edges(), &all[..1], &spec, &variates, stream).unwrap().is_some());
        }
    }

    #[test]
    fn sources_are_found_by_their_bytes() {
        let n = 1000;
        let byte = |i: u64, n| bounded(3, 0, i, n);
        let mut bytes: Vec<u8> = (0..n).map(|i| byte(i, 256) as u8).collect();
        // What is beyond the last vertex's byte must not matter.
        bytes.extend([0; PADDING]);
        let table = TopBytes { bytes: &bytes };
        for len in [0, 1, 14, 15, 31, 200, PART as u64 - 2, PART as u64 - 1, 3000] {
            let mut sources: Vec<u32> = (0..len).map(|i| byte(i, n) as u32).collect();
            sources.extend([0, n as u32 - 1]);
            for limit in [0, 1, 100, 254, 255] {
                let expected: Vec<usize> =
                    (0..sources.len()).filter(|&i| bytes[sources[i] as usize] <= limit).collect();
                let mut found = Vec::new();
                table.for_each_at_most(&sources, limit, &mut [0; _], |place| found.push(place));
                assert_eq!(found, expected);
                if sources.len() <= PART {
                    let mut portable = [0; PART + LANES];
                    let n = table.find_portable(&sources, limit, &mut portable);
                    assert!(portable[..n].iter().map(|&place| place as usize).eq(expected));
                }
            }
        }
    }
}
