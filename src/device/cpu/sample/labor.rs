//! LABOR-i and LABOR-*: probabilities of sources, optimised over all in-edges of a block's destinations.

use super::lists::reserve;
use super::pick::{Pick, Row, for_words, keep_smallest, key};
use super::relabel::Relabel;
use crate::device::LaborIterations;
use crate::device::sample::has_converged;
use crate::error::Result;
use crate::graph::InEdges;
use crate::rng::Variates;

/// How many edges ahead of its use a table entry is prefetched.
const AHEAD: usize = 16;

/// What LABOR knows of a block: its *candidates*, the sources of all in-edges, each once.
#[derive(Default)]
pub(super) struct LaborPlan {
    /// `[n_dst + 1]`: where each row's in-edges begin in `candidate`.
    row_start: Vec<usize>,
    /// `[n_in_edges]`: position of each in-edge's source among the candidates.
    candidate: Vec<u32>,
    /// `[n_candidates]`: global ids.
    ids: Vec<u32>,
    /// `[n_candidates]`: variates.
    words: Vec<u32>,
    /// `[n_candidates]`: π.
    pi: Vec<f64>,
    /// `[n_candidates]`: the largest `c_t π_s` of the rows that a candidate is in.
    largest: Vec<f64>,
    /// `[n_dst]`: c.
    scale: Vec<f64>,
}

impl LaborPlan {
    /// Finds the candidates of `dst` and their variates. Returns how many there are.
    ///
    /// Errors: there is no memory for all in-edges of `dst`, or the graph's arrays are not valid.
    pub(super) fn gather(
        &mut self,
        graph: InEdges<'_>,
        dst: &[u32],
        relabel: &mut impl Relabel,
        variates: &Variates,
        stream: u64,
    ) -> Result<usize> {
        self.row_start.clear();
        self.row_start.push(0);
        self.candidate.clear();
        self.ids.clear();
        for &vertex in dst {
            let sources = graph.sources(vertex)?;
            graph.check_sources(sources)?;
            reserve(&mut self.candidate, sources.len())?;
            reserve(&mut self.ids, sources.len())?;
            for (place, &source) in sources.iter().enumerate() {
                if let Some(&later) = sources.get(place + AHEAD) {
                    relabel.prefetch(later);
                }
                let next = self.ids.len() as u32;
                let position = relabel.position(source, next);
                if position == next {
                    self.ids.push(source);
                }
                self.candidate.push(position);
            }
            self.row_start.push(self.candidate.len());
        }
        self.words.clear();
        reserve(&mut self.words, self.ids.len())?;
        let id = |place: u64| u64::from(self.ids[place as usize]);
        for_words(variates, stream, self.ids.len() as u64, id, |_, words| {
            self.words.extend_from_slice(words)
        });
        Ok(self.ids.len())
    }

    /// Finds π and c by fixed-point iteration from π = 1, together with the `peers`.
    pub(super) fn optimize(
        &mut self,
        fanout: u64,
        iterations: LaborIterations,
        peers: &mut dyn LaborPeers,
    ) -> Result<()> {
        self.pi.clear();
        self.pi.resize(self.ids.len(), 1.0);
        self.solve(fanout);
        let mut expected = peers.combine(&self.ids, &mut self.largest)?;
        let mut done = 0;
        while iterations != LaborIterations::Fixed(done) {
            std::mem::swap(&mut self.pi, &mut self.largest);
            let before = expected;
            self.solve(fanout);
            expected = peers.combine(&self.ids, &mut self.largest)?;
            done = done.saturating_add(1);
            if iterations == LaborIterations::Converged && has_converged(before, expected) {
                break;
            }
        }
        Ok(())
    }

    /// Finds every row's c and every candidate's largest `c_t π_s`.
    fn solve(&mut self, fanout: u64) {
        self.largest.clear();
        self.largest.resize(self.pi.len(), 0.0);
        self.scale.clear();
        for bounds in self.row_start.windows(2) {
            let row = &self.candidate[bounds[0]..bounds[1]];
            let whole = row.len() as u64 <= fanout;
            let scale =
                if whole { covering_scale(row, &self.pi) } else { scale(row, &self.pi, fanout as f64) };
            for &candidate in row {
                let probability = scale * self.pi[candidate as usize];
                // Where all edges are kept, rounding must not leave a probability a little below 1.
                let probability = if whole && probability < 1.0 { 1.0 } else { probability };
                let largest = &mut self.largest[candidate as usize];
                if probability > *largest {
                    *largest = probability;
                }
            }
            self.scale.push(scale);
        }
    }
}

