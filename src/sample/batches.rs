//! Batches of the seed vertices of an epoch.

use crate::error::{Error, Result};
use crate::rng::{Purpose, derive, shuffle};

/// Cuts seed vertices into minibatches, in a new order each epoch.
#[derive(Clone, Debug)]
pub struct Batches {
    seeds: Vec<u32>,
    batch_size: usize,
    seed: u64,
}

impl Batches {
    /// Batches of `batch_size` of the vertices `seeds`; the last of an epoch may be smaller.
    ///
    /// Errors: `batch_size` is 0.
    pub fn new(seeds: Vec<u32>, batch_size: usize, seed: u64) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::invalid("batch_size", 0, "at least 1"));
        }
        Ok(Batches { seeds, batch_size, seed })
    }

    /// Number of batches in an epoch.
    pub fn per_epoch(&self) -> usize {
        self.seeds.len().div_ceil(self.batch_size)
    }

    /// The batches of epoch number `epoch`: a pure function of the seed and the epoch.
    pub fn epoch(&self, epoch: u64) -> Epoch {
        let mut order = self.seeds.clone();
        let of_epoch = derive(self.seed, Purpose::EpochSeed.stream(0), epoch);
        shuffle(of_epoch, Purpose::EpochOrder.stream(0), &mut order);
        let first_batch = epoch.wrapping_mul(self.per_epoch() as u64);
        Epoch { order, batch_size: self.batch_size, first_batch }
    }
}

/// One epoch's batches.
#[derive(Clone, Debug)]
pub struct Epoch {
    order: Vec<u32>,
    batch_size: usize,
    first_batch: u64,
}

impl Epoch {
    /// Batch `i` of the epoch: its number, counted over all epochs, and its seed vertices. Panics if `i` is out
    /// of range.
    pub fn batch(&self, i: usize) -> (u64, &[u32]) {
        let end = ((i + 1) * self.batch_size).min(self.order.len());
        (self.first_batch.wrapping_add(i as u64), &self.order[i * self.batch_size..end])
    }

    /// All batches: their numbers, counted over all epochs, and their seed vertices.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &[u32])> {
        (0..self.order.len().div_ceil(self.batch_size)).map(|i| self.batch(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_holds_every_seed_once_and_numbers_go_on() {
        for (n, batch_size, sizes) in
            [(10, 4, vec![4, 4, 2]), (8, 4, vec![4, 4]), (3, 100, vec![3]), (0, 5, vec![])]
        {
            let batches = Batches::new((100..100 + n).collect(), batch_size, 7).unwrap();
            assert_eq!(batches.per_epoch(), sizes.len());
            let mut next = 0;
            for epoch in 0..3 {
                let epoch = batches.epoch(epoch);
                assert!(epoch.iter().map(|(_, seeds)| seeds.len()).eq(sizes.iter().copied()));
                let mut all = Vec::new();
                for (number, seeds) in epoch.iter() {
                    assert_eq!(number, next);
                    next += 1;
                    all.extend_from_slice(seeds);
                }
                all.sort();
                assert!(all.into_iter().eq(100..100 + n));
            }
        }
    }

    #[test]
    fn the_order_is_by_seed_and_epoch_alone() {
        let order = |seed, epoch| Batches::new((0..50).collect(), 50, seed).unwrap().epoch(epoch).order;
        assert_eq!(order(1, 3), order(1, 3));
        assert_ne!(order(1, 3), order(1, 4));
        assert_ne!(order(1, 3), order(2, 3));
    }

    #[test]
    fn batches_of_no_vertices_are_refused() {
        let error = Batches::new(vec![1], 0, 0).unwrap_err().to_string();
        assert!(error.contains("batch_size is 0"), "{error}");
    }
}
