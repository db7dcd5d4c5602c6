//! PEs that are the processes of an MPI job. Needs the feature `mpi`, and an MPI library that supports threads.
//!
//! The library's `mpirun -np P PROGRAM` starts a job; without it there is one PE. Each collective first gathers all
//! PEs' calls, and fails on all PEs if they differ. Other failures, like a PE that returns an error, cannot be reported
//! that way: [`run`] ends the job. So do MPI's own errors, and `mpirun` when a process ends, and a PE whose collective
//! takes longer than [`Options::timeout`].

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mpi::Threading;
use mpi::datatype::Equivalence as _;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{
    AsRaw as _, Communicator as _, CommunicatorCollectives as _, Destination as _, Root as _, Source as _,
};

use crate::comm::reduce::{larger, reduce_by_exchanges};
use crate::comm::signature::{Call, Kind, Mismatch, blame, odd_one};
use crate::comm::watch::{Waiting, Watch};
use crate::comm::{
    Communicator, Sum, TWO_THREADS, Transport, Turn, TurnGuard, check_exchange, check_root, panicked, parts,
    sent_parts,
};
use crate::device::Element;
use crate::error::{Error, Result};

/// How processes communicate, the same on all PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Messages are split at this many bytes, at most `i32::MAX`, as MPI counts in `i32`; 2^30 by default.
    pub max_message_bytes: usize,
    /// A collective that takes longer ends the job: a process has been stopped, or the network is gone. It must be
    /// longer than what one PE does alone while others wait, like loading data or writing a checkpoint. Half an hour by
    /// default; 0 means to wait for ever.
    pub timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { max_message_bytes: 1 << 30, timeout: Duration::from_secs(1800) }
    }
}

/// One process's end of an exchange by MPI.
pub struct MpiTransport {
    /// Freed before `session` ends MPI.
    communicator: Handle,
    session: Arc<Session>,
    rank: usize,
    size: usize,
    local_rank: usize,
    /// Number of collectives so far.
    sequence: AtomicU64,
    turn: Turn,
}

struct Handle(SimpleCommunicator);

// SAFETY: the library provides MPI_THREAD_MULTIPLE, which `world` checks: any thread may use handles. `Turn` makes sure
// that only one at a time is in a collective of a communicator.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// What a process's duplicates share.
struct Session {
    /// Its thread ends before MPI does.
    watch: Watch,
    /// Ends MPI when it is dropped.
    _universe: Universe,
    max_message_bytes: usize,
    failure: OnceLock<(usize, String)>,
}

impl Session {
    fn check(&self) -> Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some((rank, problem)) => Err(Error::Communication { rank: *rank, problem: problem.clone() }),
        }
    }

    /// The first failure: this one, unless there was one before.
    fn fail(&self, rank: usize, problem: impl Into<String>) -> Error {
        let (rank, problem) = self.failure.get_or_init(|| (rank, problem.into()));
        Error::Communication { rank: *rank, problem: problem.clone() }
    }
}

impl MpiTransport {
    /// Starts MPI: all processes of the job.
    fn world(options: Options) -> Result<Self> {
        let max_message_bytes = options.max_message_bytes;
        if max_message_bytes == 0 || i32::try_from(max_message_bytes).is_err() {
            let expected = format!("1 to {}", i32::MAX);
            return Err(Error::invalid("max_message_bytes", max_message_bytes, expected));
        }
        let (universe, threading) = mpi::initialize_with_threading(Threading::Multiple).ok_or_else(|| {
            let remedy = "a process can start it once, and has done so before".to_owned();
            Error::Unavailable { what: "MPI".to_owned(), remedy }
        })?;
        if threading != Threading::Multiple {
            return Err(Error::Unavailable {
                what: "MPI for several threads at once (MPI_THREAD_MULTIPLE)".to_owned(),
                remedy: format!(
                    "this MPI library gives {threading:?}: use one that is built with thread support"
                ),
            });
        }
        let communicator = universe.world();
        let (rank, timeout) = (communicator.rank() as usize, options.timeout);
        let too_long = move || {
            let seconds = timeout.as_secs_f64();
            let problem = format!(
                "a collective has taken more than {seconds} s: a processing element has stopped or hangs"
            );
            end(&Error::Communication { rank, problem });
        };
        let watch = Watch::new(timeout, too_long).map_err(|e| Error::Worker {
            worker: "the watch over communication".to_owned(),
            problem: e.to_string(),
        })?;
        let session = Session { watch, _universe: universe, max_message_bytes, failure: OnceLock::new() };
        // Those that can share memory are on one machine; ranks keep their order.
        let local_rank = communicator.split_shared(communicator.rank()).rank() as usize;
        Ok(Self::new(communicator, Arc::new(session), local_rank))
    }

