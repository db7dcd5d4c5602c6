//! Host memory: cache-line aligned buffers that go back to a pool when they are dropped.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memmap2::MmapMut;

use crate::device::{Element, buffer_bytes};
use crate::error::{Result, try_zeroed};
use crate::huge_pages::{self, HUGE_PAGE};

/// One cache line: what buffers are made of, so that rows can start on vector boundaries.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Allocated memory. Contents are unspecified, but always initialised.
enum Memory {
    Lines(Vec<Line>),
    /// Pages of its own. Of huge ones, each random row of a large matrix costs one miss less, that of the page table;
    /// page locks take whole pages, and must not take those of others.
    Pages(MmapMut),
}

impl Memory {
    /// In pages of its own if they are to be locked, or are huge.
    ///
    /// Errors: the system has no memory.
    fn new(n_lines: usize, is_locked: bool) -> Result<Self> {
        let bytes = n_lines * size_of::<Line>();
        if bytes > 0
            && (is_locked || bytes.is_multiple_of(HUGE_PAGE))
            && let Ok(map) = MmapMut::map_anon(bytes)
        {
            huge_pages::prefer(&map);
            return Ok(Memory::Pages(map));
        }
        let asked = "the arrays of a batch, a model or a whole graph are too large";
        Ok(Memory::Lines(try_zeroed("a buffer", n_lines, asked)?))
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice(lines),
            Memory::Pages(map) => map,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Lines(lines) => bytemuck::cast_slice_mut(lines),
            Memory::Pages(map) => map,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Lines(Vec::new())
    }
}

/// Memory of a size class.
#[derive(Default)]
struct Block {
    memory: Memory,
    /// What has page-locked it, if anything has.
    lock: Option<Arc<dyn PageLock>>,
}

impl Block {
    fn new(n_lines: usize, page_lock: Option<&Arc<dyn PageLock>>) -> Result<Self> {
        let page_lock = page_lock.filter(|_| n_lines * size_of::<Line>() >= MIN_LOCKED_BYTES);
        let mut memory = Memory::new(n_lines, page_lock.is_some())?;
        let lock = page_lock.filter(|lock| match &mut memory {
            // SAFETY: `drop` unlocks the memory before it is freed. The pages are the mapping's own.
            Memory::Pages(map) => unsafe { lock.lock(map.as_mut_ptr(), map.len()) },
            Memory::Lines(_) => false,
        });
        Ok(Block { memory, lock: lock.cloned() })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            // SAFETY: it was locked by `new`, and a copy from it holds the buffer until the copy is done.
            unsafe { lock.unlock(self.memory.bytes_mut().as_mut_ptr()) };
        }
    }
}

/// Page-locks memory, so that a device can copy from it directly.
pub(in crate::device) trait PageLock: Send + Sync {
    /// Whether `bytes` bytes at `memory`, which are whole pages, could be locked.
    ///
    /// # Safety
    /// The memory stays allocated until it is unlocked.
    unsafe fn lock(&self, memory: *mut u8, bytes: usize) -> bool;

    /// # Safety
    /// `memory` was locked, and no copy from it is under way.
    unsafe fn unlock(&self, memory: *mut u8);
}

/// Smaller blocks are not locked: copies of them are short anyway, and whole pages would waste much of each.
const MIN_LOCKED_BYTES: usize = 1 << 18;
/// Locked blocks are multiples of this, and so of whole pages: no system has larger ones, but for huge pages.
const LOCKED_STEP: usize = 1 << 16;

/// Memory of a [`Cpu`](super::Cpu) device, as a slice. When dropped, it goes back to the device's pool.
pub struct CpuBuffer<T: Element> {
    block: Block,
    len: usize,
    pool: Arc<Pool>,
    element: PhantomData<T>,
}

impl<T: Element> Deref for CpuBuffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &bytemuck::cast_slice(self.block.memory.bytes())[..self.len]
    }
}

impl<T: Element> DerefMut for CpuBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut bytemuck::cast_slice_mut(self.block.memory.bytes_mut())[..self.len]
    }
}

impl<T: Element> std::fmt::Debug for CpuBuffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuBuffer({} x {})", self.len, std::any::type_name::<T>())
    }
}

impl<T: Element> Drop for CpuBuffer<T> {
    fn drop(&mut self) {
        self.pool.take_back(std::mem::take(&mut self.block));
    }
}

