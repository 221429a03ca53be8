//! The read thread: a plain Rust thread that shuffles and trains on one buffer while the backend
//! fills the other. It sees Rust memory only, and has every signal blocked.
//!
//! It belongs to the SGD node's state, whose drop closes the exchange and joins it: at the normal
//! end, and also when a fill ends in an ERROR, a cancel or a FATAL.

use crate::pg::thread;
use corgipile_core::exchange::Exchange;
use corgipile_core::loss::Loss;
use corgipile_core::params::{Params, Shuffle};
use corgipile_core::trainer::{EpochReport, Measured, Trainer};
use corgipile_core::tuples::{Density, TupleBuffer};
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
        Self { trainer, params, time: ComputeTime::default(), streaming }
    }

    /// Trains on one buffer, or measures with it; at the last of a pass says how it went.
    pub fn consume(&mut self, batch: &mut Batch, mut go_on: impl FnMut() -> bool) -> Result<Option<PassDone>> {
        let start = thread::cpu_ns();
        if batch.loss != self.trainer.loss() {
            self.trainer.restart(batch.loss);
        }
        if !batch.class_weights.is_empty() {
            self.trainer.set_class_weights(std::mem::take(&mut batch.class_weights));
        }
        self.trainer.prepare(&mut batch.tuples)?;
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
            self.trainer.measure(&batch.tuples, go_on)?;
            return Ok(batch.last.then(|| PassDone::Measured(self.trainer.measured())));
        }
        self.trainer.train(&batch.tuples, batch.classes, &mut go_on)?;
        let ended = if batch.last { Some(self.trainer.end_epoch(go_on)?) } else { None };
        self.time.sgd_ns += thread::cpu_ns() - prepared;
        let Some((report, converged)) = ended else { return Ok(None) };
        Ok(Some(PassDone::Epoch(EpochDone { report, converged, time: self.time, weight_bytes: self.trainer.bytes() })))
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
