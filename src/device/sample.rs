//! Kernel family *sample*: one layer of neighbourhoods for given destinations, relabelled.

use std::fmt::Debug;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::device::Storage;
use crate::error::{Error, Result};
use crate::graph::{EdgeSet, Graph};
use crate::rng::{Purpose, Variates};

/// How many fixed-point iterations LABOR takes to lower the number of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LaborIterations {
    /// LABOR-i. LABOR-0 keeps `π = 1` and decides in integers.
    Fixed(u32),
    /// LABOR-*: until the expected number of sources stops falling.
    Converged,
}

/// A sampling method. `src/device/cpu/sample/naive.rs` has the plainest form of each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// All in-edges; the fanout is not used.
    Full,
    /// `min(fanout, degree)` in-edges, every subset equally likely; with `replace`, `fanout` independent draws
    /// (an edge may come several times). With `weighted`, an edge's probability is proportional to its weight in the
    /// graph, and edges of weight zero are never taken.
    Neighbor {
        /// Draw with replacement.
        replace: bool,
        /// Use the graph's edge weights.
        weighted: bool,
    },
    /// LABOR (Balın & Çatalyürek 2023): one variate per source vertex, shared by all destinations of the layer.
    Labor {
        /// How far the sources' probabilities are optimised.
        iterations: LaborIterations,
        /// Keep exactly `min(fanout, degree)` edges of each row, those of the smallest `r_s / min(1, c_t π_s)`,
        /// instead of a Poisson number of this expectation.
        fixed_size: bool,
        /// Use the same variates in all layers of a batch, so that layers share sources.
        layer_dependent: bool,
    },
    /// PinSAGE's random walks: `walks` walks of `length` steps against the in-edges from each destination, going back
    /// to it with probability `restart` before each step; the `fanout` most visited vertices (the destination itself
    /// excluded, ties to the lower id) become sources with the share of visits as weight.
    Walk {
        /// Number of walks from each destination.
        walks: u32,
        /// Steps of a walk.
        length: u32,
        /// Probability of a restart before a step.
        restart: f64,
    },
}

impl Method {
    /// Uniform in-edges without replacement.
    pub const NEIGHBOR: Method = Method::Neighbor { replace: false, weighted: false };
    /// LABOR-0: a Poisson number of edges, other variates in each layer.
    pub const LABOR_0: Method = Method::labor(LaborIterations::Fixed(0));
    /// LABOR-*.
    pub const LABOR_STAR: Method = Method::labor(LaborIterations::Converged);
    /// Ten walks of three steps from each destination, with an even chance of a restart.
    pub const PINSAGE_WALK: Method = Method::Walk { walks: 10, length: 3, restart: 0.5 };

    /// The most iterations of LABOR-i.
    pub const MAX_ITERATIONS: u32 = 1000;
    /// The most steps of all walks from one destination.
    pub const MAX_STEPS: u64 = 1 << 20;

    /// LABOR with a Poisson number of edges, and other variates in each layer.
    pub const fn labor(iterations: LaborIterations) -> Self {
        Method::Labor { iterations, fixed_size: false, layer_dependent: false }
    }

    /// `Ok` if the method's parameters are possible, on any graph.
    ///
    /// Errors: LABOR takes more than [`MAX_ITERATIONS`](Method::MAX_ITERATIONS), a walk's `restart` is not in `0..=1`,
    /// or a destination's walks have more than [`MAX_STEPS`](Method::MAX_STEPS) ([`TooLarge`](Error::TooLarge)).
    pub fn check(self) -> Result<()> {
        match self {
            Method::Labor { iterations: LaborIterations::Fixed(n), .. } if n > Self::MAX_ITERATIONS => {
                Err(Error::invalid("LABOR iterations", n, format!("at most {}", Self::MAX_ITERATIONS)))
            }
            Method::Walk { walks, length, restart } => {
                let steps = u64::from(walks) * u64::from(length);
                if steps > Self::MAX_STEPS {
                    let limit = Self::MAX_STEPS;
                    return Err(Error::TooLarge { what: "a vertex's visit list", count: steps, limit });
                }
                if !(0.0..=1.0).contains(&restart) {
                    return Err(Error::invalid("restart", restart, "a probability between 0 and 1"));
                }
                Ok(())
            }
            Method::Full | Method::Neighbor { .. } | Method::Labor { .. } => Ok(()),
        }
    }

    /// Whether the method samples edges of the graph, with ids and types. Walks end at vertices instead.
    pub const fn takes_edges(self) -> bool {
        !matches!(self, Method::Walk { .. })
    }

