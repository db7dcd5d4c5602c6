use proptest::prelude::*;

use super::*;
use crate::device::{AttentionDropout, Sddmm, Spmm, Weights};
use crate::rng;

/// A problem small enough for the plain formulas.
#[derive(Clone, Debug)]
struct Problem {
    n_dst: usize,
    n_src: usize,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    heads: usize,
    dim: usize,
    self_loop: bool,
    p: f64,
    seed: u64,
}

const SLOPE: f64 = 0.2;
const STREAM: u64 = 15 << 32 | 3;

fn problems() -> impl Strategy<Value = Problem> {
    let shape = (0usize..7, 0usize..9, 0usize..60, prop::sample::select(vec![1usize, 2, 3, 4, 8, 11]));
    let width = prop::sample::select(vec![1usize, 2, 3, 4, 7, 8, 16, 21, 32, 40, 70]);
    let options = (any::<bool>(), any::<bool>(), prop::sample::select(vec![0.0, 0.3, 0.7]), any::<u64>());
    (shape, width, options).prop_map(|((n_dst, extra, n_edge, heads), dim, (self_loop, hub, p, seed))| {
        let n_src = n_dst + extra;
        let n_edge = if n_dst == 0 { 0 } else { n_edge };
        let mut edges: Vec<(u32, u32)> = (0..n_edge as u64)
            .map(|e| {
                let t = if hub && e > 5 { 0 } else { rng::bounded(seed, 2, e, n_dst as u64) as u32 };
                (t, rng::bounded(seed, 3, e, n_src as u64) as u32)
            })
            .collect();
        edges.sort_unstable();
        let end = |t: usize| edges.partition_point(|&(row, _)| (row as usize) < t) as u32;
        let indptr = (0..=n_dst).map(end).collect();
        let indices = edges.iter().map(|&(_, s)| s).collect();
        Problem { n_dst, n_src, indptr, indices, heads, dim, self_loop, p, seed }
    })
}

impl Problem {
    fn values(&self, stream: u64, len: usize) -> Vec<f64> {
        (0..len as u64).map(|i| rng::normal(self.seed, stream, i)).collect()
    }

    fn width(&self) -> usize {
        self.heads * self.dim
    }

    fn vertices(&self) -> Vec<u32> {
        (0..self.n_src as u32).map(|v| v * 7 + 3).collect()
    }

    /// Of every message: source, destination, entry (none for a self-loop).
    fn messages(&self) -> Vec<(usize, usize, Option<usize>)> {
        let mut messages = Vec::new();
        for t in 0..self.n_dst {
            if self.self_loop {
                messages.push((t, t, None));
            }
            for e in self.indptr[t] as usize..self.indptr[t + 1] as usize {
                messages.push((self.indices[e] as usize, t, Some(e)));
            }
        }
        messages
    }

    fn keep(&self, s: usize, t: usize, h: usize) -> f64 {
        if self.p == 0.0 {
            return 1.0;
        }
        let vertices = self.vertices();
        let counter =
            [vertices[s], vertices[t], STREAM as u32, (STREAM >> 32) as u32 + ((h as u32 / 4) << 16)];
        let word = rng::philox4x32(counter, [self.seed as u32, (self.seed >> 32) as u32])[h % 4];
        if f64::from(word) >= (self.p * 2f64.powi(32)).floor() { 1.0 / (1.0 - self.p) } else { 0.0 }
    }

