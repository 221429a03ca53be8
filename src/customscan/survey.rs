//! A look at a few blocks before a training: what scanning, decoding, shuffling and a step cost, how much
//! the decoded tuples are, and whether the table is in memory. Through the nodes themselves, so that what
//! is measured is what will run.

use super::auto_shuffle::Instruments;
use super::block_shuffle::BlockShuffle;
use super::disk;
use super::read_thread::{Batch, Compute};
use super::sgd::class_weights;
use super::tuple_shuffle::{Filled, TupleShuffle};
use crate::pg::node::Node;
use crate::pg::thread;
use corgipile_core::advice::Survey;
use corgipile_core::blocks::BlockLayout;
use corgipile_core::labels::LabelCoder;
use corgipile_core::loss::Loss;
use corgipile_core::params::{Params, Shuffle};
use corgipile_core::permute::{Stream, below, generator};
use corgipile_core::plumber::{EpochTrace, Record};
use corgipile_core::tuples::{Density, TupleBuffer};
use pgrx::{check_for_interrupts, pg_sys};
use std::time::{Duration, Instant};

/// The part of a table that is looked at, and the fewest runs and pages that are: those of a small table may
/// differ a lot.
const PART: u32 = 100;
const LEAST_RUNS: u32 = 5;
const LEAST_PAGES: u32 = 256;
/// Pages of a run at most: the smallest block that is chosen unasked.
const RUN_PAGES: u32 = (corgipile_core::advice::LEAST_BLOCK / pg_sys::BLCKSZ as usize) as u32;
/// Bytes of decoded tuples of a run, and of all that are trained on to time a step.
const RUN_BYTES: usize = 4 << 20;
const SAMPLE_BYTES: usize = 8 << 20;
/// Tuples by which is told how many that may be.
const FEW: usize = 64;
/// Idle longer than this, on average, after a run of pages came from outside of shared buffers, the
/// backend waited for a disk.
const DISK_WAIT: u64 = 50_000;

/// Blocks of a layout, by number: one in each of equal parts of the table, the parts in an order that is
/// spread over the table wherever it is cut off.
fn runs(seed: i64, layout: &BlockLayout) -> Vec<u32> {
    let (all, length) = (layout.blocks(), layout.pages_per_block());
    let parts = (all / PART).max(LEAST_RUNS).max(LEAST_PAGES / length).min(all).max(1);
    let mut rng = generator(seed, Stream::Sample, 1, length);
    let mut runs: Vec<u32> = (0..parts)
        .map(|i| {
            let at = |i: u32| (u64::from(all) * u64::from(i) / u64::from(parts)) as u32;
            at(i) + below(&mut rng, (at(i + 1) - at(i)).max(1))
        })
        .collect();
    // Fisher–Yates.
    for i in (1..runs.len()).rev() {
        runs.swap(i, below(&mut rng, i as u32 + 1) as usize);
    }
    runs
}

/// Looks for about as long as `budget`. `None` where the input is not a table that can be read in blocks,
/// or has nothing to train on. The coder learns the target's values on the way.
///
/// # Safety
/// `shuffle` is a begun node, prepared for a training and at the start of its input.
pub unsafe fn survey(
    shuffle: *mut Node<TupleShuffle>,
    params: &Params,
    memory: usize,
    budget: Duration,
    coder: Option<&LabelCoder>,
) -> Option<Survey> {
    // SAFETY: by contract.
    unsafe {
        let blocks = TupleShuffle::block_shuffle(shuffle)?;
        let pages = (*blocks).state.layout().pages();
        if pages == 0 {
            return None;
        }
        let instruments = Instruments::save(shuffle.cast(), (*shuffle).state.child());
        (*shuffle).state.look(true);
        BlockShuffle::look_at(blocks, vec![0], RUN_PAGES);
        pg_sys::ExecReScan(shuffle.cast());
        let density = TupleShuffle::start(shuffle, params, coder.cloned());
        let found = density.and_then(|density| look(shuffle, blocks, density, params, memory, budget));
        TupleShuffle::reset(shuffle);
        (*shuffle).state.look(false);
        (*shuffle).state.trace(false);
        (*shuffle).state.forget_counts();
        pg_sys::ExecReScan(shuffle.cast());
        instruments.restore();
        found
    }
}

