//! A short measurement of how fast a disk gives blocks of each size: random reads of a table's own file,
//! past the system's cache where the file system can do that (O_DIRECT), so that nothing is evicted and
//! the disk is what is measured.
//!
//! Plain file reads: nothing of the server is used, and nothing is written.

use super::thread;
use corgipile_core::disk::PROBED;
use corgipile_core::permute::{Stream, below, generator};
use pgrx::PgMemoryContexts;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Largest single read, of one reader alone and of each of several: a cancel is noticed after one of these.
const CHUNK: usize = 1 << 20;
const SHARED_CHUNK: usize = CHUNK / 4;
/// What O_DIRECT wants addresses and lengths to be multiples of.
const ALIGNMENT: usize = 4096;

/// A file that is read at random places.
struct Target {
    file: File,
    bytes: u64,
    direct: bool,
    chunk: usize,
}

impl Target {
    fn open(path: &Path, chunk: usize) -> io::Result<Self> {
        let direct = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        let (file, direct) = match direct {
            Ok(file) => (file, true),
            Err(_) => (File::open(path)?, false),
        };
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes, direct, chunk })
    }

    /// Reads `block` bytes at block number `number`; `go_on` is told the bytes of each chunk.
    fn read(
        &self,
        number: u64,
        block: usize,
        buffer: &mut Buffer,
        go_on: &mut dyn FnMut(usize) -> bool,
    ) -> io::Result<()> {
        let from = number * block as u64;
        if !self.direct {
            // Without O_DIRECT the system's cache must forget the block first.
            // SAFETY: advice about an open file's range.
            unsafe {
                libc::posix_fadvise(
                    self.file.as_raw_fd(),
                    from as libc::off_t,
                    block as libc::off_t,
                    libc::POSIX_FADV_DONTNEED,
                )
            };
        }
        let mut done = 0;
        while done < block {
            let chunk = (block - done).min(self.chunk);
            self.file.read_exact_at(buffer.aligned(chunk), from + done as u64)?;
            done += chunk;
            if !go_on(chunk) {
                break;
            }
        }
        Ok(())
    }
}

/// Room for a chunk at an aligned address.
struct Buffer(Vec<u8>);

impl Buffer {
    fn new() -> io::Result<Self> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(CHUNK + ALIGNMENT).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        bytes.resize(CHUNK + ALIGNMENT, 0);
        Ok(Self(bytes))
    }

    fn aligned(&mut self, bytes: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(ALIGNMENT);
        &mut self.0[skip..skip + bytes]
    }
}

/// Bytes per second at one block size and number of readers.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// Bytes of a block.
    pub block: usize,
    /// Blocks read at the same time.
    pub parallelism: usize,
    /// Bytes per second in all.
    pub bandwidth: f64,
}

/// Bytes read per second in blocks of `block`, for about `time`; `None` if the file is too small for it.
fn alone(path: &Path, block: usize, time: Duration, go_on: &mut dyn FnMut() -> bool) -> io::Result<Option<f64>> {
    let target = Target::open(path, CHUNK)?;
    let blocks = (target.bytes / block as u64).min(u64::from(u32::MAX)) as u32;
    if blocks < 2 {
        return Ok(None);
    }
    let mut buffer = Buffer::new()?;
    let started = Instant::now();
    let mut rng = generator(started.elapsed().as_nanos() as i64 ^ block as i64, Stream::Sample, 0, 0);
    // A disk that is shared or rented gives more at first than it does for long: that is not counted.
    let (mut read, mut from) = (0u64, None);
    while started.elapsed() < time {
        if from.is_none() && started.elapsed() > time / 3 {
            (read, from) = (0, Some(Instant::now()));
        }
        target.read(u64::from(below(&mut rng, blocks)), block, &mut buffer, &mut |bytes| {
            read += bytes as u64;
            go_on() && started.elapsed() < time
        })?;
    }
    let bandwidth = read as f64 / from.unwrap_or(started).elapsed().as_secs_f64();
    Ok((read > 0).then_some(bandwidth))
}

/// Readers that end, and are joined, when this is dropped.
struct Readers {
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    handles: Vec<JoinHandle<()>>,
}

impl Readers {
    fn start(path: &Path, block: usize, readers: usize) -> io::Result<Self> {
        let (stop, read) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut this = Self { stop, read, handles: Vec::new() };
        for number in 0..readers {
            let (stop, read, path) = (Arc::clone(&this.stop), Arc::clone(&this.read), PathBuf::from(path));
            let body = move || {
                // A file that cannot be read any more ends the reader; the others are counted.
                let _ = reader(&path, block, number, &stop, &read);
            };
            this.handles.push(thread::spawn("corgipile probe", body)?);
        }
        Ok(this)
    }
}

fn reader(path: &Path, block: usize, number: usize, stop: &AtomicBool, read: &AtomicU64) -> io::Result<()> {
    let target = Target::open(path, SHARED_CHUNK)?;
    let mut buffer = Buffer::new()?;
    let mut rng = generator(number as i64, Stream::Sample, 0, block as u32);
    let blocks = (target.bytes / block as u64).min(u64::from(u32::MAX)) as u32;
    while blocks > 0 && !stop.load(Ordering::Relaxed) {
        target.read(u64::from(below(&mut rng, blocks)), block, &mut buffer, &mut |bytes| {
            read.fetch_add(bytes as u64, Ordering::Relaxed);
            !stop.load(Ordering::Relaxed)
        })?;
    }
    Ok(())
}

impl Readers {
    /// Ends them.
    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for handle in self.handles.drain(..) {
            // At most one chunk is being read; a reader does not panic, and if it did it is over.
            drop(handle.join());
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.end();
    }
}

/// Measures blocks of each size of [`PROBED`] that the file has at least two of, by each number of readers,
/// in about `time` in all. `check` looks for interrupts, and may raise an error.
pub fn probe(path: &Path, parallelism: &[usize], time: Duration, check: impl Fn()) -> io::Result<Vec<Measured>> {
    let each = time / (PROBED.len() * parallelism.len()).max(1) as u32;
    let mut all = Vec::new();
    for readers in parallelism.iter().copied() {
        for block in PROBED {
            check();
            let bandwidth = if readers == 1 {
                let mut go_on = || {
                    check();
                    true
                };
                alone(path, block, each, &mut go_on)?
            } else {
                let started = Instant::now();
                let running = Readers::start(path, block, readers)?;
                // With the memory context they end also where the session is, which does not unwind.
                let running = PgMemoryContexts::CurrentMemoryContext.leak_and_drop_on_delete(running);
                // SAFETY: it lives as long as the context, and nothing else refers to it.
                let running = unsafe { &mut *running };
                while started.elapsed() < each {
                    check();
                    std::thread::sleep(Duration::from_millis(5).min(each));
                }
                let read = running.read.load(Ordering::Relaxed);
                let bandwidth = read as f64 / started.elapsed().as_secs_f64();
                running.end();
                (read > 0).then_some(bandwidth)
            };
            all.extend(bandwidth.map(|bandwidth| Measured { block, parallelism: readers, bandwidth }));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = Buffer::new().expect("memory");
        assert_eq!(buffer.aligned(CHUNK).as_ptr() as usize % ALIGNMENT, 0);
        assert_eq!(buffer.aligned(8192).len(), 8192);
    }
}
