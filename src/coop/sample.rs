//! Cooperative sampling: each processing element samples the in-edges of the vertices that it owns, and tells the
//! owners of the sources which vertices the next layer needs (Cooperative Minibatching §3, algorithm 1).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::plan::ExchangePlan;
use super::question::Question;
use super::walk;
use crate::block::Block;
use crate::comm::{Communicator, Stage, Sum};
use crate::device::cpu::{LaborPeers, fixed_point_probability};
use crate::device::{Cpu, Element, Method, SampleSpec, Scalar};
use crate::error::{Error, Result};
use crate::graph::{Partition, Shard};
use crate::rng::Variates;
use crate::sample::SamplerConfig;

/// One processing element's part of a minibatch that all sample together.
#[derive(Debug)]
pub struct CooperativeBatch<S: Scalar> {
    /// The seed vertices that this PE owns, each once, in order of first occurrence in the seed lists of PE 0, PE 1, …
    pub seeds: Vec<u32>,
    /// In model order. This PE owns each block's destinations; any PE may own its sources.
    pub blocks: Vec<Arc<Block<Cpu<S>>>>,
    /// In model order: how each block's source rows come from their owners.
    pub plans: Vec<ExchangePlan<Cpu<S>>>,
    /// Brings rows of the owners' `seeds`, such as predictions, to the PEs that gave the seeds, in the order given.
    pub seed_plan: ExchangePlan<Cpu<S>>,
    /// Owned vertices whose input rows some PE needs: the first plan sends from these rows.
    pub input_vertices: Vec<u32>,
}

/// Samples minibatches with the other processing elements.
#[derive(Debug)]
pub struct CooperativeSampler<S: Scalar> {
    cpu: Cpu<S>,
    shard: Arc<Shard>,
    communicator: Communicator,
    config: SamplerConfig,
    needs_degrees: bool,
    /// Positions of held vertices, kept from batch to batch: all [`ABSENT`] between two.
    positions: Mutex<Vec<Vec<u32>>>,
}

impl<S: Scalar> CooperativeSampler<S> {
    /// A sampler for the PE that holds `shard`; with `needs_degrees` its blocks know their sources' in-degrees,
    /// weighted ones if they have edge weights.
    ///
    /// Errors: `config` has no layers; `shard` is of another PE, or of a partition for another number of PEs, than
    /// `communicator`.
    pub fn new(
        cpu: Cpu<S>,
        shard: Arc<Shard>,
        communicator: Communicator,
        config: SamplerConfig,
        needs_degrees: bool,
    ) -> Result<Self> {
        if config.fanouts.0.is_empty() {
            return Err(Error::invalid("fanouts", "an empty list", "a fanout for each layer, one at least"));
        }
        let (held, own) =
            ([shard.pe(), shard.partition().n_pes()], [communicator.rank(), communicator.size()]);
        if held != own {
            let found = format!("that of PE {} of {}", held[0], held[1]);
            return Err(Error::invalid("shard", found, format!("that of PE {} of {}", own[0], own[1])));
        }
        Ok(CooperativeSampler {
            cpu,
            shard,
            communicator,
            config,
            needs_degrees,
            positions: Mutex::default(),
        })
    }

