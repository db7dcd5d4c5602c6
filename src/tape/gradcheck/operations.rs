//! The cases for the tape's operations.

use std::sync::Arc;

use super::{Case, Report, Shape, check, random, random_block, random_typed_block};
use crate::device::{Activation, Device, Direction, IGNORED};
use crate::error::Result;
use crate::pattern::Pattern;
use crate::rng;
use crate::tape::{Aggregate, AttentionOptions, ParameterId, SparseRows};

/// One case for every operation of the tape.
pub fn operations<D: Device<Scalar = f64>>() -> Vec<Case<D>> {
    let mut cases = vec![
        Case { name: "linear", run: linear },
        Case { name: "linear, two terms", run: linear_two_terms },
        Case { name: "add bias", run: add_bias },
        Case { name: "relu", run: |d, s, z| activation(d, s, z, Activation::Relu) },
        Case { name: "leaky relu", run: |d, s, z| activation(d, s, z, Activation::LeakyRelu { slope: 0.2 }) },
        Case { name: "elu", run: |d, s, z| activation(d, s, z, Activation::Elu) },
        Case { name: "add", run: add },
        Case { name: "prefix", run: prefix },
        Case { name: "concatenate", run: concatenate },
        Case { name: "stack", run: stack },
        Case { name: "scale by 1 + epsilon", run: scale_by_one_plus },
        Case { name: "dropout", run: dropout },
        Case { name: "aggregate sum", run: |d, s, z| aggregate(d, s, z, Aggregate::Sum) },
        Case { name: "aggregate mean", run: |d, s, z| aggregate(d, s, z, Aggregate::Mean) },
        Case { name: "aggregate mean with self", run: |d, s, z| aggregate(d, s, z, Aggregate::MeanWithSelf) },
        Case { name: "aggregate symmetric", run: |d, s, z| aggregate(d, s, z, Aggregate::Symmetric) },
        Case { name: "own part", run: own_part },
        Case { name: "aggregate max", run: aggregate_max },
        Case { name: "aggregate weighted", run: aggregate_weighted },
        Case { name: "gather rows", run: gather_rows },
        Case { name: "lookup", run: lookup },
        Case { name: "reshape", run: reshape },
        Case {
            name: "relation aggregate, widening",
            run: |d, s, z| relation_aggregate(d, s, z, 3, s.dim + 2),
        },
        Case { name: "relation aggregate, narrowing", run: |d, s, z| relation_aggregate(d, s, z, 3, 1) },
        Case { name: "relation aggregate, one relation", run: |d, s, z| relation_aggregate(d, s, z, 1, 2) },
        Case { name: "relation aggregate with root", run: relation_aggregate_with_root },
        Case { name: "relation lookup", run: relation_lookup },
        Case { name: "relation transform", run: relation_transform },
        Case { name: "relation rows", run: relation_rows },
        Case { name: "relation rows of bases", run: relation_basis_rows },
        Case { name: "relation scores", run: relation_scores },
        Case { name: "relation attend", run: relation_attend },
        Case { name: "sparse linear", run: sparse_linear },
        Case { name: "batch norm", run: batch_norm },
        Case { name: "log-softmax nll", run: log_softmax_nll },
        Case { name: "edge add", run: edge_add },
        Case { name: "edge softmax, one head", run: |d, s, z| edge_softmax(d, s, z, 1) },
        Case { name: "edge softmax, three heads", run: |d, s, z| edge_softmax(d, s, z, 3) },
        Case { name: "head dot", run: head_dot },
        Case { name: "head mean", run: head_mean },
        Case { name: "gat, one head", run: |d, s, z| gat(d, s, z, attention(1, false, 0.0)) },
        Case { name: "gat, three heads, self-loops", run: |d, s, z| gat(d, s, z, attention(3, true, 0.0)) },
        Case { name: "gat, five heads, dropout", run: |d, s, z| gat(d, s, z, attention(5, true, 0.4)) },
        Case { name: "gatv2, one head", run: |d, s, z| gatv2(d, s, z, attention(1, false, 0.0)) },
        Case {
            name: "gatv2, three heads, self-loops",
            run: |d, s, z| gatv2(d, s, z, attention(3, true, 0.0)),
        },
        Case { name: "gatv2, five heads, dropout", run: |d, s, z| gatv2(d, s, z, attention(5, true, 0.4)) },
    ];
    cases.extend(super::elements_and_edges::cases());
    cases
}

