//! Hints to the operating system about large regions of memory.

/// Asks for large pages: tuples are visited in random order, and with 4 kB pages every visit would
/// miss the processor's address cache as well. Small regions are left alone.
pub fn advise_huge_pages(start: *const u8, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let from = (start as usize).next_multiple_of(HUGE);
    let to = (start as usize).saturating_add(bytes) / HUGE * HUGE;
    if from < to {
        // SAFETY: the range lies inside an allocation of ours; the advice does not change its content.
        // Where it is refused nothing is lost but speed.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
}
