//! The read thread: a plain Rust thread that shuffles and trains on one buffer while the backend
//! fills the other. It sees Rust memory only, and has every signal blocked.
//!
//! It belongs to the SGD node's state, whose drop closes the exchange and joins it: at the normal
//! end, and also when a fill ends in an ERROR, a cancel or a FATAL.

use crate::pg::thread;
use corgipile_core::cache::{Cache, Pass};
use corgipile_core::exchange::Exchange;
use corgipile_core::loss::Loss;
use corgipile_core::params::{Params, Shuffle};
use corgipile_core::trainer::{EpochReport, Measured, Trainer};
use corgipile_core::tuples::{Density, TupleBuffer, Visits};
use corgipile_core::weights::Rows;
use corgipile_core::window::Window;
use corgipile_core::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

/// A buffer on its way between the threads.
#[derive(Debug)]
pub struct Batch {
    /// The tuples.
    pub tuples: TupleBuffer,
    /// Epoch, from 0.
    pub epoch: u32,
    /// Fill of the epoch, from 0.
    pub fill: u32,
    /// Does the epoch end with it?
    pub last: bool,
    /// The loss, as far as it is known.
    pub loss: Loss,
    /// Classes met so far.
    pub classes: usize,
    /// How much the tuples of these count; empty: all the same, or as the trainer finds.
    pub class_weights: Vec<f32>,
    /// Take the loss of the finished weights instead of training.
    pub measure: bool,
    /// Part of the input that was read with this fill, of the first epoch.
    pub part: f64,
    /// At the end of the first epoch: blocks and their first tuples, in the order of reading.
    pub starts: Vec<(u32, u32)>,
    /// A whole epoch over the cache, in place of the tuples.
    pub pass: Option<Pass>,
}

/// Where time went on the compute side.
#[derive(Debug, Clone, Copy, Default)]
pub struct ComputeTime {
    /// CPU time of scaling the tuples and shuffling the index.
    pub shuffle_ns: u64,
    /// CPU time of the SGD kernel.
    pub sgd_ns: u64,
    /// Time spent waiting for a filled buffer.
    pub wait_ns: u64,
}

/// The end of an epoch.
#[derive(Debug, Clone, Copy)]
pub struct EpochDone {
    /// What it did.
    pub report: EpochReport,
    /// Does `tolerance` end training?
    pub converged: bool,
    /// Since training began.
    pub time: ComputeTime,
    /// Bytes of the weights.
    pub weight_bytes: usize,
    /// Tuples and bytes of the cache, if all were kept.
    pub cached: Option<(usize, usize)>,
}

/// What the last buffer of a pass brought.
#[derive(Debug, Clone, Copy)]
pub enum PassDone {
    /// The pass trained.
    Epoch(EpochDone),
    /// The pass took the loss of the finished weights.
    Measured(Option<Measured>),
}

/// Shuffles and trains: the same work inline or in the thread.
pub struct Compute {
    trainer: Trainer,
    params: Params,
    time: ComputeTime,
    streaming: Option<Streaming>,
    cache: Option<Cache>,
    memory_limit: usize,
}

/// What a window or a reservoir carries from one buffer to the next.
struct Streaming {
    window: Window,
    carried: TupleBuffer,
    replay: TupleBuffer,
}

impl Streaming {
    /// For the strategies that have one.
    fn new(params: &Params, density: Density) -> Option<Self> {
        let window = match params.shuffle {
            Shuffle::SlidingWindow => Window::sliding(params.seed),
            Shuffle::Mrs => Window::reservoir(params.seed, params.mrs_ratio),
            _ => return None,
        };
        let empty = || TupleBuffer::new(density, usize::MAX).with_weights();
        Some(Self { window, carried: empty(), replay: empty() })
    }

