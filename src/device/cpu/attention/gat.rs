//! GAT, fused. The backward pass gathers `dout` of a source's destinations once: the same row serves `⟨dout, z⟩` and
//! `dz` while it is near.

use std::ops::Range;

use super::super::parallel::{ByEdges, Rows, Split, for_parts, for_rows, prefetch_row, runs};
use super::super::sddmm::Edges;
use super::score::{Dropout, exp_all, leaky, leaky_slope, softmax};
use super::tile::{
    Dots, HeadTile, Run, WeightedSum, at, for_head_tiles, for_heads, lane_sum, later, tile, write_tile,
};
use super::vectorized;
use crate::device::{AttentionSpec, Cpu, Csr, GatGradients, GatSaved, Matrix, MatrixMut, Scalar};

/// The other ends of row `i`'s messages: the row's own vertex first, if it has a self-loop.
#[inline(always)]
pub(super) fn ends<'a>(own: Option<u32>, indices: &'a [u32], scratch: &'a mut Vec<u32>) -> &'a [u32] {
    let Some(own) = own else { return indices };
    scratch.clear();
    scratch.push(own);
    scratch.extend_from_slice(indices);
    scratch
}

/// `values` as `len` zeros.
#[inline(always)]
pub(super) fn reset<S: Scalar>(values: &mut Vec<S>, len: usize) {
    values.clear();
    values.resize(len, S::zero());
}

#[allow(clippy::too_many_arguments)]
pub(super) fn forward<S: Scalar>(
    a: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    z: Matrix<'_, Cpu<S>>,
    score_src: &[S],
    score_dst: &[S],
    out: MatrixMut<'_, Cpu<S>>,
    max: &mut [S],
    sum: &mut [S],
) {
    let (heads, width) = (spec.heads, z.cols);
    let (dim, slope, dropout) = (width / heads, S::from_f64(spec.slope), Dropout::new(&spec));
    let work = ByEdges { indptr: a.indptr, dim: width + 4 * heads };
    let rows = (
        Rows { data: out.data, cols: width },
        (Rows { data: max, cols: heads }, Rows { data: sum, cols: heads }),
    );
    type Out<'a, S> = (Rows<'a, S>, (Rows<'a, S>, Rows<'a, S>));
    for_parts(&work, 0..a.n_rows, rows, &|range: Range<usize>, (out, (max, sum)): Out<'_, S>| {
        let (mut scratch, mut weights) = (Vec::new(), Vec::new());
        vectorized(
            #[inline(always)]
            || {
                let stats = max.data.chunks_exact_mut(heads).zip(sum.data.chunks_exact_mut(heads));
                for (row, (t, (max, sum))) in range.zip(stats).enumerate() {
                    let indices = &a.indices[a.indptr[t] as usize..a.indptr[t + 1] as usize];
                    let sources = ends(spec.self_loop.then_some(t as u32), indices, &mut scratch);
                    reset(&mut weights, sources.len() * heads);
                    let own = &score_dst[t * heads..][..heads];
                    for (weights, &s) in weights.chunks_exact_mut(heads).zip(sources) {
                        let score = &score_src[s as usize * heads..][..heads];
                        for h in 0..heads {
                            weights[h] = leaky(score[h] + own[h], slope);
                        }
                    }
                    softmax(&mut weights, max, sum);
                    if let Some(dropout) = &dropout {
                        for (weights, &s) in weights.chunks_exact_mut(heads).zip(sources) {
                            dropout.apply(s as usize, t, weights);
                        }
                    }
                    let out = &mut out.data[row * width..][..width];
                    let (weights, x, later) = (&weights[..], z.data, later(a.indices, a.indptr[t] as usize));
                    for run in runs(0..sources.len()) {
                        let weights = &weights[run.start * heads..run.end * heads];
                        let run = Run::new(sources, later, run);
                        for_head_tiles(heads, dim, &mut WeightedSum { heads, dim, run, weights, x, out });
                    }
                }
            },
        );
    });
}

