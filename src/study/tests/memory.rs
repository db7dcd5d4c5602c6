//! Bytes by formula against those that real batches and training steps take from the device's memory.

use std::sync::Arc;

use super::layer_work::KINDS;
use crate::batch::{Batch, BatchSource, Cooperative, HostSampling, Slicer, independent_sampler, seeds_of};
use crate::comm::Communicator;
use crate::comm::threads::{self, packed::run_packed};
use crate::coop::{Group, Mode};
use crate::data::{Dataset, Features, Split};
use crate::device::{Cpu, Method};
use crate::graph::{Graph, Partition, PartitionMethod, Rmat};
use crate::nn::{Decomposition, Model, ModelConfig, ModelKind, Optimizer, OptimizerConfig, Stack};
use crate::sample::{Batches, Fanouts, SamplerConfig};
use crate::study::kept::Kept;
use crate::study::{
    Memory, MemoryConfig, ModesConfig, PeSizes, memory, memory_of, sizes, with_random_relations,
};

const RELATIONS: usize = 3;

fn dataset(typed: bool, n_features: usize) -> Arc<Dataset> {
    let mut graph = Rmat::graph500(11, 8, 3).generate().unwrap();
    if typed {
        graph = with_random_relations(&graph, RELATIONS, 0).unwrap();
    }
    let n = graph.n_vertices();
    let values: Vec<f32> = (0..n * n_features).map(|i| (i % 7) as f32).collect();
    let features = Features::dense(values, n, n_features).unwrap();
    let labels: Vec<i32> = (0..n as i32).map(|v| v % 5).collect();
    let split = Split { train: (0..1000).collect(), val: vec![], test: vec![] };
    Arc::new(Dataset::new("rmat", graph, features, labels, 5, split).unwrap())
}

fn model(kind: ModelKind, n_features: usize) -> ModelConfig {
    ModelConfig {
        kind,
        n_features,
        hidden: 16,
        n_classes: 5,
        n_layers: 3,
        heads: if kind.attends() { 2 } else { 1 },
        output_heads: if kind.attends() { 2 } else { 1 },
        n_relations: if kind.relates() { RELATIONS } else { 0 },
        ..ModelConfig::default()
    }
}

fn config(sampler: Method, n_pes: usize, n_layers: usize) -> ModesConfig {
    ModesConfig {
        sampler,
        fanouts: Fanouts(vec![6, 5, 4][..n_layers].to_vec()),
        pes: vec![n_pes],
        batch_size: 150,
        batches: 1,
        ..ModesConfig::default()
    }
}

/// What one element's memory is, counted by its device.
#[derive(Debug)]
struct Measured {
    parameters: f64,
    /// Blocks, input, plans.
    batch: f64,
    activations: f64,
    /// The most at any time of a step, without parameters.
    peak: f64,
}

/// The first batch, and two steps on it: after the first, blocks have made all that they derive.
fn measure(
    dataset: &Arc<Dataset>,
    model: &ModelConfig,
    config: &ModesConfig,
    mode: Mode,
    packed: bool,
    seeds: &[u32],
) -> Vec<Measured> {
    let n_pes = config.pes[0];
    let sampler = SamplerConfig {
        method: config.sampler,
        fanouts: config.fanouts.clone(),
        seed: config.seed,
        ..SamplerConfig::default()
    };
    let partition =
        Arc::new(Partition::of_graph(config.partition, &dataset.graph, n_pes, config.seed).unwrap());
    let one = |communicator: Communicator| {
        let rank = communicator.rank();
        let cpu = Cpu::<f32>::new();
        let live = || cpu.memory_statistics().live_bytes as f64;
        let stack = Stack::new(&cpu, model, 1)?;
        let _optimizer = Optimizer::new(&cpu, OptimizerConfig::default(), &stack.parameters)?;
        let parameters = live();
        let group = Group::new(&cpu, mode, communicator)?;
        let slicer = Slicer::new(cpu.clone(), dataset.clone(), stack.needs());
        let batch: Batch<Cpu<f32>> = match mode {
            Mode::Cooperative => {
                Cooperative::new(slicer, sampler.clone(), &partition, group.clone())?.batch(&cpu, seeds, 0)?
            }
            _ => {
                let own = if n_pes == 1 { sampler.clone() } else { independent_sampler(&sampler, rank) };
                let share = &seeds[seeds_of(seeds.len(), rank, n_pes)];
                HostSampling::new(slicer, own)?.batch(&cpu, share, 0)?
            }
        };
        let mut measured = Vec::new();
        for _ in 0..2 {
            let before = live();
            cpu.reset_peak_memory();
            let tape = group.tape(&cpu, 0);
            let scores = stack.forward(&tape, &batch)?;
            let labels = crate::device::Storage::upload(&cpu, &batch.labels)?;
            let loss = tape.log_softmax_nll(scores, labels, 1.0)?;
            let activations = live() - before;
            drop(tape.take_statistics());
            let gradients = group.sum_gradients(&cpu, tape.backward(loss)?)?;
            let peak = cpu.memory_statistics().peak_bytes as f64 - parameters;
            drop(gradients);
            measured.push(Measured { parameters, batch: live() - parameters, activations, peak });
        }
        Ok(measured.remove(1))
    };
    if packed { run_packed(n_pes, one).unwrap() } else { threads::run(n_pes, one).unwrap() }
}

