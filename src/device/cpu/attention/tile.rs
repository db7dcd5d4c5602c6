//! Tiles of whole heads: how a row of `heads · dim` columns is covered by sums in registers.

use crate::device::Scalar;

use super::super::parallel::{Tile, for_tiles, prefetch};

/// What computes one tile of `G` heads by `W` columns.
pub(super) trait HeadTile {
    /// Computes columns `column..column + W` of the heads `head..head + G`; `G` is 1 or `W` is the whole head. The
    /// first `skip` columns of a head are already done: they may be written again with the same values, but not added
    /// to anything.
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize);
}

/// Covers all heads. Heads of a usual width go several to a tile, others are cut up one by one.
#[inline(always)]
pub(super) fn for_head_tiles(heads: usize, dim: usize, tile: &mut impl HeadTile) {
    match dim {
        4 => groups::<8, 4>(heads, tile),
        8 => groups::<8, 8>(heads, tile),
        16 => groups::<4, 16>(heads, tile),
        32 => groups::<2, 32>(heads, tile),
        _ => (0..heads).for_each(|head| for_tiles(dim, &mut OneHead { head, tile })),
    }
}

#[inline(always)]
fn groups<const G: usize, const W: usize>(heads: usize, tile: &mut impl HeadTile) {
    let mut head = 0;
    while heads - head >= G {
        tile.run::<G, W>(head, 0, 0);
        head += G;
    }
    for head in head..heads {
        tile.run::<1, W>(head, 0, 0);
    }
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

/// The sum of the lanes from `skip` on, added pairwise; `W` is a power of two.
#[inline(always)]
pub(super) fn lane_sum<S: Scalar, const W: usize>(mut lanes: [S; W], skip: usize) -> S {
    if skip > 0 {
        for (k, lane) in lanes.iter_mut().enumerate() {
            *lane = if k < skip { S::zero() } else { *lane };
        }
    }
    // Through memory once: the compiler then sees the products as vectors, which the additions below hide from it.
    let mut lanes = std::hint::black_box(lanes);
    let mut width = W / 2;
    while width > 0 {
        for k in 0..width {
            lanes[k] += lanes[k + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// How many messages ahead a row is prefetched, into the rows of output that come next too.
const AHEAD: usize = 8;

/// What is gathered for the entries `AHEAD` after those from `begin` on.
#[inline(always)]
pub(super) fn later(indices: &[u32], begin: usize) -> &[u32] {
    indices.get(begin + AHEAD..).unwrap_or_default()
}

/// Asks for the tile of `x` that message `k` of `later` will gather, if there is one.
#[inline(always)]
pub(super) fn prefetch_tile<S>(x: &[S], later: &[u32], k: usize, width: usize, tile: std::ops::Range<usize>) {
    if let Some(&row) = later.get(k) {
        let begin = row as usize * width;
        if let Some(tile) = x.get(begin + tile.start..begin + tile.end) {
            prefetch(tile);
        }
    }
}

/// `out[h, :] = Σ_k weights[k, h] · x[rows[k], h, :]`
pub(super) struct WeightedSum<'a, S> {
    pub heads: usize,
    pub dim: usize,
    /// `[n_message]`
    pub rows: &'a [u32],
    /// See [`later`].
    pub later: &'a [u32],
    /// `[n_message, heads]`
    pub weights: &'a [S],
    /// `[n, heads · dim]`
    pub x: &'a [S],
    /// `[heads · dim]`
    pub out: &'a mut [S],
}

impl<S: Scalar> HeadTile for WeightedSum<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, _skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let mut sum = [[S::zero(); W]; G];
        for (k, (&row, weights)) in self.rows.iter().zip(self.weights.chunks_exact(heads)).enumerate() {
            prefetch_tile(self.x, self.later, k, width, begin..begin + G * W);
            let x = tile::<S, G, W>(self.x, row as usize * width + begin);
            let weights = at::<S, G>(weights, head);
            for g in 0..G {
                for k in 0..W {
                    sum[g][k] += weights[g] * x[g][k];
                }
            }
        }
        write_tile(self.out, begin, &sum);
    }
}

/// `dots[k, h] += ⟨own[h, :], x[rows[k], h, :]⟩`
pub(super) struct Dots<'a, S> {
    pub heads: usize,
    pub dim: usize,
    /// `[n_message]`
    pub rows: &'a [u32],
    /// See [`later`].
    pub later: &'a [u32],
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
        for (k, (&row, dots)) in self.rows.iter().zip(self.dots.chunks_exact_mut(heads)).enumerate() {
            prefetch_tile(self.x, self.later, k, width, begin..begin + G * W);
            let x = tile::<S, G, W>(self.x, row as usize * width + begin);
            for g in 0..G {
                let mut products = [S::zero(); W];
                for k in 0..W {
                    products[k] = own[g][k] * x[g][k];
                }
                dots[head + g] += lane_sum(products, skip);
            }
        }
    }
}

/// Writes a tile; columns that are done already are written again, with the same values.
///
/// The tile is indexed by constants only, or it would not stay in registers.
#[inline(always)]
pub(super) fn write_tile<S: Scalar, const G: usize, const W: usize>(
    out: &mut [S],
    begin: usize,
    sum: &[[S; W]; G],
) {
    let out = out.get_mut(begin..begin + G * W).and_then(|x| x.as_chunks_mut::<W>().0.first_chunk_mut::<G>());
    match out {
        Some(out) => *out = *sum,
        None => out_of_range(begin),
    }
}
