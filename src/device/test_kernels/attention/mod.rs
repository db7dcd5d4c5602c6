//! Softmax over in-edges, products with a vector per head, and the fused layers.

mod problem;

use super::{Guarded, Random, test_devices, to_f64};
use crate::device::{
    Attention, AttentionDropout, AttentionSpec, Csr, FeatureElement, GatGradients, GatSaved, Gatv2Operands,
    Matrix, MatrixMut, Scalar, Sddmm, Write,
};
use crate::testing::assert_close;
use problem::{Problem, close, for_problems, leaky, leaky_slope, pattern};

test_devices! {
    gat_is_its_formula gatv2_is_its_formula edge_softmax_is_its_formula head_dot_is_its_formula
    hubs a_row_of_many_entries wide_heads many_heads steep_scores nan_shows
    softmax_of_large_scores_and_of_parallel_edges wrong_arguments_are_errors
    sums_of_ends
}

fn gat_is_its_formula<D: Attention>(device: &D) {
    for_problems(device, |problem| gat_agrees(device, problem, 1.0));
}

fn gatv2_is_its_formula<D: Attention>(device: &D) {
    for_problems(device, |problem| gatv2_agrees(device, problem, 1.0));
}

fn edge_softmax_is_its_formula<D: Attention>(device: &D) {
    for_problems(device, |problem| edge_softmax_agrees(device, problem));
}

fn head_dot_is_its_formula<D: Attention>(device: &D) {
    for_problems(device, |problem| head_dot_agrees(device, problem, problem.n_src()));
    let wide = |heads, dim| Problem { heads, dim, ..star(1, 1, &[]) };
    head_dot_agrees(device, &wide(4, 64), 700);
    head_dot_agrees(device, &wide(1, 1024), 9);
    head_dot_agrees(device, &wide(3, 150), 9);
}

/// A problem with the given entries from random sources.
fn star(n_dst: usize, n_src: usize, degrees: &[usize]) -> Problem {
    let mut random = Random(7);
    let rows = degrees.iter().enumerate().flat_map(|(t, &degree)| std::iter::repeat_n(t, degree));
    let entries: Vec<_> = rows.map(|t| (t, random.index(n_src) as u32)).collect();
    let pattern = pattern(n_dst, n_src, entries.into_iter());
    Problem { pattern, heads: 1, dim: 1, self_loop: true, p: 0.4, seed: 11 }
}

/// Rows that the kernels cut: from the first entry of a segment, from inside of one, over several, with empty rows
/// between; and few sources, so that the transpose has hubs too.
fn hubs<D: Attention>(device: &D) {
    let degrees = [256, 0, 300, 5, 0, 128, 129, 3, 700];
    for (heads, dim) in [(8, 16), (3, 7), (1, 64), (2, 1)] {
        gat_agrees(device, &Problem { heads, dim, ..star(9, 10, &degrees) }, 1.0);
        gatv2_agrees(device, &Problem { heads, dim, ..star(9, 10, &degrees) }, 1.0);
    }
    let plain = Problem { heads: 2, dim: 130, self_loop: false, p: 0.0, ..star(2, 3, &[0, 400]) };
    gat_agrees(device, &plain, 1.0);
    gatv2_agrees(device, &plain, 1.0);
    for heads in [1, 3, 40] {
        let degrees = [1024, 0, 1500, 7, 1024, 2500, 30];
        edge_softmax_agrees(device, &Problem { heads, ..star(7, 7, &degrees) });
    }
}

fn a_row_of_many_entries<D: Attention>(device: &D) {
    let problem = Problem { heads: 2, dim: 4, ..star(2, 900, &[3, 100_000]) };
    gat_agrees(device, &problem, 1.0);
    gatv2_agrees(device, &problem, 1.0);
    edge_softmax_agrees(device, &problem);
}

/// Heads that take a lane several loads, and such that do not fit into a warp's registers.
fn wide_heads<D: Attention>(device: &D) {
    for (heads, dim) in [(1, 200), (2, 500), (1, 1024), (2, 131), (1, 1022)] {
        let problem = Problem { heads, dim, ..star(3, 5, &[0, 9, 30]) };
        gat_agrees(device, &problem, 1.0);
        gatv2_agrees(device, &problem, 1.0);
    }
}

