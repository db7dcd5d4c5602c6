//! The built-in data set `sbm`, which has known Bayes rates.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Dataset, Features, Split};
use crate::error::{Error, Result, try_collect, try_zeroed};
use crate::graph::Sbm;
use crate::rng::{Purpose, normal, shuffle};

/// Streams of the draws, besides those of the graphs.
const MEANS: u64 = Purpose::Features.stream(0);
pub(super) const NOISE: u64 = Purpose::Features.stream(1);
const SPLIT: u64 = Purpose::Split.stream(0);

/// A graph with communities whose members have similar features: the built-in data set `sbm`.
///
/// The graph is drawn by [`Sbm`]. Vertex v of class c has the features μ_c + ε_v, where ε_v is standard normal in each
/// of `dim` columns and the class means μ_c are independent normal vectors of expected length `separation`. Features
/// alone leave the class of many vertices in doubt; the neighbours help, since (by the homophily) many share the class:
/// [`SbmData::reference`] computes how accurate each can be.
///
/// With [`SbmData::default`], on its test vertices (a test recomputes these):
///
/// | what is known about a vertex | accuracy |
/// |---|---|
/// | nothing (chance) | 0.125 |
/// | its features | 0.599 |
/// | and its neighbours' features | 0.887 |
/// | and its neighbours' true classes (no model can do better) | 0.960 |
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SbmData {
    /// The graph's model.
    pub graph: Sbm,
    /// Number of feature columns.
    pub dim: usize,
    /// Expected length of a class mean; the noise has standard deviation 1 in each column.
    pub separation: f64,
}

impl Default for SbmData {
    fn default() -> Self {
        let graph = Sbm {
            n_vertices: 30_000,
            n_classes: 8,
            mean_degree: 20.0,
            homophily: 0.5,
            exponent: 2.5,
            max_propensity: 100.0,
            seed: 0,
        };
        SbmData { graph, dim: 64, separation: 1.8 }
    }
}

/// The best accuracies on the test vertices, by what is known about a vertex: see [`SbmData`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SbmReference {
    /// One over the number of classes.
    pub chance: f64,
    /// The exact posterior given the vertex's own features (the Bayes rate of a model that ignores the graph).
    pub features: f64,
    /// The posterior given the features of the vertex and of its neighbours, ignoring edges among the neighbours: what
    /// one layer that aggregates all neighbours can reach. Deeper models can do a little better.
    pub one_hop: f64,
    /// The posterior given its features and its neighbours' true classes. Given those, nothing else in the graph adds
    /// information, so this bounds every model.
    pub oracle: f64,
}

impl SbmData {
    /// Makes the data set: a tenth of the vertices to train on, a tenth to validate, a fifth to test.
    ///
    /// Errors: those of [`Sbm::generate`], or features too large for memory.
    pub fn generate(&self) -> Result<Dataset> {
        let generated = self.graph.generate()?;
        let n = generated.labels.len();
        let means = self.means();
        let asked = format_args!("{n} rows of {} columns", self.dim);
        let mut data: Vec<f32> = try_zeroed("the feature matrix", feature_len(n, self.dim)?, asked)?;
        data.par_chunks_mut(self.dim.max(1)).enumerate().for_each(|(v, row)| {
            let mean = &means[generated.labels[v] as usize];
            let first = (v * self.dim) as u64;
            for ((x, mean), counter) in row.iter_mut().zip(mean).zip(first..) {
                *x = (mean + normal(self.graph.seed, NOISE, counter)) as f32;
            }
        });
        let features = Features::dense(data, n, self.dim)?;
        let split = random_split(try_collect("the vertices to split", 0..n as u32, asked)?, self.graph.seed)?;
        Dataset::new("sbm", generated.graph, features, generated.labels, self.graph.n_classes, split)
    }

    /// `[n_classes][dim]`
    fn means(&self) -> Vec<Vec<f64>> {
        let scale = self.separation / (self.dim.max(1) as f64).sqrt();
        let mean = |class| {
            let counters = (class * self.dim) as u64..((class + 1) * self.dim) as u64;
            counters.map(|c| scale * normal(self.graph.seed, MEANS, c)).collect()
        };
        (0..self.graph.n_classes).map(mean).collect()
    }

