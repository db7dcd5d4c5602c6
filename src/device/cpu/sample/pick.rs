//! Which edges of one row are kept: a picker for each method that decides row by row.

use std::ops::Range;

use super::variate_table::{Found, TopBytes, for_each_bit};
use crate::device::cpu::vectors::vectorized;
use crate::rng::{LANES, Purpose, Seeds, Variates, bounded, math, uniform, uniform_open};

/// The in-edges of one destination.
#[derive(Clone)]
pub(super) struct Row {
    /// Its place among the destinations.
    pub(super) place: usize,
    /// The destination.
    pub(super) vertex: u32,
    /// Positions in the arrays of edges.
    pub(super) edges: Range<u64>,
    /// What to add to a position to get the edge's id in the whole graph.
    pub(super) shift: u64,
}

/// Decides about one row at a time.
pub(super) trait Pick {
    /// Whether all of a row's sources are read, so that it pays to prefetch them.
    const SCANS: bool;

    /// Fewest edges that a row of this degree will keep.
    fn at_least(&self, degree: u64) -> u64;

    /// Appends the positions of the edges that a row keeps, ascending. A draw of an edge is named by its number in the
    /// whole graph: its position and the row's shift, or where edges are excluded what the job's `numbers` say.
    fn pick(&mut self, row: Row, kept: &mut Vec<u64>);
}

/// All in-edges.
pub(super) struct All;

impl Pick for All {
    const SCANS: bool = true;

    fn at_least(&self, degree: u64) -> u64 {
        degree
    }

    #[inline(always)]
    fn pick(&mut self, row: Row, kept: &mut Vec<u64>) {
        kept.extend(row.edges);
    }
}

/// No edges.
pub(super) struct Nothing;

impl Pick for Nothing {
    const SCANS: bool = false;

    fn at_least(&self, _degree: u64) -> u64 {
        0
    }

    #[inline(always)]
    fn pick(&mut self, _row: Row, _kept: &mut Vec<u64>) {}
}

/// A uniform subset of `fanout` edges by Floyd's algorithm: O(fanout), whatever the degree.
pub(super) struct Subset<'w> {
    pub(super) seeds: Seeds,
    pub(super) layer: u32,
    pub(super) fanout: u64,
    /// `[fanout.div_ceil(4)]` or longer: a row's draws, four 32-bit words to a Philox block.
    pub(super) words: &'w mut Vec<[u32; 4]>,
    /// One bit for each place of a row, modulo the number of bits: at least 64 per draw, so that in a row of a higher
    /// degree a bit is seldom taken by another place. All zero between rows.
    pub(super) taken: &'w mut Vec<u64>,
}

impl Subset<'_> {
    /// Draw number `draw` of a vertex, below `n`.
    #[inline(always)]
    fn draw(&self, vertex: u32, draw: usize, n: u64) -> u64 {
        if let Ok(n) = u32::try_from(n) {
            let product = u64::from(self.words[draw / 4][draw % 4]) * u64::from(n);
            let low = product as u32;
            if low >= n || low >= n.wrapping_neg() % n {
                return product >> 32;
            }
        }
        self.draw_again(vertex, draw, n)
    }

    /// After a rejection, or for a row too long for a 32-bit draw.
    #[cold]
    fn draw_again(&self, vertex: u32, draw: usize, n: u64) -> u64 {
        let block = u64::from(vertex) | (draw as u64 / 4) << 32;
        let seed = self.seeds.of_word(Purpose::Subset.stream(self.layer), block, draw % 4);
        let counter = u64::from(vertex) | (draw as u64) << 32;
        bounded(seed, Purpose::SubsetAgain.stream(self.layer), counter, n)
    }
}