    /// This PE's part of the graph.
    pub fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    /// Samples minibatch number `batch` around the seeds of all PEs. Each PE gives some seeds, of any owner; the owners
    /// take each seed once, however often it was given. The union of all PEs' samples is the block that a
    /// [`Sampler`](crate::sample::Sampler) alone would sample, vertex for vertex and edge for edge. Collective.
    ///
    /// Errors: a seed is not below the number of vertices, and those of sampling and communication.
    pub fn sample(&self, seeds: &[u32], batch: u64) -> Result<CooperativeBatch<S>> {
        let n_vertices = self.shard.partition().n_vertices();
        if let Some(position) = seeds.iter().position(|&seed| seed as usize >= n_vertices) {
            return Err(Error::IndexOutOfRange {
                array: "seeds",
                position: position as u64,
                value: seeds[position].into(),
                limit: n_vertices as u64,
            });
        }
        let mut owned = Owned::new(self);
        let seed_plan = self.plan(seeds, &mut owned)?;
        let n_seeds = owned.vertices.len();
        let variates = self.config.variates(batch);
        let n_layers = self.config.fanouts.0.len();
        let (mut blocks, mut plans) = (Vec::with_capacity(n_layers), Vec::with_capacity(n_layers));
        for (layer, &fanout) in self.config.fanouts.0.iter().enumerate() {
            let SamplerConfig { method, per_relation, edge_ids, edge_weights, .. } = self.config;
            let spec = SampleSpec { method, fanout, per_relation, edge_ids, edge_weights };
            let sampled = self.sample_layer(&owned.vertices, &spec, &variates, layer as u32)?;
            let block = Block::from_valid(sampled)?.with_longest_row(spec.longest_row());
            let plan = self.plan(block.src(), &mut owned)?;
            blocks.push(Arc::new(if self.needs_degrees {
                self.add_degrees(block, &plan, &owned.vertices)?
            } else {
                block
            }));
            plans.push(plan);
        }
        blocks.reverse();
        plans.reverse();
        let input_vertices = std::mem::take(&mut owned.vertices);
        owned.forget(&input_vertices);
        let seeds = input_vertices[..n_seeds].to_vec();
        Ok(CooperativeBatch { seeds, blocks, plans, seed_plan, input_vertices })
    }

    fn sample_layer(
        &self,
        dst: &[u32],
        spec: &SampleSpec,
        variates: &Variates,
        layer: u32,
    ) -> Result<crate::device::SampledBlock<Cpu<S>>> {
        let graph = self.shard.in_edges();
        let mut peers = LaborExchange { communicator: &self.communicator, partition: self.shard.partition() };
        if let Method::Walk { walks, length, restart } = spec.method {
            let walks = walk::Walks { walks, length, restart, seeds: *variates.seeds(), layer };
            let visits = walks.visits(&self.communicator, &self.shard, dst)?;
            return self.cpu.sample_walked(graph, dst, spec, variates, &visits);
        }
        self.cpu.sample_in_edges(graph, dst, spec, variates, layer, &mut peers)
    }

    /// Plans to get the rows of `sources` from their owners; each owner appends to its `owned` those that are new.
    fn plan(&self, sources: &[u32], owned: &mut Owned<'_, S>) -> Result<ExchangePlan<Cpu<S>>> {
        let (question, asked) = Question::ask(&self.communicator, self.shard.partition(), sources)?;
        let send_rows = owned.positions_of(&asked)?;
        let Question { order, counts, asked_counts, .. } = question;
        ExchangePlan::new(&self.cpu, owned.vertices.len(), &send_rows, asked_counts, &order, counts)
    }

    fn add_degrees(
        &self,
        block: Block<Cpu<S>>,
        plan: &ExchangePlan<Cpu<S>>,
        owned: &[u32],
    ) -> Result<Block<Cpu<S>>> {
        let in_degree = |vertex| self.shard.in_degree(vertex).unwrap_or_default();
        if block.edge_weight().is_some() {
            let weighted = |vertex| self.shard.weighted_in_degree(vertex).unwrap_or_default();
            let degree_of = self.degrees_of(&block, plan, owned.iter().map(|&v| weighted(v)).collect())?;
            // This PE owns the destinations, whose number of edges is asked for.
            return block.with_weighted_degrees(&self.cpu, in_degree, |vertex| {
                degree_of.get(&vertex).copied().unwrap_or_default()
            });
        }
        let degree_of = self.degrees_of(&block, plan, owned.iter().map(|&v| in_degree(v)).collect())?;
        block.with_degrees(&self.cpu, |vertex| degree_of.get(&vertex).copied().unwrap_or_default())
    }

