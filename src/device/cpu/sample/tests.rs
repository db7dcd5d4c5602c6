//! The samplers against their definitions, their contracts and their probabilities.
//!
//! Statistical tests have fixed seeds and state how often a correct sampler would fail them at a random seed.

mod changed;
mod contract;
mod enumeration;
mod equality;
mod excluding;
mod labor_properties;
mod probability;
mod relations;

use std::sync::Arc;

use super::naive::NaiveBlock;
use super::*;
use crate::device::SampledBlock;
use crate::error::Error;
use crate::rng::{Dependence, Kappa, bounded, uniform};

pub(super) const NEIGHBOR: Method = Method::NEIGHBOR;
pub(super) const WEIGHTED: Method = Method::Neighbor { replace: false, weighted: true };
pub(super) const REPLACE: Method = Method::Neighbor { replace: true, weighted: false };
pub(super) const REPLACE_WEIGHTED: Method = Method::Neighbor { replace: true, weighted: true };
pub(super) const LABOR_0: Method = labor(LaborIterations::Fixed(0), false);
pub(super) const LABOR_STAR: Method = labor(LaborIterations::Converged, false);
pub(super) const WALK: Method = Method::Walk { walks: 20, length: 3, restart: 0.25 };

pub(super) const fn labor(iterations: LaborIterations, fixed_size: bool) -> Method {
    Method::Labor { iterations, fixed_size, layer_dependent: false }
}

/// Every method, and whether it goes with dependent minibatches.
fn methods() -> Vec<(Method, bool)> {
    let mut methods = vec![
        (Method::Full, true),
        (NEIGHBOR, true),
        (WEIGHTED, false),
        (REPLACE, false),
        (REPLACE_WEIGHTED, false),
        (WALK, false),
        (
            Method::Labor { iterations: LaborIterations::Fixed(0), fixed_size: false, layer_dependent: true },
            true,
        ),
    ];
    for iterations in [0, 1, 3].map(LaborIterations::Fixed).into_iter().chain([LaborIterations::Converged]) {
        methods.extend([false, true].map(|fixed_size| (labor(iterations, fixed_size), true)));
    }
    methods
}

fn spec(method: Method, fanout: usize) -> SampleSpec {
    SampleSpec { method, fanout, per_relation: false, edge_ids: true, edge_weights: false }
}

/// Independent variates.
fn batch(number: u64) -> Variates {
    Variates::new(1, number, Kappa::INDEPENDENT, Dependence::default())
}

/// Step `number` of long windows, by renewal and by rotation.
fn dependent_batches(number: u64) -> [Variates; 2] {
    [Dependence::Renew, Dependence::Rotate]
        .map(|dependence| Variates::new(1, number, Kappa::steps(10).unwrap(), dependence))
}

/// A graph of rows of sources, with pseudorandom weights of which a fifth is zero.
fn graph_of(mut rows: Vec<Vec<u32>>) -> Arc<Graph> {
    let mut indptr = vec![0];
    for row in &mut rows {
        row.sort();
        indptr.push(indptr[indptr.len() - 1] + row.len() as u64);
    }
    let indices = rows.concat();
    let weight: Vec<f32> =
        (0..indices.len() as u64).map(|e| (uniform(2, 0, e) as f32 * 5.0 - 1.0).max(0.0)).collect();
    let relation: Vec<u16> = (0..indices.len() as u64).map(|e| bounded(3, 0, e, 3) as u16).collect();
    let graph = Graph::from_csr(indptr, indices).unwrap();
    Arc::new(graph.with_edge_weights(weight).unwrap().with_edge_types(relation, 3).unwrap())
}

/// One destination, vertex 0, with sources 1..=degree.
fn star(degree: u32) -> Arc<Graph> {
    let mut rows = vec![vec![]; degree as usize + 1];
    rows[0] = (1..=degree).collect();
    graph_of(rows)
}

/// A graph of skewed degrees: row lengths from 0 to about `4 · mean`, sources drawn with a bias to low ids.
fn skewed(n_vertices: u64, mean: u64, seed: u64) -> Arc<Graph> {
    let row = |vertex: u64| {
        let degree = (uniform(seed, 1, vertex).powi(3) * 4.0 * mean as f64) as u64;
        let source = |i: u64| (uniform(seed, 2, vertex << 32 | i).powi(2) * n_vertices as f64) as u32;
        (0..degree).map(source).collect()
    };
    graph_of((0..n_vertices).map(row).collect())
}

/// The fast sampler's block on the host, in f64, by the stamped table or the hash table.
fn fast_by(by_table: bool, job: &Job) -> Result<NaiveBlock> {
    check(job.graph, job.dst, job.spec, job.variates)?;
    let block = sample(&Cpu::<f64>::new(), &mut Workspace::default(), by_table, job, &mut Alone)?;
    Ok(to_host(block))
}

fn to_host(block: SampledBlock<Cpu<f64>>) -> NaiveBlock {
    NaiveBlock {
        src: block.src.to_vec(),
        indptr: block.indptr.to_vec(),
        indices: block.indices.to_vec(),
        edge_id: block.edge_id.map_or(vec![], |edge_id| edge_id.to_vec()),
        weight: block.weight.map(|weight| weight.to_vec()),
    }
}

fn fast(graph: &Arc<Graph>, dst: &[u32], spec: &SampleSpec, variates: &Variates) -> NaiveBlock {
    to_host(Cpu::<f64>::new().sample_block(graph, dst, spec, variates, 1).unwrap())
}

/// Edges that rows keep over many batches.
fn kept_over(
    graph: &Arc<Graph>,
    dst: &[u32],
    spec: &SampleSpec,
    batches: u64,
) -> impl Iterator<Item = Vec<u64>> {
    let cpu = Cpu::<f64>::new();
    (0..batches).map(move |number| {
        cpu.sample_block(graph, dst, spec, &batch(number), 0).unwrap().edge_id.unwrap().to_vec()
    })
}
