//! Time per tuple of the SGD kernel: batch size 1, in the order of reading and shuffled, beside the
//! bound that the measured memory bandwidth sets.

use corgipile_core::loss::Loss;
use corgipile_core::params::Params;
use corgipile_core::permute::{Stream, generator, shuffle};
use corgipile_core::trainer::Trainer;
use corgipile_core::tuples::{Density, Features, TupleBuffer};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;

/// Bytes of a buffer: far beyond the caches.
const BUFFER: usize = 256 << 20;

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

fn dense(dims: usize) -> TupleBuffer {
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

fn run(c: &mut Criterion, name: &str, mut buffer: TupleBuffer, loss: Loss) {
    let mut group = c.benchmark_group(format!("{name} {}", loss.name()));
    group.sample_size(10).throughput(Throughput::Elements(buffer.len() as u64));
    for (order, shuffled) in [("in order", false), ("shuffled", true)] {
        buffer.arrange(shuffled, 1, 0, 0).expect("memory");
        let params = Params { learning_rate: Some(1e-3), average: false, standardize: false, ..Params::default() };
        let mut trainer = Trainer::new(params, loss, buffer.density(), usize::MAX);
        group.bench_function(BenchmarkId::from_parameter(order), |b| {
            b.iter(|| trainer.train(black_box(&buffer), 2, || true).expect("trains"));
        });
    }
    group.finish();
}

fn memory(c: &mut Criterion) {
    let data = vec![1u64; BUFFER / 8];
    let mut group = c.benchmark_group("memory");
    group.sample_size(10).throughput(Throughput::Bytes(BUFFER as u64));
    group.bench_function("read", |b| b.iter(|| black_box(&data).iter().fold(0u64, |sum, x| sum.wrapping_add(*x))));
    group.finish();
}

fn kernel(c: &mut Criterion) {
    memory(c);
    for dims in [18, 28, 90, 784, 2000, 4096] {
        run(c, &format!("dense {dims}"), dense(dims), Loss::LogLoss);
    }
    for (nonzeros, dims) in [(39, 1_000_000), (14, 123), (80, 20_000)] {
        run(c, &format!("sparse {nonzeros} of {dims}"), sparse(nonzeros, dims), Loss::LogLoss);
    }
    for loss in Loss::ALL.into_iter().filter(|loss| *loss != Loss::LogLoss && *loss != Loss::Softmax) {
        run(c, "dense 28", dense(28), loss);
    }
}

criterion_group!(benches, kernel);
criterion_main!(benches);