/// Bytes held by a device's buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Bytes of live buffers.
    pub live_bytes: u64,
    /// The most bytes of live buffers at any time since the last reset.
    pub peak_bytes: u64,
    /// Bytes of the largest buffer allocated since the last reset.
    pub largest_bytes: u64,
    /// Bytes of free buffers kept for reuse.
    pub pooled_bytes: u64,
}

/// Free memory by size class, and the counts of what is in use.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    page_lock: Option<Arc<dyn PageLock>>,
}

#[derive(Default)]
struct State {
    free: HashMap<usize, Vec<Block>>,
    statistics: MemoryStatistics,
}

/// Free memory beyond this many bytes is given back to the system, which bounds the memory of long runs with many
/// shapes.
const MAX_POOLED_BYTES: u64 = 4 << 30;

/// Rounds up to one of four sizes per power of two, so that batches of about the same size reuse each other's memory.
fn size_class(n_lines: usize) -> usize {
    if n_lines <= 8 {
        return n_lines;
    }
    let step = (n_lines.next_power_of_two() / 8).max(1);
    n_lines.div_ceil(step) * step
}

impl Pool {
    /// A pool of memory that is locked by `page_lock`.
    #[cfg(any(feature = "cuda", feature = "emulate", test))]
    pub(super) fn page_locked(page_lock: Arc<dyn PageLock>) -> Self {
        Pool { state: Mutex::default(), page_lock: Some(page_lock) }
    }

    /// A buffer with unspecified contents.
    ///
    /// Errors: the system has no memory, even after what is kept for reuse has been given back to it.
    pub(super) fn allocate<T: Element>(self: &Arc<Self>, len: usize) -> Result<CpuBuffer<T>> {
        let n_bytes = buffer_bytes::<T>(len)?;
        let n_lines = self.size_class(n_bytes.div_ceil(size_of::<Line>()));
        let bytes = (n_lines * size_of::<Line>()) as u64;
        let mut state = self.state();
        let reused = state.free.get_mut(&n_lines).and_then(Vec::pop);
        if reused.is_some() {
            state.statistics.pooled_bytes -= bytes;
        }
        drop(state);
        let block = match reused {
            Some(block) => block,
            None => Block::new(n_lines, self.page_lock.as_ref()).or_else(|_| {
                self.give_back();
                Block::new(n_lines, self.page_lock.as_ref())
            })?,
        };
        let statistics = &mut self.state().statistics;
        statistics.live_bytes += bytes;
        statistics.peak_bytes = statistics.peak_bytes.max(statistics.live_bytes);
        statistics.largest_bytes = statistics.largest_bytes.max(n_bytes as u64);
        Ok(CpuBuffer { block, len, pool: self.clone(), element: PhantomData })
    }

    /// As [`size_class`], in whole pages where they are locked.
    fn size_class(&self, n_lines: usize) -> usize {
        let class = size_class(n_lines);
        let is_locked = self.page_lock.is_some() && class * size_of::<Line>() >= MIN_LOCKED_BYTES;
        if is_locked { class.next_multiple_of(LOCKED_STEP / size_of::<Line>()) } else { class }
    }

    /// Frees all memory that is kept for reuse.
    fn give_back(&self) {
        let mut state = self.state();
        let free = std::mem::take(&mut state.free);
        state.statistics.pooled_bytes = 0;
        // Freeing may take long: others go on meanwhile.
        drop(state);
        drop(free);
    }

    fn take_back(&self, block: Block) {
        let bytes = block.memory.bytes().len() as u64;
        let mut state = self.state();
        state.statistics.live_bytes -= bytes;
        if bytes > 0 && state.statistics.pooled_bytes + bytes <= MAX_POOLED_BYTES {
            state.statistics.pooled_bytes += bytes;
            state.free.entry(bytes as usize / size_of::<Line>()).or_default().push(block);
        }
    }

    pub(super) fn statistics(&self) -> MemoryStatistics {
        self.state().statistics
    }

    pub(super) fn reset_peak(&self) {
        let statistics = &mut self.state().statistics;
        statistics.peak_bytes = statistics.live_bytes;
        statistics.largest_bytes = 0;
    }

