//! CLOCK, or second chance: F. J. Corbató, *A paging experiment with the Multics system* (1968).
//!
//! The reference bit works as in paging hardware: every access sets it, also the one that loads the row. (The FIFO with
//! reinsertion that later papers call CLOCK loads rows with a clear bit.)

use super::replacement::{Evicted, Replace};
use crate::error::{Result, try_filled};

/// The slots in a ring. From the hand on, they are in order of insertion.
#[derive(Clone)]
pub(super) struct Clock {
    referenced: Vec<bool>,
    hand: u32,
}

impl Clock {
    pub(super) fn new(n_slots: u32) -> Result<Self> {
        let asked = format_args!("{n_slots} slots");
        Ok(Clock { referenced: try_filled("a cache's bits", false, n_slots as usize, asked)?, hand: 0 })
    }

    /// The slot under the hand, which moves on.
    #[inline]
    fn advance(&mut self) -> u32 {
        let slot = self.hand;
        self.hand = if slot as usize + 1 == self.referenced.len() { 0 } else { slot + 1 };
        slot
    }
}

impl Replace for Clock {
    #[inline]
    fn hit(&mut self, slot: u32) {
        self.referenced[slot as usize] = true;
    }

    #[inline]
    fn evict(&mut self) -> Evicted {
        loop {
            let slot = self.advance();
            if !std::mem::take(&mut self.referenced[slot as usize]) {
                return Evicted { slot, ghost: None };
            }
        }
    }

    #[inline]
    fn insert(&mut self, slot: u32, _returns: bool) {
        self.referenced[slot as usize] = true;
    }

    fn clear(&mut self) {
        // Bits are set when slots are filled.
        self.hand = 0;
    }
}
