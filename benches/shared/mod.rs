//! Buffers of made-up tuples for the benches.

use corgipile_core::permute::{Stream, generator, shuffle};
use corgipile_core::tuples::{Density, Features, TupleBuffer};

/// Bytes of a buffer: far beyond the caches.
pub const BUFFER: usize = 256 << 20;

/// Large pages, as the extension asks for: with small ones every visit misses the address cache.
#[allow(unsafe_code, reason = "madvise")]
fn huge_pages(start: *const u8, bytes: usize) {
    const HUGE: usize = 2 << 20;
    let from = (start as usize).next_multiple_of(HUGE);
    let to = (start as usize + bytes) / HUGE * HUGE;
    if from < to {
        // SAFETY: the range lies inside an allocation; the advice does not change its content.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
}

fn numbers(n: usize) -> impl Iterator<Item = f32> {
    (0..n as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5)
}

pub fn dense(dims: usize) -> TupleBuffer {
    let rows = BUFFER / (dims * 4 + 8);
    let mut buffer = TupleBuffer::new(Density::Dense(dims), BUFFER);
    buffer.reserve_all(huge_pages).expect("memory");
    let mut row = Vec::with_capacity(dims);
    let mut all = numbers(rows * dims);
    for i in 0..rows {
        row.clear();
        row.extend(all.by_ref().take(dims));
        buffer.push(if i % 2 == 0 { 1.0 } else { -1.0 }, Features::Dense(&row)).expect("fits");
    }
    buffer
}

pub fn sparse(nonzeros: usize, dims: u32) -> TupleBuffer {
    let rows = BUFFER / (nonzeros * 8 + 16);
    let mut buffer = TupleBuffer::new(Density::Sparse, BUFFER);
    buffer.reserve_all(huge_pages).expect("memory");
    let mut order: Vec<u32> = (0..dims).collect();
    let mut rng = generator(1, Stream::Tuples, 0, 0);
    shuffle(&mut order, &mut rng);
    let values = vec![0.5f32; nonzeros];
    for i in 0..rows {
        let start = (i * 7919) % (dims as usize - nonzeros + 1);
        let mut indices = order[start..start + nonzeros].to_vec();
        indices.sort_unstable();
        buffer.push(if i % 2 == 0 { 1.0 } else { -1.0 }, Features::Sparse(&indices, &values)).expect("fits");
    }
    buffer
}