    fn csr<S: Scalar>(&self) -> Csr<'_, Cpu<S>> {
        Csr {
            n_rows: self.n_dst,
            n_cols: self.n_src,
            indptr: &self.indptr,
            indices: &self.indices,
            edge: None,
        }
    }

    fn spec<'a, S: Scalar>(&self, vertices: &'a [u32]) -> AttentionSpec<'a, Cpu<S>> {
        let dropout = (self.p > 0.0).then_some(AttentionDropout {
            p: self.p,
            seed: self.seed,
            stream: STREAM,
            vertices,
        });
        AttentionSpec { heads: self.heads, slope: SLOPE, self_loop: self.self_loop, dropout }
    }

    /// Attention by messages and heads from scores.
    fn softmax(&self, score: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        let messages = self.messages();
        let mut alpha = vec![0.0; messages.len() * self.heads];
        for (m, &(s, t, _)) in messages.iter().enumerate() {
            for h in 0..self.heads {
                let row = messages.iter().filter(|&&(_, other, _)| other == t);
                let sum: f64 = row.map(|&(s, t, _)| (score(s, t, h)).exp()).sum();
                alpha[m * self.heads + h] = score(s, t, h).exp() / sum;
            }
        }
        alpha
    }

    fn aggregate(&self, alpha: &[f64], z: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.n_dst * self.width()];
        for (m, (s, t, _)) in self.messages().into_iter().enumerate() {
            for c in 0..self.width() {
                let h = c / self.dim;
                out[t * self.width() + c] +=
                    alpha[m * self.heads + h] * self.keep(s, t, h) * z[s * self.width() + c];
            }
        }
        out
    }

    /// The gradient of the scores, by messages and heads, and `α̃`.
    fn score_gradient(&self, alpha: &[f64], z: &[f64], dout: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let (messages, width) = (self.messages(), self.width());
        let mut dalpha = vec![0.0; alpha.len()];
        let mut kept = vec![0.0; alpha.len()];
        for (m, &(s, t, _)) in messages.iter().enumerate() {
            for h in 0..self.heads {
                let keep = self.keep(s, t, h);
                let columns = h * self.dim..(h + 1) * self.dim;
                let dot: f64 = columns.map(|c| dout[t * width + c] * z[s * width + c]).sum();
                dalpha[m * self.heads + h] = keep * dot;
                kept[m * self.heads + h] = keep * alpha[m * self.heads + h];
            }
        }
        let mut g = vec![0.0; alpha.len()];
        for (m, &(_, t, _)) in messages.iter().enumerate() {
            for h in 0..self.heads {
                let row = messages.iter().enumerate().filter(|&(_, &(_, other, _))| other == t);
                let mean: f64 =
                    row.map(|(m, _)| alpha[m * self.heads + h] * dalpha[m * self.heads + h]).sum();
                g[m * self.heads + h] = alpha[m * self.heads + h] * (dalpha[m * self.heads + h] - mean);
            }
        }
        (g, kept)
    }
}

fn leaky(x: f64) -> f64 {
    if x > 0.0 { x } else { SLOPE * x }
}

fn leaky_slope(x: f64) -> f64 {
    if x > 0.0 { 1.0 } else { SLOPE }
}

fn cast<S: Scalar>(x: &[f64]) -> Vec<S> {
    x.iter().map(|&x| S::from_f64(x)).collect()
}

fn poison<S: Scalar>(len: usize) -> Vec<S> {
    vec![S::nan(); len]
}

#[track_caller]
fn close<S: Scalar>(what: &str, actual: &[S], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let tolerance = if size_of::<S>() == 4 { 2e-4 } else { 1e-10 };
    let largest = expected.iter().fold(1.0f64, |m, x| m.max(x.abs()));
    for (i, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let difference = (actual.widen_f64() - expected).abs();
        assert!(difference <= tolerance * largest, "{what}[{i}] is {actual:?}, expected {expected}");
    }
}

fn transpose<S: Scalar>(device: &Cpu<S>, problem: &Problem) -> [Vec<u32>; 3] {
    let n_edge = problem.indices.len();
    let (mut indptr, mut indices, mut edge) = (vec![0; problem.n_src + 1], vec![0; n_edge], vec![0; n_edge]);
    device.transpose(problem.csr(), &mut indptr, &mut indices, &mut edge).unwrap();
    [indptr, indices, edge]
}

fn transposed<'a, S: Scalar>(
    problem: &Problem,
    [indptr, indices, edge]: &'a [Vec<u32>; 3],
) -> Csr<'a, Cpu<S>> {
    Csr { n_rows: problem.n_src, n_cols: problem.n_dst, indptr, indices, edge: Some(edge) }
}

