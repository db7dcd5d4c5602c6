//! Reference kernels, to be checked by eye: f64, one loop, no blocking.

use super::{Expected, Random};

/// A sparse pattern on the host.
#[derive(Clone, Debug)]
pub struct Pattern {
    pub n_rows: usize,
    pub n_cols: usize,
    pub indptr: Vec<u32>,
    pub indices: Vec<u32>,
}

impl Pattern {
    /// Rows of random degree up to `max_degree`, a third of them empty, entries not sorted and with duplicates; with
    /// `hub`, one row of many entries.
    pub fn random(n_rows: usize, n_cols: usize, max_degree: usize, hub: bool, random: &mut Random) -> Self {
        let mut pattern = Pattern { n_rows, n_cols, indptr: vec![0], indices: Vec::new() };
        let hub = (hub && n_rows > 0).then(|| random.index(n_rows));
        for i in 0..n_rows {
            let degree = match random.index(3) {
                _ if n_cols == 0 => 0,
                _ if hub == Some(i) => 3000,
                0 => 0,
                _ => random.index(max_degree + 1),
            };
            pattern.indices.extend((0..degree).map(|_| random.index(n_cols) as u32));
            pattern.indptr.push(pattern.indices.len() as u32);
        }
        pattern
    }

    /// Rows of the given lengths, entries not sorted and with duplicates.
    pub fn of_row_lengths(lengths: &[usize], n_cols: usize, random: &mut Random) -> Self {
        let mut pattern = Pattern { n_rows: lengths.len(), n_cols, indptr: vec![0], indices: Vec::new() };
        for &length in lengths {
            pattern.indices.extend((0..length).map(|_| random.index(n_cols) as u32));
            pattern.indptr.push(pattern.indices.len() as u32);
        }
        pattern
    }

    pub fn n_edge(&self) -> usize {
        self.indices.len()
    }

    /// (row, column, position) of every entry.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.n_rows).flat_map(move |i| {
            (self.indptr[i] as usize..self.indptr[i + 1] as usize)
                .map(move |e| (i, self.indices[e] as usize, e))
        })
    }
}

/// `out += Σ weight · x`
pub fn spmm(
    a: &Pattern,
    weight: impl Fn(usize, usize, usize) -> f64,
    x: &[f64],
    dim: usize,
    out: &mut Expected,
) {
    for (i, j, e) in a.entries() {
        for c in 0..dim {
            out.add(i * dim + c, weight(i, j, e) * x[j * dim + c]);
        }
    }
}

/// `out[i, h, :] += weight[e, h] · x[j, h, :]`; `weight(e, h)`
pub fn spmm_heads(
    a: &Pattern,
    weight: impl Fn(usize, usize) -> f64,
    [heads, dim]: [usize; 2],
    x: &[f64],
    out: &mut Expected,
) {
    for (i, j, e) in a.entries() {
        for h in 0..heads {
            for c in 0..dim {
                out.add((i * heads + h) * dim + c, weight(e, h) * x[(j * heads + h) * dim + c]);
            }
        }
    }
}

/// Maximum and its first position; 0 and `u32::MAX` for a row without entries.
pub fn spmm_max(a: &Pattern, x: &[f64], dim: usize) -> (Vec<f64>, Vec<u32>) {
    let (mut out, mut argmax) = (vec![0.0; a.n_rows * dim], vec![u32::MAX; a.n_rows * dim]);
    for (i, j, e) in a.entries() {
        for c in 0..dim {
            let (x, k) = (x[j * dim + c], i * dim + c);
            if argmax[k] == u32::MAX || x > out[k] || out[k].is_nan() && !x.is_nan() {
                (out[k], argmax[k]) = (x, e as u32);
            }
        }
    }
    (out, argmax)
}

/// `dx[column of argmax] += dout`
pub fn spmm_max_backward(a: &Pattern, argmax: &[u32], dout: &[f64], dim: usize, dx: &mut Expected) {
    for i in 0..a.n_rows {
        for c in 0..dim {
            if let Some(&j) = a.indices.get(argmax[i * dim + c] as usize) {
                dx.add(j as usize * dim + c, dout[i * dim + c]);
            }
        }
    }
}

