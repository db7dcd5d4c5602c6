//! Communication between processing elements (PEs): all-to-all exchange, sums over all, broadcast.
//!
//! A [`Communicator`] is one PE's handle, and sends typed elements. All PEs call the same collectives in the same
//! order. Below it a [`Transport`] carries plain bytes from PE to PE: between [`threads`] of one process, between the
//! processes of an MPI job (`mpi`, with the feature of that name). What devices exchange they send each other directly
//! where they can: see [`Peers`](crate::coop::Peers).
//!
//! A collective either succeeds on all PEs, with the same sums to the bit, or fails on all: a PE that fails, panics,
//! leaves, or calls another collective or another size than its peers makes every waiting one return
//! [`Error::Communication`], which names it. After a failure, all collectives of all duplicates fail. Nothing hangs,
//! with one exception over MPI (`mpi::run`).
//!
//! ```
//! use cohop::comm::{Stage, Sum, threads};
//!
//! let sums = threads::run(3, |communicator| {
//!     let mut value = [communicator.rank() as f32];
//!     communicator.all_reduce_sum(Stage::Other, Sum::F32(&mut value))?;
//!     Ok(value[0])
//! })?;
//! assert_eq!(sums, [3., 3., 3.]);
//! # Ok::<(), cohop::Error>(())
//! ```

mod communicator;
#[cfg(feature = "mpi")]
pub mod mpi;
mod reduce;
mod rendezvous;
mod signature;
mod statistics;
#[cfg(test)]
mod tests;
pub mod threads;
#[cfg(any(test, feature = "mpi"))]
mod watch;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use communicator::Communicator;
pub(crate) use reduce::rank_range;
pub use statistics::{StageStatistics, Statistics};

use crate::error::{Error, Result, check_length, panic_message};

/// What an exchange is for; its bytes are counted under this stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Stage {
    /// Ids of vertices to be sampled, and what samplers look up across PEs.
    Sample,
    /// Input rows.
    Feature,
    /// Activations between layers.
    Forward,
    /// Their gradients.
    Backward,
    /// Gradients of parameters, and statistics over rows.
    Parameter,
    /// Everything else: seeds, metrics, predictions.
    Other,
}

impl Stage {
    /// All stages, in the order of a minibatch.
    pub const ALL: [Stage; 6] =
        [Stage::Sample, Stage::Feature, Stage::Forward, Stage::Backward, Stage::Parameter, Stage::Other];
}

