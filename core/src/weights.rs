//! The weights while they are trained, and the rules by which a step changes them.
//!
//! One output for binary losses and regression, one a class for softmax. Dense: one contiguous row an
//! output; sparse: the outputs of a feature side by side, so that a non-zero touches one place.
//!
//! Penalties never cost more than the tuple's own work. L2 with plain SGD is one multiplication of a
//! common scale (w = scale·v). Everything else that acts on weights whose feature is zero in a sparse
//! tuple is put off until the feature is met again. Plain SGD's L1 is the cumulative penalty of
//! Tsuruoka et al. (2009): the sum of all that could have been taken from a weight, and what was. The
//! adaptive rules use the closed form of the idle steps, whose rate does not change meanwhile.

use crate::dense::Line;
use crate::tuples::{Density, Features};
use crate::vector::{GROUP, Group, axpy, dot, groups, soft_threshold};
use crate::{Error, Result};
use pulp::Simd;
use serde::{Deserialize, Serialize};

/// Below this the scale is folded into the vector, before v grows out of f32's range.
const MIN_SCALE: f32 = 1e-6;
/// Below this it is folded before a run of steps that do not look at it: it shrinks by at most
/// [`MIN_SHRINK`] in all of them.
const LINE_SCALE: f32 = 1e-3;
/// See [`LINE_SCALE`].
pub const MIN_SHRINK: f32 = 1e-3;
/// Part of the old velocity or mean gradient that is kept by momentum and Adam.
const BETA1: f32 = 0.9;
/// Part of the old mean square that is kept by Adam.
const BETA2: f32 = 0.999;
const TINY: f32 = 1e-8;

/// The optimisers there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// w −= η·g.
    Sgd,
    /// v = 0.9·v + 0.1·g; w −= η·v.
    Momentum,
    /// G += g²; w −= η·g/√G, each weight its own (Duchi et al., 2011).
    Adagrad,
    /// Means of g and g² with bias correction (Kingma and Ba, 2015).
    Adam,
}

impl Optimizer {
    /// All of them, as listed to users.
    pub const ALL: [Optimizer; 4] = [Optimizer::Sgd, Optimizer::Momentum, Optimizer::Adagrad, Optimizer::Adam];

    /// The name in options and EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Optimizer::Sgd => "sgd",
            Optimizer::Momentum => "momentum",
            Optimizer::Adagrad => "adagrad",
            Optimizer::Adam => "adam",
        }
    }

    /// Numbers kept beside each weight.
    fn states(self) -> usize {
        match self {
            Optimizer::Sgd => 0,
            Optimizer::Momentum | Optimizer::Adagrad => 1,
            Optimizer::Adam => 2,
        }
    }
}

/// One optimiser's change of one weight; a value of it holds what is constant during a step.
pub trait Rule: Copy {
    /// Whether each weight has its own rate, so that L2 cannot be a common scale.
    const ADAPTIVE: bool;
    /// Applies gradient `g`.
    fn apply(self, w: &mut f32, first: &mut f32, second: &mut f32, g: f32);
    /// The rate at which the penalties act on a weight in this state.
    fn penalty_rate(self, first: f32, second: f32) -> f32;
}

/// [`Optimizer::Sgd`] at a rate.
#[derive(Debug, Clone, Copy)]
pub struct Sgd(pub f32);
/// [`Optimizer::Momentum`] at a rate.
#[derive(Debug, Clone, Copy)]
pub struct Momentum(pub f32);
/// [`Optimizer::Adagrad`] at a rate.
#[derive(Debug, Clone, Copy)]
pub struct Adagrad(pub f32);
/// [`Optimizer::Adam`] at a rate, with the corrections of a step.
#[derive(Debug, Clone, Copy)]
pub struct Adam {
    rate: f32,
    correction2: f32,
}

impl Adam {
    /// The rule of step `step`, counted from 1.
    pub fn at(rate: f32, step: u64) -> Self {
        let step = step.min(1 << 30) as i32;
        let correction1 = 1.0 - f64::from(BETA1).powi(step);
        let correction2 = 1.0 - f64::from(BETA2).powi(step);
        Self { rate: (f64::from(rate) / correction1) as f32, correction2: (1.0 / correction2) as f32 }
    }
}

