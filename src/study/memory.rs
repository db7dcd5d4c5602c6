//! Memory of each processing element (PE) by what holds it, from counted batches.
//!
//! All bytes are those of a training step in `f32` on the host, as this crate's kernels, layers and batches allocate
//! them. With `V` vertices and `E` edges of the graph, of which in cooperative mode a PE owns `o` and `e` (in
//! independent mode it has all: `o = V`, `e = E`), and `T` destinations, `S` sources and `B` edges of a block:
//!
//! ```text
//! graph        8 (o + 1) + 4 e, for each edge 2 more with types and 4 with weights;
//!              in cooperative mode 16 o besides, and 6 V to find vertices' owners and rows
//! features     o rows as they are stored, and a label of 4 bytes for each
//! cache        rows as they are stored and 13 bytes for each slot, and 4 V (above 2^28 vertices 16 to 32 a slot)
//! blocks       4 (S + T + 1 + B) each, for each edge 4 more with estimator weights and 2 with types; what layers
//!              derive: 4 (S + 1) + 8 B for a transpose, factors of destinations and sources, 36 B and 8 for each group
//!              of relations, for attention over them 12 B and 52 for each group more; 8 for each seed
//! input        4 bytes for each column of the sources' rows, or of their aggregates if the first layer begins with one
//!              that does not narrow its rows
//! activations  what the tape keeps from the forward to the backward pass: outputs of operations, dropout among them,
//!              what they save, and in cooperative mode the rows fetched before each layer but the first
//! gradients    4 for each parameter; and those of the activations of the layer that has most: of all it keeps, of its
//!              input, and what its kernels need meanwhile
//! parameters   4 each, running statistics among them, and for Adam 8 more of each that is trained
//! exchange     plans, 4 bytes for each row sent and 8 for each source; the larger of the rows packed for and received
//!              from others before the layer with most, and of three copies of all parameters' gradients, which are
//!              added up over PEs; a PE alone has none
//! ```
//!
//! Not all are largest at once: the total of a PE is their sum, an upper bound of its peak. Device buffers are rounded
//! up to one of four sizes for each power of two, which adds up to a quarter. Threads of one process share graph and
//! features, and read each other's rows without packing them. Not counted: the sampler's scratch, batches prepared
//! ahead (each another `blocks` and `input`), and what kernels need for a tile.

use std::sync::Arc;

use serde::Serialize;

use super::kept::{ID, Kept, RELATION, needs_groups};
use super::layer_work::SCALAR;
use super::parameters::{parameters, statistics};
use super::{Listener, ModesConfig, PeSizes, SizesRow, sizes};
use crate::coop::Mode;
use crate::error::{Error, Result, try_filled};
use crate::graph::{Graph, Partition};
use crate::nn::ModelConfig;

/// What a PE holds beside its batches' sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct MemoryConfig {
    /// The model. Features are dense, of its number of input columns.
    pub model: ModelConfig,
    /// Bytes of a feature row as it is stored.
    pub row_bytes: usize,
}

/// Bytes of one PE, by what holds them. See the [module](mod@crate::study::memory) for what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// The graph, or the PE's shard of it.
    pub graph: f64,
    /// Features and labels: of all vertices, or of those that the PE owns.
    pub features: f64,
    /// The feature cache.
    pub cache: f64,
    /// The batch's blocks.
    pub blocks: f64,
    /// The rows that the batch brings for the first layer.
    pub input: f64,
    /// What is kept of the forward pass for the backward pass.
    pub activations: f64,
    /// Gradients of the parameters, and of the activations of one layer.
    pub gradients: f64,
    /// Parameters and the optimiser's state.
    pub parameters: f64,
    /// Rows and gradients on their way to and from other PEs, and which rows these are.
    pub exchange: f64,
}

impl Memory {
    /// The names of the holders, in the order of [`values`](Memory::values).
    pub const NAMES: [&'static str; 9] = [
        "graph",
        "features",
        "cache",
        "blocks",
        "input",
        "activations",
        "gradients",
        "parameters",
        "exchange",
    ];