/// Numbers to be summed over PEs.
#[derive(Debug)]
pub enum Sum<'a> {
    /// In rank order, rounding after each addition.
    F32(&'a mut [f32]),
    /// In rank order, rounding after each addition.
    F64(&'a mut [f64]),
    /// Wrapping.
    U64(&'a mut [u64]),
}

/// The slices that each PE lets others read, by rank.
pub type Offered<'a> = &'a [&'a [&'a [u8]]];

/// How bytes get from PE to PE. All methods but `rank`, `size` and `abort` are collective.
pub trait Transport: Debug + Send + Sync {
    /// This PE, below [`size`](Transport::size).
    fn rank(&self) -> usize;

    /// Number of PEs.
    fn size(&self) -> usize;

    /// This PE among those of its machine, in order of their ranks.
    fn local_rank(&self) -> usize {
        self.rank()
    }

    /// The same PEs with a separate sequence of collectives, which another thread of a PE may use at the same time.
    ///
    /// Errors: [`Error::Communication`] if a PE has failed or called something else.
    fn duplicate(&self) -> Result<Arc<dyn Transport>>;

    /// Sends `send_bytes[q]` bytes, which follow each other in `send`, to each PE `q`, and receives `receive_bytes[q]`
    /// from it.
    ///
    /// Errors: counts that do not have one element per PE, or do not add up to the length of `send` or `receive`;
    /// [`Error::Communication`], on all PEs, if one does not send what another expects, has failed, or called something
    /// else.
    fn all_to_all_v(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()>;

    /// Adds up each element over all PEs, in rank order: the same bits everywhere.
    ///
    /// Errors: [`Error::Communication`], on all PEs, if lengths or types differ, a PE has failed, or called something
    /// else.
    fn all_reduce_sum(&self, values: Sum<'_>) -> Result<()>;

    /// The maximum of each element over all PEs, NaN if one is NaN.
    ///
    /// Errors: [`Error::Communication`], on all PEs, if lengths differ, a PE has failed, or called something else.
    fn all_reduce_max(&self, values: &mut [f64]) -> Result<()>;

    /// Overwrites `bytes` with those of `root`.
    ///
    /// Errors: `root` is not a PE; [`Error::Communication`], on all PEs, if lengths or roots differ, a PE has failed,
    /// or called something else.
    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()>;

    /// Returns when all PEs have called it.
    ///
    /// Errors: [`Error::Communication`] if a PE has failed or called something else.
    fn barrier(&self) -> Result<()>;

    /// Whether PEs can read each other's memory, by [`window`](Transport::window). The same on all of them.
    fn shares_memory(&self) -> bool {
        false
    }

    /// Calls `read` with the slices that each PE offers, in rank order, and returns when all PEs have read. Only for
    /// PEs that share memory.
    ///
    /// Errors: the PEs share no memory; [`Error::Communication`] if a PE has failed or called something else.
    fn window(&self, own: &[&[u8]], read: &mut dyn FnMut(Offered<'_>)) -> Result<()> {
        let _ = (own, read);
        let expected = "processing elements that share memory";
        Err(Error::invalid("window", "called", expected))
    }

    /// Whether [`all_to_all_v_at`](Transport::all_to_all_v_at) takes addresses of memory of GPUs.
    fn takes_device_memory(&self) -> bool {
        false
    }

    /// [`all_to_all_v`](Transport::all_to_all_v) between memory that the host may not be able to read: only where
    /// [`takes_device_memory`](Transport::takes_device_memory).
    ///
    /// # Safety
    /// `send` and `receive` are addresses of as many bytes as are counted, exclusive for `receive`, in memory that the
    /// library reaches, where nothing else reads or writes during the call.
    ///
    /// Errors: those of [`all_to_all_v`](Transport::all_to_all_v).
    unsafe fn all_to_all_v_at(
        &self,
        send: *const u8,
        send_bytes: &[usize],
        receive: *mut u8,
        receive_bytes: &[usize],
    ) -> Result<()> {
        let _ = (send, send_bytes, receive, receive_bytes);
        Err(Error::invalid("memory", "a device's", "the host's, for this transport"))
    }

    /// Why collectives fail, if they do; what waits for other PEs in another way should not wait any more then.
    fn failure(&self) -> Option<Error> {
        None
    }

    /// Makes all PEs' collectives fail from now on, those of duplicates too, with `problem` as the reason; or ends all
    /// PEs' processes with status 1 and a message.
    fn abort(&self, problem: &str);
}

/// `Ok` if `send` and `receive` are as long as their counts say, and there are `n_pes` counts for each.
fn check_exchange(
    n_pes: usize,
    send: usize,
    send_counts: &[usize],
    receive: usize,
    receive_counts: &[usize],
) -> Result<()> {
    check_length("send_counts", send_counts.len(), n_pes)?;
    check_length("receive_counts", receive_counts.len(), n_pes)?;
    check_length("send", send, total("send_counts", send_counts)?)?;
    check_length("receive", receive, total("receive_counts", receive_counts)?)
}

/// The sum of `counts`, which errors call `array`.
fn total(array: &'static str, counts: &[usize]) -> Result<usize> {
    counts.iter().try_fold(0usize, |sum, &count| sum.checked_add(count)).ok_or(Error::TooLarge {
        what: array,
        count: u64::MAX,
        limit: usize::MAX as u64,
    })
}

/// Splits `slice` into consecutive parts of the given `lengths`.
fn parts<T>(mut slice: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    lengths.map(|len| slice.split_off_mut(..len).expect("lengths that were checked")).collect()
}

/// As [`parts`], for shared slices.
#[cfg(feature = "mpi")]
fn sent_parts<'a>(mut slice: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    lengths.iter().map(|&len| slice.split_off(..len).expect("lengths that were checked")).collect()
}

/// `Ok` if `root` is a PE.
fn check_root(root: usize, n_pes: usize) -> Result<()> {
    if root < n_pes {
        Ok(())
    } else {
        Err(Error::invalid("root", root, format!("a processing element below {n_pes}")))
    }
}

/// Makes sure that only one thread of a PE at a time is in a collective of a communicator.
#[derive(Debug, Default)]
struct Turn(AtomicBool);

/// Held during a collective.
#[must_use]
struct TurnGuard<'a>(&'a AtomicBool);

impl Turn {
    /// `None` if another thread has it.
    fn take(&self) -> Option<TurnGuard<'_>> {
        (!self.0.swap(true, Ordering::Acquire)).then(|| TurnGuard(&self.0))
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The problem reported if [`Turn::take`] fails.
const TWO_THREADS: &str =
    "two of its threads called collectives of one communicator at once: give each a duplicate of its own";

/// The error for a panic on PE `rank`.
fn panicked(rank: usize, panic: &(dyn Any + Send)) -> Error {
    Error::Communication { rank, problem: format!("it panicked: {}", panic_message(panic)) }
}