    /// How accurately the classes of the test vertices of `dataset`, which [`SbmData::generate`] made, can be
    /// predicted. O((n_vertices * dim + n_edges) * n_classes).
    ///
    /// Errors: `dataset` has features other than dense `f32`, or other numbers of columns or classes than `self`.
    pub fn reference(&self, dataset: &Dataset) -> Result<SbmReference> {
        let k = self.graph.n_classes;
        let Features::F32(x) = &dataset.features else {
            return Err(Error::invalid("features", format!("{:?}", dataset.features.dtype()), "dense f32"));
        };
        if x.dim() != self.dim || dataset.n_classes != k {
            let found = format!("{} columns and {} classes", x.dim(), dataset.n_classes);
            return Err(Error::invalid("dataset", found, "the data set generated from these parameters"));
        }
        let means = self.means();
        // log p(x_v | class), up to a constant of the vertex.
        let likelihood: Vec<Vec<f64>> = (0..x.n_rows())
            .into_par_iter()
            .map(|v| {
                let distance = |mean: &Vec<f64>| -> f64 {
                    x.row(v).iter().zip(mean).map(|(&x, m)| (f64::from(x) - m).powi(2)).sum()
                };
                means.iter().map(|mean| -0.5 * distance(mean)).collect()
            })
            .collect();
        // p(class of a neighbour | class).
        let inside = self.graph.homophily;
        let outside = (1.0 - inside) / (k as f64 - 1.0);
        let link = |a: usize, b: usize| if a == b { inside } else { outside };
        // log p(x_u | class of u's neighbour), up to a constant of u.
        let through: Vec<Vec<f64>> = likelihood
            .par_iter()
            .map(|own| {
                let largest = own.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let given = |a| (0..k).map(|b| link(a, b) * (own[b] - largest).exp()).sum::<f64>().ln();
                (0..k).map(given).collect()
            })
            .collect();
        let accuracy = |score: &(dyn Fn(u32, usize) -> f64 + Sync)| {
            let hits = dataset.test_idx.par_iter().filter(|&&v| {
                let best = (0..k).max_by(|&a, &b| score(v, a).total_cmp(&score(v, b)));
                best == usize::try_from(dataset.labels[v as usize]).ok()
            });
            hits.count() as f64 / dataset.test_idx.len().max(1) as f64
        };
        let own = |v: u32, class: usize| likelihood[v as usize][class];
        let neighbors = |v: u32| dataset.graph.in_neighbors(v).iter().map(|&u| u as usize);
        Ok(SbmReference {
            chance: 1.0 / k as f64,
            features: accuracy(&own),
            one_hop: accuracy(&|v, class| {
                own(v, class) + neighbors(v).map(|u| through[u][class]).sum::<f64>()
            }),
            oracle: accuracy(&|v, class| {
                let evidence = neighbors(v).map(|u| link(class, dataset.labels[u] as usize).ln());
                own(v, class) + evidence.sum::<f64>()
            }),
        })
    }
}

pub(super) fn feature_len(n: usize, dim: usize) -> Result<usize> {
    let limit = isize::MAX as u64 / 4;
    match n.checked_mul(dim) {
        Some(len) if len as u64 <= limit => Ok(len),
        len => {
            let count = len.map_or(u64::MAX, |len| len as u64);
            Err(Error::TooLarge { what: "the feature matrix", count, limit })
        }
    }
}

/// A tenth, a tenth and a fifth of `vertices`, drawn at random; each part ascending.
///
/// Errors: there is no memory for them.
pub(super) fn random_split(mut vertices: Vec<u32>, seed: u64) -> Result<Split> {
    shuffle(seed, SPLIT, &mut vertices);
    let n = vertices.len();
    let take = |from: usize, to: usize| {
        let part = vertices[n * from / 10..n * to / 10].iter().copied();
        let mut part = try_collect("a part of the split", part, format_args!("{n} vertices to split"))?;
        part.sort_unstable();
        Ok(part)
    };
    Ok(Split { train: take(0, 1)?, val: take(1, 2)?, test: take(2, 4)? })
}
