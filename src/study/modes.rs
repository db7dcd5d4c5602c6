//! Independent and cooperative minibatching on the same global batch (Cooperative Minibatching, section 3.1).

use std::sync::Arc;

use serde::Serialize;

use super::both_modes::{BothModes, Together};
use super::work::counts;
use super::{Listener, Spread};
use crate::device::{Cpu, Method};
use crate::error::{Error, Result};
use crate::graph::{Graph, PartitionMethod};
use crate::rng::Kappa;
use crate::sample::{Fanouts, MiniBatch};

/// What to count.
#[derive(Clone, Debug, PartialEq)]
pub struct ModesConfig {
    /// The sampler.
    pub sampler: Method,
    /// Fanout of each layer, from the seeds outward.
    pub fanouts: Fanouts,
    /// Numbers of processing elements (PEs).
    pub pes: Vec<usize>,
    /// Seeds of all PEs together.
    pub batch_size: usize,
    /// Number of batches to average over.
    pub batches: usize,
    /// Number of consecutive batches that depend on each other.
    pub kappa: Kappa,
    /// Feature rows that each PE's cache (LRU) holds; `None`: no cache. With one, as many batches as are counted go
    /// before them and fill it. Cooperating PEs load and cache only rows that they own.
    pub cache_rows: Option<usize>,
    /// How vertices are assigned to owners in cooperative mode.
    pub partition: PartitionMethod,
    /// `[n_layers + 1]`: columns of the features, of each layer's output, and of the classes, in model order.
    pub widths: Vec<usize>,
    /// The seed of seed vertices, neighbourhoods and owners.
    pub seed: u64,
}

impl Default for ModesConfig {
    /// LABOR-0 with the paper's fanouts and hidden layers of 256; 1024 seeds for all PEs.
    fn default() -> Self {
        ModesConfig {
            sampler: Method::LABOR_0,
            fanouts: Fanouts(vec![10, 10, 10]),
            pes: vec![1, 2, 4, 8, 16],
            batch_size: 1024,
            batches: 5,
            kappa: Kappa::INDEPENDENT,
            cache_rows: None,
            partition: PartitionMethod::Random,
            widths: vec![128, 256, 256, 16],
            seed: 0,
        }
    }
}

/// What each PE holds and exchanges in one mode. Lists go from the seeds outward.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ModeRow {
    /// `[n_layers + 1]`: `|S^l|`; in cooperative mode, only vertices that the PE owns.
    pub vertices: Vec<Spread>,
    /// `[n_layers]`: sources of a PE's blocks, `|S^(l+1)|`; in cooperative mode of any owner, `|S~^(l+1)|`.
    pub sources: Vec<Spread>,
    /// `[n_layers]`: `|E^l|`.
    pub edges: Vec<Spread>,
    /// `[n_layers]`: sources that other PEs own, whose ids are sent to the owners and whose rows come back.
    pub received: Vec<Spread>,
    /// Feature rows needed: `|S^L|`.
    pub inputs: Spread,
    /// Feature rows loaded: those needed that the cache does not hold; without a cache, all.
    pub loaded: Spread,
    /// Ids of sources sent to their owners.
    pub exchanged_ids: Spread,
    /// Rows received: features, activations, and the gradients of activations.
    pub exchanged_rows: Spread,
    /// Bytes sent for sampling, as counted by the communicator: ids of sources and their numbers, and what LABOR-\* and
    /// random walks look up.
    pub sample_bytes: Spread,
    /// Bytes of feature rows received, in f32.
    pub feature_bytes: Spread,
    /// Bytes of activations received, in f32; their gradients take as many.
    pub activation_bytes: Spread,
    /// Bytes of a training step: samples, features, activations and their gradients, but not the gradients of
    /// parameters.
    pub exchanged_bytes: Spread,
}

