//! GATv2, fused. A score needs the source's whole row, so the row of each source is read for the score and again, then
//! from a nearby cache, for the sum.

use std::ops::Range;

use super::super::parallel::{ByEdges, Rows, for_parts, runs};
use super::super::sddmm::Edges;
use super::gat::{ends, reset};
use super::score::{Dropout, exp_all, head_sum, leaky, leaky_slope, map_heads, softmax};
use super::tile::{
    Dots, HeadTile, Run, WeightedSum, at, for_head_tiles, for_heads, lane_sum, later, tile, write_tile,
};
use super::vectorized;
use crate::device::{AttentionSpec, Cpu, Csr, Gatv2Operands, Matrix, MatrixMut, Scalar};

pub(super) fn forward<S: Scalar>(
    a: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    operands: Gatv2Operands<'_, Cpu<S>>,
    out: MatrixMut<'_, Cpu<S>>,
    max: &mut [S],
    sum: &mut [S],
) {
    let (heads, width) = (spec.heads, operands.z_src.cols);
    let (dim, slope, dropout) = (width / heads, S::from_f64(spec.slope), Dropout::new(&spec));
    let dense = [operands.z_src.data, operands.z_dst.data, operands.attention];
    let work = ByEdges { indptr: a.indptr, dim: 2 * width + 4 * heads };
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
                    let later = later(a.indices, a.indptr[t] as usize);
                    let sources = ends(spec.self_loop.then_some(t as u32), indices, &mut scratch);
                    reset(&mut weights, sources.len() * heads);
                    Scores::for_all((heads, slope, dense, t), sources, later, &mut weights);
                    softmax(&mut weights, max, sum);
                    if let Some(dropout) = &dropout {
                        for (weights, &s) in weights.chunks_exact_mut(heads).zip(sources) {
                            dropout.apply(s as usize, t, weights);
                        }
                    }
                    let out = &mut out.data[row * width..][..width];
                    let (weights, x) = (&weights[..], operands.z_src.data);
                    for run in runs(0..sources.len()) {
                        let weights = &weights[run.start * heads..run.end * heads];
                        let run = Run::new(sources, &[], run);
                        for_head_tiles(heads, dim, &mut WeightedSum { heads, dim, run, weights, x, out });
                    }
                }
            },
        );
    });
}

/// `scores[k, h] += ⟨attention[h, :], LR(z_src[rows[k], h, :] + z_dst[t, h, :])⟩`
struct Scores<'a, S> {
    heads: usize,
    dim: usize,
    slope: S,
    run: Run<'a>,
    z_src: &'a [S],
    /// `[heads · dim]`: the destination's row.
    own: &'a [S],
    attention: &'a [S],
    scores: &'a mut [S],
}

impl<S: Scalar> Scores<'_, S> {
    /// Those of all messages of destination `t`.
    #[inline(always)]
    fn for_all(
        (heads, slope, [z_src, z_dst, attention], t): (usize, S, [&[S]; 3], usize),
        rows: &[u32],
        later: &[u32],
        scores: &mut [S],
    ) {
        let width = attention.len();
        let (dim, own) = (width / heads, &z_dst[t * width..][..width]);
        for run in runs(0..rows.len()) {
            let scores = &mut scores[run.start * heads..run.end * heads];
            let run = Run::new(rows, later, run);
            for_head_tiles(heads, dim, &mut Scores { heads, dim, slope, run, z_src, own, attention, scores });
        }
    }
}

impl<S: Scalar> HeadTile for Scores<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let (own, attention) = (tile::<S, G, W>(self.own, begin), tile::<S, G, W>(self.attention, begin));
        for (k, (&s, scores)) in self.run.rows.iter().zip(self.scores.chunks_exact_mut(heads)).enumerate() {
            self.run.prefetch(self.z_src, width, k, begin);
            let z = tile::<S, G, W>(self.z_src, s as usize * width + begin);
            for_heads!(g in G, {
                let mut products = [S::zero(); W];
                for k in 0..W {
                    products[k] = attention[g][k] * leaky(z[g][k] + own[g][k], self.slope);
                }
                scores[head + g] += lane_sum(products, skip);
            });
        }
    }
}