impl Pick for Subset<'_> {
    const SCANS: bool = false;

    fn at_least(&self, degree: u64) -> u64 {
        degree.min(self.fanout)
    }

    #[inline(always)]
    fn pick(&mut self, Row { vertex, edges, .. }: Row, kept: &mut Vec<u64>) {
        let degree = edges.end - edges.start;
        if degree <= self.fanout {
            kept.extend(edges);
            return;
        }
        let fanout = self.fanout as usize;
        let n_words = fanout.next_power_of_two();
        if self.taken.len() < n_words {
            self.words.resize(n_words, [0; 4]);
            self.taken.resize(n_words, 0);
        }
        let stream = Purpose::Subset.stream(self.layer);
        for (number, words) in self.words[..fanout.div_ceil(4)].iter_mut().enumerate() {
            *words = self.seeds.block(stream, u64::from(vertex) | (number as u64) << 32);
        }
        let first_kept = kept.len();
        let exact = degree <= n_words as u64 * 64;
        for draw in 0..fanout {
            let last = degree - self.fanout + draw as u64;
            let mut place = self.draw(vertex, draw, last + 1);
            let bit = |place: u64| ((place / 64) as usize & (n_words - 1), 1u64 << (place % 64));
            let (word, mask) = bit(place);
            if self.taken[word] & mask != 0 && (exact || kept[first_kept..].contains(&(edges.start + place)))
            {
                place = last;
            }
            let (word, mask) = bit(place);
            self.taken[word] |= mask;
            if !exact {
                kept.push(edges.start + place);
            }
        }
        if exact {
            // The bits are the subset, in order.
            for (word, bits) in self.taken[..degree.div_ceil(64) as usize].iter_mut().enumerate() {
                while *bits != 0 {
                    kept.push(edges.start + word as u64 * 64 + u64::from(bits.trailing_zeros()));
                    *bits &= *bits - 1;
                }
            }
        } else {
            self.taken[..n_words].fill(0);
            kept[first_kept..].sort_unstable();
        }
    }
}

/// Keeps the `fanout` edges of the smallest keys, ties to the lower id, and clears the keys. A key is
/// `value << 64 | place in the row`.
#[inline(always)]
pub(super) fn keep_smallest(keys: &mut Vec<u128>, fanout: u64, start: u64, kept: &mut Vec<u64>) {
    if keys.len() as u64 > fanout {
        let fanout = fanout as usize;
        keys.select_nth_unstable(fanout);
        keys.truncate(fanout);
    }
    let first_kept = kept.len();
    kept.extend(keys.drain(..).map(|key| start + key as u64));
    kept[first_kept..].sort_unstable();
}

/// Calls `each` with the variates of `id(0)` to `id(len - 1)`, some at a time, and the place of the first of them.
#[inline(always)]
pub(super) fn for_words(
    variates: &Variates,
    stream: u64,
    len: u64,
    id: impl Fn(u64) -> u64,
    mut each: impl FnMut(u64, &[u32]),
) {
    vectorized!(
        #[inline(always)]
        |_| {
            for first in (0..len).step_by(LANES) {
                let n = LANES.min((len - first) as usize);
                let mut ids = [0; LANES];
                for (lane, place) in ids[..n].iter_mut().zip(first..) {
                    *lane = id(place);
                }
                each(first, &variates.words(stream, &ids)[..n]);
            }
        },
    );
}

/// A sortable key.
#[inline(always)]
pub(super) fn key(value: u64, place: u64) -> u128 {
    u128::from(value) << 64 | u128::from(place)
}

/// The `fanout` edges with the smallest variates, where `id`, given an edge's position and shift, names its variate:
/// its id (dependent neighbour sampling) or its source (LABOR-0 of fixed size).
pub(super) struct Smallest<'w, F> {
    pub(super) variates: Variates,
    pub(super) stream: u64,
    pub(super) fanout: u64,
    pub(super) id: F,
    pub(super) keys: &'w mut Vec<u128>,
}

impl<F: Fn(u64, u64) -> u64> Pick for Smallest<'_, F> {
    const SCANS: bool = true;

    fn at_least(&self, degree: u64) -> u64 {
        degree.min(self.fanout)
    }

    #[inline(always)]
    fn pick(&mut self, Row { edges, shift, .. }: Row, kept: &mut Vec<u64>) {
        if edges.end - edges.start <= self.fanout {
            kept.extend(edges);
            return;
        }
        let start = edges.start;
        let id = |place| (self.id)(start + place, shift);
        for_words(&self.variates, self.stream, edges.end - start, id, |first, words| {
            self.keys.extend((first..).zip(words).map(|(place, &word)| key(u64::from(word), place)));
        });
        keep_smallest(self.keys, self.fanout, start, kept);
    }
}

