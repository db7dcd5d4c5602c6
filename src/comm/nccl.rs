//! PEs that are threads of one process with one GPU each: PE `r` has GPU `r`, and NCCL carries what they exchange.
//! Needs the feature `cuda` and, at run time, NCCL's library by the name `libnccl.so`.
//!
//! A [`Transport`] works on host memory: the data is copied to the GPU, sent by NCCL, and copied back from the
//! receiver's GPU. That is no faster than [`threads`](crate::comm::threads), which copies once, and which PEs with one
//! GPU each may use as well. Exchanges that hand NCCL a tensor's own memory could build on this, but do not exist yet:
//! [`Peers`](crate::coop::Peers) exchanges host memory too.
//!
//! Before NCCL is called, the PEs meet as threads do, which turns calls that do not agree into errors, and take turns:
//! NCCL may hang if two threads of a process use a GPU for two exchanges and the order is not the same on all GPUs. So
//! only one exchange is under way at a time, over all duplicates, which share one NCCL communicator and one stream.
//!
//! When NCCL fails on one PE, the others abort their exchange, and all return an error. Only one thing cannot be
//! aborted: NCCL's setup of connections, during the first exchange, if it hangs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{
    CudaContext, CudaStream, DriverError, result as driver, sys::CUdeviceptr, sys::CUresult,
};
use cudarc::nccl::result::{self as nccl, NcclError, NcclStatus};
use cudarc::nccl::sys::{self, ncclComm_t, ncclDataType_t::ncclUint8, ncclResult_t};

use crate::comm::reduce::{larger, reduce_by_exchanges};
use crate::comm::rendezvous::{Inside, Offer, Slices};
use crate::comm::signature::{Call, Kind};
use crate::comm::threads::{self, ThreadTransport};
use crate::comm::{Communicator, Sum, Transport, check_exchange, check_root, parts, sent_parts};
use crate::device::{Cuda, Element};
use crate::error::{Error, Result};

/// One PE's end of an exchange by NCCL.
pub struct NcclTransport {
    /// Where PEs meet before they call NCCL.
    threads: Arc<ThreadTransport>,
    link: Arc<Link>,
}

/// One PE's GPU among the others', shared by its duplicates.
struct Link {
    shared: Arc<Shared>,
    /// Never contended: only one exchange is under way at a time.
    queue: Mutex<Queue>,
}

/// What all PEs share.
#[derive(Default)]
struct Shared {
    /// Held by PE 0 during an exchange, so that no other one is under way.
    gate: Mutex<()>,
    /// An exchange has failed on some PE. Set in steps of an exchange, and read between them.
    failed: AtomicBool,
    /// Exchanges that are under way must be aborted.
    aborted: AtomicBool,
}

impl Transport for NcclTransport {
    fn rank(&self) -> usize {
        self.threads.rank()
    }

    fn size(&self) -> usize {
        self.threads.size()
    }

    fn duplicate(&self) -> Result<Arc<dyn Transport>> {
        let threads = Arc::new(self.threads.duplicate_threads()?);
        Ok(Arc::new(NcclTransport { threads, link: self.link.clone() }))
    }

    fn all_to_all_v(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()> {
        check_exchange(self.size(), send.len(), send_bytes, receive.len(), receive_bytes)?;
        let _turn = self.threads.turn()?;
        let slices = Slices::Exchange { send: send.as_ptr(), send_bytes, receive_bytes };
        // SAFETY: the slices outlive the result, and `send` was checked to be as long as its counts say.
        let mut exclusive = unsafe { self.enter(Offer { call: Call::new(Kind::AllToAll), slices }, 1)? };
        exclusive.exchange(&sent_parts(send, send_bytes), parts(receive, receive_bytes.iter().copied()))
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
        let _turn = self.threads.turn()?;
        let call = Call::broadcast(root, bytes.len());
        // SAFETY: nothing is offered.
        let mut exclusive = unsafe { self.enter(Offer { call, slices: Slices::Nothing }, 1)? };
        exclusive.broadcast(root, bytes)
    }

    fn barrier(&self) -> Result<()> {
        self.threads.barrier()
    }

    /// Aborts an exchange that is under way too: NCCL may hang in it.
    fn abort(&self, problem: &str) {
        self.threads.abort(problem);
        self.link.shared.aborted.store(true, Ordering::Release);
    }
}

impl NcclTransport {
    /// The same bits as between threads: NCCL's own reduction may add up in another order.
    fn reduce<T: Element>(
        &self,
        kind: Kind,
        values: &mut [T],
        combine: impl Fn(T, T) -> T + Copy,
    ) -> Result<()> {
        let _turn = self.threads.turn()?;
        let call = Call::reduce(kind, values.len());
        // SAFETY: nothing is offered.
        let mut exclusive = unsafe { self.enter(Offer { call, slices: Slices::Nothing }, 2)? };
        let exchange = |send: &[&[u8]], receive: Vec<&mut [u8]>| exclusive.exchange(send, receive);
        reduce_by_exchanges(self.rank(), self.size(), values, combine, exchange)
    }

