//! What all PEs sample together is what one samples alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::Block;
use crate::comm::threads::packed::run_packed;
use crate::comm::{Communicator, Stage, threads};
use crate::coop::{CooperativeBatch, CooperativeSampler};
use crate::device::{Cpu, LaborIterations, Method, Sample};
use crate::graph::{Graph, Partition, PartitionMethod, Rmat, Shard};
use crate::rng::Kappa;
use crate::sample::{Fanouts, Sampler, SamplerConfig};

const METHODS: [Method; 9] = [
    Method::Full,
    Method::NEIGHBOR,
    Method::Neighbor { replace: true, weighted: false },
    Method::Neighbor { replace: false, weighted: true },
    labor(LaborIterations::Fixed(0), false),
    labor(LaborIterations::Fixed(0), true),
    labor(LaborIterations::Fixed(2), false),
    labor(LaborIterations::Converged, false),
    Method::Walk { walks: 6, length: 3, restart: 0.3 },
];

const fn labor(iterations: LaborIterations, fixed_size: bool) -> Method {
    Method::Labor { iterations, fixed_size, layer_dependent: false }
}

fn graph() -> Graph {
    let graph = Rmat { symmetric: false, ..Rmat::graph500(7, 5, 11) }.generate().unwrap();
    let weights: Vec<f32> = (0..graph.n_edges()).map(|e| (e % 7) as f32).collect();
    let types: Vec<u16> = (0..graph.n_edges()).map(|e| (e % 3) as u16).collect();
    graph.with_edge_weights(weights).unwrap().with_edge_types(types, 3).unwrap()
}

fn config(method: Method, kappa: Kappa) -> SamplerConfig {
    let fanouts = Fanouts(vec![3, 2, 4]);
    let takes_edges = method.takes_edges();
    SamplerConfig {
        method,
        fanouts,
        kappa,
        seed: 5,
        edge_ids: takes_edges,
        edge_weights: takes_edges,
        ..SamplerConfig::default()
    }
}

/// By destination, its edges: source, number, relation and the bits of the estimator weight and of the weight.
type Edges = BTreeMap<u32, Vec<(u32, u64, u16, [u64; 2])>>;

fn edges(block: &Block<Cpu<f64>>) -> Edges {
    let (csr, src) = (block.csr(), block.src());
    let row = |t: usize| {
        let of = csr.indptr[t] as usize..csr.indptr[t + 1] as usize;
        let edge = |e: usize| {
            let number = block.edge_id().map_or(0, |id| id[e]);
            let weight = [block.weight(), block.edge_weight()].map(|w| w.map_or(0, |w| w[e].to_bits()));
            (src[csr.indices[e] as usize], number, block.edge_type().map_or(0, |r| r[e]), weight)
        };
        (src[t], of.map(edge).collect())
    };
    (0..block.n_dst()).map(row).collect()
}

/// Every PE gives each third seed, so that some are given by two PEs, some twice by one, and most to other owners.
fn seeds_given_to(seeds: &[u32], rank: usize, n_pes: usize) -> Vec<u32> {
    let given = |i: usize| i % n_pes == rank || i.is_multiple_of(3) && (i + 1) % n_pes == rank;
    let share = (0..seeds.len()).rev().filter(|&i| given(i)).map(|i| seeds[i]);
    share.clone().chain(share.take(2)).collect()
}

fn cooperate(
    graph: &Graph,
    partition: Partition,
    config: &SamplerConfig,
    seeds: &[u32],
    batch: u64,
) -> Vec<CooperativeBatch<f64>> {
    let partition = Arc::new(partition);
    let body = |communicator: Communicator| {
        let shard = Arc::new(Shard::new(graph, &partition, communicator.rank())?);
        let (rank, peers) = (communicator.rank(), communicator.clone());
        let seeds = seeds_given_to(seeds, rank, partition.n_pes());
        let sampler = CooperativeSampler::new(Cpu::new(), shard, communicator, config.clone(), false)?;
        let sampled = sampler.sample(&seeds, batch)?;
        // Owners' values of seeds come back to the PEs that gave the seeds, in order.
        let known: Vec<u32> = sampled.input_vertices[..sampled.seed_plan.n_owned()].to_vec();
        assert_eq!(known, sampled.seeds);
        assert_eq!(sampled.seed_plan.fetch_values(&peers, Stage::Other, &known)?, seeds);
        Ok(sampled)
    };
    let sampled = threads::run(partition.n_pes(), body).unwrap();
    // PEs that read each other's memory have what those have that send.
    for (read, sent) in sampled.iter().zip(run_packed(partition.n_pes(), body).unwrap()) {
        assert_eq!((&read.seeds, &read.input_vertices), (&sent.seeds, &sent.input_vertices));
        for (read, sent) in read.blocks.iter().zip(&sent.blocks) {
            assert_eq!((read.src(), edges(read)), (sent.src(), edges(sent)));
        }
    }
    sampled
}

