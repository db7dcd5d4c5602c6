//! GAT, fused. The backward pass gathers `dout` of a source's destinations once: the same row serves `⟨dout, z⟩` and
//! `dz` while it is in cache.

use std::ops::Range;

use super::super::parallel::{ByEdges, Rows, Split, for_parts, for_rows, runs};
use super::super::sddmm::Edges;
use super::score::{Dropout, exp_all, leaky, leaky_slope, softmax};
use super::tile::{
    Dots, HeadTile, Run, WeightedSum, at, for_head_tiles, for_heads, lane_sum, later, tile, write_tile,
};
use super::vectorized;
use crate::device::{AttentionSpec, Cpu, Csr, GatGradients, GatSaved, Matrix, MatrixMut, Scalar};
use crate::error::{Result, try_filled};

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

/// Calls `$function` with the number of heads as a constant, if it is a usual one: loops over heads are then single
/// vector operations. 0 means any number.
macro_rules! by_heads {
    ($heads:expr, $function:ident($($argument:expr),*)) => {
        match $heads {
            1 => $function::<S, 1>($($argument),*),
            4 => $function::<S, 4>($($argument),*),
            8 => $function::<S, 8>($($argument),*),
            _ => $function::<S, 0>($($argument),*),
        }
    };
}

/// What the scores of a destination's messages are made of.
struct Scores<'a, S> {
    score_src: &'a [S],
    /// The destination's: starts with `[heads]`.
    own: &'a [S],
    /// All messages.
    run: Run<'a>,
    slope: S,
}

/// `weights[k, h] = LR(score_src[rows[k], h] + own[h])`
#[inline(always)]
fn forward_scores<S: Scalar, const H: usize>(heads: usize, scores: &Scores<'_, S>, weights: &mut [S]) {
    let heads = if H == 0 { heads } else { H };
    let own = &scores.own[..heads];
    for (k, (weights, &s)) in weights.chunks_exact_mut(heads).zip(scores.run.rows).enumerate() {
        scores.run.prefetch(scores.score_src, heads, k, 0);
        let score = &scores.score_src[s as usize * heads..][..heads];
        for h in 0..heads {
            weights[h] = leaky(score[h] + own[h], scores.slope);
        }
    }
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
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let stats = max.data.chunks_exact_mut(heads).zip(sum.data.chunks_exact_mut(heads));
                for (row, (t, (max, sum))) in range.zip(stats).enumerate() {
                    let indices = &a.indices[a.indptr[t] as usize..a.indptr[t + 1] as usize];
                    let sources = ends(spec.self_loop.then_some(t as u32), indices, &mut scratch);
                    reset(&mut weights, sources.len() * heads);
                    let later = later(a.indices, a.indptr[t] as usize);
                    let run = Run::new(sources, later, 0..sources.len());
                    let scores = Scores { score_src, own: &score_dst[t * heads..], run, slope };
                    by_heads!(heads, forward_scores(heads, &scores, &mut weights));
                    softmax(&mut weights, max, sum);
                    if let Some(dropout) = &dropout {
                        for (weights, &s) in weights.chunks_exact_mut(heads).zip(sources) {
                            dropout.apply(s as usize, t, weights);
                        }
                    }
                    let out = &mut out.data[row * width..][..width];
                    let x = z.data;
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

/// What a destination contributes to each of its messages: `score_dst`, `max`, `ln sum` and `δ`, each `[heads]`, side
/// by side because they are gathered together.
fn destination_stats<S: Scalar>(heads: usize, saved: &GatSaved<'_, Cpu<S>>) -> Result<Vec<S>> {
    let (n_dst, width) = (saved.out.rows, saved.out.cols);
    let asked = format_args!("{n_dst} destinations and {heads} heads");
    let mut stats = try_filled("attention's statistics", S::zero(), n_dst * 4 * heads, asked)?;
    for_rows(&mut stats, 4 * heads, |range, stats| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (t, stats) in range.zip(stats.chunks_exact_mut(4 * heads)) {
                    let (score, rest) = stats.split_at_mut(heads);
                    let (max, rest) = rest.split_at_mut(heads);
                    let (log_sum, delta) = rest.split_at_mut(heads);
                    score.copy_from_slice(&saved.score_dst[t * heads..][..heads]);
                    max.copy_from_slice(&saved.max[t * heads..][..heads]);
                    for (log_sum, sum) in log_sum.iter_mut().zip(&saved.sum[t * heads..][..heads]) {
                        *log_sum = sum.ln();
                    }
                    let row = t * width..(t + 1) * width;
                    let (x, own, dim) = (&saved.out.data[row.clone()], &saved.dout.data[row], width / heads);
                    let run = Run::new(&[0], &[], 0..1);
                    for_head_tiles(heads, dim, &mut Dots { heads, dim, run, own, x, dots: delta });
                }
            },
        );
    });
    Ok(stats)
}