    /// The counters and lists stay consistent at every unlock, so a panic elsewhere does not spoil them.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn memory_is_aligned_reused_and_counted() {
        let pool = Arc::new(Pool::default());
        let first = pool.allocate::<f32>(1000).unwrap();
        let address = first.as_ptr();
        assert!(address.is_aligned_to_line());
        let live = pool.statistics().live_bytes;
        assert!((4000..=5120).contains(&live), "{live}");
        drop(first);
        assert_eq!(pool.statistics().live_bytes, 0);
        assert_eq!(pool.statistics().pooled_bytes, live);
        let second = pool.allocate::<u64>(500).unwrap();
        assert_eq!(second.as_ptr().cast(), address);
        assert_eq!(pool.statistics().pooled_bytes, 0);
        assert_eq!(pool.statistics().peak_bytes, live);
        assert_eq!(pool.statistics().largest_bytes, 4000);
    }

    #[test]
    fn large_memory_is_aligned_zeroed_and_reused_too() {
        for bytes in [HUGE_PAGE, 2 * HUGE_PAGE, 2 * HUGE_PAGE + 4, 5 * HUGE_PAGE + HUGE_PAGE / 2] {
            let pool = Arc::new(Pool::default());
            let mut first = pool.allocate::<f32>(bytes / 4).unwrap();
            let address = first.as_ptr();
            assert!(address.is_aligned_to_line());
            assert!(first.iter().all(|&value| value == 0.0));
            first.fill(1.0);
            drop(first);
            let second = pool.allocate::<f32>(bytes / 4).unwrap();
            assert!(second.as_ptr() == address && second.iter().all(|&value| value == 1.0));
        }
    }

    #[test]
    fn classes_cover_and_waste_at_most_a_quarter() {
        for n in 0..5000 {
            let class = size_class(n);
            assert!(class >= n && class <= n + n / 4, "{n} -> {class}");
        }
    }

    #[test]
    fn absurd_sizes_are_an_error() {
        let allocate = |len| Arc::new(Pool::default()).allocate::<f64>(len).map(|_| ());
        let limit = (isize::MAX / 2 / 8) as u64;
        // The limit is in elements, as the count is.
        for len in [limit as usize + 1, usize::MAX / 8 + 1, usize::MAX / 2] {
            let error = allocate(len).unwrap_err();
            let (count, found) = match error {
                Error::TooLarge { count, limit, .. } => (count, limit),
                error => panic!("{error}"),
            };
            assert_eq!((count, found), (len as u64, limit));
        }
    }

    /// Refuses the first lock, grants the others, and counts.
    #[derive(Default)]
    struct Counter {
        locked: std::sync::atomic::AtomicUsize,
        unlocked: std::sync::atomic::AtomicUsize,
    }

    impl PageLock for Counter {
        unsafe fn lock(&self, memory: *mut u8, bytes: usize) -> bool {
            assert!(bytes >= MIN_LOCKED_BYTES);
            // Whole pages, even where they are of 64 KiB.
            assert!(memory.addr().is_multiple_of(4096) && bytes.is_multiple_of(1 << 16));
            self.locked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) > 0
        }
        unsafe fn unlock(&self, _: *mut u8) {
            self.unlocked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Large blocks are locked once, though they are used again, and those that were locked are unlocked.
    #[test]
    fn page_locks_are_balanced() {
        let counter = Arc::new(Counter::default());
        let counts = || {
            [&counter.locked, &counter.unlocked].map(|count| count.load(std::sync::atomic::Ordering::Relaxed))
        };
        let pool = Arc::new(Pool::page_locked(counter.clone()));
        drop(pool.allocate::<u8>(MIN_LOCKED_BYTES / 2).unwrap());
        assert_eq!(counts(), [0, 0]);
        // The first request is refused.
        let (first, second) = (pool.allocate::<u8>(MIN_LOCKED_BYTES), pool.allocate::<f64>(MIN_LOCKED_BYTES));
        assert_eq!(counts(), [2, 0]);
        drop((first, second));
        drop(pool.allocate::<f64>(MIN_LOCKED_BYTES).unwrap());
        assert_eq!(counts(), [2, 0]);
        drop(pool);
        assert_eq!(counts(), [2, 1]);
    }

    /// Of whatever size they are.
    #[test]
    fn page_locks_are_of_whole_pages() {
        let pool = Arc::new(Pool::page_locked(Arc::new(Counter::default())));
        for len in [MIN_LOCKED_BYTES - 1, MIN_LOCKED_BYTES + 1, 300_001, 1_000_000, HUGE_PAGE + 1, 5_000_000]
        {
            let mut buffer = pool.allocate::<u8>(len).unwrap();
            assert_eq!(buffer.len(), len);
            buffer.fill(7);
        }
        assert_eq!(pool.statistics().live_bytes, 0);
    }

    trait LineAligned {
        fn is_aligned_to_line(&self) -> bool;
    }
    impl<T> LineAligned for *const T {
        fn is_aligned_to_line(&self) -> bool {
            self.addr().is_multiple_of(64)
        }
    }
}
