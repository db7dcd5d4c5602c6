//! A directory in parts, in which many ids are looked up at the same time.

use std::fmt;

use rayon::prelude::*;

use super::counts::Counts;
use super::directory::{Access, Directory};
use super::index::{NONE, hash};
use super::policy::Policy;
use crate::error::{Error, Result, try_capacity, try_filled};

/// Which rows a [`FeatureCache`](super::FeatureCache) holds: a [`Directory`] for each shard of the ids.
///
/// A hash of the id gives its shard, and each shard has an equal part of the slots and a replacement order of its own.
/// So threads look up a batch's ids in several shards at the same time, and find what a single thread would: shards
/// depend on the capacity alone. Their number is a power of two, at most 16, so that each has at least 1024 slots; a
/// small cache has one, and does what its [`Directory`] does.
pub struct ShardedDirectory {
    shards: Vec<Shard>,
    spread: Spread,
    policy: Policy,
    n_slots: usize,
    /// Ids are below this number.
    n_ids: usize,
    sorted: Sorted,
}

/// The most shards.
const MAX_SHARDS: usize = 16;
/// A shard has at least so many slots: with fewer, chance would fill one and leave another empty.
const MIN_SLOTS: usize = 1 << 10;

/// The number of shards of a cache of `n_slots` rows: a power of two.
fn n_shards(n_slots: usize) -> usize {
    1 << (n_slots / MIN_SLOTS).clamp(1, MAX_SHARDS).ilog2()
}

impl ShardedDirectory {
    /// An empty cache of `capacity` rows, or of as many as there are ids, for ids below `n_ids`.
    ///
    /// Errors: those of [`Directory::new`].
    pub(super) fn new(policy: Policy, capacity: usize, n_ids: usize) -> Result<Self> {
        Self::with_shards(policy, capacity, n_ids, n_shards(capacity.min(n_ids)))
    }

    /// The same with `n_shards` shards, a power of two.
    pub(super) fn with_shards(
        policy: Policy,
        capacity: usize,
        n_ids: usize,
        n_shards: usize,
    ) -> Result<Self> {
        if n_ids > NONE as usize {
            return Err(Error::TooLarge { what: "the graph", count: n_ids as u64, limit: NONE.into() });
        }
        let spread = Spread { bits: n_shards.ilog2() };
        let n_slots = capacity.min(n_ids);
        let mut shards: Vec<Shard> = Vec::with_capacity(n_shards);
        let mut first_slot = 0;
        for shard in 0..n_shards as u32 {
            let [ids, slots] = [n_ids, n_slots].map(|n| spread.part(n_ids, n, shard));
            let asked = format_args!("{n_slots} rows");
            shards.push(Shard {
                directory: Directory::new(policy, slots, Some(ids))?,
                first_slot,
                awaited: try_filled("a mark for each cached row", false, slots, asked)?,
                filled: try_capacity("a list of cached rows", slots, asked)?,
            });
            first_slot += slots as u32;
        }
        Ok(ShardedDirectory { shards, spread, policy, n_slots, n_ids, sorted: Sorted::default() })
    }

    /// `Ok` if all of `ids` are in range.
    pub(super) fn check(&self, ids: &[u32]) -> Result<()> {
        let n_ids = self.n_ids;
        let Some(position) = ids.iter().position(|&id| id as usize >= n_ids) else { return Ok(()) };
        Err(Error::IndexOutOfRange {
            array: "ids",
            position: position as u64,
            value: ids[position].into(),
            limit: n_ids as u64,
        })
    }

    /// Accesses all of `ids`, which are in range: each shard's one after the other, shards at the same time. Returns
    /// the counts of this call. `slots: [ids.len()]`, = the slot that holds the id's row by now, or [`NONE`] if the row
    /// has to be read.
    pub(super) fn access_all(&mut self, ids: &[u32], slots: &mut Vec<u32>) -> Counts {
        let before = self.counts();
        slots.clear();
        if let [shard] = &mut self.shards[..] {
            slots.extend(ids.iter().map(|&id| shard.access(id)));
            return self.counts() - before;
        }
        let ShardedDirectory { shards, spread, sorted, .. } = self;
        if rayon::current_num_threads() == 1 {
            // Each shard's ids come in the same order as if they were sorted.
            slots.extend(ids.iter().map(|&id| shards[spread.shard(id)].access(spread.local(id))));
            return self.counts() - before;
        }
        sorted.sort(ids, *spread, shards.len());
        let work = shards.par_iter_mut().zip(sorted.by_shard()).with_max_len(1);
        work.for_each(|(shard, segments)| {
            for (positions, found) in segments {
                for (&position, found) in positions.iter().zip(found) {
                    *found = shard.access(spread.local(ids[position as usize]));
                }
            }
        });
        sorted.unsort(slots);
        self.counts() - before
    }

