use approx::assert_abs_diff_eq;

use super::*;
use crate::device::Cpu;
use crate::graph::Graph;
use crate::rng::uniform;

fn config(method: Method, fanouts: &[usize]) -> SamplerConfig {
    SamplerConfig {
        method,
        fanouts: Fanouts(fanouts.to_vec()),
        per_relation: false,
        kappa: Kappa::INDEPENDENT,
        dependence: Dependence::default(),
        seed: 3,
        edge_ids: true,
        edge_weights: false,
    }
}

fn sample(graph: &Arc<Graph>, config: SamplerConfig, seeds: &[u32], batch: u64) -> Result<MiniBatch<Cpu>> {
    Sampler::new(config)?.sample(&Cpu::new(), graph, seeds, batch)
}

/// Vertex 0 has no in-edges, vertex v the sources 0..v.
fn triangle(n: u32) -> Arc<Graph> {
    let indptr = (0..=u64::from(n)).map(|v| v * v.saturating_sub(1) / 2).collect::<Vec<u64>>();
    let indices: Vec<u32> = (0..n).flat_map(|v| 0..v).collect();
    Arc::new(Graph::from_csr(indptr, indices).unwrap())
}

#[test]
fn blocks_are_in_model_order_and_fit_together() {
    let graph = triangle(50);
    for method in [Method::Full, Method::NEIGHBOR, Method::LABOR_0] {
        let batch = sample(&graph, config(method, &[3, 2, 4]), &[40, 7, 0, 49], 5).unwrap();
        let blocks = &batch.blocks;
        assert_eq!(blocks.len(), 3);
        assert_eq!(&blocks[2].src()[..4], [40, 7, 0, 49]);
        assert_eq!(batch.seeds, [40, 7, 0, 49]);
        assert_eq!(batch.seed_row, None);
        for pair in blocks.windows(2) {
            assert_eq!(pair[0].n_dst(), pair[1].n_src());
            assert_eq!(pair[0].src()[..pair[0].n_dst()], *pair[1].src());
        }
        assert_eq!(batch.input_vertices(), blocks[0].src());
        assert_eq!(batch.n_edges(), blocks.iter().map(|block| block.n_edge() as u64).sum::<u64>());
    }
    // The first fanout is that of the seeds.
    let batch = sample(&graph, config(Method::NEIGHBOR, &[3, 2]), &[40, 49], 5).unwrap();
    assert_eq!(batch.blocks[1].csr().indptr, [0, 3, 6]);
}

#[test]
fn layers_and_batches_have_draws_of_their_own_and_the_same_number_the_same() {
    let graph = triangle(200);
    let edges = |batch: u64| {
        let minibatch = sample(&graph, config(Method::NEIGHBOR, &[8, 8]), &[199], batch).unwrap();
        let of_seed = |block: &Block<Cpu>| block.edge_id().unwrap()[..8].to_vec();
        (of_seed(&minibatch.blocks[1]), of_seed(&minibatch.blocks[0]))
    };
    assert_eq!(edges(4), edges(4));
    assert_ne!(edges(4).0, edges(5).0);
    assert_ne!(edges(4).0, edges(4).1);
}

#[test]
fn repeated_seeds_are_merged() {
    let graph = triangle(10);
    let batch = sample(&graph, config(Method::Full, &[1]), &[5, 5, 7], 0).unwrap();
    assert_eq!(batch.seeds, [5, 7]);
    assert_eq!(batch.seed_row, Some(vec![0, 0, 1]));
    assert_eq!(batch.blocks[0].n_dst(), 2);
    let batch = sample(&graph, config(Method::Full, &[1]), &[7, 5, 7, 5, 5, 2], 0).unwrap();
    assert_eq!((batch.seeds, batch.seed_row), (vec![7, 5, 2], Some(vec![0, 1, 0, 1, 1, 2])));
}

#[test]
fn seeds_out_of_range_are_named_at_their_place_and_nothing_is_allocated_by_id() {
    let graph = triangle(10);
    let cpu = Cpu::<f32>::new();
    let sampler = Sampler::new(config(Method::NEIGHBOR, &[2])).unwrap();
    for seed in [10, u32::MAX] {
        let error = sampler.sample(&cpu, &graph, &[3, 3, seed], 0).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("seeds[2] = {seed} is out of range: expected a value below 10")
        );
    }
    assert!(cpu.memory_statistics().largest_bytes < 4096);
}

#[test]
fn no_seeds_give_an_empty_batch_and_no_layers_an_error() {
    let graph = triangle(10);
    for method in [Method::Full, Method::NEIGHBOR, Method::LABOR_0] {
        let batch = sample(&graph, config(method, &[2, 2]), &[], 0).unwrap();
        assert_eq!(batch.blocks.len(), 2);
        assert!(batch.input_vertices().is_empty());
        assert_eq!(batch.n_edges(), 0);
    }
    assert!(matches!(
        sample(&graph, config(Method::NEIGHBOR, &[]), &[1], 0),
        Err(Error::InvalidArgument { .. })
    ));
}

#[test]
fn degrees_are_those_of_the_whole_graph() {
    let graph = triangle(30);
    let sampler = Sampler::new(config(Method::NEIGHBOR, &[2])).unwrap();
    let plain = sampler.sample(&Cpu::<f64>::new(), &graph, &[20], 0).unwrap();
    assert!(plain.blocks[0].symmetric_weights(&Cpu::new()).unwrap().is_none());
    let sampler = sampler.with_degrees();
    let batch = sampler.sample(&Cpu::<f64>::new(), &graph, &[20], 0).unwrap();
    let (_, own) = batch.blocks[0].symmetric_weights(&Cpu::new()).unwrap().unwrap();
    assert_abs_diff_eq!(own[0], 1.0 / 21.0, epsilon = 1e-12);
}

/// A row's picks change little from batch to batch inside a window, and altogether between independent ones.
#[test]
fn dependent_minibatches_keep_most_of_their_edges() {
    let n = 2000;
    let row = |v: u64| (0..n).filter(move |&s| uniform(1, v, s) < 0.05).map(|s| s as u32);
    let rows: Vec<Vec<u32>> = (0..n).map(|v| row(v).collect()).collect();
    let mut indptr = vec![0];
    for row in &rows {
        indptr.push(indptr[indptr.len() - 1] + row.len() as u64);
    }
    let graph = Arc::new(Graph::from_csr(indptr, rows.concat()).unwrap());
    let seeds: Vec<u32> = (0..500).collect();
    for method in [Method::NEIGHBOR, Method::LABOR_0] {
        let shared = |kappa: &str, first: u64| {
            let kappa = kappa.parse().unwrap();
            let edges = |batch| {
                let batch = sample(&graph, SamplerConfig { kappa, ..config(method, &[10]) }, &seeds, batch);
                batch.unwrap().blocks[0].edge_id().unwrap().to_vec()
            };
            let (a, b) = (edges(first), edges(first + 1));
            b.iter().filter(|edge| a.binary_search(edge).is_ok()).count() as f64 / b.len() as f64
        };
        // 10 of some 100 edges: independent batches share a tenth.
        assert!(shared("1", 0) < 0.2, "{method:?}");
        // Also from the first step of a window to its second, and from one window to the next.
        for first in [0, 5, 63, 64] {
            assert!(shared("64", first) > 0.9, "{method:?} {first}: {}", shared("64", first));
        }
        assert_eq!(shared("inf", 41), 1.0);
    }
}
