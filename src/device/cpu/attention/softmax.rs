//! Softmax over in-edges, and dot products with a vector per head.

use std::ops::Range;

use super::super::parallel::{ByEdges, Even, Rows, for_parts, sum_over_rows, write_all};
use super::super::sddmm::Edges;
use super::score::{exp_all, head_max, head_sum, map_heads, softmax};
use super::tile::{Dots, Run, for_head_tiles};
use super::vectorized;
use crate::device::{Cpu, Matrix, MatrixMut, Scalar, Write};

pub(super) fn edge_softmax<S: Scalar>(indptr: &[u32], heads: usize, x: &[S], out: &mut [S]) {
    let work = ByEdges { indptr, dim: 4 * heads };
    let out = Edges { indptr, data: out, heads };
    for_parts(&work, 0..indptr.len() - 1, out, &|range: Range<usize>, out: Edges<'_, S>| {
        let mut x = &x[indptr[range.start] as usize * heads..][..out.data.len()];
        let mut stats = vec![S::zero(); 2 * heads];
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                if heads == 1 {
                    out.data.copy_from_slice(x);
                    return softmax_of_numbers(&indptr[range.start..=range.end], out.data);
                }
                let (max, sum) = stats.split_at_mut(heads);
                let mut rest = out.data;
                for ends in indptr[range.start..=range.end].windows(2) {
                    let (row, others) = rest.split_at_mut((ends[1] - ends[0]) as usize * heads);
                    rest = others;
                    let (values, later) = x.split_at(row.len());
                    x = later;
                    row.copy_from_slice(values);
                    softmax(row, max, sum);
                }
            },
        );
    });
}

/// One head: rows are too short for vectors of their own, so exponentials run across rows.
#[inline(always)]
fn softmax_of_numbers<S: Scalar>(indptr: &[u32], values: &mut [S]) {
    let first = indptr[0];
    let row = |ends: &[u32]| (ends[0] - first) as usize..(ends[1] - first) as usize;
    for ends in indptr.windows(2) {
        let (row, mut max) = (&mut values[row(ends)], [S::zero()]);
        head_max(row, &mut max);
        map_heads(row, &max, |value, max| value - max);
    }
    exp_all(values);
    for ends in indptr.windows(2) {
        let (row, mut sum) = (&mut values[row(ends)], [S::zero()]);
        head_sum(row, &mut sum);
        map_heads(row, &sum, |value, sum| value / sum);
    }
}

pub(super) fn edge_softmax_backward<S: Scalar>(
    indptr: &[u32],
    heads: usize,
    y: &[S],
    dout: &[S],
    dx: &mut [S],
) {
    let work = ByEdges { indptr, dim: 3 * heads };
    let out = Edges { indptr, data: dx, heads };
    for_parts(&work, 0..indptr.len() - 1, out, &|range: Range<usize>, out: Edges<'_, S>| {
        let mut total = vec![S::zero(); heads];
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                let mut rest = out.data;
                for ends in indptr[range.start..=range.end].windows(2) {
                    let entries = ends[0] as usize * heads..ends[1] as usize * heads;
                    let (y, dout) = (&y[entries.clone()], &dout[entries]);
                    let (dx, others) = rest.split_at_mut(y.len());
                    rest = others;
                    write_all(dx, y.iter().zip(dout).map(|(&y, &g)| y * g), Write::Assign);
                    head_sum(dx, &mut total);
                    // dx still holds y · dout: the difference needs one more product, not two.
                    let rows = dx.chunks_exact_mut(heads).zip(y.chunks_exact(heads));
                    for (dx, y) in rows {
                        for ((dx, &y), &total) in dx.iter_mut().zip(y).zip(&total) {
                            *dx -= y * total;
                        }
                    }
                }
            },
        );
    });
}

pub(super) fn head_dot<S: Scalar>(x: Matrix<'_, Cpu<S>>, a: &[S], heads: usize, out: &mut [S]) {
    let rows = Rows { data: out, cols: heads };
    let width = x.cols;
    for_parts(&Even(width + heads), 0..x.rows, rows, &|range: Range<usize>, out: Rows<'_, S>| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                out.data.fill(S::zero());
                for (i, dots) in range.zip(out.data.chunks_exact_mut(heads)) {
                    let x = &x.data[i * width..][..width];
                    let dim = width / heads;
                    for_head_tiles(
                        heads,
                        dim,
                        &mut Dots { heads, dim, run: Run::new(&[0], &[], 0..1), own: a, x, dots },
                    );
                }
            },
        );
    });
}

pub(super) fn head_dot_backward_input<S: Scalar>(
    a: &[S],
    dim: usize,
    dout: &[S],
    dx: MatrixMut<'_, Cpu<S>>,
    write: Write,
) {
    if dim == 0 {
        return;
    }
    let (width, heads) = (dx.cols, dx.cols / dim);
    let rows = Rows { data: dx.data, cols: width };
    for_parts(&Even(width), 0..dx.rows, rows, &|range: Range<usize>, dx: Rows<'_, S>| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for (i, dx) in range.zip(dx.data.chunks_exact_mut(width)) {
                    let dout = &dout[i * heads..][..heads];
                    for ((dx, a), &g) in dx.chunks_exact_mut(dim).zip(a.chunks_exact(dim)).zip(dout) {
                        write_all(dx, a.iter().map(|&a| g * a), write);
                    }
                }
            },
        );
    });
}

pub(super) fn head_dot_backward_vector<S: Scalar>(
    x: Matrix<'_, Cpu<S>>,
    dim: usize,
    dout: &[S],
    da: &mut [S],
) {
    if dim == 0 {
        return;
    }
    let (width, heads) = (x.cols, x.cols / dim);
    sum_over_rows(x.rows, width, da, Write::Assign, |rows, da| {
        vectorized!(
            S,
            #[inline(always)]
            |_| {
                for i in rows {
                    let (x, dout) = (&x.data[i * width..][..width], &dout[i * heads..][..heads]);
                    for ((da, x), &g) in da.chunks_exact_mut(dim).zip(x.chunks_exact(dim)).zip(dout) {
                        write_all(da, x.iter().map(|&x| g * x), Write::Add);
                    }
                }
            },
        );
    });
}