/// Rows of which there may be fewer than items.
struct FirstRows<'a, T> {
    data: &'a mut [T],
    cols: usize,
}

impl<T: Send> Split for FirstRows<'_, T> {
    fn split(self, at: usize) -> (Self, Self) {
        let (head, tail) = self.data.split_at_mut((at * self.cols).min(self.data.len()));
        (FirstRows { data: head, cols: self.cols }, FirstRows { data: tail, cols: self.cols })
    }
}

/// What a destination contributes to each of its messages, side by side, as it is gathered for each: `score_dst`, `max`,
/// `1 / sum` and `δ`, each `[heads]`.
fn destination_stats<S: Scalar>(heads: usize, saved: &GatSaved<'_, Cpu<S>>) -> Vec<S> {
    let (n_dst, width) = (saved.out.rows, saved.out.cols);
    let mut stats = vec![S::zero(); n_dst * 4 * heads];
    for_rows(&mut stats, 4 * heads, |range, stats| {
        vectorized(
            #[inline(always)]
            || {
                for (t, stats) in range.zip(stats.chunks_exact_mut(4 * heads)) {
                    let (score, rest) = stats.split_at_mut(heads);
                    let (max, rest) = rest.split_at_mut(heads);
                    let (inverse, delta) = rest.split_at_mut(heads);
                    score.copy_from_slice(&saved.score_dst[t * heads..][..heads]);
                    max.copy_from_slice(&saved.max[t * heads..][..heads]);
                    for (inverse, &sum) in inverse.iter_mut().zip(&saved.sum[t * heads..][..heads]) {
                        *inverse = if sum > S::zero() { S::one() / sum } else { S::zero() };
                    }
                    let row = t * width..(t + 1) * width;
                    let (x, own, dim) = (&saved.out.data[row.clone()], &saved.dout.data[row], width / heads);
                    let run = Run::new(&[0], &[], 0..1);
                    for_head_tiles(heads, dim, &mut Dots { heads, dim, run, own, x, dots: delta });
                }
            },
        );
    });
    stats
}