    /// The bytes of each holder.
    pub fn values(&self) -> [f64; 9] {
        [
            self.graph,
            self.features,
            self.cache,
            self.blocks,
            self.input,
            self.activations,
            self.gradients,
            self.parameters,
            self.exchange,
        ]
    }

    /// The bytes of all.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }

    fn from_values(
        [graph, features, cache, blocks, input, activations, gradients, parameters, exchange]: [f64; 9],
    ) -> Self {
        Memory { graph, features, cache, blocks, input, activations, gradients, parameters, exchange }
    }
}

/// The memory of one mode and number of PEs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryRow {
    /// Number of PEs.
    pub n_pes: usize,
    /// How the PEs share a batch.
    pub mode: Mode,
    /// Number of batches counted.
    pub batches: usize,
    /// The mean over batches and PEs.
    pub mean: Memory,
    /// That of the batch and the PE with the largest total.
    pub worst: Memory,
    /// The total of [`mean`](MemoryRow::mean).
    pub mean_total: f64,
    /// The total of [`worst`](MemoryRow::worst).
    pub worst_total: f64,
}

/// Samples batches as [`sizes()`] does, and adds up what each PE holds: two rows, independent and cooperative, for each
/// number of PEs.
///
/// Errors: those of [`sizes()`] and of [`ModelConfig::check`], a model with another number of layers than the fanouts
/// or with an embedding, and one with relations over a graph without edge types.
pub fn memory(
    graph: &Arc<Graph>,
    pool: &[u32],
    config: &ModesConfig,
    memory: &MemoryConfig,
    listener: &mut dyn Listener,
) -> Result<Vec<MemoryRow>> {
    check(graph, config, memory)?;
    let relations = needs_groups(&memory.model);
    let rows = sizes(graph, pool, config, relations, listener)?;
    memory_of(graph, config, memory, &rows)
}

fn check(graph: &Graph, config: &ModesConfig, memory: &MemoryConfig) -> Result<()> {
    let (found, expected) = (memory.model.n_layers, config.fanouts.0.len());
    if found != expected {
        return Err(Error::invalid("n_layers", found, format!("{expected}, as many as fanouts")));
    }
    if needs_groups(&memory.model) && graph.n_relations() != memory.model.n_relations {
        let expected = format!("{}, as in the graph", graph.n_relations());
        return Err(Error::invalid("n_relations", memory.model.n_relations, expected));
    }
    Kept::new(&memory.model, false, false).map(|_| ())
}

/// The memory of batches whose [`sizes()`] were taken with `config`, with pairs of relations counted if the model has
/// relations. Two rows for each of `rows`, independent and cooperative.
///
/// Errors: those of [`memory()`].
pub fn memory_of(
    graph: &Graph,
    config: &ModesConfig,
    memory: &MemoryConfig,
    rows: &[SizesRow],
) -> Result<Vec<MemoryRow>> {
    check(graph, config, memory)?;
    let mut all = Vec::with_capacity(2 * rows.len());
    for row in rows {
        let partition = Partition::of_graph(config.partition, graph, row.n_pes, config.seed)?;
        let owned = owned(graph, &partition)?;
        for (mode, batches) in [(Mode::Independent, &row.independent), (Mode::Cooperative, &row.cooperative)]
        {
            let pe = Pe { graph, config, memory, mode, n_pes: row.n_pes };
            let fixed: Vec<Memory> = owned.iter().map(|&owned| pe.fixed(owned)).collect();
            let mut each = Vec::with_capacity(batches.len() * row.n_pes);
            for sizes in batches {
                for (sizes, fixed) in sizes.iter().zip(&fixed) {
                    each.push(pe.of_batch(sizes, fixed)?);
                }
            }
            let mut mean = [0.0; 9];
            for (i, mean) in mean.iter_mut().enumerate() {
                let sum: f64 = each.iter().map(|memory| memory.values()[i]).sum();
                *mean = sum / each.len().max(1) as f64;
            }
            let mean = Memory::from_values(mean);
            let worst = each.iter().max_by(|a, b| a.total().total_cmp(&b.total()));
            let worst = worst.copied().unwrap_or_default();
            all.push(MemoryRow {
                n_pes: row.n_pes,
                mode,
                batches: batches.len(),
                mean_total: mean.total(),
                worst_total: worst.total(),
                mean,
                worst,
            });
        }
    }
    Ok(all)
}