unsafe fn look(
    shuffle: *mut Node<TupleShuffle>,
    blocks: *mut Node<BlockShuffle>,
    density: Density,
    params: &Params,
    memory: usize,
    budget: Duration,
) -> Option<Survey> {
    // SAFETY: as for `survey`; TupleShuffle was started.
    unsafe {
        let started = Instant::now();
        // More weights than memory has room for are an error here as they are in training.
        (*shuffle).state.limit_features(memory / 24);
        let pages = (*blocks).state.layout().pages();
        let loss = || (*shuffle).state.coder().map_or(Loss::LogLoss, LabelCoder::loss);
        let buffer = |bytes: usize| {
            let tuples = TupleBuffer::new(density, bytes);
            if (*shuffle).state.is_weighted() { tuples.with_weights() } else { tuples }
        };
        let (mut tuples, mut sample) = (buffer(RUN_BYTES.min(memory / 8)), buffer(SAMPLE_BYTES.min(memory / 8)));
        (*shuffle).state.trace(true);
        let (mut scan, mut decode) = (Record::default(), Record::default());
        let (mut seen, mut waits, mut looks) = (0u64, 0, 0);
        let mut costs: Vec<f64> = Vec::new();
        let mut assumed = loss();
        let mut layout = (*blocks).state.layout().cut(1);
        let mut left = Vec::new();
        loop {
            // Two looks at single pages, which also warm up, say how long a run may be.
            if looks == 2 {
                let bytes = (decode.bytes / seen.max(1)).max(1) as usize;
                let time = (started.elapsed() / looks).max(Duration::from_nanos(1));
                let affordable = (budget.as_nanos() / (4 * u128::from(LEAST_RUNS) * time.as_nanos())) as u32;
                let length = RUN_PAGES.min((RUN_BYTES / bytes) as u32).min(affordable).max(1);
                (scan, decode) = (Record::default(), Record::default());
                (seen, waits) = (0, 0);
                costs.clear();
                sample.clear();
                layout = layout.cut(length);
                left = runs(params.seed, &layout);
            }
            let run = if looks < 2 { (pages - 1) / (2 - looks) } else { left.pop()? };
            check_for_interrupts!();
            seen += layout.block(run).pages.len() as u64;
            BlockShuffle::look_at(blocks, vec![run], layout.pages_per_block());
            pg_sys::ExecReScan(shuffle.cast());
            loop {
                tuples.clear();
                // A tuple that a training has room for, but a look has not: then there is no look.
                let filled = TupleShuffle::fill(shuffle, &mut tuples, false);
                if filled == Filled::TooLong {
                    return None;
                }
                if loss() != assumed {
                    // Labels so far mean something else.
                    assumed = loss();
                    sample.clear();
                }
                let room = sample.limit().saturating_sub(sample.bytes_used() + tuples.bytes_used());
                if room > 0 && sample.append_all(&tuples).is_err() {
                    return None;
                }
                if filled != Filled::Full {
                    break;
                }
            }
            let [one, other] = (*shuffle).state.take_records();
            let idle = (one.wall_ns + other.wall_ns).saturating_sub(one.cpu_ns + other.cpu_ns);
            waits += u32::from(one.pages_read > 0 && idle > DISK_WAIT);
            if other.completions > 0 {
                costs.push((one.cpu_ns + other.cpu_ns) as f64 / other.completions as f64);
            }
            scan.add(&one);
            decode.add(&other);
            looks += 1;
            let enough = looks > 2 && started.elapsed() > budget * 3 / 4;
            if looks > 2 && (left.is_empty() || enough) {
                break;
            }
        }
        if decode.completions == 0 {
            return None;
        }
        // A run that was held up by something else is not what the others will be.
        costs.sort_by(f64::total_cmp);
        let usual = costs.get(costs.len() / 2).map_or(0.0, |cost| cost * decode.completions as f64);
        let times = usual / ((scan.cpu_ns + decode.cpu_ns) as f64).max(1.0);
        for record in [&mut scan, &mut decode] {
            record.cpu_ns = (record.cpu_ns as f64 * times) as u64;
        }
        let relation = (*blocks).state.first_relation();
        let on_disk = waits * 2 > looks - 2;
        let disk = if on_disk { disk::curve_of(relation) } else { None };
        // As much as does not stay in the processor's caches, but little beside the table.
        let decoded = (decode.bytes as f64 * f64::from(pages) / seen as f64) as usize;
        let enough = (decoded / 16).clamp(SAMPLE_BYTES / 4, 2 * SAMPLE_BYTES).min(memory / 8);
        // And no longer than is spent on a look: with many classes a step takes long.
        let mut few = buffer(usize::MAX);
        few.append(&sample, 0..sample.len().min(FEW) as u32).ok()?;
        let [order, step, _] = time_steps(shuffle, &few, params, density, memory);
        let most = budget.as_nanos() as u64 / 4 / ((order + step) / few.len().max(1) as u64).max(1);
        let mut many = buffer(usize::MAX);
        while !sample.is_empty() && many.bytes_used() < enough && (many.len() as u64) < most.max(1) {
            many.append(&sample, 0..sample.len().min(most.max(1) as usize) as u32).ok()?;
        }
        let [order, step, cached_order] = time_steps(shuffle, &many, params, density, memory);
        let per_row = |ns: u64| (ns as f64 * decode.completions as f64 / many.len().max(1) as f64) as u64;
        let rows = decode.completions;
        let records = [
            scan,
            decode,
            Record { completions: rows, bytes: decode.bytes, cpu_ns: per_row(order), ..Record::default() },
            Record {
                completions: rows.div_ceil(u64::from(params.batch_size)),
                cpu_ns: per_row(step),
                ..Record::default()
            },
        ];
        let trace = EpochTrace { epoch: 1, cached: false, wall_ns: started.elapsed().as_nanos() as u64, records };
        // Values out of line count if they are what is read.
        let out_of_line = decode.detoasted_bytes > 0;
        let own = u64::from(pages) * u64::from(pg_sys::BLCKSZ);
        let table_bytes = if out_of_line { BlockShuffle::table_bytes(blocks) } else { own };
        let cached_order_ns = per_row(cached_order);
        Some(Survey { pages: u64::from(pages), seen, trace, cached_order_ns, table_bytes, disk })
    }
}