/// The `fanout` edges of each relation with the smallest variates: a uniform subset of each relation of each
/// destination, which is a function of the seed, the layer and the relation's edges there, and not of other relations.
pub(super) struct SmallestPerRelation<'w, F> {
    pub(super) variates: Variates,
    pub(super) stream: u64,
    pub(super) fanout: u64,
    pub(super) relation: &'w [u16],
    /// Given an edge's position and shift, its id.
    pub(super) number: F,
    /// `relation << 96 | variate << 64 | place in the row`
    pub(super) keys: &'w mut Vec<u128>,
}

impl<F: Fn(u64, u64) -> u64> Pick for SmallestPerRelation<'_, F> {
    const SCANS: bool = true;

    fn at_least(&self, degree: u64) -> u64 {
        degree.min(self.fanout)
    }

    #[inline(always)]
    fn pick(&mut self, Row { edges, shift, .. }: Row, kept: &mut Vec<u64>) {
        if edges.end - edges.start <= self.fanout {
            kept.extend(edges);
            return;
        }
        let start = edges.start;
        let relations = &self.relation[start as usize..edges.end as usize];
        let id = |place| (self.number)(start + place, shift);
        for_words(&self.variates, self.stream, edges.end - start, id, |first, words| {
            self.keys.extend((first..).zip(words).map(|(place, &word)| {
                u128::from(relations[place as usize]) << 96 | key(u64::from(word), place)
            }));
        });
        self.keys.sort_unstable();
        let first_kept = kept.len();
        let (mut relation, mut taken) = (None, 0);
        kept.extend(self.keys.drain(..).filter_map(|key| {
            let own = Some((key >> 96) as u16);
            taken = if own == relation { taken + 1 } else { 1 };
            relation = own;
            (taken <= self.fanout).then_some(start + key as u64)
        }));
        kept[first_kept..].sort_unstable();
    }
}

/// Weighted without replacement (Efraimidis & Spirakis 2006): the `fanout` smallest of `−ln(u) / weight`.
pub(super) struct SmallestWeighted<'w, F> {
    pub(super) seeds: Seeds,
    pub(super) layer: u32,
    pub(super) fanout: u64,
    pub(super) weight: &'w [f32],
    /// Given an edge's position and shift, its id.
    pub(super) number: F,
    pub(super) keys: &'w mut Vec<u128>,
}

impl<F: Fn(u64, u64) -> u64> Pick for SmallestWeighted<'_, F> {
    const SCANS: bool = true;

    fn at_least(&self, _degree: u64) -> u64 {
        0
    }

    #[inline(always)]
    fn pick(&mut self, Row { edges, shift, .. }: Row, kept: &mut Vec<u64>) {
        let positive = |edge: &u64| self.weight[*edge as usize] > 0.0;
        if edges.end - edges.start <= self.fanout {
            kept.extend(edges.filter(positive));
            return;
        }
        let start = edges.start;
        let stream = Purpose::Key.stream(self.layer);
        self.keys.extend(edges.filter(positive).map(|edge| {
            let number = (self.number)(edge, shift);
            let exponential = -math::ln(uniform_open(self.seeds.of(stream, number), stream, number));
            // Positive finite numbers are in the order of their bits.
            key((exponential / f64::from(self.weight[edge as usize])).to_bits(), edge - start)
        }));
        keep_smallest(self.keys, self.fanout, start, kept);
    }
}

/// `fanout` independent draws from a row, with probability proportional to weight where there are weights.
pub(super) struct Replacement<'w> {
    pub(super) seeds: Seeds,
    pub(super) layer: u32,
    pub(super) fanout: u64,
    pub(super) weight: Option<&'w [f32]>,
    /// Running sums of a row's weights.
    pub(super) sums: &'w mut Vec<f64>,
}

