//! Links between GPUs by NCCL.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::driver::{Driver, Event};
use super::memory::Address;
use super::nccl::Nccl;
use super::watches::Watched;
use crate::device::LinkFailure;
use crate::error::Result;

/// What is sent to a rank, or received from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) peer: usize,
    pub(super) address: Address,
    pub(super) bytes: usize,
}

/// One GPU's end of a NCCL communicator. Its exchanges run one after the other, in whichever streams: NCCL may hang if
/// two are under way on one GPU, and others have begun them in another order.
pub struct Link {
    end: Arc<End>,
    rank: usize,
    size: usize,
}

struct End {
    nccl: Nccl,
    failure: LinkFailure,
    /// Follows the last exchange.
    last: Mutex<Option<Event>>,
}

impl Watched for End {
    fn look(&self) -> Result<()> {
        let failed = (self.failure)().map_or_else(|| self.nccl.check(), Err);
        if failed.is_err() {
            self.nccl.abort();
        }
        failed
    }

    #[cfg(any(test, not(feature = "emulate")))]
    fn is_under_way(&self) -> bool {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().is_some_and(|last| !last.is_done())
    }
}

impl Link {
    pub(super) fn new_id() -> Result<Vec<u8>> {
        Nccl::new_id()
    }

    pub(super) fn new(
        driver: &Driver,
        id: &[u8],
        [rank, size]: [usize; 2],
        failure: LinkFailure,
    ) -> Result<Self> {
        let nccl = Nccl::connect(driver, id, rank, size)?;
        let end = Arc::new(End { nccl, failure, last: Mutex::default() });
        let watched: Arc<dyn Watched> = end.clone();
        driver.watches().add(Arc::downgrade(&watched));
        Ok(Link { end, rank, size })
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Sends to each rank, and receives from it: addresses and bytes.
    ///
    /// # Safety
    /// The memory is of the device and of as many bytes, what is received to is exclusive, and the stream's memory is
    /// used again only in its order.
    pub(super) unsafe fn exchange(
        &self,
        driver: &Driver,
        sends: &[(*const u8, usize)],
        receives: &[(*mut u8, usize)],
    ) -> Result<()> {
        let mut last = self.end.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last {
            driver.wait_for(last)?;
        }
        let is_own = |peer: usize| peer == self.rank && self.size > 1;
        let part = |(peer, (address, bytes)): (usize, (*mut u8, usize))| {
            (bytes > 0 && !is_own(peer)).then_some(Part { peer, address: Address(address), bytes })
        };
        let parts_sent = sends.iter().map(|&(address, bytes)| (address.cast_mut(), bytes)).enumerate();
        let (parts_sent, parts_received) = (
            parts_sent.filter_map(part).collect(),
            receives.iter().copied().enumerate().filter_map(part).collect(),
        );
        let ((from, bytes), (to, room)) = (sends[self.rank], receives[self.rank]);
        if self.size > 1 && bytes.min(room) > 0 {
            // SAFETY: the caller's promise.
            unsafe { driver.copy_on_device(from, to, bytes.min(room))? };
        }
        // SAFETY: the caller's promise.
        unsafe { self.end.nccl.group(driver, parts_sent, parts_received)? };
        *last = Some(driver.record()?);
        Ok(())
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({} of {})", self.rank, self.size)
    }
}
