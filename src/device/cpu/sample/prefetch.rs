//! Prefetches single elements.

/// Prefetches the cache line of `slice[index]`. Never faults: an index beyond the slice prefetches nothing.
#[inline(always)]
pub(super) fn prefetch<T>(slice: &[T], index: usize) {
    if index < slice.len() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: `index < slice.len()`, so the address is inside the slice; the instruction reads nothing that the
        // program can see, and SSE is part of every x86-64 target.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T1>(slice.as_ptr().add(index).cast());
        }
    }
}