impl Pick for Replacement<'_> {
    const SCANS: bool = false;

    fn at_least(&self, degree: u64) -> u64 {
        if degree > 0 && self.weight.is_none() { self.fanout } else { 0 }
    }

    #[inline(always)]
    fn pick(&mut self, Row { vertex, edges, .. }: Row, kept: &mut Vec<u64>) {
        if edges.is_empty() {
            return;
        }
        let (start, degree) = (edges.start, edges.end - edges.start);
        let stream = Purpose::Replacement.stream(self.layer);
        let first_kept = kept.len();
        let counters = (0..self.fanout).map(|draw| u64::from(vertex) | draw << 32);
        match self.weight {
            None => kept.extend(
                counters
                    .map(|counter| start + bounded(self.seeds.of(stream, counter), stream, counter, degree)),
            ),
            Some(weight) => {
                self.sums.clear();
                let mut sum = 0.0;
                self.sums.extend(weight[start as usize..edges.end as usize].iter().map(|&w| {
                    sum += f64::from(w);
                    sum
                }));
                if sum == 0.0 {
                    return;
                }
                // The first edge that lifts the sum above the draw. An edge of weight 0 lifts nothing; and a product
                // that rounds up to the whole sum belongs to the last edge that lifted it.
                let last = self.sums.partition_point(|&s| s < sum) as u64;
                kept.extend(counters.map(|counter| {
                    let target = uniform(self.seeds.of(stream, counter), stream, counter) * sum;
                    start + (self.sums.partition_point(|&s| s <= target) as u64).min(last)
                }));
            }
        }
        kept[first_kept..].sort_unstable();
    }
}

/// `u · d < k · 2^32  ⇔  u < ⌈k · 2^32 / d⌉`, which is at most 2^32.
fn labor_0_threshold(fanout: u64, degree: u64) -> u64 {
    (u128::from(fanout) << 32).div_ceil(u128::from(degree)) as u64
}

/// LABOR-0: an edge is kept iff its source's variate is below `fanout / degree`, decided in integers.
pub(super) struct Labor0<'w> {
    pub(super) variates: Variates,
    pub(super) stream: u64,
    pub(super) fanout: u64,
    pub(super) indices: &'w [u32],
}

impl Pick for Labor0<'_> {
    const SCANS: bool = true;

    fn at_least(&self, degree: u64) -> u64 {
        if degree <= self.fanout { degree } else { 0 }
    }

    #[inline(always)]
    fn pick(&mut self, Row { edges, .. }: Row, kept: &mut Vec<u64>) {
        let degree = edges.end - edges.start;
        if degree <= self.fanout {
            kept.extend(edges);
            return;
        }
        let threshold = labor_0_threshold(self.fanout, degree);
        let sources = &self.indices[edges.start as usize..edges.end as usize];
        let id = |place: u64| u64::from(sources[place as usize]);
        for_words(&self.variates, self.stream, degree, id, |first, words| {
            // As bits, so that no comparison is a branch that may be mispredicted; few bits are set.
            let mut below = 0;
            for (lane, &word) in words.iter().enumerate() {
                below |= u32::from(u64::from(word) < threshold) << lane;
            }
            for_each_bit(below, |lane| kept.push(edges.start + first + lane as u64));
        });
    }
}

/// [`Labor0`] with a table of the most significant bytes of all vertices' variates.
pub(super) struct Labor0ByTable<'w> {
    pub(super) table: TopBytes<'w>,
    pub(super) found: &'w mut Found,
    pub(super) variates: Variates,
    pub(super) stream: u64,
    pub(super) fanout: u64,
    pub(super) indices: &'w [u32],
}

impl Pick for Labor0ByTable<'_> {
    const SCANS: bool = true;

    fn at_least(&self, degree: u64) -> u64 {
        if degree <= self.fanout { degree } else { 0 }
    }

    #[inline(always)]
    fn pick(&mut self, Row { edges, .. }: Row, kept: &mut Vec<u64>) {
        let degree = edges.end - edges.start;
        if degree <= self.fanout {
            kept.extend(edges);
            return;
        }
        let threshold = labor_0_threshold(self.fanout, degree);
        let limit = ((threshold - 1) >> 24) as u8;
        let sources = &self.indices[edges.start as usize..edges.end as usize];
        self.table.for_each_at_most(sources, limit, self.found, |place| {
            let source = sources[place];
            let word = || u64::from(self.variates.word(self.stream, u64::from(source)));
            if self.table.of(source) < limit || word() < threshold {
                kept.push(edges.start + place as u64);
            }
        });
    }
}
