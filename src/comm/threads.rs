//! PEs that are threads of one process: each copies directly from the others' slices.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::comm::reduce::{accumulate, larger, rank_range};
use crate::comm::rendezvous::{Group, Inside, Job, Offer, Slices};
use crate::comm::signature::{Call, Kind};
use crate::comm::{
    Communicator, Offered, Sum, TWO_THREADS, Transport, Turn, TurnGuard, check_exchange, check_root,
    panicked, parts,
};
use crate::device::Element;
use crate::error::{Error, Result};

/// One PE's end of an exchange between threads. If it is dropped while others wait for it, they fail.
pub struct ThreadTransport {
    pub(super) group: Arc<Group>,
    rank: usize,
    turn: Turn,
}

/// Up to this many elements, each PE does the whole reduction itself: that saves a step in which PEs would wait for
/// each other.
const MAX_LOCAL_ELEMENTS: usize = 1024;

/// Elements that are added up at a time: they stay in the first-level cache.
const CHUNK_ELEMENTS: usize = 2048;

const _: () = assert!(MAX_LOCAL_ELEMENTS <= CHUNK_ELEMENTS, "local reductions are done in one chunk");

impl ThreadTransport {
    fn new(group: &Arc<Group>, rank: usize) -> Self {
        ThreadTransport { group: group.clone(), rank, turn: Turn::default() }
    }

    pub(super) fn turn(&self) -> Result<TurnGuard<'_>> {
        self.turn.take().ok_or_else(|| self.group.job().fail(self.rank, TWO_THREADS))
    }

    /// [`duplicate`](Transport::duplicate), with the concrete type.
    pub(super) fn duplicate_threads(&self) -> Result<Self> {
        let _turn = self.turn()?;
        let inside = self.meet(Kind::Duplicate)?;
        let Some(group) = &inside.meeting().duplicate else { unreachable!("it was made for this call") };
        Ok(ThreadTransport::new(group, self.rank))
    }

    /// A collective without data.
    fn meet(&self, kind: Kind) -> Result<Inside<'_>> {
        // SAFETY: nothing is offered.
        unsafe { self.group.enter(self.rank, Offer { call: Call::new(kind), slices: Slices::Nothing }, 0) }
    }

    /// `values[i] = combine(… combine(combine(PE 0's, PE 1's), PE 2's) …)`.
    fn reduce<T: Element>(
        &self,
        kind: Kind,
        values: &mut [T],
        combine: impl Fn(T, T) -> T + Copy,
    ) -> Result<()> {
        let _turn = self.turn()?;
        let (len, n_pes) = (values.len(), self.size());
        let is_local = len <= MAX_LOCAL_ELEMENTS;
        let address = values.as_mut_ptr();
        let offer = Offer { call: Call::reduce(kind, len), slices: Slices::Values(address.cast()) };
        // SAFETY: `values` lives longer, has `len` elements of the type that `kind` stands for on all PEs, and is not
        // used before `inside` is dropped.
        let mut inside = unsafe { self.group.enter(self.rank, offer, if is_local { 1 } else { 2 })? };
        let mine = if is_local { 0..len } else { rank_range(len, n_pes, self.rank) };
        let mut total: Vec<T> = Vec::with_capacity(CHUNK_ELEMENTS.min(mine.len()));
        for start in mine.clone().step_by(CHUNK_ELEMENTS) {
            let chunk_len = CHUNK_ELEMENTS.min(mine.end - start);
            // SAFETY: in this step nobody writes to the chunk while the slice is used: in a local reduction nobody
            // writes at all, else only this PE writes to its share, after the slice's last use.
            let chunk = |rank| unsafe {
                std::slice::from_raw_parts(inside.values::<T>(rank).add(start).cast_const(), chunk_len)
            };
            total.clear();
            total.extend_from_slice(chunk(0));
            for rank in 1..n_pes {
                accumulate(&mut total, chunk(rank), combine);
            }
            if !is_local {
                // SAFETY: `address` is offered for this; other PEs read and write other shares in this step.
                unsafe { std::ptr::copy_nonoverlapping(total.as_ptr(), address.add(start), chunk_len) };
            }
        }
        inside.finish_step();
        if is_local {
            drop(inside);
            values.copy_from_slice(&total);
            return Ok(());
        }
        for rank in (0..n_pes).filter(|&rank| rank != self.rank) {
            let theirs = rank_range(len, n_pes, rank);
            // SAFETY: in this step each PE writes only other PEs' shares of its own values, and reads only PE `rank`'s
            // own share of PE `rank`'s values.
            unsafe {
                let source = inside.values::<T>(rank).add(theirs.start).cast_const();
                std::ptr::copy_nonoverlapping(source, address.add(theirs.start), theirs.len());
            }
        }
        Ok(())
    }
}