fn linear<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [
        random(device, s.n_src, s.dim, seed)?,
        random(device, s.dim, 3, seed + 1)?,
        random(device, 1, 3, seed + 2)?,
    ];
    check(device, &inputs, seed, |tape, v| tape.linear(&[(v[0], v[1])], Some(v[2]), Some(Activation::Elu)))
}

fn linear_two_terms<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [
        random(device, s.n_src, s.dim, seed)?,
        random(device, s.dim, 2, seed + 1)?,
        random(device, s.n_dst, 3, seed + 2)?,
        random(device, 3, 2, seed + 3)?,
    ];
    check(device, &inputs, seed, |tape, v| {
        tape.linear(&[(tape.prefix(v[0], s.n_dst)?, v[1]), (v[2], v[3])], None, None)
    })
}

fn add_bias<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, 1, s.dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.add_bias(v[0], v[1], Some(Activation::Elu)))
}

fn activation<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    activation: Activation,
) -> Result<Report> {
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| tape.activate(v[0], activation))
}

fn add<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, s.n_src, s.dim, seed + 1)?];
    // Used twice, so that contributions of different heights are added up.
    check(device, &inputs, seed, |tape, v| {
        let sum = tape.add(v[0], v[1])?;
        tape.add(tape.prefix(sum, s.n_dst)?, tape.prefix(v[0], s.n_dst)?)
    })
}

fn prefix<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| tape.prefix(v[0], s.n_dst))
}

fn concatenate<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, s.n_src, 2, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.concatenate(&[v[0], v[1], v[0]]))
}

fn stack<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, 2, s.dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.stack(&[v[0], v[1], v[0]]))
}

fn scale_by_one_plus<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, 1, 1, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.scale_by_one_plus(v[0], v[1]))
}

fn dropout<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.dropout(tape.dropout(v[0], 0.4, Some(&block))?, 0.2, None)
    })
}

fn aggregate<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    aggregate: Aggregate,
) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.aggregate(&block, v[0], aggregate)
    })
}

fn own_part<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        let mean = tape.own_part(&block, v[0], Aggregate::MeanWithSelf)?;
        tape.add(mean, tape.own_part(&block, v[0], Aggregate::Symmetric)?)
    })
}

fn aggregate_max<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| tape.aggregate_max(&block, v[0]))
}

fn aggregate_weighted<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, s.n_edge, 1, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.aggregate_weighted(&block, v[0], v[1]))
}

fn gather_rows<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let n = if s.n_src == 0 { 0 } else { s.n_edge };
    let index: Vec<u32> = (0..n as u64).map(|i| rng::bounded(seed, 4, i, s.n_src as u64) as u32).collect();
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.gather_rows(v[0], device.upload(&index)?)
    })
}

fn lookup<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let n = if s.n_src == 0 { 0 } else { s.n_edge };
    let index: Vec<u32> = (0..n as u64).map(|i| rng::bounded(seed, 4, i, s.n_src as u64) as u32).collect();
    let m = (n / 2).min(s.n_src);
    let (half, index) = (Arc::new(device.upload(&index[..m])?), Arc::new(device.upload(&index)?));
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, s.n_src, s.dim, seed + 1)?];
    // A leaf that is read twice, one that is also used densely, and a table that is no leaf: all ways of adding up.
    check(device, &inputs, seed, |tape, v| {
        let rows = |table, index| tape.prefix(tape.lookup(table, index)?, m);
        let of_leaf = tape.add(rows(v[0], &half)?, rows(v[0], &index)?)?;
        let mixed = tape.add(rows(v[1], &index)?, tape.prefix(v[1], m)?)?;
        let of_sum = rows(tape.add(v[0], v[1])?, &half)?;
        tape.add(if s.dim > 3 { tape.add(of_leaf, of_sum)? } else { of_leaf }, mixed)
    })
}

