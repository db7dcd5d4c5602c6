//! PinSAGE's random walks: which vertices are visited most.

use crate::error::Result;
use crate::graph::InEdges;
use crate::rng::{Purpose, Seeds, bounded, uniform};

/// Walks against the in-edges, and the vertices that they visit.
pub(super) struct Walks<'w> {
    pub(super) graph: InEdges<'w>,
    pub(super) seeds: Seeds,
    pub(super) layer: u32,
    pub(super) walks: u32,
    pub(super) length: u32,
    pub(super) restart: f64,
    pub(super) fanout: usize,
    /// Every visit of one destination's walks.
    pub(super) visits: &'w mut Vec<u32>,
    /// `(visits, vertex)` of one destination.
    pub(super) ranking: &'w mut Vec<(u32, u32)>,
    /// By destination: the visits of walks that were done elsewhere; `None`: walk here.
    pub(super) walked: Option<&'w [Vec<u32>]>,
}

impl Walks<'_> {
    /// Appends the neighbours of `vertex`, destination number `place`, ascending, to `sources` and their shares of the
    /// visits to `weight`.
    ///
    /// A walk ends at a vertex without in-edges.
    ///
    /// Errors: the graph's arrays are not valid.
    pub(super) fn neighbors(
        &mut self,
        place: usize,
        vertex: u32,
        sources: &mut Vec<u32>,
        weight: &mut Vec<f64>,
    ) -> Result<()> {
        match self.walked {
            Some(walked) => {
                self.visits.clear();
                self.visits.extend_from_slice(&walked[place]);
            }
            None => self.walk(vertex)?,
        }
        self.visits.sort_unstable();
        self.ranking.clear();
        self.ranking.extend(self.visits.chunk_by(|a, b| a == b).map(|run| (run.len() as u32, run[0])));
        if self.ranking.len() > self.fanout {
            let by_rank = |&(count, vertex): &(u32, u32)| (std::cmp::Reverse(count), vertex);
            self.ranking.select_nth_unstable_by_key(self.fanout, by_rank);
            self.ranking.truncate(self.fanout);
            self.ranking.sort_unstable_by_key(|&(_, vertex)| vertex);
        }
        let total: u64 = self.ranking.iter().map(|&(count, _)| u64::from(count)).sum();
        sources.extend(self.ranking.iter().map(|&(_, vertex)| vertex));
        weight.extend(self.ranking.iter().map(|&(count, _)| f64::from(count) / total as f64));
        Ok(())
    }

    fn walk(&mut self, vertex: u32) -> Result<()> {
        let restart = Purpose::WalkRestart.stream(self.layer);
        let step = Purpose::WalkStep.stream(self.layer);
        self.visits.clear();
        for walk in 0..self.walks {
            let mut at = vertex;
            for number in walk * self.length..(walk + 1) * self.length {
                let counter = u64::from(vertex) | u64::from(number) << 32;
                if uniform(self.seeds.of(restart, counter), restart, counter) < self.restart {
                    at = vertex;
                }
                let neighbors = self.graph.sources(at)?;
                if neighbors.is_empty() {
                    break;
                }
                let seed = self.seeds.of(step, counter);
                at = neighbors[bounded(seed, step, counter, neighbors.len() as u64) as usize];
                self.graph.check_sources(&[at])?;
                if at != vertex {
                    self.visits.push(at);
                }
            }
        }
        Ok(())
    }
}
