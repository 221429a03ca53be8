//! Stochastic gradient descent over buffers of tuples.
//!
//! The objective is mean ℓ(y, w·x + b) + λ/2·‖w‖². A step over a mini-batch of B tuples takes all
//! scores with the same weights and then adds −η/B·Σ dℓ/dp·x; the last, short batch of a buffer
//! also divides by B, so that every tuple has the same influence wherever the buffer ends.

use crate::loss::{Hinge, LogLoss, Loss, Point, PointLoss, SquaredError};
use crate::params::Params;
use crate::tuples::TupleBuffer;
use crate::weights::Weights;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};

/// Tuples between two questions whether to go on: about 100 µs of work at 1000 features.
const TUPLES_PER_QUESTION: usize = 256;
/// Tuples between asking for one to be brought into the cache and using it.
const PREFETCH_DISTANCE: usize = 8;
/// Epochs without improvement that end training when `tolerance` is set.
const PATIENCE: u32 = 5;

/// What an epoch did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Counted from 1.
    pub epoch: u32,
    /// Tuples trained on.
    pub rows: u64,
    /// Progressive loss: the mean of each tuple's loss just before its own step, penalty excluded.
    pub loss: f64,
    /// Progressive accuracy: part of the tuples on the right side just before their step;
    /// `None` for regression.
    pub accuracy: Option<f64>,
    /// The rate of the epoch.
    pub learning_rate: f64,
}

/// Why training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// `max_epochs` were run.
    MaxEpochs,
    /// The loss stopped improving.
    Tolerance,
    /// `max_seconds` were reached.
    MaxSeconds,
}

/// Sum of the losses of one piece of a buffer; see [`Point`].
struct LossSum {
    plain: f64,
    factors: f64,
    logs: f64,
    in_factors: u32,
    right: u64,
}

impl Default for LossSum {
    fn default() -> Self {
        Self { plain: 0.0, factors: 1.0, logs: 0.0, in_factors: 0, right: 0 }
    }
}

impl LossSum {
    #[inline(always)]
    fn add(&mut self, point: Point, right: bool) {
        self.plain += f64::from(point.plain);
        self.factors *= f64::from(point.factor);
        self.in_factors += 1;
        // 2^512 is far from overflow.
        if self.in_factors == 512 {
            self.take_logarithm();
        }
        self.right += u64::from(right);
    }

    #[cold]
    fn take_logarithm(&mut self) {
        self.logs += self.factors.ln();
        self.factors = 1.0;
        self.in_factors = 0;
    }

    fn total(&self) -> f64 {
        self.plain + self.logs + self.factors.ln()
    }
}

/// The state of one training.
#[derive(Debug)]
pub struct Trainer {
    params: Params,
    loss: Loss,
    weights: Weights,
    epoch: u32,
    rows: u64,
    loss_sum: f64,
    right: u64,
    best: f64,
    stale: u32,
    steps: Vec<f32>,
}

impl Trainer {
    /// A trainer with weights of zero.
    pub fn new(params: Params, loss: Loss) -> Result<Self> {
        let mut steps = Vec::new();
        let batch = params.batch_size as usize;
        steps.try_reserve_exact(batch).map_err(|_| Error::OutOfMemory { bytes: batch * 4, purpose: "a mini-batch" })?;
        Ok(Self {
            params,
            loss,
            weights: Weights::zeros(0)?,
            epoch: 0,
            rows: 0,
            loss_sum: 0.0,
            right: 0,
            best: f64::INFINITY,
            stale: 0,
            steps,
        })
    }

    /// Starts anew with another loss: the meaning of the target was found out late.
    pub fn restart(&mut self, loss: Loss) -> Result<()> {
        *self = Self::new(self.params.clone(), loss)?;
        Ok(())
    }

    /// Trains on a buffer in its order; called once a fill, in the order of the fills. `go_on` is
    /// asked every few hundred tuples; when it says no, the result is [`Error::Stopped`].
    pub fn train(&mut self, tuples: &TupleBuffer, mut go_on: impl FnMut() -> bool) -> Result<()> {
        let go_on = &mut go_on;
        self.weights.grow(tuples.max_features())?;
        match self.loss {
            Loss::LogLoss => self.run(LogLoss, tuples, go_on)?,
            Loss::Hinge => self.run(Hinge, tuples, go_on)?,
            Loss::SquaredError => self.run(SquaredError, tuples, go_on)?,
        }
        self.check_finite()
    }

