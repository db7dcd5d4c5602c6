//! A map from ids to nodes: slots and ghosts.

use crate::error::{Result, try_filled};

/// No id, and no node.
pub(super) const NONE: u32 = u32::MAX;

/// A map from ids (not [`NONE`]) to nodes. It never allocates after it is made.
#[derive(Clone)]
pub(super) enum Index {
    /// The node of each id, or [`NONE`].
    Array(Vec<u32>),
    /// For ranges of ids that are too long for an array.
    Table(Table),
}

/// The most ids that get an array: 1 GiB.
const MAX_ARRAY: usize = 1 << 28;

impl Index {
    /// An empty map for ids below `limit`, at most `n_nodes` of them at once.
    ///
    /// Errors: there is no memory for it.
    pub(super) fn new(limit: usize, n_nodes: usize) -> Result<Self> {
        if limit > MAX_ARRAY {
            return Ok(Index::Table(Table::new(n_nodes)?));
        }
        let asked = format_args!("ids are below {limit}");
        Ok(Index::Array(try_filled("a cache's index", NONE, limit, asked)?))
    }

    #[inline]
    pub(super) fn get(&self, id: u32) -> Option<u32> {
        let node = match self {
            Index::Array(nodes) => nodes[id as usize],
            Index::Table(table) => table.get(id),
        };
        (node != NONE).then_some(node)
    }

    #[inline]
    pub(super) fn set(&mut self, id: u32, node: u32) {
        match self {
            Index::Array(nodes) => nodes[id as usize] = node,
            Index::Table(table) => table.set(id, node),
        }
    }

    /// Removes `id`, if it is in the map.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        match self {
            Index::Array(nodes) => nodes[id as usize] = NONE,
            Index::Table(table) => table.remove(id),
        }
    }
}

/// A hash table with linear probing, at most half full.
#[derive(Clone)]
pub(super) struct Table {
    /// Their number is a power of two.
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    id: u32,
    node: u32,
}

const EMPTY: Entry = Entry { id: NONE, node: NONE };

/// The finaliser of MurmurHash3: ids of a graph often come in runs and strides.
#[inline]
pub(super) fn hash(id: u32) -> usize {
    let mut h = id;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)) as usize
}

impl Table {
    fn new(n_nodes: usize) -> Result<Self> {
        let (places, asked) = ((2 * n_nodes).next_power_of_two(), format_args!("{n_nodes} slots"));
        Ok(Table { entries: try_filled("a cache's index", EMPTY, places, asked)? })
    }

    fn mask(&self) -> usize {
        self.entries.len() - 1
    }

    /// Where `id` is, or the empty place where it would be.
    #[inline]
    fn place(&self, id: u32) -> usize {
        let mut place = hash(id) & self.mask();
        while self.entries[place].id != id && self.entries[place].id != NONE {
            place = (place + 1) & self.mask();
        }
        place
    }

    #[inline]
    fn get(&self, id: u32) -> u32 {
        self.entries[self.place(id)].node
    }

    #[inline]
    fn set(&mut self, id: u32, node: u32) {
        let place = self.place(id);
        self.entries[place] = Entry { id, node };
    }

    /// Moves later entries up instead of leaving a deletion mark, so that the table never fills with marks.
    #[inline]
    fn remove(&mut self, id: u32) {
        let mask = self.mask();
        let mut hole = self.place(id);
        let mut next = hole;
        loop {
            next = (next + 1) & mask;
            let entry = self.entries[next];
            if entry.id == NONE {
                break;
            }
            let home = hash(entry.id) & mask;
            // An entry may stand anywhere after its home, without a gap between.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                self.entries[hole] = entry;
                hole = next;
            }
        }
        self.entries[hole] = EMPTY;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(2), ..ProptestConfig::default() })]

        /// Few places for many ids: long runs that wrap around.
        #[test]
        fn the_table_is_a_map(
            n_nodes in 0..9usize,
            operations in proptest::collection::vec((0..40u32, any::<bool>()), 0..300),
        ) {
            let (mut index, mut map) = (Index::Table(Table::new(n_nodes).unwrap()), HashMap::new());
            for (step, (id, set)) in operations.into_iter().enumerate() {
                if !set {
                    index.remove(id);
                    map.remove(&id);
                } else if map.len() < n_nodes || map.contains_key(&id) {
                    index.set(id, step as u32);
                    map.insert(id, step as u32);
                }
                for id in 0..40 {
                    prop_assert_eq!(index.get(id), map.get(&id).copied());
                }
            }
        }
    }
}