pub(super) fn backward_destinations<S: Scalar>(
    a: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    operands: Gatv2Operands<'_, Cpu<S>>,
    [max, sum]: [&[S]; 2],
    dout: Matrix<'_, Cpu<S>>,
    [dz_dst, dattention]: [&mut [S]; 2],
    messages: &mut [S],
) {
    let (heads, width) = (spec.heads, operands.z_src.cols);
    let (dim, slope, dropout) = (width / heads, S::from_f64(spec.slope), Dropout::new(&spec));
    let dense = [operands.z_src.data, operands.z_dst.data, operands.attention];
    let work = ByEdges { indptr: a.indptr, dim: 3 * width + 8 * heads };
    let (edges, own) = messages.split_at_mut(a.indices.len() * 2 * heads);
    let rows = (
        (Rows { data: dz_dst, cols: width }, Rows { data: dattention, cols: width }),
        (
            Edges { indptr: a.indptr, data: edges, heads: 2 * heads },
            Rows { data: own, cols: if spec.self_loop { 2 * heads } else { 0 } },
        ),
    );
    type Out<'a, S> = ((Rows<'a, S>, Rows<'a, S>), (Edges<'a, S>, Rows<'a, S>));
    for_parts(
        &work,
        0..a.n_rows,
        rows,
        &|range: Range<usize>, ((dz, dattention), (edges, own)): Out<'_, S>| {
            let (mut scratch, mut alpha, mut weights, mut dots) =
                (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            let mut total = vec![S::zero(); heads];
            vectorized!(
                S,
                #[inline(always)]
                |_| {
                    let mut edges = edges.data.chunks_exact_mut(2 * heads);
                    for (row, t) in range.enumerate() {
                        let indices = &a.indices[a.indptr[t] as usize..a.indptr[t + 1] as usize];
                        let later = later(a.indices, a.indptr[t] as usize);
                        let sources = ends(spec.self_loop.then_some(t as u32), indices, &mut scratch);
                        reset(&mut alpha, sources.len() * heads);
                        Scores::for_all((heads, slope, dense, t), sources, later, &mut alpha);
                        map_heads(&mut alpha, &max[t * heads..][..heads], |score, max| score - max);
                        exp_all(&mut alpha);
                        map_heads(&mut alpha, &sum[t * heads..][..heads], |e, sum| e / sum);
                        weights.clear();
                        weights.extend_from_slice(&alpha);
                        if let Some(dropout) = &dropout {
                            for (weights, &s) in weights.chunks_exact_mut(heads).zip(sources) {
                                dropout.apply(s as usize, t, weights);
                            }
                        }
                        reset(&mut dots, alpha.len());
                        let (x, own_dout) = (operands.z_src.data, &dout.data[t * width..][..width]);
                        for run in runs(0..sources.len()) {
                            let dots = &mut dots[run.start * heads..run.end * heads];
                            let run = Run::new(sources, &[], run);
                            let mut tile = Dots { heads, dim, run, own: own_dout, x, dots };
                            for_head_tiles(heads, dim, &mut tile);
                        }
                        dots.iter_mut().zip(&weights).for_each(|(dot, &weight)| *dot *= weight);
                        head_sum(&dots, &mut total);
                        for (g, alpha) in dots.chunks_exact_mut(heads).zip(alpha.chunks_exact(heads)) {
                            for h in 0..heads {
                                g[h] -= alpha[h] * total[h];
                            }
                        }
                        for (k, (weights, g)) in
                            weights.chunks_exact(heads).zip(dots.chunks_exact(heads)).enumerate()
                        {
                            let message = if k == 0 && spec.self_loop {
                                Some(&mut own.data[row * 2 * heads..][..2 * heads])
                            } else {
                                edges.next()
                            };
                            if let Some(message) = message {
                                message[..heads].copy_from_slice(weights);
                                message[heads..].copy_from_slice(g);
                            }
                        }
                        let attention = operands.attention;
                        let (dz, own) = (
                            &mut dz.data[row * width..][..width],
                            &operands.z_dst.data[t * width..][..width],
                        );
                        let dattention = &mut dattention.data[row * width..][..width];
                        for run in runs(0..sources.len()) {
                            let g = &dots[run.start * heads..run.end * heads];
                            let run = Run::new(sources, &[], run);
                            let z_src = operands.z_src.data;
                            for_head_tiles(
                                heads,
                                dim,
                                &mut Destination { heads, dim, slope, run, g, z_src, own, dz, dattention },
                            );
                        }
                        dz.iter_mut().zip(attention).for_each(|(dz, &attention)| *dz *= attention);
                    }
                },
            );
        },
    );
}

/// With `u = z_src[rows[k]] + own`: `dz = Σ_k g[k] · LR'(u)` and `dattention = Σ_k g[k] · LR(u)`.
struct Destination<'a, S> {
    heads: usize,
    dim: usize,
    slope: S,
    run: Run<'a>,
    g: &'a [S],
    z_src: &'a [S],
    own: &'a [S],
    dz: &'a mut [S],
    dattention: &'a mut [S],
}