    /// Waits for all PEs to offer the same call, then for exchanges of other duplicates to end.
    ///
    /// # Safety
    /// The slices are live and as long as `Slices` says until the result is dropped.
    unsafe fn enter(&self, offer: Offer, n_exchanges: u32) -> Result<Exclusive<'_>> {
        // One for the gate, two per exchange, and one in which `Shared::failed` is read for the last time.
        let n_steps = 2 + 2 * n_exchanges;
        let (threads, link) = (&*self.threads, &*self.link);
        // SAFETY: the caller's promise.
        let inside = unsafe { threads.group.enter(threads.rank(), offer, n_steps)? };
        let mut exclusive = Exclusive { inside, gate: None, threads, link };
        if threads.rank() == 0 {
            // Its holder is in an exchange that all PEs have entered: that ends without this thread.
            exclusive.gate = Some(link.shared.gate.lock().unwrap_or_else(PoisonError::into_inner));
        }
        exclusive.inside.finish_step();
        Ok(exclusive)
    }
}

impl fmt::Debug for NcclTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NcclTransport({} of {})", self.rank(), self.size())
    }
}

/// A PE's part in a collective that all PEs have come to, while no other one uses NCCL.
struct Exclusive<'a> {
    /// Dropped first: the gate opens when all PEs are done.
    inside: Inside<'a>,
    gate: Option<MutexGuard<'a, ()>>,
    threads: &'a ThreadTransport,
    link: &'a Link,
}

