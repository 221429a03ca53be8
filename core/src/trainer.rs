//! Stochastic gradient descent over buffers of tuples.
//!
//! The objective is mean ℓ(y, w·x + b) + λ₂/2·‖w‖² + λ₁·‖w‖₁, over the standardised features where
//! `standardize` is on; the intercept is not penalised. A step over a mini-batch of B tuples takes all
//! scores with the same weights and averages the gradients; the last, short batch of a buffer also
//! divides by B, so that every tuple has the same influence wherever the buffer ends.
//!
//! The model is an average over the course of training in which a weight vector counts the more the
//! later it came (polynomial-decay averaging, Shamir and Zhang 2013): the noise of single steps goes
//! away without a small rate. Adding the vector every few dozen tuples costs next to nothing.

use crate::dense::{Step, Tally};
use crate::holdout::Holdout;
use crate::loss::{
    EpsilonInsensitive, Hinge, Huber, LogLoss, Loss, ModifiedHuber, Objective, Point, Softmax, SquaredError,
    SquaredHinge,
};
use crate::params::{ClassWeight, Params, Shuffle};
use crate::scaling::Scaling;
use crate::tuples::{Density, Features, TupleBuffer, Visits};
use crate::vector::{dispatch, wide_dot};
use crate::weights::{Adagrad, Adam, Average, MIN_SHRINK, Momentum, Optimizer, Penalty, Rows, Rule, Sgd, Weights};
use crate::{Error, Result};
use pulp::Simd;
use serde::{Deserialize, Serialize};

/// Tuples between two questions whether to go on: about 100 µs of work at 1000 features.
const TUPLES_PER_QUESTION: usize = 256;
/// Tuples between asking for one to be brought into the cache and using it.
const PREFETCH_DISTANCE: usize = 12;
/// Epochs without improvement that end training when `tolerance` is set.
const PATIENCE: u32 = 5;
/// The exponent of the average: a vector counts as the power of its number.
const AVERAGE_POWER: f64 = 3.0;
/// Fewest tuples between two vectors that enter the average.
const AVERAGE_EVERY: usize = 32;
/// ε in standard deviations of the target when the user gave none.
const EPSILON: f64 = 0.1;
/// Tuples, and feature values, of the sample on which a learning rate is sought.
const SAMPLE_TUPLES: usize = 20_000;
const SAMPLE_VALUES: usize = 4_000_000;

/// What an epoch did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Counted from 1.
    pub epoch: u32,
    /// Tuples trained on.
    pub rows: u64,
    /// Progressive loss: the (weighted) mean of each tuple's loss just before its own step, penalty
    /// excluded, in the user's units; `None` if training diverged with the last tuples of the epoch.
    pub loss: Option<f64>,
    /// Progressive accuracy: part of the tuples on the right side just before their step;
    /// `None` for regression.
    pub accuracy: Option<f64>,
    /// Of the weights as they are after the epoch, on the tuples held out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eval: Option<Measured>,
    /// The rate of the epoch.
    pub learning_rate: f64,
    /// Wall time from the beginning of the training to the end of the epoch, in milliseconds.
    #[serde(default)]
    pub elapsed_ms: f64,
    /// Whether training diverged here and went on from the epoch before with half the rate.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub diverged: bool,
}

/// How well weights do on tuples that are not trained on meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Tuples looked at.
    pub rows: u64,
    /// Mean loss, penalty excluded, in the user's units.
    pub loss: f64,
    /// Part of the tuples on the right side; `None` for regression.
    pub accuracy: Option<f64>,
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
    right: u64,
    sums: Sums,
}

impl Default for LossSum {
    fn default() -> Self {
        Self { plain: 0.0, factors: 1.0, logs: 0.0, right: 0, sums: Sums::default() }
    }
}

/// Weighted sums over tuples.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    loss: f64,
    right: f64,
    weight: f64,
}

impl Sums {
    fn add(&mut self, other: Sums) {
        self.loss += other.loss;
        self.right += other.right;
        self.weight += other.weight;
    }

    /// Mean loss; `None` for no tuples.
    fn mean(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.loss / self.weight)
    }

    fn accuracy(&self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.right / self.weight)
    }
}

impl LossSum {
    #[inline(always)]
    fn add(&mut self, point: Point) {
        self.plain += f64::from(point.plain);
        self.factors *= f64::from(point.factor);
        if self.factors < 1e-200 {
            self.take_logarithm();
        }
        self.right += u64::from(point.right);
    }

    #[inline(always)]
    fn add_weighted(&mut self, point: Point, weight: f32, class_weight: f32) {
        let weight = f64::from(weight);
        let loss = f64::from(point.plain) - f64::from(point.factor).ln();
        self.sums.add(Sums {
            loss: weight * f64::from(class_weight) * loss,
            right: weight * f64::from(u8::from(point.right)),
            weight,
        });
    }

    #[cold]
    fn take_logarithm(&mut self) {
        self.logs -= self.factors.ln();
        self.factors = 1.0;
    }

    /// The sums of a piece of `tuples`.
    fn total(&self, tuples: usize, weighted: bool) -> Sums {
        if weighted {
            return self.sums;
        }
        let loss = self.plain + self.logs - self.factors.ln();
        Sums { loss, right: self.right as f64, weight: tuples as f64 }
    }
}

/// A loss of one score chosen at run time: for the rules whose step costs more than the choice.
#[derive(Debug, Clone, Copy)]
struct Chosen {
    loss: Loss,
    epsilon: f32,
}

impl Objective for Chosen {
    #[inline(always)]
    fn eval(self, y: f32, scores: &mut [f32]) -> Point {
        match self.loss {
            Loss::LogLoss => LogLoss.eval(y, scores),
            Loss::Hinge => Hinge.eval(y, scores),
            Loss::SquaredHinge => SquaredHinge.eval(y, scores),
            Loss::ModifiedHuber => ModifiedHuber.eval(y, scores),
            Loss::Softmax => Softmax.eval(y, scores),
            Loss::SquaredError => SquaredError.eval(y, scores),
            Loss::Huber => Huber(self.epsilon).eval(y, scores),
            Loss::EpsilonInsensitive => EpsilonInsensitive(self.epsilon).eval(y, scores),
        }
    }
}

/// Largest second derivative of a loss: what bounds a stable rate.
fn curvature(loss: Loss) -> f64 {
    match loss {
        Loss::LogLoss => 0.25,
        Loss::Softmax => 0.5,
        Loss::SquaredHinge | Loss::ModifiedHuber => 2.0,
        Loss::Hinge | Loss::SquaredError | Loss::Huber | Loss::EpsilonInsensitive => 1.0,
    }
}

/// The class number of a label of a binary loss.
#[inline(always)]
fn binary_class(label: f32) -> usize {
    usize::from(label > 0.0)
}

impl Tally for LossSum {
    #[inline(always)]
    fn note(&mut self, _: usize, _: f32, point: Point) -> f32 {
        self.add(point);
        1.0
    }
}

/// The [`Tally`] of tuples that do not count the same, of a binary loss or a regression.
struct Weighted<'a> {
    sum: &'a mut LossSum,
    tuples: &'a TupleBuffer,
    class_weights: &'a [f32],
    unit_weight: f32,
}

impl Tally for Weighted<'_> {
    #[inline(always)]
    fn note(&mut self, row: usize, y: f32, point: Point) -> f32 {
        let weight = self.tuples.weight(row);
        let class_weight = self.class_weights.get(binary_class(y)).copied().unwrap_or(1.0);
        self.sum.add_weighted(point, weight, class_weight);
        weight * self.unit_weight * class_weight
    }
}

/// A call of [`Trainer::run_inlined`] for [`dispatch`]. Not a closure: one of that size is
/// not inlined into the function that has the wide instructions, and is then compiled without them.
struct Run<'a, L> {
    trainer: &'a mut Trainer,
    loss: L,
    visits: Visits<'a>,
    learn: bool,
    go_on: &'a mut dyn FnMut() -> bool,
}

impl<L: Objective> pulp::WithSimd for Run<'_, L> {
    type Output = Result<()>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Result<()> {
        self.trainer.run_inlined(simd, self.loss, self.visits, self.learn, self.go_on)
    }
}

