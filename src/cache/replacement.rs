//! What the directory needs from a policy.

use super::clock::Clock;
use super::lru::Lru;
use super::policy::Policy;
use super::s3_fifo::S3Fifo;
use super::sieve::Sieve;
use crate::error::Result;

/// A slot that was evicted.
pub(super) struct Evicted {
    pub(super) slot: u32,
    /// The ghost that now remembers the slot's id; the id that it remembered before is forgotten.
    pub(super) ghost: Option<u32>,
}

/// A policy over slots. The directory handles ids.
pub(super) trait Replace {
    /// `slot` was hit.
    fn hit(&mut self, slot: u32);
    /// Evicts a slot. Called only when all slots are used.
    fn evict(&mut self) -> Evicted;
    /// `slot` was filled; `returns`: with an id that a ghost remembered.
    fn insert(&mut self, slot: u32, returns: bool);
    /// The id that `ghost` remembers was accessed.
    fn recall(&mut self, _ghost: u32) {}
    /// Makes all slots unused, and forgets all ids.
    fn clear(&mut self);
}

/// The state of a policy.
#[derive(Clone)]
pub(super) enum Replacement {
    Lru(Lru),
    Clock(Clock),
    Sieve(Sieve),
    S3Fifo(S3Fifo),
}

impl Replacement {
    /// Errors: there is no memory for `n_slots` slots.
    pub(super) fn new(policy: Policy, n_slots: u32) -> Result<Self> {
        Ok(match policy {
            Policy::Lru => Replacement::Lru(Lru::new(n_slots)?),
            Policy::Clock => Replacement::Clock(Clock::new(n_slots)?),
            Policy::Sieve => Replacement::Sieve(Sieve::new(n_slots)?),
            Policy::S3Fifo => Replacement::S3Fifo(S3Fifo::new(n_slots)?),
        })
    }

    /// Number of ghosts: the nodes that follow the slots.
    pub(super) fn n_ghosts(&self) -> u32 {
        if let Replacement::S3Fifo(policy) = self { policy.n_ghosts() } else { 0 }
    }
}

macro_rules! dispatch {
    ($self:ident, $policy:ident => $body:expr) => {
        match $self {
            Replacement::Lru($policy) => $body,
            Replacement::Clock($policy) => $body,
            Replacement::Sieve($policy) => $body,
            Replacement::S3Fifo($policy) => $body,
        }
    };
}

impl Replace for Replacement {
    #[inline]
    fn hit(&mut self, slot: u32) {
        dispatch!(self, policy => policy.hit(slot));
    }
    #[inline]
    fn evict(&mut self) -> Evicted {
        dispatch!(self, policy => policy.evict())
    }
    #[inline]
    fn insert(&mut self, slot: u32, returns: bool) {
        dispatch!(self, policy => policy.insert(slot, returns));
    }
    #[inline]
    fn recall(&mut self, ghost: u32) {
        dispatch!(self, policy => policy.recall(ghost));
    }
    fn clear(&mut self) {
        dispatch!(self, policy => policy.clear());
    }
}