fn gat_agrees<S: Scalar>(problem: &Problem) {
    let (device, width, heads) = (Cpu::<S>::new(), problem.width(), problem.heads);
    let (n_dst, n_src, n_edge) = (problem.n_dst, problem.n_src, problem.indices.len());
    let z = problem.values(10, n_src * width);
    let (score_src, score_dst) = (problem.values(11, n_src * heads), problem.values(12, n_dst * heads));
    let dout = problem.values(13, n_dst * width);
    let before = |s: usize, t: usize, h: usize| score_src[s * heads + h] + score_dst[t * heads + h];
    let alpha = problem.softmax(|s, t, h| leaky(before(s, t, h)));

    let vertices = problem.vertices();
    let (z_s, src_s, dst_s, dout_s) = (cast(&z), cast(&score_src), cast(&score_dst), cast(&dout));
    let z_s = Matrix::<Cpu<S>>::new(&z_s[..], n_src, width).unwrap();
    let (mut out, mut max, mut sum) = (poison(n_dst * width), poison(n_dst * heads), poison(n_dst * heads));
    let out_view = MatrixMut::new(&mut out[..], n_dst, width).unwrap();
    let spec = problem.spec(&vertices);
    device.gat(problem.csr(), spec, z_s, &src_s, &dst_s, out_view, &mut max, &mut sum).unwrap();
    close("out", &out, &problem.aggregate(&alpha, &z));

    let (g, kept) = problem.score_gradient(&alpha, &z, &dout);
    let (mut dz_ref, mut dsrc_ref) = (vec![0.0; n_src * width], vec![0.0; n_src * heads]);
    let mut ddst_ref = vec![0.0; n_dst * heads];
    for (m, (s, t, _)) in problem.messages().into_iter().enumerate() {
        for c in 0..width {
            dz_ref[s * width + c] += kept[m * heads + c / problem.dim] * dout[t * width + c];
        }
        for h in 0..heads {
            let g = g[m * heads + h] * leaky_slope(before(s, t, h));
            dsrc_ref[s * heads + h] += g;
            ddst_ref[t * heads + h] += g;
        }
    }
    let arrays = transpose(&device, problem);
    let (mut dz, mut dsrc) = (poison(n_src * width), poison(n_src * heads));
    let (mut ddst, mut dedge) = (poison(n_dst * heads), poison(n_edge * heads));
    let saved = GatSaved {
        z: z_s,
        score_src: &src_s,
        score_dst: &dst_s,
        max: &max,
        sum: &sum,
        out: Matrix::new(&out[..], n_dst, width).unwrap(),
        dout: Matrix::new(&dout_s[..], n_dst, width).unwrap(),
    };
    let gradients = GatGradients {
        dz: MatrixMut::new(&mut dz[..], n_src, width).unwrap(),
        dscore_src: &mut dsrc[..],
        dscore_dst_own: &mut ddst[..],
        dscore_edge: &mut dedge[..],
    };
    device.gat_backward(transposed(problem, &arrays), spec, saved, gradients).unwrap();
    let mut positions = vec![u32::MAX; n_edge];
    device.invert_permutation(&arrays[2], &mut positions).unwrap();
    let by_row = Csr { n_cols: n_edge, indices: &positions[..], ..problem.csr() };
    let dedge = Matrix::new(&dedge[..], n_edge, heads).unwrap();
    let rest = MatrixMut::new(&mut ddst[..], n_dst, heads).unwrap();
    device.spmm(by_row, Weights::ones(), dedge, rest, Write::Add).unwrap();
    close("dz", &dz, &dz_ref);
    close("dscore_src", &dsrc, &dsrc_ref);
    close("dscore_dst", &ddst, &ddst_ref);
}

fn gatv2_agrees<S: Scalar>(problem: &Problem) {
    let (device, width, heads) = (Cpu::<S>::new(), problem.width(), problem.heads);
    let (n_dst, n_src) = (problem.n_dst, problem.n_src);
    let (z_src, z_dst) = (problem.values(20, n_src * width), problem.values(21, n_dst * width));
    // Scores of about 1, whatever the width.
    let a: Vec<f64> = problem.values(22, width).iter().map(|a| a / (problem.dim as f64).sqrt()).collect();
    let dout = problem.values(23, n_dst * width);
    let u = |s: usize, t: usize, c: usize| z_src[s * width + c] + z_dst[t * width + c];
    let score = |s: usize, t: usize, h: usize| -> f64 {
        (h * problem.dim..(h + 1) * problem.dim).map(|c| a[c] * leaky(u(s, t, c))).sum()
    };
    let alpha = problem.softmax(score);

    let vertices = problem.vertices();
    let (src_s, dst_s, a_s, dout_s) = (cast(&z_src), cast(&z_dst), cast(&a), cast(&dout));
    let operands = Gatv2Operands::<Cpu<S>> {
        z_src: Matrix::new(&src_s[..], n_src, width).unwrap(),
        z_dst: Matrix::new(&dst_s[..], n_dst, width).unwrap(),
        attention: &a_s,
    };
    let dout_s = Matrix::new(&dout_s[..], n_dst, width).unwrap();
    let (mut out, mut max, mut sum) = (poison(n_dst * width), poison(n_dst * heads), poison(n_dst * heads));
    let out_view = MatrixMut::new(&mut out[..], n_dst, width).unwrap();
    let spec = problem.spec(&vertices);
    device.gatv2(problem.csr(), spec, operands, out_view, &mut max, &mut sum).unwrap();
    close("out", &out, &problem.aggregate(&alpha, &z_src));

    let (g, kept) = problem.score_gradient(&alpha, &z_src, &dout);
    let (mut dsrc_ref, mut ddst_ref) = (vec![0.0; n_src * width], vec![0.0; n_dst * width]);
    let mut da_ref = vec![0.0; n_dst * width];
    for (m, (s, t, _)) in problem.messages().into_iter().enumerate() {
        for c in 0..width {
            let (g, kept) = (g[m * heads + c / problem.dim], kept[m * heads + c / problem.dim]);
            let du = g * a[c] * leaky_slope(u(s, t, c));
            dsrc_ref[s * width + c] += kept * dout[t * width + c] + du;
            ddst_ref[t * width + c] += du;
            da_ref[t * width + c] += g * leaky(u(s, t, c));
        }
    }
    let n_message = problem.messages().len();
    let (mut ddst, mut da) = (poison(n_dst * width), poison(n_dst * width));
    let (mut messages, mut dsrc) = (poison(n_message * 2 * heads), poison(n_src * width));
    let ddst_view = MatrixMut::new(&mut ddst[..], n_dst, width).unwrap();
    let da_view = MatrixMut::new(&mut da[..], n_dst, width).unwrap();
    device
        .gatv2_backward_destinations(
            problem.csr(),
            spec,
            operands,
            &max,
            &sum,
            dout_s,
            ddst_view,
            da_view,
            &mut messages,
        )
        .unwrap();
    let arrays = transpose(&device, problem);
    let dsrc_view = MatrixMut::new(&mut dsrc[..], n_src, width).unwrap();
    device
        .gatv2_backward_sources(transposed(problem, &arrays), spec, operands, dout_s, &messages, dsrc_view)
        .unwrap();
    close("dz_dst", &ddst, &ddst_ref);
    close("dattention", &da, &da_ref);
    close("dz_src", &dsrc, &dsrc_ref);
}