impl Transport for ThreadTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.n_pes()
    }

    fn duplicate(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(self.duplicate_threads()?))
    }

    fn all_to_all_v(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()> {
        let n_pes = self.size();
        check_exchange(n_pes, send.len(), send_bytes, receive.len(), receive_bytes)?;
        let _turn = self.turn()?;
        let slices = Slices::Exchange { send: send.as_ptr(), send_bytes, receive_bytes };
        // SAFETY: the slices outlive `inside`; `send` was checked to be as long as its counts say.
        let inside =
            unsafe { self.group.enter(self.rank, Offer { call: Call::new(Kind::AllToAll), slices }, 1)? };
        let mut parts = parts(receive, receive_bytes.iter().copied());
        // Each PE begins with itself, so that not all read from the same PE at once.
        for rank in (self.rank..n_pes).chain(0..self.rank) {
            parts[rank].copy_from_slice(inside.sent(rank, self.rank));
        }
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        let failure = self.group.job().failure()?;
        Some(Error::Communication { rank: failure.0, problem: failure.1.clone() })
    }

    fn all_reduce_sum(&self, values: Sum<'_>) -> Result<()> {
        match values {
            Sum::F32(values) => self.reduce(Kind::SumF32, values, |a, b| a + b),
            Sum::F64(values) => self.reduce(Kind::SumF64, values, |a, b| a + b),
            Sum::U64(values) => self.reduce(Kind::SumU64, values, u64::wrapping_add),
        }
    }

    fn all_reduce_max(&self, values: &mut [f64]) -> Result<()> {
        self.reduce(Kind::MaxF64, values, larger)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        check_root(root, self.size())?;
        let _turn = self.turn()?;
        let address = bytes.as_mut_ptr();
        let offer = Offer { call: Call::broadcast(root, bytes.len()), slices: Slices::Values(address) };
        // SAFETY: `bytes` lives longer, has the call's length, and is not used before `inside` is dropped.
        let inside = unsafe { self.group.enter(self.rank, offer, 1)? };
        if self.rank != root {
            // SAFETY: nobody writes to the root's bytes, and nobody else to these.
            unsafe {
                std::ptr::copy_nonoverlapping(inside.values::<u8>(root).cast_const(), address, bytes.len())
            };
        }
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        let _turn = self.turn()?;
        self.meet(Kind::Barrier).map(drop)
    }

    fn shares_memory(&self) -> bool {
        true
    }

    fn window(&self, own: &[&[u8]], read: &mut dyn FnMut(Offered<'_>)) -> Result<()> {
        let _turn = self.turn()?;
        let slices = Slices::Window(std::ptr::slice_from_raw_parts(own.as_ptr().cast(), own.len()));
        // SAFETY: the slices outlive `inside`, and are shared borrows.
        let inside =
            unsafe { self.group.enter(self.rank, Offer { call: Call::new(Kind::Window), slices }, 1)? };
        let offered: Vec<&[&[u8]]> = (0..self.size()).map(|rank| inside.window(rank)).collect();
        read(&offered);
        Ok(())
    }

    fn abort(&self, problem: &str) {
        self.group.job().fail(self.rank, problem);
    }
}

impl Drop for ThreadTransport {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Others may wait for this PE on other communicators too.
            self.group.job().fail(self.rank, "it panicked");
        } else {
            self.group.leave(self.rank, "dropped its communicator");
        }
    }
}

impl fmt::Debug for ThreadTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ThreadTransport({} of {})", self.rank, self.size())
    }
}

/// The most PEs that are threads of one process.
pub const MAX_PES: usize = 1024;

/// A communicator for each of `n_pes` PEs, for threads that the caller starts: see [`run`].
///
/// Errors: `n_pes` is 0 or above [`MAX_PES`].
pub fn communicators(n_pes: usize) -> Result<Vec<Communicator>> {
    Ok(transports(n_pes)?.1.into_iter().map(|transport| Communicator::new(transport)).collect())
}