/// Those who sample other destinations of the same minibatch.
pub(crate) trait LaborPeers {
    /// Raises each candidate's value to the largest that it has with any peer; returns the sum over all peers'
    /// different candidates of their [`fixed_point_probability`]s.
    fn combine(&mut self, ids: &[u32], largest: &mut [f64]) -> Result<u64>;
}

/// No peers: this call samples all destinations.
pub(crate) struct Alone;

impl LaborPeers for Alone {
    fn combine(&mut self, _: &[u32], largest: &mut [f64]) -> Result<u64> {
        Ok(largest.iter().map(|&probability| fixed_point_probability(probability)).sum())
    }
}

/// What a source of this `c_t π_s` adds to the expected number of sources, in units of 2⁻³²: whole numbers, so that the
/// sum, which decides when LABOR-* stops, is the same in every order.
pub(crate) fn fixed_point_probability(probability: f64) -> u64 {
    (if probability < 1.0 { probability } else { 1.0 } * (1u64 << 32) as f64) as u64
}

/// The least c for which all `min(1, c π_s)` are 1.
fn covering_scale(row: &[u32], pi: &[f64]) -> f64 {
    row.iter().map(|&candidate| 1.0 / pi[candidate as usize]).fold(0.0, f64::max)
}

/// The c that solves `Σ 1/min(1, c π_s) = d²/k` over a row of `d > k > 0` edges.
///
/// With the `m` terms that are 1 known, `c = (Σ of the others' 1/π_s) / (d²/k − m)`. Beginning at m = 0, c rises from
/// step to step and m with it, and both end at the solution: a finite number of sums, each in row order.
pub(super) fn scale(row: &[u32], pi: &[f64], fanout: f64) -> f64 {
    let degree = row.len() as f64;
    let target = degree * degree / fanout;
    let mut saturated = 0;
    let mut scale = 0.0;
    loop {
        let (mut now_saturated, mut sum) = (0, 0.0);
        for &candidate in row {
            let pi = pi[candidate as usize];
            if scale * pi >= 1.0 {
                now_saturated += 1;
            } else {
                sum += 1.0 / pi;
            }
        }
        // Rounding could let c, and so m, fall again: then the step before was the last.
        if scale > 0.0 && now_saturated <= saturated {
            return scale;
        }
        saturated = now_saturated;
        scale = sum / (target - f64::from(saturated));
    }
}

/// Decides by a finished plan; appends the estimator's weights as it goes.
pub(super) struct Planned<'w> {
    pub(super) plan: &'w LaborPlan,
    pub(super) fanout: u64,
    pub(super) fixed_size: bool,
    pub(super) keys: &'w mut Vec<u128>,
    /// `[n_edge]`
    pub(super) weight: &'w mut Vec<f64>,
}

impl Pick for Planned<'_> {
    const SCANS: bool = false;

    fn at_least(&self, degree: u64) -> u64 {
        if degree <= self.fanout { degree } else { 0 }
    }

    #[inline(always)]
    fn pick(&mut self, Row { place: row, edges, .. }: Row, kept: &mut Vec<u64>) {
        let start = edges.start;
        let degree = edges.end - start;
        if degree <= self.fanout {
            self.weight.extend(edges.clone().map(|_| 1.0 / degree as f64));
            kept.extend(edges);
            return;
        }
        let candidates = &self.plan.candidate[self.plan.row_start[row]..self.plan.row_start[row + 1]];
        let scale = self.plan.scale[row];
        let probability = |place: u64| {
            let probability = scale * self.plan.pi[candidates[place as usize] as usize];
            if probability < 1.0 { probability } else { 1.0 }
        };
        let word = |place: u64| f64::from(self.plan.words[candidates[place as usize] as usize]);
        let first_kept = kept.len();
        if self.fixed_size {
            self.keys
                .extend((0..degree).map(|place| key((word(place) / probability(place)).to_bits(), place)));
            keep_smallest(self.keys, self.fanout, start, kept);
        } else {
            let is_kept = |&place: &u64| word(place) < probability(place) * (1u64 << 32) as f64;
            kept.extend((0..degree).filter(is_kept).map(|place| start + place));
        }
        let inverse = |edge: &u64| 1.0 / probability(edge - start);
        let sum: f64 = kept[first_kept..].iter().map(inverse).sum();
        self.weight.extend(kept[first_kept..].iter().map(|edge| inverse(edge) / sum));
    }
}