/// The PEs' blocks hold each vertex and each edge of the block that one PE samples, once; rows that one PE sends are
/// rows that another receives.
fn check(graph: &Arc<Graph>, partition: Partition, config: &SamplerConfig, seeds: &[u32], batch: u64) {
    let what = format!("{config:?} {} PEs", partition.n_pes());
    let cpu = Cpu::<f64>::new();
    let loaded = cpu.load_graph(graph).unwrap();
    let alone = Sampler::new(config.clone()).unwrap().sample(&cpu, &loaded, seeds, batch).unwrap();
    let together = cooperate(graph, partition.clone(), config, seeds, batch);
    for (layer, block) in alone.blocks.iter().enumerate() {
        let mut union = Edges::new();
        for (pe, batch) in together.iter().enumerate() {
            for (dst, row) in edges(&batch.blocks[layer]) {
                assert_eq!(partition.owner(dst), pe, "{what}");
                assert!(union.insert(dst, row).is_none(), "{what}: vertex {dst} twice");
            }
            // Sources, destinations first, and what is owned of them.
            let plan = &batch.plans[layer];
            assert_eq!(plan.n_needed(), batch.blocks[layer].n_src(), "{what}");
            let owned = match layer {
                0 => &batch.input_vertices[..],
                _ => &batch.blocks[layer - 1].src()[..batch.blocks[layer - 1].n_dst()],
            };
            assert_eq!(plan.n_owned(), owned.len(), "{what}");
        }
        assert_eq!(union, edges(block), "{what}, layer {layer}");
        let n_owned: usize = together.iter().map(|b| b.plans[layer].n_owned()).sum();
        assert_eq!(n_owned, block.n_src(), "{what}: sources of layer {layer}");
    }
    let n_seeds: usize = together.iter().map(|b| b.seeds.len()).sum();
    assert_eq!(n_seeds, alone.seeds.len(), "{what}");
}

#[test]
fn the_union_of_blocks_is_the_block_of_one() {
    let graph = Arc::new(graph());
    let seeds: Vec<u32> = (0..40).map(|i| i * 3).chain([0, 3]).collect();
    for method in METHODS {
        let dependent = method.takes_edges()
            && !matches!(
                method,
                Method::Neighbor { replace: true, .. } | Method::Neighbor { weighted: true, .. }
            );
        for kappa in [Kappa::INDEPENDENT, Kappa::steps(4).unwrap()] {
            if kappa != Kappa::INDEPENDENT && !dependent {
                continue;
            }
            for n_pes in [1, 2, 3, 4, 8] {
                for partition in [PartitionMethod::Random, PartitionMethod::Contiguous, PartitionMethod::Hash]
                {
                    let partition = Partition::new(partition, graph.n_vertices(), n_pes, 1).unwrap();
                    check(&graph, partition, &config(method, kappa), &seeds, 6);
                }
            }
        }
    }
}

#[test]
fn fanouts_per_relation_and_shared_variates_cooperate_too() {
    let graph = Arc::new(graph());
    let partition = || Partition::new(PartitionMethod::Hash, graph.n_vertices(), 3, 2).unwrap();
    let neighbor = Method::NEIGHBOR;
    let by_relation = SamplerConfig { per_relation: true, ..config(neighbor, Kappa::INDEPENDENT) };
    check(&graph, partition(), &by_relation, &[5, 60, 100], 1);
    let labor =
        Method::Labor { iterations: LaborIterations::Converged, fixed_size: true, layer_dependent: true };
    check(&graph, partition(), &config(labor, Kappa::INDEPENDENT), &[5, 60, 100], 1);
}

/// A PE without seeds, one without vertices, more PEs than vertices, no seeds at all.
#[test]
fn elements_without_vertices_or_seeds_take_part() {
    let graph = Arc::new(graph());
    let lopsided = |v: u32| u16::from(v >= 4);
    let owners: Vec<u16> = (0..graph.n_vertices() as u32).map(lopsided).collect();
    let tiny = Graph::from_edges(3, &[(0, 1), (1, 2), (2, 0)]).unwrap();
    let tiny = Arc::new(tiny.with_edge_weights(vec![0.5, 1.0, 2.0]).unwrap());
    for method in METHODS {
        let config = config(method, Kappa::INDEPENDENT);
        for seeds in [&[0, 1, 2, 3][..], &[50], &[]] {
            check(&graph, Partition::from_owners(owners.clone(), 3).unwrap(), &config, seeds, 0);
        }
        let more = Partition::new(PartitionMethod::Contiguous, 3, 8, 0).unwrap();
        check(&tiny, more, &config, &[2, 0], 0);
    }
}

#[test]
fn seeds_out_of_range_are_refused_by_all() {
    let graph = graph();
    let partition = Arc::new(Partition::new(PartitionMethod::Hash, graph.n_vertices(), 2, 0).unwrap());
    let error = threads::run(2, |communicator| {
        let shard = Arc::new(Shard::new(&graph, &partition, communicator.rank())?);
        let config = config(Method::Full, Kappa::INDEPENDENT);
        CooperativeSampler::<f32>::new(Cpu::new(), shard, communicator, config, false)?.sample(&[1, 999], 0)
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "seeds[1] = 999 is out of range: expected a value below 128");
}

#[test]
fn a_shard_of_another_element_is_refused() {
    let graph = graph();
    let partition = Arc::new(Partition::new(PartitionMethod::Hash, graph.n_vertices(), 2, 0).unwrap());
    let shard = Arc::new(Shard::new(&graph, &partition, 1).unwrap());
    let error = threads::run(1, |communicator| {
        let config = config(Method::Full, Kappa::INDEPENDENT);
        CooperativeSampler::<f32>::new(Cpu::new(), shard.clone(), communicator, config, false)
    })
    .unwrap_err();
    assert!(error.to_string().contains("shard is that of PE 1 of 2"), "{error}");
}