    /// The degrees of the block's sources, from their owners' `own: [n_owned]`.
    fn degrees_of<T: Element>(
        &self,
        block: &Block<Cpu<S>>,
        plan: &ExchangePlan<Cpu<S>>,
        own: Vec<T>,
    ) -> Result<HashMap<u32, T>> {
        let needed = plan.fetch_values(&self.communicator, Stage::Sample, &own)?;
        Ok(block.src().iter().copied().zip(needed).collect())
    }
}

/// No position.
const ABSENT: u32 = u32::MAX;

/// The vertices of a minibatch that this PE owns, and where each stands in their list.
struct Owned<'a, S: Scalar> {
    sampler: &'a CooperativeSampler<S>,
    vertices: Vec<u32>,
    /// By row of the shard. Lookups in hash maps took longer than sampling.
    position: Vec<u32>,
}

impl<'a, S: Scalar> Owned<'a, S> {
    fn new(sampler: &'a CooperativeSampler<S>) -> Self {
        let kept = sampler.positions.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let position = kept.unwrap_or_else(|| vec![ABSENT; sampler.shard.vertices().len()]);
        Owned { sampler, vertices: Vec::new(), position }
    }

    /// The positions of `asked` in the list, to which those that are new are appended.
    ///
    /// Errors: another PE owns one of them.
    fn positions_of(&mut self, asked: &[u32]) -> Result<Vec<u32>> {
        let Owned { sampler, vertices, position } = self;
        // Reads that do not wait for each other first, and what depends on them in a loop of its own.
        let rows: Vec<u32> = asked
            .iter()
            .map(|&vertex| sampler.shard.row_of(vertex).map_or(ABSENT, |row| row as u32))
            .collect();
        if let Some(place) = rows.iter().position(|&row| row == ABSENT) {
            let vertex = asked[place];
            let problem = format!("it was asked for vertex {vertex}, which another processing element owns");
            return Err(Error::Communication { rank: sampler.shard.pe(), problem });
        }
        let position_of = |(&row, &vertex): (&u32, &u32)| {
            let position = &mut position[row as usize];
            if *position == ABSENT {
                *position = vertices.len() as u32;
                vertices.push(vertex);
            }
            *position
        };
        Ok(rows.iter().zip(asked).map(position_of).collect())
    }

    /// Makes the positions ready for the next batch.
    fn forget(mut self, vertices: &[u32]) {
        for row in vertices.iter().filter_map(|&vertex| self.sampler.shard.row_of(vertex)) {
            self.position[row] = ABSENT;
        }
        let kept = &self.sampler.positions;
        kept.lock().unwrap_or_else(PoisonError::into_inner).push(self.position);
    }
}

/// LABOR's probabilities, agreed on between PEs: a source's owner takes the largest value that any PE has for it.
struct LaborExchange<'a> {
    communicator: &'a Communicator,
    partition: &'a Partition,
}

impl LaborPeers for LaborExchange<'_> {
    fn combine(&mut self, ids: &[u32], largest: &mut [f64]) -> Result<u64> {
        let (question, asked) = Question::ask(self.communicator, self.partition, ids)?;
        let mut theirs = question.send(largest)?;
        let mut maximum = HashMap::with_capacity(asked.len());
        for (&vertex, &value) in asked.iter().zip(&theirs) {
            let known = maximum.entry(vertex).or_insert(0.0f64);
            *known = known.max(value);
        }
        let mut expected = [maximum.values().map(|&value| fixed_point_probability(value)).sum()];
        for (vertex, value) in asked.iter().zip(&mut theirs) {
            *value = maximum[vertex];
        }
        question.answer(&theirs, largest)?;
        self.communicator.all_reduce_sum(Stage::Sample, Sum::U64(&mut expected))?;
        Ok(expected[0])
    }
}