fn transports(n_pes: usize) -> Result<(Arc<Job>, Vec<Arc<ThreadTransport>>)> {
    if n_pes == 0 || n_pes > MAX_PES {
        return Err(Error::invalid("number of processing elements", n_pes, format!("1 to {MAX_PES}")));
    }
    let job = Job::new(n_pes);
    let group = Group::new(&job);
    Ok((job, (0..n_pes).map(|rank| Arc::new(ThreadTransport::new(&group, rank))).collect()))
}

/// Runs `body` on `n_pes` threads, one per PE, and returns their results in rank order.
///
/// Each PE has a thread pool of its own, of an equal part of the current one's threads, one at least: PEs compute side
/// by side, and none waits for another's kernels.
///
/// If `body` fails or panics on a PE, or returns while others wait for it, the others' collectives fail. After `body`
/// has returned, clones of its communicator, in its result or in other threads, are of no use.
///
/// Errors: `n_pes` is 0 or above [`MAX_PES`]; the error of the PE that failed first, a panic as
/// [`Error::Communication`].
///
/// ```
/// use cohop::comm::threads;
/// let ranks = threads::run(4, |communicator| Ok(communicator.rank()))?;
/// assert_eq!(ranks, [0, 1, 2, 3]);
/// # Ok::<(), cohop::Error>(())
/// ```
pub fn run<T: Send>(n_pes: usize, body: impl Fn(Communicator) -> Result<T> + Sync) -> Result<Vec<T>> {
    run_over(n_pes, |transport| body(Communicator::new(transport)))
}

/// [`run`] for callers that need the transport itself.
pub(super) fn run_over<T: Send>(
    n_pes: usize,
    body: impl Fn(Arc<ThreadTransport>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let (job, transports) = transports(n_pes)?;
    let (job, body) = (&*job, &body);
    let n_threads = (rayon::current_num_threads() / n_pes).max(1);
    let results: Vec<Result<T>> = std::thread::scope(|scope| {
        let spawned: Vec<_> = transports
            .into_iter()
            .map(|transport| {
                let rank = transport.rank;
                let builder = std::thread::Builder::new().name(format!("pe-{rank}"));
                builder
                    .spawn_scoped(scope, move || on_own_pool(n_threads, job, transport, body))
                    .map_err(|e| job.fail(rank, format!("its thread did not start: {e}")))
            })
            .collect();
        let join = |(rank, thread): (usize, Result<std::thread::ScopedJoinHandle<'_, _>>)| {
            thread?.join().unwrap_or_else(|panic| Err(panicked(rank, &*panic)))
        };
        spawned.into_iter().enumerate().map(join).collect()
    });
    // Return the error of the PE that failed first: the PEs that waited for it know less.
    if results.iter().any(Result::is_err)
        && let Some((rank, problem)) = job.failure()
    {
        let first = results.into_iter().nth(*rank).and_then(Result::err);
        return Err(first.unwrap_or_else(|| Error::Communication { rank: *rank, problem: problem.clone() }));
    }
    results.into_iter().collect()
}

fn on_own_pool<T: Send>(
    n_threads: usize,
    job: &Job,
    transport: Arc<ThreadTransport>,
    body: &(impl Fn(Arc<ThreadTransport>) -> Result<T> + Sync),
) -> Result<T> {
    let rank = transport.rank;
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(n_threads)
        .thread_name(move |_| format!("pe-{rank}"))
        .build()
        .map_err(|e| job.fail(rank, format!("its threads did not start: {e}")))?;
    pool.install(|| run_one(job, transport, body))
}

fn run_one<T>(
    job: &Job,
    transport: Arc<ThreadTransport>,
    body: &impl Fn(Arc<ThreadTransport>) -> Result<T>,
) -> Result<T> {
    let rank = transport.rank;
    // Keep `transport`, so that a panic does not drop the last handle before its message is known.
    let handle = transport.clone();
    let result =
        catch_unwind(AssertUnwindSafe(|| body(handle))).unwrap_or_else(|panic| Err(panicked(rank, &*panic)));
    match &result {
        Ok(_) => job.leave(rank),
        Err(Error::Communication { rank: origin, problem }) if *origin == rank => {
            job.fail(rank, problem.as_str());
        }
        Err(error) => {
            job.fail(rank, error.to_string());
        }
    }
    result
}

#[cfg(test)]
pub(crate) mod packed;
#[cfg(test)]
mod tests;