impl Rule for Sgd {
    const ADAPTIVE: bool = false;
    #[inline(always)]
    fn apply(self, w: &mut f32, _: &mut f32, _: &mut f32, g: f32) {
        *w -= self.0 * g;
    }
    #[inline(always)]
    fn penalty_rate(self, _: f32, _: f32) -> f32 {
        self.0
    }
}

impl Rule for Momentum {
    const ADAPTIVE: bool = true;
    #[inline(always)]
    fn apply(self, w: &mut f32, first: &mut f32, _: &mut f32, g: f32) {
        *first = BETA1 * *first + (1.0 - BETA1) * g;
        *w -= self.0 * *first;
    }
    #[inline(always)]
    fn penalty_rate(self, _: f32, _: f32) -> f32 {
        self.0
    }
}

impl Rule for Adagrad {
    const ADAPTIVE: bool = true;
    #[inline(always)]
    fn apply(self, w: &mut f32, first: &mut f32, _: &mut f32, g: f32) {
        *first += g * g;
        *w -= self.0 * g / (first.sqrt() + TINY);
    }
    #[inline(always)]
    fn penalty_rate(self, first: f32, _: f32) -> f32 {
        // A weight that never had a gradient is zero and stays so.
        if first > 0.0 { self.0 / (first.sqrt() + TINY) } else { 0.0 }
    }
}

impl Rule for Adam {
    const ADAPTIVE: bool = true;
    #[inline(always)]
    fn apply(self, w: &mut f32, first: &mut f32, second: &mut f32, g: f32) {
        *first = BETA1 * *first + (1.0 - BETA1) * g;
        *second = BETA2 * *second + (1.0 - BETA2) * g * g;
        *w -= self.rate * *first / ((*second * self.correction2).sqrt() + TINY);
    }
    #[inline(always)]
    fn penalty_rate(self, _: f32, second: f32) -> f32 {
        if second > 0.0 { self.rate / ((second * self.correction2).sqrt() + TINY) } else { 0.0 }
    }
}

/// λ₂/2·‖w‖² + λ₁·‖w‖₁.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Penalty {
    /// λ₂.
    pub l2: f32,
    /// λ₁.
    pub l1: f32,
}

impl Penalty {
    /// A weight after `steps` steps at `rate` in which nothing but the penalties acted:
    /// w ← soft(w·(1 − rate·λ₂), rate·λ₁) each, in closed form.
    #[inline(always)]
    fn idle(self, w: f32, rate: f32, steps: f32) -> f32 {
        let shrink = (rate * self.l2).min(1.0);
        let pull = rate * self.l1;
        if steps == 1.0 {
            return soft_threshold(w * (1.0 - shrink), pull);
        }
        // kept = (1 − s)^n, pulls = Σ (1 − s)^i for i < n. For small n·s by their first terms: a power
        // costs too much, and 1 − s has lost most digits of s.
        let decay = shrink * steps;
        let (kept, pulls) = if decay < 3e-3 {
            (1.0 - decay + 0.5 * decay * (decay - shrink), steps * (1.0 - 0.5 * (decay - shrink)))
        } else {
            let kept = (1.0 - shrink).powf(steps);
            (kept, (1.0 - kept) / shrink)
        };
        soft_threshold(w * kept, pull * pulls)
    }
}

/// What a training's weights look like.
#[derive(Debug, Clone)]
pub struct Weights {
    sparse: bool,
    features: usize,
    outputs: usize,
    /// Sparse: places a feature has, at least `outputs`.
    stride: usize,
    states: usize,
    /// Plain SGD with L1?
    cumulative: bool,
    v: Vec<f32>,
    first: Vec<f32>,
    second: Vec<f32>,
    scale: f32,
    /// Plain SGD with L1: what the penalty has taken from each weight (Tsuruoka's q), in units of v.
    taken: Vec<f32>,
    /// Sparse: when each feature was last brought up to date, on `clock`.
    seen: Vec<f64>,
    /// Adaptive: number of steps. Plain SGD: Σ rate·λ₁/scale, all that could have been taken (u).
    clock: f64,
    bias: Vec<f32>,
    bias_first: Vec<f32>,
    bias_second: Vec<f32>,
    /// The weights of one dense output with zeros behind them, during a run of steps.
    padded: Vec<Group>,
    /// Gradient of a mini-batch, for the rules that must see its sum; zero between batches.
    gradient: Vec<f32>,
    bias_gradient: Vec<f32>,
    /// Sparse: the features in it.
    touched: Vec<u32>,
}

