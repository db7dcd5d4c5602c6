//! What devices let other devices of the process read: by a number, which threads can tell each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::memory::Address;
use super::{Cuda, CudaView, CudaViewMut, Event};
use crate::device::{Element, Offer, Scalar};
use crate::error::{Error, Result};

/// Memory, and the event after which it holds what was offered.
struct Offered {
    address: Address,
    bytes: usize,
    ready: Event,
}

#[derive(Default)]
struct Offers {
    last: u64,
    offered: HashMap<u64, Arc<Offered>>,
}

fn offers() -> MutexGuard<'static, Offers> {
    static OFFERS: OnceLock<Mutex<Offers>> = OnceLock::new();
    OFFERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the offer when it is dropped.
struct Withdraw(u64);

impl Drop for Withdraw {
    fn drop(&mut self) {
        offers().offered.remove(&self.0);
    }
}

fn find(number: u64) -> Result<Arc<Offered>> {
    let found = offers().offered.get(&number).cloned();
    found.ok_or_else(|| Error::invalid("offer", number, "one that has not been withdrawn"))
}

impl<S: Scalar> Cuda<S> {
    pub(super) fn offer_view<T: Element>(&self, x: CudaView<'_, T>) -> Result<Offer> {
        self.stream()?;
        let ready = self.driver().record()?;
        let address = Address(x.pointer().cast_mut().cast());
        let offered = Offered { address, bytes: x.len() * size_of::<T>(), ready };
        let mut offers = offers();
        offers.last += 1;
        let number = offers.last;
        offers.offered.insert(number, Arc::new(offered));
        Ok(Offer::new(number, Withdraw(number)))
    }

    pub(super) fn copy_from_offer<T: Element>(
        &self,
        number: u64,
        start: usize,
        out: CudaViewMut<'_, T>,
    ) -> Result<()> {
        self.stream()?;
        let offered = find(number)?;
        let (start, bytes) = (start * size_of::<T>(), out.len() * size_of::<T>());
        if start + bytes > offered.bytes {
            let expected = format!("at most {}, the offer's bytes", offered.bytes);
            return Err(Error::invalid("end of the rows to be copied", start + bytes, expected));
        }
        self.driver().wait_for(&offered.ready)?;
        let from = offered.address.0.wrapping_add(start);
        // SAFETY: the offer holds as many bytes from there on, `out` is exclusive, and who has made the offer keeps its
        // memory until the copy is done: it waits for an event after it.
        unsafe { self.driver().copy_from_peer(from, out.pointer().cast(), bytes) }
    }
}