/// The state of one training.
#[derive(Debug)]
pub struct Trainer {
    params: Params,
    loss: Loss,
    optimizer: Optimizer,
    density: Density,
    memory_limit: usize,
    /// η₀ as given, or as found.
    rate: Option<f64>,
    scaling: Option<Scaling>,
    /// How much a tuple of each class counts, by class number; empty: all the same.
    class_weights: Vec<f32>,
    /// Mean weight of a tuple, by which weights are divided: in the first buffer, then in an epoch.
    mean_weight: f64,
    /// Weights to start from, in the user's units.
    initial: Option<Rows>,
    holdout: Option<Holdout>,
    /// Whether the weights are the finished ones: no step may follow.
    complete: bool,
    weights: Weights,
    average: Average,
    averaged: u64,
    average_layout: (usize, usize, usize),
    since_average: usize,
    average_every: usize,
    /// The weights at the start of the epoch, to go back to.
    checkpoint: Option<Box<Weights>>,
    diverged: bool,
    diverged_before: bool,
    epoch: u32,
    step: u64,
    rows: u64,
    sums: Sums,
    best: f64,
    stale: u32,
    scores: Vec<f32>,
    slopes: Vec<f32>,
}

impl Trainer {
    /// A trainer with weights of zero; weights and what belongs to them may take `memory_limit` bytes,
    /// half of it where tuples are held out, which may take the other half.
    pub fn new(params: Params, loss: Loss, density: Density, memory_limit: usize) -> Self {
        let optimizer = params.optimizer;
        let l1 = params.l1_reg > 0.0;
        let l2_reg = Some(params.l2_for(density == Density::Sparse));
        let params = Params { l2_reg, ..params };
        Self {
            rate: params.learning_rate,
            params,
            loss,
            optimizer,
            density,
            memory_limit,
            scaling: None,
            class_weights: Vec::new(),
            mean_weight: 1.0,
            initial: None,
            holdout: None,
            complete: false,
            weights: Weights::new(density, optimizer, l1),
            average: Average::default(),
            averaged: 0,
            average_layout: (0, 0, 0),
            since_average: 0,
            average_every: AVERAGE_EVERY,
            checkpoint: None,
            diverged: false,
            diverged_before: false,
            epoch: 0,
            step: 0,
            rows: 0,
            sums: Sums::default(),
            best: f64::INFINITY,
            stale: 0,
            scores: Vec::new(),
            slopes: Vec::new(),
        }
    }

    /// Starts anew with another loss: the meaning of the target was found out late.
    pub fn restart(&mut self, loss: Loss) {
        *self = Self::new(self.params.clone(), loss, self.density, self.memory_limit);
    }

    /// Prepares a freshly filled buffer: learns the scaling from the first one (of sparse features, from the first that has
    /// each), applies it to all.
    pub fn prepare(&mut self, tuples: &mut TupleBuffer) -> Result<()> {
        let sparse = self.params.standardize && self.density == Density::Sparse;
        let mut scaling = match self.scaling.take() {
            Some(scaling) => scaling,
            None => {
                let trained_on = (0..tuples.len()).map(|row| f64::from(tuples.weight(row))).filter(|w| *w > 0.0);
                let (count, sum) = trained_on.fold((0.0, 0.0), |(n, sum), w| (n + 1.0, sum + w));
                self.mean_weight = if sum > 0.0 { sum / count } else { 1.0 };
                if matches!(self.params.class_weight, Some(ClassWeight::Balanced(_))) {
                    self.class_weights = self.balance(tuples);
                }
                let numbers = !self.loss.is_classification();
                if self.density == Density::Sparse {
                    self.check_room(tuples.max_features(), 1)?;
                }
                Scaling::learn(tuples, self.params.standardize, numbers, self.params.fit_intercept)?
            }
        };
        if self.params.eval_fraction > 0.0 && self.epoch == 0 {
            let (density, limit) = (self.density, self.held_out_limit());
            self.holdout.get_or_insert_with(|| Holdout::new(density, limit)).take_from(tuples)?;
        }
        // Later epochs meet nothing new.
        if sparse && self.epoch == 0 {
            for feature in scaling.meet(tuples, &self.params.scaled_features)? {
                let feature = feature as usize;
                self.rescale(feature, scaling.factor(feature).recip());
            }
        }
        scaling.apply(tuples);
        self.scaling = Some(scaling);
        Ok(())
    }

    /// Weights of a feature that is met late, whose values are divided by `factor` from now on: others than 0 where training
    /// goes on from a model.
    fn rescale(&mut self, feature: usize, factor: f32) {
        if factor != 1.0 {
            self.weights.rescale(&mut self.average, feature, factor);
            if let Some(checkpoint) = &mut self.checkpoint {
                checkpoint.rescale(&mut Average::default(), feature, factor);
            }
        }
    }

    /// Bytes that tuples held out may take: half of all, if any are.
    fn held_out_limit(&self) -> usize {
        if self.params.eval_fraction > 0.0 { self.memory_limit / 2 } else { 0 }
    }

    /// Sets the weights to start from, in the user's units, one row an output in the order of the
    /// class numbers.
    pub fn start_from(&mut self, rows: Rows) {
        self.initial = Some(rows);
    }

    /// Sets how much the tuples of each class count, by class number; 'balanced' is found by
    /// [`Self::prepare`] instead.
    pub fn set_class_weights(&mut self, weights: Vec<f32>) {
        self.class_weights = weights;
    }

    /// The class number of a label.
    fn class_number(&self, label: f32) -> usize {
        if self.loss == Loss::Softmax { label as usize } else { binary_class(label) }
    }

    /// n / (classes · n of the class) for the classes in a buffer; 1 for others.
    fn balance(&self, tuples: &TupleBuffer) -> Vec<f32> {
        let mut counts: Vec<f64> = Vec::new();
        for (row, label) in tuples.labels().iter().enumerate() {
            let class = self.class_number(*label);
            if class >= counts.len() {
                counts.resize(class + 1, 0.0);
            }
            counts[class] += f64::from(tuples.weight(row));
        }
        let classes = counts.iter().filter(|n| **n > 0.0).count() as f64;
        let all: f64 = counts.iter().sum();
        let weight = |n: &f64| if *n > 0.0 { (all / (classes * n)) as f32 } else { 1.0 };
        counts.iter().map(weight).collect()
    }

    /// Whether weights of this shape fit into memory, with all that goes with them.
    fn check_room(&self, features: usize, outputs: usize) -> Result<()> {
        let limit = self.memory_limit - self.held_out_limit();
        let needed = self.weights.bytes_for(features, outputs);
        if needed > limit {
            let what = format!("the weights of {features} features and {outputs} outputs");
            return Err(Error::MemoryLimit { what, needed, limit });
        }
        Ok(())
    }

    fn grow(&mut self, features: usize, classes: usize) -> Result<()> {
        let outputs = if self.loss == Loss::Softmax { classes.max(1) } else { 1 };
        let (features_before, outputs_before, _) = self.weights.layout();
        if features <= features_before && outputs <= outputs_before && outputs_before > 0 {
            return Ok(());
        }
        self.check_room(features.max(features_before), outputs.max(outputs_before))?;
        self.weights.grow(features, outputs)?;
        self.scores.resize(outputs, 0.0);
        // Places may have moved: an average or a checkpoint of another layout is of no use.
        if let Some(checkpoint) = &mut self.checkpoint {
            checkpoint.grow(features, outputs)?;
        }
        if self.weights.layout() != self.average_layout {
            self.average = Average::default();
            self.averaged = 0;
            self.average_layout = self.weights.layout();
        }
        Ok(())
    }

    /// Trains on a prepared buffer in its order; called once a fill, in the order of the fills.
    /// `classes` is the number of classes met so far. `go_on` is asked every few hundred tuples; when
    /// it says no, the result is [`Error::Stopped`].
    pub fn train(&mut self, tuples: &TupleBuffer, classes: usize, go_on: impl FnMut() -> bool) -> Result<()> {
        let values = tuples.stored_values() / tuples.len().max(1);
        self.train_on(tuples.visits(), values, classes, go_on)
    }

    /// The same for tuples that lie anywhere; `values` is how many a tuple has on average.
    pub fn train_on(
        &mut self,
        visits: Visits<'_>,
        values: usize,
        classes: usize,
        mut go_on: impl FnMut() -> bool,
    ) -> Result<()> {
        let Visits { tuples, order } = visits;
        self.grow(tuples.max_features(), classes)?;
        if let Some(mut rows) = self.initial.take() {
            self.grow(rows.features, rows.intercepts.len())?;
            if let Some(scaling) = &self.scaling {
                scaling.scale(&mut rows);
            }
            self.weights.set(&rows);
            self.checkpoint = Some(Box::new(self.weights.clone()));
        }
        if self.rate.is_none() && !order.is_empty() {
            self.rate = Some(self.find_rate(tuples, classes, &mut go_on)?);
        }
        let values = values.max(1) * self.weights.outputs();
        self.average_every = AVERAGE_EVERY.max(4 * self.weights.features() * self.weights.outputs() / values);
        self.run(visits, true, &mut go_on)?;
        self.rows += order.len() as u64;
        if self.sums.loss.is_finite() && self.weights.is_finite() {
            return Ok(());
        }
        self.go_back()
    }