/// Places that a sparse feature has: more than there are outputs, so that not every new class moves all.
fn places(outputs: usize) -> usize {
    if outputs == 1 { 1 } else { outputs.next_power_of_two() }
}

fn extend<T: Clone>(vec: &mut Vec<T>, len: usize, value: T) -> Result<()> {
    let more = len.saturating_sub(vec.len());
    let bytes = len.saturating_mul(size_of::<T>());
    vec.try_reserve(more).map_err(|_| Error::OutOfMemory { bytes, purpose: "the weights" })?;
    vec.resize(vec.len() + more, value);
    Ok(())
}

impl Weights {
    /// Weights of zero; features and outputs come with `grow`.
    pub fn new(density: Density, optimizer: Optimizer, l1: bool) -> Self {
        Self {
            cumulative: l1 && optimizer == Optimizer::Sgd,
            sparse: density == Density::Sparse,
            features: 0,
            outputs: 0,
            stride: 0,
            states: optimizer.states(),
            v: Vec::new(),
            first: Vec::new(),
            second: Vec::new(),
            scale: 1.0,
            taken: Vec::new(),
            seen: Vec::new(),
            clock: 0.0,
            bias: Vec::new(),
            bias_first: Vec::new(),
            bias_second: Vec::new(),
            padded: Vec::new(),
            gradient: Vec::new(),
            bias_gradient: Vec::new(),
            touched: Vec::new(),
        }
    }

    /// Features there are weights for.
    pub fn features(&self) -> usize {
        self.features
    }

    /// Scores a tuple has.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Bytes that weights of this shape take: two copies (one to go back to) with all that the rule
    /// keeps, and beside them the average, the finished weights, the bytes of the model and the scaling.
    pub fn bytes_for(&self, features: usize, outputs: usize) -> usize {
        let stride = if self.sparse { places(outputs) } else { outputs };
        let kept = 1 + self.states + usize::from(self.cumulative);
        let own = features.saturating_mul(stride * kept * 4 + if self.sparse { 8 } else { 0 });
        own.saturating_mul(2).saturating_add(features.saturating_mul(outputs * 12 + 8))
    }

    /// Adds weights of zero for features and classes not met before.
    pub fn grow(&mut self, features: usize, outputs: usize) -> Result<()> {
        let (features, outputs) = (features.max(self.features), outputs.max(self.outputs));
        if self.sparse {
            if outputs > self.stride {
                let stride = places(outputs);
                for vec in [&mut self.v, &mut self.first, &mut self.second, &mut self.taken] {
                    *vec = spread(vec, self.stride, stride)?;
                }
                self.stride = stride;
            }
            extend(&mut self.seen, features, self.clock)?;
        } else if features > self.features && self.outputs > 0 {
            for vec in [&mut self.v, &mut self.first, &mut self.second, &mut self.taken] {
                *vec = spread(vec, self.features, features)?;
            }
        }
        self.features = features;
        self.outputs = outputs;
        let len = if self.sparse { features * self.stride } else { features * outputs };
        extend(&mut self.v, len, 0.0)?;
        extend(&mut self.bias, outputs, 0.0)?;
        // Only what the rule keeps; the few states of the intercepts are always there.
        if self.states > 0 {
            extend(&mut self.first, len, 0.0)?;
        }
        if self.states > 1 {
            extend(&mut self.second, len, 0.0)?;
        }
        if self.cumulative {
            extend(&mut self.taken, len, 0.0)?;
        }
        extend(&mut self.bias_first, outputs, 0.0)?;
        extend(&mut self.bias_second, outputs, 0.0)
    }

    /// Multiplies the weights of a sparse feature, and their average where there is one.
    pub fn rescale(&mut self, average: &mut Average, feature: usize, factor: f32) {
        let at = feature * self.stride;
        for vec in [&mut self.v, &mut self.taken, &mut average.v] {
            vec.get_mut(at..at + self.outputs).into_iter().flatten().for_each(|w| *w *= factor);
        }
    }

