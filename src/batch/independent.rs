//! A batch of its own for each processing element.

use std::ops::Range;
use std::sync::Arc;

use super::{Batch, BatchSource, Preparation};
use crate::coop::Group;
use crate::device::Device;
use crate::error::Result;
use crate::rng::{self, Purpose};
use crate::sample::SamplerConfig;

/// Each processing element (PE) makes a batch of its share of the seeds, by a source of its own.
#[derive(Clone, Debug)]
pub struct Independent<D: Device> {
    source: Arc<dyn BatchSource<D>>,
    group: Group<D>,
}

impl<D: Device> Independent<D> {
    /// This PE's source: `source` with neighbourhoods of its own, by `sampler`. Errors: as of the source.
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
            // The threads of the pool are shared with the other PEs, which wait for this one's steps.
            _ => Preparation::Collective,
        }
    }

    fn group(&self) -> Group<D> {
        self.group.clone()
    }
}

/// The sampler of PE `rank` in independent mode: two PEs that sample one vertex do so independently.
pub(crate) fn independent_sampler(sampler: &SamplerConfig, rank: usize) -> SamplerConfig {
    let seed = rng::derive(sampler.seed, Purpose::ProcessingElement.stream(0), rank as u64);
    SamplerConfig { seed, ..sampler.clone() }
}

/// Which of `n` seeds PE `rank` has: contiguous, of about equal lengths.
pub(crate) fn seeds_of(n: usize, rank: usize, n_pes: usize) -> Range<usize> {
    n * rank / n_pes..n * (rank + 1) / n_pes
}