    /// After a divergence: once, back to the weights of the epoch before, with half the rate.
    fn go_back(&mut self) -> Result<()> {
        let what = if self.sums.loss.is_finite() { "weights" } else { "loss" };
        if self.diverged_before {
            return Err(Error::Diverged { epoch: self.epoch + 1, what, learning_rate: self.rate_now() });
        }
        self.diverged = true;
        self.diverged_before = true;
        self.rate = self.rate.map(|rate| rate / 2.0);
        let (features, outputs, _) = self.weights.layout();
        self.weights = match self.checkpoint.take() {
            Some(weights) => *weights,
            None => Weights::new(self.density, self.optimizer, self.params.l1_reg > 0.0),
        };
        self.weights.grow(features, outputs)?;
        self.average = Average::default();
        self.averaged = 0;
        // What was summed up with weights that are gone does not count.
        self.sums = Sums::default();
        Ok(())
    }

    /// Seeks η₀ on a sample of the first buffer, as Bottou's SGD does: a pass over one half of it at
    /// each of a series of rates, judged by the loss on the other half; the series goes up or down by
    /// factors of two from a rate that is stable for a tuple of average length.
    fn find_rate(&self, tuples: &TupleBuffer, classes: usize, go_on: &mut dyn FnMut() -> bool) -> Result<f64> {
        let values = (tuples.stored_values() / tuples.len()).max(1);
        // At least a handful of tuples a class: fewer say nothing about the rate.
        let outputs = self.weights.outputs().max(1);
        let most = SAMPLE_TUPLES.min((SAMPLE_VALUES / values / outputs).max(20 * outputs).max(200));
        let sample = &tuples.order()[..tuples.order().len().min(most)];
        // A handful of tuples are judged on themselves.
        let (train, judge) = if sample.len() >= 20 { sample.split_at(sample.len() / 2) } else { (sample, sample) };
        let square = |row: &u32| match tuples.features(*row as usize) {
            Features::Dense(x) | Features::Sparse(_, x) => f64::from(wide_dot(x, x)),
        };
        let length = sample.iter().map(square).sum::<f64>() / sample.len() as f64;
        // The intercept is a feature that is always 1: features of next to nothing do not make the rate endless.
        let length = if self.params.fit_intercept { length.max(1.0) } else { length };
        let mut rate = match self.optimizer {
            Optimizer::Sgd | Optimizer::Momentum => 0.25 / (curvature(self.loss) * length.max(1e-12)),
            Optimizer::Adagrad => 0.1,
            Optimizer::Adam => 0.01,
        };
        let mut judge_rate = |rate: f64| -> Result<f64> {
            let params = Params { learning_rate: Some(rate), ..self.params.clone() };
            let mut probe = Trainer::new(params, self.loss, self.density, self.memory_limit);
            probe.scaling = self.scaling.clone();
            probe.class_weights = self.class_weights.clone();
            probe.mean_weight = self.mean_weight;
            probe.grow(tuples.max_features(), classes)?;
            probe.weights.clone_from(&self.weights);
            probe.average_every = AVERAGE_EVERY;
            probe.run(Visits { tuples, order: train }, true, go_on)?;
            probe.snapshot()?;
            probe.weights.exchange(&mut probe.average);
            probe.sums = Sums::default();
            probe.run(Visits { tuples, order: judge }, false, go_on)?;
            let loss = probe.sums.mean().unwrap_or(f64::INFINITY);
            Ok(if loss.is_finite() { loss } else { f64::INFINITY })
        };
        let mut best = judge_rate(rate)?;
        for factor in [2.0, 0.5] {
            let mut moved = false;
            for _ in 0..20 {
                let loss = judge_rate(rate * factor)?;
                if loss >= best {
                    break;
                }
                (rate, best, moved) = (rate * factor, loss, true);
            }
            if moved {
                break;
            }
        }
        Ok(rate)
    }

    /// Picks the rule and the loss, and the widest instructions that this processor has. The result
    /// does not depend on the latter (see `vector`).
    fn run(&mut self, visits: Visits<'_>, learn: bool, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let unit = self.scaling.as_ref().map_or(1.0, Scaling::target_unit);
        let epsilon = self.params.epsilon.map_or(EPSILON, |epsilon| epsilon / unit) as f32;
        macro_rules! run {
            ($loss:expr) => {
                dispatch(Run { trainer: self, loss: $loss, visits, learn, go_on })
            };
        }
        match (self.optimizer, self.loss) {
            (Optimizer::Sgd, Loss::LogLoss) => run!(LogLoss),
            (Optimizer::Sgd, Loss::Hinge) => run!(Hinge),
            (Optimizer::Sgd, Loss::SquaredHinge) => run!(SquaredHinge),
            (Optimizer::Sgd, Loss::ModifiedHuber) => run!(ModifiedHuber),
            (Optimizer::Sgd, Loss::SquaredError) => run!(SquaredError),
            (_, Loss::Softmax) => run!(Softmax),
            (_, loss) => run!(Chosen { loss, epsilon }),
        }
    }

    #[inline(always)]
    fn run_inlined<S: Simd, L: Objective>(
        &mut self,
        simd: S,
        loss: L,
        visits: Visits<'_>,
        learn: bool,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let rate = self.rate_now() as f32;
        match self.optimizer {
            Optimizer::Sgd => self.pass(simd, loss, |_| Sgd(rate), visits, learn, go_on),
            Optimizer::Momentum => self.pass(simd, loss, |_| Momentum(rate), visits, learn, go_on),
            Optimizer::Adagrad => self.pass(simd, loss, |_| Adagrad(rate), visits, learn, go_on),
            Optimizer::Adam => self.pass(simd, loss, |step| Adam::at(rate, step), visits, learn, go_on),
        }
    }

    #[inline(always)]
    fn pass<S: Simd, L: Objective, R: Rule>(
        &mut self,
        simd: S,
        loss: L,
        rule_at: impl Fn(u64) -> R,
        visits: Visits<'_>,
        learn: bool,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let Visits { tuples, order } = visits;
        let batch = if learn { self.params.batch_size as usize } else { 1 };
        let intercept = self.params.fit_intercept;
        let penalty = self.penalty();
        let lazy = learn && self.density == Density::Sparse && (penalty.l1 > 0.0 || (R::ADAPTIVE && penalty.l2 > 0.0));
        let outputs = self.weights.outputs();
        let weighted = tuples.is_weighted() || !self.class_weights.is_empty();
        let unit_weight = (1.0 / self.mean_weight) as f32;
        let rate = self.rate_now() as f32;
        let line = Step { rate, shrink: 1.0 - rate * penalty.l2, intercept };
        let plain = learn
            && batch == 1
            && L::SINGLE
            && !R::ADAPTIVE
            && penalty.l1 == 0.0
            && line.shrink.powi(TUPLES_PER_QUESTION as i32) >= MIN_SHRINK
            && matches!(self.density, Density::Dense(_));
        if plain {
            return self.pass_line(simd, loss, line, visits, weighted.then_some(unit_weight), go_on);
        }
        // Whole batches between two questions.
        let stride = TUPLES_PER_QUESTION.next_multiple_of(batch);
        let mut one = [0f32; 1];
        for (piece_number, piece) in order.chunks(stride).enumerate() {
            if !go_on() {
                return Err(Error::Stopped);
            }
            let mut sum = LossSum::default();
            let ahead = &order[(piece_number * stride + PREFETCH_DISTANCE).min(order.len())..];
            let far_ahead = &ahead[PREFETCH_DISTANCE.min(ahead.len())..];
            for (number, rows) in piece.chunks(batch).enumerate() {
                let rule = rule_at(self.step + 1);
                self.slopes.clear();
                for (i, row) in rows.iter().enumerate() {
                    if let Some(next) = far_ahead.get(number * batch + i) {
                        tuples.prefetch_place(*next as usize);
                    }
                    if let Some(next) = ahead.get(number * batch + i) {
                        tuples.prefetch(*next as usize);
                    }
                    let row = *row as usize;
                    let (x, y) = (tuples.features(row), tuples.label(row));
                    if let (true, Features::Sparse(k, _)) = (lazy, x) {
                        self.weights.catch_up(rule, penalty, k);
                    }
                    let mut scores = std::mem::take(&mut self.scores);
                    let target = if L::SINGLE { &mut one[..] } else { &mut scores[..] };
                    if L::SINGLE {
                        self.weights.scores::<S, true>(simd, x, target);
                    } else {
                        self.weights.scores::<S, false>(simd, x, target);
                    }
                    let point = loss.eval(y, target);
                    if weighted {
                        let weight = tuples.weight(row);
                        let class_weight = self.class_weights.get(self.class_number(y)).copied().unwrap_or(1.0);
                        sum.add_weighted(point, weight, class_weight);
                        let factor = weight * unit_weight * class_weight;
                        target.iter_mut().for_each(|slope| *slope *= factor);
                    } else {
                        sum.add(point);
                    }
                    if learn && batch == 1 {
                        if L::SINGLE {
                            self.weights.step::<S, R, true>(simd, rule, target, x, intercept);
                        } else {
                            self.weights.step::<S, R, false>(simd, rule, target, x, intercept);
                        }
                        self.weights.penalise(rule, penalty, 1.0);
                    } else if learn {
                        self.slopes.extend_from_slice(target);
                    }
                    self.scores = scores;
                }
                if learn {
                    self.step += 1;
                    if batch > 1 {
                        self.step_batch::<S, L, R>(simd, rule, tuples, rows, outputs, batch)?;
                        self.weights.penalise(rule, penalty, rows.len() as f32 / batch as f32);
                    }
                    self.since_average += rows.len();
                    if self.since_average >= self.average_every && self.params.average {
                        self.snapshot()?;
                    }
                }
            }
            self.sums.add(sum.total(piece.len(), weighted));
        }
        Ok(())
    }