    /// The scores of a tuple into `scores` (one an output).
    #[inline(always)]
    pub fn scores<S: Simd, const SINGLE: bool>(&self, simd: S, x: Features<'_>, scores: &mut [f32]) {
        match x {
            Features::Dense(x) if SINGLE => scores[0] = self.scale * dot(simd, &self.v, x) + self.bias[0],
            Features::Dense(x) => {
                let rows = self.v.chunks_exact(self.features.max(1));
                for ((score, row), bias) in scores.iter_mut().zip(rows).zip(&self.bias) {
                    *score = self.scale * dot(simd, row, x) + bias;
                }
            }
            Features::Sparse(k, x) if SINGLE => {
                scores[0] = self.scale * crate::vector::sparse_dot(&self.v, k, x) + self.bias[0];
            }
            Features::Sparse(k, x) => {
                scores.fill(0.0);
                for (k, x) in k.iter().zip(x) {
                    let at = *k as usize * self.stride;
                    if let Some(row) = self.v.get(at..at + scores.len()) {
                        axpy(simd, scores, *x, row);
                    }
                }
                for (score, bias) in scores.iter_mut().zip(&self.bias) {
                    *score = self.scale * *score + bias;
                }
            }
        }
    }

    /// Brings the weights of a sparse tuple's features up to date, before they are read.
    #[inline(always)]
    pub fn catch_up<R: Rule>(&mut self, rule: R, penalty: Penalty, k: &[u32]) {
        for k in k {
            self.catch_up_feature(rule, penalty, *k as usize);
        }
    }

    #[inline(always)]
    fn catch_up_feature<R: Rule>(&mut self, rule: R, penalty: Penalty, j: usize) {
        let Some(seen) = self.seen.get_mut(j) else { return };
        let at = j * self.stride;
        if !R::ADAPTIVE {
            return self.take(at..at + self.outputs);
        }
        let idle = (self.clock - *seen) as f32;
        *seen = self.clock;
        if idle <= 0.0 {
            return;
        }
        let places = at..at + self.outputs;
        let (v, first) = (&mut self.v[places.clone()], &self.first[places.clone()]);
        if self.states > 1 {
            for ((v, first), second) in v.iter_mut().zip(first).zip(&self.second[places]) {
                *v = penalty.idle(*v, rule.penalty_rate(*first, *second), idle);
            }
        } else {
            for (v, first) in v.iter_mut().zip(first) {
                *v = penalty.idle(*v, rule.penalty_rate(*first, 0.0), idle);
            }
        }
    }

    /// Takes from these weights what the cumulative L1 penalty still has to take.
    #[inline(always)]
    fn take(&mut self, places: std::ops::Range<usize>) {
        let owed = self.clock as f32;
        let (Some(v), Some(taken)) = (self.v.get_mut(places.clone()), self.taken.get_mut(places)) else { return };
        for (v, taken) in v.iter_mut().zip(taken) {
            let before = *v;
            if before > 0.0 {
                *v = (before - (owed + *taken)).max(0.0);
            } else if before < 0.0 {
                *v = (before + (owed - *taken)).min(0.0);
            }
            *taken += *v - before;
        }
    }

