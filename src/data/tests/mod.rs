//! Data sets: validation, forms of features, files, the built-in sets.

mod builtin;
mod features;
mod files;
mod messages;
mod validate;

use super::*;

/// Four vertices, a bit of everything.
fn small(features: Features) -> Dataset {
    let graph = Graph::from_edges(4, &[(0, 1), (2, 1), (3, 0), (1, 3)]).unwrap();
    let split = Split { train: vec![0, 2], val: vec![3], test: vec![1] };
    Dataset::new("small", graph, features, vec![0, 2, -1, 1], 3, split).unwrap()
}

fn dense() -> Features {
    Features::dense(vec![1.0, 0.5, -2.0, 0.0, 3.25, 8.0, 0.0, 0.0], 4, 2).unwrap()
}

fn sparse() -> Features {
    let sparse = SparseFeatures::new(vec![0, 2, 2, 3, 4], vec![0, 3, 1, 3], vec![1.0, 3.0, -2.0, 0.5], 5);
    Features::Sparse(sparse.unwrap())
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}
