//! Tiles of whole heads: how a row of `heads · dim` columns is covered by sums in registers.

use std::ops::Range;

use super::super::parallel::{Tile, for_tiles};
use super::super::prefetch::Prefetch;
use super::super::vectors::Vectors;
use crate::device::Scalar;

/// What computes one tile of `G` heads by `W` columns.
pub(super) trait HeadTile {
    /// Computes columns `column..column + W` of the heads `head..head + G`; `G` is 1 or `W` is the whole head. The
    /// first `skip` columns of a head are already done: they may be written again with the same values, but not added
    /// to anything.
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize);
}

/// Covers all heads. Heads of a usual width go several to a tile, others, and those left over, are cut up one by one.
#[inline(always)]
pub(super) fn for_head_tiles(heads: usize, dim: usize, tile: &mut impl HeadTile) {
    let done = match dim {
        4 => groups::<8, 4>(heads, tile),
        8 => groups::<8, 8>(heads, tile),
        16 => groups::<4, 16>(heads, tile),
        32 => groups::<2, 32>(heads, tile),
        _ => 0,
    };
    for head in done..heads {
        // None of these tiles is wider where vectors are.
        for_tiles(Vectors::Portable, dim, &mut OneHead { head, tile });
    }
}

/// Covers heads in groups of `G`; returns how many it has covered.
#[inline(always)]
fn groups<const G: usize, const W: usize>(heads: usize, tile: &mut impl HeadTile) -> usize {
    let done = heads / G * G;
    for head in (0..done).step_by(G) {
        tile.run::<G, W>(head, 0, 0);
    }
    done
}

struct OneHead<'a, T> {
    head: usize,
    tile: &'a mut T,
}

impl<T: HeadTile> Tile for OneHead<'_, T> {
    const MAX_WIDTH: usize = 64;

    #[inline(always)]
    fn run<const W: usize>(&mut self, column: usize, skip: usize) {
        self.tile.run::<1, W>(self.head, column, skip);
    }
}

/// Runs `$body` for each head `$g` of `0..$n`, with a constant for `$g`: a loop over heads makes the compiler keep sums
/// in memory, and even gather and scatter them.
macro_rules! for_heads {
    ($g:ident in $n:expr, $body:block) => {
        for_heads!($g in $n, $body, 0 1 2 3 4 5 6 7)
    };
    ($g:ident in $n:expr, $body:block, $($constant:literal)*) => {
        const { assert!($n <= 8) };
        $(if $constant < $n {
            let $g: usize = $constant;
            $body
        })*
    };
}
pub(super) use for_heads;

/// `G · W` scalars of `x` from `begin` on. Panics if they are not inside.
#[inline(always)]
pub(super) fn tile<S, const G: usize, const W: usize>(x: &[S], begin: usize) -> &[[S; W]; G] {
    let tile = x.get(begin..begin + G * W).and_then(|x| x.as_chunks::<W>().0.first_chunk::<G>());
    match tile {
        Some(tile) => tile,
        None => out_of_range(begin),
    }
}

/// The first `N` scalars of `x` from `begin` on. Panics if they are not inside.
#[inline(always)]
pub(super) fn at<S, const N: usize>(x: &[S], begin: usize) -> &[S; N] {
    match x.get(begin..).and_then(<[S]>::first_chunk) {
        Some(chunk) => chunk,
        None => out_of_range(begin),
    }
}

#[cold]
fn out_of_range(begin: usize) -> ! {
    panic!("a row of an attention kernel starts out of range, at {begin}");
}

/// The sum of the lanes from `skip` on: in four sums, which are added at the end.
#[inline(always)]
pub(super) fn lane_sum<S: Scalar, const W: usize>(mut lanes: [S; W], skip: usize) -> S {
    if skip > 0 {
        for (k, lane) in lanes.iter_mut().enumerate() {
            *lane = if k < skip { S::zero() } else { *lane };
        }
    }
    let mut sums = [S::zero(); 4];
    let (groups, rest) = lanes.as_chunks::<4>();
    for group in groups {
        for k in 0..4 {
            sums[k] += group[k];
        }
    }
    for (sum, &lane) in sums.iter_mut().zip(rest) {
        *sum += lane;
    }
    // Through memory once: the compiler then sees the four sums as a vector, which the additions below hide from it.
    let sums = std::hint::black_box(sums);
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

/// What to prefetch at the entries from `begin` on: the indices of the entries [`Prefetch`]'s `ahead` after them.
#[inline(always)]
pub(super) fn later(indices: &[u32], begin: usize) -> &[u32] {
    indices.get(begin + Prefetch::for_products().ahead..).unwrap_or_default()
}

/// A run of a row's messages (see [`runs`](super::super::parallel::runs)).
#[derive(Clone, Copy)]
pub(super) struct Run<'a> {
    /// `[n_message]`: what the messages gather.
    pub rows: &'a [u32],
    /// What later messages gather, of [`later`].
    pub later: &'a [u32],
    prefetch: Prefetch,
    /// Whether there are messages before these, to whose sums they are to be added.
    pub begun: bool,
}

