//! Neighbour sampling on the CPU. A block is sampled by the calling thread alone: concurrency is between batches.
//!
//! One pass samples, relabels and writes, by groups of some hundred edges, so that each step prefetches the memory that
//! the next one reads:
//! 1. for each destination of the group, the picker of the method chooses edges ([`pick`], [`labor`]), whose sources
//!    are prefetched;
//! 2. the sources are read, and their entries of the relabelling table prefetched;
//! 3. every source gets its position in the block ([`relabel`]).
//!
//! Lists grow in a [`Workspace`] that is reused from batch to batch; only the exact output is allocated.

mod degrees;
mod labor;
mod lists;
mod pick;
mod prefetch;
mod relabel;
mod variate_table;
mod walk;

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use self::labor::Alone;
pub(crate) use self::labor::{LaborPeers, fixed_point_probability};
use self::lists::Lists;
use self::relabel::Relabel;
use crate::device::cpu::CpuBuffer;
use crate::device::sample::{check_method, no_vertex, source_stream};
use crate::device::{
    Cpu, DegreeFactors, LaborIterations, Method, Sample, SampleSpec, SampledBlock, Scalar, Storage,
};
use crate::error::{Result, check_length};
use crate::graph::{EdgeSet, Graph, InEdges, Remaining};
use crate::rng::{Purpose, Variates};

/// Workspaces that no thread is using.
#[derive(Default)]
pub(super) struct Workspaces {
    free: Mutex<Vec<Workspace>>,
}

impl Workspaces {
    /// Runs `use_it` with a workspace, which is kept for the next batch if that succeeds: after an error its tables
    /// could hold half a block.
    fn with<T>(&self, use_it: impl FnOnce(&mut Workspace) -> Result<T>) -> Result<T> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut workspace = free().pop().unwrap_or_default();
        let result = use_it(&mut workspace)?;
        free().push(workspace);
        Ok(result)
    }
}

/// Memory that sampling one block needs.
#[derive(Default)]
struct Workspace {
    stamped: relabel::Stamped,
    /// Positions in `stamped` since it began.
    stamped_used: usize,
    hashed: relabel::Hashed,
    lists: Lists,
    scratch: Scratch,
    plan: labor::LaborPlan,
    variate_table: variate_table::VariateTable,
}

/// Working memory of the pickers.
#[derive(Default)]
struct Scratch {
    words: Vec<[u32; 4]>,
    taken: Vec<u64>,
    keys: Vec<u128>,
    sums: Vec<f64>,
    weight: Vec<f64>,
    visits: Vec<u32>,
    ranking: Vec<(u32, u32)>,
}

impl<S: Scalar> Sample for Cpu<S> {
    type Graph = Arc<Graph>;

    fn load_graph(&self, graph: &Arc<Graph>) -> Result<Arc<Graph>> {
        Ok(graph.clone())
    }

    fn sample_block(
        &self,
        graph: &Arc<Graph>,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
    ) -> Result<SampledBlock<Self>> {
        self.sample_in_edges(graph.in_edges(), dst, spec, variates, layer, &mut Alone)
    }

    fn degree_factors(
        &self,
        graph: &Arc<Graph>,
        src: &[u32],
        indptr: &[u32],
        has_estimates: bool,
        weighted: bool,
    ) -> Result<DegreeFactors<Self>> {
        degrees::degree_factors(self, graph, src, indptr, has_estimates, weighted)
    }

    fn sample_block_excluding(
        &self,
        graph: &Arc<Graph>,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
        excluded: &EdgeSet,
    ) -> Result<SampledBlock<Self>> {
        if excluded.is_empty() {
            return self.sample_block(graph, dst, spec, variates, layer);
        }
        let remaining = Remaining::new(graph, excluded)?;
        let in_edges = InEdges { remaining: Some(&remaining), ..graph.in_edges() };
        self.sample_in_edges(in_edges, dst, spec, variates, layer, &mut Alone)
    }
}

