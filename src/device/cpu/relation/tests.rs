//! Both orders against a naive sum over edges, for any number of threads.

use super::*;
use crate::rng;

/// A random typed block: some destinations and relations without edges, a hub, parallel edges.
struct Typed {
    n_src: usize,
    indptr: Vec<u32>,
    indices: Vec<u32>,
    edge_type: Vec<u16>,
}

impl Typed {
    fn new(n_dst: usize, n_src: usize, n_edge: usize, n_relations: usize, seed: u64) -> Self {
        let mut edges: Vec<(u32, u32)> = (0..n_edge as u64)
            .map(|e| {
                let hub = rng::uniform(seed, 1, e) < 0.2;
                let t = if hub { 0 } else { rng::bounded(seed, 2, e, n_dst as u64) as u32 };
                (t, rng::bounded(seed, 3, e, n_src as u64) as u32)
            })
            .collect();
        edges.sort_unstable();
        let mut indptr = vec![0u32; n_dst + 1];
        edges.iter().for_each(|&(t, _)| indptr[t as usize + 1] += 1);
        for t in 0..n_dst {
            indptr[t + 1] += indptr[t];
        }
        // Relation 1 stays empty where there are others.
        let relation = |e: u64| match rng::bounded(seed, 4, e, n_relations as u64) as u16 {
            1 => 0,
            r => r,
        };
        Typed {
            n_src,
            indptr,
            indices: edges.iter().map(|&(_, s)| s).collect(),
            edge_type: (0..n_edge as u64).map(relation).collect(),
        }
    }

    fn csr<S: Scalar>(&self) -> Csr<'_, Cpu<S>> {
        Csr {
            n_rows: self.indptr.len() - 1,
            n_cols: self.n_src,
            indptr: &self.indptr,
            indices: &self.indices,
            edge: None,
        }
    }

    /// (destination, source, relation, factor) of each edge.
    fn edges(&self, weight: Option<&[f64]>) -> Vec<(usize, usize, usize, f64)> {
        let of = |t: usize| self.indptr[t] as usize..self.indptr[t + 1] as usize;
        let own = |e: usize| weight.map_or(1.0, |w| w[e]);
        let mut edges = Vec::new();
        for t in 0..self.indptr.len() - 1 {
            for e in of(t) {
                let same = of(t).filter(|&o| self.edge_type[o] == self.edge_type[e]);
                let factor = own(e) / same.map(own).sum::<f64>();
                edges.push((t, self.indices[e] as usize, usize::from(self.edge_type[e]), factor));
            }
        }
        edges
    }
}

fn whole(seed: u64, len: usize) -> Vec<f64> {
    (0..len as u64).map(|i| rng::normal(seed, 9, i)).collect()
}

fn matrix(data: &[f64], rows: usize, cols: usize) -> Matrix<'_, Cpu<f64>> {
    Matrix::new(data, rows, cols).unwrap()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= 1e-10 * (1.0 + b.abs()), "{what}: element {i} is {a}, expected {b}");
    }
}

/// Poison that a kernel has to overwrite.
const NAN: f64 = f64::NAN;

#[test]
fn both_orders_equal_the_sum_over_edges() {
    let cpu = Cpu::<f64>::new();
    for (n_dst, n_src, n_edge, n_relations) in
        [(0, 0, 0, 2), (3, 5, 0, 2), (1, 1, 1, 1), (13, 29, 90, 4), (700, 1500, 9000, 3), (40, 50, 60, 70)]
    {
        for (k, n) in [(1, 1), (5, 3), (3, 18), (0, 2), (2, 0)] {
            for weighted in [false, true] {
                let typed = Typed::new(n_dst, n_src, n_edge, n_relations, 7);
                let weight: Vec<f64> = whole(8, n_edge).iter().map(|w| w.abs() + 0.1).collect();
                let weight = weighted.then_some(&weight[..]);
                let grouped =
                    cpu.group_relations(typed.csr(), &typed.edge_type, n_relations, weight).unwrap();
                let (x, w, dout) = (whole(1, n_src * k), whole(2, n_relations * k * n), whole(3, n_dst * n));
                let (mut out, mut dx, mut dw) =
                    (vec![0.0; n_dst * n], vec![0.0; n_src * k], vec![0.0; w.len()]);
                for (t, s, r, factor) in typed.edges(weight) {
                    for i in 0..k {
                        for j in 0..n {
                            let at = (r * k + i) * n + j;
                            out[t * n + j] += factor * x[s * k + i] * w[at];
                            dx[s * k + i] += factor * dout[t * n + j] * w[at];
                            dw[at] += factor * x[s * k + i] * dout[t * n + j];
                        }
                    }
                }
                let what = format!("{n_dst} {n_src} {n_edge} {n_relations} {k} {n} {weighted}");
                for order in [Order::AggregateFirst, Order::TransformFirst] {
                    let mut found = vec![NAN; n_dst * n];
                    let view = MatrixMut::new(&mut found[..], n_dst, n).unwrap();
                    let forward = Direction::Forward;
                    let x = matrix(&x, n_src, k);
                    cpu.relation_product(&grouped, forward, order, &w, x, view, Write::Assign).unwrap();
                    assert_close(&found, &out, &format!("{what} {order:?} forward"));
                    let mut found = vec![1.0; n_src * k];
                    let view = MatrixMut::new(&mut found[..], n_src, k).unwrap();
                    let dout = matrix(&dout, n_dst, n);
                    cpu.relation_product(&grouped, Direction::Backward, order, &w, dout, view, Write::Add)
                        .unwrap();
                    let expected: Vec<f64> = dx.iter().map(|v| v + 1.0).collect();
                    assert_close(&found, &expected, &format!("{what} {order:?} backward"));
                }
                for aggregated in [Direction::Forward, Direction::Backward] {
                    let mut found = vec![NAN; w.len()];
                    let (x, dout) = (matrix(&x, n_src, k), matrix(&dout, n_dst, n));
                    cpu.relation_weight_gradient(&grouped, aggregated, x, dout, &mut found).unwrap();
                    assert_close(&found, &dw, &format!("{what} {aggregated:?} weights"));
                }
            }
        }
    }
}