    /// A pass of plain SGD over dense tuples with one score, tuple by tuple (see [`crate::dense`]).
    /// `unit_weight`: tuples do not count the same, and by this factor as much as they say.
    #[inline(always)]
    fn pass_line<S: Simd, L: Objective>(
        &mut self,
        simd: S,
        loss: L,
        step: Step,
        visits: Visits<'_>,
        unit_weight: Option<f32>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let Visits { tuples, order } = visits;
        let mut from = 0;
        while from < order.len() {
            if !go_on() {
                return Err(Error::Stopped);
            }
            let mut to = (from + TUPLES_PER_QUESTION).min(order.len());
            if self.params.average {
                to = to.min(from + self.average_every.saturating_sub(self.since_average).max(1));
            }
            let mut sum = LossSum::default();
            match unit_weight {
                None => self.weights.line()?.run(simd, loss, step, visits, from..to, &mut sum),
                Some(unit_weight) => {
                    let mut tally = Weighted { sum: &mut sum, tuples, class_weights: &self.class_weights, unit_weight };
                    self.weights.line()?.run(simd, loss, step, visits, from..to, &mut tally);
                }
            }
            self.weights.end_line();
            self.sums.add(sum.total(to - from, unit_weight.is_some()));
            self.step += (to - from) as u64;
            self.since_average += to - from;
            if self.since_average >= self.average_every && self.params.average {
                self.snapshot()?;
            }
            from = to;
        }
        Ok(())
    }

    /// One step for a whole mini-batch, whose slopes stand in `self.slopes`.
    #[inline(always)]
    fn step_batch<S: Simd, L: Objective, R: Rule>(
        &mut self,
        simd: S,
        rule: R,
        tuples: &TupleBuffer,
        rows: &[u32],
        outputs: usize,
        batch: usize,
    ) -> Result<()> {
        let part = 1.0 / batch as f32;
        self.slopes.iter_mut().for_each(|slope| *slope *= part);
        for (row, slopes) in rows.iter().zip(self.slopes.chunks_exact(outputs)) {
            let x = tuples.features(*row as usize);
            if R::ADAPTIVE {
                self.weights.accumulate(simd, slopes, x)?;
            } else if L::SINGLE {
                self.weights.step::<S, R, true>(simd, rule, slopes, x, self.params.fit_intercept);
            } else {
                self.weights.step::<S, R, false>(simd, rule, slopes, x, self.params.fit_intercept);
            }
        }
        if R::ADAPTIVE {
            self.weights.step_accumulated(rule, self.params.fit_intercept);
        }
        Ok(())
    }

    /// The rate of this epoch.
    fn rate_now(&self) -> f64 {
        self.rate.unwrap_or(0.0) * self.params.decayed(self.epoch)
    }

    fn penalty(&self) -> Penalty {
        Penalty { l2: self.params.l2_reg.unwrap_or(0.0) as f32, l1: self.params.l1_reg as f32 }
    }

    /// Brings put-off penalties up to date.
    fn settle(&mut self) {
        let penalty = self.penalty();
        let rate = self.rate_now() as f32;
        match self.optimizer {
            Optimizer::Sgd => self.weights.settle(Sgd(rate), penalty),
            Optimizer::Momentum => self.weights.settle(Momentum(rate), penalty),
            Optimizer::Adagrad => self.weights.settle(Adagrad(rate), penalty),
            Optimizer::Adam => self.weights.settle(Adam::at(rate, self.step.max(1)), penalty),
        }
    }

    /// Adds the weights as they are to the average.
    fn snapshot(&mut self) -> Result<()> {
        self.since_average = 0;
        self.settle();
        self.averaged += 1;
        let part = (AVERAGE_POWER + 1.0) / (AVERAGE_POWER + self.averaged as f64);
        self.weights.average_into(&mut self.average, part as f32)
    }

    /// The unit of the loss: what a loss of 1 over scaled targets is in the user's units.
    fn loss_unit(&self) -> f64 {
        let unit = self.scaling.as_ref().map_or(1.0, Scaling::target_unit);
        match self.loss {
            Loss::SquaredError | Loss::Huber => unit * unit,
            Loss::EpsilonInsensitive => unit,
            _ => 1.0,
        }
    }

    /// Takes what was summed up since: mean loss and accuracy.
    fn take_means(&mut self) -> (Option<f64>, Option<f64>) {
        let sums = std::mem::take(&mut self.sums);
        let accuracy = if self.loss.is_classification() { sums.accuracy() } else { None };
        (sums.mean().map(|loss| loss * self.loss_unit()), accuracy)
    }

    /// Judges the weights as they are on the tuples held out.
    fn evaluate(&mut self, go_on: &mut dyn FnMut() -> bool) -> Result<Option<Measured>> {
        let Some(mut holdout) = self.holdout.take().filter(|holdout| !holdout.tuples().is_empty()) else {
            return Ok(None);
        };
        if let Some(scaling) = &self.scaling {
            holdout.scale(scaling);
        }
        self.settle();
        if self.averaged > 0 {
            self.weights.exchange(&mut self.average);
        }
        let tuples = holdout.tuples();
        let outcome = self.run(tuples.visits(), false, go_on);
        if self.averaged > 0 {
            self.weights.exchange(&mut self.average);
        }
        let rows = tuples.len() as u64;
        self.holdout = Some(holdout);
        outcome?;
        let (loss, accuracy) = self.take_means();
        Ok(loss.map(|loss| Measured { rows, loss, accuracy }))
    }

    /// Ends the epoch; the second value says whether `tolerance` ends training.
    pub fn end_epoch(&mut self, mut go_on: impl FnMut() -> bool) -> Result<(EpochReport, bool)> {
        if self.params.average {
            self.snapshot()?;
        }
        if self.sums.weight > 0.0 && self.rows > 0 && !self.diverged {
            self.mean_weight = self.sums.weight / self.rows as f64;
        }
        let (loss, accuracy) = self.take_means();
        let eval = self.evaluate(&mut go_on)?;
        let report = EpochReport {
            epoch: self.epoch + 1,
            rows: self.rows,
            loss,
            accuracy,
            eval,
            learning_rate: self.rate_now(),
            elapsed_ms: 0.0,
            diverged: self.diverged,
        };
        // Tuples held out say better than the progressive loss whether there is more to gain.
        let watched = eval.map(|eval| eval.loss).or(loss).unwrap_or(f64::INFINITY);
        let needed = self.best - self.params.tolerance * self.best.abs();
        self.stale = if self.best.is_finite() && watched > needed { self.stale + 1 } else { 0 };
        if !self.diverged {
            self.best = self.best.min(watched);
        }
        self.checkpoint = Some(Box::new(self.weights.clone()));
        self.epoch += 1;
        self.rows = 0;
        self.diverged = false;
        Ok((report, self.params.tolerance > 0.0 && self.stale >= PATIENCE))
    }