    fn new(communicator: SimpleCommunicator, session: Arc<Session>, local_rank: usize) -> Self {
        // Neither is negative.
        let (rank, size) = (communicator.rank() as usize, communicator.size() as usize);
        let communicator = Handle(communicator);
        MpiTransport {
            communicator,
            session,
            rank,
            size,
            local_rank,
            sequence: AtomicU64::new(0),
            turn: Turn::default(),
        }
    }

    fn mpi(&self) -> &SimpleCommunicator {
        &self.communicator.0
    }

    fn turn(&self) -> Result<(TurnGuard<'_>, Waiting<'_>)> {
        let turn = self.turn.take().ok_or_else(|| self.session.fail(self.rank, TWO_THREADS))?;
        Ok((turn, self.session.watch.begin()))
    }

    /// An error on all PEs if their calls are not equal. Returns the collective's number.
    fn agree(&self, call: Call) -> Result<u64> {
        self.session.check()?;
        let sequence = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut words = vec![0u64; 3 * self.size];
        self.mpi().all_gather_into(&call.to_words()[..], &mut words[..]);
        let mut calls = Vec::with_capacity(self.size);
        for (rank, words) in words.chunks_exact(3).enumerate() {
            let call = Call::from_words([words[0], words[1], words[2]]);
            calls.push(call.ok_or_else(|| self.session.fail(rank, "it runs another version of cohop"))?);
        }
        match odd_one(&calls, sequence) {
            None => Ok(sequence),
            Some((rank, problem)) => Err(self.session.fail(rank, problem)),
        }
    }

    /// An error on all PEs if one does not send what another expects.
    fn agree_on_counts(&self, sequence: u64, send_bytes: &[usize], receive_bytes: &[usize]) -> Result<()> {
        let send: Vec<u64> = send_bytes.iter().map(|&bytes| bytes as u64).collect();
        let mut receive = vec![0u64; self.size];
        self.mpi().all_to_all_into(&send[..], &mut receive[..]);
        // A sender that does not exist means that all is well.
        let report = Mismatch::find(receive.into_iter(), receive_bytes)
            .map_or([u64::MAX, 0, 0], |m| [m.sender as u64, m.sent, m.expected]);
        let mut reports = vec![0u64; 3 * self.size];
        self.mpi().all_gather_into(&report[..], &mut reports[..]);
        let reports: Vec<_> = reports
            .chunks_exact(3)
            .map(|words| {
                let sender = usize::try_from(words[0]).ok().filter(|&sender| sender < self.size)?;
                Some(Mismatch { sender, sent: words[1], expected: words[2] })
            })
            .collect();
        match blame(&reports, sequence) {
            None => Ok(()),
            Some((rank, problem)) => Err(self.session.fail(rank, problem)),
        }
    }

    /// Sends `send[q]` to each PE `q`, and fills `receive[q]` from it. The lengths were agreed on.
    fn exchange(&self, send: &[&[u8]], mut receive: Vec<&mut [u8]>) {
        let (rank, size) = (self.rank, self.size);
        receive[rank].copy_from_slice(send[rank]);
        let limit = self.session.max_message_bytes;
        mpi::request::multiple_scope(2 * size, |scope, requests| {
            for (from, part) in receive.into_iter().enumerate().filter(|(from, _)| *from != rank) {
                let process = self.mpi().process_at_rank(from as i32);
                for message in part.chunks_mut(limit) {
                    requests.add(process.immediate_receive_into(scope, message));
                }
            }
            // Each PE begins with the next one, so that not all send to the same PE at once.
            for to in (rank + 1..size).chain(0..rank) {
                let process = self.mpi().process_at_rank(to as i32);
                for message in send[to].chunks(limit) {
                    requests.add(process.immediate_send(scope, message));
                }
            }
            requests.wait_all(&mut Vec::new());
        });
    }