/// More heads than a warp has lanes.
fn many_heads<D: Attention>(device: &D) {
    for dim in [1, 4, 5] {
        let problem = Problem { heads: 37, dim, ..star(3, 5, &[4, 0, 11]) };
        gat_agrees(device, &problem, 1.0);
        gatv2_agrees(device, &problem, 1.0);
        edge_softmax_agrees(device, &problem);
    }
}

/// Exponentials of the scores themselves would overflow.
fn steep_scores<D: Attention>(device: &D) {
    let problem = Problem { heads: 2, dim: 8, ..star(4, 6, &[0, 40, 3, 200]) };
    gat_agrees(device, &problem, 100.0);
    gatv2_agrees(device, &problem, 100.0);
}

/// A pattern of which only the rows count.
struct Rows<D: Attention> {
    indptr: Guarded<D, u32>,
    indices: Guarded<D, u32>,
}

impl<D: Attention> Rows<D> {
    fn new(device: &D, indptr: &[u32]) -> Self {
        let n_edge = indptr[indptr.len() - 1] as usize;
        Rows { indptr: Guarded::new(device, indptr), indices: Guarded::new(device, &vec![0u32; n_edge]) }
    }

    fn csr(&self) -> Csr<'_, D> {
        let (indptr, indices) = (self.indptr.view(), self.indices.view());
        Csr { n_rows: D::view_len(&indptr) - 1, n_cols: 1, indptr, indices, edge: None, longest_row: None }
    }
}

/// An output of `len` scalars between guards.
fn output<D: Attention>(device: &D, len: usize) -> Guarded<D> {
    Guarded::poisoned(device, len)
}

/// `steepness` multiplies the scores.
fn gat_agrees<D: Attention>(device: &D, problem: &Problem, steepness: f64) {
    let (width, heads, dim) = (problem.width(), problem.heads, problem.dim);
    let (n_dst, n_src, n_edge) = (problem.n_dst(), problem.n_src(), problem.pattern.n_edge());
    let scaled = |values: Vec<D::Scalar>| -> Vec<D::Scalar> {
        values.iter().map(|v| D::Scalar::from_f64(v.widen_f64() * steepness)).collect()
    };
    let z = problem.values::<D::Scalar>(10, n_src * width);
    let score_src = scaled(problem.values(11, n_src * heads));
    let score_dst = scaled(problem.values(12, n_dst * heads));
    let dout = problem.values::<D::Scalar>(13, n_dst * width);
    let before =
        |s: usize, t: usize, h: usize| (score_src[s * heads + h] + score_dst[t * heads + h]).widen_f64();
    let softmax = problem.softmax(|s, t, h| leaky(before(s, t, h)));
    let alpha = &softmax.alpha;

    let (a, vertices) = (problem.on(device), problem.vertices_on(device));
    let on = |values: &[D::Scalar]| Guarded::new(device, values);
    let (z_on, src_on, dst_on, dout_on) = (on(&z), on(&score_src), on(&score_dst), on(&dout));
    let [mut out, mut max, mut sum] =
        [n_dst * width, n_dst * heads, n_dst * heads].map(|len| output(device, len));
    let (spec, z_view) = (problem.spec(&vertices), z_on.matrix(n_src, width));
    device
        .gat(
            a.csr(),
            spec,
            z_view,
            src_on.view(),
            dst_on.view(),
            out.matrix_mut(n_dst, width),
            max.view_mut(),
            sum.view_mut(),
        )
        .unwrap();
    let (z, dout) = (to_f64(&z), to_f64(&dout));
    close("out", &out.read(), &problem.aggregate(alpha, &z));
    close("max", &max.read(), &softmax.max);
    close("sum", &sum.read(), &softmax.sum);

    let (g, kept) = problem.score_gradient(alpha, &z, &dout);
    let (mut dz_ref, mut dsrc_ref) = (vec![0.0; n_src * width], vec![0.0; n_src * heads]);
    let (mut own_ref, mut edge_ref) = (vec![0.0; n_dst * heads], vec![0.0; n_edge * heads]);
    let (transpose, edge) = problem.transpose_on(device);
    let mut positions = vec![0; n_edge];
    edge.iter().enumerate().for_each(|(p, &e)| positions[e as usize] = p);
    for (m, (s, t, entry)) in problem.messages().into_iter().enumerate() {
        for h in 0..heads {
            let g = g[m * heads + h] * leaky_slope(before(s, t, h));
            dsrc_ref[s * heads + h] += g;
            match entry {
                Some(e) => edge_ref[positions[e] * heads + h] = g,
                None => own_ref[t * heads + h] = g,
            }
            for c in h * dim..(h + 1) * dim {
                dz_ref[s * width + c] += kept[m * heads + h] * dout[t * width + c];
            }
        }
    }
    let [mut dz, mut dsrc, mut own, mut dedge] =
        [n_src * width, n_src * heads, n_dst * heads, n_edge * heads].map(|len| output(device, len));
    let saved = GatSaved {
        z: z_view,
        score_src: src_on.view(),
        score_dst: dst_on.view(),
        max: max.view(),
        sum: sum.view(),
        out: out.matrix(n_dst, width),
        dout: dout_on.matrix(n_dst, width),
    };
    let gradients = GatGradients {
        dz: dz.matrix_mut(n_src, width),
        dscore_src: dsrc.view_mut(),
        dscore_dst_own: own.view_mut(),
        dscore_edge: dedge.view_mut(),
    };
    device.gat_backward(transpose.csr(), spec, saved, gradients).unwrap();
    close("dz", &dz.read(), &dz_ref);
    close("dscore_src", &dsrc.read(), &dsrc_ref);
    close("dscore_dst_own", &own.read(), &own_ref);
    close("dscore_edge", &dedge.read(), &edge_ref);
}