fn reshape<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    check(
        device,
        &[random(device, s.n_src, s.dim, seed)?, random(device, s.dim, 2, seed)?],
        seed,
        |tape, v| {
            let turned = tape.reshape(v[0], s.dim, s.n_src)?;
            tape.linear(&[(tape.reshape(turned, s.n_src, s.dim)?, v[1])], None, None)
        },
    )
}

fn relation_aggregate<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    n_relations: usize,
    out_dim: usize,
) -> Result<Report> {
    let block = random_typed_block(device, s, n_relations, seed)?;
    let inputs =
        [random(device, s.n_src, s.dim, seed)?, random(device, n_relations * s.dim, out_dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| {
        tape.relation_aggregate(&block, n_relations, [v[0], v[1]], None, None, None)
    })
}

fn relation_aggregate_with_root<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let (n_relations, out_dim) = (3, s.dim + 1);
    let block = random_typed_block(device, s, n_relations, seed)?;
    let inputs = [
        random(device, s.n_src, s.dim, seed)?,
        random(device, n_relations * s.dim, out_dim, seed + 1)?,
        random(device, s.dim, out_dim, seed + 2)?,
        random(device, 1, out_dim, seed + 3)?,
    ];
    check(device, &inputs, seed, |tape, v| {
        let (root, bias, elu) = (Some(v[2]), Some(v[3]), Some(Activation::Elu));
        tape.relation_aggregate(&block, n_relations, [v[0], v[1]], root, bias, elu)
    })
}

fn relation_lookup<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    check(device, &[random(device, 3 * s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.relation_lookup(&block, 3, v[0])
    })
}

fn relation_transform<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, 3 * s.dim, 2, seed + 1)?];
    let mut report = check(device, &inputs, seed, |tape, v| {
        tape.relation_transform(&block, 3, Direction::Forward, v[0], v[1])
    })?;
    report.merge(check(device, &inputs, seed, |tape, v| {
        tape.relation_transform(&block, 3, Direction::Backward, v[0], v[1])
    })?);
    Ok(report)
}

fn relation_rows<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    check(device, &[random(device, 3 * s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.relation_rows(&block, 3, Direction::Forward, v[0])
    })
}

fn relation_basis_rows<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    let inputs = [random(device, 3, 2, seed)?, random(device, 2 * s.n_src, s.dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.relation_basis_rows(&block, Direction::Backward, v[0], v[1]))
}

fn relation_scores<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    let edges = block.relations(device, 3)?;
    let (n_query, n_key) = (edges.by_destination.n_groups(), edges.by_source.n_groups());
    let inputs = [random(device, n_query, s.dim, seed)?, random(device, n_key, s.dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.relation_scores(&block, 3, v[0], v[1]))
}

fn relation_attend<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_typed_block(device, s, 3, seed)?;
    let n_groups = block.relations(device, 3)?.by_source.n_groups();
    let inputs = [random(device, n_groups, 2 * s.dim, seed)?, random(device, s.n_edge, 2, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.relation_attend(&block, 3, v[0], v[1]))
}

fn sparse_linear<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    let (csr, n) = (block.csr(), s.n_edge);
    let (indptr, indices) = (device.download(csr.indptr)?, device.download(csr.indices)?);
    let pattern = Pattern::from_host(device, s.n_src, &indptr, &indices)?;
    let values = device.upload(&random(device, n, 1, seed + 1)?.to_vec(device)?)?;
    let names: Vec<u32> = (0..n as u32).collect();
    let x = SparseRows::new(pattern, values, device.upload(&names)?)?;
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        let dropped = tape.sparse_dropout(&x, 0.3)?;
        tape.add(tape.sparse_linear(&dropped, v[0])?, tape.sparse_linear(&x, v[0])?)
    })
}