    /// One step with the slopes of one tuple, without penalties: `slopes[k]`·x is the gradient of
    /// output k.
    #[inline(always)]
    pub fn step<S: Simd, R: Rule, const SINGLE: bool>(
        &mut self,
        simd: S,
        rule: R,
        slopes: &[f32],
        x: Features<'_>,
        intercept: bool,
    ) {
        if R::ADAPTIVE {
            self.step_adaptive(rule, slopes, x);
        } else {
            // v −= rate·slope/scale·x
            let rate = rule.penalty_rate(0.0, 0.0) / self.scale;
            match x {
                Features::Dense(x) if SINGLE => {
                    if slopes[0] != 0.0 {
                        axpy(simd, &mut self.v, -rate * slopes[0], x);
                    }
                }
                Features::Dense(x) => {
                    for (row, slope) in self.v.chunks_exact_mut(self.features.max(1)).zip(slopes) {
                        axpy(simd, row, -rate * slope, x);
                    }
                }
                Features::Sparse(k, x) if SINGLE => {
                    let step = -rate * slopes[0];
                    if step != 0.0 {
                        for (k, x) in k.iter().zip(x) {
                            if let Some(v) = self.v.get_mut(*k as usize) {
                                *v += step * x;
                            }
                        }
                    }
                }
                Features::Sparse(k, x) => {
                    for (k, x) in k.iter().zip(x) {
                        let at = *k as usize * self.stride;
                        if let Some(row) = self.v.get_mut(at..at + slopes.len()) {
                            axpy(simd, row, -rate * x, slopes);
                        }
                    }
                }
            }
        }
        if intercept {
            for (k, slope) in slopes.iter().enumerate() {
                rule.apply(&mut self.bias[k], &mut self.bias_first[k], &mut self.bias_second[k], *slope);
            }
        }
    }

    #[inline(always)]
    fn step_adaptive<R: Rule>(&mut self, rule: R, slopes: &[f32], x: Features<'_>) {
        let two = self.states > 1;
        match x {
            Features::Dense(x) => {
                let n = self.features.max(1);
                for (k, slope) in slopes.iter().enumerate() {
                    let range = k * n..(k + 1) * n;
                    let (v, first) = (&mut self.v[range.clone()], &mut self.first[range.clone()]);
                    if two {
                        let second = &mut self.second[range];
                        for (((v, first), second), x) in v.iter_mut().zip(first).zip(second).zip(x) {
                            rule.apply(v, first, second, slope * x);
                        }
                    } else {
                        for ((v, first), x) in v.iter_mut().zip(first).zip(x) {
                            rule.apply(v, first, &mut 0.0, slope * x);
                        }
                    }
                }
            }
            Features::Sparse(k, x) => {
                for (j, x) in k.iter().zip(x) {
                    let at = *j as usize * self.stride;
                    if at + slopes.len() > self.v.len() {
                        continue;
                    }
                    let places = at..at + slopes.len();
                    let (v, first) = (&mut self.v[places.clone()], &mut self.first[places.clone()]);
                    if two {
                        let second = &mut self.second[places];
                        for (((v, first), second), slope) in v.iter_mut().zip(first).zip(second).zip(slopes) {
                            rule.apply(v, first, second, slope * x);
                        }
                    } else {
                        for ((v, first), slope) in v.iter_mut().zip(first).zip(slopes) {
                            rule.apply(v, first, &mut 0.0, slope * x);
                        }
                    }
                }
            }
        }
    }

    /// Adds one tuple's part to the gradient of a mini-batch.
    #[inline(always)]
    pub fn accumulate<S: Simd>(&mut self, simd: S, slopes: &[f32], x: Features<'_>) -> Result<()> {
        extend(&mut self.gradient, self.v.len(), 0.0)?;
        extend(&mut self.bias_gradient, self.bias.len(), 0.0)?;
        match x {
            Features::Dense(x) => {
                for (row, slope) in self.gradient.chunks_exact_mut(self.features.max(1)).zip(slopes) {
                    axpy(simd, row, *slope, x);
                }
            }
            Features::Sparse(k, x) => {
                for (j, x) in k.iter().zip(x) {
                    let at = *j as usize * self.stride;
                    if let Some(row) = self.gradient.get_mut(at..at + slopes.len()) {
                        axpy(simd, row, *x, slopes);
                    }
                }
                self.touched.extend_from_slice(k);
            }
        }
        axpy(simd, &mut self.bias_gradient, 1.0, slopes);
        Ok(())
    }

    /// One step with the gradient of the mini-batch, which is zero again afterwards.
    pub fn step_accumulated<R: Rule>(&mut self, rule: R, intercept: bool) {
        let two = self.states > 1;
        let all = self.gradient.len();
        let mut apply = |i: usize| {
            let g = std::mem::take(&mut self.gradient[i]);
            let mut none = 0.0;
            let second = if two { &mut self.second[i] } else { &mut none };
            rule.apply(&mut self.v[i], &mut self.first[i], second, g);
        };
        if self.sparse {
            self.touched.sort_unstable();
            self.touched.dedup();
            for j in self.touched.drain(..) {
                let at = j as usize * self.stride;
                (at..at + self.outputs).for_each(&mut apply);
            }
        } else {
            (0..all).for_each(apply);
        }
        for k in 0..self.bias_gradient.len() {
            let g = std::mem::take(&mut self.bias_gradient[k]);
            if intercept {
                rule.apply(&mut self.bias[k], &mut self.bias_first[k], &mut self.bias_second[k], g);
            }
        }
    }