    /// Calls `each` with the ids and slots that the last call of [`access_all`](Self::access_all) has filled, each slot
    /// once: the row of the id is to be stored there.
    pub(super) fn for_filled(&self, mut each: impl FnMut(u32, u32)) {
        for (number, shard) in (0..).zip(&self.shards) {
            for &slot in &shard.filled {
                let id = self.spread.id(number, shard.directory.ids()[slot as usize]);
                each(id, shard.first_slot + slot);
            }
        }
    }

    /// Takes note that all slots hold their ids' rows.
    pub(super) fn settle(&mut self) {
        for Shard { awaited, filled, .. } in &mut self.shards {
            for slot in filled.drain(..) {
                awaited[slot as usize] = false;
            }
        }
    }

    /// The ids that are in the cache, in the order of slots.
    pub fn ids(&self) -> impl Iterator<Item = u32> {
        let of_shard = |(number, shard): (u32, &Shard)| {
            let ids: Vec<u32> = shard.directory.ids().iter().map(|&id| self.spread.id(number, id)).collect();
            ids
        };
        (0..).zip(&self.shards).flat_map(of_shard)
    }

    /// Hits and misses since construction or [`FeatureCache::reset_counts`](super::FeatureCache::reset_counts).
    pub fn counts(&self) -> Counts {
        self.shards.iter().map(|shard| shard.directory.counts()).sum()
    }

    /// The shard of an id, and that shard's number of slots.
    #[cfg(test)]
    pub(super) fn shard_of(&self, id: u32) -> (usize, usize) {
        let shard = self.spread.shard(id);
        (shard, self.shards[shard].directory.n_slots())
    }

    /// The number of shards.
    pub fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// The policy.
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Number of slots, of all shards: the requested capacity, at most the number of vertices.
    pub fn n_slots(&self) -> usize {
        self.n_slots
    }

    /// Number of ids in the cache.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.directory.len()).sum()
    }

    /// Whether the cache holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn reset_counts(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.directory.reset_counts());
    }

    pub(super) fn clear(&mut self) {
        self.shards.iter_mut().for_each(|shard| shard.directory.clear());
    }
}

impl fmt::Debug for ShardedDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (used, counts) = (self.len(), self.counts());
        let ShardedDirectory { policy, n_slots, shards, .. } = self;
        write!(
            f,
            "ShardedDirectory({policy}, {used} of {n_slots} slots, {} shards, {counts:?})",
            shards.len()
        )
    }
}

/// Ids of which the hash has one value.
struct Shard {
    /// Of ids' names within the shard.
    directory: Directory,
    /// The first of its slots among those of all shards.
    first_slot: u32,
    /// Whether a slot does not hold its id's row yet.
    awaited: Vec<bool>,
    /// These slots, each once.
    filled: Vec<u32>,
}

impl Shard {
    /// Accesses the id with the name `local`. Returns the slot, among those of all shards, that holds its row by now;
    /// [`NONE`] if it has to be read.
    #[inline]
    fn access(&mut self, local: u32) -> u32 {
        match self.directory.access_in_range(local) {
            Access::Hit(slot) if !self.awaited[slot as usize] => return self.first_slot + slot,
            Access::Hit(_) => {}
            Access::Miss { slot, .. } => {
                if let Some(slot) = slot.filter(|&slot| !self.awaited[slot as usize]) {
                    self.awaited[slot as usize] = true;
                    self.filled.push(slot);
                }
            }
        }
        NONE
    }
}

/// Which ids are in which of `2^bits` shards, and their names there.
///
/// Of as many consecutive ids as there are shards, each shard has one: which one, the hash of their common upper bits
/// decides. These are also the name of the id within its shard. So names are as dense as ids are, the way back needs
/// nothing more, and all shards have as many ids, but for one.
#[derive(Clone, Copy)]
struct Spread {
    bits: u32,
}

impl Spread {
    fn mask(self) -> u32 {
        (1 << self.bits) - 1
    }

    #[inline]
    fn shard(self, id: u32) -> usize {
        ((id ^ hash(id >> self.bits) as u32) & self.mask()) as usize
    }

    #[inline]
    fn local(self, id: u32) -> u32 {
        id >> self.bits
    }

    /// The id of shard `shard` that has the name `local` there.
    #[inline]
    fn id(self, shard: u32, local: u32) -> u32 {
        local << self.bits | ((shard ^ hash(local) as u32) & self.mask())
    }

