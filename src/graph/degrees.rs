//! Statistics of in-degrees.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Graph, ROWS_PER_TASK};
use crate::error::{Result, try_collect};

/// The distribution of in-degrees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DegreeStatistics {
    /// The smallest; 0 without vertices.
    pub min: u64,
    /// The largest; 0 without vertices.
    pub max: u64,
    /// Edges per vertex; 0 without vertices.
    pub mean: f64,
    /// Vertices without in-edges.
    pub without_in_edges: u64,
    /// `histogram[0]`: vertices of degree 0; `histogram[b]`: of degree in `2^(b-1) .. 2^b`. Ends with the last
    /// entry that is not 0.
    pub histogram: Vec<u64>,
}

impl Graph {
    /// Statistics of the in-degrees. O(n_vertices): `indices` is not read.
    pub fn degree_statistics(&self) -> DegreeStatistics {
        let empty = || (u64::MAX, 0, [0u64; 65]);
        let (min, max, histogram) = self
            .indptr()
            .par_windows(2)
            .with_min_len(ROWS_PER_TASK)
            .fold(empty, |(min, max, mut histogram), ends| {
                let degree = ends[1] - ends[0];
                histogram[(u64::BITS - degree.leading_zeros()) as usize] += 1;
                (degree.min(min), degree.max(max), histogram)
            })
            .reduce(empty, |(min_a, max_a, mut histogram), (min_b, max_b, other)| {
                histogram.iter_mut().zip(other).for_each(|(a, b)| *a += b);
                (min_a.min(min_b), max_a.max(max_b), histogram)
            });
        let used = histogram.iter().rposition(|&n| n > 0).map_or(0, |last| last + 1);
        let n = self.n_vertices();
        DegreeStatistics {
            min: if n == 0 { 0 } else { min },
            max,
            mean: if n == 0 { 0.0 } else { self.n_edges() as f64 / n as f64 },
            without_in_edges: histogram[0],
            histogram: histogram[..used].to_vec(),
        }
    }

    /// Number of vertices with neither in-edges nor out-edges. Reads `indices`, in parallel: O(n_vertices + n_edges).
    ///
    /// Errors: there is no memory for a mark for each vertex.
    pub fn count_isolated(&self) -> Result<u64> {
        let marks = (0..self.n_vertices()).map(|_| AtomicBool::new(false));
        let connected = try_collect("a mark for each vertex", marks, self.size())?;
        self.indices().par_iter().with_min_len(ROWS_PER_TASK).for_each(|&source| {
            // Sources of a trusted graph may be out of range.
            if let Some(connected) = connected.get(source as usize) {
                connected.store(true, Ordering::Relaxed);
            }
        });
        let isolated = connected
            .par_iter()
            .zip(self.indptr().par_windows(2))
            .with_min_len(ROWS_PER_TASK)
            .filter(|(connected, ends)| !connected.load(Ordering::Relaxed) && ends[0] == ends[1]);
        Ok(isolated.count() as u64)
    }
}
