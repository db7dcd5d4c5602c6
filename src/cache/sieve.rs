//! SIEVE: Y. Zhang et al., *SIEVE is simpler than LRU* (NSDI 2024), Algorithm 1.

use super::queues::Queues;
use super::replacement::{Evicted, Replace};
use crate::error::{Result, try_filled};

/// Slots in order of insertion, and a hand that goes from old to new.
#[derive(Clone)]
pub(super) struct Sieve {
    queue: Queues,
    visited: Vec<bool>,
    /// Where the next search begins; at the oldest if `None`.
    hand: Option<u32>,
}

impl Sieve {
    pub(super) fn new(n_slots: u32) -> Result<Self> {
        let asked = format_args!("{n_slots} slots");
        let visited = try_filled("a cache's bits", false, n_slots as usize, asked)?;
        Ok(Sieve { queue: Queues::new(n_slots, 1)?, visited, hand: None })
    }
}

impl Replace for Sieve {
    #[inline]
    fn hit(&mut self, slot: u32) {
        self.visited[slot as usize] = true;
    }

    #[inline]
    fn evict(&mut self) -> Evicted {
        loop {
            let slot = self.hand.or_else(|| self.queue.oldest(0)).unwrap_or_default();
            self.hand = self.queue.newer(slot);
            if !std::mem::take(&mut self.visited[slot as usize]) {
                self.queue.remove(slot);
                return Evicted { slot, ghost: None };
            }
        }
    }

    #[inline]
    fn insert(&mut self, slot: u32, _returns: bool) {
        self.visited[slot as usize] = false;
        self.queue.push(0, slot);
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.hand = None;
    }
}