impl Exclusive<'_> {
    /// Ends a step. Returns `outcome` if all PEs have succeeded, else an error on all.
    fn agree<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let (rank, job, failed) = (self.threads.rank(), self.threads.group.job(), &self.link.shared.failed);
        let outcome = outcome.map_err(|error| {
            // In this order: a PE that sees the flag also finds out which PE failed.
            let first = job.fail(rank, error.to_string());
            failed.store(true, Ordering::Release);
            first
        });
        self.inside.finish_step();
        let value = outcome?;
        if failed.load(Ordering::Acquire) {
            return Err(job.fail(rank, "an exchange by NCCL has failed"));
        }
        Ok(value)
    }

    /// Sends `send[q]` to each PE `q`, and fills `receive[q]` from it. The lengths were agreed on.
    fn exchange(&mut self, send: &[&[u8]], mut receive: Vec<&mut [u8]>) -> Result<()> {
        let (rank, size) = (self.threads.rank(), self.threads.size());
        let mut send = send.to_vec();
        // A single PE sends to itself by NCCL, so that one GPU is enough to test this.
        if size > 1 {
            let own = std::mem::take(&mut send[rank]);
            std::mem::take(&mut receive[rank]).copy_from_slice(own);
        }
        self.transfer(&send, receive, |comm, stream, sent, received| {
            // Each PE begins with itself, so that not all send to the same PE at once.
            for peer in (rank..size).chain(0..rank) {
                let (to, from) = (&sent[peer], &received[peer]);
                if to.bytes > 0 {
                    let address = to.address as *const _;
                    // SAFETY: `transfer` has copied as many bytes there; they stay until the stream has passed.
                    unsafe { nccl::send(address, to.bytes, ncclUint8, peer as i32, comm, stream)? };
                }
                if from.bytes > 0 {
                    let address = from.address as *mut _;
                    // SAFETY: `transfer` has made room for as many bytes, which nothing else uses meanwhile.
                    unsafe { nccl::recv(address, from.bytes, ncclUint8, peer as i32, comm, stream)? };
                }
            }
            Ok(())
        })
    }

    /// Overwrites `bytes` with those of `root`. The length was agreed on.
    fn broadcast(&mut self, root: usize, bytes: &mut [u8]) -> Result<()> {
        let is_root = self.threads.rank() == root;
        let (send, receive) = if is_root { (vec![&*bytes], vec![]) } else { (vec![], vec![bytes]) };
        self.transfer(&send, receive, |comm, stream, sent, received| {
            let Some(&Part { address, bytes: len @ 1.. }) = sent.first().or(received.first()) else {
                return Ok(());
            };
            let (from, to) = (address as *const _, address as *mut _);
            // SAFETY: `transfer` has made room for as many bytes, and nothing else uses them meanwhile. The root's are
            // where it sends them from, which NCCL allows; the others send none.
            unsafe { nccl::broadcast(from, to, len, ncclUint8, root as i32, comm, stream).map(drop) }
        })
    }

    /// Copies `send` to the GPU, runs the NCCL `calls` as one group, on the parts' device memory, and copies `receive`
    /// back. Takes two steps.
    fn transfer(
        &mut self,
        send: &[&[u8]],
        receive: Vec<&mut [u8]>,
        calls: impl FnOnce(ncclComm_t, sys::cudaStream_t, &[Part], &[Part]) -> Result<(), NcclError>,
    ) -> Result<()> {
        let link = self.link;
        let mut queue = link.queue.lock().unwrap_or_else(PoisonError::into_inner);
        // Either all PEs call NCCL or none: a missing one would make the others wait.
        let (sent, received) = self.agree(queue.stage(send, &receive))?;
        let calls = |comm, stream| calls(comm, stream, &sent, &received);
        let outcome = queue.run(&link.shared, calls).and_then(|()| queue.fetch(&received, receive));
        self.agree(outcome)
    }
}

/// A NCCL communicator, its stream, and device memory.
struct Queue {
    /// `None` after an abort.
    comm: Option<Handle>,
    stream: Arc<CudaStream>,
    send: Staging,
    receive: Staging,
}

struct Handle(ncclComm_t);

// SAFETY: NCCL's communicators may be used by any thread, one at a time, which `Link::queue` sees to.
unsafe impl Send for Handle {}

impl Queue {
    /// Copies `send` to the device and makes room for `receive`. Returns where each part is.
    fn stage(&mut self, send: &[&[u8]], receive: &[&mut [u8]]) -> Result<(Vec<Part>, Vec<Part>)> {
        self.stream.context().bind_to_thread().map_err(device_error("use the device"))?;
        let sent = self.send.place(send.iter().map(|part| part.len()))?;
        let received = self.receive.place(receive.iter().map(|part| part.len()))?;
        let mut pairs = send.iter().zip(&sent).filter(|(part, _)| !part.is_empty());
        // SAFETY: `to` has room for as many bytes as `part` has, which stays until the copy is done, below.
        let copied = pairs.try_for_each(|(part, to)| unsafe {
            driver::memcpy_htod_async(to.address, part, self.stream.cu_stream())
        });
        // Even after an error: copies of page-locked memory may still be running.
        let done = self.stream.synchronize();
        copied.and(done).map_err(device_error("copy what is sent to the device"))?;
        Ok((sent, received))
    }

    /// Runs `calls` as one group, and waits for it.
    fn run(
        &mut self,
        shared: &Shared,
        calls: impl FnOnce(ncclComm_t, sys::cudaStream_t) -> Result<(), NcclError>,
    ) -> Result<()> {
        let Some(&Handle(comm)) = self.comm.as_ref() else { return Err(nccl_error(BROKEN_OFF)) };
        let outcome = nccl::group_start().and_then(|_| {
            let called = calls(comm, self.stream.cu_stream().cast());
            // Even after an error: the thread's later calls would belong to the group.
            let ended = nccl::group_end();
            called.and(ended)
        });
        let outcome = outcome.map_err(nccl_error).and_then(|_: NcclStatus| self.wait(comm, shared));
        if outcome.is_err() {
            self.break_off();
        }
        outcome
    }

