//! A separate batch for each processing element.

use std::ops::Range;
use std::sync::Arc;

use super::{Batch, BatchSource, Preparation};
use crate::coop::Group;
use crate::device::Device;
use crate::error::Result;
use crate::rng::{self, Purpose};
use crate::sample::SamplerConfig;

/// Each processing element (PE) makes a batch of its share of the seeds, with its own source.
#[derive(Clone, Debug)]
pub struct Independent<D: Device> {
    source: Arc<dyn BatchSource<D>>,
    group: Group<D>,
}

impl<D: Device> Independent<D> {
    /// This PE's source: `source` with `sampler` under a seed of this PE.
    ///
    /// Errors: those of [`BatchSource::with_sampler`].
    pub fn new(source: &dyn BatchSource<D>, sampler: SamplerConfig, group: Group<D>) -> Result<Self> {
        let source = source.with_sampler(independent_sampler(&sampler, group.rank()))?;
        Ok(Independent { source, group })
    }
}

impl<D: Device> BatchSource<D> for Independent<D> {
    fn batch(&self, device: &D, seeds: &[u32], number: u64) -> Result<Batch<D>> {
        let share = seeds_of(seeds.len(), self.group.rank(), self.group.size());
        self.source.batch(device, &seeds[share], number)
    }

    fn with_sampler(&self, sampler: SamplerConfig) -> Result<Arc<dyn BatchSource<D>>> {
        Ok(Arc::new(Independent::new(&*self.source, sampler, self.group.clone())?))
    }

    fn preparation(&self) -> Preparation {
        match self.source.preparation() {
            Preparation::OnDemand => Preparation::OnDemand,
            // Not on the pool: PEs share its threads, and wait for each other's steps.
            _ => Preparation::Collective,
        }
    }

    fn group(&self) -> Group<D> {
        self.group.clone()
    }
}

/// The sampler of PE `rank` in independent mode: PEs that sample the same vertex do so independently.
pub(crate) fn independent_sampler(sampler: &SamplerConfig, rank: usize) -> SamplerConfig {
    let seed = rng::derive(sampler.seed, Purpose::ProcessingElement.stream(0), rank as u64);
    SamplerConfig { seed, ..sampler.clone() }
}

/// PE `rank`'s range of `n` seeds; all ranges have about the same length.
pub(crate) fn seeds_of(n: usize, rank: usize, n_pes: usize) -> Range<usize> {
    n * rank / n_pes..n * (rank + 1) / n_pes
}