/// Both modes with one number of PEs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModesRow {
    /// Number of PEs.
    pub n_pes: usize,
    /// Seeds of all PEs together.
    pub batch_size: usize,
    /// Each PE has a minibatch of its share of the seeds.
    pub independent: ModeRow,
    /// All PEs process one minibatch together.
    pub cooperative: ModeRow,
    /// Vertices of all layers, including seeds, over all PEs: independent divided by cooperative.
    pub vertices_ratio: f64,
    /// Edges: independent divided by cooperative.
    pub edges_ratio: f64,
    /// Feature rows needed: independent divided by cooperative.
    pub inputs_ratio: f64,
    /// Feature rows loaded: independent divided by cooperative. `None` if cooperating PEs find all in their caches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded_ratio: Option<f64>,
}

/// One PE's counts for one batch. Lists go from the seeds outward.
#[derive(Clone, Debug, Default)]
struct Counts {
    vertices: Vec<u64>,
    sources: Vec<u64>,
    edges: Vec<u64>,
    received: Vec<u64>,
    loaded: u64,
    sample_bytes: u64,
}

impl Counts {
    fn alone(batch: &MiniBatch<Cpu<f32>>, loaded: u64) -> Self {
        let (vertices, edges) = counts(batch);
        let (sources, received) = (vertices[1..].to_vec(), vec![0; edges.len()]);
        Counts { vertices, sources, edges, received, loaded, sample_bytes: 0 }
    }

    fn cooperative(together: &Together<'_>) -> Self {
        let &Together { rank, batch, loaded, sample_bytes } = together;
        let outward = || batch.plans.iter().rev();
        let seeds = std::iter::once(batch.seeds.len() as u64);
        Counts {
            vertices: seeds.chain(outward().map(|plan| plan.n_owned() as u64)).collect(),
            sources: outward().map(|plan| plan.n_needed() as u64).collect(),
            edges: batch.blocks.iter().rev().map(|block| block.n_edge() as u64).collect(),
            received: outward().map(|plan| plan.n_received(rank) as u64).collect(),
            loaded,
            sample_bytes,
        }
    }
}