/// Buffers are whole cache lines, of four sizes for each power of two: up to a quarter more than was asked for.
fn between(what: &str, formula: f64, measured: f64, n_buffers: f64) {
    let most = 1.25 * formula + 64.0 * n_buffers;
    assert!(formula <= measured && measured <= most, "{what}: {measured} measured, {formula} by formula");
}

/// Compares both modes on one batch.
fn check(model: &ModelConfig, typed: bool, sampler: Method, n_pes: usize) {
    let (dataset, config) = (dataset(typed, model.n_features), config(sampler, n_pes, model.n_layers));
    let epoch = Batches::new(dataset.train_idx.to_vec(), config.batch_size, config.seed).unwrap().epoch(0);
    let row = sizes(&dataset.graph, &dataset.train_idx, &config, model.n_relations > 0, &mut ()).unwrap();
    let memory_config = MemoryConfig { model: model.clone(), row_bytes: 4 * model.n_features };
    let rows = memory_of(&dataset.graph, &config, &memory_config, &row).unwrap();
    let batches = [(Mode::Independent, &row[0].independent), (Mode::Cooperative, &row[0].cooperative)];
    for ((mode, batches), row) in batches.into_iter().zip(&rows) {
        // Threads read rows where they are, processes pack them; alone there is no difference.
        let ways = if mode == Mode::Cooperative && n_pes > 1 { &[false, true][..] } else { &[false] };
        for &packed in ways {
            let measured = measure(&dataset, model, &config, mode, packed, epoch.batch(0).1);
            let what = format!("{model:?} {sampler:?} {n_pes} {mode} {packed}");
            compare(&what, model, typed, mode, &batches[0], &measured);
            between(&format!("{what} parameters"), row.worst.parameters, measured[0].parameters, 100.0);
        }
        assert_eq!((row.mode, row.n_pes, row.batches), (mode, n_pes, 1));
        assert!(row.worst_total >= row.mean_total && row.worst_total == row.worst.total());
    }
}

#[test]
fn bytes_are_those_of_real_batches_and_tapes() {
    for kind in KINDS {
        let relational = kind.relates();
        // 8 columns are summed first, 40 multiplied first.
        check(&model(kind, 8), true, Method::NEIGHBOR, 1);
        check(&model(kind, 40), relational, Method::LABOR_STAR, 3);
    }
    for kind in [ModelKind::Sage, ModelKind::Gcn, ModelKind::Gin, ModelKind::SageRi] {
        let dropped = ModelConfig { input_dropout: 0.2, dropout: 0.0, ..model(kind, 8) };
        check(&dropped, false, Method::LABOR_0, 2);
    }
    for decomposition in [Decomposition::Basis(2), Decomposition::BlockDiagonal(2)] {
        for kind in [ModelKind::Rgcn, ModelKind::Rgat] {
            let decomposed = ModelConfig { decomposition, n_classes: 6, n_layers: 2, ..model(kind, 8) };
            check(&decomposed, true, Method::NEIGHBOR, 2);
        }
    }
}