    /// The penalties of one step, for all weights: at once for dense ones, put off for sparse ones.
    #[inline(always)]
    pub fn penalise<R: Rule>(&mut self, rule: R, penalty: Penalty, part: f32) {
        if R::ADAPTIVE {
            if self.sparse {
                self.clock += f64::from(part);
                return;
            }
            if penalty.l2 == 0.0 && penalty.l1 == 0.0 {
                return;
            }
            for i in 0..self.v.len() {
                let second = if self.states > 1 { self.second[i] } else { 0.0 };
                let rate = rule.penalty_rate(self.first[i], second) * part;
                self.v[i] = penalty.idle(self.v[i], rate, 1.0);
            }
            return;
        }
        let rate = rule.penalty_rate(0.0, 0.0) * part;
        self.shrink(1.0 - rate * penalty.l2);
        if penalty.l1 > 0.0 {
            self.clock += f64::from(rate * penalty.l1 / self.scale);
            if !self.sparse {
                self.take(0..self.v.len());
            }
        }
    }

    /// The weights of the only output, dense, for a run of steps in which they shrink by no more than
    /// [`MIN_SHRINK`]; [`Self::end_line`] takes them back.
    #[inline(always)]
    pub fn line(&mut self) -> Result<Line<'_>> {
        if self.scale < LINE_SCALE {
            self.fold();
        }
        extend(&mut self.padded, groups(self.v.len()), Group([0.0; GROUP]))?;
        for (group, v) in self.padded.iter_mut().zip(self.v.chunks(GROUP)) {
            group.0[..v.len()].copy_from_slice(v);
        }
        Ok(Line { v: &mut self.padded, scale: &mut self.scale, bias: &mut self.bias[0] })
    }

    /// See [`Self::line`].
    pub fn end_line(&mut self) {
        for (v, group) in self.v.chunks_mut(GROUP).zip(&self.padded) {
            v.copy_from_slice(&group.0[..v.len()]);
        }
    }

    /// w *= factor, in constant time; a factor that is not positive gives zero.
    #[inline(always)]
    fn shrink(&mut self, factor: f32) {
        self.scale *= factor;
        if self.scale < MIN_SCALE {
            self.rescue(factor);
        }
    }

    #[cold]
    fn rescue(&mut self, factor: f32) {
        if factor <= 0.0 {
            self.v.fill(0.0);
            self.scale = 1.0;
        }
        self.fold();
    }

    /// Multiplies the scale into all that is in units of v.
    fn fold(&mut self) {
        if self.scale != 1.0 {
            for v in self.v.iter_mut().chain(&mut self.taken) {
                *v *= self.scale;
            }
            self.clock *= f64::from(self.scale);
            self.scale = 1.0;
        }
    }

    /// Brings every weight up to date.
    pub fn settle<R: Rule>(&mut self, rule: R, penalty: Penalty) {
        if !R::ADAPTIVE {
            return self.take(0..self.v.len());
        }
        for j in 0..self.seen.len() {
            self.catch_up_feature(rule, penalty, j);
        }
        self.clock = 0.0;
        self.seen.fill(0.0);
    }

    /// Whether every weight is a number.
    pub fn is_finite(&self) -> bool {
        self.bias.iter().all(|b| b.is_finite()) && self.v.iter().fold(true, |ok, v| ok & (v * self.scale).is_finite())
    }

    /// The weights as they are (settled), one row an output, and the intercepts.
    pub fn rows(&self) -> Result<Rows> {
        let mut weights = Vec::new();
        extend(&mut weights, self.features * self.outputs, 0f32)?;
        if self.sparse {
            for (j, place) in self.v.chunks_exact(self.stride.max(1)).enumerate() {
                for (k, v) in place[..self.outputs].iter().enumerate() {
                    weights[k * self.features + j] = v * self.scale;
                }
            }
        } else {
            for (w, v) in weights.iter_mut().zip(&self.v) {
                *w = v * self.scale;
            }
        }
        Ok(Rows { features: self.features, weights, intercepts: self.bias.clone() })
    }

    /// Takes these weights over, into a shape that has room for them.
    pub fn set(&mut self, rows: &Rows) {
        self.scale = 1.0;
        for (k, (row, intercept)) in rows.weights.chunks_exact(rows.features.max(1)).zip(&rows.intercepts).enumerate() {
            for (j, w) in row.iter().enumerate() {
                let at = if self.sparse { j * self.stride + k } else { k * self.features + j };
                if let Some(v) = self.v.get_mut(at) {
                    *v = *w;
                }
            }
            if let Some(bias) = self.bias.get_mut(k) {
                *bias = *intercept;
            }
        }
    }

    /// Moves `average` towards the weights as they are (settled) by `part`; both in our own layout.
    pub fn average_into(&self, average: &mut Average, part: f32) -> Result<()> {
        extend(&mut average.v, self.v.len(), 0.0)?;
        extend(&mut average.bias, self.bias.len(), 0.0)?;
        for (a, v) in average.v.iter_mut().zip(&self.v) {
            *a += part * (v * self.scale - *a);
        }
        for (a, b) in average.bias.iter_mut().zip(&self.bias) {
            *a += part * (b - *a);
        }
        Ok(())
    }

    /// Exchanges the values of the weights (settled) and of an average of the same layout.
    pub fn exchange(&mut self, average: &mut Average) {
        std::mem::swap(&mut self.scale, &mut average.scale);
        std::mem::swap(&mut self.v, &mut average.v);
        std::mem::swap(&mut self.bias, &mut average.bias);
    }

    /// Features, outputs, and places a feature has: averages of another layout are of no use.
    pub fn layout(&self) -> (usize, usize, usize) {
        (self.features, self.outputs, self.stride)
    }
}