    /// [`exchange`](MpiTransport::exchange) of memory that the host may not be able to read, by addresses: the part for
    /// this PE too.
    ///
    /// # Safety
    /// As for [`Transport::all_to_all_v_at`].
    unsafe fn exchange_at(
        &self,
        send: *const u8,
        send_bytes: &[usize],
        receive: *mut u8,
        receive_bytes: &[usize],
    ) {
        const TAG: i32 = 1;
        let (communicator, limit) = (self.mpi().as_raw(), self.session.max_message_bytes);
        let byte = u8::equivalent_datatype();
        let mut requests = Vec::new();
        let mut begin = |address: *mut u8, counts: &[usize], receives: bool| {
            let mut start = 0;
            for (peer, &bytes) in (0..).zip(counts) {
                for first in (0..bytes).step_by(limit) {
                    let (at, n) = (address.wrapping_add(start + first), limit.min(bytes - first) as i32);
                    // SAFETY: a null request is overwritten.
                    let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
                    // SAFETY: the memory stays until the requests are done, below; errors end the job.
                    unsafe {
                        if receives {
                            let to = at.cast();
                            ffi::MPI_Irecv(to, n, byte.as_raw(), peer, TAG, communicator, &raw mut request);
                        } else {
                            let from = at.cast_const().cast();
                            ffi::MPI_Isend(from, n, byte.as_raw(), peer, TAG, communicator, &raw mut request);
                        }
                    }
                    requests.push(request);
                }
                start += bytes;
            }
        };
        begin(receive, receive_bytes, true);
        begin(send.cast_mut(), send_bytes, false);
        // SAFETY: as many requests as are counted, and no statuses are asked for.
        unsafe {
            ffi::MPI_Waitall(requests.len() as i32, requests.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE);
        }
    }

    /// The same bits as between threads: MPI's own reduction may add up in another order.
    fn reduce<T: Element>(
        &self,
        kind: Kind,
        values: &mut [T],
        combine: impl Fn(T, T) -> T + Copy,
    ) -> Result<()> {
        let _turn = self.turn()?;
        self.agree(Call::reduce(kind, values.len()))?;
        reduce_by_exchanges(self.rank, self.size, values, combine, |send, receive| {
            self.exchange(send, receive);
            Ok(())
        })
    }

    /// Tells the others that this PE calls no more collectives: an error on all PEs if another one still does.
    fn leave(&self) -> Result<()> {
        let _turn = self.turn()?;
        self.agree(Call::new(Kind::Leave)).map(drop)
    }
}

/// Whether the MPI library takes addresses of memory of GPUs: Open MPI tells by an extension, and so do those that
/// have taken it over. Emulated GPUs have the host's memory, which every library takes.
fn is_aware_of_cuda() -> bool {
    if cfg!(feature = "emulate") {
        return true;
    }
    #[cfg(all(feature = "cuda", unix))]
    {
        let program = libloading::os::unix::Library::this();
        // SAFETY: a function without arguments, if there is one of that name.
        let asked = unsafe { program.get::<unsafe extern "C" fn() -> i32>(b"MPIX_Query_cuda_support\0") };
        // SAFETY: as above.
        return asked.is_ok_and(|query| unsafe { query() } != 0);
    }
    #[cfg(not(all(feature = "cuda", unix)))]
    false
}