    /// The part of `shard` in `n` ids or slots, where ids are below `n_ids`: as many as in all other shards, or one
    /// more. Of `n = n_ids` these are the ids that are in it.
    fn part(self, n_ids: usize, n: usize, shard: u32) -> usize {
        let last = (n_ids >> self.bits) as u32;
        // Its place among the last ids, which are not as many as there are shards.
        let place = (shard ^ hash(last) as u32) & self.mask();
        (n >> self.bits) + usize::from((place as usize) < (n & self.mask() as usize))
    }
}

/// Ids that are sorted by shard together.
const CHUNK: usize = 1 << 13;

/// The positions of ids, in chunks, each sorted by shard; and what was found at these. Kept to reuse its memory.
#[derive(Default)]
struct Sorted {
    /// `[n_ids]`
    positions: Vec<u32>,
    /// Where each shard's positions end in each chunk.
    ends: Vec<[u32; MAX_SHARDS]>,
    n_shards: usize,
    /// `[n_ids]`, in the order of `positions`.
    found: Vec<u32>,
}

impl Sorted {
    fn sort(&mut self, ids: &[u32], spread: Spread, n_shards: usize) {
        self.n_shards = n_shards;
        // The old contents are overwritten.
        self.positions.resize(ids.len(), 0);
        self.found.resize(ids.len(), NONE);
        self.ends.resize(ids.len().div_ceil(CHUNK), [0; MAX_SHARDS]);
        let chunks = self.positions.par_chunks_mut(CHUNK).zip(&mut self.ends).zip(ids.par_chunks(CHUNK));
        chunks.enumerate().for_each(|(chunk, ((positions, ends), ids))| {
            let first = (chunk * CHUNK) as u32;
            let mut next = [0u32; MAX_SHARDS];
            for &id in ids {
                next[spread.shard(id)] += 1;
            }
            let mut end = 0;
            for (next, kept) in next.iter_mut().zip(&mut *ends) {
                let start = end;
                end += *next;
                (*next, *kept) = (start, end);
            }
            for (&id, position) in ids.iter().zip(first..) {
                let place = &mut next[spread.shard(id)];
                positions[*place as usize] = position;
                *place += 1;
            }
        });
    }

    /// For each shard its positions, ascending, and where to write what is found; in segments, one a chunk.
    fn by_shard(&mut self) -> Vec<Vec<(&[u32], &mut [u32])>> {
        let mut shards: Vec<Vec<_>> =
            (0..self.n_shards).map(|_| Vec::with_capacity(self.ends.len())).collect();
        let chunks = self.positions.chunks(CHUNK).zip(self.found.chunks_mut(CHUNK));
        for ((mut positions, mut found), ends) in chunks.zip(&self.ends) {
            let mut start = 0;
            for (shard, &end) in shards.iter_mut().zip(ends) {
                let (own, others) = positions.split_at((end - start) as usize);
                let (own_found, others_found) = found.split_at_mut((end - start) as usize);
                shard.push((own, own_found));
                (positions, found, start) = (others, others_found, end);
            }
        }
        shards
    }

    /// `out: [n_ids]`, = what was found, in the order of ids.
    fn unsort(&self, out: &mut Vec<u32>) {
        out.resize(self.positions.len(), NONE);
        let chunks = self.positions.par_chunks(CHUNK).zip(self.found.par_chunks(CHUNK));
        out.par_chunks_mut(CHUNK).zip(chunks).enumerate().for_each(|(chunk, (out, (positions, found)))| {
            for (&position, &found) in positions.iter().zip(found) {
                out[position as usize - chunk * CHUNK] = found;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_slots_are_spread_evenly_and_found_again() {
        for bits in 0..5 {
            let spread = Spread { bits };
            for n_ids in [0usize, 1, 5, 16, 17, 100, 4099] {
                let mut n = vec![0; 1 << bits];
                for id in 0..n_ids as u32 {
                    let shard = spread.shard(id);
                    assert_eq!(spread.id(shard as u32, spread.local(id)), id);
                    assert!((spread.local(id) as usize) < spread.part(n_ids, n_ids, shard as u32));
                    n[shard] += 1;
                }
                let part = |n| (0..1 << bits).map(move |shard| spread.part(n_ids, n, shard));
                assert!(part(n_ids).eq(n.iter().copied()), "{n_ids} ids");
                for n_slots in 0..=n_ids.min(200) {
                    assert_eq!(part(n_slots).sum::<usize>(), n_slots);
                    assert!(part(n_slots).zip(&n).all(|(slots, &ids)| slots <= ids));
                }
            }
        }
        let sizes = [0, 1, 2047, 2048, 4000, 16_383, 16_384, 1 << 30];
        assert_eq!(sizes.map(n_shards), [1, 1, 1, 2, 2, 8, 16, 16]);
    }
}
