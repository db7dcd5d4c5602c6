//! Batches of a source, prepared ahead of the computation.

use std::sync::Arc;

use super::pipeline::{Pipeline, Rest, ended_in_order, prepared_ahead, queue_depth};
use crate::batch::{Batch, BatchSource, Preparation};
use crate::coop::Group;
use crate::device::Device;
use crate::error::Result;

/// An iterator over batches that are prepared ahead, by as many workers as the source allows.
///
/// ```
/// use std::sync::Arc;
/// use cohop::{batch::{BatchNeeds, HostSampling, Slicer}, data, device::Cpu, sample::{Batches, SamplerConfig}};
/// use cohop::train::Loader;
/// # fn main() -> cohop::Result<()> {
/// let cpu = Cpu::<f32>::new();
/// let dataset = Arc::new(data::load("sbm")?);
/// let slicer = Slicer::new(cpu.clone(), dataset.clone(), BatchNeeds::default());
/// let source = Arc::new(HostSampling::new(slicer, SamplerConfig::default())?);
/// let epoch = Batches::new(dataset.train_idx.clone(), 1024, 0)?.epoch(0);
/// let batches = epoch.iter().map(|(number, seeds)| (number, seeds.to_vec())).collect();
/// let mut n_edges = 0;
/// for batch in Loader::new(&cpu, source, 2, batches)? {
///     n_edges += batch?.blocks.iter().map(|block| block.n_edge()).sum::<usize>();
/// }
/// assert!(n_edges > 0);
/// # Ok(())
/// # }
/// ```
pub struct Loader<D: Device> {
    device: D,
    batches: Pipeline<Prepared<D>>,
}

/// A batch, and an event after its copy to the device if another queue than the computation's copies it.
type Prepared<D> = (Batch<D>, Option<<D as crate::device::Storage>::Event>);

impl<D: Device> Loader<D> {
    /// The batches of `source` with these numbers and seeds, in this order, for computations on `device`. Up to
    /// `workers` workers prepare them ahead (0: each batch is made when it is needed).
    ///
    /// Errors: the system refuses to start threads, or the device fails.
    pub fn new(
        device: &D,
        source: Arc<dyn BatchSource<D>>,
        workers: usize,
        batches: Vec<(u64, Vec<u32>)>,
    ) -> Result<Self> {
        let n = batches.len();
        let preparation = source.preparation();
        let on_demand = preparation == Preparation::OnDemand;
        // Workers also start the copies to the device, while it computes.
        let uploads = if on_demand { device.clone() } else { device.beside()? };
        if preparation == Preparation::InOrder {
            let batches = in_order(uploads, source, workers, batches)?;
            return Ok(Loader { device: device.clone(), batches });
        }
        let work = move |i: usize| {
            let (number, seeds) = &batches[i];
            let batch = source.batch(&uploads, seeds, *number)?;
            let ready = if on_demand { None } else { Some(uploads.record()?) };
            Ok((batch, ready))
        };
        let batches = match preparation {
            Preparation::Collective => Pipeline::new(workers.min(1), queue_depth(workers.min(1)), n, work)?,
            Preparation::OnDemand => Pipeline::new(0, 1, n, work)?,
            _ => prepared_ahead::<D, _>(workers, n, work)?,
        };
        Ok(Loader { device: device.clone(), batches })
    }
}

/// Batches that any number of workers begin at the same time, but end in their order.
fn in_order<D: Device>(
    uploads: D,
    source: Arc<dyn BatchSource<D>>,
    workers: usize,
    batches: Vec<(u64, Vec<u32>)>,
) -> Result<Pipeline<Prepared<D>>> {
    let (n, given) = (batches.len(), Arc::new((source, uploads, batches)));
    let begin = move |i: usize| -> Result<Rest<Prepared<D>>> {
        let (source, _, batches) = &*given;
        let rest = source.begin(&batches[i].1, batches[i].0)?;
        let given = given.clone();
        Ok(Box::new(move || {
            let (source, uploads, batches) = &*given;
            let batch = match rest {
                Some(rest) => rest(uploads)?,
                None => source.batch(uploads, &batches[i].1, batches[i].0)?,
            };
            Ok((batch, Some(uploads.record()?)))
        }))
    };
    ended_in_order::<D, _>(workers, n, begin)
}

impl<D: Device> Iterator for Loader<D> {
    type Item = Result<Batch<D>>;

    fn next(&mut self) -> Option<Result<Batch<D>>> {
        let prepared = self.batches.next()?;
        Some(prepared.and_then(|(batch, ready)| {
            ready.map_or(Ok(()), |ready| self.device.wait_for(&ready))?;
            Ok(batch)
        }))
    }
}

/// Runs `body`, which takes batches of a loader that outlives it. If `body` fails or panics, this tells the other
/// processing elements before the loader is dropped, since its worker may wait for them.
pub(super) fn telling_others<D: Device, R>(group: &Group<D>, body: impl FnOnce() -> Result<R>) -> Result<R> {
    struct Leaving<'a, D: Device> {
        /// `None` once `body` has succeeded.
        group: Option<&'a Group<D>>,
        problem: Option<String>,
    }
    impl<D: Device> Drop for Leaving<'_, D> {
        fn drop(&mut self) {
            if let Some(group) = self.group {
                group.abort(self.problem.as_deref().unwrap_or("it panicked"));
            }
        }
    }
    let mut leaving = Leaving { group: Some(group), problem: None };
    let result = body();
    match &result {
        Ok(_) => leaving.group = None,
        Err(error) => leaving.problem = Some(error.to_string()),
    }
    result
}

#[cfg(test)]
mod tests;