    /// Picks the widest instructions that this processor has, once a buffer. The result does not
    /// depend on the choice (see `weights`).
    fn run<L: PointLoss>(&mut self, loss: L, tuples: &TupleBuffer, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        pulp::Arch::new().dispatch(|| self.run_inlined(loss, tuples, go_on))
    }

    #[inline(always)]
    fn run_inlined<L: PointLoss>(
        &mut self,
        loss: L,
        tuples: &TupleBuffer,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let rate = self.params.rate(self.epoch);
        let batch = self.params.batch_size as usize;
        let bias = if self.params.fit_intercept { 1.0 } else { 0.0 };
        let per_tuple = (rate / batch as f64) as f32;
        let shrinkage = rate * self.params.l2_reg / batch as f64;
        let order = tuples.order();
        // Whole batches between two questions.
        let stride = TUPLES_PER_QUESTION.next_multiple_of(batch);
        for (piece_number, piece) in order.chunks(stride).enumerate() {
            if !go_on() {
                return Err(Error::Stopped);
            }
            let mut sum = LossSum::default();
            let ahead = &order[(piece_number * stride + PREFETCH_DISTANCE).min(order.len())..];
            if batch == 1 {
                let shrink = (1.0 - shrinkage) as f32;
                for (i, row) in piece.iter().enumerate() {
                    if let Some(next) = ahead.get(i) {
                        tuples.prefetch(*next as usize);
                    }
                    let row = *row as usize;
                    let (x, y) = (tuples.features(row), tuples.label(row));
                    let p = self.weights.score(x);
                    let point = loss.eval(y, p);
                    sum.add(point, p * y > 0.0);
                    self.weights.shrink(shrink);
                    let step = -per_tuple * point.slope;
                    if step != 0.0 {
                        self.weights.add(step, x);
                        self.weights.intercept += bias * step;
                    }
                }
            } else {
                for (number, rows) in piece.chunks(batch).enumerate() {
                    self.steps.clear();
                    for (i, row) in rows.iter().enumerate() {
                        if let Some(next) = ahead.get(number * batch + i) {
                            tuples.prefetch(*next as usize);
                        }
                        let row = *row as usize;
                        let y = tuples.label(row);
                        let p = self.weights.score(tuples.features(row));
                        let point = loss.eval(y, p);
                        sum.add(point, p * y > 0.0);
                        self.steps.push(-per_tuple * point.slope);
                    }
                    self.weights.shrink((1.0 - shrinkage * rows.len() as f64) as f32);
                    for (row, step) in rows.iter().zip(&self.steps) {
                        self.weights.add(*step, tuples.features(*row as usize));
                        self.weights.intercept += bias * step;
                    }
                }
            }
            self.loss_sum += sum.total();
            self.right += sum.right;
        }
        self.rows += order.len() as u64;
        Ok(())
    }

    fn check_finite(&self) -> Result<()> {
        let what = if !self.loss_sum.is_finite() {
            "loss"
        } else if !self.weights.is_finite() {
            "weights"
        } else {
            return Ok(());
        };
        Err(Error::Diverged { epoch: self.epoch + 1, what, learning_rate: self.params.rate(self.epoch) })
    }

    /// Ends the epoch; the second value says whether `tolerance` ends training.
    pub fn end_epoch(&mut self) -> (EpochReport, bool) {
        let rows = self.rows.max(1) as f64;
        let report = EpochReport {
            epoch: self.epoch + 1,
            rows: self.rows,
            loss: self.loss_sum / rows,
            accuracy: self.loss.is_classification().then(|| self.right as f64 / rows),
            learning_rate: self.params.rate(self.epoch),
        };
        let needed = self.best - self.params.tolerance * self.best.abs();
        self.stale = if self.best.is_finite() && report.loss > needed { self.stale + 1 } else { 0 };
        self.best = self.best.min(report.loss);
        self.epoch += 1;
        self.rows = 0;
        self.loss_sum = 0.0;
        self.right = 0;
        (report, self.params.tolerance > 0.0 && self.stale >= PATIENCE)
    }

    /// The loss trained with.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> usize {
        self.weights.len() * 4 + self.steps.capacity() * 4
    }

    /// The weights as they are.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Takes the weights out, negated if the classes were coded the other way round.
    pub fn finish(&mut self, flipped: bool) -> Result<Weights> {
        let mut weights = std::mem::replace(&mut self.weights, Weights::zeros(0)?);
        if flipped {
            weights.negate();
        }
        Ok(weights)
    }
}