fn batch_norm<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [
        random(device, s.n_src, s.dim, seed)?,
        random(device, 1, s.dim, seed + 1)?,
        random(device, 1, s.dim, seed + 2)?,
    ];
    let mean = random(device, 1, s.dim, seed + 3)?;
    let variance = crate::tensor::Tensor::from_slice(device, 1, s.dim, &vec![0.7; s.dim])?;
    let running = [(ParameterId::new(0), &mean), (ParameterId::new(1), &variance)];
    check(device, &inputs, seed, |tape, v| tape.batch_norm(v[0], v[1], v[2], running))
}

fn log_softmax_nll<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let labels: Vec<i32> = (0..s.n_src as u64)
        .map(|i| if i == 1 { IGNORED } else { rng::bounded(seed, 5, i, s.dim as u64) as i32 })
        .collect();
    check(device, &[random(device, s.n_src, s.dim, seed)?], seed, |tape, v| {
        tape.log_softmax_nll(v[0], device.upload(&labels)?, 0.5)
    })
}

fn edge_add<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    let inputs = [random(device, s.n_src, s.dim, seed)?, random(device, s.n_dst, s.dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.edge_add(&block, v[0], v[1]))
}

fn edge_softmax<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64, heads: usize) -> Result<Report> {
    let block = random_block(device, s, seed)?;
    check(device, &[random(device, s.n_edge, heads, seed)?], seed, |tape, v| tape.edge_softmax(&block, v[0]))
}

fn head_dot<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    let inputs = [random(device, s.n_src, 2 * s.dim, seed)?, random(device, 1, 2 * s.dim, seed + 1)?];
    check(device, &inputs, seed, |tape, v| tape.head_dot(v[0], v[1], 2))
}

fn head_mean<D: Device<Scalar = f64>>(device: &D, s: Shape, seed: u64) -> Result<Report> {
    check(device, &[random(device, s.n_src, 3 * s.dim, seed)?], seed, |tape, v| tape.head_mean(v[0], 3))
}

fn attention(heads: usize, self_loop: bool, dropout: f64) -> AttentionOptions {
    AttentionOptions { heads, slope: 0.2, self_loop, dropout }
}

fn gat<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    options: AttentionOptions,
) -> Result<Report> {
    let (block, width) = (random_block(device, s, seed)?, options.heads * s.dim);
    let inputs = [
        random(device, s.n_src, width, seed)?,
        random(device, 1, width, seed + 1)?,
        random(device, 1, width, seed + 2)?,
    ];
    check(device, &inputs, seed, |tape, v| tape.gat(&block, v[0], v[1], v[2], options))
}

fn gatv2<D: Device<Scalar = f64>>(
    device: &D,
    s: Shape,
    seed: u64,
    options: AttentionOptions,
) -> Result<Report> {
    let (block, width) = (random_block(device, s, seed)?, options.heads * s.dim);
    let inputs = [
        random(device, s.n_src, width, seed)?,
        random(device, s.n_dst, width, seed + 1)?,
        random(device, 1, width, seed + 2)?,
    ];
    check(device, &inputs, seed, |tape, v| tape.gatv2(&block, v[0], v[1], v[2], options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;
    use crate::device::test_kernels::test_f64_devices;

    test_f64_devices! { every_operation_agrees_with_finite_differences }

    fn every_operation_agrees_with_finite_differences<D: Device<Scalar = f64>>(device: &D) {
        for case in operations() {
            let report = case.run_all(device, 1).unwrap();
            assert!(report.passed(), "{}: {report:?}", case.name);
            assert!(report.derivatives > 0, "{} compared nothing", case.name);
        }
    }

    #[test]
    fn a_wrong_gradient_is_seen() {
        // A part of the function is hidden from the tape: a stand-in for a wrong backward pass.
        let device = Cpu::<f64>::new();
        let shape = Shape { n_dst: 4, n_src: 7, n_edge: 17, dim: 5 };
        let block = random_block(&device, shape, 3).unwrap();
        let x = random(&device, 7, 5, 3).unwrap();
        let report = check(&device, &[x], 3, |tape, v| {
            let detached = tape.constant(tape.value(v[0]));
            tape.add(
                tape.aggregate(&block, v[0], Aggregate::Sum)?,
                tape.aggregate(&block, detached, Aggregate::Mean)?,
            )
        });
        assert!(!report.unwrap().passed());
    }
}