impl<S: Scalar> Cpu<S> {
    /// [`sample_block`](Sample::sample_block) for destinations whose in-edges are in `graph`, one of several that
    /// sample a minibatch together with `peers`. All destinations must have rows there.
    pub(crate) fn sample_in_edges(
        &self,
        graph: InEdges<'_>,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
        peers: &mut dyn LaborPeers,
    ) -> Result<SampledBlock<Self>> {
        check(graph, dst, spec, variates)?;
        let by_table = graph.n_vertices <= relabel::MAX_STAMPED_VERTICES;
        let job = Job { graph, dst, spec, variates, layer, walked: None, numbers: None };
        self.shared.workspaces.with(|workspace| sample(self, workspace, by_table, &job, peers))
    }

    /// The block of random walks whose visits are known: `walked: [dst.len()]`.
    pub(crate) fn sample_walked(
        &self,
        graph: InEdges<'_>,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        walked: &[Vec<u32>],
    ) -> Result<SampledBlock<Self>> {
        check(graph, dst, spec, variates)?;
        check_length("visits", walked.len(), dst.len())?;
        let by_table = graph.n_vertices <= relabel::MAX_STAMPED_VERTICES;
        let job = Job { graph, dst, spec, variates, layer: 0, walked: Some(walked), numbers: None };
        self.shared.workspaces.with(|workspace| sample(self, workspace, by_table, &job, &mut Alone))
    }
}

/// The arguments of `sample_block`.
#[derive(Clone, Copy)]
struct Job<'a> {
    graph: InEdges<'a>,
    dst: &'a [u32],
    spec: &'a SampleSpec,
    variates: &'a Variates,
    layer: u32,
    /// By destination, the visits of random walks, if they were walked elsewhere.
    walked: Option<&'a [Vec<u32>]>,
    /// `[n_positions]`: the edges' ids in the whole graph, where a shift of the positions does not give them.
    numbers: Option<&'a [u64]>,
}

/// Checks everything except for repeated destinations, which relabelling finds.
fn check(graph: InEdges<'_>, dst: &[u32], spec: &SampleSpec, variates: &Variates) -> Result<()> {
    check_method(graph.edge_type.is_some(), graph.edge_weight.is_some(), spec, variates)?;
    let n_vertices = graph.n_vertices;
    match dst.iter().position(|&vertex| vertex as usize >= n_vertices) {
        Some(position) => Err(no_vertex(position as u64, dst[position], n_vertices)),
        None => Ok(()),
    }
}

fn sample<S: Scalar>(
    cpu: &Cpu<S>,
    workspace: &mut Workspace,
    by_table: bool,
    job: &Job,
    peers: &mut dyn LaborPeers,
) -> Result<SampledBlock<Cpu<S>>> {
    let mut indptr = cpu.allocate(job.dst.len() + 1)?;
    workspace.sample(by_table, job, peers, &mut indptr)?;
    let Workspace { lists, scratch, .. } = workspace;
    let takes_edges = job.spec.method.takes_edges();
    Ok(SampledBlock {
        n_dst: job.dst.len(),
        src: cpu.upload(&lists.src[..lists.n_src])?,
        indptr,
        indices: cpu.upload(&lists.indices)?,
        edge_id: (takes_edges && job.spec.edge_ids).then(|| cpu.upload(&lists.edge_id)).transpose()?,
        weight: job.spec.method.has_weights().then(|| convert(cpu, &scratch.weight)).transpose()?,
        edge_type: (takes_edges && job.graph.edge_type.is_some())
            .then(|| cpu.upload(&lists.edge_type))
            .transpose()?,
        edge_weight: job.spec.edge_weights.then(|| convert(cpu, &lists.edge_weight)).transpose()?,
    })
}