    /// Whether blocks have estimator weights ([`SampledBlock::weight`]).
    pub const fn has_weights(self) -> bool {
        match self {
            Method::Full | Method::Neighbor { .. } => false,
            Method::Labor { iterations, .. } => !matches!(iterations, LaborIterations::Fixed(0)),
            Method::Walk { .. } => true,
        }
    }
}

impl Default for Method {
    /// [`NEIGHBOR`](Method::NEIGHBOR).
    fn default() -> Self {
        Method::NEIGHBOR
    }
}

/// One layer's sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleSpec {
    /// The method.
    pub method: Method,
    /// Edges per destination: the number kept, or for LABOR the expected number. `usize::MAX`: all.
    pub fanout: usize,
    /// Whether the fanout is that of each relation of a destination, instead of all its in-edges together. For graphs
    /// with edge types, with [`Method::Neighbor`] without replacement or weights (and [`Method::Full`], to which it
    /// makes no difference).
    pub per_relation: bool,
    /// Whether [`SampledBlock::edge_id`] is wanted.
    pub edge_ids: bool,
    /// Whether [`SampledBlock::edge_weight`] is wanted. For graphs with edge weights and all methods but
    /// [`Method::Walk`], whose blocks hold no edges of the graph.
    pub edge_weights: bool,
}

impl Default for SampleSpec {
    /// Ten neighbours without replacement, without edge ids and weights.
    fn default() -> Self {
        SampleSpec {
            method: Method::default(),
            fanout: 10,
            per_relation: false,
            edge_ids: false,
            edge_weights: false,
        }
    }
}

impl SampleSpec {
    /// The most edges of a row, where the method knows: enough for [`Csr`](crate::device::Csr)'s hint. LABOR keeps a
    /// number of edges around the fanout, of which so many are as good as impossible.
    pub(crate) fn longest_row(&self) -> Option<usize> {
        match self.method {
            _ if self.per_relation => None,
            Method::Full => None,
            Method::Labor { fixed_size: false, .. } => Some(self.fanout.saturating_mul(2).saturating_add(64)),
            Method::Neighbor { .. } | Method::Labor { .. } | Method::Walk { .. } => Some(self.fanout),
        }
    }
}

/// What a sampler returns: a bipartite layer in the device's memory.
///
/// [`Block::new`](crate::block::Block::new) checks it and makes it a layer of a minibatch;
/// [`Block::into_parts`](crate::block::Block::into_parts) gives the arrays back.
#[derive(Debug)]
pub struct SampledBlock<D: Storage> {
    /// Number of destinations.
    pub n_dst: usize,
    /// `[n_src]`: global ids of the sources; the first `n_dst` are the destinations in the order given, then new
    /// sources in order of first occurrence (rows in order, edges ascending within a row).
    pub src: D::Buffer<u32>,
    /// `[n_dst + 1]`: where each destination's edges begin.
    pub indptr: D::Buffer<u32>,
    /// `[n_edge]`: position in `src` of each edge's source; a row's edges ascend by edge id.
    pub indices: D::Buffer<u32>,
    /// `[n_edge]`: the edge's id in the graph, if [`SampleSpec::edge_ids`] is set and the method takes edges (walks do
    /// not).
    pub edge_id: Option<D::Buffer<u64>>,
    /// `[n_edge]`: estimator weights that sum to 1 in each row that has an edge (LABOR: Hájek; walks: shares of
    /// visits); `None` where all edges of a row have equal weight.
    pub weight: Option<D::Buffer<D::Scalar>>,
    /// `[n_edge]`: relations, if the graph has edge types and the method takes edges.
    pub edge_type: Option<D::Buffer<u16>>,
    /// `[n_edge]`: the edges' weights in the graph, if [`SampleSpec::edge_weights`] is set.
    pub edge_weight: Option<D::Buffer<D::Scalar>>,
}

impl<D: Storage> SampledBlock<D> {
    /// A layer of `indptr.len() - 1` destinations without edge ids, relations or weights; set these fields if there are
    /// any.
    pub fn new(src: D::Buffer<u32>, indptr: D::Buffer<u32>, indices: D::Buffer<u32>) -> Self {
        let n_dst = D::len(&indptr).saturating_sub(1);
        let (edge_id, weight, edge_type, edge_weight) = (None, None, None, None);
        SampledBlock { n_dst, src, indptr, indices, edge_id, weight, edge_type, edge_weight }
    }
}

/// What [`Sample::degree_factors`] makes.
#[derive(Debug)]
pub struct DegreeFactors<D: Storage> {
    /// `[n_dst]`
    pub row: D::Buffer<D::Scalar>,
    /// `[n_src]`
    pub column: D::Buffer<D::Scalar>,
    /// `[n_dst]`
    pub own: D::Buffer<D::Scalar>,
}

