//! Prefetches rows some time before they are read: no hardware can guess which rows these are.

use std::sync::OnceLock;

/// How a kernel prefetches rows; make it outside of the loop. What is best differs between processors (measured, see
/// `benches/NOTES.md`). AMD's need many prefetches in flight, all into the second-level cache, as the first level can
/// wait for few lines at a time. Intel's use a fill buffer of the first level for every prefetch, whichever level it is
/// for, and fetch the rest of a row by themselves from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Prefetch {
    /// How many entries ahead of the current one rows are prefetched; these may belong to the next output rows.
    pub ahead: usize,
    /// Every `lines`-th cache line of a row is prefetched.
    lines: usize,
    /// Whether rows go into the first-level cache.
    near: bool,
}

impl Prefetch {
    /// For loops that only add up rows, and wait for nothing but memory.
    pub(super) fn for_sums() -> Self {
        if is_intel() { Prefetch { ahead: 32, lines: 8, near: true } } else { Self::AMD }
    }

    /// For loops that calculate more with a row.
    pub(super) fn for_products() -> Self {
        if is_intel() { Prefetch { ahead: 16, lines: 1, near: true } } else { Self::AMD }
    }

    /// For loops that copy rows.
    pub(super) fn for_copies() -> Self {
        Prefetch { ahead: if is_intel() { 24 } else { 16 }, lines: 1, near: false }
    }

    /// For loops that add up rows of a table larger than the caches, few of them twice.
    pub(super) fn for_table_sums() -> Self {
        if is_intel() { Prefetch { ahead: 64, lines: 1, near: false } } else { Self::AMD }
    }

    /// With 8 entries, products on graphs beyond the caches ran at half the speed.
    const AMD: Self = Prefetch { ahead: 32, lines: 1, near: false };

    /// Prefetches row `row` of `x`, `[_, dim]`, if there is such a row.
    #[inline(always)]
    pub(super) fn row<T>(self, x: &[T], dim: usize, row: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(row) = x.get(row.wrapping_mul(dim)..).and_then(|rest| rest.get(..dim)) {
            use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
            let lines = row.chunks((64 / size_of::<T>()).max(1) * self.lines);
            let lines = lines.map(|line| line.as_ptr().cast());
            // SAFETY: the pointers are those of a slice's elements; a prefetch reads nothing and never faults.
            unsafe {
                if self.near {
                    lines.for_each(|line| _mm_prefetch::<_MM_HINT_T0>(line));
                } else {
                    lines.for_each(|line| _mm_prefetch::<_MM_HINT_T1>(line));
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (x, dim, row);
    }
}

/// Whether this is an Intel processor.
fn is_intel() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        static IS_INTEL: OnceLock<bool> = OnceLock::new();
        *IS_INTEL.get_or_init(|| {
            let id = std::arch::x86_64::__cpuid(0);
            [id.ebx, id.edx, id.ecx].map(u32::to_le_bytes).concat() == b"GenuineIntel"
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}
