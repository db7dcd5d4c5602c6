//! Asking for rows of memory some time before they are read: which rows, no hardware can guess.

use std::sync::OnceLock;

/// How a kernel asks for rows; take it out of the loop. What is best differs between processors (measured, see
/// `benches/NOTES.md`): AMD's want many requests under way, and all in the second-level cache, as the first level waits
/// for few lines at a time. Intel's take a fill buffer of the first level for every request, wherever it goes, and
/// complete rows by themselves from their beginnings.
#[derive(Clone, Copy)]
pub(super) struct Prefetch {
    /// How many entries ahead of the one at work rows are asked for, into the output rows that come next too.
    pub ahead: usize,
    /// Every which line of a row is asked for.
    lines: usize,
    /// Whether into the first-level cache.
    near: bool,
}

impl Prefetch {
    /// For loops that only add rows up, and have nothing else to wait for than memory.
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

    /// Asks for row `row` of `x`, `[_, dim]`, if there is such a row.
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

/// Whether this is a processor of Intel's.
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