/// Rows become columns; with the positions of the entries in `a`.
pub fn transpose(a: &Pattern) -> (Pattern, Vec<u32>) {
    let mut entries: Vec<_> = a.entries().map(|(i, j, e)| (j, e, i)).collect();
    entries.sort_unstable();
    let degree_sum = |j: usize| entries.partition_point(|&(column, ..)| column < j) as u32;
    let pattern = Pattern {
        n_rows: a.n_cols,
        n_cols: a.n_rows,
        indptr: (0..=a.n_cols).map(degree_sum).collect(),
        indices: entries.iter().map(|&(_, _, i)| i as u32).collect(),
    };
    (pattern, entries.iter().map(|&(_, e, _)| e as u32).collect())
}

/// `out[e, h] += ⟨x[j, h, :], y[i, h, :]⟩`
pub fn sddmm_dot(a: &Pattern, x: &[f64], y: &[f64], heads: usize, dim: usize, out: &mut Expected) {
    for (i, j, e) in a.entries() {
        for h in 0..heads {
            for c in 0..dim {
                let column = h * dim + c;
                out.add(e * heads + h, x[j * heads * dim + column] * y[i * heads * dim + column]);
            }
        }
    }
}

/// `out[e, :] += x[j, :] + y[i, :]`
pub fn sddmm_add(a: &Pattern, x: &[f64], y: &[f64], cols: usize, out: &mut Expected) {
    for (i, j, e) in a.entries() {
        for c in 0..cols {
            out.add(e * cols + c, x[j * cols + c]);
            out.add(e * cols + c, y[i * cols + c]);
        }
    }
}

/// `out += a · b` with `a(i, l): [m, k]` and `b(l, j): [k, n]`
pub fn gemm(
    [m, k, n]: [usize; 3],
    a: impl Fn(usize, usize) -> f64,
    b: impl Fn(usize, usize) -> f64,
    out: &mut Expected,
) {
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                out.add(i * n + j, a(i, l) * b(l, j));
            }
        }
    }
}

/// A block of typed edges on the host.
#[derive(Clone, Debug)]
pub struct Typed {
    pub n_src: usize,
    pub indptr: Vec<u32>,
    pub indices: Vec<u32>,
    pub edge_type: Vec<u16>,
}

impl Typed {
    /// Random edges: some destinations and relations without any, a hub, parallel ones.
    pub fn new(n_dst: usize, n_src: usize, n_edge: usize, n_relations: usize, random: &mut Random) -> Self {
        let mut edges: Vec<(u32, u32)> = (0..n_edge)
            .map(|_| {
                let t = if random.index(5) == 0 { 0 } else { random.index(n_dst) as u32 };
                (t, random.index(n_src) as u32)
            })
            .collect();
        edges.sort_unstable();
        let mut indptr = vec![0u32; n_dst + 1];
        edges.iter().for_each(|&(t, _)| indptr[t as usize + 1] += 1);
        for t in 0..n_dst {
            indptr[t + 1] += indptr[t];
        }
        // Relation 1 stays empty where there are others.
        let edge_type = (0..n_edge).map(|_| match random.index(n_relations) {
            1 => 0,
            r => r as u16,
        });
        let edge_type = edge_type.collect();
        Typed { n_src, indptr, indices: edges.iter().map(|&(_, s)| s).collect(), edge_type }
    }

    pub fn n_dst(&self) -> usize {
        self.indptr.len() - 1
    }

    /// (destination, source, relation, factor) of each edge; a factor is the edge's share of its group's weight.
    pub fn edges(&self, weight: Option<&[f64]>) -> Vec<(usize, usize, usize, f64)> {
        let own = |e: usize| weight.map_or(1.0, |w| w[e]);
        let mut edges = Vec::new();
        for t in 0..self.n_dst() {
            let of_row = self.indptr[t] as usize..self.indptr[t + 1] as usize;
            let n_relations = of_row.clone().map(|e| usize::from(self.edge_type[e]) + 1).max().unwrap_or(0);
            let mut sums = vec![0.0; n_relations];
            of_row.clone().for_each(|e| sums[usize::from(self.edge_type[e])] += own(e));
            edges.extend(of_row.map(|e| {
                let r = usize::from(self.edge_type[e]);
                (t, self.indices[e] as usize, r, own(e) / sums[r])
            }));
        }
        edges
    }
}
