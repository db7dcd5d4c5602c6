//! Random graphs: R-MAT and the degree-corrected stochastic block model.
//!
//! Edge `i` is a pure function of the parameters, the seed and `i`: the same graph for any number of threads.

use rayon::prelude::*;

use super::{Graph, check_vertex_count};
use crate::error::{Error, Result, try_capacity, try_collect, try_extend, try_filled};
use crate::rng::{Purpose, block, bounded, math, shuffle, uniform};

/// The streams of the draws of an edge or a vertex. R-MAT's levels have the streams from 0 on.
mod streams {
    use crate::rng::Purpose;

    pub(super) const VERTEX_NAMES: u64 = Purpose::Graph.stream(1 << 16);
    pub(super) const CLASSES: u64 = Purpose::Graph.stream(2 << 16);
    pub(super) const PROPENSITIES: u64 = Purpose::Graph.stream(3 << 16);
    pub(super) const INSIDE: u64 = Purpose::Graph.stream(4 << 16);
    pub(super) const CLASS_PAIR: u64 = Purpose::Graph.stream(5 << 16);
    pub(super) const FIRST_END: u64 = Purpose::Graph.stream(6 << 16);
    pub(super) const SECOND_END: u64 = Purpose::Graph.stream(7 << 16);
}

/// The recursive-matrix model (Chakrabarti, Zhan & Faloutsos 2004): each edge descends `scale` times into one of the
/// four quadrants of the adjacency matrix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rmat {
    /// There are `2^scale` vertices; at most 31.
    pub scale: u32,
    /// Edges drawn per vertex: `2^scale * edge_factor`, rounded, are drawn in all.
    pub edge_factor: f64,
    /// Probabilities of the quadrants (source half, destination half): (0, 0), (0, 1), (1, 0), (1, 1). Sum to 1.
    pub quadrants: [f64; 4],
    /// Shuffle the vertices' names: else low names have high degrees.
    pub shuffle_names: bool,
    /// Add the reverse edges.
    pub symmetric: bool,
    /// Merge parallel edges: there are then fewer than `edge_factor` per vertex.
    pub deduplicate: bool,
    /// Seed of all draws.
    pub seed: u64,
}

impl Rmat {
    /// The parameters of Graph500: quadrants (0.57, 0.19, 0.19, 0.05), shuffled names; symmetric, without parallel
    /// edges.
    pub fn graph500(scale: u32, edge_factor: impl Into<f64>, seed: u64) -> Self {
        Rmat {
            scale,
            edge_factor: edge_factor.into(),
            quadrants: [0.57, 0.19, 0.19, 0.05],
            shuffle_names: true,
            symmetric: true,
            deduplicate: true,
            seed,
        }
    }

    /// Draws the graph. O(edges * scale); 8 bytes per edge besides what [`GraphBuilder`](super::GraphBuilder) takes.
    /// For a graph larger than memory use [`RmatData::write`](crate::data::RmatData::write).
    ///
    /// Errors: `scale` above 31, quadrants that are negative or do not sum to 1 (within 1e-6), an `edge_factor` that is
    /// negative or not finite, or more edges than memory can address.
    pub fn generate(&self) -> Result<Graph> {
        let n_edges = usize::try_from(self.check()?).unwrap_or(usize::MAX);
        let names = self.names()?;
        let mut edges = try_capacity("the list of edges", n_edges, format_args!("{n_edges} edges to draw"))?;
        (0..n_edges).into_par_iter().map(|i| self.named_edge(i as u64, &names)).collect_into_vec(&mut edges);
        let mut graph = Graph::from_edges(self.n_vertices(), &edges)?;
        drop(edges);
        if self.symmetric {
            graph = graph.symmetrize()?;
        }
        if self.deduplicate { graph.deduplicate() } else { Ok(graph) }
    }

    /// `2^scale`
    pub(crate) fn n_vertices(&self) -> u64 {
        1 << self.scale
    }

    /// The number of edges to draw, if the parameters are valid.
    pub(crate) fn check(&self) -> Result<u64> {
        if self.scale > 31 {
            return Err(Error::invalid("scale", self.scale, "at most 31"));
        }
        let sum: f64 = self.quadrants.iter().sum();
        let valid = (sum - 1.0).abs() <= 1e-6 && self.quadrants.iter().all(|&p| p >= 0.0);
        if !valid {
            let expected = "four probabilities that sum to 1";
            return Err(Error::invalid("quadrants", format!("{:?}", self.quadrants), expected));
        }
        if !(self.edge_factor >= 0.0 && self.edge_factor.is_finite()) {
            return Err(Error::invalid("edge_factor", self.edge_factor, "a finite number, not negative"));
        }
        // Casts saturate.
        let n_edges = (self.n_vertices() as f64 * self.edge_factor).round() as u64;
        edge_count(Some(n_edges)).map(|n| n as u64)
    }