    /// Puts what is carried behind the new tuples and sets the order of visits.
    fn arrange(&mut self, tuples: &mut TupleBuffer, last: bool) -> Result<()> {
        tuples.arrange(false, 0, 0, 0)?;
        let new = tuples.order().to_vec();
        let rows_of = |tuples: &TupleBuffer, from: usize| (from as u32..tuples.len() as u32).collect::<Vec<u32>>();
        let start = tuples.len();
        tuples.append(&self.carried, rows_of(&self.carried, 0))?;
        let carried = rows_of(tuples, start);
        let start = tuples.len();
        tuples.append(&self.replay, rows_of(&self.replay, 0))?;
        let replay = rows_of(tuples, start);
        let plan = self.window.plan(&new, &carried, &replay, last);
        self.carried.clear();
        self.carried.append(tuples, plan.keep)?;
        if last {
            self.replay.clear();
            self.replay.append(tuples, plan.replay)?;
        }
        tuples.set_order(plan.order);
        Ok(())
    }
}

impl Compute {
    /// Weights of zero, or those to start from.
    pub fn new(params: Params, loss: Loss, density: Density, memory_limit: usize, initial: Option<Rows>) -> Self {
        let mut trainer = Trainer::new(params.clone(), loss, density, memory_limit);
        if let Some(rows) = initial {
            trainer.start_from(rows);
        }
        let streaming = Streaming::new(&params, density);
        Self { trainer, params, time: ComputeTime::default(), streaming, cache: None, memory_limit }
    }

    /// Keeps the tuples of the first epoch, as long as there is memory.
    pub fn keep(&mut self, cache: Cache) {
        self.cache = Some(cache);
    }

    /// Adds a fill of the first epoch to the cache; forgets it where it will not fit.
    fn fill_cache(&mut self, batch: &Batch) -> Result<()> {
        let Some(mut cache) = self.cache.take() else { return Ok(()) };
        let beside = self.trainer.bytes_beside(batch.tuples.max_features(), batch.classes);
        let room = self.memory_limit.saturating_sub(beside);
        let bytes = cache.bytes() + batch.tuples.bytes_used();
        // With some allowance for blocks that are not all alike.
        let hopeless = self.params.cache != Some(true) && bytes as f64 / batch.part.max(1e-9) > room as f64 * 1.2;
        if bytes > room || hopeless || !cache.add(&batch.tuples)? {
            return Ok(());
        }
        if batch.last {
            cache.complete(&batch.starts);
        }
        self.cache = Some(cache);
        Ok(())
    }

    /// A whole epoch, or a measurement, over the cache.
    fn consume_cached(&mut self, pass: Pass, batch: &Batch, mut go_on: impl FnMut() -> bool) -> Result<PassDone> {
        let start = thread::cpu_ns();
        let Some(cache) = self.cache.take() else { return Err(Error::Stopped) };
        let mut fills = cache.epoch(pass);
        let mut arranging = start;
        while let Some((order, values)) = fills.next_fill() {
            let visits = Visits { tuples: cache.tuples(), order };
            let training = thread::cpu_ns();
            self.time.shuffle_ns += training - arranging;
            if batch.measure {
                self.trainer.measure(visits, &mut go_on)?;
            } else {
                self.trainer.train_on(visits, values, batch.classes, &mut go_on)?;
            }
            arranging = thread::cpu_ns();
            self.time.sgd_ns += arranging - training;
        }
        let done = if batch.measure {
            PassDone::Measured(self.trainer.measured())
        } else {
            self.end_epoch(go_on, Some(&cache))?
        };
        self.cache = Some(cache);
        Ok(done)
    }

    fn end_epoch(&mut self, go_on: impl FnMut() -> bool, cache: Option<&Cache>) -> Result<PassDone> {
        let start = thread::cpu_ns();
        let (report, converged) = self.trainer.end_epoch(go_on)?;
        self.time.sgd_ns += thread::cpu_ns() - start;
        let cached = cache.map(|cache| (cache.len(), cache.bytes()));
        let weight_bytes = self.trainer.bytes();
        Ok(PassDone::Epoch(EpochDone { report, converged, time: self.time, weight_bytes, cached }))
    }

