//! Cooperating PEs hold what one holds alone, and send what is said.

use std::sync::Arc;

use approx::assert_relative_eq;

use super::{METHODS, sampler};
use crate::batch::{independent_sampler, seeds_of};
use crate::comm::{Stage, threads};
use crate::coop::{CooperativeSampler, Peers};
use crate::device::Method;
use crate::device::{Cpu, Sample};
use crate::graph::{Partition, PartitionMethod, Rmat, Shard};
use crate::rng::Kappa;
use crate::sample::{Batches, Fanouts, Sampler};
use crate::study::{ModesConfig, Spread, modes};
use crate::tensor::Tensor;

fn total(spreads: &[Spread]) -> Vec<f64> {
    spreads.iter().map(|spread| spread.total).collect()
}

#[test]
fn totals_are_those_of_one_alone() {
    let graph = Arc::new(Rmat::graph500(7, 6, 9).generate().unwrap());
    let pool: Vec<u32> = (0..100).collect();
    let cpu = Cpu::<f32>::new();
    let loaded = cpu.load_graph(&graph).unwrap();
    for method in METHODS {
        let config = ModesConfig {
            sampler: method,
            fanouts: Fanouts(vec![3, 2]),
            pes: (1..=8).collect(),
            batch_size: 32,
            batches: 1,
            partition: PartitionMethod::Hash,
            widths: vec![5, 6, 7],
            seed: 2,
            ..ModesConfig::default()
        };
        let rows = modes(&graph, &pool, &config, &mut ()).unwrap();
        let alone = Sampler::new(sampler(method, &config.fanouts, Kappa::INDEPENDENT, 2)).unwrap();
        let batches = Batches::new(pool.clone(), 32, 2).unwrap().epoch(0);
        let alone = alone.sample(&cpu, &loaded, batches.batch(0).1, 0).unwrap();
        let vertices = [32.0, alone.blocks[1].n_src() as f64, alone.blocks[0].n_src() as f64];
        let edges = [alone.blocks[1].n_edge() as f64, alone.blocks[0].n_edge() as f64];
        for (n_pes, row) in (1..).zip(&rows) {
            assert_eq!(row.n_pes, n_pes);
            assert_eq!(total(&row.cooperative.vertices), vertices, "{method:?} {n_pes}");
            assert_eq!(total(&row.cooperative.edges), edges, "{method:?} {n_pes}");
            assert_eq!(row.cooperative.inputs.per_pe, vertices[2] / n_pes as f64);
            assert_eq!(total(&row.independent.received), [0.0, 0.0]);
            assert_eq!(row.independent.vertices[0].total, 32.0);
        }
        assert_eq!(rows[0].independent.vertices, rows[0].cooperative.vertices);
        assert_eq!((rows[0].inputs_ratio, rows[0].cooperative.exchanged_bytes.total), (1.0, 0.0));
        // Eight neighbourhoods overlap, but for random walks from few seeds never less than one.
        assert!(rows[7].inputs_ratio > 1.0 && rows[7].vertices_ratio > 1.0, "{:?}", rows[7]);
    }
}