/// Samples the same batches of seeds in both modes, with each number of PEs (threads), and counts. Returns one row per
/// number.
///
/// Checks that cooperating PEs together hold exactly what one PE alone would hold ([`Error::Disagreement`]).
///
/// Errors: `pes` is empty, `widths` do not fit the fanouts, the batch size is 0 or above `pool.len()`, `batches` is 0,
/// and those of partitions, samplers and caches ([`Directory::new`](crate::cache::Directory::new)).
pub fn modes(
    graph: &Arc<Graph>,
    pool: &[u32],
    config: &ModesConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<ModesRow>> {
    let n_layers = config.fanouts.0.len();
    if config.widths.len() != n_layers + 1 {
        let expected = format!("{}: features, and one for each layer", n_layers + 1);
        return Err(Error::invalid("number of widths", config.widths.len(), expected));
    }
    let all = BothModes::new(graph, pool, config)?;
    let independent = |n_pes| all.independent(n_pes, |_, batch, loaded| Ok(Counts::alone(batch, loaded)));
    let total = 2 * config.pes.len() + 1;
    listener.step(0, total, "one PE alone");
    let alone = independent(1)?;
    let mut rows = Vec::with_capacity(config.pes.len());
    for (i, &n_pes) in config.pes.iter().enumerate() {
        listener.step(2 * i + 1, total, &format!("{n_pes} PEs, independent"));
        let partition = all.partition(n_pes)?;
        let apart = match n_pes {
            1 => alone.clone(),
            _ => independent(n_pes)?,
        };
        listener.step(2 * i + 2, total, &format!("{n_pes} PEs, cooperative"));
        let together = all.cooperative(partition, |_, together| Ok(Counts::cooperative(&together)))?;
        check_totals(&together, &alone)?;
        rows.push(modes_row(n_pes, config, &apart, &together));
    }
    listener.step(total, total, "done");
    Ok(rows)
}

/// Counts by batch, then by PE.
type BatchCounts = Vec<Vec<Counts>>;

/// `Ok` if cooperating PEs together hold what one PE alone holds.
fn check_totals(together: &BatchCounts, alone: &BatchCounts) -> Result<()> {
    for (together, alone) in together.iter().zip(alone) {
        let [alone] = &alone[..] else { continue };
        type List = fn(&Counts) -> &[u64];
        let lists: [(&str, List); 2] = [("vertices", |c| &c.vertices), ("edges", |c| &c.edges)];
        for (what, list) in lists {
            for (layer, &expected) in list(alone).iter().enumerate() {
                let found = together.iter().map(|counts| list(counts)[layer]).sum();
                if found != expected {
                    let what = format!("the number of {what} of {} PEs in layer {layer}", together.len());
                    return Err(Error::Disagreement { what, found, expected });
                }
            }
        }
    }
    Ok(())
}

fn modes_row(n_pes: usize, config: &ModesConfig, apart: &BatchCounts, together: &BatchCounts) -> ModesRow {
    let independent = mode_row(apart, &config.widths);
    let cooperative = mode_row(together, &config.widths);
    let ratio = |of: &dyn Fn(&ModeRow) -> f64| of(&independent) / of(&cooperative);
    let sum = |spreads: &[Spread]| spreads.iter().map(|spread| spread.total).sum();
    let (vertices_ratio, edges_ratio, inputs_ratio) =
        (ratio(&|row| sum(&row.vertices)), ratio(&|row| sum(&row.edges)), ratio(&|row| row.inputs.total));
    let loaded_ratio = (cooperative.loaded.total > 0.0).then(|| ratio(&|row| row.loaded.total));
    let batch_size = config.batch_size;
    ModesRow {
        n_pes,
        batch_size,
        independent,
        cooperative,
        vertices_ratio,
        edges_ratio,
        inputs_ratio,
        loaded_ratio,
    }
}

fn mode_row(batches: &BatchCounts, widths: &[usize]) -> ModeRow {
    let spread = |of: &dyn Fn(&Counts) -> u64| {
        let counts: Vec<Vec<u64>> = batches.iter().map(|pes| pes.iter().map(of).collect()).collect();
        Spread::of(&counts)
    };
    let n_layers = widths.len() - 1;
    let list = |of: &dyn Fn(&Counts) -> &[u64], len: usize| -> Vec<Spread> {
        (0..len).map(|layer| spread(&|counts| of(counts)[layer])).collect()
    };
    // From the seeds outward, layer l's sources have the columns of widths[n_layers - 1 - l].
    let features = |counts: &Counts| counts.received[n_layers - 1];
    let activations = |counts: &Counts| counts.received[..n_layers - 1].iter().sum::<u64>();
    let row_bytes = |width: usize| (width * size_of::<f32>()) as u64;
    let feature_bytes = |counts: &Counts| features(counts) * row_bytes(widths[0]);
    let activation_bytes = |counts: &Counts| {
        let rows = counts.received[..n_layers - 1].iter().enumerate();
        rows.map(|(layer, rows)| rows * row_bytes(widths[n_layers - 1 - layer])).sum::<u64>()
    };
    ModeRow {
        vertices: list(&|counts| &counts.vertices, n_layers + 1),
        sources: list(&|counts| &counts.sources, n_layers),
        edges: list(&|counts| &counts.edges, n_layers),
        received: list(&|counts| &counts.received, n_layers),
        inputs: spread(&|counts| counts.vertices[n_layers]),
        loaded: spread(&|counts| counts.loaded),
        exchanged_ids: spread(&|counts| counts.received.iter().sum()),
        exchanged_rows: spread(&|counts| features(counts) + 2 * activations(counts)),
        sample_bytes: spread(&|counts| counts.sample_bytes),
        feature_bytes: spread(&feature_bytes),
        activation_bytes: spread(&activation_bytes),
        exchanged_bytes: spread(&|counts| {
            counts.sample_bytes + feature_bytes(counts) + 2 * activation_bytes(counts)
        }),
    }
}
