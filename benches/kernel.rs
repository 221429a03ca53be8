//! Time per tuple of the SGD kernel, every loss: batch size 1, in the order of reading and shuffled. `bounds` sets
//! it beside the bound of the measured memory bandwidth.

mod shared;

use corgipile_core::loss::Loss;
use corgipile_core::params::Params;
use corgipile_core::trainer::Trainer;
use corgipile_core::tuples::{TupleBuffer, Visits};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use shared::{BUFFER, CLASSES, label_by_class, shapes};
use std::hint::black_box;
use std::time::Duration;

fn run(c: &mut Criterion, name: &str, buffer: &mut TupleBuffer, loss: Loss) {
    let mut group = c.benchmark_group(format!("{name} {}", loss.name()));
    group.sample_size(10).throughput(Throughput::Elements(buffer.len() as u64));
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    let classes = if loss == Loss::Softmax { CLASSES } else { 2 };
    let values = buffer.stored_values() / buffer.len();
    for (order, shuffled) in [("in order", false), ("shuffled", true)] {
        buffer.arrange(shuffled, 1, 0, 0).expect("memory");
        let params = Params { learning_rate: Some(1e-3), average: false, standardize: false, ..Params::default() };
        let mut trainer = Trainer::new(params, loss, buffer.density(), usize::MAX);
        let visits = Visits { tuples: buffer, order: buffer.order() };
        group.bench_function(BenchmarkId::from_parameter(order), |b| {
            b.iter(|| trainer.train_on(black_box(visits), values, classes, || true).expect("trains"));
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
    for (name, make) in shapes() {
        let mut buffer = make();
        // Softmax comes last: its labels are others.
        for loss in Loss::ALL.into_iter().filter(|loss| *loss != Loss::Softmax) {
            run(c, &name, &mut buffer, loss);
        }
        label_by_class(&mut buffer);
        run(c, &name, &mut buffer, Loss::Softmax);
    }
}

criterion_group!(benches, kernel);
criterion_main!(benches);
