//! How far the host may be ahead of the device.

use std::collections::VecDeque;

use crate::device::Device;
use crate::error::Result;

/// Works that a device may have before it when the host gives it another one: it has the next one at hand when it ends
/// one, and the host keeps what few works still read.
const AHEAD: usize = 2;

/// The ends of works that the device may not have done.
pub(super) struct Pace<D: Device> {
    ends: VecDeque<D::Event>,
}

impl<D: Device> Pace<D> {
    pub(super) fn new() -> Self {
        Pace { ends: VecDeque::with_capacity(AHEAD + 1) }
    }

    /// A work was given to the device. Waits until the one before the last [`AHEAD`] is done.
    ///
    /// Errors: the device fails.
    pub(super) fn keep(&mut self, device: &D) -> Result<()> {
        self.ends.push_back(device.record()?);
        if self.ends.len() <= AHEAD {
            return Ok(());
        }
        self.ends.pop_front().map_or(Ok(()), |end| device.reach(&end))
    }
}