pub(super) fn backward<S: Scalar>(
    transpose: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    saved: GatSaved<'_, Cpu<S>>,
    gradients: GatGradients<'_, Cpu<S>>,
) -> Result<()> {
    let (heads, width, n_dst) = (spec.heads, saved.z.cols, transpose.n_cols);
    let (dim, slope, dropout) = (width / heads, S::from_f64(spec.slope), Dropout::new(&spec));
    let stats = destination_stats(heads, &saved)?;
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
            let mut scratch = Vec::new();
            let (mut alpha, mut weights, mut dots) = (Vec::new(), Vec::new(), Vec::new());
            vectorized!(
                S,
                #[inline(always)]
                |_| {
                    let mut edges = edges.data;
                    for (row, s) in range.enumerate() {
                        let first = transpose.indptr[s] as usize;
                        let entries = first..transpose.indptr[s + 1] as usize;
                        let has_own = spec.self_loop && s < n_dst;
                        let destinations =
                            ends(has_own.then_some(s as u32), &transpose.indices[entries], &mut scratch);
                        let later = later(transpose.indices, first);
                        let score = &saved.score_src[s * heads..][..heads];
                        let dscore = &mut dscore.data[row * heads..][..heads];
                        dscore.fill(S::zero());
                        for run in runs(0..destinations.len()) {
                            let begins = run.start == 0;
                            let run = Run::new(destinations, later, run);
                            let source = Messages { run, stats: &stats, score, slope };
                            reset(&mut alpha, run.rows.len() * heads);
                            by_heads!(heads, backward_scores(heads, &source, &mut alpha));
                            exp_all(&mut alpha);
                            if let Some(dropout) = &dropout {
                                weights.clone_from(&alpha);
                                for (weights, &t) in weights.chunks_exact_mut(heads).zip(run.rows) {
                                    dropout.apply(s, t as usize, weights);
                                }
                            }
                            let weights = if dropout.is_some() { &weights } else { &alpha };
                            reset(&mut dots, alpha.len());
                            let mut tile = Source {
                                heads,
                                dim,
                                run,
                                weights,
                                dout: saved.dout.data,
                                z: &saved.z.data[s * width..][..width],
                                dots: &mut dots,
                                dz: &mut dz.data[row * width..][..width],
                            };
                            for_head_tiles(heads, dim, &mut tile);
                            by_heads!(
                                heads,
                                score_gradients(heads, &source, [&alpha, weights], &mut dots, dscore)
                            );
                            let mut gradients = dots.chunks_exact(heads);
                            if begins
                                && has_own
                                && let Some(gradient) = gradients.next()
                            {
                                own.data[row * heads..][..heads].copy_from_slice(gradient);
                            }
                            let n = gradients.len() * heads;
                            let (now, rest) = std::mem::take(&mut edges).split_at_mut(n);
                            now.copy_from_slice(&dots[dots.len() - n..]);
                            edges = rest;
                        }
                    }
                },
            );
        },
    );
    Ok(())
}

/// A run of messages of one source.
struct Messages<'a, S> {
    run: Run<'a>,
    /// See [`destination_stats`].
    stats: &'a [S],
    /// `[heads]`: the source's.
    score: &'a [S],
    slope: S,
}

/// Logarithms of the messages' attention: `[n_message, heads]`.
#[inline(always)]
fn backward_scores<S: Scalar, const H: usize>(heads: usize, messages: &Messages<'_, S>, out: &mut [S]) {
    let heads = if H == 0 { heads } else { H };
    let Messages { run, stats, slope, .. } = *messages;
    let score = &messages.score[..heads];
    for (k, (out, &t)) in out.chunks_exact_mut(heads).zip(run.rows).enumerate() {
        run.prefetch(stats, 4 * heads, k, 0);
        let stats = &stats[t as usize * 4 * heads..][..3 * heads];
        for h in 0..heads {
            out[h] = (leaky(score[h] + stats[h], slope) - stats[heads + h]) - stats[2 * heads + h];
        }
    }
}

/// Turns `dots`, the gradients of the weights, into those of the scores before `LR`, and adds these up to `dscore`.
#[inline(always)]
fn score_gradients<S: Scalar, const H: usize>(
    heads: usize,
    messages: &Messages<'_, S>,
    [alpha, weights]: [&[S]; 2],
    dots: &mut [S],
    dscore: &mut [S],
) {
    let heads = if H == 0 { heads } else { H };
    let (score, dscore) = (&messages.score[..heads], &mut dscore[..heads]);
    let factors = weights.chunks_exact(heads).zip(alpha.chunks_exact(heads));
    for ((g, &t), (weights, alpha)) in dots.chunks_exact_mut(heads).zip(messages.run.rows).zip(factors) {
        let stats = &messages.stats[t as usize * 4 * heads..][..4 * heads];
        for h in 0..heads {
            let derivative = leaky_slope(score[h] + stats[h], messages.slope);
            g[h] = (weights[h] * g[h] - alpha[h] * stats[3 * heads + h]) * derivative;
            dscore[h] += g[h];
        }
    }
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
