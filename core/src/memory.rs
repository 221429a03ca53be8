//! Hints to the memory system: the only unsafe code of the crate.

#![allow(unsafe_code, reason = "a prefetch is a hint: it neither reads nor writes")]

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines asked for; beyond them the processor's own prefetching has found the row.
const MOST_LINES: usize = 8;

/// Asks for the line of element `at` of a slice (past its end: of what follows) to be brought into the cache.
#[inline(always)]
pub fn prefetch_at<T>(slice: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let at = slice.as_ptr().wrapping_add(at).cast::<i8>();
        // SAFETY: a prefetch of any address is harmless.
        unsafe { std::arch::x86_64::_mm_prefetch(at, std::arch::x86_64::_MM_HINT_T0) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, at);
}

/// Asks for the memory of a slice (its first lines) to be brought into the cache.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    let line = LINE / size_of::<T>().clamp(1, LINE);
    let mut at = 0;
    while at < slice.len() && at < line * MOST_LINES {
        prefetch_at(slice, at);
        at += line;
    }
    // A slice rarely starts where a line does: its last element may lie one line farther.
    if !slice.is_empty() && slice.len() < line * MOST_LINES {
        prefetch_at(slice, slice.len() - 1);
    }
}
