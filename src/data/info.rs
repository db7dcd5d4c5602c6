//! A summary of a data set.

use std::fmt;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Dataset, FeatureDtype, Features};
use crate::error::{Plain, Result, try_filled};
use crate::graph::{DegreeStatistics, EdgeStatistics};

/// What a data set holds: counts, degrees, splits, memory. Prints as an aligned table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Name of the data set.
    pub name: String,
    /// Number of vertices.
    pub vertices: u64,
    /// Number of edges.
    pub edges: u64,
    /// Number of relations; 0 without edge types.
    pub relations: u64,
    /// The smallest and the largest weight of an edge, if edges have weights (both 0 without edges).
    #[serde(default)]
    pub edge_weights: Option<[f32; 2]>,
    /// `[relations]`: edges of each relation.
    pub relation_counts: Vec<u64>,
    /// `[types]`: vertices of each type; empty without vertex types.
    pub vertex_type_counts: Vec<u64>,
    /// Distribution of the in-degrees.
    pub degrees: DegreeStatistics,
    /// Vertices with neither in-edges nor out-edges.
    pub isolated: u64,
    /// Self-loops, duplicates and missing reverse edges.
    pub edge_statistics: EdgeStatistics,
    /// The features, if there are any.
    pub features: Option<FeatureSummary>,
    /// Number of classes; 0 without labels.
    pub classes: u64,
    /// `[classes]`: vertices of each class.
    pub class_counts: Vec<u64>,
    /// `[classes]`: training vertices of each class.
    pub train_class_counts: Vec<u64>,
    /// Vertices without a label.
    pub unlabelled: u64,
    /// Training, validation and test vertices without a label.
    pub unlabelled_in_split: [u64; 3],
    /// Training vertices.
    pub train: u64,
    /// Validation vertices.
    pub val: u64,
    /// Test vertices.
    pub test: u64,
    /// Number of published splits to choose from; 0 if there is only one split.
    pub splits: u64,
    /// Bytes of all arrays in memory.
    pub bytes_in_memory: u64,
    /// Bytes of all arrays mapped from files.
    pub bytes_mapped: u64,
}

/// The features of a [`Summary`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeatureSummary {
    /// Number of columns.
    pub dim: u64,
    /// The element type.
    pub dtype: FeatureDtype,
    /// Fraction of the matrix that is stored: 1 for dense features.
    pub density: f64,
    /// Whether they are stored as compressed rows.
    pub sparse: bool,
    /// The number of rows that the counts below are of: all, or evenly spaced ones of a large matrix.
    pub rows_read: u64,
    /// Columns with the same number in all of these rows; 0 if that is one row or none.
    pub constant_columns: u64,
    /// Rows of zeros.
    pub zero_rows: u64,
    /// Numbers that are NaN or infinite.
    pub not_finite: u64,
}

impl Dataset {
    /// Counts everything, in parallel: O(n_vertices + n_edges · log of the in-degree), and at most 2^28 elements of the
    /// features. The parts of a graph and of features that may be too large to look at as a whole are sampled: see
    /// [`EdgeStatistics`] and [`FeatureSummary`].
    ///
    /// Errors: there is no memory for the counts, or mapped arrays have been changed.
    pub fn summary(&self) -> Result<Summary> {
        let graph = &self.graph;
        let mut bytes = graph.bytes();
        self.features.add_bytes(&mut bytes);
        bytes.add(&self.labels);
        if let Some(types) = &self.vertex_type {
            bytes.add(types);
        }
        let mut lists = vec![&self.train_idx, &self.val_idx, &self.test_idx];
        lists.extend(self.splits.iter().flat_map(|s| [&s.train, &s.val, &s.test]));
        bytes.memory += lists.iter().map(|list| 4 * list.len() as u64).sum::<u64>();

        let labels = self.labels.iter().filter_map(|&l| usize::try_from(l).ok());
        let class_counts = tally(labels, self.n_classes)?;
        let label_of = |&v: &u32| self.labels.get(v as usize).and_then(|&l| usize::try_from(l).ok());
        let train_class_counts = tally(self.train_idx.iter().filter_map(label_of), self.n_classes)?;
        let without_label = |part: &[u32]| part.iter().filter(|v| label_of(v).is_none()).count() as u64;
        let unlabelled_in_split = [&self.train_idx, &self.val_idx, &self.test_idx].map(|p| without_label(p));
        let relations = graph.edge_type().unwrap_or_default().iter().map(|&r| usize::from(r));
        let types = self.vertex_type.as_deref().unwrap_or_default().iter().map(|&t| usize::from(t));
        Ok(Summary {
            name: self.name.clone(),
            vertices: self.n_vertices() as u64,
            edges: graph.n_edges(),
            relations: graph.n_relations() as u64,
            edge_weights: graph.edge_weight().map(range),
            relation_counts: tally(relations, graph.n_relations())?,
            vertex_type_counts: tally(types, self.n_vertex_types())?,
            degrees: graph.degree_statistics(),
            isolated: graph.count_isolated()?,
            edge_statistics: graph.edge_statistics()?,
            features: self.features.summary()?,
            classes: self.n_classes as u64,
            unlabelled: self.labels.len() as u64 - class_counts.iter().sum::<u64>(),
            class_counts,
            train_class_counts,
            unlabelled_in_split,
            train: self.train_idx.len() as u64,
            val: self.val_idx.len() as u64,
            test: self.test_idx.len() as u64,
            splits: self.splits.len() as u64,
            bytes_in_memory: bytes.memory,
            bytes_mapped: bytes.mapped,
        })
    }
}