/// Caches as lists of the last vertices used, one for each PE, by a search through them.
#[test]
fn caches_load_what_a_list_of_recent_rows_lacks() {
    let graph = Arc::new(Rmat::graph500(7, 6, 9).generate().unwrap());
    let pool: Vec<u32> = (0..100).collect();
    let (n_pes, rows, kappa) = (3, 20, "4".parse::<Kappa>().unwrap());
    let config = ModesConfig {
        fanouts: Fanouts(vec![3, 2]),
        pes: vec![n_pes],
        batch_size: 24,
        batches: 3,
        partition: PartitionMethod::Hash,
        widths: vec![5, 6, 7],
        kappa,
        cache_rows: Some(rows),
        ..ModesConfig::default()
    };
    let row = &modes(&graph, &pool, &config, &mut ()).unwrap()[0];
    let cpu = Cpu::<f32>::new();
    let loaded = cpu.load_graph(&graph).unwrap();
    let own = sampler(config.sampler, &config.fanouts, kappa, config.seed);
    let one = Sampler::new(own.clone()).unwrap();
    let partition = Partition::new(config.partition, graph.n_vertices(), n_pes, config.seed).unwrap();
    let batches = Batches::new(pool.clone(), 24, config.seed).unwrap();
    let full = (0..2).flat_map(|epoch| {
        let epoch = batches.epoch(epoch);
        epoch.iter().map(|(_, seeds)| seeds.to_vec()).filter(|seeds| seeds.len() == 24).collect::<Vec<_>>()
    });
    let (mut apart, mut together) = (0, 0);
    let mut recent = vec![[vec![], vec![]]; n_pes];
    for (number, seeds) in (0..).zip(full.take(6)) {
        let all = one.sample(&cpu, &loaded, &seeds, number).unwrap();
        for (rank, [alone, shared]) in recent.iter_mut().enumerate() {
            let sampler = Sampler::new(independent_sampler(&own, rank)).unwrap();
            let batch = sampler.sample(&cpu, &loaded, &seeds[seeds_of(24, rank, n_pes)], number).unwrap();
            let owned = |&&v: &&u32| partition.owner(v) == rank;
            let owned: Vec<u32> = all.input_vertices().iter().filter(owned).copied().collect();
            let misses = [misses(alone, rows, batch.input_vertices()), misses(shared, rows, &owned)];
            if number >= 3 {
                (apart, together) = (apart + misses[0], together + misses[1]);
            }
        }
    }
    assert_relative_eq!(row.independent.loaded.total, apart as f64 / 3.0, max_relative = 1e-12);
    // The order in which owners access a batch's rows differs, and with it what LRU evicts.
    let loaded = &row.cooperative.loaded;
    assert_relative_eq!(loaded.total, together as f64 / 3.0, max_relative = 0.1);
    assert!(row.independent.loaded.total < row.independent.inputs.total);
    assert!(loaded.total < row.cooperative.inputs.total && row.loaded_ratio.unwrap() > 1.0);
    // Caches that hold all rows load each once, hence next to none after the first batches; without, all are loaded.
    let full = ModesConfig { cache_rows: Some(128), batches: 40, ..config.clone() };
    assert!(modes(&graph, &pool, &full, &mut ()).unwrap()[0].independent.loaded.total < 1.0);
    let none = ModesConfig { cache_rows: None, ..config };
    let row = &modes(&graph, &pool, &none, &mut ()).unwrap()[0];
    assert_eq!(row.independent.loaded, row.independent.inputs);
    assert_eq!(row.cooperative.loaded, row.cooperative.inputs);
}

/// Accesses of `vertices` that `recent`, with the last used at the end, lacks.
fn misses(recent: &mut Vec<u32>, capacity: usize, vertices: &[u32]) -> usize {
    let mut miss = |v: u32| {
        let at = recent.iter().position(|&w| w == v);
        at.map(|at| recent.remove(at));
        recent.push(v);
        if recent.len() > capacity {
            recent.remove(0);
        }
        at.is_none()
    };
    vertices.iter().filter(|&&v| miss(v)).count()
}