/// Ends all processes.
fn end(error: &Error) -> ! {
    // To stderr, since this process ends too.
    eprintln!("{error}");
    SimpleCommunicator::world().abort(1)
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn local_rank(&self) -> usize {
        self.local_rank
    }

    fn takes_device_memory(&self) -> bool {
        is_aware_of_cuda()
    }

    unsafe fn all_to_all_v_at(
        &self,
        send: *const u8,
        send_bytes: &[usize],
        receive: *mut u8,
        receive_bytes: &[usize],
    ) -> Result<()> {
        let total = |counts: &[usize]| counts.iter().sum();
        check_exchange(self.size, total(send_bytes), send_bytes, total(receive_bytes), receive_bytes)?;
        let _turn = self.turn()?;
        let sequence = self.agree(Call::new(Kind::AllToAll))?;
        self.agree_on_counts(sequence, send_bytes, receive_bytes)?;
        // SAFETY: the caller's promise.
        unsafe { self.exchange_at(send, send_bytes, receive, receive_bytes) };
        Ok(())
    }

    fn failure(&self) -> Option<Error> {
        self.session.check().err()
    }

    fn duplicate(&self) -> Result<Arc<dyn Transport>> {
        let _turn = self.turn()?;
        self.agree(Call::new(Kind::Duplicate))?;
        Ok(Arc::new(MpiTransport::new(self.mpi().duplicate(), self.session.clone(), self.local_rank)))
    }

    fn all_to_all_v(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()> {
        check_exchange(self.size, send.len(), send_bytes, receive.len(), receive_bytes)?;
        let _turn = self.turn()?;
        let sequence = self.agree(Call::new(Kind::AllToAll))?;
        self.agree_on_counts(sequence, send_bytes, receive_bytes)?;
        self.exchange(&sent_parts(send, send_bytes), parts(receive, receive_bytes.iter().copied()));
        Ok(())
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
        check_root(root, self.size)?;
        let _turn = self.turn()?;
        self.agree(Call::broadcast(root, bytes.len()))?;
        let root = self.mpi().process_at_rank(root as i32);
        for message in bytes.chunks_mut(self.session.max_message_bytes) {
            root.broadcast_into(message);
        }
        Ok(())
    }

    fn barrier(&self) -> Result<()> {
        let _turn = self.turn()?;
        // Nobody has all PEs' calls before all PEs have come.
        self.agree(Call::new(Kind::Barrier)).map(drop)
    }

    /// Ends all processes of the job with status 1, and does not return.
    fn abort(&self, problem: &str) {
        end(&Error::Communication { rank: self.rank, problem: problem.to_owned() })
    }
}

impl fmt::Debug for MpiTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiTransport({} of {})", self.rank, self.size)
    }
}

/// Starts MPI, runs `body` as this process's PE, ends MPI, and returns what `body` does. Only once per process, from
/// its main thread.
///
/// If `body` fails or panics, or returns before others have called all their collectives, all processes of the job end
/// with status 1, and the error on stderr. Drop duplicates, and join threads that use them, before `body` returns.
/// Unlike between threads, nobody notices a PE that returns while others wait for it on a duplicate: they wait forever.
///
/// Errors: only [`Error::Unavailable`], if MPI cannot be started or does not support threads.
pub fn run<T>(body: impl FnOnce(Communicator) -> Result<T>) -> Result<T> {
    run_with(Options::default(), body)
}

/// [`run`] with options.
///
/// Errors: `max_message_bytes` is not in `1..=i32::MAX`, or MPI cannot be started or does not support threads.
pub fn run_with<T>(options: Options, body: impl FnOnce(Communicator) -> Result<T>) -> Result<T> {
    let transport = Arc::new(MpiTransport::world(options)?);
    let communicator = Communicator::new(transport.clone());
    let result = catch_unwind(AssertUnwindSafe(|| body(communicator)))
        .unwrap_or_else(|panic| Err(panicked(transport.rank, &*panic)))
        .and_then(|value| transport.leave().map(|()| value));
    match result {
        Ok(value) => Ok(value),
        Err(error @ Error::Communication { .. }) => end(&error),
        Err(error) => end(&Error::Communication { rank: transport.rank, problem: error.to_string() }),
    }
}
