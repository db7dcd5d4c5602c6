//! A processing element's cache of feature rows, for minibatch training.
//!
//! A [`Directory`] decides by a [`Policy`] which vertices' rows are kept, and counts hits and misses exactly. It holds
//! no data, so a study that only counts can use it alone. A [`FeatureCache`] has rows, in their stored type, and a
//! directory in shards ([`ShardedDirectory`]), which threads ask at the same time; an [`AnyFeatureCache`] is one over
//! [`Features`](crate::data::Features) of any dense type. Cooperative minibatching (Balın et al., TMLR 2025) counts
//! capacity in rows and replaces the least recently used.
//!
//! ```
//! use cohop::cache::{Access, Counts, Directory, Policy};
//! let mut directory = Directory::new(Policy::Lru, 2, None)?;
//! assert_eq!(directory.access(7)?, Access::Miss { slot: Some(0), evicted: None });
//! assert_eq!(directory.access(8)?, Access::Miss { slot: Some(1), evicted: None });
//! assert_eq!(directory.access(7)?, Access::Hit(0));
//! assert_eq!(directory.access(9)?, Access::Miss { slot: Some(1), evicted: Some(8) });
//! assert_eq!(directory.counts(), Counts { hits: 1, misses: 3 });
//! # Ok::<(), cohop::Error>(())
//! ```

mod any;
mod clock;
mod counts;
mod directory;
mod feature_cache;
mod index;
mod lru;
mod policy;
mod queues;
mod replacement;
mod s3_fifo;
mod sharded;
mod sieve;
#[cfg(test)]
mod tests;

pub use any::AnyFeatureCache;
pub use counts::Counts;
pub use directory::{Access, Directory};
pub use feature_cache::FeatureCache;
pub use policy::Policy;
pub use sharded::ShardedDirectory;
