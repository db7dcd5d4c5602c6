//! The names of the replacement policies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which row is evicted when the cache is full.
///
/// All take O(1) per access; amortised for those whose hand or queues pass over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The least recently used.
    #[default]
    Lru,
    /// Second chance (Corbató 1968): a hand goes round the slots, clears the reference bits that are set, and evicts
    /// the first row whose bit is clear. Every access sets the bit, also the one that loads the row.
    Clock,
    /// SIEVE (Zhang et al., NSDI 2024): a queue in order of insertion; a hand goes from old to new, clears the bit of
    /// rows that were hit since it last passed, and evicts the first that was not, without moving the others.
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023): new rows enter a small queue of a tenth of the capacity (rounded down, at
    /// least one); rows that were hit at least twice when they reach its end move to the main queue, others are evicted
    /// and remembered in a ghost queue, which is as long as the main queue's share; a row that returns while remembered
    /// enters the main queue at once. The main queue gives each row as many more rounds as it had hits, at most three.
    ///
    /// This follows the simulator that the paper's results come from (`S3FIFOv0` in libCacheSim, with objects of one
    /// byte): each miss evicts one row. The main queue may exceed its share after moves to it, and is then the next to
    /// evict rows; a row that returns leaves the ghosts before room is made for it.
    S3Fifo,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] = [Policy::Lru, Policy::Clock, Policy::Sieve, Policy::S3Fifo];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Policy::Lru => "lru",
            Policy::Clock => "clock",
            Policy::Sieve => "sieve",
            Policy::S3Fifo => "s3-fifo",
        })
    }
}

impl FromStr for Policy {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Policy::ALL
            .into_iter()
            .find(|policy| policy.to_string() == name)
            .ok_or_else(|| Error::invalid("cache policy", name, "lru, clock, sieve or s3-fifo"))
    }
}