/// What [`Sample::degree_factors`] gives a vertex of in-degree `degree`, `weighted` if these are weighted, that has
/// `n_edge` edges in the block: its factors of a row and a column, and its own.
pub(crate) fn factors_of_degree(degree: f64, weighted: f64, n_edge: u32, has_estimates: bool) -> [f64; 3] {
    let with_loop = weighted + 1.0;
    let root = with_loop.sqrt();
    // Estimates sum to 1 already; otherwise each of k edges stands for d / k.
    let share = if has_estimates { 1.0 } else { f64::from(n_edge) };
    [if n_edge > 0 { degree / share / root } else { 0.0 }, 1.0 / root, 1.0 / with_loop]
}

/// The error of weighted degrees in a graph without weights.
pub(crate) fn no_weights() -> Error {
    Error::invalid("graph", "without edge weights", "weights, for weighted degrees")
}

/// Neighbour sampling on a device.
///
/// Every decision is a pure function of the graph, the destination (or source) vertex, the variates and the layer: the
/// same block on every device and for every number of threads.
pub trait Sample: Storage {
    /// A graph in the device's reach.
    type Graph: Clone + Debug + Send + Sync;

    /// Makes a graph available to the device: on the CPU shared, elsewhere copied.
    ///
    /// Errors: the device fails or is out of memory, or on a GPU a vertex has more than `u32::MAX` in-edges
    /// ([`TooLarge`](Error::TooLarge)).
    fn load_graph(&self, graph: &Arc<Graph>) -> Result<Self::Graph>;

    /// Samples in-edges of `dst` (global ids, without repeats) in layer `layer` (0 at the seeds) and relabels.
    ///
    /// No destinations, isolated vertices and fanout 0 are valid. Time and memory are proportional to what is sampled,
    /// and to the in-degrees where one variate per edge or source is needed (LABOR, weighted, per relation, dependent
    /// minibatches).
    ///
    /// Errors:
    /// * an id is not below the number of vertices ([`IndexOutOfRange`](crate::Error::IndexOutOfRange); no memory is
    ///   allocated by the id), or an id is repeated;
    /// * the method needs edge weights, or they are wanted, and the graph has none; they are wanted of walks;
    /// * the method is replacement, walks or weighted, and the minibatches are dependent;
    /// * the fanout is per relation, and the graph has no relations or the method does not support it;
    /// * the method's parameters are impossible ([`Method::check`]);
    /// * the block has more than `u32::MAX` edges, on a GPU edges and destinations ([`TooLarge`](Error::TooLarge));
    /// * the device fails.
    fn sample_block(
        &self,
        graph: &Self::Graph,
        dst: Self::View<'_, u32>,
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
    ) -> Result<SampledBlock<Self>>;

    /// The factors of GCN's symmetric normalisation with self-loops for a block of `graph` with these `src: [n_src]`
    /// and `indptr: [n_dst + 1]`. Where `D` is a vertex's in-degree in the graph, or with `weighted` the sum of the
    /// weights of its in-edges, `d` its in-degree, and `k` the number of edges of a row:
    ///
    /// `row[t] = d / (k √(D + 1))`, or 0 without edges, `column[s] = 1 / √(D + 1)`, `own[t] = 1 / (D + 1)`. With
    /// `has_estimates`, edges have weights that estimate sums already, and `k` is 1.
    ///
    /// Errors: `weighted`, and the graph has no edge weights; or the device fails or is out of memory.
    fn degree_factors(
        &self,
        graph: &Self::Graph,
        src: Self::View<'_, u32>,
        indptr: Self::View<'_, u32>,
        has_estimates: bool,
        weighted: bool,
    ) -> Result<DegreeFactors<Self>>;

    /// [`sample_block`](Sample::sample_block) as if the edges `excluded` were not there: the edges to predict, say,
    /// which a model must not see.
    ///
    /// Where draws belong to vertices, the block is exactly that of the graph from which these edges were removed, edge
    /// by edge (though [`edge_id`](SampledBlock::edge_id) has the ids in the whole graph): full neighbourhoods,
    /// neighbours of independent minibatches with or without replacement, weighted with replacement, all of LABOR, and
    /// walks, which do not step along excluded edges. Where they belong to edges (weighted without replacement, a
    /// fanout per relation, dependent minibatches), edges keep the draws that they have in the whole graph: the same
    /// distribution as without the excluded edges, and of each row the edges with the smallest of the remaining draws.
    ///
    /// Needs time and memory also for the in-edges of all destinations of excluded edges. On the CPU only.
    ///
    /// Errors: those of [`sample_block`](Sample::sample_block), an edge id out of range, or a device that cannot do it
    /// ([`Unavailable`](Error::Unavailable)).
    fn sample_block_excluding(
        &self,
        graph: &Self::Graph,
        dst: Self::View<'_, u32>,
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
        excluded: &EdgeSet,
    ) -> Result<SampledBlock<Self>> {
        if excluded.is_empty() {
            return self.sample_block(graph, dst, spec, variates, layer);
        }
        Err(Error::Unavailable {
            what: format!("sampling without given edges on {}", self.describe()),
            remedy: "sample on the CPU and move each block by Block::from_host".to_owned(),
        })
    }
}

