//! S3-FIFO: J. Yang et al., *FIFO queues are all you need for cache eviction* (SOSP 2023).
//!
//! [`Policy::S3Fifo`](super::Policy::S3Fifo) documents which version this follows, and the constants.

use super::queues::Queues;
use super::replacement::{Evicted, Replace};
use crate::error::{Result, try_collect, try_filled};

const SMALL: u32 = 0;
const MAIN: u32 = 1;
const GHOST: u32 = 2;

/// The small queue gets one in this many slots.
const SMALL_SHARE: u32 = 10;
/// Hits are counted up to this many.
const MAX_FREQUENCY: u8 = 3;
/// Rows with this many hits move from the small queue to the main one.
const MOVE_FREQUENCY: u8 = 2;

/// The small and the main queue, of slots, and the queue of ghosts.
#[derive(Clone)]
pub(super) struct S3Fifo {
    queues: Queues,
    /// Hits of each slot since it was filled or moved, at most [`MAX_FREQUENCY`]; one less after each round of the main
    /// queue.
    frequency: Vec<u8>,
    n_small: u32,
    n_main: u32,
    /// Slots that the main queue should hold at most, and the number of ghosts.
    main_share: u32,
    /// Ghosts that remember no id.
    free_ghosts: Vec<u32>,
}

impl S3Fifo {
    pub(super) fn new(n_slots: u32) -> Result<Self> {
        let asked = format_args!("{n_slots} slots");
        let small_share = (n_slots / SMALL_SHARE).max(1);
        let main_share = n_slots.saturating_sub(small_share);
        Ok(S3Fifo {
            queues: Queues::new(n_slots + main_share, 3)?,
            frequency: try_filled("a cache's counters", 0, n_slots as usize, asked)?,
            n_small: 0,
            n_main: 0,
            main_share,
            free_ghosts: try_collect("a cache's ghosts", n_slots..n_slots + main_share, asked)?,
        })
    }

    pub(super) fn n_ghosts(&self) -> u32 {
        self.main_share
    }

    fn push_main(&mut self, slot: u32) {
        self.queues.push(MAIN, slot);
        self.n_main += 1;
    }

    /// Removes the oldest node of `queue`; `None` if it is empty.
    fn pop(&mut self, queue: u32) -> Option<u32> {
        let node = self.queues.oldest(queue)?;
        self.queues.remove(node);
        Some(node)
    }

    /// Evicts a slot of the small queue; `None` if all of them moved to the main queue.
    fn evict_small(&mut self) -> Option<Evicted> {
        while let Some(slot) = self.pop(SMALL) {
            self.n_small -= 1;
            if self.frequency[slot as usize] < MOVE_FREQUENCY {
                let ghost = self.free_ghosts.pop().or_else(|| self.pop(GHOST));
                if let Some(ghost) = ghost {
                    self.queues.push(GHOST, ghost);
                }
                return Some(Evicted { slot, ghost });
            }
            self.frequency[slot as usize] = 0;
            self.push_main(slot);
        }
        None
    }

    /// Evicts a slot of the main queue; `None` if it is empty.
    fn evict_main(&mut self) -> Option<Evicted> {
        while let Some(slot) = self.pop(MAIN) {
            let frequency = &mut self.frequency[slot as usize];
            if *frequency == 0 {
                self.n_main -= 1;
                return Some(Evicted { slot, ghost: None });
            }
            *frequency -= 1;
            self.queues.push(MAIN, slot);
        }
        None
    }
}

impl Replace for S3Fifo {
    #[inline]
    fn hit(&mut self, slot: u32) {
        let frequency = &mut self.frequency[slot as usize];
        *frequency = (*frequency + 1).min(MAX_FREQUENCY);
    }

    fn evict(&mut self) -> Evicted {
        // One of the queues has a slot: all slots are used.
        loop {
            let from_main = self.n_main > self.main_share || self.n_small == 0;
            let evicted = if from_main { self.evict_main() } else { self.evict_small() };
            if let Some(evicted) = evicted {
                return evicted;
            }
        }
    }

    fn insert(&mut self, slot: u32, returns: bool) {
        self.frequency[slot as usize] = 0;
        if returns {
            self.push_main(slot);
        } else {
            self.queues.push(SMALL, slot);
            self.n_small += 1;
        }
    }

    fn recall(&mut self, ghost: u32) {
        self.queues.remove(ghost);
        self.free_ghosts.push(ghost);
    }

    fn clear(&mut self) {
        self.queues.clear();
        (self.n_small, self.n_main) = (0, 0);
        let n_slots = self.frequency.len() as u32;
        self.free_ghosts.clear();
        self.free_ghosts.extend(n_slots..n_slots + self.main_share);
    }
}
