//! Huge pages for large arrays.
//!
//! Kernels that read rows or neighbours at random spend much of their time on page table walks, one for every page that
//! is not in the TLB: with pages of 2 MiB instead of 4 KiB, most of these walks go away. Where the system has no huge
//! pages, nothing happens.

/// Bytes of a huge page.
pub(crate) const HUGE_PAGE: usize = 1 << 21;

/// Asks the system to use huge pages for `memory`, none of which has been touched yet.
pub(crate) fn prefer<T>(memory: &[T]) {
    #[cfg(target_os = "linux")]
    advise(memory, libc::MADV_HUGEPAGE);
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Moves `memory` to huge pages. Takes about as long as a copy.
pub(crate) fn collapse<T>(memory: &[T]) {
    #[cfg(target_os = "linux")]
    {
        advise(memory, libc::MADV_HUGEPAGE);
        advise(memory, libc::MADV_COLLAPSE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

/// Tells the system how the whole huge pages within `memory` are used.
#[cfg(target_os = "linux")]
fn advise<T>(memory: &[T], advice: libc::c_int) {
    let begin = memory.as_ptr() as usize;
    let (first, last) = (begin.next_multiple_of(HUGE_PAGE), (begin + size_of_val(memory)) & !(HUGE_PAGE - 1));
    if first < last {
        // SAFETY: the pages lie inside the slice, and neither advice changes their contents. If the system refuses,
        // only speed suffers.
        unsafe { libc::madvise(first as *mut libc::c_void, last - first, advice) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_and_short_memory_is_left_alone() {
        for bytes in [0, 1, HUGE_PAGE - 1, HUGE_PAGE, 3 * HUGE_PAGE + 5] {
            let memory: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            collapse(&memory);
            prefer(&memory[bytes / 3..]);
            assert!(memory.iter().enumerate().all(|(i, &byte)| byte == (i % 251) as u8), "{bytes} bytes");
        }
    }
}