fn edge_softmax_agrees<S: Scalar>(problem: &Problem) {
    let (device, heads, n_edge) = (Cpu::<S>::new(), problem.heads, problem.indices.len());
    let (x, dout) = (problem.values(30, n_edge * heads), problem.values(31, n_edge * heads));
    let (mut y_ref, mut dx_ref) = (vec![0.0; x.len()], vec![0.0; x.len()]);
    for ends in problem.indptr.windows(2) {
        for h in 0..heads {
            let row: Vec<usize> = (ends[0]..ends[1]).map(|e| e as usize * heads + h).collect();
            let sum: f64 = row.iter().map(|&i| x[i].exp()).sum();
            row.iter().for_each(|&i| y_ref[i] = x[i].exp() / sum);
            let mean: f64 = row.iter().map(|&i| y_ref[i] * dout[i]).sum();
            row.iter().for_each(|&i| dx_ref[i] = y_ref[i] * (dout[i] - mean));
        }
    }
    let (mut y, mut dx) = (poison::<S>(x.len()), poison::<S>(x.len()));
    device.edge_softmax(&problem.indptr, heads, &cast::<S>(&x), &mut y).unwrap();
    device.edge_softmax_backward(&problem.indptr, heads, &y, &cast::<S>(&dout), &mut dx).unwrap();
    close("softmax", &y, &y_ref);
    close("its gradient", &dx, &dx_ref);

    let (left, right) =
        (problem.values(32, problem.n_src * heads), problem.values(33, problem.n_dst * heads));
    let mut sums = poison::<S>(n_edge * heads);
    let (left_s, right_s) = (cast::<S>(&left), cast::<S>(&right));
    let left_s = Matrix::new(&left_s[..], problem.n_src, heads).unwrap();
    let right_s = Matrix::new(&right_s[..], problem.n_dst, heads).unwrap();
    device.sddmm_add(problem.csr(), left_s, right_s, &mut sums, Write::Assign).unwrap();
    let mut expected = Vec::new();
    for (s, t, entry) in problem.messages() {
        if entry.is_some() {
            expected.extend((0..heads).map(|h| left[s * heads + h] + right[t * heads + h]));
        }
    }
    close("sums", &sums, &expected);
}

