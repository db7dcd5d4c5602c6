//! What a PE calls: typed slices, checked lengths, statistics.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::comm::reduce::rank_range;
use crate::comm::statistics::Traffic;
use crate::comm::{Offered, Stage, Statistics, Sum, Transport, check_exchange, check_root, total};
use crate::device::Element;
use crate::error::{Error, Result, check_length};

/// One PE's handle on all of them. Clones are the same communicator.
///
/// All PEs call the same collectives in the same order, from one thread at a time: a second thread needs a
/// [`duplicate`](Communicator::duplicate). An argument that does not fit is an error on this PE alone, before anything
/// is sent; after it all collectives of this PE fail, since the others now wait for one that it has not called.
///
/// Every collective fails with [`Error::Communication`] if a PE has failed, panicked, left, or called something else.
#[derive(Clone, Debug)]
pub struct Communicator {
    transport: Arc<dyn Transport>,
    shared: Arc<Shared>,
}

/// What a PE's duplicates have in common.
#[derive(Debug, Default)]
struct Shared {
    statistics: Mutex<Statistics>,
    /// The first argument that did not fit.
    refused: OnceLock<String>,
}

impl Communicator {
    /// A communicator over `transport`.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Communicator { transport, shared: Arc::default() }
    }

    /// This PE, below [`size`](Communicator::size).
    pub fn rank(&self) -> usize {
        self.transport.rank()
    }

    /// This PE among those of its machine: threads are all of one.
    pub fn local_rank(&self) -> usize {
        self.transport.local_rank()
    }

    /// Number of PEs.
    pub fn size(&self) -> usize {
        self.transport.size()
    }

    /// The same PEs with a separate sequence of collectives, for another thread of this PE. Collective. Statistics are
    /// shared.
    ///
    /// Errors: those of communication.
    pub fn duplicate(&self) -> Result<Self> {
        self.check(Ok(()))?;
        Ok(Communicator { transport: self.transport.duplicate()?, shared: self.shared.clone() })
    }

    /// Tells each PE `q` the number `counts[q]`, and returns what each told this one. Collective.
    ///
    /// Errors: `counts` does not have one element per PE, and those of communication.
    pub fn exchange_counts(&self, stage: Stage, counts: &[usize]) -> Result<Vec<usize>> {
        let n_pes = self.size();
        self.check(check_length("counts", counts.len(), n_pes))?;
        let send: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
        let mut receive = vec![0u64; n_pes];
        let ones = vec![1; n_pes];
        self.exchange(stage, &send, &ones, &mut receive, &ones)?;
        receive.into_iter().map(|count| self.as_count(count)).collect()
    }

    fn as_count(&self, count: u64) -> Result<usize> {
        let limit = usize::MAX as u64;
        self.check(usize::try_from(count).map_err(|_| Error::TooLarge { what: "a count", count, limit }))
    }

    /// Whether PEs can read each other's memory, by [`window`](Communicator::window).
    pub(crate) fn shares_memory(&self) -> bool {
        self.transport.shares_memory()
    }

    /// Calls `read` with the slices that each PE offers, by rank, and returns when all PEs have read. Counts as
    /// `counts[q]` elements of `element_bytes` bytes sent to each other PE `q`. Collective; only for PEs that share
    /// memory.
    ///
    /// Errors: those of communication.
    pub(crate) fn window<R>(
        &self,
        stage: Stage,
        (counts, element_bytes): (&[usize], usize),
        own: &[&[u8]],
        read: impl FnOnce(Offered<'_>) -> R,
    ) -> Result<R> {
        let traffic = Traffic::of_counts(self.others().map(|rank| counts[rank]), element_bytes);
        let (mut read, mut result) = (Some(read), None);
        self.collective(stage, traffic, |transport| {
            transport.window(own, &mut |offered| result = read.take().map(|read| read(offered)))
        })?;
        result.ok_or_else(|| Error::Communication {
            rank: self.rank(),
            problem: "its transport offered nothing to read".to_owned(),
        })
    }

    /// Counts `counts[q]` elements of `element_bytes` bytes as sent to each other PE `q`, which has read them itself.
    pub(crate) fn count_read(&self, stage: Stage, counts: &[usize], element_bytes: usize) {
        let traffic = Traffic::of_counts(self.others().map(|rank| counts[rank]), element_bytes);
        self.locked_statistics().record(stage, traffic, Duration::ZERO);
    }

    /// [`all_to_all_v_new`](Communicator::all_to_all_v_new) where no PE knows how much it will receive. Returns what
    /// this PE receives, and how much from each PE. Collective.
    ///
    /// Errors: `counts` does not have one element per PE or does not add up to the length of `send`; no memory for what
    /// is received; and those of communication.
    pub(crate) fn exchange_lists<T: Element>(
        &self,
        stage: Stage,
        send: &[T],
        counts: &[usize],
    ) -> Result<(Vec<T>, Vec<usize>)> {
        let n_pes = self.size();
        self.check(check_exchange(n_pes, send.len(), counts, send.len(), counts))?;
        if !self.shares_memory() {
            let receive_counts = self.exchange_counts(stage, counts)?;
            return Ok((self.all_to_all_v_new(stage, send, counts, &receive_counts)?, receive_counts));
        }
        let own = [bytemuck::cast_slice(send), bytemuck::cast_slice(counts)];
        let rank = self.rank();
        self.count_read(stage, &vec![1; n_pes], size_of::<u64>());
        let received = self.window(stage, (counts, size_of::<T>()), &own, |offered| {
            let lists: Vec<&[T]> = offered
                .iter()
                .map(|own| {
                    let (sent, counts): (&[T], &[usize]) =
                        (bytemuck::cast_slice(own[0]), bytemuck::cast_slice(own[1]));
                    let start = counts[..rank].iter().sum::<usize>();
                    &sent[start..start + counts[rank]]
                })
                .collect();
            let mut all = Vec::new();
            let n = lists.iter().map(|list| list.len()).sum();
            all.try_reserve_exact(n).map_err(|_| too_large::<T>(n))?;
            lists.iter().for_each(|list| all.extend_from_slice(list));
            Ok((all, lists.iter().map(|list| list.len()).collect()))
        })?;
        self.check(received)
    }

    /// Sends to each PE `q` its `send_counts[q]` elements, which stand in `send` in rank order, and receives
    /// `receive_counts[q]` elements from it, which land in `receive` in rank order. Collective.
    ///
    /// Errors: counts that do not have one element per PE, or do not add up to the length of `send` or `receive`;
    /// counts that differ between sender and receiver, on all PEs; and those of communication.
    pub fn all_to_all_v<T: Element>(
        &self,
        stage: Stage,
        send: &[T],
        send_counts: &[usize],
        receive: &mut [T],
        receive_counts: &[usize],
    ) -> Result<()> {
        let n_pes = self.size();
        self.check(check_exchange(n_pes, send.len(), send_counts, receive.len(), receive_counts))?;
        self.exchange(stage, send, send_counts, receive, receive_counts)
    }

    /// Whether [`all_to_all_v_at`](Communicator::all_to_all_v_at) takes addresses of memory of GPUs.
    pub(crate) fn takes_device_memory(&self) -> bool {
        self.transport.takes_device_memory()
    }

    /// Why collectives fail, if they do.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.transport.failure()
    }

    /// [`all_to_all_v`](Communicator::all_to_all_v) of elements at addresses, of the host's memory or a GPU's.
    ///
    /// # Safety
    /// As for [`Transport::all_to_all_v_at`], in elements.
    ///
    /// Errors: as [`all_to_all_v`](Communicator::all_to_all_v).
    pub(crate) unsafe fn all_to_all_v_at<T: Element>(
        &self,
        stage: Stage,
        send: *const u8,
        send_counts: &[usize],
        receive: *mut u8,
        receive_counts: &[usize],
    ) -> Result<()> {
        let (send_len, receive_len) =
            (total("send_counts", send_counts)?, total("receive_counts", receive_counts)?);
        let n_pes = self.size();
        self.check(check_exchange(n_pes, send_len, send_counts, receive_len, receive_counts))?;
        let traffic = Traffic::of_counts(self.others().map(|rank| send_counts[rank]), size_of::<T>());
        let bytes = |counts: &[usize]| counts.iter().map(|count| count * size_of::<T>()).collect::<Vec<_>>();
        let (send_bytes, receive_bytes) = (bytes(send_counts), bytes(receive_counts));
        self.collective(stage, traffic, |transport| {
            // SAFETY: the caller's promise.
            unsafe { transport.all_to_all_v_at(send, &send_bytes, receive, &receive_bytes) }
        })
    }

    /// [`all_to_all_v`](Communicator::all_to_all_v) into a new vector. A PE that does not know how much it will receive
    /// calls [`exchange_counts`](Communicator::exchange_counts) first.
    ///
    /// Errors: as [`all_to_all_v`](Communicator::all_to_all_v), or no memory for what is received.
    pub fn all_to_all_v_new<T: Element>(
        &self,
        stage: Stage,
        send: &[T],
        send_counts: &[usize],
        receive_counts: &[usize],
    ) -> Result<Vec<T>> {
        let len = self.check(total("receive_counts", receive_counts))?;
        let mut receive = self.check(zeroed(len))?;
        self.all_to_all_v(stage, send, send_counts, &mut receive, receive_counts)?;
        Ok(receive)
    }

    /// The elements of all PEs in rank order, and how many each has. Collective.
    ///
    /// Every PE gets everything, so use it only for small data, like predictions for a few vertices.
    ///
    /// Errors: no memory for what is received, and those of communication.
    pub fn all_gather_v<T: Element>(&self, stage: Stage, elements: &[T]) -> Result<(Vec<T>, Vec<usize>)> {
        let n_pes = self.size();
        if n_pes == 1 {
            self.barrier_in(stage)?;
            return Ok((elements.to_vec(), vec![elements.len()]));
        }
        let send_counts = vec![elements.len(); n_pes];
        let receive_counts = self.exchange_counts(stage, &send_counts)?;
        // One copy per PE: no more memory than the result needs, if PEs have equally many.
        let mut send = self.check(zeroed(self.check(total("elements", &send_counts))?))?;
        if !elements.is_empty() {
            send.chunks_exact_mut(elements.len()).for_each(|copy| copy.copy_from_slice(elements));
        }
        let gathered = self.all_to_all_v_new(stage, &send, &send_counts, &receive_counts)?;
        Ok((gathered, receive_counts))
    }

    /// Adds up each element over all PEs, in rank order: the same bits on all. Collective.
    ///
    /// Errors: lengths or types that differ between PEs, on all of them, and those of communication.
    pub fn all_reduce_sum(&self, stage: Stage, values: Sum<'_>) -> Result<()> {
        let (len, element_bytes) = match &values {
            Sum::F32(values) => (values.len(), 4),
            Sum::F64(values) => (values.len(), 8),
            Sum::U64(values) => (values.len(), 8),
        };
        let traffic = self.reduction(len, element_bytes);
        self.collective(stage, traffic, |transport| transport.all_reduce_sum(values))
    }

    /// The maximum of each element over all PEs, NaN if one is NaN; of 0 and -0 the lower rank's. Collective.
    ///
    /// Errors: lengths that differ between PEs, on all of them, and those of communication.
    pub fn all_reduce_max(&self, stage: Stage, values: &mut [f64]) -> Result<()> {
        let traffic = self.reduction(values.len(), 8);
        self.collective(stage, traffic, |transport| transport.all_reduce_max(values))
    }

    /// Overwrites `values` with those of the PE `root`. Collective.
    ///
    /// Errors: `root` is not a PE; lengths in bytes or roots that differ between PEs, on all of them; and those of
    /// communication.
    pub fn broadcast<T: Element>(&self, stage: Stage, root: usize, values: &mut [T]) -> Result<()> {
        let n_pes = self.size();
        self.check(check_root(root, n_pes))?;
        let n_messages = if self.rank() == root { n_pes - 1 } else { 0 };
        let traffic = Traffic::of_counts((0..n_messages).map(|_| values.len()), size_of::<T>());
        let bytes = bytemuck::cast_slice_mut(values);
        self.collective(stage, traffic, |transport| transport.broadcast(root, bytes))
    }

    /// Returns when all PEs have called it. Its time counts as [`Stage::Other`].
    ///
    /// Errors: those of communication.
    pub fn barrier(&self) -> Result<()> {
        self.barrier_in(Stage::Other)
    }

    fn barrier_in(&self, stage: Stage) -> Result<()> {
        self.collective(stage, Traffic::default(), |transport| transport.barrier())
    }

    /// Makes all PEs' collectives fail from now on, those of duplicates too, with `problem` as the reason. Over MPI it
    /// ends all processes instead.
    pub fn abort(&self, problem: &str) {
        self.transport.abort(problem);
    }

    /// What this PE has sent, by stage, since it began or [`reset_statistics`](Communicator::reset_statistics) was
    /// called: by this communicator and its duplicates.
    pub fn statistics(&self) -> Statistics {
        *self.locked_statistics()
    }

    /// Sets the statistics to 0.
    pub fn reset_statistics(&self) {
        *self.locked_statistics() = Statistics::default();
    }

    #[cfg(test)]
    pub(super) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    fn locked_statistics(&self) -> MutexGuard<'_, Statistics> {
        self.shared.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange<T: Element>(
        &self,
        stage: Stage,
        send: &[T],
        send_counts: &[usize],
        receive: &mut [T],
        receive_counts: &[usize],
    ) -> Result<()> {
        let traffic = Traffic::of_counts(self.others().map(|rank| send_counts[rank]), size_of::<T>());
        // No overflow: the counts add up to the lengths of slices.
        let bytes = |counts: &[usize]| counts.iter().map(|count| count * size_of::<T>()).collect::<Vec<_>>();
        let (send_bytes, receive_bytes) = (bytes(send_counts), bytes(receive_counts));
        let (send, receive) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(receive));
        self.collective(stage, traffic, |transport| {
            transport.all_to_all_v(send, &send_bytes, receive, &receive_bytes)
        })
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank();
        (0..self.size()).filter(move |&other| other != rank)
    }

    /// Each other PE gets its share of this PE's values, and the sums of this PE's share.
    fn reduction(&self, len: usize, element_bytes: usize) -> Traffic {
        let n_pes = self.size();
        let mine = rank_range(len, n_pes, self.rank()).len();
        let messages = self.others().flat_map(|rank| [rank_range(len, n_pes, rank).len(), mine]);
        Traffic::of_counts(messages, element_bytes)
    }

    fn collective(
        &self,
        stage: Stage,
        traffic: Traffic,
        call: impl FnOnce(&dyn Transport) -> Result<()>,
    ) -> Result<()> {
        self.check(Ok(()))?;
        let start = Instant::now();
        call(&*self.transport)?;
        self.locked_statistics().record(stage, traffic, start.elapsed());
        Ok(())
    }

    /// Passes on the outcome of checking arguments, and remembers an error.
    fn check<R>(&self, outcome: Result<R>) -> Result<R> {
        if let Some(problem) = self.shared.refused.get() {
            return Err(Error::Communication { rank: self.rank(), problem: problem.clone() });
        }
        outcome.inspect_err(|error| {
            self.shared.refused.get_or_init(|| format!("its arguments did not fit: {error}"));
        })
    }
}

fn zeroed<T: Element>(len: usize) -> Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_slice_box(len).map(Vec::from).map_err(|()| too_large::<T>(len))
}

fn too_large<T>(len: usize) -> Error {
    Error::TooLarge {
        what: "what is received",
        count: len as u64,
        limit: (isize::MAX as usize / size_of::<T>().max(1)) as u64,
    }
}
