//! What a plain Rust thread beside a backend needs: all signals blocked, and its CPU time.

use std::io;
use std::thread::{Builder, JoinHandle};

/// Starts a thread with every signal blocked.
///
/// PostgreSQL's handlers change process-wide counters and must only ever run on the backend's own
/// thread; a new thread inherits the mask of its creator, so signals are blocked around the start
/// and restored after. A signal that arrives meanwhile stays pending and is handled then.
pub fn spawn<T: Send + 'static>(name: &str, body: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
    // SAFETY: both sets are plain data filled by the calls; pthread_sigmask changes this thread only.
    let (mut all, mut old) = unsafe { (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>()) };
    // SAFETY: as above.
    let blocked = unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut old)
    };
    if blocked != 0 {
        return Err(io::Error::from_raw_os_error(blocked));
    }
    let handle = Builder::new().name(name.into()).stack_size(1 << 20).spawn(body);
    // SAFETY: `old` was filled by the successful call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &old, std::ptr::null_mut()) };
    handle
}

/// CPU time of the calling thread in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Wall time in nanoseconds: read without a call of the system.
#[inline(always)]
pub fn wall_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

#[inline(always)]
fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the struct; the clock exists on every Linux.
    unsafe { libc::clock_gettime(clock, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
