//! The names of the replacement policies.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Which row is given up when the cache is full.
///
/// All take O(1) an access; for those whose hand or queues pass over rows, amortised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// The least recently used.
    #[default]
    Lru,
    /// Second chance (Corbató 1968): a hand goes round the slots, clears the reference bit of those that have it, and
    /// gives up the first that has not. Every access sets the bit, the one that loads the row too.
    Clock,
    /// SIEVE (Zhang et al., NSDI 2024): a queue in order of insertion; a hand goes from old to new, clears the bit of
    /// those hit since it last passed, and gives up the first that was not, leaving the others where they are.
    Sieve,
    /// S3-FIFO (Yang et al., SOSP 2023): new rows enter a small queue of a tenth of the capacity (rounded down, at
    /// least one); those hit twice or more by its end move to the main queue, others are given up and remembered in a
    /// ghost queue as long as the main queue's share; a row that returns while remembered enters the main queue at
    /// once. The main queue gives rows as many further rounds as they had hits, three at most.
    ///
    /// This is the simulator that the paper's results come from (`S3FIFOv0` in libCacheSim, with one object a byte):
    /// one row is given up a miss. The main queue may exceed its share after moves to it, and is then the next to give
    /// up rows; a row that returns leaves the ghosts before room is made for it.
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