    /// Waits until the stream is done, NCCL fails, or another PE fails.
    fn wait(&self, comm: ncclComm_t, shared: &Shared) -> Result<()> {
        loop {
            // SAFETY: the stream is live.
            match unsafe { cudarc::driver::sys::cuStreamQuery(self.stream.cu_stream()) } {
                CUresult::CUDA_SUCCESS => return Ok(()),
                CUresult::CUDA_ERROR_NOT_READY => {}
                error => return Err(device_error("exchange by NCCL")(DriverError(error))),
            }
            let mut state = ncclResult_t::ncclSuccess;
            // SAFETY: the communicator is live, and `state` is written to during the call only.
            let asked = unsafe { sys::ncclCommGetAsyncError(comm, &mut state) };
            asked.result().and_then(|_| state.result()).map_err(nccl_error)?;
            if shared.failed.load(Ordering::Acquire) || shared.aborted.load(Ordering::Acquire) {
                return Err(nccl_error(BROKEN_OFF));
            }
            std::thread::yield_now();
        }
    }

    /// Copies what was received to `receive`.
    fn fetch(&mut self, received: &[Part], receive: Vec<&mut [u8]>) -> Result<()> {
        let mut pairs = received.iter().zip(receive).filter(|(_, part)| !part.is_empty());
        // SAFETY: `from` holds as many bytes as `part`, which stays until the copy is done, below.
        let copied = pairs.try_for_each(|(from, part)| unsafe {
            driver::memcpy_dtoh_async(part, from.address, self.stream.cu_stream())
        });
        let done = self.stream.synchronize();
        copied.and(done).map_err(device_error("copy what was received to the host"))
    }

    /// Aborts the communicator and what it has under way.
    fn break_off(&mut self) {
        if let Some(Handle(comm)) = self.comm.take() {
            // SAFETY: the communicator is live, and nobody uses it any more. There is another error to report
            // already.
            let _ = unsafe { nccl::comm_abort(comm) };
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Errors can be ignored here: everything has been received.
        let _ = queue.stream.context().bind_to_thread();
        if self.shared.failed.load(Ordering::Acquire) {
            queue.break_off();
        } else if let Some(Handle(comm)) = queue.comm.take() {
            // SAFETY: the communicator is live, this was its last owner, and nothing is under way.
            let _ = unsafe { nccl::comm_destroy(comm) };
        }
        queue.send.free();
        queue.receive.free();
    }
}

/// A part of device memory.
#[derive(Clone, Copy, Debug)]
struct Part {
    address: CUdeviceptr,
    bytes: usize,
}

/// Device memory that grows as needed. From `cuMemAlloc`: NCCL lets GPUs of a process read each other's memory, which
/// memory of stream-ordered pools does not allow. The context must be current on the calling thread.
#[derive(Default)]
struct Staging {
    address: CUdeviceptr,
    bytes: usize,
}

impl Staging {
    /// Room for parts of the given `lengths`. What was there before is lost.
    fn place(&mut self, lengths: impl Iterator<Item = usize>) -> Result<Vec<Part>> {
        let (offsets, bytes) = offsets(lengths);
        self.reserve(bytes)?;
        let part = |(offset, bytes)| Part { address: self.address + offset as CUdeviceptr, bytes };
        Ok(offsets.into_iter().map(part).collect())
    }

    fn reserve(&mut self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        let grown = bytes.max(self.bytes + self.bytes / 2);
        self.free();
        // SAFETY: only what was copied or received is read.
        self.address =
            unsafe { driver::malloc_sync(grown) }.map_err(device_error("allocate for an exchange"))?;
        self.bytes = grown;
        Ok(())
    }

    fn free(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it was allocated, and nothing is under way. An error means that the context is lost.
            let _ = unsafe { driver::free_sync(self.address) };
        }
        *self = Staging::default();
    }
}

/// Parts begin at multiples of this many bytes: NCCL is slow on unaligned addresses.
const ALIGNMENT: usize = 256;

/// Where parts of the given `lengths` begin, each with its length; and the total length.
fn offsets(lengths: impl Iterator<Item = usize>) -> (Vec<(usize, usize)>, usize) {
    let mut end = 0;
    let mut place = |bytes: usize| {
        let offset = end;
        end += bytes.next_multiple_of(ALIGNMENT);
        (offset, bytes)
    };
    let parts = lengths.map(&mut place).collect();
    (parts, end)
}