impl Features {
    fn summary(&self) -> Result<Option<FeatureSummary>> {
        let density = match self {
            Features::Sparse(s) => s.values().len() as f64 / (s.n_rows() as f64 * s.dim() as f64).max(1.0),
            _ => 1.0,
        };
        let sparse = matches!(self, Features::Sparse(_));
        let Some(dtype) = self.dtype() else { return Ok(None) };
        let quality = self.quality()?;
        Ok(Some(FeatureSummary {
            dim: self.dim() as u64,
            dtype,
            density,
            sparse,
            rows_read: quality.rows,
            constant_columns: quality.constant_columns,
            zero_rows: quality.zero_rows,
            not_finite: quality.not_finite,
        }))
    }
}

/// The smallest and the largest of some weights, 0 if there are none.
fn range(weights: &[f32]) -> [f32; 2] {
    let [least, most] = weights
        .par_iter()
        .map(|&w| [w, w])
        .reduce(|| [f32::INFINITY, f32::NEG_INFINITY], |a, b| [a[0].min(b[0]), a[1].max(b[1])]);
    if weights.is_empty() { [0.0; 2] } else { [least, most] }
}

impl Summary {
    /// What may be wrong with the data, or is worth to know before training on it: a sentence for each, for people.
    pub fn oddities(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut say = |n: u64, what: &str| {
            if n > 0 {
                found.push(format!("{}: {what}", grouped(n)));
            }
        };
        say(self.isolated, "vertices without any edge");
        let sees_nothing = self.degrees.without_in_edges.saturating_sub(self.isolated);
        say(sees_nothing, "vertices with out-edges but without in-edges, which see only themselves");
        say(self.edge_statistics.duplicates, "edges that repeat another one");
        say(self.edge_statistics.self_loops, "self-loops");
        let labelled = [("training", 0), ("validation", 1), ("test", 2)];
        for (part, i) in labelled.into_iter().filter(|_| self.classes > 0) {
            say(self.unlabelled_in_split[i], &format!("{part} vertices without a label"));
        }
        let counts = || self.class_counts.iter().zip(&self.train_class_counts);
        let empty = self.class_counts.iter().filter(|&&n| n == 0).count();
        say(empty as u64, "classes without a vertex");
        if self.train > 0 {
            let untrained = counts().filter(|&(&all, &train)| all > 0 && train == 0).count();
            say(untrained as u64, "classes with vertices, but without a training vertex");
        }
        if let Some(x) = &self.features {
            let all = if x.rows_read < self.vertices { " (of the rows that were read)" } else { "" };
            say(x.not_finite, &format!("features that are NaN or infinite{all}"));
            say(x.constant_columns, &format!("feature columns with one and the same number{all}"));
            say(x.zero_rows, &format!("feature rows of zeros{all}"));
        }
        let one_way = self.edge_statistics.without_reverse;
        if one_way > 0.0 {
            let statistics = &self.edge_statistics;
            // A sample knows no second digit.
            let (digits, sampled) = match statistics.looked_at + statistics.self_loops < self.edges {
                true => (1, ", estimated"),
                false => (2, ""),
            };
            let share = 100.0 * one_way;
            found.push(format!("{share:.digits$} % of the edges{sampled}: without a reverse edge"));
        }
        let largest = self.class_counts.iter().copied().max().unwrap_or(0);
        let smallest = self.class_counts.iter().copied().filter(|&n| n > 0).min().unwrap_or(0);
        if smallest > 0 && largest / smallest >= UNBALANCED {
            let (smallest, largest) = (grouped(smallest), grouped(largest));
            found.push(format!("classes of {smallest} to {largest} vertices"));
        }
        found
    }
}

