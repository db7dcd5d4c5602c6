//! Threads that do not read each other's memory: what processes and devices do, tested without them.

use std::sync::Arc;

use super::{ThreadTransport, run_over};
use crate::comm::{Communicator, Sum, Transport};
use crate::error::Result;

/// [`run`](super::run) over a transport that shares no memory: rows are packed, sent and unpacked.
pub(crate) fn run_packed<T: Send>(
    n_pes: usize,
    body: impl Fn(Communicator) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    run_over(n_pes, |transport| body(Communicator::new(Arc::new(Packed(transport)))))
}

#[derive(Debug)]
struct Packed(Arc<ThreadTransport>);

impl Transport for Packed {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn duplicate(&self) -> Result<Arc<dyn Transport>> {
        Ok(Arc::new(Packed(Arc::new(self.0.duplicate_threads()?))))
    }

    fn all_to_all_v(
        &self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()> {
        self.0.all_to_all_v(send, send_bytes, receive, receive_bytes)
    }

    /// Emulated devices have the host's memory.
    fn takes_device_memory(&self) -> bool {
        cfg!(feature = "emulate")
    }

    unsafe fn all_to_all_v_at(
        &self,
        send: *const u8,
        send_bytes: &[usize],
        receive: *mut u8,
        receive_bytes: &[usize],
    ) -> Result<()> {
        let (n_sent, n_received) = (send_bytes.iter().sum(), receive_bytes.iter().sum());
        // SAFETY: the caller's promise, of memory of the host.
        let (send, receive) = unsafe {
            (std::slice::from_raw_parts(send, n_sent), std::slice::from_raw_parts_mut(receive, n_received))
        };
        self.0.all_to_all_v(send, send_bytes, receive, receive_bytes)
    }

    fn failure(&self) -> Option<crate::Error> {
        self.0.failure()
    }

    fn all_reduce_sum(&self, values: Sum<'_>) -> Result<()> {
        self.0.all_reduce_sum(values)
    }

    fn all_reduce_max(&self, values: &mut [f64]) -> Result<()> {
        self.0.all_reduce_max(values)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<()> {
        self.0.broadcast(root, bytes)
    }

    fn barrier(&self) -> Result<()> {
        self.0.barrier()
    }

    fn abort(&self, problem: &str) {
        self.0.abort(problem);
    }
}