/// Rows of the widths said, sent by the plans, are the bytes said.
#[test]
fn bytes_are_those_that_a_communicator_counts() {
    let graph = Arc::new(Rmat::graph500(7, 6, 9).generate().unwrap());
    let pool: Vec<u32> = (0..100).collect();
    let n_pes = 3;
    let config = ModesConfig {
        sampler: Method::NEIGHBOR,
        fanouts: Fanouts(vec![3, 2, 2]),
        pes: vec![n_pes],
        batch_size: 40,
        batches: 1,
        widths: vec![7, 3, 5, 2],
        ..ModesConfig::default()
    };
    let row = &modes(&graph, &pool, &config, &mut ()).unwrap()[0].cooperative;
    let partition = Partition::new(config.partition, graph.n_vertices(), n_pes, config.seed).unwrap();
    let partition = Arc::new(partition);
    let epoch = Batches::new(pool.clone(), 40, config.seed).unwrap().epoch(0);
    let sent = threads::run(n_pes, |communicator| {
        let cpu = Cpu::<f32>::new();
        let shard = Arc::new(Shard::new(&graph, &partition, communicator.rank())?);
        let own = sampler(Method::NEIGHBOR, &config.fanouts, Kappa::INDEPENDENT, config.seed);
        let sampler = CooperativeSampler::new(cpu.clone(), shard, communicator.clone(), own, false)?;
        let seeds = epoch.batch(0).1;
        let batch = sampler.sample(&seeds[seeds_of(seeds.len(), communicator.rank(), n_pes)], 0)?;
        let peers = Peers::new(&cpu, communicator.clone());
        // In model order: features, then the outputs of two layers.
        for (plan, (width, stage)) in
            batch.plans.iter().zip([(7, Stage::Feature), (3, Stage::Forward), (5, Stage::Forward)])
        {
            plan.fetch(&cpu, &peers, stage, &Tensor::zeros(&cpu, plan.n_owned(), width)?)?;
        }
        let bytes = |stage| communicator.statistics().stage(stage).bytes;
        let seeds_sent = batch.seed_plan.n_received(communicator.rank());
        Ok([bytes(Stage::Sample), bytes(Stage::Feature), bytes(Stage::Forward), seeds_sent as u64])
    })
    .unwrap();
    let sum = |which: usize| sent.iter().map(|bytes| bytes[which]).sum::<u64>() as f64;
    assert_eq!(row.sample_bytes.total, sum(0));
    // Four bytes an id, of a seed or a source, and eight for how many each PE sends each other, once for seeds and for
    // each layer.
    assert_eq!(sum(0), 4.0 * (sum(3) + row.exchanged_ids.total) + (8 * 4 * n_pes * (n_pes - 1)) as f64);
    assert_eq!(row.feature_bytes.total, sum(1));
    assert_eq!(row.activation_bytes.total, sum(2));
    assert_eq!(row.exchanged_bytes.total, sum(0) + sum(1) + 2.0 * sum(2));
    let received = total(&row.received);
    assert_eq!(row.exchanged_rows.total, received[2] + 2.0 * (received[0] + received[1]));
}

/// Fewer seeds than PEs, and a mean over several batches.
#[test]
fn elements_without_seeds_count_as_nothing() {
    let graph = Arc::new(Rmat::graph500(6, 4, 1).generate().unwrap());
    let config = ModesConfig {
        sampler: Method::LABOR_0,
        fanouts: Fanouts(vec![2]),
        pes: vec![8],
        batch_size: 3,
        batches: 4,
        widths: vec![4, 2],
        ..ModesConfig::default()
    };
    let row = &modes(&graph, &(0..20).collect::<Vec<_>>(), &config, &mut ()).unwrap()[0];
    assert_eq!(row.independent.vertices[0], Spread { total: 3.0, per_pe: 0.375, largest: 1.0 });
}

#[test]
fn wrong_arguments_are_refused() {
    let graph = Arc::new(Rmat::graph500(6, 4, 1).generate().unwrap());
    let refused = |config: ModesConfig| modes(&graph, &[1, 2, 3], &config, &mut ()).unwrap_err().to_string();
    let config = ModesConfig { batch_size: 2, ..ModesConfig::default() };
    assert!(refused(ModesConfig { pes: vec![], ..config.clone() }).contains("pes"));
    assert!(refused(ModesConfig { pes: vec![0], ..config.clone() }).contains("n_pes is 0"));
    assert!(refused(ModesConfig { widths: vec![1], ..config.clone() }).contains("widths is 1"));
    assert!(refused(ModesConfig { batches: 0, ..config }).contains("batches is 0"));
}