/// Vertices and in-edges of a PE.
#[derive(Clone, Copy, Debug, Default)]
struct Owned {
    vertices: u64,
    edges: u64,
}

fn owned(graph: &Graph, partition: &Partition) -> Result<Vec<Owned>> {
    let asked = format_args!("{} processing elements", partition.n_pes());
    let mut owned = try_filled("the elements' vertices", Owned::default(), partition.n_pes(), asked)?;
    for vertex in 0..graph.n_vertices() as u32 {
        let own = &mut owned[partition.owner(vertex)];
        own.vertices += 1;
        own.edges += graph.in_degree(vertex);
    }
    Ok(owned)
}

/// What the memory of a PE depends on besides its batch and its vertices.
struct Pe<'a> {
    graph: &'a Graph,
    config: &'a ModesConfig,
    memory: &'a MemoryConfig,
    mode: Mode,
    n_pes: usize,
}

impl Pe<'_> {
    /// What does not change from batch to batch.
    fn fixed(&self, owned: Owned) -> Memory {
        const OFFSET: f64 = size_of::<u64>() as f64;
        const OWNER: f64 = size_of::<u16>() as f64;
        let (all_vertices, all_edges) = (self.graph.n_vertices() as f64, self.graph.n_edges() as f64);
        let cooperative = self.mode == Mode::Cooperative;
        let (vertices, edges) = match cooperative {
            true => (owned.vertices as f64, owned.edges as f64),
            false => (all_vertices, all_edges),
        };
        let types = if self.graph.edge_type().is_some() { RELATION } else { 0.0 };
        let weights = if self.graph.edge_weight().is_some() { SCALAR } else { 0.0 };
        let rows = OFFSET * (vertices + 1.0) + (ID + types + weights) * edges;
        // Ids, first edges and positions of its own; each vertex's row and owner.
        let shard = (2.0 * ID + OFFSET) * vertices + (ID + OWNER) * all_vertices;
        let row_bytes = self.memory.row_bytes as f64;
        let (model, layers) = (&self.memory.model, 0..self.memory.model.n_layers);
        let parameters: f64 = layers.clone().map(|layer| parameters(model, layer) as f64).sum();
        let statistics: f64 = layers.map(|layer| statistics(model, layer)).sum();
        Memory {
            graph: rows + if cooperative { shard } else { 0.0 },
            features: (row_bytes + ID) * vertices,
            cache: self.config.cache_rows.map_or(0.0, |rows| self.cache(rows)),
            parameters: SCALAR * (3.0 * parameters + statistics),
            gradients: SCALAR * parameters,
            ..Memory::default()
        }
    }

    fn cache(&self, rows: usize) -> f64 {
        /// The most vertices for which the cache has an array of all.
        const MAX_ARRAY: usize = 1 << 28;
        let n_vertices = self.graph.n_vertices();
        let slots = rows.min(n_vertices);
        let index = match n_vertices <= MAX_ARRAY {
            true => ID * n_vertices as f64,
            false => 2.0 * ID * slots.saturating_mul(2).next_power_of_two() as f64,
        };
        // Its id, two links, and whether its row is still to come.
        (self.memory.row_bytes as f64 + 3.0 * ID + 1.0) * slots as f64 + index
    }

    fn of_batch(&self, pe: &PeSizes, fixed: &Memory) -> Result<Memory> {
        let typed = self.graph.edge_type().is_some();
        let kept = Kept::new(&self.memory.model, typed, self.mode == Mode::Cooperative)?;
        Ok(Memory {
            blocks: kept.blocks(pe),
            input: kept.input(pe),
            activations: kept.activations(pe),
            gradients: fixed.gradients + kept.gradients(pe),
            exchange: kept.plans(pe) + kept.buffers(pe, self.n_pes, fixed.gradients),
            ..*fixed
        })
    }
}
