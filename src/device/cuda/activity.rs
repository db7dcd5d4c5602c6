//! Counts of what costs time beside the kernels: waits, launches, copies.

use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a device has been asked to do since it was opened. The difference of two is what was asked in between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Times that the host waited for the device.
    pub waits: u64,
    /// Times that the host waited for an event of earlier work, while later work was queued: a device that is not
    /// behind costs nothing then, and one that is does not run dry.
    pub waits_for_events: u64,
    /// Kernels launched. Those that CUDA's own libraries launch are not counted; on a GPU, those of all devices of the
    /// process are.
    pub launches: u64,
    /// Bytes copied to the device.
    pub bytes_to_device: u64,
    /// Bytes copied to the host.
    pub bytes_to_host: u64,
}

impl Sub for Activity {
    type Output = Activity;

    fn sub(self, earlier: Activity) -> Activity {
        Activity {
            waits: self.waits - earlier.waits,
            waits_for_events: self.waits_for_events - earlier.waits_for_events,
            launches: self.launches - earlier.launches,
            bytes_to_device: self.bytes_to_device - earlier.bytes_to_device,
            bytes_to_host: self.bytes_to_host - earlier.bytes_to_host,
        }
    }
}

/// The counts as they go up.
#[derive(Default)]
pub(super) struct Counters {
    waits: AtomicU64,
    waits_for_events: AtomicU64,
    bytes_to_device: AtomicU64,
    bytes_to_host: AtomicU64,
}

impl Counters {
    pub(super) fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn wait_for_event(&self) {
        self.waits_for_events.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn copy_to_device(&self, bytes: usize) {
        self.bytes_to_device.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn copy_to_host(&self, bytes: usize) {
        self.bytes_to_host.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn activity(&self, launches: u64) -> Activity {
        let counts = [&self.waits, &self.waits_for_events, &self.bytes_to_device, &self.bytes_to_host];
        let [waits, waits_for_events, bytes_to_device, bytes_to_host] =
            counts.map(|n| n.load(Ordering::Relaxed));
        Activity { waits, waits_for_events, launches, bytes_to_device, bytes_to_host }
    }
}