    /// Trains on one buffer, or measures with it; at the last of a pass says how it went.
    pub fn consume(&mut self, batch: &mut Batch, mut go_on: impl FnMut() -> bool) -> Result<Option<PassDone>> {
        let start = thread::cpu_ns();
        if batch.loss != self.trainer.loss() {
            self.trainer.restart(batch.loss);
        }
        if let Some(pass) = batch.pass.take() {
            return self.consume_cached(pass, batch, go_on).map(Some);
        }
        if !batch.class_weights.is_empty() {
            self.trainer.set_class_weights(std::mem::take(&mut batch.class_weights));
        }
        self.trainer.prepare(&mut batch.tuples)?;
        if batch.epoch == 0 && !batch.measure {
            self.fill_cache(batch)?;
        }
        match &mut self.streaming {
            Some(streaming) if !batch.measure => streaming.arrange(&mut batch.tuples, batch.last)?,
            _ => {
                let shuffled = self.params.shuffle.tuples() && !batch.measure;
                batch.tuples.arrange(shuffled, self.params.seed, batch.epoch, batch.fill)?;
            }
        }
        let prepared = thread::cpu_ns();
        self.time.shuffle_ns += prepared - start;
        if batch.measure {
            self.trainer.measure(batch.tuples.visits(), go_on)?;
            return Ok(batch.last.then(|| PassDone::Measured(self.trainer.measured())));
        }
        self.trainer.train(&batch.tuples, batch.classes, &mut go_on)?;
        self.time.sgd_ns += thread::cpu_ns() - prepared;
        if !batch.last {
            return Ok(None);
        }
        let cache = self.cache.take();
        let done = self.end_epoch(go_on, cache.as_ref())?;
        self.cache = cache;
        Ok(Some(done))
    }

    /// Whether tuples are shuffled in the buffer.
    pub fn shuffles(&self) -> bool {
        self.params.shuffle.tuples()
    }

    /// Where time went so far.
    pub fn time(&self) -> ComputeTime {
        self.time
    }

    /// The trainer.
    pub fn into_trainer(self) -> Trainer {
        self.trainer
    }
}

type Answer = Result<PassDone>;

/// The running thread.
pub struct ReadThread {
    exchange: Arc<Exchange<Batch, Answer>>,
    handle: Option<JoinHandle<Result<Trainer>>>,
}

impl ReadThread {
    /// Starts it with these buffers to go round.
    pub fn start(compute: Compute, buffers: Vec<Batch>) -> std::io::Result<Self> {
        let exchange = Exchange::new(buffers);
        let theirs = Arc::clone(&exchange);
        let handle = thread::spawn("corgipile sgd", move || body(&theirs, compute))?;
        Ok(Self { exchange, handle: Some(handle) })
    }

    /// The exchange with the thread.
    pub fn exchange(&self) -> &Exchange<Batch, Answer> {
        &self.exchange
    }

    /// Ends the thread and takes its trainer; `None` if it panicked.
    pub fn finish(mut self) -> Option<Result<Trainer>> {
        self.exchange.close();
        self.handle.take().and_then(|handle| handle.join().ok())
    }
}

impl Drop for ReadThread {
    fn drop(&mut self) {
        self.exchange.close();
        if let Some(handle) = self.handle.take() {
            // The thread looks at the stop flag every few hundred tuples; a panic of its own is not ours.
            drop(handle.join());
        }
    }
}

fn body(exchange: &Arc<Exchange<Batch, Answer>>, mut compute: Compute) -> Result<Trainer> {
    let _reader = exchange.reader();
    loop {
        let waiting = Instant::now();
        let Some(mut batch) = exchange.next() else { return Ok(compute.into_trainer()) };
        compute.time.wait_ns += waiting.elapsed().as_nanos() as u64;
        let outcome = compute.consume(&mut batch, || !exchange.stop_flag().load(Ordering::Relaxed));
        exchange.give_back(batch);
        match outcome {
            Ok(None) => {}
            Ok(Some(done)) => exchange.reply(Ok(done)),
            Err(error) => {
                if error != Error::Stopped {
                    exchange.reply(Err(error.clone()));
                }
                return Err(error);
            }
        }
    }
}