/// Stands for a failure on another PE, which is reported instead.
const BROKEN_OFF: NcclError = NcclError(ncclResult_t::ncclRemoteError);

fn nccl_error(error: NcclError) -> Error {
    let NcclError(code) = error;
    Error::Device {
        operation: "NCCL",
        code: code as i32,
        name: format!("{code:?}"),
        message: "; NCCL tells more with NCCL_DEBUG=WARN in the environment".to_owned(),
    }
}

fn device_error(operation: &'static str) -> impl Fn(DriverError) -> Error {
    move |error| Error::Device {
        operation,
        code: error.0 as i32,
        name: format!("{:?}", error.0),
        message: String::new(),
    }
}

/// Runs `body` on `n_pes` threads, one per PE, PE `r` with GPU number `r`, and returns their results in rank order.
/// What fails on one PE fails on all, as in [`threads::run`].
///
/// Errors: `n_pes` is 0 or more than there are GPUs, since NCCL refuses several PEs on one; [`Error::NoCudaDevice`]
/// without a driver or a GPU; [`Error::Unavailable`] without NCCL's library; and those of `body` and communication.
pub fn run<T: Send>(
    n_pes: usize,
    body: impl Fn(Communicator, Cuda<f32>) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let ends = open(n_pes)?.into_iter().map(|end| Mutex::new(Some(end))).collect::<Vec<_>>();
    threads::run_over(n_pes, |threads| {
        let end = ends[threads.rank()].lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((link, device)) = end else { unreachable!("each PE has a thread") };
        body(Communicator::new(Arc::new(NcclTransport { threads, link: Arc::new(link) })), device)
    })
}

/// Each PE's GPU, and what connects it to the others.
fn open(n_pes: usize) -> Result<Vec<(Link, Cuda<f32>)>> {
    const ARGUMENT: &str = "number of processing elements";
    if n_pes == 0 {
        return Err(Error::invalid(ARGUMENT, n_pes, "at least 1"));
    }
    // Without a driver this is an error; counting GPUs first would panic.
    let mut devices = vec![Cuda::new(0)?];
    let n_gpus = CudaContext::device_count().map_err(device_error("count GPUs"))?;
    if i32::try_from(n_pes).map_or(true, |n_pes| n_pes > n_gpus) {
        let expected =
            format!("at most {n_gpus}, the number of GPUs: NCCL takes one processing element per GPU");
        return Err(Error::invalid(ARGUMENT, n_pes, expected));
    }
    // cudarc would panic.
    // SAFETY: looks for a library and closes it again.
    if !unsafe { sys::is_culib_present() } {
        let remedy = "install NCCL where the dynamic linker finds it as libnccl.so: packages may have libnccl.so.2 \
                      only, which needs a symbolic link of that name";
        return Err(Error::Unavailable { what: "NCCL (libnccl.so)".into(), remedy: remedy.into() });
    }
    for ordinal in 1..n_pes {
        devices.push(Cuda::new(ordinal)?);
    }
    let stream = |ordinal| CudaContext::new(ordinal)?.new_stream();
    let streams: Result<Vec<_>, _> = (0..n_pes).map(stream).collect();
    let streams = streams.map_err(device_error("create a stream"))?;
    let ordinals: Vec<i32> = (0..n_gpus).take(n_pes).collect();
    let mut comms = vec![std::ptr::null_mut(); n_pes];
    // SAFETY: both slices have `n_pes` elements, which fits, as it is no more than `n_gpus`.
    unsafe { nccl::comm_init_all(comms.as_mut_ptr(), n_pes as i32, ordinals.as_ptr()) }
        .map_err(nccl_error)?;
    let shared = Arc::new(Shared::default());
    let link = |(comm, stream)| {
        let (send, receive) = (Staging::default(), Staging::default());
        let queue = Mutex::new(Queue { comm: Some(Handle(comm)), stream, send, receive });
        Link { shared: shared.clone(), queue }
    };
    Ok(comms.into_iter().zip(streams).map(link).zip(devices).collect())
}

#[cfg(test)]
mod tests;