fn gatv2_agrees<D: Attention>(device: &D, problem: &Problem, steepness: f64) {
    let (width, heads, dim) = (problem.width(), problem.heads, problem.dim);
    let (n_dst, n_src) = (problem.n_dst(), problem.n_src());
    let z_src = problem.values::<D::Scalar>(20, n_src * width);
    let z_dst = problem.values::<D::Scalar>(21, n_dst * width);
    let dout = problem.values::<D::Scalar>(23, n_dst * width);
    // Scores of about the steepness, whatever the width.
    let scale = steepness / (dim as f64).sqrt();
    let a: Vec<_> = problem.values::<D::Scalar>(22, width);
    let a: Vec<_> = a.iter().map(|a| D::Scalar::from_f64(a.widen_f64() * scale)).collect();
    let on = |values: &[D::Scalar]| Guarded::new(device, values);
    let (src_on, dst_on, dout_on, a_on) = (on(&z_src), on(&z_dst), on(&dout), on(&a));
    let [z_src, z_dst, dout, a] = [&z_src, &z_dst, &dout, &a].map(|values| to_f64(values));
    let u = |s: usize, t: usize, c: usize| z_src[s * width + c] + z_dst[t * width + c];
    let softmax = problem.softmax(|s, t, h| (h * dim..(h + 1) * dim).map(|c| a[c] * leaky(u(s, t, c))).sum());

    let (pattern, vertices) = (problem.on(device), problem.vertices_on(device));
    let spec = problem.spec(&vertices);
    let operands = Gatv2Operands::<D> {
        z_src: src_on.matrix(n_src, width),
        z_dst: dst_on.matrix(n_dst, width),
        attention: a_on.view(),
    };
    let [mut out, mut max, mut sum] =
        [n_dst * width, n_dst * heads, n_dst * heads].map(|len| output(device, len));
    let out_view = out.matrix_mut(n_dst, width);
    device.gatv2(pattern.csr(), spec, operands, out_view, max.view_mut(), sum.view_mut()).unwrap();
    close("out", &out.read(), &problem.aggregate(&softmax.alpha, &z_src));
    close("max", &max.read(), &softmax.max);
    close("sum", &sum.read(), &softmax.sum);

    let (g, kept) = problem.score_gradient(&softmax.alpha, &z_src, &dout);
    let (mut dsrc_ref, mut ddst_ref) = (vec![0.0; n_src * width], vec![0.0; n_dst * width]);
    let (messages, n_edge) = (problem.messages(), problem.pattern.n_edge());
    let (mut da_ref, mut messages_ref) = (vec![0.0; n_dst * width], vec![0.0; messages.len() * 2 * heads]);
    for (m, &(s, t, entry)) in messages.iter().enumerate() {
        let place = entry.unwrap_or(n_edge + t) * 2 * heads;
        for h in 0..heads {
            let (g, kept) = (g[m * heads + h], kept[m * heads + h]);
            (messages_ref[place + h], messages_ref[place + heads + h]) = (kept, g);
            for c in h * dim..(h + 1) * dim {
                let du = g * a[c] * leaky_slope(u(s, t, c));
                dsrc_ref[s * width + c] += kept * dout[t * width + c] + du;
                ddst_ref[t * width + c] += du;
                da_ref[t * width + c] += g * leaky(u(s, t, c));
            }
        }
    }
    let [mut ddst, mut da, mut factors, mut dsrc] =
        [n_dst * width, n_dst * width, messages.len() * 2 * heads, n_src * width]
            .map(|len| output(device, len));
    let dout_view = dout_on.matrix(n_dst, width);
    device
        .gatv2_backward_destinations(
            pattern.csr(),
            spec,
            operands,
            max.view(),
            sum.view(),
            dout_view,
            ddst.matrix_mut(n_dst, width),
            da.matrix_mut(n_dst, width),
            factors.view_mut(),
        )
        .unwrap();
    close("messages", &factors.read(), &messages_ref);
    close("dz_dst", &ddst.read(), &ddst_ref);
    close("dattention", &da.read(), &da_ref);
    let (transpose, _) = problem.transpose_on(device);
    let dsrc_view = dsrc.matrix_mut(n_src, width);
    device
        .gatv2_backward_sources(transpose.csr(), spec, operands, dout_view, factors.view(), dsrc_view)
        .unwrap();
    close("dz_src", &dsrc.read(), &dsrc_ref);
}

