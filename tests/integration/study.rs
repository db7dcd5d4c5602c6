//! Studies on real graphs.

use cohop::data;
use cohop::device::Method;
use cohop::sample::Fanouts;
use cohop::study::{WorkConfig, seed_pool, work};

use crate::common;

/// Theorem 3.1 of Cooperative Minibatching, P · E W(B/P) ≥ E W(B), on every shared graph that has splits. Means may be
/// off by chance: by 6 standard errors with probability below 1e-8, in each of some 100 comparisons.
#[test]
fn work_is_concave_on_every_shared_graph() {
    let Some(folder) = common::shared("data") else { return };
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "npz"));
    paths.sort();
    let mut n_graphs = 0;
    for path in paths {
        let dataset = data::load(&path).unwrap();
        if dataset.train_idx.is_empty() {
            continue;
        }
        n_graphs += 1;
        let pool = seed_pool(&dataset).unwrap();
        let whole = pool.len().min(256);
        let sizes = [whole / 8, whole / 4, whole / 2, whole];
        let config = WorkConfig {
            samplers: vec![Method::NEIGHBOR, Method::LABOR_0],
            fanouts: Fanouts(vec![5, 5]),
            batch_sizes: sizes.to_vec(),
            batches: 10,
            seed: 1,
        };
        let rows = work(&dataset.graph, &pool, &config, &mut ()).unwrap();
        for rows in rows.chunks(sizes.len()) {
            for (i, smaller) in rows.iter().enumerate() {
                for larger in &rows[i + 1..] {
                    let (few, many) = (smaller.work_per_seed, larger.work_per_seed);
                    let error = few.standard_error.hypot(many.standard_error);
                    assert!(
                        few.mean >= many.mean - 6.0 * error,
                        "{}: {smaller:?} {larger:?}",
                        path.display()
                    );
                }
            }
        }
    }
    assert!(n_graphs >= 10, "only {n_graphs} graphs have splits");
}
