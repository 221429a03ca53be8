//! Hints to the memory system: the only unsafe code of the crate.

#![allow(unsafe_code, reason = "a prefetch is a hint: it neither reads nor writes")]

/// Bytes of a cache line.
pub const LINE: usize = 64;
/// Lines asked for; beyond them the processor's own prefetching has found the row.
const MOST_LINES: usize = 8;

/// Asks for the line of element `at` of a slice (past its end: of what follows) to be brought into the cache.
#[inline(always)]
pub fn prefetch_at<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let at = slice.as_ptr().wrapping_add(at).cast::<i8>();
        // SAFETY: a prefetch of any address is harmless.
        unsafe { std::arch::x86_64::_mm_prefetch(at, std::arch::x86_64::_MM_HINT_T1) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// Asks for the memory of a slice (its first lines) to be brought into the cache.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        let start = slice.as_ptr().cast::<i8>();
        let bytes = size_of_val(slice);
        let mut at = 0;
        let ask = |at: usize| {
            // SAFETY: a prefetch of any address is harmless; this one lies in the slice.
            unsafe {
                std::arch::x86_64::_mm_prefetch(start.wrapping_add(at), std::arch::x86_64::_MM_HINT_T1);
            }
        };
        while at < bytes && at < LINE * MOST_LINES {
            ask(at);
            at += LINE;
        }
        // A slice rarely starts where a line does: its last byte may lie one line farther.
        if bytes > 0 && bytes < LINE * MOST_LINES {
            ask(bytes - 1);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
}