fn edge_softmax_agrees<D: Attention>(device: &D, problem: &Problem) {
    let (indptr, heads, len) =
        (&problem.pattern.indptr, problem.heads, problem.pattern.n_edge() * problem.heads);
    let (x, dout) = (problem.values::<D::Scalar>(30, len), problem.values::<D::Scalar>(31, len));
    let (x_on, dout_on) = (Guarded::new(device, &x), Guarded::new(device, &dout));
    let (x, dout) = (to_f64(&x), to_f64(&dout));
    let (mut y_ref, mut dx_ref) = (vec![0.0; len], vec![0.0; len]);
    for ends in indptr.windows(2) {
        for h in 0..heads {
            let row = || (ends[0]..ends[1]).map(|e| e as usize * heads + h);
            let sum: f64 = row().map(|i| x[i].exp()).sum();
            row().for_each(|i| y_ref[i] = x[i].exp() / sum);
            let mean: f64 = row().map(|i| y_ref[i] * dout[i]).sum();
            row().for_each(|i| dx_ref[i] = y_ref[i] * (dout[i] - mean));
        }
    }
    let pattern = problem.on(device);
    let (mut y, mut dx) = (output(device, len), output(device, len));
    device.edge_softmax(pattern.csr(), heads, x_on.view(), y.view_mut()).unwrap();
    device.edge_softmax_backward(pattern.csr(), heads, y.view(), dout_on.view(), dx.view_mut()).unwrap();
    close("softmax", &y.read(), &y_ref);
    close("its gradient", &dx.read(), &dx_ref);
}

fn head_dot_agrees<D: Attention>(device: &D, problem: &Problem, n: usize) {
    let (width, heads) = (problem.width(), problem.heads);
    let (x, a) = (problem.values::<D::Scalar>(40, n * width), problem.values::<D::Scalar>(41, width));
    let dout = problem.values::<D::Scalar>(42, n * heads);
    let one = D::Scalar::from_f64(1.0);
    let (mut dx, mut assigned) = (Guarded::new(device, &vec![one; n * width]), output(device, n * width));
    let (mut out, mut da) = (output(device, n * heads), output(device, width));
    let (x_on, a_on, dout_on) =
        (Guarded::new(device, &x), Guarded::new(device, &a), Guarded::new(device, &dout));
    let (x, a, dout) = (to_f64(&x), to_f64(&a), to_f64(&dout));
    let (mut out_ref, mut dx_ref, mut da_ref) =
        (vec![0.0; n * heads], vec![0.0; n * width], vec![0.0; width]);
    for i in 0..n {
        for c in 0..width {
            let h = c / problem.dim;
            out_ref[i * heads + h] += x[i * width + c] * a[c];
            dx_ref[i * width + c] = dout[i * heads + h] * a[c];
            da_ref[c] += dout[i * heads + h] * x[i * width + c];
        }
    }
    device.head_dot(x_on.matrix(n, width), a_on.view(), heads, out.view_mut()).unwrap();
    let input = |dx: MatrixMut<'_, D>, write| {
        device.head_dot_backward_input(a_on.view(), heads, dout_on.view(), dx, write).unwrap();
    };
    input(assigned.matrix_mut(n, width), Write::Assign);
    input(dx.matrix_mut(n, width), Write::Add);
    device.head_dot_backward_vector(x_on.matrix(n, width), heads, dout_on.view(), da.view_mut()).unwrap();
    close("products", &out.read(), &out_ref);
    close("dx", &assigned.read(), &dx_ref);
    dx_ref.iter_mut().for_each(|dx| *dx += 1.0);
    close("dx, added", &dx.read(), &dx_ref);
    close("da", &da.read(), &da_ref);
}

