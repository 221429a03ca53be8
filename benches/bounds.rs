//! Nanoseconds per tuple of the SGD kernel beside the bound that the measured memory bandwidth sets, as
//! two Markdown tables: log_loss in order and shuffled, and every other loss in order; batch size 1, a buffer far beyond
//! the caches. An argument that is part of a line's name leaves the other lines out.

mod shared;

use corgipile_core::loss::Loss;
use corgipile_core::memory::prefetch_at;
use corgipile_core::params::Params;
use corgipile_core::permute::{Stream, generator, shuffle};
use corgipile_core::trainer::Trainer;
use corgipile_core::tuples::{TupleBuffer, Visits};
use corgipile_core::vector::dispatch;
use pulp::{Simd, WithSimd};
use shared::{CLASSES, dense, label_by_class, shapes};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Bytes of a piece that stays in a core's cache: what an order of work by such pieces could gain.
const PIECE: usize = 1 << 20;

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

/// The sum of all, with wide registers and asking for lines ahead: nothing but reading.
struct Read<'a>(&'a [f32]);

impl WithSimd for Read<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        /// Values ahead: 64 kB.
        const AHEAD: usize = 16 << 10;
        let mut sums = [simd.splat_f32s(0.0); 4];
        let (pieces, _) = self.0.as_chunks::<64>();
        for (i, piece) in pieces.iter().enumerate() {
            for line in 0..4 {
                prefetch_at(self.0, i * 64 + AHEAD + line * 16);
            }
            for (j, x) in S::as_simd_f32s(piece).0.iter().enumerate() {
                sums[j % 4] = simd.add_f32s(sums[j % 4], *x);
            }
        }
        sums.into_iter().map(|sum| simd.reduce_sum_f32s(sum)).sum()
    }
}

/// Bytes per second that one core reads in order, from large pages as the kernel does.
fn bandwidth() -> f64 {
    let data = dense(62);
    let (_, values) = data.dense_values();
    let time = shortest(|| {
        black_box(dispatch(Read(black_box(values))));
    });
    size_of_val(values) as f64 / time.as_secs_f64()
}

/// Nanoseconds per tuple of a pass in this order.
fn time(buffer: &TupleBuffer, order: &[u32], loss: Loss) -> f64 {
    let params = Params { learning_rate: Some(1e-3), average: false, standardize: false, ..Params::default() };
    let mut trainer = Trainer::new(params, loss, buffer.density(), usize::MAX);
    let visits = Visits { tuples: buffer, order };
    let values = buffer.stored_values() / buffer.len();
    let classes = if loss == Loss::Softmax { CLASSES } else { 2 };
    let time = shortest(|| trainer.train_on(black_box(visits), values, classes, || true).expect("trains"));
    time.as_secs_f64() * 1e9 / buffer.len() as f64
}

/// What reading a tuple's bytes takes, in nanoseconds.
fn bound(buffer: &TupleBuffer, bandwidth: f64) -> f64 {
    buffer.bytes_used() as f64 / buffer.len() as f64 / bandwidth * 1e9
}

fn orders(name: &str, mut buffer: TupleBuffer, bandwidth: f64) -> String {
    let bound = bound(&buffer, bandwidth);
    let in_order: Vec<u32> = (0..buffer.len() as u32).collect();
    let mut pieces = in_order.clone();
    let mut rng = generator(1, Stream::Tuples, 0, 0);
    pieces.chunks_mut(PIECE * buffer.len() / buffer.bytes_used()).for_each(|piece| shuffle(piece, &mut rng));
    buffer.arrange(true, 1, 0, 0).expect("memory");
    let [in_order, shuffled, pieces] =
        [&in_order[..], buffer.order(), &pieces].map(|order| time(&buffer, order, Loss::LogLoss));
    format!(
        "| {name} | {bound:.1} | {in_order:.1} | {:.1} | {shuffled:.1} | {:.2} | {pieces:.1} |",
        in_order / bound,
        shuffled / in_order
    )
}

/// The losses of the second table.
fn others() -> impl Iterator<Item = Loss> {
    Loss::ALL.into_iter().filter(|loss| *loss != Loss::LogLoss)
}

fn losses(name: &str, mut buffer: TupleBuffer, bandwidth: f64) -> String {
    let bound = bound(&buffer, bandwidth);
    let in_order: Vec<u32> = (0..buffer.len() as u32).collect();
    let cells = others().map(|loss| {
        if loss == Loss::Softmax {
            label_by_class(&mut buffer);
        }
        let time = time(&buffer, &in_order, loss);
        format!(" {time:.1} ({:.1} ×) |", time / bound)
    });
    format!("| {name} | {bound:.1} |{}", cells.collect::<String>())
}

fn table(bandwidth: f64, line: fn(&str, TupleBuffer, f64) -> String) {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()));
    for (name, make) in shapes().filter(|(name, _)| is_wanted(name)) {
        println!("{}", line(&name, make(), bandwidth));
    }
}

fn main() {
    let bandwidth = bandwidth();
    println!("Memory is read at {:.1} GB/s by one core.\n", bandwidth / 1e9);
    println!("| tuples | bound, ns | in order, ns | × bound | shuffled, ns | × in order | shuffled within MB, ns |");
    println!("|---|---|---|---|---|---|---|");
    table(bandwidth, orders);
    println!("\nIn order, ns (× bound); softmax with {CLASSES} classes:\n");
    println!("| tuples | bound, ns |{}", others().map(|loss| format!(" {} |", loss.name())).collect::<String>());
    println!("|---|---|{}", "---|".repeat(others().count()));
    table(bandwidth, losses);
}
