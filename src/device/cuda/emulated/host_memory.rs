//! Which host memory is page-locked, and what still copies from or to it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// All page-locked memory of the process, by address.
#[derive(Default)]
struct Locked {
    /// Bytes, by the address where they begin.
    bytes: HashMap<usize, usize>,
    /// Copies that have not run, by number.
    pending: HashMap<u64, Range<usize>>,
    n_copies: u64,
}

fn locked() -> MutexGuard<'static, Locked> {
    static LOCKED: OnceLock<Mutex<Locked>> = OnceLock::new();
    LOCKED.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

fn range(memory: *const u8, bytes: usize) -> Range<usize> {
    memory.addr()..memory.addr() + bytes
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Whether the memory is whole pages. CUDA would lock all pages that it touches, and so those of others, who then
/// cannot lock theirs, and whose memory is unlocked with it.
pub(super) fn is_whole_pages(memory: *const u8, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    bytes > 0 && memory.addr().is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE)
}

/// Whether the memory could be locked: CUDA refuses what is locked in part already.
pub(super) fn lock(memory: *const u8, bytes: usize) -> bool {
    let (new, mut locked) = (range(memory, bytes), locked());
    let is_free = locked.bytes.iter().all(|(&start, &bytes)| !overlap(&(start..start + bytes), &new));
    if is_free {
        locked.bytes.insert(new.start, bytes);
    }
    is_free
}

/// Whether nothing still copied from or to the memory.
pub(super) fn unlock(memory: *const u8) -> bool {
    let mut locked = locked();
    let Some(bytes) = locked.bytes.remove(&memory.addr()) else { return true };
    let old = range(memory, bytes);
    locked.pending.values().all(|pending| !overlap(pending, &old))
}

/// A copy from or to page-locked memory that has not run yet.
pub(super) struct Pending(u64);

impl Pending {
    /// `None` if not all of the memory is page-locked.
    pub(super) fn new(memory: *const u8, bytes: usize) -> Option<Self> {
        let (asked, mut locked) = (range(memory, bytes), locked());
        let holds = |(&start, &bytes): (&usize, &usize)| start <= asked.start && asked.end <= start + bytes;
        locked.bytes.iter().any(holds).then(|| {
            locked.n_copies += 1;
            let number = locked.n_copies;
            locked.pending.insert(number, asked);
            Pending(number)
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        locked().pending.remove(&self.0);
    }
}
