//! Which vertices a cache holds.

use std::fmt;

use super::counts::Counts;
use super::index::{Index, NONE};
use super::policy::Policy;
use super::replacement::{Evicted, Replace, Replacement};
use crate::error::{Error, Result, try_filled};

/// The outcome of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The id is in this slot.
    Hit(u32),
    /// The id was in no slot.
    Miss {
        /// The slot that it is in from now on; `None` if the cache has no slots.
        slot: Option<u32>,
        /// The id that was in the slot before.
        evicted: Option<u32>,
    },
}

/// The most slots: nodes and their hash table stay in 32 bits.
const MAX_SLOTS: usize = 1 << 30;

/// A replacement policy over slots that hold vertex ids, without data. Counts hits and misses.
///
/// Every access takes O(1) (amortised, as [`Policy`] says), and nothing is allocated after construction. Memory is 12
/// bytes per slot (CLOCK: 5, SIEVE: 13, S3-FIFO: 28) and 4 per vertex; if the number of vertices is unknown or above
/// 2^28, 16 to 32 per slot (S3-FIFO: 30 to 61) instead of the 4 per vertex.
#[derive(Clone)]
pub struct Directory {
    policy: Policy,
    replacement: Replacement,
    index: Index,
    /// `[n_slots + n_ghosts]`: the id in each slot, then the ids that ghosts remember; [`NONE`] where there is none.
    ids: Vec<u32>,
    n_slots: u32,
    /// The first `n_used` slots hold an id.
    n_used: u32,
    /// Ids are below this number.
    n_ids: usize,
    counts: Counts,
}

impl Directory {
    /// An empty cache of `capacity` rows, for ids below `n_vertices` (below 2^32 - 1 if that is `None`).
    ///
    /// With 0 rows every access misses and nothing is kept. There are no more slots than vertices.
    ///
    /// Errors: more than 2^30 slots, more than 2^32 - 1 vertices, or no memory.
    pub fn new(policy: Policy, capacity: usize, n_vertices: Option<usize>) -> Result<Self> {
        let n_ids = n_vertices.unwrap_or(NONE as usize);
        if n_ids > NONE as usize {
            return Err(Error::TooLarge { what: "the graph", count: n_ids as u64, limit: NONE.into() });
        }
        let n_slots = capacity.min(n_ids);
        if n_slots > MAX_SLOTS {
            return Err(Error::TooLarge {
                what: "the feature cache",
                count: n_slots as u64,
                limit: MAX_SLOTS as u64,
            });
        }
        let replacement = Replacement::new(policy, n_slots as u32)?;
        let n_nodes = n_slots + replacement.n_ghosts() as usize;
        Ok(Directory {
            policy,
            replacement,
            index: Index::new(n_ids, n_nodes)?,
            ids: try_filled("a cache's ids", NONE, n_nodes, format_args!("{n_slots} slots"))?,
            n_slots: n_slots as u32,
            n_used: 0,
            n_ids,
            counts: Counts::default(),
        })
    }

    /// Looks up `id`; on a miss, puts it into a slot.
    ///
    /// Errors: `id` is not below the number of vertices; this counts neither as a hit nor as a miss.
    #[inline]
    pub fn access(&mut self, id: u32) -> Result<Access> {
        if id as usize >= self.n_ids {
            return Err(self.out_of_range(0, id));
        }
        Ok(self.access_in_range(id))
    }

    /// Accesses all of `ids`, one after the other; returns the counts of this call.
    ///
    /// Errors: an id is not below the number of vertices; nothing has changed then.
    pub fn access_all(&mut self, ids: &[u32]) -> Result<Counts> {
        self.check(ids)?;
        let before = self.counts;
        for &id in ids {
            self.access_in_range(id);
        }
        Ok(self.counts - before)
    }

    #[cold]
    fn out_of_range(&self, position: usize, id: u32) -> Error {
        Error::IndexOutOfRange {
            array: "ids",
            position: position as u64,
            value: id.into(),
            limit: self.n_ids as u64,
        }
    }

    /// `Ok` if all of `ids` are in range.
    pub(super) fn check(&self, ids: &[u32]) -> Result<()> {
        match ids.iter().position(|&id| id as usize >= self.n_ids) {
            None => Ok(()),
            Some(position) => Err(self.out_of_range(position, ids[position])),
        }
    }

    #[inline]
    pub(super) fn access_in_range(&mut self, id: u32) -> Access {
        let node = self.index.get(id);
        if let Some(slot) = node.filter(|&node| node < self.n_slots) {
            self.counts.hits += 1;
            self.replacement.hit(slot);
            return Access::Hit(slot);
        }
        self.counts.misses += 1;
        self.load(id, node)
    }

    /// Puts `id`, which `ghost` may remember, into a slot.
    fn load(&mut self, id: u32, ghost: Option<u32>) -> Access {
        if self.n_slots == 0 {
            return Access::Miss { slot: None, evicted: None };
        }
        if let Some(ghost) = ghost {
            self.replacement.recall(ghost);
            self.ids[ghost as usize] = NONE;
        }
        let (slot, evicted) = if self.n_used < self.n_slots {
            self.n_used += 1;
            (self.n_used - 1, None)
        } else {
            let (slot, evicted) = self.evict();
            (slot, Some(evicted))
        };
        self.ids[slot as usize] = id;
        self.index.set(id, slot);
        self.replacement.insert(slot, ghost.is_some());
        Access::Miss { slot: Some(slot), evicted }
    }

    /// Frees a slot; a ghost may remember its id. Returns the slot and the id.
    fn evict(&mut self) -> (u32, u32) {
        let Evicted { slot, ghost } = self.replacement.evict();
        let id = self.ids[slot as usize];
        match ghost {
            None => self.index.remove(id),
            Some(ghost) => {
                let forgotten = std::mem::replace(&mut self.ids[ghost as usize], id);
                if forgotten != NONE {
                    self.index.remove(forgotten);
                }
                self.index.set(id, ghost);
            }
        }
        (slot, id)
    }

    /// The slot that `id` is in. Does not count as an access.
    pub fn slot(&self, id: u32) -> Option<u32> {
        if id as usize >= self.n_ids {
            return None;
        }
        self.index.get(id).filter(|&node| node < self.n_slots)
    }

    /// `[len]`: the id in each slot that holds one.
    pub fn ids(&self) -> &[u32] {
        &self.ids[..self.n_used as usize]
    }

    /// Hits and misses since construction or [`reset_counts`](Directory::reset_counts).
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Sets the counts to 0; cached ids stay.
    pub fn reset_counts(&mut self) {
        self.counts = Counts::default();
    }

    /// Empties the cache, as if it were new; the counts stay. O(slots).
    pub fn clear(&mut self) {
        for id in self.ids.iter_mut().filter(|id| **id != NONE) {
            self.index.remove(*id);
            *id = NONE;
        }
        self.n_used = 0;
        self.replacement.clear();
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Number of slots: the requested capacity, at most the number of vertices.
    pub fn n_slots(&self) -> usize {
        self.n_slots as usize
    }

    /// Number of ids in the cache.
    pub fn len(&self) -> usize {
        self.n_used as usize
    }

    /// Whether the cache holds nothing.
    pub fn is_empty(&self) -> bool {
        self.n_used == 0
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Directory({}, {} of {} slots, {:?})", self.policy, self.n_used, self.n_slots, self.counts)
    }
}