/// Runs whole trainings over tuples that are all in memory, with a full shuffle before every epoch:
/// what the plain aggregate (one model per group) does.
pub fn train_in_memory(
    params: &Params,
    loss: Loss,
    tuples: &mut TupleBuffer,
    mut go_on: impl FnMut() -> bool,
    mut after_epoch: impl FnMut(&EpochReport),
) -> Result<(Trainer, Vec<EpochReport>, StopReason)> {
    let started = std::time::Instant::now();
    let mut trainer = Trainer::new(params.clone(), loss)?;
    let mut history = Vec::new();
    for epoch in 0..params.max_epochs {
        tuples.arrange(params.shuffle.tuples(), params.seed, epoch, 0)?;
        trainer.train(tuples, &mut go_on)?;
        let (report, converged) = trainer.end_epoch();
        after_epoch(&report);
        history.push(report);
        if converged {
            return Ok((trainer, history, StopReason::Tolerance));
        }
        if params.max_seconds > 0.0 && started.elapsed().as_secs_f64() >= params.max_seconds {
            return Ok((trainer, history, StopReason::MaxSeconds));
        }
    }
    Ok((trainer, history, StopReason::MaxEpochs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permute::{Stream, generator};
    use crate::tuples::{Density, Features};
    use proptest::prelude::*;
    use rand::RngExt;

    /// Two Gaussian-like clouds, label −1 and +1, shifted by ±`shift` in every dimension.
    fn clouds(n: usize, dims: usize, shift: f32, sparse: bool) -> TupleBuffer {
        let density = if sparse { Density::Sparse } else { Density::Dense(dims) };
        let mut buffer = TupleBuffer::new(density, usize::MAX);
        let mut rng = generator(7, Stream::Tuples, 0, 0);
        let k: Vec<u32> = (0..dims as u32).collect();
        for i in 0..n {
            let y = if i < n / 2 { -1.0 } else { 1.0 };
            let x: Vec<f32> =
                (0..dims).map(|_| (0..6).map(|_| rng.random::<f32>() - 0.5).sum::<f32>() + y * shift).collect();
            let features = if sparse { Features::Sparse(&k, &x) } else { Features::Dense(&x) };
            buffer.push(y, features).expect("fits");
        }
        buffer
    }

    fn run(params: &Params, loss: Loss, tuples: &mut TupleBuffer) -> (Vec<f32>, f32, Vec<EpochReport>) {
        let (mut trainer, history, _) = train_in_memory(params, loss, tuples, || true, |_| ()).expect("trains");
        let weights = trainer.finish(false).expect("finishes");
        let b = weights.intercept;
        (weights.into_vec(), b, history)
    }

    #[test]
    fn clouds_are_separated_by_every_classifier() {
        for loss in [Loss::LogLoss, Loss::Hinge] {
            for sparse in [false, true] {
                for batch_size in [1, 32] {
                    let params = Params { learning_rate: 0.05, batch_size, ..Params::default() };
                    let (_, _, history) = run(&params, loss, &mut clouds(2000, 5, 0.5, sparse));
                    let accuracy = history.last().and_then(|r| r.accuracy).expect("classifier");
                    assert!(accuracy > 0.93, "{loss:?} sparse {sparse} batch {batch_size}: {accuracy}");
                }
            }
        }
    }

    #[test]
    fn order_matters_and_shuffling_cures_it() {
        let accuracy = |shuffle| {
            let params = Params { shuffle, tolerance: 0.0, learning_rate: 0.1, ..Params::default() };
            let mut tuples = clouds(4000, 3, 0.3, false);
            let (w, b, _) = run(&params, Loss::LogLoss, &mut tuples);
            let right = (0..tuples.len()).filter(|i| {
                let Features::Dense(x) = tuples.features(*i) else { unreachable!("dense") };
                (crate::weights::dot(&w, x) + b) * tuples.label(*i) > 0.0
            });
            right.count() as f64 / tuples.len() as f64
        };
        let (clustered, shuffled) = (accuracy(Shuffle::None), accuracy(Shuffle::Corgipile));
        assert!(shuffled > clustered + 0.05, "clustered {clustered}, shuffled {shuffled}");
    }
    use crate::params::Shuffle;

    #[test]
    fn least_squares_finds_the_line() {
        let mut buffer = TupleBuffer::new(Density::Dense(1), usize::MAX);
        for i in 0..1000 {
            let x = i as f32 / 500.0 - 1.0;
            buffer.push(3.0 * x + 2.0, Features::Dense(&[x])).expect("fits");
        }
        let params = Params { l2_reg: 0.0, tolerance: 0.0, learning_rate: 0.1, ..Params::default() };
        let (w, b, _) = run(&params, Loss::SquaredError, &mut buffer);
        assert!((w[0] - 3.0).abs() < 1e-3 && (b - 2.0).abs() < 1e-3, "{w:?} {b}");
    }

    #[test]
    fn l2_reaches_the_ridge_solution() {
        // One feature, y = x: the minimum of (w−1)²·m/2 + λ·w²/2 is m/(m+λ), m = mean x².
        let mut buffer = TupleBuffer::new(Density::Dense(1), usize::MAX);
        for i in 0..2000 {
            let x = if i % 2 == 0 { 1.0 } else { -1.0 };
            buffer.push(x, Features::Dense(&[x])).expect("fits");
        }
        for batch_size in [1, 64] {
            let params = Params {
                l2_reg: 0.5,
                tolerance: 0.0,
                learning_rate: 0.05,
                decay: 0.8,
                max_epochs: 40,
                fit_intercept: false,
                batch_size,
                ..Params::default()
            };
            let (w, _, _) = run(&params, Loss::SquaredError, &mut buffer);
            assert!((w[0] - 1.0 / 1.5).abs() < 2e-3, "batch {batch_size}: {w:?}");
        }
    }

    #[test]
    fn divergence_names_the_epoch() {
        let mut tuples = clouds(500, 4, 100.0, false);
        let params = Params { learning_rate: 10.0, ..Params::default() };
        let error = train_in_memory(&params, Loss::SquaredError, &mut tuples, || true, |_| ()).expect_err("diverges");
        assert!(matches!(error, Error::Diverged { epoch: 1, .. }), "{error}");
    }

    #[test]
    fn tolerance_stops_early() {
        let params = Params { max_epochs: 500, decay: 0.5, ..Params::default() };
        let (_, _, history) = run(&params, Loss::LogLoss, &mut clouds(500, 3, 0.5, false));
        assert!(history.len() < 50, "{} epochs", history.len());
    }

    #[test]
    fn stop_flag_ends_training() {
        let mut tuples = clouds(500, 3, 0.5, false);
        tuples.arrange(true, 1, 0, 0).expect("fits");
        let mut trainer = Trainer::new(Params::default(), Loss::LogLoss).expect("fits");
        assert_eq!(trainer.train(&tuples, || false), Err(Error::Stopped));
    }

    proptest! {
        /// A batch step is −η/B·Σ∇ℓ, checked against finite differences of the batch's loss.
        #[test]
        fn batch_step_follows_the_gradient(seed in 0u32..1000, n in 1usize..6) {
            let dims = 3;
            let mut rng = generator(i64::from(seed), Stream::Tuples, 0, 0);
            let mut buffer = TupleBuffer::new(Density::Dense(dims), usize::MAX);
            for _ in 0..n {
                let x: Vec<f32> = (0..dims).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect();
                buffer.push(if rng.random::<bool>() { 1.0 } else { -1.0 }, Features::Dense(&x)).expect("fits");
            }
            buffer.arrange(false, 0, 0, 0).expect("fits");
            let params = Params { l2_reg: 0.0, learning_rate: 1.0, batch_size: n as u32, ..Params::default() };
            let mut trainer = Trainer::new(params, Loss::LogLoss).expect("fits");
            trainer.train(&buffer, || true).expect("trains");
            // At w = 0 the gradient of ln(1+e^(−y·w·x)) is −y·x/2.
            let w = trainer.finish(false).expect("finishes").into_vec();
            for (j, w) in w.iter().enumerate() {
                let gradient: f32 = (0..n).map(|i| {
                    let Features::Dense(x) = buffer.features(i) else { unreachable!("dense") };
                    -buffer.label(i) * x[j] / 2.0
                }).sum::<f32>() / n as f32;
                prop_assert!((w + gradient).abs() < 1e-5);
            }
        }

        /// Negating the labels negates the weights, to the bit: what lets classes be coded as met.
        #[test]
        fn flipped_labels_give_negated_weights(hinge: bool, batch_size in 1u32..5) {
            let loss = if hinge { Loss::Hinge } else { Loss::LogLoss };
            let params = Params { batch_size, max_epochs: 2, ..Params::default() };
            let mut tuples = clouds(300, 4, 0.2, false);
            let (w, b, _) = run(&params, loss, &mut tuples);
            tuples.map_labels(|y| -y);
            let (v, c, _) = run(&params, loss, &mut tuples);
            prop_assert_eq!(w, v.iter().map(|v| -v).collect::<Vec<_>>());
            prop_assert_eq!(b, -c);
        }
    }
}