/// Classes are called unbalanced if the largest has this many times the vertices of the smallest.
const UNBALANCED: u64 = 20;

fn tally(values: impl Iterator<Item = usize>, n: usize) -> Result<Vec<u64>> {
    let mut counts = try_filled("counts", 0, n, format_args!("{n} classes, relations or types"))?;
    for value in values {
        if let Some(count) = counts.get_mut(value) {
            *count += 1;
        }
    }
    Ok(counts)
}

/// The longest list that is printed in full.
const LONGEST_LIST: usize = 16;

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<(&str, String)> = vec![
            ("data set", Plain(&self.name).to_string()),
            ("vertices", grouped(self.vertices)),
            ("edges", grouped(self.edges)),
        ];
        if self.relations > 0 {
            rows.push(("relations", grouped(self.relations)));
            rows.push(("edges per relation", list(&self.relation_counts)));
        }
        if !self.vertex_type_counts.is_empty() {
            rows.push(("vertices per type", list(&self.vertex_type_counts)));
        }
        if let Some([least, most]) = self.edge_weights {
            rows.push(("edge weights", format!("{least} to {most}")));
        }
        let d = &self.degrees;
        let degrees = format!("{} to {}, mean {:.2}", grouped(d.min), grouped(d.max), d.mean);
        rows.push(("in-degrees", degrees));
        for (class, &count) in d.histogram.iter().enumerate().filter(|(_, count)| **count > 0) {
            let range = match class {
                0 | 1 => class.to_string(),
                _ => format!(
                    "{} to {}",
                    1u64 << (class - 1),
                    (1u64 << (class - 1)) - 1 + (1u64 << (class - 1))
                ),
            };
            rows.push(("", format!("{:>12} of in-degree {range}", grouped(count))));
        }
        rows.push(("no in-edges", grouped(d.without_in_edges)));
        rows.push(("isolated", grouped(self.isolated)));
        let features = match &self.features {
            None => "none".into(),
            Some(x) if x.sparse => {
                format!("{} columns, sparse {}, {:.3} % stored", x.dim, x.dtype, 100.0 * x.density)
            }
            Some(x) => format!("{} columns, dense {}", x.dim, x.dtype),
        };
        rows.push(("features", features));
        rows.push(("classes", self.classes.to_string()));
        if self.classes > 0 {
            rows.push(("vertices per class", list(&self.class_counts)));
            rows.push(("training per class", list(&self.train_class_counts)));
        }
        rows.push(("unlabelled", grouped(self.unlabelled)));
        let split = [self.train, self.val, self.test].map(grouped);
        rows.push(("train, val, test", split.join(", ")));
        if self.splits > 0 {
            rows.push(("published splits", self.splits.to_string()));
        }
        rows.push(("in memory", mebibytes(self.bytes_in_memory)));
        rows.push(("mapped", mebibytes(self.bytes_mapped)));
        for (i, oddity) in self.oddities().into_iter().enumerate() {
            rows.push((if i == 0 { "worth a look" } else { "" }, oddity));
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (i, (name, value)) in rows.iter().enumerate() {
            let end = if i + 1 < rows.len() { "\n" } else { "" };
            write!(f, "{name:width$}  {value}{end}")?;
        }
        Ok(())
    }
}

fn list(counts: &[u64]) -> String {
    let shown: Vec<String> = counts.iter().take(LONGEST_LIST).map(|&n| grouped(n)).collect();
    let more = counts.len() - shown.len();
    let tail = if more > 0 { format!(" and {more} more") } else { String::new() };
    shown.join(", ") + &tail
}

/// Digits in groups of three: `1 234 567`.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1u64 << 20) as f64)
}