fn sums_of_ends<D: Attention + Sddmm>(device: &D) {
    for_problems(device, |problem| {
        let (n_dst, n_src, heads) = (problem.n_dst(), problem.n_src(), problem.heads);
        let left = problem.values::<D::Scalar>(32, n_src * heads);
        let right = problem.values::<D::Scalar>(33, n_dst * heads);
        let mut sums = output(device, problem.pattern.n_edge() * heads);
        let (left_on, right_on) = (Guarded::new(device, &left), Guarded::new(device, &right));
        let (x, y) = (left_on.matrix(n_src, heads), right_on.matrix(n_dst, heads));
        device.sddmm_add(problem.on(device).csr(), x, y, sums.view_mut(), Write::Assign).unwrap();
        let mut expected = Vec::new();
        for (t, s, _) in problem.pattern.entries() {
            let sum = |h: usize| (left[s * heads + h] + right[t * heads + h]).widen_f64();
            expected.extend((0..heads).map(sum));
        }
        close("sums", &sums.read(), &expected);
    });
}

/// One bad number of a source reaches the destinations that attend to it, and no others.
fn nan_shows<D: Attention>(device: &D) {
    let (heads, width) = (2, 8);
    let scalar = D::Scalar::from_f64;
    let indptr = Guarded::new(device, &[0u32, 3, 5]);
    let indices = Guarded::new(device, &[0u32, 1, 2, 1, 1]);
    let a = Csr {
        n_rows: 2,
        n_cols: 3,
        indptr: indptr.view(),
        indices: indices.view(),
        edge: None,
        longest_row: None,
    };
    let spec = AttentionSpec { heads, slope: 0.2, self_loop: false, dropout: None };
    let mut z = vec![scalar(0.5); 3 * width];
    z[2 * width] = D::Scalar::from_f64(f64::NAN);
    let mut score = vec![scalar(0.5); 3 * heads];
    score[2 * heads] = D::Scalar::from_f64(f64::NAN);
    let (z, score, zeros) =
        (Guarded::new(device, &z), Guarded::new(device, &score), Guarded::new(device, &[scalar(0.0); 16]));
    let run = |gat: bool| {
        let [mut out, mut max, mut sum] = [2 * width, 2 * heads, 2 * heads].map(|len| output(device, len));
        let (out_view, max, sum) = (out.matrix_mut(2, width), max.view_mut(), sum.view_mut());
        let z = z.matrix(3, width);
        if gat {
            let own = D::slice(zeros.view(), 0..2 * heads);
            device.gat(a, spec, z, score.view(), own, out_view, max, sum).unwrap();
        } else {
            let z_dst = Matrix::from_view(zeros.view(), 2, width).unwrap();
            let attention = D::slice(zeros.view(), 0..width);
            device.gatv2(a, spec, Gatv2Operands { z_src: z, z_dst, attention }, out_view, max, sum).unwrap();
        }
        to_f64(&out.read())
    };
    for gat in [true, false] {
        let out = run(gat);
        // Column 0 of source 2 is one, and its score is one in head 0.
        assert!(out[..4].iter().all(|v| v.is_nan()), "{out:?}");
        assert_close("out", &out[4..], &vec![0.5; out.len() - 4], |_, _| 1e-6);
    }
    let rows = Rows::new(device, &[0, 2, 4]);
    let x = Guarded::new(device, &[1.0, f64::NAN, 3.0, 3.0].map(D::Scalar::from_f64));
    let mut out = output(device, 4);
    device.edge_softmax(rows.csr(), 1, x.view(), out.view_mut()).unwrap();
    let out = to_f64(&out.read());
    assert!(out[0].is_nan() && out[1].is_nan() && out[2] == 0.5 && out[3] == 0.5, "{out:?}");
}