fn compare(
    what: &str,
    model: &ModelConfig,
    typed: bool,
    mode: Mode,
    batch: &[PeSizes],
    measured: &[Measured],
) {
    let kept = Kept::new(model, typed, mode == Mode::Cooperative).unwrap();
    let parameters = measured[0].parameters / 3.0;
    for (pe, measured) in batch.iter().zip(measured) {
        // Seeds are a list of the host's.
        let seeds = 4.0 * pe.blocks[0].destinations as f64;
        let sizes = kept.blocks(pe) - seeds + kept.input(pe) + kept.plans(pe);
        between(&format!("{what} batch"), sizes, measured.batch, 100.0);
        let activations = kept.activations(pe);
        between(&format!("{what} activations"), activations, measured.activations, 200.0);
        // The peak is at most the sum, and not far below it: rows are packed, or read where they are.
        let together = sizes + activations + kept.gradients(pe) + parameters;
        let total = together + kept.buffers(pe, batch.len(), parameters);
        let ratio = measured.peak / total;
        assert!((0.6..=1.25).contains(&ratio), "{what}: peak {} of {total}", measured.peak);
    }
}

/// A graph of 3 vertices, 4 edges.
#[test]
fn what_stays_is_counted_by_hand() {
    let graph = Graph::from_edges(3, &[(0, 1), (1, 2), (2, 0), (0, 2)]).unwrap();
    let graph = Arc::new(with_random_relations(&graph, 2, 0).unwrap());
    let config = ModesConfig {
        fanouts: Fanouts(vec![2]),
        pes: vec![1, 2],
        batch_size: 3,
        batches: 2,
        cache_rows: Some(2),
        partition: PartitionMethod::Contiguous,
        ..ModesConfig::default()
    };
    let model = ModelConfig {
        kind: ModelKind::GcnMean,
        n_features: 5,
        n_classes: 2,
        n_layers: 1,
        ..ModelConfig::default()
    };
    let config_of = |model: ModelConfig| MemoryConfig { model, row_bytes: 10 };
    let rows = memory(&graph, &[0, 1, 2], &config, &config_of(model.clone()), &mut ()).unwrap();
    let summary: Vec<_> = rows.iter().map(|row| (row.n_pes, row.mode, row.batches)).collect();
    let (independent, cooperative) = (Mode::Independent, Mode::Cooperative);
    assert_eq!(summary, [(1, independent, 2), (1, cooperative, 2), (2, independent, 2), (2, cooperative, 2)]);
    // 4 offsets of 8 bytes, 4 edges of 4 + 2; a shard's 3 vertices of 16, and 6 for each vertex of the graph.
    assert_eq!((rows[0].mean.graph, rows[1].mean.graph), (56.0, 56.0 + 48.0 + 18.0));
    // Rows of 10 bytes, labels of 4; 2 slots of 10 + 13 bytes, 4 for each vertex.
    assert_eq!((rows[0].mean.features, rows[0].mean.cache), (42.0, 58.0));
    // 12 parameters, their gradients, and two moments.
    assert_eq!(rows[0].mean.parameters, 144.0);
    assert_eq!((rows[0].mean.exchange, rows[2].mean.exchange), (0.0, 144.0));
    // Shares of two PEs: offsets of one more than vertices each, 4 edges, 16 bytes a vertex, and twice 6 a vertex.
    let both = 2.0 * rows[3].mean.graph;
    assert_eq!(both, 8.0 * 5.0 + 4.0 * 6.0 + 16.0 * 3.0 + 2.0 * 18.0);
    assert_eq!((2.0 * rows[3].mean.features, rows[2].mean.features), (42.0, 42.0));
    let named: Vec<(&str, f64)> = Memory::NAMES.into_iter().zip(rows[3].worst.values()).collect();
    assert_eq!((named[0], named[8]), (("graph", rows[3].worst.graph), ("exchange", rows[3].worst.exchange)));
    let refused = |model: ModelConfig| {
        memory(&graph, &[0, 1, 2], &config, &config_of(model), &mut ()).unwrap_err().to_string()
    };
    assert!(refused(ModelConfig { n_layers: 2, ..model.clone() }).contains("n_layers is 2: expected 1"));
    assert!(refused(ModelConfig { embedding: 3, ..model.clone() }).contains("embedding is 3"));
    let rgcn = ModelConfig { kind: ModelKind::Rgcn, n_relations: 3, ..model };
    assert!(refused(rgcn).contains("n_relations is 3: expected 2"));
}