impl Workspace {
    /// Fills the lists, the weights in `scratch` and `indptr: [job.dst.len() + 1]`. Not generic over scalars, so that
    /// it is compiled here and only once.
    fn sample(
        &mut self,
        by_table: bool,
        job: &Job,
        peers: &mut dyn LaborPeers,
        indptr: &mut [u32],
    ) -> Result<()> {
        let Workspace { stamped, stamped_used, hashed, lists, scratch, plan, variate_table } = self;
        scratch.weight.clear();
        let planned = match job.spec.method {
            Method::Labor { iterations, .. }
                if iterations != LaborIterations::Fixed(0) && job.spec.fanout > 0 =>
            {
                Some(iterations)
            }
            _ => None,
        };
        let table = match job.spec.method {
            Method::Labor { iterations: LaborIterations::Fixed(0), fixed_size: false, layer_dependent } => {
                let stream = source_stream(job.layer, layer_dependent);
                variate_table.get(job.graph, job.dst, job.spec, job.variates, stream)?
            }
            _ => None,
        };
        let expected = job.dst.len() * 2;
        if by_table {
            let n_vertices = job.graph.n_vertices;
            if let Some(iterations) = planned {
                stamped.begin(n_vertices, *stamped_used)?;
                *stamped_used = make_plan(plan, job, stamped, iterations, peers)?;
            }
            stamped.begin(n_vertices, *stamped_used)?;
            fill_lists(job, stamped, lists, scratch, plan, table, indptr)?;
            *stamped_used = lists.n_src;
        } else {
            if let Some(iterations) = planned {
                hashed.begin(expected);
                make_plan(plan, job, hashed, iterations, peers)?;
            }
            hashed.begin(expected);
            fill_lists(job, hashed, lists, scratch, plan, table, indptr)?;
        }
        Ok(())
    }
}

fn convert<S: Scalar>(cpu: &Cpu<S>, weight: &[impl Copy + Into<f64>]) -> Result<CpuBuffer<S>> {
    let mut buffer = cpu.allocate(weight.len())?;
    for (out, &value) in buffer.iter_mut().zip(weight) {
        *out = S::from_f64(value.into());
    }
    Ok(buffer)
}

/// Optimises LABOR's probabilities; returns how many positions were given.
fn make_plan(
    plan: &mut labor::LaborPlan,
    job: &Job,
    relabel: &mut impl Relabel,
    iterations: LaborIterations,
    peers: &mut dyn LaborPeers,
) -> Result<usize> {
    let layer_dependent = matches!(job.spec.method, Method::Labor { layer_dependent: true, .. });
    let stream = source_stream(job.layer, layer_dependent);
    let n_candidates = plan.gather(job.graph, job.dst, relabel, job.variates, stream)?;
    plan.optimize(job.spec.fanout as u64, iterations, peers)?;
    Ok(n_candidates)
}

/// Fills the lists row after row.
fn fill_lists(
    job: &Job,
    relabel: &mut impl Relabel,
    lists: &mut Lists,
    scratch: &mut Scratch,
    plan: &labor::LaborPlan,
    table: Option<variate_table::TopBytes<'_>>,
    indptr: &mut [u32],
) -> Result<()> {
    let dst = job.dst;
    lists.begin(dst, relabel)?;
    indptr[0] = 0;
    let Some(remaining) = job.graph.remaining else {
        return fill_rows(job, 0..dst.len(), relabel, lists, scratch, plan, table, indptr);
    };
    if let Method::Walk { .. } = job.spec.method {
        // Each step of a walk finds a row's remaining edges by itself.
        return fill_rows(job, 0..dst.len(), relabel, lists, scratch, plan, table, indptr);
    }
    // Rows that have lost edges are in separate arrays: they are sampled one at a time, and the rows between them
    // together.
    let mut row = 0;
    while row < dst.len() {
        let end = row + dst[row..].iter().position(|&v| remaining.has(v)).unwrap_or(dst.len() - row);
        fill_rows(job, row..end, relabel, lists, scratch, plan, table, indptr)?;
        if let Some(&vertex) = dst.get(end) {
            let graph = remaining.row(vertex, job.graph.n_vertices);
            let own = Job { graph, numbers: Some(remaining.numbers()), ..*job };
            let first = lists.edge_id.len();
            fill_rows(&own, end..end + 1, relabel, lists, scratch, plan, table, indptr)?;
            lists.edge_id[first..].iter_mut().for_each(|id| *id = remaining.numbers()[*id as usize]);
        }
        row = end + 1;
    }
    Ok(())
}

