//! The seeds of a study's batches.

use crate::data::Dataset;
use crate::error::{Error, Result, try_collect};
use crate::sample::Batches;

/// The training vertices, or all vertices if the data set has no training vertices.
///
/// Errors: there is no memory for the list.
pub fn seed_pool(dataset: &Dataset) -> Result<Vec<u32>> {
    let (n, train) = (dataset.n_vertices(), &dataset.train_idx);
    let (what, asked) = ("the list of seeds", format_args!("there are {n} vertices"));
    match train.is_empty() {
        true => try_collect(what, 0..n as u32, asked),
        false => try_collect(what, train.iter().copied(), asked),
    }
}

/// `n_batches` batches of `batch_size` seeds each: those of training epochs, without the smaller last ones, so that
/// seeds do not repeat within an epoch. Calls `each` with a number, counted from 0, and the seeds.
pub(super) fn for_full_batches(
    pool: &[u32],
    batch_size: usize,
    n_batches: usize,
    seed: u64,
    mut each: impl FnMut(u64, &[u32]) -> Result<()>,
) -> Result<()> {
    check_batch_size(pool, batch_size)?;
    if n_batches == 0 {
        return Err(Error::invalid("batches", 0, "at least 1"));
    }
    let batches = Batches::new(pool.to_vec(), batch_size, seed)?;
    let mut number = 0;
    for epoch in 0.. {
        let epoch = batches.epoch(epoch);
        for (_, seeds) in epoch.iter().filter(|(_, seeds)| seeds.len() == batch_size) {
            each(number, seeds)?;
            number += 1;
            if number == n_batches as u64 {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// `Ok` if `pool` has at least `batch_size` seeds, and that is not 0.
pub(super) fn check_batch_size(pool: &[u32], batch_size: usize) -> Result<()> {
    if (1..=pool.len()).contains(&batch_size) {
        return Ok(());
    }
    Err(Error::invalid("batch_size", batch_size, format!("1 to the {} seed vertices", pool.len())))
}

/// `Ok` if `items`, which errors call `argument`, are not empty.
pub(super) fn check_not_empty<T>(argument: &'static str, items: &[T]) -> Result<()> {
    if items.is_empty() {
        return Err(Error::invalid(argument, "an empty list", "one at least"));
    }
    Ok(())
}
