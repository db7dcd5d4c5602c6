//! A cache of features of any dense type.

use half::{bf16, f16};

use super::counts::Counts;
use super::feature_cache::FeatureCache;
use super::policy::Policy;
use super::sharded::ShardedDirectory;
use crate::data::Features;
use crate::device::{Cpu, Scalar};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// A [`FeatureCache`] of dense [`Features`] of any type.
#[derive(Debug)]
pub enum AnyFeatureCache {
    /// Of `f32`.
    F32(FeatureCache<f32>),
    /// Of `f16`.
    F16(FeatureCache<f16>),
    /// Of `bf16`.
    Bf16(FeatureCache<bf16>),
}

macro_rules! dispatch {
    ($self:ident, $cache:ident => $body:expr) => {
        match $self {
            AnyFeatureCache::F32($cache) => $body,
            AnyFeatureCache::F16($cache) => $body,
            AnyFeatureCache::Bf16($cache) => $body,
        }
    };
}

impl AnyFeatureCache {
    /// An empty cache of `capacity` rows of `features`, whose memory it shares.
    ///
    /// Errors: those of [`FeatureCache::new`]; the features are sparse, or there are none.
    pub fn new(policy: Policy, capacity: usize, features: &Features) -> Result<Self> {
        let refused = |value| Error::invalid("features to cache", value, "dense features: f32, f16 or bf16");
        Ok(match features {
            Features::F32(table) => AnyFeatureCache::F32(FeatureCache::new(policy, capacity, table.clone())?),
            Features::F16(table) => AnyFeatureCache::F16(FeatureCache::new(policy, capacity, table.clone())?),
            Features::Bf16(table) => {
                AnyFeatureCache::Bf16(FeatureCache::new(policy, capacity, table.clone())?)
            }
            Features::Sparse(_) => return Err(refused("sparse")),
            Features::None => return Err(refused("none")),
        })
    }

    /// `[ids.len(), dim]`: the rows of `ids`, widened, and the counts of this call; see [`FeatureCache::gather`].
    ///
    /// Errors: an id is not a row of the features, there are more than 2^32 - 1 ids, or memory is short.
    pub fn gather<S: Scalar>(&mut self, device: &Cpu<S>, ids: &[u32]) -> Result<(Tensor<Cpu<S>>, Counts)> {
        let dim = dispatch!(self, cache => cache.table().dim());
        let mut rows = Tensor::allocate(device, ids.len(), dim)?;
        let out = rows.make_mut(device)?;
        let counts = dispatch!(self, cache => cache.gather(ids, out))?;
        Ok((rows, counts))
    }

    /// What is cached, and the counts of all calls.
    pub fn directory(&self) -> &ShardedDirectory {
        dispatch!(self, cache => cache.directory())
    }

    /// Sets the counts to 0; cached rows stay.
    pub fn reset_counts(&mut self) {
        dispatch!(self, cache => cache.reset_counts());
    }

    /// Empties the cache; the counts stay.
    pub fn clear(&mut self) {
        dispatch!(self, cache => cache.clear());
    }
}