    /// The vertices' names, by their ids in the model.
    ///
    /// Errors: there is no memory for them.
    pub(crate) fn names(&self) -> Result<Vec<u32>> {
        // At most 2^31.
        let n = self.n_vertices() as u32;
        let mut names = try_collect("the vertices' names", 0..n, format_args!("there are {n} vertices"))?;
        if self.shuffle_names {
            shuffle(self.seed, streams::VERTEX_NAMES, &mut names);
        }
        Ok(names)
    }

    /// Edge `i` as (source, destination).
    pub(crate) fn named_edge(&self, i: u64, names: &[u32]) -> (u32, u32) {
        let (source, destination) = self.edge(i);
        (names[source as usize], names[destination as usize])
    }

    /// Edge `i`, before names are shuffled. A Philox block serves four levels, one word per level: the
    /// probabilities are rounded to multiples of 2⁻³².
    pub(super) fn edge(&self, i: u64) -> (u32, u32) {
        let [a, b, c, _] = self.quadrants;
        let threshold = |p: f64| (p * (1u64 << 32) as f64) as u64;
        let (a, ab, abc) = (threshold(a), threshold(a + b), threshold(a + b + c));
        let (mut source, mut destination) = (0, 0);
        for first_level in (0..self.scale).step_by(4) {
            let words = block(self.seed, Purpose::Graph.stream(first_level), i);
            for word in words.into_iter().take((self.scale - first_level) as usize).map(u64::from) {
                source = source << 1 | u32::from(word >= ab);
                destination = destination << 1 | u32::from((a..ab).contains(&word) || word >= abc);
            }
        }
        (source, destination)
    }
}

/// The degree-corrected stochastic block model (Karrer & Newman 2011), undirected.
///
/// Every vertex has a class (all classes of the same number of vertices, to within one) and a propensity, Pareto
/// distributed between 1 and `max_propensity`. An edge is inside a class with probability `homophily`, else between two
/// different classes; all classes (or pairs) are equally likely. Its ends are drawn from their classes in proportion to
/// the propensities. So a neighbour of a vertex has the vertex's class with probability `homophily`, and each other one
/// with probability `(1 - homophily) / (n_classes - 1)`. Self-loops and parallel edges are dropped at the end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sbm {
    /// Number of vertices, at least `n_classes`.
    pub n_vertices: u64,
    /// Number of classes, at least 2.
    pub n_classes: usize,
    /// Expected degree, before self-loops and parallel edges are dropped.
    pub mean_degree: f64,
    /// Probability that an edge is inside a class, `0..=1`.
    pub homophily: f64,
    /// The density of propensities `p` falls as `p^(-exponent)`; above 1.
    pub exponent: f64,
    /// The largest propensity, in units of the smallest; at least 1.
    pub max_propensity: f64,
    /// Seed of all draws.
    pub seed: u64,
}

/// What [`Sbm`] generates.
#[derive(Clone, Debug)]
pub struct SbmGraph {
    /// Symmetric, without self-loops and parallel edges.
    pub graph: Graph,
    /// `[n_vertices]`: class of each vertex.
    pub labels: Vec<i32>,
}

impl Sbm {
    /// Draws the graph and the classes. O(n_vertices + edges).
    ///
    /// Errors: a parameter out of the range that its documentation gives, or more edges than memory can address.
    pub fn generate(&self) -> Result<SbmGraph> {
        self.check()?;
        let labels = self.labels()?;
        let blocks = self.blocks(&labels)?;
        let n_edges = edge_count(Some((self.n_vertices as f64 * self.mean_degree / 2.0).round() as u64))?;
        let mut edges = try_capacity("the list of edges", n_edges, format_args!("{n_edges} edges to draw"))?;
        (0..n_edges).into_par_iter().map(|i| self.edge(&blocks, i as u64)).collect_into_vec(&mut edges);
        let graph = Graph::from_edges(self.n_vertices, &edges)?;
        drop(edges);
        Ok(SbmGraph { graph: graph.remove_self_loops()?.symmetrize()?.deduplicate()?, labels })
    }

    fn check(&self) -> Result<()> {
        check_vertex_count(self.n_vertices)?;
        if self.n_classes < 2 || self.n_classes as u64 > self.n_vertices {
            let expected = format!("2 to {} (the number of vertices)", self.n_vertices);
            return Err(Error::invalid("n_classes", self.n_classes, expected));
        }
        let in_range = |argument, value: f64, valid: bool, expected: &str| match valid && value.is_finite() {
            true => Ok(()),
            false => Err(Error::invalid(argument, value, expected)),
        };
        in_range("mean_degree", self.mean_degree, self.mean_degree >= 0.0, "a number of at least 0")?;
        in_range("homophily", self.homophily, (0.0..=1.0).contains(&self.homophily), "0 to 1")?;
        in_range("exponent", self.exponent, self.exponent > 1.0, "a number above 1")?;
        in_range("max_propensity", self.max_propensity, self.max_propensity >= 1.0, "a number of at least 1")
    }

