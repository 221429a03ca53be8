//! Nanoseconds per tuple of the SGD kernel beside the bound that the measured memory bandwidth sets, as
//! a Markdown table: log_loss, batch size 1, a buffer far beyond the caches. An argument that is part
//! of a line's name leaves the other lines out.

mod shared;

use corgipile_core::loss::Loss;
use corgipile_core::params::Params;
use corgipile_core::trainer::Trainer;
use corgipile_core::tuples::TupleBuffer;
use shared::{BUFFER, dense, sparse};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The shortest of a few runs: what the machine can do when nobody else is at work.
fn shortest(mut run: impl FnMut()) -> Duration {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .unwrap_or_default()
}

/// Bytes per second that one core reads in order.
fn bandwidth() -> f64 {
    let data = vec![1u64; BUFFER / 8];
    let time = shortest(|| {
        black_box(black_box(&data).iter().fold(0u64, |sum, x| sum.wrapping_add(*x)));
    });
    BUFFER as f64 / time.as_secs_f64()
}

fn line(name: &str, bandwidth: f64, make: impl FnOnce() -> TupleBuffer) {
    let wanted = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect::<Vec<_>>();
    if !wanted.is_empty() && !wanted.iter().any(|wanted| name.contains(wanted.as_str())) {
        return;
    }
    let mut buffer = make();
    let ns = [false, true].map(|shuffled| {
        buffer.arrange(shuffled, 1, 0, 0).expect("memory");
        let params = Params { learning_rate: Some(1e-3), average: false, standardize: false, ..Params::default() };
        let mut trainer = Trainer::new(params, Loss::LogLoss, buffer.density(), usize::MAX);
        let time = shortest(|| trainer.train(black_box(&buffer), 2, || true).expect("trains"));
        time.as_secs_f64() * 1e9 / buffer.len() as f64
    });
    let bound = buffer.bytes_used() as f64 / buffer.len() as f64 / bandwidth * 1e9;
    println!("| {name} | {:.1} | {:.1} | {:.1} | {:.1} | {:.2} |", bound, ns[0], ns[0] / bound, ns[1], ns[1] / ns[0]);
}

fn main() {
    let bandwidth = bandwidth();
    println!("Memory is read at {:.1} GB/s by one core.\n", bandwidth / 1e9);
    println!("| tuples | bound, ns | in order, ns | × bound | shuffled, ns | × in order |");
    println!("|---|---|---|---|---|---|");
    for dims in [18, 28, 90, 784, 2000, 4096] {
        line(&format!("dense {dims}"), bandwidth, || dense(dims));
    }
    for (nonzeros, dims) in [(39, 1_000_000), (14, 123), (80, 20_000)] {
        line(&format!("sparse {nonzeros} of {dims}"), bandwidth, || sparse(nonzeros, dims));
    }
}