#[test]
fn results_have_the_same_bits_for_any_number_of_threads() {
    let cpu = Cpu::<f32>::new();
    let (n_dst, n_src, n_edge, k, n) = (9000, 12_000, 80_000, 12, 20);
    let typed = Typed::new(n_dst, n_src, n_edge, 3, 5);
    let grouped = cpu.group_relations(typed.csr(), &typed.edge_type, 3, None).unwrap();
    let narrow = |values: Vec<f64>| values.into_iter().map(|v| v as f32).collect::<Vec<f32>>();
    let (x, w, dout) =
        (narrow(whole(1, n_src * k)), narrow(whole(2, 3 * k * n)), narrow(whole(3, n_dst * n)));
    let run = || {
        let (x, dout) = (Matrix::new(&x[..], n_src, k).unwrap(), Matrix::new(&dout[..], n_dst, n).unwrap());
        let mut results = Vec::new();
        for order in [Order::AggregateFirst, Order::TransformFirst] {
            for (direction, input, rows, cols) in
                [(Direction::Forward, x, n_dst, n), (Direction::Backward, dout, n_src, k)]
            {
                let mut out = vec![0.0; rows * cols];
                let view = MatrixMut::new(&mut out[..], rows, cols).unwrap();
                cpu.relation_product(&grouped, direction, order, &w, input, view, Write::Assign).unwrap();
                results.push(out);
            }
        }
        for aggregated in [Direction::Forward, Direction::Backward] {
            let mut dw = vec![0.0; w.len()];
            cpu.relation_weight_gradient(&grouped, aggregated, x, dout, &mut dw).unwrap();
            results.push(dw);
        }
        results.concat().into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    };
    let with_threads =
        |n: usize| rayon::ThreadPoolBuilder::new().num_threads(n).build().unwrap().install(run);
    let expected = with_threads(1);
    for n_threads in [2, 3, 8] {
        assert!(with_threads(n_threads) == expected, "{n_threads} threads");
    }
}

#[test]
fn groups_are_by_relation_and_row_and_empty_relations_have_none() {
    let cpu = Cpu::<f64>::new();
    // Destination 0: sources 1 (relation 2), 1 (relation 0), 2 (relation 2); destination 1: none; 2: source 0 (2).
    let csr =
        Csr { n_rows: 3, n_cols: 3, indptr: &[0u32, 3, 3, 4][..], indices: &[1, 1, 2, 0][..], edge: None };
    let edges = cpu.group_relations(csr, &[2, 0, 2, 2], 4, None).unwrap();
    let groups = &edges.by_destination;
    assert_eq!(groups.offsets, [0, 1, 1, 3, 3]);
    assert_eq!(groups.row[..], [0, 0, 2]);
    assert_eq!(groups.indptr[..], [0, 1, 3, 4]);
    assert_eq!(groups.indices[..], [1, 1, 2, 0]);
    assert_eq!(groups.weight[..], [1.0, 0.5, 0.5, 1.0]);
    assert_eq!(edges.by_source.row[..], [1, 0, 1, 2]);
    assert_eq!(edges.by_source.offsets, [0, 1, 1, 4, 4]);
    assert_eq!(groups.partner[..], [0, 1, 2, 0]);
    assert_eq!(edges.source_group[..], [2, 0, 3, 1]);
    assert_eq!(edges.destination_group[..], [1, 0, 1, 2]);
    let error = cpu.group_relations(csr, &[2, 0, 4, 2], 4, None).unwrap_err().to_string();
    assert_eq!(error, "edge_type[2] = 4 is out of range: expected a value below 4");
}