impl<'a> Run<'a> {
    /// Messages `run` of a row.
    #[inline(always)]
    pub(super) fn new(rows: &'a [u32], later: &'a [u32], run: Range<usize>) -> Self {
        Run {
            later: later.get(run.start..).unwrap_or_default(),
            prefetch: Prefetch::for_products(),
            begun: run.start > 0,
            rows: &rows[run],
        }
    }

    /// Prefetches the row of `x` that message `k` of `later` will gather. Only the first tile of a row does, for all
    /// tiles.
    #[inline(always)]
    pub(super) fn prefetch<S>(&self, x: &[S], width: usize, k: usize, begin: usize) {
        if begin == 0
            && let Some(&row) = self.later.get(k)
        {
            self.prefetch.row(x, width, row as usize);
        }
    }

    /// The sums that a tile of `out` begins with.
    #[inline(always)]
    pub(super) fn sums<S: Scalar, const G: usize, const W: usize>(
        &self,
        out: &[S],
        begin: usize,
    ) -> [[S; W]; G] {
        if self.begun { *tile::<S, G, W>(out, begin) } else { [[S::zero(); W]; G] }
    }
}

/// `out[h, :] = Σ_k weights[k, h] · x[rows[k], h, :]`
pub(super) struct WeightedSum<'a, S> {
    pub heads: usize,
    pub dim: usize,
    pub run: Run<'a>,
    /// `[n_message, heads]`
    pub weights: &'a [S],
    /// `[n, heads · dim]`
    pub x: &'a [S],
    /// `[heads · dim]`
    pub out: &'a mut [S],
}

impl<S: Scalar> HeadTile for WeightedSum<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let mut sum = self.run.sums::<S, G, W>(self.out, begin);
        for (k, (&row, weights)) in self.run.rows.iter().zip(self.weights.chunks_exact(heads)).enumerate() {
            self.run.prefetch(self.x, width, k, begin);
            let x = tile::<S, G, W>(self.x, row as usize * width + begin);
            let weights = at::<S, G>(weights, head);
            for_heads!(g in G, {
                for k in 0..W {
                    sum[g][k] += weights[g] * x[g][k];
                }
            });
        }
        write_tile(self.out, begin, &sum, skip);
    }
}

/// `dots[k, h] += ⟨own[h, :], x[rows[k], h, :]⟩`
pub(super) struct Dots<'a, S> {
    pub heads: usize,
    pub dim: usize,
    pub run: Run<'a>,
    /// `[heads · dim]`
    pub own: &'a [S],
    /// `[n, heads · dim]`
    pub x: &'a [S],
    /// `[n_message, heads]`
    pub dots: &'a mut [S],
}

impl<S: Scalar> HeadTile for Dots<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let own = tile::<S, G, W>(self.own, begin);
        for (k, (&row, dots)) in self.run.rows.iter().zip(self.dots.chunks_exact_mut(heads)).enumerate() {
            self.run.prefetch(self.x, width, k, begin);
            let x = tile::<S, G, W>(self.x, row as usize * width + begin);
            for_heads!(g in G, {
                let mut products = [S::zero(); W];
                for k in 0..W {
                    products[k] = own[g][k] * x[g][k];
                }
                dots[head + g] += lane_sum(products, skip);
            });
        }
    }
}

/// Writes a tile but for its first `skip` columns, which are done already.
///
/// The tile is indexed by constants only, or it would not stay in registers.
#[inline(always)]
pub(super) fn write_tile<S: Scalar, const G: usize, const W: usize>(
    out: &mut [S],
    begin: usize,
    sum: &[[S; W]; G],
    skip: usize,
) {
    let out = out.get_mut(begin..begin + G * W).and_then(|x| x.as_chunks_mut::<W>().0.first_chunk_mut::<G>());
    let Some(out) = out else { out_of_range(begin) };
    if G > 1 {
        *out = *sum;
        return;
    }
    // Only a tile of a single head overlaps another. A choice per column, not a copy of some, which would keep the tile
    // in memory.
    for k in 0..W {
        out[0][k] = if k < skip { out[0][k] } else { sum[0][k] };
    }
}