    /// Ends the training: the weights become the finished ones.
    fn complete(&mut self) -> Result<()> {
        if !std::mem::replace(&mut self.complete, true) {
            self.settle();
            if self.averaged > 0 {
                self.weights.exchange(&mut self.average);
            }
        }
        Ok(())
    }

    /// Adds a prepared buffer to the measurement of the finished weights; no training may follow.
    pub fn measure(&mut self, visits: Visits<'_>, mut go_on: impl FnMut() -> bool) -> Result<()> {
        self.complete()?;
        self.rows += visits.order.len() as u64;
        self.run(visits, false, &mut go_on)
    }

    /// The result of [`Self::measure`] over all its buffers; `None` for no tuples.
    pub fn measured(&mut self) -> Option<Measured> {
        let rows = std::mem::take(&mut self.rows);
        let (loss, accuracy) = self.take_means();
        loss.map(|loss| Measured { rows, loss, accuracy })
    }

    /// The loss trained with.
    pub fn loss(&self) -> Loss {
        self.loss
    }

    /// The parameters, with what was chosen or found in place of what was left open.
    pub fn params_in_force(&self) -> Params {
        Params { learning_rate: self.rate, loss: Some(self.loss), ..self.params.clone() }
    }

    /// Features there are weights for.
    pub fn features(&self) -> usize {
        self.weights.features()
    }

    /// Columns that had one value only, in the first buffer.
    pub fn constant_columns(&self) -> usize {
        self.scaling.as_ref().map_or(0, Scaling::constant_columns)
    }

    /// Bytes of the weights once there are so many features and classes, and of what is held out.
    pub fn bytes_beside(&self, features: usize, classes: usize) -> usize {
        let outputs = if self.loss == Loss::Softmax { classes.max(1) } else { 1 };
        let (features_now, outputs_now, _) = self.weights.layout();
        self.weights.bytes_for(features.max(features_now), outputs.max(outputs_now)) + self.held_out_limit()
    }

    /// Bytes of the weights, the copy to go back to, and what is made of them.
    pub fn bytes(&self) -> usize {
        let (features, outputs, _) = self.weights.layout();
        self.weights.bytes_for(features, outputs)
    }

    /// The finished weights in the user's units; negated if the classes were coded the other way round.
    pub fn finish(&mut self, flipped: bool) -> Result<Rows> {
        self.complete()?;
        let mut rows = self.weights.rows()?;
        if let Some(scaling) = &self.scaling {
            scaling.unscale(&mut rows);
        }
        if flipped {
            rows.weights.iter_mut().chain(&mut rows.intercepts).for_each(|w| *w = -*w);
        }
        if rows.weights.iter().chain(&rows.intercepts).all(|w| w.is_finite()) {
            return Ok(rows);
        }
        Err(Error::Diverged { epoch: self.epoch, what: "weights", learning_rate: self.rate.unwrap_or(0.0) })
    }
}

/// A finished training.
#[derive(Debug)]
pub struct Trained {
    /// Its trainer, which has the weights.
    pub trainer: Trainer,
    /// Each epoch.
    pub history: Vec<EpochReport>,
    /// Why it ended.
    pub stop: StopReason,
    /// The finished weights on all tuples trained on, if `final_loss` asked for it.
    pub measured: Option<Measured>,
}

