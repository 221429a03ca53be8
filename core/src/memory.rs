//! Hints to the memory system: the only unsafe code of the crate.

#![allow(unsafe_code, reason = "a prefetch is a hint: it neither reads nor writes")]

/// Bytes of a cache line.
const LINE: usize = 64;
/// Lines asked for; beyond them the processor's own prefetching has found the row.
const MOST_LINES: usize = 8;

/// Asks for the memory of a slice (its first lines) to be brought into the cache.
#[inline(always)]
pub fn prefetch<T>(slice: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        let start = slice.as_ptr().cast::<i8>();
        let bytes = size_of_val(slice);
        let mut at = 0;
        while at < bytes && at < LINE * MOST_LINES {
            // SAFETY: a prefetch of any address is harmless; this one lies in the slice.
            unsafe {
                std::arch::x86_64::_mm_prefetch(start.wrapping_add(at), std::arch::x86_64::_MM_HINT_T0);
            }
            at += LINE;
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = slice;
}
