//! Time per tuple of the SGD kernel: batch size 1, in the order of reading and shuffled. `bounds` sets
//! it beside the bound of the measured memory bandwidth.

mod shared;

use corgipile_core::loss::Loss;
use corgipile_core::params::Params;
use corgipile_core::trainer::Trainer;
use corgipile_core::tuples::TupleBuffer;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shared::{BUFFER, dense, sparse};
use std::hint::black_box;

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