/// The most edges of a block: `indptr` is 32-bit.
const MAX_EDGES: u64 = u32::MAX as u64;

/// `Ok` if the method and its options go with the graph and the variates.
pub(crate) fn check_method(
    has_edge_types: bool,
    has_edge_weights: bool,
    spec: &SampleSpec,
    variates: &Variates,
) -> Result<()> {
    let method = spec.method;
    method.check()?;
    if spec.per_relation {
        check_per_relation(has_edge_types, method)?;
    }
    if spec.edge_weights {
        check_edge_weights(has_edge_weights, method)?;
    }
    let cannot_rotate = match method {
        Method::Neighbor { weighted: true, .. } if !has_edge_weights => {
            return Err(Error::invalid("method", "weighted sampling", "a graph with edge weights"));
        }
        Method::Neighbor { weighted: true, .. } => Some("weighted sampling"),
        Method::Neighbor { replace: true, .. } => Some("sampling with replacement"),
        Method::Walk { .. } => Some("random walks"),
        Method::Full | Method::Neighbor { .. } | Method::Labor { .. } => None,
    };
    match cannot_rotate {
        Some(what) if variates.rotates() => {
            let expected = "minibatches that depend on each other by renewal, or kappa 1 or inf";
            Err(Error::invalid("dependence", format!("rotation with {what}"), expected))
        }
        _ => Ok(()),
    }
}

/// `Ok` if blocks can have their edges' weights.
fn check_edge_weights(has_edge_weights: bool, method: Method) -> Result<()> {
    if !has_edge_weights {
        return Err(Error::invalid("edge_weights", "set", "a graph with edge weights"));
    }
    if !method.takes_edges() {
        let expected = "a method whose blocks hold edges of the graph";
        return Err(Error::invalid("method", "random walks with edge weights", expected));
    }
    Ok(())
}

/// `Ok` if a fanout can be that of each relation.
fn check_per_relation(has_edge_types: bool, method: Method) -> Result<()> {
    if !has_edge_types {
        return Err(Error::invalid("per_relation", "set", "a graph with edge types"));
    }
    let found = match method {
        Method::Full | Method::Neighbor { replace: false, weighted: false } => return Ok(()),
        Method::Neighbor { weighted: true, .. } => "weighted sampling",
        Method::Neighbor { .. } => "sampling with replacement",
        Method::Labor { .. } => "LABOR",
        Method::Walk { .. } => "random walks",
    };
    let expected = "neighbour sampling without replacement or weights, or full neighbourhoods";
    Err(Error::invalid("method", format!("{found} with a fanout per relation"), expected))
}

/// `Ok` if a block can have this many edges.
pub(crate) fn check_edges(n_edges: u64) -> Result<()> {
    if n_edges <= MAX_EDGES {
        return Ok(());
    }
    Err(Error::TooLarge { what: "a block's edge list", count: n_edges, limit: MAX_EDGES })
}

/// The error of a destination that is not a vertex.
pub(crate) fn no_vertex(position: u64, vertex: u32, n_vertices: usize) -> Error {
    Error::IndexOutOfRange { array: "dst", position, value: i64::from(vertex), limit: n_vertices as u64 }
}

/// The error of a destination that is repeated.
pub(crate) fn repeated(position: u64, vertex: u32) -> Error {
    Error::invalid("dst", format!("vertex {vertex} at position {position} and before"), "ids without repeats")
}

/// LABOR-* stops after the iteration that lowers the expected number of sources by less than this share of it.
const LEAST_GAIN: f64 = 1e-4;

/// Whether LABOR-* stops. Both numbers of sources have the same unit.
pub(crate) fn has_converged(expected_before: u64, expected: u64) -> bool {
    expected as f64 >= expected_before as f64 * (1.0 - LEAST_GAIN)
}

/// The stream of LABOR's variates.
pub(crate) fn source_stream(layer: u32, layer_dependent: bool) -> u64 {
    Purpose::Source.stream(if layer_dependent { 0 } else { layer })
}
