//! LRU: evicts the least recently used row.

use super::queues::Queues;
use super::replacement::{Evicted, Replace};
use crate::error::Result;

/// Slots in order of last use.
#[derive(Clone)]
pub(super) struct Lru {
    queue: Queues,
}

impl Lru {
    pub(super) fn new(n_slots: u32) -> Result<Self> {
        Ok(Lru { queue: Queues::new(n_slots, 1)? })
    }
}

impl Replace for Lru {
    #[inline]
    fn hit(&mut self, slot: u32) {
        self.queue.remove(slot);
        self.queue.push(0, slot);
    }

    #[inline]
    fn evict(&mut self) -> Evicted {
        let slot = self.queue.oldest(0).unwrap_or_default();
        self.queue.remove(slot);
        Evicted { slot, ghost: None }
    }

    #[inline]
    fn insert(&mut self, slot: u32, _returns: bool) {
        self.queue.push(0, slot);
    }

    fn clear(&mut self) {
        self.queue.clear();
    }
}