pub(super) fn backward<S: Scalar>(
    transpose: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    saved: GatSaved<'_, Cpu<S>>,
    gradients: GatGradients<'_, Cpu<S>>,
) {
    let (heads, width, n_dst) = (spec.heads, saved.z.cols, transpose.n_cols);
    let (dim, slope, dropout) = (width / heads, S::from_f64(spec.slope), Dropout::new(&spec));
    let stats = destination_stats(heads, &saved);
    gradients.dscore_dst_own.fill(S::zero());
    let work = ByEdges { indptr: transpose.indptr, dim: 2 * width + 8 * heads };
    let out = (
        (Rows { data: gradients.dz.data, cols: width }, Rows { data: gradients.dscore_src, cols: heads }),
        (
            FirstRows { data: gradients.dscore_dst_own, cols: heads },
            Edges { indptr: transpose.indptr, data: gradients.dscore_edge, heads },
        ),
    );
    type Out<'a, S> = ((Rows<'a, S>, Rows<'a, S>), (FirstRows<'a, S>, Edges<'a, S>));
    for_parts(
        &work,
        0..transpose.n_rows,
        out,
        &|range: Range<usize>, ((dz, dscore), (own, edges)): Out<'_, S>| {
            let (mut scratch, mut alpha, mut weights, mut dots) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            vectorized(
                #[inline(always)]
                || {
                    let mut edges = edges.data.chunks_exact_mut(heads);
                    for (row, s) in range.enumerate() {
                        let first = transpose.indptr[s] as usize;
                        let entries = first..transpose.indptr[s + 1] as usize;
                        let has_own = spec.self_loop && s < n_dst;
                        let destinations =
                            ends(has_own.then_some(s as u32), &transpose.indices[entries], &mut scratch);
                        let score = &saved.score_src[s * heads..][..heads];
                        reset(&mut alpha, destinations.len() * heads);
                        let later = later(transpose.indices, first);
                        for (k, (alpha, &t)) in alpha.chunks_exact_mut(heads).zip(destinations).enumerate() {
                            if let Some(&later) = later.get(k) {
                                prefetch_row(&stats, 4 * heads, later as usize);
                            }
                            let stats = &stats[t as usize * 4 * heads..][..2 * heads];
                            let (score_dst, max) = stats.split_at(heads);
                            for h in 0..heads {
                                alpha[h] = leaky(score[h] + score_dst[h], slope) - max[h];
                            }
                        }
                        exp_all(&mut alpha);
                        for (alpha, &t) in alpha.chunks_exact_mut(heads).zip(destinations) {
                            let inverse = &stats[(t as usize * 4 + 2) * heads..][..heads];
                            alpha.iter_mut().zip(inverse).for_each(|(alpha, &inverse)| *alpha *= inverse);
                        }
                        weights.clear();
                        weights.extend_from_slice(&alpha);
                        if let Some(dropout) = &dropout {
                            for (weights, &t) in weights.chunks_exact_mut(heads).zip(destinations) {
                                dropout.apply(s, t as usize, weights);
                            }
                        }
                        reset(&mut dots, weights.len());
                        for run in runs(0..destinations.len()) {
                            let messages = run.start * heads..run.end * heads;
                            let mut tile = Source {
                                heads,
                                dim,
                                run: Run::new(destinations, later, run),
                                weights: &weights[messages.clone()],
                                dout: saved.dout.data,
                                z: &saved.z.data[s * width..][..width],
                                dots: &mut dots[messages],
                                dz: &mut dz.data[row * width..][..width],
                            };
                            for_head_tiles(heads, dim, &mut tile);
                        }

                        let dscore = &mut dscore.data[row * heads..][..heads];
                        dscore.fill(S::zero());
                        let messages = dots.chunks_exact_mut(heads).zip(destinations);
                        let factors = weights.chunks_exact(heads).zip(alpha.chunks_exact(heads));
                        for (k, ((g, &t), (weights, alpha))) in messages.zip(factors).enumerate() {
                            let stats = &stats[t as usize * 4 * heads..][..4 * heads];
                            for h in 0..heads {
                                let derivative = leaky_slope(score[h] + stats[h], slope);
                                g[h] = (weights[h] * g[h] - alpha[h] * stats[3 * heads + h]) * derivative;
                                dscore[h] += g[h];
                            }
                            if k == 0 && has_own {
                                own.data[row * heads..][..heads].copy_from_slice(g);
                            } else if let Some(edge) = edges.next() {
                                edge.copy_from_slice(g);
                            }
                        }
                    }
                },
            );
        },
    );
}

/// `dz[h, :] = Σ_k weights[k, h] · dout[rows[k], h, :]` and `dots[k, h] += ⟨z[h, :], dout[rows[k], h, :]⟩`.
struct Source<'a, S> {
    heads: usize,
    dim: usize,
    run: Run<'a>,
    weights: &'a [S],
    dout: &'a [S],
    z: &'a [S],
    dots: &'a mut [S],
    dz: &'a mut [S],
}

impl<S: Scalar> HeadTile for Source<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let z = tile::<S, G, W>(self.z, begin);
        let mut sum = self.run.sums::<S, G, W>(self.dz, begin);
        let messages = self.weights.chunks_exact(heads).zip(self.dots.chunks_exact_mut(heads));
        for (k, (&t, (weights, dots))) in self.run.rows.iter().zip(messages).enumerate() {
            self.run.prefetch(self.dout, width, k, begin);
            let dout = tile::<S, G, W>(self.dout, t as usize * width + begin);
            let weights = at::<S, G>(weights, head);
            for_heads!(g in G, {
                let mut products = [S::zero(); W];
                for k in 0..W {
                    sum[g][k] += weights[g] * dout[g][k];
                    products[k] = z[g][k] * dout[g][k];
                }
                dots[head + g] += lane_sum(products, skip);
            });
        }
        write_tile(self.dz, begin, &sum, skip);
    }
}
