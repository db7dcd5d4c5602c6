//! From global ids to positions in a block, in order of first occurrence.

use super::prefetch::prefetch;
use crate::error::{Result, try_zeroed};
use crate::huge_pages;

/// Graphs of up to this many vertices are relabelled by a table with one entry per vertex (at most 1 GiB per workspace,
/// of which only touched huge pages exist); larger ones by a hash table whose size is proportional to the block's.
pub(super) const MAX_STAMPED_VERTICES: usize = 1 << 28;

/// Positions of the ids of one block.
pub(super) trait Relabel {
    /// Prefetches the memory that `position(id, _)` will touch.
    fn prefetch(&self, id: u32);

    /// The position of `id`, which must be that of a vertex; an id not seen yet gets the position `next`.
    fn position(&mut self, id: u32, next: u32) -> u32;
}

/// An entry for every vertex: `base + position`, where `base` exceeds all entries of earlier blocks, so that nothing
/// need be cleared between blocks.
#[derive(Default)]
pub(super) struct Stamped {
    entries: Vec<u32>,
    base: u32,
}

impl Stamped {
    /// Forgets all ids, and makes room for those below `n_vertices`. `used`: an upper bound of the positions given
    /// since the last call.
    ///
    /// Errors: there is no memory for an entry per vertex.
    pub(super) fn begin(&mut self, n_vertices: usize, used: usize) -> Result<()> {
        if self.entries.len() < n_vertices {
            let asked = format_args!("the graph has {n_vertices} vertices");
            self.entries = try_zeroed("a table of the vertices in a batch", n_vertices, asked)?;
            huge_pages::prefer(&self.entries);
            self.base = 1;
            return Ok(());
        }
        let next = self.base as u64 + used as u64;
        if next + n_vertices as u64 > u64::from(u32::MAX) {
            self.entries.fill(0);
            self.base = 1;
        } else {
            self.base = next as u32;
        }
        Ok(())
    }
}

impl Relabel for Stamped {
    #[inline(always)]
    fn prefetch(&self, id: u32) {
        prefetch(&self.entries, id as usize);
    }

    /// Does not branch on whether the id is new: no predictor could guess it.
    #[inline(always)]
    fn position(&mut self, id: u32, next: u32) -> u32 {
        let entry = &mut self.entries[id as usize];
        let position = if *entry >= self.base { *entry - self.base } else { next };
        *entry = self.base + position;
        position
    }
}

/// Open addressing with linear probing. A slot is `id << 32 | position + 1`; 0 is empty.
#[derive(Default)]
pub(super) struct Hashed {
    /// A power of two of slots in use, at most half of them filled.
    slots: Vec<u64>,
    filled: usize,
    /// What `slots` becomes when it has to grow.
    spare: Vec<u64>,
}

const MIN_SLOTS: usize = 1024;

impl Hashed {
    /// Forgets all ids, and makes room for about `expected`.
    pub(super) fn begin(&mut self, expected: usize) {
        self.slots.clear();
        self.slots.resize((expected * 2).next_power_of_two().max(MIN_SLOTS), 0);
        self.filled = 0;
    }

    /// Where the search for `id` begins (Fibonacci hashing: the high bits of the product).
    #[inline(always)]
    fn home(id: u32, n_slots: usize) -> usize {
        (u64::from(id).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - n_slots.trailing_zeros())) as usize
    }

    /// The slot that holds `id`, or the empty one where it belongs.
    #[inline(always)]
    fn find(slots: &[u64], id: u32) -> usize {
        let mut slot = Self::home(id, slots.len());
        while slots[slot] != 0 && (slots[slot] >> 32) as u32 != id {
            slot = (slot + 1) & (slots.len() - 1);
        }
        slot
    }

    fn grow(&mut self) {
        self.spare.clear();
        self.spare.resize(self.slots.len() * 2, 0);
        for &entry in self.slots.iter().filter(|&&entry| entry != 0) {
            let slot = Self::find(&self.spare, (entry >> 32) as u32);
            self.spare[slot] = entry;
        }
        std::mem::swap(&mut self.slots, &mut self.spare);
    }
}

impl Relabel for Hashed {
    #[inline(always)]
    fn prefetch(&self, id: u32) {
        prefetch(&self.slots, Self::home(id, self.slots.len()));
    }

    #[inline(always)]
    fn position(&mut self, id: u32, next: u32) -> u32 {
        let slot = Self::find(&self.slots, id);
        if self.slots[slot] != 0 {
            return self.slots[slot] as u32 - 1;
        }
        self.slots[slot] = u64::from(id) << 32 | (u64::from(next) + 1);
        self.filled += 1;
        if self.filled * 2 > self.slots.len() {
            self.grow();
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::bounded;

    /// Positions of `ids` by the definition.
    fn naive(ids: &[u32]) -> Vec<u32> {
        let mut seen = Vec::new();
        let mut position = |id| {
            seen.iter().position(|&other| other == id).unwrap_or_else(|| {
                seen.push(id);
                seen.len() - 1
            }) as u32
        };
        ids.iter().map(|&id| position(id)).collect()
    }

    fn positions(table: &mut impl Relabel, ids: &[u32]) -> (Vec<u32>, usize) {
        let mut next = 0;
        let positions = ids.iter().map(|&id| {
            table.prefetch(id);
            let position = table.position(id, next);
            next += u32::from(position == next);
            position
        });
        (positions.collect(), next as usize)
    }

    fn batch(number: u64, n_vertices: u64) -> Vec<u32> {
        (0..3000).map(|i| bounded(number, 0, i, n_vertices) as u32).collect()
    }

    #[test]
    fn both_tables_number_by_first_occurrence() {
        let (mut stamped, mut hashed) = (Stamped::default(), Hashed::default());
        let mut used = 0;
        for (number, n_vertices) in [(0, 50), (1, 2000), (2, 2000), (3, 40), (4, 5000)] {
            let ids = batch(number, n_vertices);
            stamped.begin(n_vertices as usize, used).unwrap();
            hashed.begin(1);
            let expected = naive(&ids);
            let (found, n) = positions(&mut stamped, &ids);
            assert_eq!(found, expected);
            assert_eq!(positions(&mut hashed, &ids).0, expected);
            used = n;
        }
    }

    #[test]
    fn stamps_start_again_before_they_overflow() {
        let mut stamped = Stamped::default();
        stamped.begin(2000, 0).unwrap();
        stamped.base = u32::MAX - 4500;
        let mut used = 0;
        for number in 0..6 {
            stamped.begin(2000, used).unwrap();
            let ids = batch(number, 2000);
            let (found, n) = positions(&mut stamped, &ids);
            assert_eq!(found, naive(&ids));
            used = n;
        }
        assert!(stamped.base < 10_000, "{}", stamped.base);
    }

    #[test]
    fn the_largest_ids_and_colliding_ones_are_kept_apart() {
        let mut hashed = Hashed::default();
        hashed.begin(0);
        let ids = [u32::MAX - 1, 0, u32::MAX - 1, 1, 0, u32::MAX / 2];
        assert_eq!(positions(&mut hashed, &ids).0, [0, 1, 0, 2, 1, 3]);
    }
}