/// Runs a whole training over tuples that are all in memory, with a full shuffle before every epoch:
/// what the plain aggregate (one model per group) does. The tuples are scaled in place. `trainer` is
/// new, set up by the caller.
pub fn train_in_memory(
    mut trainer: Trainer,
    tuples: &mut TupleBuffer,
    classes: usize,
    mut go_on: impl FnMut() -> bool,
) -> Result<Trained> {
    let started = std::time::Instant::now();
    let params = trainer.params.clone();
    trainer.prepare(tuples)?;
    let mut history = Vec::new();
    let mut stop = StopReason::MaxEpochs;
    for epoch in 0..params.max_epochs {
        let shuffled = params.shuffle.tuples() || params.shuffle.sorts();
        let order = if params.shuffle == Shuffle::Once { 0 } else { epoch };
        tuples.arrange(shuffled, params.seed, order, 0)?;
        trainer.train(tuples, classes, &mut go_on)?;
        let (mut report, converged) = trainer.end_epoch(&mut go_on)?;
        report.elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
        history.push(report);
        if converged {
            stop = StopReason::Tolerance;
            break;
        }
        if params.max_seconds > 0.0 && started.elapsed().as_secs_f64() >= params.max_seconds {
            stop = StopReason::MaxSeconds;
            break;
        }
    }
    let measured = if params.final_loss {
        trainer.measure(tuples.visits(), &mut go_on)?;
        trainer.measured()
    } else {
        None
    };
    Ok(Trained { trainer, history, stop, measured })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permute::{Stream, generator};
    use crate::vector::wide_dot as dot;
    use proptest::prelude::*;
    use rand::RngExt;

    const MEMORY: usize = 1 << 30;

    /// Normal-like clouds, one a class, shifted by `shift` along a direction of their own.
    fn clouds(n: usize, dims: usize, shift: f32, classes: usize, sparse: bool) -> TupleBuffer {
        let density = if sparse { Density::Sparse } else { Density::Dense(dims) };
        let mut buffer = TupleBuffer::new(density, usize::MAX);
        let mut rng = generator(7, Stream::Tuples, 0, 0);
        let k: Vec<u32> = (0..dims as u32).collect();
        for i in 0..n {
            let class = i * classes / n;
            let binary = if class == 0 { -1.0 } else { 1.0 };
            let x: Vec<f32> = (0..dims)
                .map(|j| {
                    let towards = if classes == 2 {
                        binary
                    } else if j % classes == class {
                        2.0
                    } else {
                        0.0
                    };
                    (0..6).map(|_| rng.random::<f32>() - 0.5).sum::<f32>() + towards * shift
                })
                .collect();
            let features = if sparse { Features::Sparse(&k, &x) } else { Features::Dense(&x) };
            buffer.push(if classes == 2 { binary } else { class as f32 }, features).expect("fits");
        }
        buffer
    }

    fn train(params: &Params, loss: Loss, tuples: &mut TupleBuffer, classes: usize) -> (Rows, Vec<EpochReport>) {
        let Trained { mut trainer, history, .. } = trained(params, loss, tuples, classes).expect("trains");
        (trainer.finish(false).expect("finishes"), history)
    }

    fn trained(params: &Params, loss: Loss, tuples: &mut TupleBuffer, classes: usize) -> Result<Trained> {
        train_in_memory(Trainer::new(params.clone(), loss, tuples.density(), MEMORY), tuples, classes, || true)
    }

    /// Tuples of three features, of which the classes overlap, one in three counting `weight`.
    fn overlapping(weight: f32, twice: bool) -> TupleBuffer {
        let mut tuples = TupleBuffer::new(Density::Dense(3), usize::MAX).with_weights();
        let mut rng = generator(5, Stream::Tuples, 0, 0);
        for i in 0..3000 {
            let y = if rng.random::<f32>() < 0.4 { 1.0 } else { -1.0 };
            let x: Vec<f32> = (0..3).map(|j| rng.random::<f32>() * 2.0 - 1.0 + 0.3 * y * j as f32).collect();
            let heavy = i % 3 == 0;
            tuples.push_weighted(y, Features::Dense(&x), if heavy { weight } else { 1.0 }).expect("fits");
            if heavy && twice {
                tuples.push_weighted(y, Features::Dense(&x), 1.0).expect("fits");
            }
        }
        tuples
    }

    /// The minimum of Σ weight·ln(1 + e^(−y(w·x + b)))/Σ weight + λ/2·‖w‖², by plain gradient descent in f64.
    fn batch_optimum(tuples: &TupleBuffer, l2: f64) -> [f64; 4] {
        let mut w = [0f64; 4];
        for _ in 0..4000 {
            let (mut gradient, mut sum) = ([0f64; 4], 0.0);
            for i in 0..tuples.len() {
                let Features::Dense(x) = tuples.features(i) else { unreachable!("dense") };
                let x = [f64::from(x[0]), f64::from(x[1]), f64::from(x[2]), 1.0];
                let (y, weight) = (f64::from(tuples.label(i)), f64::from(tuples.weight(i)));
                let score: f64 = w.iter().zip(&x).map(|(w, x)| w * x).sum();
                let slope = -y * weight / (1.0 + (y * score).exp());
                gradient.iter_mut().zip(&x).for_each(|(g, x)| *g += slope * x);
                sum += weight;
            }
            for (j, (w, g)) in w.iter_mut().zip(&gradient).enumerate() {
                *w -= 1.0 * (g / sum + if j < 3 { l2 * *w } else { 0.0 });
            }
        }
        w
    }

    #[test]
    fn the_optimum_of_a_batch_solver_is_reached() {
        for weight in [1.0, 4.0] {
            for optimizer in Optimizer::ALL {
                let expected = batch_optimum(&overlapping(weight, false), 0.05);
                let params = Params {
                    l2_reg: Some(0.05),
                    standardize: false,
                    tolerance: 0.0,
                    max_epochs: 60,
                    decay: 0.9,
                    optimizer,
                    ..Params::default()
                };
                let (rows, _) = train(&params, Loss::LogLoss, &mut overlapping(weight, false), 2);
                for (found, expected) in rows.weights.iter().chain(&rows.intercepts).zip(&expected) {
                    assert!((f64::from(*found) - expected).abs() < 0.02, "{optimizer:?}: {rows:?}, {expected:?}");
                }
            }
        }
    }

    #[test]
    fn sparse_features_that_come_late_are_scaled_then() {
        let params = Params {
            learning_rate: Some(1e-20),
            eval_fraction: 0.5,
            l2_reg: Some(0.0),
            scaled_features: vec![2..3, 7..9],
            ..Params::default()
        };
        for average in [false, true] {
            let params = Params { average, ..params.clone() };
            let mut trainer = Trainer::new(params, Loss::LogLoss, Density::Sparse, usize::MAX);
            let known = Rows { features: 5, weights: vec![0.5, -0.25, 0.125, 1.0, 2.0], intercepts: vec![0.75] };
            trainer.start_from(known.clone());
            // Feature 1 comes with the second buffer; before it, with a tuple held out, as feature 4 always does.
            for (trained, held_out) in
                [(vec![(0u32, -40f32)], vec![(1u32, 8f32)]), (vec![(1, 16.0), (2, 30.0)], vec![(1, 4.0), (4, 8.0)])]
            {
                let mut tuples = TupleBuffer::new(Density::Sparse, usize::MAX).with_weights();
                for (features, weight) in [(&trained, 1.0), (&held_out, -1.0)] {
                    let (k, x): (Vec<u32>, Vec<f32>) = features.iter().copied().unzip();
                    tuples.push_weighted(1.0, Features::Sparse(&k, &x), weight).expect("fits");
                }
                tuples.arrange(false, 0, 0, 0).expect("fits");
                trainer.prepare(&mut tuples).expect("prepares");
                let expected = if trained.len() == 1 { vec![-1.0] } else { vec![1.0, 30.0] };
                let Features::Sparse(_, x) = tuples.features(0) else { unreachable!("sparse") };
                assert_eq!(x, expected);
                trainer.train(&tuples, 2, || true).expect("trains");
            }
            // What is held out is judged as the finished model does.
            let (report, _) = trainer.end_epoch(|| true).expect("ends");
            let loss = |score: f64| (1.0 + (-score).exp()).ln();
            let expected = (loss(0.75 - 0.25 * 8.0) + loss(0.75 - 0.25 * 4.0 + 2.0 * 8.0)) / 2.0;
            let found = report.eval.expect("held out").loss;
            assert!((found - expected).abs() < 1e-5, "{found} {expected}");
            assert_eq!(trainer.finish(false).expect("finite"), known);
        }
    }

    #[test]
    fn a_weight_of_two_is_the_tuple_twice_and_none_is_absence() {
        let twice = batch_optimum(&overlapping(1.0, true), 0.01);
        let weighted = batch_optimum(&overlapping(2.0, false), 0.01);
        assert!(twice.iter().zip(&weighted).all(|(a, b)| (a - b).abs() < 1e-9));
        // Also through the scaling, which is weighted alike.
        let params = Params { l2_reg: Some(0.01), tolerance: 0.0, max_epochs: 40, decay: 0.9, ..Params::default() };
        let (a, a_history) = train(&params, Loss::LogLoss, &mut overlapping(1.0, true), 2);
        let (b, b_history) = train(&params, Loss::LogLoss, &mut overlapping(2.0, false), 2);
        for (a, b) in a.weights.iter().chain(&a.intercepts).zip(b.weights.iter().chain(&b.intercepts)) {
            assert!((a - b).abs() < 0.02, "{a} {b}");
        }
        let last = |history: &[EpochReport]| history.last().and_then(|r| r.loss).expect("a loss");
        assert!((last(&a_history) - last(&b_history)).abs() < 1e-3);
    }

    #[test]
    fn held_out_tuples_are_judged_and_never_trained_on() {
        // Half of the tuples say the opposite; held out, they change nothing but the evaluation.
        let mut both = TupleBuffer::new(Density::Dense(3), usize::MAX).with_weights();
        let mut kept = TupleBuffer::new(Density::Dense(3), usize::MAX).with_weights();
        let clouds = clouds(2000, 3, 0.5, 2, false);
        for i in 0..clouds.len() {
            both.push_weighted(clouds.label(i), clouds.features(i), 1.0).expect("fits");
            kept.push_weighted(clouds.label(i), clouds.features(i), 1.0).expect("fits");
        }
        for i in 0..clouds.len() {
            both.push_weighted(-clouds.label(i), clouds.features(i), -1.0).expect("fits");
        }
        let params = Params { eval_fraction: 0.5, tolerance: 0.0, final_loss: true, ..Params::default() };
        let all = trained(&params, Loss::LogLoss, &mut both, 2).expect("trains");
        let none = trained(&params, Loss::LogLoss, &mut kept, 2).expect("trains");
        let (mut a, mut b) = (all.trainer, none.trainer);
        assert_eq!(a.finish(false).expect("finishes"), b.finish(false).expect("finishes"));
        let eval = all.history.last().and_then(|r| r.eval).expect("judged");
        let own = all.measured.expect("measured");
        assert_eq!((eval.rows, own.rows), (2000, 2000));
        let (held, own_accuracy) = (eval.accuracy.expect("classes"), own.accuracy.expect("classes"));
        assert!((held + own_accuracy - 1.0).abs() < 1e-9 && own_accuracy > 0.8, "{held} {own_accuracy}");
        assert!(none.history.iter().all(|r| r.eval.is_none()));
    }

    #[test]
    fn the_final_loss_is_that_of_the_finished_weights() {
        for loss in [Loss::LogLoss, Loss::SquaredError] {
            let params = Params { final_loss: true, max_epochs: 5, ..Params::default() };
            let plain = overlapping(1.0, false);
            let mut done = trained(&params, loss, &mut overlapping(1.0, false), 2).expect("trains");
            let rows = done.trainer.finish(false).expect("finishes");
            let mut sum = 0.0;
            for i in 0..plain.len() {
                let Features::Dense(x) = plain.features(i) else { unreachable!("dense") };
                let score = f64::from(dot(&rows.weights, x) + rows.intercepts[0]);
                let y = f64::from(plain.label(i));
                sum += if loss == Loss::LogLoss { (-y * score).exp().ln_1p() } else { 0.5 * (score - y).powi(2) };
            }
            let measured = done.measured.expect("measured");
            assert!((measured.loss - sum / plain.len() as f64).abs() < 1e-5, "{measured:?}");
            assert_eq!(measured.rows, 3000);
        }
    }

    #[test]
    fn training_goes_on_from_weights_in_the_users_units() {
        for optimizer in Optimizer::ALL {
            let params = Params { optimizer, max_epochs: 20, tolerance: 0.0, ..Params::default() };
            let (rows, history) = train(&params, Loss::LogLoss, &mut overlapping(1.0, false), 2);
            let once = Params { max_epochs: 1, average: false, ..params };
            let mut tuples = overlapping(1.0, false);
            let mut trainer = Trainer::new(once, Loss::LogLoss, tuples.density(), MEMORY);
            trainer.start_from(rows);
            let warm = train_in_memory(trainer, &mut tuples, 2, || true).expect("trains").history;
            let (warm, cold) = (warm[0].loss.expect("a loss"), history[0].loss.expect("a loss"));
            let last = history[19].loss.expect("a loss");
            assert!(warm < last + 0.005 && warm < cold, "{optimizer:?}: {warm}, cold {cold}, last {last}");
        }
    }

    #[test]
    fn every_classifier_separates_clouds_with_every_optimizer() {
        for loss in [Loss::LogLoss, Loss::Hinge, Loss::SquaredHinge, Loss::ModifiedHuber, Loss::Softmax] {
            for optimizer in Optimizer::ALL {
                for sparse in [false, true] {
                    for batch_size in [1, 32] {
                        let params = Params { optimizer, batch_size, ..Params::default() };
                        let classes = if loss == Loss::Softmax { 3 } else { 2 };
                        let (_, history) = train(&params, loss, &mut clouds(2000, 6, 0.5, classes, sparse), classes);
                        let accuracy = history.last().and_then(|r| r.accuracy).expect("classifier");
                        assert!(
                            accuracy > 0.85,
                            "{loss:?} {optimizer:?} sparse {sparse} batch {batch_size}: {accuracy}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn order_matters_and_shuffling_cures_it() {
        let accuracy = |shuffle| {
            let params =
                Params { shuffle, tolerance: 0.0, learning_rate: Some(0.1), average: false, ..Params::default() };
            let mut tuples = clouds(4000, 3, 0.3, 2, false);
            let (rows, _) = train(&params, Loss::LogLoss, &mut tuples, 2);
            let tuples = clouds(4000, 3, 0.3, 2, false);
            let right = (0..tuples.len()).filter(|i| {
                let Features::Dense(x) = tuples.features(*i) else { unreachable!("dense") };
                (dot(&rows.weights, x) + rows.intercepts[0]) * tuples.label(*i) > 0.0
            });
            right.count() as f64 / tuples.len() as f64
        };
        let (clustered, shuffled) = (accuracy(Shuffle::None), accuracy(Shuffle::Corgipile));
        assert!(shuffled > clustered + 0.05, "clustered {clustered}, shuffled {shuffled}");
    }

    fn line(n: usize, unit: f32) -> TupleBuffer {
        let mut buffer = TupleBuffer::new(Density::Dense(2), usize::MAX);
        for i in 0..n {
            let x = [(i * 7919 % n) as f32 / n as f32 * unit + 1000.0, (i % 17) as f32];
            buffer.push(3.0 * x[0] - 5.0 * unit * x[1] + 2.0, Features::Dense(&x)).expect("fits");
        }
        buffer
    }

    #[test]
    fn regressions_find_the_line_whatever_the_units() {
        for loss in [Loss::SquaredError, Loss::Huber, Loss::EpsilonInsensitive] {
            for unit in [0.01f32, 1.0, 1000.0] {
                let params = Params { l2_reg: Some(0.0), tolerance: 0.0, epsilon: None, ..Params::default() };
                let (rows, history) = train(&params, loss, &mut line(3000, unit), 0);
                // ε leaves the line free within a tenth of the target's deviation.
                let slack = if loss == Loss::EpsilonInsensitive { 0.1 } else { 0.02 };
                let expected = -5.0 * unit;
                assert!(
                    (rows.weights[1] - expected).abs() < slack * unit * 5.0,
                    "{loss:?} {unit}: {rows:?} {history:?}"
                );
            }
        }
    }

    #[test]
    fn penalties_reach_their_optimum() {
        // One feature ±1, y = x: the minimum of (w − 1)²/2 + λ₂w²/2 + λ₁|w| is (1 − λ₁)/(1 + λ₂).
        for sparse in [false, true] {
            for optimizer in Optimizer::ALL {
                for batch_size in [1, 64] {
                    let density = if sparse { Density::Sparse } else { Density::Dense(1) };
                    let mut buffer = TupleBuffer::new(density, usize::MAX);
                    for i in 0..2000 {
                        let x = [if i % 2 == 0 { 1.0 } else { -1.0 }];
                        let features = if sparse { Features::Sparse(&[0], &x) } else { Features::Dense(&x) };
                        buffer.push(x[0], features).expect("fits");
                    }
                    let params = Params {
                        l2_reg: Some(0.5),
                        l1_reg: 0.2,
                        tolerance: 0.0,
                        decay: 0.8,
                        max_epochs: 40,
                        fit_intercept: false,
                        standardize: false,
                        optimizer,
                        learning_rate: Some(if optimizer == Optimizer::Adagrad { 0.5 } else { 0.05 }),
                        batch_size,
                        ..Params::default()
                    };
                    let (rows, _) = train(&params, Loss::SquaredError, &mut buffer, 0);
                    let w = rows.weights[0];
                    assert!((w - 0.8 / 1.5).abs() < 0.02, "{optimizer:?} sparse {sparse} batch {batch_size}: {w}");
                }
            }
        }
    }

    #[test]
    fn l1_makes_useless_weights_zero() {
        for optimizer in [Optimizer::Sgd, Optimizer::Adagrad] {
            for sparse in [false, true] {
                let params = Params {
                    l1_reg: 0.05,
                    l2_reg: Some(0.0),
                    average: false,
                    tolerance: 0.0,
                    decay: 0.8,
                    optimizer,
                    ..Params::default()
                };
                let mut tuples =
                    TupleBuffer::new(if sparse { Density::Sparse } else { Density::Dense(20) }, usize::MAX);
                let mut rng = generator(3, Stream::Tuples, 0, 0);
                let k: Vec<u32> = (0..20).collect();
                for _ in 0..4000 {
                    let y = if rng.random::<bool>() { 1.0 } else { -1.0 };
                    let x: Vec<f32> =
                        (0..20).map(|j| rng.random::<f32>() - 0.5 + if j < 2 { y * 0.3 } else { 0.0 }).collect();
                    tuples.push(y, if sparse { Features::Sparse(&k, &x) } else { Features::Dense(&x) }).expect("fits");
                }
                let (rows, _) = train(&params, Loss::LogLoss, &mut tuples, 2);
                // Exact zeros are the cumulative penalty's; the adaptive rules come close.
                let zero = if optimizer == Optimizer::Sgd { 0.0 } else { 1e-3 };
                let zeros = rows.weights.iter().filter(|w| w.abs() <= zero).count();
                assert!(zeros >= 12 && rows.weights[0] > 0.0, "{optimizer:?} sparse {sparse}: {:?}", rows.weights);
            }
        }
    }

    #[test]
    fn divergence_is_survived_once_and_then_reported() {
        // A rate far beyond stable: after one retry at half of it, an error that names the epoch.
        let mut tuples = line(500, 1.0);
        let params = Params { learning_rate: Some(1e3), standardize: false, ..Params::default() };
        let error = trained(&params, Loss::SquaredError, &mut tuples, 0).expect_err("diverges");
        assert!(matches!(error, Error::Diverged { epoch: 1, .. } | Error::Diverged { epoch: 2, .. }), "{error}");
        // A rate just beyond: the half is stable, and the history says what happened.
        let mut tuples = clouds(3000, 4, 0.2, 2, false);
        let params = Params { learning_rate: Some(0.62), average: false, ..Params::default() };
        let (_, history) = train(&params, Loss::SquaredError, &mut tuples, 0);
        assert!(history.iter().all(|r| r.loss.is_none_or(f64::is_finite)));
        assert!(history.iter().filter(|r| r.loss.is_none()).count() <= 1);
        assert_eq!(history.iter().filter(|r| r.diverged).count(), 1, "{history:?}");
        assert_eq!(history[0].learning_rate, 0.31);
    }

    #[test]
    fn found_rates_do_not_diverge_on_wild_features() {
        for scale in [1e-4f32, 1.0, 1e5] {
            for standardize in [false, true] {
                for loss in Loss::ALL {
                    for optimizer in Optimizer::ALL {
                        let mut tuples = clouds(500, 4, 0.5, 2, false);
                        for row in tuples.dense_rows_mut() {
                            row[0] *= scale;
                            row[1] = row[1] * scale + 100.0 * scale;
                        }
                        if loss == Loss::Softmax {
                            tuples.map_labels(|y| if y > 0.0 { 1.0 } else { 0.0 });
                        }
                        let params = Params { standardize, optimizer, max_epochs: 5, ..Params::default() };
                        let (_, history) = train(&params, loss, &mut tuples, 2);
                        assert!(history.iter().all(|r| !r.diverged), "{loss:?} {optimizer:?} {scale} {standardize}");
                    }
                }
            }
        }
    }

    #[test]
    fn features_that_say_nothing_do_no_harm() {
        // All constant: only the intercept can learn, the log-odds of one in four.
        let mut tuples = TupleBuffer::new(Density::Dense(50), usize::MAX);
        for i in 0..2000 {
            tuples.push(if i % 4 == 0 { 1.0 } else { -1.0 }, Features::Dense(&[7.0; 50])).expect("fits");
        }
        let (rows, history) = train(&Params::default(), Loss::LogLoss, &mut tuples, 2);
        assert!(history.iter().all(|r| !r.diverged && r.learning_rate < 100.0), "{history:?}");
        let score = rows.intercepts[0] + rows.weights.iter().sum::<f32>() * 7.0;
        assert!((score + 3f32.ln()).abs() < 0.1, "{score}");
    }

    #[test]
    fn class_weights_change_the_result() {
        // A tenth of the tuples are of the second class: unweighted, the first is preferred.
        let make = || {
            let mut tuples = TupleBuffer::new(Density::Dense(2), usize::MAX);
            let mut rng = generator(11, Stream::Tuples, 0, 0);
            for i in 0..4000 {
                let y = if i % 10 == 0 { 1.0 } else { -1.0 };
                let x = [rng.random::<f32>() + y * 0.2, rng.random::<f32>()];
                tuples.push(y, Features::Dense(&x)).expect("fits");
            }
            tuples
        };
        let recall = |params: &Params, weights: Vec<f32>| {
            let mut tuples = make();
            let mut trainer = Trainer::new(params.clone(), Loss::LogLoss, tuples.density(), MEMORY);
            trainer.set_class_weights(weights);
            trainer.prepare(&mut tuples).expect("prepares");
            for epoch in 0..10 {
                tuples.arrange(true, 1, epoch, 0).expect("fits");
                trainer.train(&tuples, 2, || true).expect("trains");
                trainer.end_epoch(|| true).expect("ends");
            }
            let rows = trainer.finish(false).expect("finishes");
            let tuples = make();
            let found = (0..4000).step_by(10).filter(|i| {
                let Features::Dense(x) = tuples.features(*i) else { unreachable!("dense") };
                dot(&rows.weights, x) + rows.intercepts[0] > 0.0
            });
            found.count() as f64 / 400.0
        };
        let plain = recall(&Params::default(), vec![]);
        let balanced = Params {
            class_weight: Some(ClassWeight::Balanced(crate::params::Balanced::Balanced)),
            ..Params::default()
        };
        let balanced = recall(&balanced, vec![]);
        let given = recall(&Params::default(), vec![0.5556, 5.0]);
        assert!(plain < 0.4 && balanced > 0.6, "{plain} {balanced}");
        assert!((given - balanced).abs() < 0.02, "{given} {balanced}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// The pipelined loop does what its definition says: one step after another, in f64 here.
        #[test]
        fn the_dense_loop_is_plain_sgd(
            seed in 0i64..1000, n in 1usize..300, dims in prop_oneof![1usize..70, Just(2100usize)], l2 in 0f64..0.5, intercept: bool, weighted: bool,
            which in 0usize..3,
        ) {
            let loss = [Loss::LogLoss, Loss::SquaredError, Loss::Hinge][which];
            let mut rng = generator(seed, Stream::Tuples, 0, 0);
            let mut buffer = TupleBuffer::new(Density::Dense(dims), usize::MAX);
            if weighted { buffer = buffer.with_weights(); }
            for _ in 0..n {
                let x: Vec<f32> = (0..dims).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect();
                let y = if rng.random::<bool>() { 1.0 } else { -1.0 };
                buffer.push_weighted(y, Features::Dense(&x), 0.5 + rng.random::<f32>()).expect("fits");
            }
            buffer.arrange(true, seed, 0, 0).expect("fits");
            // Stable also for squared errors of long rows.
            let rate = 0.6 / dims.max(30) as f64;
            let params = Params {
                learning_rate: Some(rate), l2_reg: Some(l2), average: false, standardize: false, fit_intercept: intercept,
                ..Params::default()
            };
            let mut trainer = Trainer::new(params, loss, buffer.density(), MEMORY);
            trainer.train(&buffer, 2, || true).expect("trains");
            let rows = trainer.finish(false).expect("finishes");
            let (mut w, mut b) = (vec![0f64; dims], 0f64);
            for row in buffer.order() {
                let row = *row as usize;
                let Features::Dense(x) = buffer.features(row) else { unreachable!("dense") };
                let y = f64::from(buffer.label(row));
                let score = b + w.iter().zip(x).map(|(w, x)| w * f64::from(*x)).sum::<f64>();
                let slope = match loss {
                    Loss::LogLoss => -y / (1.0 + (y * score).exp()),
                    Loss::Hinge => if y * score < 1.0 { -y } else { 0.0 },
                    _ => score - y,
                } * f64::from(buffer.weight(row));
                for (w, x) in w.iter_mut().zip(x) {
                    *w = (*w - rate * slope * f64::from(*x)) * (1.0 - rate * l2);
                }
                if intercept { b -= rate * slope; }
            }
            // A hinge may fall on the other side of its corner by rounding: then a step differs.
            let slack = if loss == Loss::Hinge { 0.05 } else { 1e-3 };
            for (found, expected) in rows.weights.iter().chain(&rows.intercepts).zip(w.iter().chain([&b])) {
                prop_assert!((f64::from(*found) - expected).abs() < slack, "{found} {expected}");
            }
        }
    }

    #[test]
    fn tolerance_stops_early() {
        let params = Params { max_epochs: 500, decay: 0.5, ..Params::default() };
        let (_, history) = train(&params, Loss::LogLoss, &mut clouds(500, 3, 0.5, 2, false), 2);
        assert!(history.len() < 50, "{} epochs", history.len());
    }

    #[test]
    fn a_no_ends_training() {
        let mut tuples = clouds(500, 3, 0.5, 2, false);
        tuples.arrange(true, 1, 0, 0).expect("fits");
        let mut trainer = Trainer::new(Params::default(), Loss::LogLoss, tuples.density(), MEMORY);
        assert_eq!(trainer.train(&tuples, 2, || false), Err(Error::Stopped));
    }

    #[test]
    fn the_memory_limit_is_kept() {
        let mut tuples = TupleBuffer::new(Density::Sparse, usize::MAX);
        tuples.push(1.0, Features::Sparse(&[1_000_000], &[1.0])).expect("fits");
        let trainer = Trainer::new(Params::default(), Loss::LogLoss, tuples.density(), 1 << 20);
        let error = train_in_memory(trainer, &mut tuples, 2, || true);
        assert!(matches!(error, Err(Error::MemoryLimit { .. })), "{error:?}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// A batch step is −η/B·Σ∇ℓ: at w = 0 the gradient of ln(1+e^(−y·w·x)) is −y·x/2.
        #[test]
        fn batch_step_follows_the_gradient(seed in 0i64..1000, n in 1usize..6) {
            let dims = 3;
            let mut rng = generator(seed, Stream::Tuples, 0, 0);
            let mut buffer = TupleBuffer::new(Density::Dense(dims), usize::MAX);
            for _ in 0..n {
                let x: Vec<f32> = (0..dims).map(|_| rng.random::<f32>() * 2.0 - 1.0).collect();
                buffer.push(if rng.random::<bool>() { 1.0 } else { -1.0 }, Features::Dense(&x)).expect("fits");
            }
            buffer.arrange(false, 0, 0, 0).expect("fits");
            let params = Params {
                l2_reg: Some(0.0), learning_rate: Some(1.0), batch_size: n as u32, average: false, standardize: false, ..Params::default()
            };
            let mut trainer = Trainer::new(params, Loss::LogLoss, buffer.density(), MEMORY);
            trainer.train(&buffer, 2, || true).expect("trains");
            let rows = trainer.finish(false).expect("finishes");
            for (j, w) in rows.weights.iter().enumerate() {
                let gradient: f32 = (0..n).map(|i| {
                    let Features::Dense(x) = buffer.features(i) else { unreachable!("dense") };
                    -buffer.label(i) * x[j] / 2.0
                }).sum::<f32>() / n as f32;
                prop_assert!((w + gradient).abs() < 1e-5);
            }
        }

        /// Negating the labels negates the weights, to the bit: what lets classes be coded as met.
        #[test]
        fn flipped_labels_give_negated_weights(loss in 0usize..4, optimizer in 0usize..4, batch_size in 1u32..5) {
            let loss = [Loss::LogLoss, Loss::Hinge, Loss::SquaredHinge, Loss::ModifiedHuber][loss];
            let params = Params { batch_size, max_epochs: 2, optimizer: Optimizer::ALL[optimizer], ..Params::default() };
            let rows = train(&params, loss, &mut clouds(300, 4, 0.2, 2, false), 2).0;
            let mut tuples = clouds(300, 4, 0.2, 2, false);
            tuples.map_labels(|y| -y);
            let flipped = train(&params, loss, &mut tuples, 2).0;
            prop_assert_eq!(rows.weights, flipped.weights.iter().map(|w| -w).collect::<Vec<_>>());
            prop_assert_eq!(rows.intercepts[0], -flipped.intercepts[0]);
        }
    }
}
