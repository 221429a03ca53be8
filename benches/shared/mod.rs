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

/// Classes of softmax.
pub const CLASSES: usize = 10;

/// Labels for softmax in place of −1 and 1.
pub fn label_by_class(buffer: &mut TupleBuffer) {
    buffer.storage().labels.iter_mut().enumerate().for_each(|(i, label)| *label = (i % CLASSES) as f32);
}

/// The shapes of tuples that are measured: a name, and what makes a buffer of them.
pub fn shapes() -> impl Iterator<Item = (String, Box<dyn Fn() -> TupleBuffer>)> {
    let dense_shapes = [18, 28, 90, 784, 2000, 4096].map(|dims| {
        let make: Box<dyn Fn() -> TupleBuffer> = Box::new(move || dense(dims));
        (format!("dense {dims}"), make)
    });
    let sparse_shapes = [(39, 1_000_000), (14, 123), (80, 20_000)].map(|(nonzeros, dims)| {
        let make: Box<dyn Fn() -> TupleBuffer> = Box::new(move || sparse(nonzeros, dims));
        (format!("sparse {nonzeros} of {dims}"), make)
    });
    dense_shapes.into_iter().chain(sparse_shapes)
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

fn sparse(nonzeros: usize, dims: u32) -> TupleBuffer {
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