fn softmax_of_large_scores_and_of_parallel_edges<D: Attention>(device: &D) {
    // Rows of 2, 2, 0, 2 and 3 edges, the last with two parallel ones: the softmax does not merge them.
    let rows = Rows::new(device, &[0, 2, 4, 4, 6, 9]);
    let x = [1000.0, 1001.0, 0.0, 0.0, 1000.0, 1000.0, 2.0, 2.0, 2.0].map(D::Scalar::from_f64);
    let (x, mut out) = (Guarded::new(device, &x), output(device, 9));
    device.edge_softmax(rows.csr(), 1, x.view(), out.view_mut()).unwrap();
    let (low, high) = (1.0 / (1.0 + 1f64.exp()), 1.0 / (1.0 + (-1f64).exp()));
    assert_close("probabilities", &[low, high], &[0.2689, 0.7311], |_, _| 5e-5);
    let third = 1.0 / 3.0;
    let expected = [low, high, 0.5, 0.5, 0.5, 0.5, third, third, third];
    let tolerance = 4.0 * <D::Scalar as num_traits::Float>::epsilon().widen_f64();
    assert_close("out", &out.read(), &expected, |_, _| tolerance);
}

fn wrong_arguments_are_errors<D: Attention>(device: &D) {
    let zeros = Guarded::new(device, &[D::Scalar::from_f64(0.0); 6]);
    let some = |len| D::slice(zeros.view(), 0..len);
    let mut out = Guarded::new(device, &[D::Scalar::from_f64(7.0); 4]);
    let rows = Rows::new(device, &[0, 2]);
    let a = rows.csr();
    let mut softmax =
        |a, heads, x, len| device.edge_softmax(a, heads, x, D::slice_mut(out.view_mut(), 0..len)).is_err();
    assert!(softmax(a, 0, some(2), 2));
    assert!(softmax(a, 1, some(2), 4));
    assert!(softmax(a, 1, some(1), 2), "fewer values than entries");
    assert!(softmax(a, 1, some(4), 4), "more values than entries");
    assert!(softmax(a, usize::MAX, some(2), 2));
    assert!(softmax(Csr { n_rows: 2, ..a }, 1, some(2), 2));
    assert!(softmax(Csr { edge: Some(a.indices), ..a }, 1, some(2), 2));
    for (n_dout, n_dx) in [(3, 2), (2, 3)] {
        let dx = D::slice_mut(out.view_mut(), 0..n_dx);
        assert!(device.edge_softmax_backward(a, 1, some(2), some(n_dout), dx).is_err());
    }
    assert!(device.head_dot(zeros.matrix(2, 3), some(3), 2, out.view_mut()).is_err());
    assert!(device.head_dot(zeros.matrix(2, 3), some(2), 3, out.view_mut()).is_err());
    assert!(device.head_dot_backward_input(some(2), 2, some(3), out.matrix_mut(2, 2), Write::Add).is_err());
    assert!(device.head_dot_backward_vector(zeros.matrix(2, 3), 3, some(4), out.view_mut()).is_err());
    assert_eq!(to_f64(&out.read()), [7.0; 4]);

    let (indptr, indices) = (Guarded::new(device, &[0u32, 1, 1]), Guarded::new(device, &[0u32]));
    let a = Csr {
        n_rows: 2,
        n_cols: 1,
        indptr: indptr.view(),
        indices: indices.view(),
        edge: None,
        longest_row: None,
    };
    let spec = AttentionSpec { heads: 1, slope: 0.2, self_loop: true, dropout: None };
    let (mut max, mut sum) = (output(device, 2), output(device, 2));
    let mut gat = |a, spec| {
        let (z, out) = (Matrix::from_view(some(2), 1, 2).unwrap(), out.matrix_mut(2, 2));
        device.gat(a, spec, z, some(1), some(2), out, max.view_mut(), sum.view_mut())
    };
    assert!(gat(a, spec).is_err(), "a self-loop of a destination that is no source");
    let plain = AttentionSpec { self_loop: false, ..spec };
    assert!(gat(a, plain).is_ok());
    assert!(gat(a, AttentionSpec { heads: 0, ..plain }).is_err());
    assert!(gat(Csr { edge: Some(indices.view()), ..a }, plain).is_err());
    assert!(gat(Csr { n_rows: 1, ..a }, plain).is_err());
    let dropout = AttentionDropout { p: 1.0, seed: 0, stream: 0, vertices: indices.view() };
    assert!(gat(a, AttentionSpec { dropout: Some(dropout), ..plain }).is_err());
    let short = AttentionDropout { p: 0.5, vertices: D::slice(indices.view(), 0..0), ..dropout };
    assert!(gat(a, AttentionSpec { dropout: Some(short), ..plain }).is_err());
}