/// CPU time of scaling and ordering, of training on the sample, the second time round, and of ordering only;
/// 0 where it cannot be told.
unsafe fn time_steps(
    shuffle: *mut Node<TupleShuffle>,
    sample: &TupleBuffer,
    params: &Params,
    density: Density,
    memory: usize,
) -> [u64; 3] {
    // A step takes the same time at any rate; a small one will not diverge.
    let shuffle_as = match params.shuffle {
        Shuffle::Auto | Shuffle::Mrs | Shuffle::SlidingWindow => Shuffle::Corgipile,
        other => other,
    };
    let trial = Params { learning_rate: Some(1e-6), shuffle: shuffle_as, eval_fraction: 0.0, ..params.clone() };
    // SAFETY: as for `survey`.
    let Some(coder) = (unsafe { (*shuffle).state.coder() }) else { return [0; 3] };
    // SAFETY: as for `survey`.
    let weights = class_weights(&trial, coder, unsafe { (*shuffle).state.target_type }, false);
    let mut compute = Compute::new(trial, coder.loss(), density, memory, None);
    let mut before = [0; 2];
    // The first time features are scaled and memory is new; an epoch's end is not among what recurs.
    for fill in 0..2 {
        let mut tuples = TupleBuffer::new(density, usize::MAX);
        if sample.is_weighted() {
            tuples = tuples.with_weights();
        }
        if tuples.append_all(sample).is_err() {
            return [0; 3];
        }
        let mut batch = Batch {
            tuples,
            epoch: 0,
            fill,
            last: false,
            loss: coder.loss(),
            classes: coder.class_count(),
            class_weights: weights.clone(),
            measure: false,
            part: 1.0,
            starts: Vec::new(),
            pass: None,
        };
        let start = thread::cpu_ns();
        if batch.tuples.arrange(compute.shuffles(), 0, 0, fill).is_err() {
            return [0; 3];
        }
        let ordered = thread::cpu_ns() - start;
        let done = compute.consume(&mut batch, || {
            check_for_interrupts!();
            true
        });
        if done.is_err() {
            return [0; 3];
        }
        let now = compute.time();
        if fill == 1 {
            return [now.shuffle_ns - before[0], now.sgd_ns - before[1], ordered];
        }
        before = [now.shuffle_ns, now.sgd_ns];
    }
    [0; 3]
}
