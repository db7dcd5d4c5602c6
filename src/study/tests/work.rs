//! Counts against sets of the ids in directly sampled blocks, and the theorem on work.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{METHODS, sampler};
use crate::device::Method;
use crate::device::{Cpu, Sample};
use crate::graph::Rmat;
use crate::rng::Kappa;
use crate::sample::{Batches, Fanouts, Sampler};
use crate::study::{WorkConfig, work};
use crate::testing::assert_close;

#[test]
fn counts_are_those_of_direct_sampling() {
    let graph = Arc::new(Rmat::graph500(7, 5, 3).generate().unwrap());
    let pool: Vec<u32> = (10..90).collect();
    let fanouts = Fanouts(vec![3, 4]);
    // 80 seeds are five batches of 16 an epoch: seven need a second one.
    let config = WorkConfig {
        samplers: METHODS.to_vec(),
        fanouts: fanouts.clone(),
        batch_sizes: vec![16],
        batches: 7,
        seed: 4,
    };
    let rows = work(&graph, &pool, &config, &mut ()).unwrap();
    let batches = Batches::new(pool, 16, 4).unwrap();
    let cpu = Cpu::<f32>::new();
    let loaded = cpu.load_graph(&graph).unwrap();
    for (method, row) in METHODS.into_iter().zip(&rows) {
        let sampler = Sampler::new(sampler(method, &fanouts, Kappa::INDEPENDENT, 4)).unwrap();
        let (mut vertices, mut edges) = ([0usize; 3], [0usize; 2]);
        for number in 0..7 {
            let epoch = batches.epoch(number / 5);
            let (_, seeds) = epoch.batch(number as usize % 5);
            let batch = sampler.sample(&cpu, &loaded, seeds, number).unwrap();
            vertices[0] += seeds.len();
            for (layer, block) in batch.blocks.iter().rev().enumerate() {
                let csr = block.csr();
                let named: BTreeSet<u32> = block.src().iter().copied().collect();
                vertices[layer + 1] += named.len();
                edges[layer] += csr.indices.len();
            }
        }
        let mean = |sum: usize| sum as f64 / 7.0;
        assert_eq!((row.batches, row.vertices.len(), row.edges.len()), (7, 3, 2));
        let total = mean(vertices[1] + vertices[2] + edges[0] + edges[1]);
        let estimates = row.vertices.iter().chain(&row.edges);
        let estimates = estimates.chain([&row.work, &row.work_per_seed, &row.inputs_per_seed]);
        let derived = [total, total / 16.0, mean(vertices[2]) / 16.0];
        let expected: Vec<f64> = vertices.into_iter().chain(edges).map(mean).chain(derived).collect();
        assert_close(
            &format!("{}: mean", row.sampler),
            &estimates.map(|e| e.mean).collect::<Vec<_>>(),
            &expected,
            |_, expected| 1e-9 * expected,
        );
    }
    assert_eq!(
        rows.iter().map(|row| &row.sampler[..]).collect::<Vec<_>>(),
        ["neighbor", "labor0", "labor", "walk"]
    );
}

/// Theorem 3.1: P · E W(B/P) ≥ E W(B). On a graph whose neighbourhoods overlap the difference is far above chance: it
/// must be at least 6 standard errors of both means, or the theorem is not what is seen.
#[test]
fn work_is_concave_in_the_batch_size() {
    let graph = Arc::new(Rmat::graph500(9, 8, 5).generate().unwrap());
    let pool: Vec<u32> = (0..512).collect();
    let sizes = [8usize, 32, 128];
    let config = WorkConfig {
        samplers: vec![Method::NEIGHBOR, Method::LABOR_0],
        fanouts: Fanouts(vec![5, 5]),
        batch_sizes: sizes.to_vec(),
        batches: 160,
        seed: 1,
    };
    let rows = work(&graph, &pool, &config, &mut ()).unwrap();
    for pair in rows.chunks(sizes.len()).flat_map(|rows| rows.windows(2)) {
        let [smaller, larger] = pair else { unreachable!() };
        let difference = smaller.work_per_seed.mean - larger.work_per_seed.mean;
        let error = smaller.work_per_seed.standard_error + larger.work_per_seed.standard_error;
        assert!(difference > 6.0 * error, "{smaller:?} {larger:?}");
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let graph = Arc::new(Rmat::graph500(5, 4, 5).generate().unwrap());
    let refused = |config: WorkConfig| work(&graph, &[1, 2, 3], &config, &mut ()).unwrap_err().to_string();
    let config = WorkConfig { batch_sizes: vec![2], ..WorkConfig::default() };
    assert!(refused(WorkConfig { batch_sizes: vec![4], ..config.clone() }).contains("batch_size is 4"));
    assert!(refused(WorkConfig { batch_sizes: vec![0], ..config.clone() }).contains("batch_size is 0"));
    assert!(refused(WorkConfig { batch_sizes: vec![], ..config.clone() }).contains("batch_sizes"));
    assert!(refused(WorkConfig { samplers: vec![], ..config.clone() }).contains("samplers"));
    assert!(refused(WorkConfig { batches: 0, ..config.clone() }).contains("batches is 0"));
    assert!(refused(WorkConfig { fanouts: Fanouts(vec![]), ..config }).contains("fanouts"));
}