impl<S: Scalar> HeadTile for Destination<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let own = tile::<S, G, W>(self.own, begin);
        let mut dz = self.run.sums::<S, G, W>(self.dz, begin);
        let mut dattention = self.run.sums::<S, G, W>(self.dattention, begin);
        for (&s, weights) in self.run.rows.iter().zip(self.g.chunks_exact(heads)) {
            let z = tile::<S, G, W>(self.z_src, s as usize * width + begin);
            let weights = at::<S, G>(weights, head);
            for_heads!(g in G, {
                for k in 0..W {
                    let u = z[g][k] + own[g][k];
                    dz[g][k] += weights[g] * leaky_slope(u, self.slope);
                    dattention[g][k] += weights[g] * leaky(u, self.slope);
                }
            });
        }
        write_tile(self.dz, begin, &dz, skip);
        write_tile(self.dattention, begin, &dattention, skip);
    }
}

pub(super) fn backward_sources<S: Scalar>(
    transpose: Csr<'_, Cpu<S>>,
    spec: AttentionSpec<'_, Cpu<S>>,
    operands: Gatv2Operands<'_, Cpu<S>>,
    dout: Matrix<'_, Cpu<S>>,
    messages: &[S],
    dz_src: MatrixMut<'_, Cpu<S>>,
) {
    let (heads, width, n_dst) = (spec.heads, operands.z_src.cols, transpose.n_cols);
    let (dim, slope) = (width / heads, S::from_f64(spec.slope));
    let positions = transpose.edge.unwrap_or_default();
    let n_edge = transpose.indices.len() as u64;
    let work = ByEdges { indptr: transpose.indptr, dim: 2 * width + 2 * heads };
    let rows = Rows { data: dz_src.data, cols: width };
    for_parts(&work, 0..transpose.n_rows, rows, &|range: Range<usize>, dz: Rows<'_, S>| {
        let (mut scratch, mut factors) = (Vec::new(), Vec::new());
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (row, s) in range.enumerate() {
                    let first = transpose.indptr[s] as usize;
                    let entries = first..transpose.indptr[s + 1] as usize;
                    let own = (spec.self_loop && s < n_dst).then_some(s as u32);
                    let positions = positions[entries.clone()].iter().map(|&e| u64::from(e));
                    factors.clear();
                    for m in own.map(|t| n_edge + u64::from(t)).into_iter().chain(positions) {
                        factors.extend_from_slice(&messages[m as usize * 2 * heads..][..2 * heads]);
                    }
                    let rows = ends(own, &transpose.indices[entries], &mut scratch);
                    let later = later(transpose.indices, first);
                    for run in runs(0..rows.len()) {
                        let mut tile = Source {
                            heads,
                            dim,
                            slope,
                            factors: &factors[run.start * 2 * heads..run.end * 2 * heads],
                            run: Run::new(rows, later, run),
                            z_dst: operands.z_dst.data,
                            dout: dout.data,
                            own: &operands.z_src.data[s * width..][..width],
                            attention: operands.attention,
                            dz: &mut dz.data[row * width..][..width],
                        };
                        for_head_tiles(heads, dim, &mut tile);
                    }
                }
            },
        );
    });
}

/// `dz = Σ_k (α̃[k] · dout[rows[k]] + g[k] · attention ⊙ LR'(own + z_dst[rows[k]]))`; `factors` holds `α̃` and `g`.
struct Source<'a, S> {
    heads: usize,
    dim: usize,
    slope: S,
    run: Run<'a>,
    /// `[n_message, 2 · heads]`
    factors: &'a [S],
    z_dst: &'a [S],
    dout: &'a [S],
    own: &'a [S],
    attention: &'a [S],
    dz: &'a mut [S],
}

impl<S: Scalar> HeadTile for Source<'_, S> {
    #[inline(always)]
    fn run<const G: usize, const W: usize>(&mut self, head: usize, column: usize, skip: usize) {
        let (heads, width, begin) = (self.heads, self.heads * self.dim, head * self.dim + column);
        let (own, attention) = (tile::<S, G, W>(self.own, begin), tile::<S, G, W>(self.attention, begin));
        let mut sum = self.run.sums::<S, G, W>(self.dz, begin);
        for (k, (&t, factors)) in self.run.rows.iter().zip(self.factors.chunks_exact(2 * heads)).enumerate() {
            self.run.prefetch(self.z_dst, width, k, begin);
            self.run.prefetch(self.dout, width, k, begin);
            let z = tile::<S, G, W>(self.z_dst, t as usize * width + begin);
            let dout = tile::<S, G, W>(self.dout, t as usize * width + begin);
            let (weights, gradients) = (at::<S, G>(factors, head), at::<S, G>(factors, heads + head));
            for_heads!(g in G, {
                for k in 0..W {
                    let derivative = attention[g][k] * leaky_slope(own[g][k] + z[g][k], self.slope);
                    sum[g][k] += weights[g] * dout[g][k] + gradients[g] * derivative;
                }
            });
        }
        write_tile(self.dz, begin, &sum, skip);
    }
}