/// Finds the picker of the method, and fills the lists of some rows with it.
#[allow(clippy::too_many_arguments)] // The workspace's parts, which are borrowed separately.
fn fill_rows(
    job: &Job,
    rows: Range<usize>,
    relabel: &mut impl Relabel,
    lists: &mut Lists,
    scratch: &mut Scratch,
    plan: &labor::LaborPlan,
    table: Option<variate_table::TopBytes<'_>>,
    indptr: &mut [u32],
) -> Result<()> {
    let &Job { graph, dst, spec, variates, layer, .. } = job;
    let indices = graph.indices;
    let fanout = spec.fanout as u64;
    let seeds = *variates.seeds();
    // One line per option, so that every loop below is compiled for its picker.
    macro_rules! pick_by {
        ($picker:expr) => {
            lists.pick_rows(job, rows, relabel, &mut $picker, indptr)
        };
    }
    let keys = &mut scratch.keys;
    match spec.method {
        Method::Walk { walks, length, restart } => {
            let Scratch { visits, ranking, weight, .. } = scratch;
            let fanout = spec.fanout;
            let walked = job.walked;
            let walks =
                walk::Walks { graph, seeds, layer, walks, length, restart, fanout, visits, ranking, walked };
            lists.walk_rows(dst, relabel, walks, weight, indptr)
        }
        Method::Full => pick_by!(pick::All),
        Method::Neighbor { weighted, replace: true } if spec.fanout != usize::MAX => {
            let weight = graph.edge_weight.filter(|_| weighted);
            pick_by!(pick::Replacement { seeds, layer, fanout, weight, sums: &mut scratch.sums })
        }
        Method::Neighbor { weighted: true, .. } => {
            let weight = graph.edge_weight.unwrap_or_default();
            match job.numbers {
                None => {
                    let number = |edge, shift| edge + shift;
                    pick_by!(pick::SmallestWeighted { seeds, layer, fanout, weight, number, keys })
                }
                Some(numbers) => {
                    let number = |edge, _| numbers[edge as usize];
                    pick_by!(pick::SmallestWeighted { seeds, layer, fanout, weight, number, keys })
                }
            }
        }
        Method::Neighbor { weighted: false, .. } if spec.per_relation => {
            let relation = graph.edge_type.unwrap_or_default();
            let stream = Purpose::Edge.stream(layer);
            let variates = *variates;
            match job.numbers {
                None => {
                    let number = |edge, shift| edge + shift;
                    pick_by!(pick::SmallestPerRelation { variates, stream, fanout, relation, number, keys })
                }
                Some(numbers) => {
                    let number = |edge, _| numbers[edge as usize];
                    pick_by!(pick::SmallestPerRelation { variates, stream, fanout, relation, number, keys })
                }
            }
        }
        Method::Neighbor { weighted: false, .. } if variates.rotates() => {
            let stream = Purpose::Edge.stream(layer);
            let variates = *variates;
            match job.numbers {
                None => {
                    let id = |edge, shift| edge + shift;
                    pick_by!(pick::Smallest { variates, stream, fanout, id, keys })
                }
                Some(numbers) => {
                    let id = |edge, _| numbers[edge as usize];
                    pick_by!(pick::Smallest { variates, stream, fanout, id, keys })
                }
            }
        }
        Method::Neighbor { weighted: false, .. } => {
            let Scratch { words, taken, .. } = scratch;
            pick_by!(pick::Subset { seeds, layer, fanout, words, taken })
        }
        Method::Labor { .. } if spec.fanout == 0 => pick_by!(pick::Nothing),
        Method::Labor { iterations: LaborIterations::Fixed(0), fixed_size, layer_dependent } => {
            let stream = source_stream(layer, layer_dependent);
            let variates = *variates;
            match (fixed_size, table) {
                (true, _) => {
                    let id = |edge, _| u64::from(indices[edge as usize]);
                    pick_by!(pick::Smallest { variates, stream, fanout, id, keys })
                }
                (false, Some(table)) => {
                    let found = &mut [0; _];
                    pick_by!(pick::Labor0ByTable { table, found, variates, stream, fanout, indices })
                }
                (false, None) => pick_by!(pick::Labor0 { variates, stream, fanout, indices }),
            }
        }
        Method::Labor { fixed_size, .. } => {
            let weight = &mut scratch.weight;
            pick_by!(labor::Planned { plan, fanout, fixed_size, keys, weight })
        }
    }
}

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