    /// `[n_vertices]`
    fn labels(&self) -> Result<Vec<i32>> {
        // Checked to be an id, and so `usize`.
        let labels = (0..self.n_vertices as usize).map(|v| (v % self.n_classes) as i32);
        let mut labels = try_collect("labels", labels, self.size())?;
        shuffle(self.seed, streams::CLASSES, &mut labels);
        Ok(labels)
    }

    /// For messages about memory.
    fn size(&self) -> String {
        format!("there are {} vertices of {} classes", self.n_vertices, self.n_classes)
    }

    /// The inverse of the truncated Pareto distribution function, at a uniform variate.
    fn propensity(&self, vertex: u64) -> f64 {
        let power = self.exponent - 1.0;
        let tail = math::exp(-power * math::ln(self.max_propensity));
        let u = uniform(self.seed, streams::PROPENSITIES, vertex);
        math::exp(-math::ln(1.0 - u * (1.0 - tail)) / power)
    }

    /// For each class a table that draws its vertices by propensity.
    pub(super) fn blocks(&self, labels: &[i32]) -> Result<Vec<Alias>> {
        let size = self.size();
        let mut members = try_filled("the classes", Vec::new(), self.n_classes, &size)?;
        for (vertex, &label) in (0u32..).zip(labels) {
            try_extend(
                &mut members[label as usize],
                "the classes' vertices",
                std::iter::once(vertex),
                &size,
            )?;
        }
        let weigh = |block: Vec<u32>| {
            let weights = block.iter().map(|&v| self.propensity(u64::from(v)));
            let weights = try_collect("the vertices' propensities", weights, &size)?;
            Alias::new(block, &weights)
        };
        members.into_par_iter().map(weigh).collect()
    }

    /// Edge `i`, with self-loops and parallel edges.
    pub(super) fn edge(&self, blocks: &[Alias], i: u64) -> (u32, u32) {
        let k = self.n_classes as u64;
        let (first, second) = if uniform(self.seed, streams::INSIDE, i) < self.homophily {
            let class = bounded(self.seed, streams::CLASS_PAIR, i, k);
            (class, class)
        } else {
            // An ordered pair of different classes.
            let pair = bounded(self.seed, streams::CLASS_PAIR, i, k * (k - 1));
            let (first, other) = (pair / (k - 1), pair % (k - 1));
            (first, other + u64::from(other >= first))
        };
        (
            blocks[first as usize].draw(uniform(self.seed, streams::FIRST_END, i)),
            blocks[second as usize].draw(uniform(self.seed, streams::SECOND_END, i)),
        )
    }
}

/// Items drawn in proportion to weights in O(1) (Walker 1977, Vose 1991).
pub(super) struct Alias {
    items: Vec<u32>,
    /// The share of slot `i` that goes to item `i`, and the position of the item that gets the rest.
    slots: Vec<(f64, u32)>,
}

impl Alias {
    /// `items` and `weights` of the same length, at least one; weights positive and finite.
    ///
    /// Errors: there is no memory for the table.
    fn new(items: Vec<u32>, weights: &[f64]) -> Result<Self> {
        let mean = weights.iter().sum::<f64>() / weights.len() as f64;
        let (what, asked) = ("a class's table", format_args!("the class has {} vertices", items.len()));
        let slots = weights.iter().enumerate().map(|(i, w)| (w / mean, i as u32));
        let mut slots = try_collect(what, slots, asked)?;
        // Each list can become as long as both are now.
        let mut below = try_capacity(what, items.len(), asked)?;
        let mut above = try_capacity(what, items.len(), asked)?;
        for (i, &(share, _)) in (0u32..).zip(&slots) {
            if share < 1.0 { below.push(i) } else { above.push(i) }
        }
        while let (Some(&low), Some(&high)) = (below.last(), above.last()) {
            below.pop();
            slots[low as usize].1 = high;
            slots[high as usize].0 -= 1.0 - slots[low as usize].0;
            if slots[high as usize].0 < 1.0 {
                above.pop();
                below.push(high);
            }
        }
        Ok(Alias { items, slots })
    }

    /// The item that a uniform variate in `[0, 1)` selects.
    fn draw(&self, u: f64) -> u32 {
        let position = u * self.slots.len() as f64;
        // The product may round up to the length: then take the last slot.
        let slot = (position as usize).min(self.slots.len() - 1);
        let (share, other) = self.slots[slot];
        self.items[if position - (slot as f64) < share { slot } else { other as usize }]
    }
}

/// `n_edges`, if memory can address as many.
fn edge_count(n_edges: Option<u64>) -> Result<usize> {
    let limit = isize::MAX as u64 / size_of::<(u32, u32)>() as u64;
    match n_edges {
        Some(n) if n <= limit => Ok(n as usize),
        _ => Err(Error::TooLarge { what: "the edge list", count: n_edges.unwrap_or(u64::MAX), limit }),
    }
}

#[cfg(test)]
mod tests;