fn head_dot_agrees<S: Scalar>(problem: &Problem) {
    let (device, width, heads, n) = (Cpu::<S>::new(), problem.width(), problem.heads, problem.n_src);
    let (x, a, dout) =
        (problem.values(40, n * width), problem.values(41, width), problem.values(42, n * heads));
    let (mut out_ref, mut dx_ref, mut da_ref) =
        (vec![0.0; n * heads], vec![1.0; n * width], vec![0.0; width]);
    for i in 0..n {
        for c in 0..width {
            let h = c / problem.dim;
            out_ref[i * heads + h] += x[i * width + c] * a[c];
            dx_ref[i * width + c] += dout[i * heads + h] * a[c];
            da_ref[c] += dout[i * heads + h] * x[i * width + c];
        }
    }
    let (x_s, a_s, dout_s) = (cast::<S>(&x), cast::<S>(&a), cast::<S>(&dout));
    let x_s = Matrix::<Cpu<S>>::new(&x_s[..], n, width).unwrap();
    let (mut out, mut dx, mut da) = (poison(n * heads), vec![S::one(); n * width], poison(width));
    device.head_dot(x_s, &a_s, heads, &mut out).unwrap();
    let dx_view = MatrixMut::new(&mut dx[..], n, width).unwrap();
    device.head_dot_backward_input(&a_s, heads, &dout_s, dx_view, Write::Add).unwrap();
    device.head_dot_backward_vector(x_s, heads, &dout_s, &mut da).unwrap();
    close("products", &out, &out_ref);
    close("dx", &dx, &dx_ref);
    close("da", &da, &da_ref);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn kernels_agree_with_plain_formulas(problem in problems()) {
        gat_agrees::<f64>(&problem);
        gat_agrees::<f32>(&problem);
        gatv2_agrees::<f64>(&problem);
        gatv2_agrees::<f32>(&problem);
        edge_softmax_agrees::<f64>(&problem);
        edge_softmax_agrees::<f32>(&problem);
        head_dot_agrees::<f64>(&problem);
        head_dot_agrees::<f32>(&problem);
    }
}

#[test]
fn softmax_of_large_scores_and_of_parallel_edges() {
    fn run<S: Scalar>() {
        let device = Cpu::<S>::new();
        // Rows of 2, 2, 0, 2 and 3 edges, the last with two parallel ones: the softmax does not merge them.
        let indptr = [0, 2, 4, 4, 6, 9];
        let x = cast::<S>(&[1000.0, 1001.0, 0.0, 0.0, 1000.0, 1000.0, 2.0, 2.0, 2.0]);
        let mut out = poison::<S>(9);
        device.edge_softmax(&indptr, 1, &x, &mut out).unwrap();
        let (low, high) = (1.0 / (1.0 + 1f64.exp()), 1.0 / (1.0 + (-1f64).exp()));
        assert!((low - 0.2689).abs() < 5e-5 && (high - 0.7311).abs() < 5e-5);
        let third = 1.0 / 3.0;
        let expected = [low, high, 0.5, 0.5, 0.5, 0.5, third, third, third];
        let tolerance = 4.0 * S::epsilon().widen_f64();
        for (out, expected) in out.iter().zip(expected) {
            assert!((out.widen_f64() - expected).abs() <= tolerance, "{out:?} {expected}");
        }
    }
    run::<f32>();
    run::<f64>();
}

#[test]
fn wrong_arguments_are_errors() {
    let device = Cpu::<f32>::new();
    let mut out = [0.0; 4];
    assert!(device.edge_softmax(&[0, 2], 0, &[0.0; 2], &mut out[..2]).is_err());
    assert!(device.edge_softmax(&[0, 2], 1, &[0.0; 2], &mut out).is_err());
    assert!(device.edge_softmax(&[], 1, &[], &mut []).is_err());
    let x = Matrix::new(&[0.0; 6][..], 2, 3).unwrap();
    assert!(device.head_dot(x, &[0.0; 3], 2, &mut out).is_err());
    let a = Csr::<Cpu<f32>> { n_rows: 2, n_cols: 1, indptr: &[0, 1, 1], indices: &[0], edge: None };
    let z = Matrix::new(&[0.0; 2][..], 1, 2).unwrap();
    let spec = AttentionSpec { heads: 1, slope: 0.2, self_loop: true, dropout: None };
    let (mut max, mut sum) = ([0.0; 2], [0.0; 2]);
    let mut gat = |spec| {
        let out = MatrixMut::new(&mut out[..], 2, 2).unwrap();
        device.gat(a, spec, z, &[0.0], &[0.0; 2], out, &mut max, &mut sum)
    };
    assert!(gat(spec).is_err(), "a self-loop of a destination that is no source");
    assert!(gat(AttentionSpec { self_loop: false, ..spec }).is_ok());
    assert!(gat(AttentionSpec { self_loop: false, heads: 0, ..spec }).is_err());
    let dropout = AttentionDropout { p: 1.0, seed: 0, stream: 0, vertices: &[0][..] };
    assert!(gat(AttentionSpec { self_loop: false, dropout: Some(dropout), ..spec }).is_err());
    assert!(device.invert_permutation(&[0, 2], &mut [0, 0]).is_err());
}
