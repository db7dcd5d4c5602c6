//! Random walks across processing elements: at each step the owner of a walker's vertex draws the next vertex.

use super::question::Question;
use crate::comm::{Communicator, Stage, Sum};
use crate::error::Result;
use crate::graph::Shard;
use crate::rng::{Purpose, Seeds, bounded, uniform};

/// Walks of one layer. They draw the same as on one PE alone.
pub(super) struct Walks {
    pub walks: u32,
    pub length: u32,
    pub restart: f64,
    pub seeds: Seeds,
    pub layer: u32,
}

/// The next vertex after one without in-edges: none.
const NOWHERE: u32 = u32::MAX;

impl Walks {
    /// The visits of each of `dst`'s walks, as [`Cpu::sample_walked`](crate::device::Cpu) takes them. Collective.
    pub(super) fn visits(
        &self,
        communicator: &Communicator,
        shard: &Shard,
        dst: &[u32],
    ) -> Result<Vec<Vec<u32>>> {
        let restart = Purpose::WalkRestart.stream(self.layer);
        let step = Purpose::WalkStep.stream(self.layer);
        let edges = shard.in_edges();
        let mut visits = vec![Vec::new(); dst.len()];
        // Position of the destination in `dst`, number of the walk, current vertex.
        let mut walkers: Vec<(usize, u32, u32)> = Vec::new();
        for (place, &vertex) in dst.iter().enumerate() {
            walkers.extend((0..self.walks).map(|walk| (place, walk, vertex)));
        }
        for steps in 0..self.length {
            let mut n_walkers = [walkers.len() as u64];
            communicator.all_reduce_sum(Stage::Sample, Sum::U64(&mut n_walkers))?;
            if n_walkers[0] == 0 {
                break;
            }
            let mut counters = Vec::with_capacity(walkers.len());
            for (place, walk, at) in &mut walkers {
                let vertex = dst[*place];
                let counter = u64::from(vertex) | u64::from(*walk * self.length + steps) << 32;
                if uniform(self.seeds.of(restart, counter), restart, counter) < self.restart {
                    *at = vertex;
                }
                counters.push(counter);
            }
            let at: Vec<u32> = walkers.iter().map(|&(_, _, at)| at).collect();
            let (question, asked) = Question::ask(communicator, shard.partition(), &at)?;
            let counters = question.send(&counters)?;
            let way_on = |(&vertex, &counter)| {
                let neighbors = edges.sources(vertex)?;
                Ok(match neighbors.len() as u64 {
                    0 => NOWHERE,
                    n => neighbors[bounded(self.seeds.of(step, counter), step, counter, n) as usize],
                })
            };
            let answers = asked.iter().zip(&counters).map(way_on).collect::<Result<Vec<u32>>>()?;
            let mut next = at;
            question.answer(&answers, &mut next)?;
            for ((place, _, at), next) in walkers.iter_mut().zip(next) {
                *at = next;
                if next != NOWHERE && next != dst[*place] {
                    visits[*place].push(next);
                }
            }
            walkers.retain(|&(_, _, at)| at != NOWHERE);
        }
        Ok(visits)
    }
}