/// A running average of weights.
#[derive(Debug, Clone)]
pub struct Average {
    /// 1, but for while they are exchanged with the weights.
    scale: f32,
    v: Vec<f32>,
    bias: Vec<f32>,
}

impl Default for Average {
    fn default() -> Self {
        Self { scale: 1.0, v: Vec::new(), bias: Vec::new() }
    }
}

/// Finished weights: one row an output.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// Length of a row.
    pub features: usize,
    /// All rows.
    pub weights: Vec<f32>,
    /// One an output.
    pub intercepts: Vec<f32>,
}

/// The places of a row-major table moved from rows of `from` to rows of `to`.
fn spread(vec: &[f32], from: usize, to: usize) -> Result<Vec<f32>> {
    let mut wider = Vec::new();
    if !vec.is_empty() && from > 0 {
        let rows = vec.len() / from;
        extend(&mut wider, rows * to, 0.0)?;
        for (new, old) in wider.chunks_exact_mut(to).zip(vec.chunks_exact(from)) {
            new[..from].copy_from_slice(old);
        }
    }
    Ok(wider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pulp::Scalar;

    /// A sparse step with penalties put off equals the same step on dense tuples, for every rule.
    fn lazy_equals_dense<R: Rule>(
        rule: impl Fn(u64) -> R,
        optimizer: Optimizer,
        steps: &[(std::collections::BTreeMap<u32, f32>, f32)],
        penalty: Penalty,
    ) -> Result<(), TestCaseError> {
        const N: usize = 12;
        let mut lazy = Weights::new(Density::Sparse, optimizer, penalty.l1 > 0.0);
        let mut dense = Weights::new(Density::Dense(N), optimizer, penalty.l1 > 0.0);
        lazy.grow(N, 1).expect("fits");
        dense.grow(N, 1).expect("fits");
        let adam = optimizer == Optimizer::Adam || optimizer == Optimizer::Momentum;
        for (number, (row, slope)) in steps.iter().enumerate() {
            let rule = rule(number as u64 + 1);
            let (k, x): (Vec<u32>, Vec<f32>) = row.iter().map(|(k, x)| (*k, *x)).unzip();
            let mut full = [0f32; N];
            for (k, x) in row {
                full[*k as usize] = *x;
            }
            lazy.catch_up(rule, penalty, &k);
            lazy.step::<_, R, true>(Scalar, rule, &[*slope], Features::Sparse(&k, &x), true);
            lazy.penalise(rule, penalty, 1.0);
            dense.step::<_, R, true>(Scalar, rule, &[*slope], Features::Dense(&full), true);
            dense.penalise(rule, penalty, 1.0);
        }
        if adam {
            // Their means also change where x = 0; sparse tuples leave them alone, as documented.
            return Ok(());
        }
        lazy.settle(rule(steps.len() as u64), penalty);
        let (a, b) = (lazy.rows().expect("fits"), dense.rows().expect("fits"));
        for (a, b) in a.weights.iter().chain(&a.intercepts).zip(b.weights.iter().chain(&b.intercepts)) {
            prop_assert!((a - b).abs() < 1e-4 * (1.0 + a.abs()), "{:?}: lazy {a}, dense {b}", optimizer);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn put_off_penalties_equal_dense_ones(
            steps in prop::collection::vec((prop::collection::btree_map(0u32..12, -2f32..2.0, 0..5), -0.5f32..0.5), 1..60),
            l2 in 0f32..0.3, l1 in 0f32..0.05, rate in 0.01f32..0.5,
        ) {
            let penalty = Penalty { l2, l1 };
            lazy_equals_dense(|_| Sgd(rate), Optimizer::Sgd, &steps, penalty)?;
            lazy_equals_dense(|_| Adagrad(rate), Optimizer::Adagrad, &steps, penalty)?;
            lazy_equals_dense(|_| Momentum(rate), Optimizer::Momentum, &steps, penalty)?;
            lazy_equals_dense(|t| Adam::at(rate, t), Optimizer::Adam, &steps, penalty)?;
        }
    }

    #[test]
    fn growing_keeps_what_is_there() {
        for density in [Density::Sparse, Density::Dense(2)] {
            let mut weights = Weights::new(density, Optimizer::Sgd, false);
            weights.grow(2, 2).expect("fits");
            let x = if density == Density::Sparse {
                Features::Sparse(&[0, 1], &[1.0, 2.0])
            } else {
                Features::Dense(&[1.0, 2.0])
            };
            weights.step::<_, Sgd, false>(Scalar, Sgd(1.0), &[-1.0, -10.0], x, true);
            let before = weights.rows().expect("fits");
            assert_eq!(before.weights, [1.0, 2.0, 10.0, 20.0]);
            weights.grow(3, 5).expect("fits");
            let after = weights.rows().expect("fits");
            assert_eq!(after.weights[..7], [1.0, 2.0, 0.0, 10.0, 20.0, 0.0, 0.0]);
            assert_eq!(after.intercepts, [1.0, 10.0, 0.0, 0.0, 0.0]);
        }
    }

    #[test]
    fn weights_taken_over_come_back() {
        let rows = Rows { features: 3, weights: (1..7).map(|i| i as f32).collect(), intercepts: vec![0.5, -0.5] };
        for density in [Density::Sparse, Density::Dense(3)] {
            let mut weights = Weights::new(density, Optimizer::Sgd, false);
            weights.grow(3, 2).expect("fits");
            weights.set(&rows);
            assert_eq!(weights.rows().expect("fits"), rows);
        }
    }

    #[test]
    fn shrinking_for_ever_stays_finite() {
        let mut weights = Weights::new(Density::Dense(2), Optimizer::Sgd, false);
        weights.grow(2, 1).expect("fits");
        for _ in 0..100_000 {
            weights.step::<_, Sgd, true>(Scalar, Sgd(1.0), &[1.0], Features::Dense(&[1.0, -1.0]), false);
            weights.penalise(Sgd(1.0), Penalty { l2: 0.5, l1: 0.0 }, 1.0);
        }
        assert!(weights.is_finite());
        weights.penalise(Sgd(1.0), Penalty { l2: 1.0, l1: 0.0 }, 1.0);
        assert_eq!(weights.rows().expect("fits").weights, [0.0, 0.0]);
    }
}
