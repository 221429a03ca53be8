//! Losses ℓ(y, p) of the label y and the score p = w·x + b, with their derivatives in p.
//!
//! Labels: −1 and +1 for the binary losses, the number of the class for softmax, the number itself
//! for regression. Every function is overflow-safe for finite input. Sources: Bottou, "Stochastic
//! gradient descent tricks" (2012); Zhang, "Solving large scale linear prediction problems using
//! stochastic gradient descent" (2004, modified Huber); the CorgiPile report (LR, SVM, softmax).

use crate::exp::exp_of_negative;
use crate::logistic::other_side;
use serde::{Deserialize, Serialize};

/// The losses there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Logistic regression: ln(1 + e^(−y·p)).
    LogLoss,
    /// Linear support vector machine: max(0, 1 − y·p).
    Hinge,
    /// max(0, 1 − y·p)².
    SquaredHinge,
    /// max(0, 1 − y·p)², but −4·y·p where y·p < −1: robust against mislabelled tuples.
    ModifiedHuber,
    /// Multinomial logistic regression over any number of classes: −ln softmax(p)[y].
    Softmax,
    /// Least squares: (p − y)² / 2.
    SquaredError,
    /// Least squares near the target, ε·|p − y| − ε²/2 farther than ε from it.
    Huber,
    /// max(0, |p − y| − ε).
    EpsilonInsensitive,
}

impl Loss {
    /// All of them, in the order in which they are listed to users.
    pub const ALL: [Loss; 8] = [
        Loss::LogLoss,
        Loss::Hinge,
        Loss::SquaredHinge,
        Loss::ModifiedHuber,
        Loss::Softmax,
        Loss::SquaredError,
        Loss::Huber,
        Loss::EpsilonInsensitive,
    ];

    /// The name in options, views and EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Loss::LogLoss => "log_loss",
            Loss::Hinge => "hinge",
            Loss::SquaredHinge => "squared_hinge",
            Loss::ModifiedHuber => "modified_huber",
            Loss::Softmax => "softmax",
            Loss::SquaredError => "squared_error",
            Loss::Huber => "huber",
            Loss::EpsilonInsensitive => "epsilon_insensitive",
        }
    }

    /// Finds a loss by its name or by one of the names other systems give it.
    pub fn by_name(name: &str) -> Option<Loss> {
        match name {
            "log" | "logistic" | "lr" => Some(Loss::LogLoss),
            "svm" => Some(Loss::Hinge),
            "squared" | "squared_loss" | "linear" => Some(Loss::SquaredError),
            "multinomial" => Some(Loss::Softmax),
            name => Loss::ALL.into_iter().find(|loss| loss.name() == name),
        }
    }

    /// Whether the target is a class, not a number.
    pub fn is_classification(self) -> bool {
        !matches!(self, Loss::SquaredError | Loss::Huber | Loss::EpsilonInsensitive)
    }

    /// Whether the target has exactly two classes.
    pub fn is_binary(self) -> bool {
        self.is_classification() && self != Loss::Softmax
    }

    /// Whether the score can be turned into a probability.
    pub fn has_probability(self) -> bool {
        matches!(self, Loss::LogLoss | Loss::ModifiedHuber | Loss::Softmax)
    }

    /// Whether `epsilon` means something.
    pub fn has_epsilon(self) -> bool {
        matches!(self, Loss::Huber | Loss::EpsilonInsensitive)
    }
}

/// ℓ = plain − ln(factor). A logarithm a tuple costs as much as its dot product; the factors of a few
/// hundred tuples are multiplied instead, for one logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The part of the loss that needs no logarithm.
    pub plain: f32,
    /// At most 1: the probability of the likelier side for log_loss, of the likeliest class for softmax.
    pub factor: f32,
    /// Whether the tuple is on its side (classification).
    pub right: bool,
}

/// A loss as a type, so that the training loop is compiled once for each. `scores` holds one score
/// (softmax: one a class) and is overwritten with the slopes dℓ/dp.
pub trait Objective: Copy {
    /// One output?
    const SINGLE: bool = true;
    /// The loss at (y, scores).
    fn eval(self, y: f32, scores: &mut [f32]) -> Point;
    /// The sign by which a label turns scores into margins, where all that counts is the margin; 1 elsewhere.
    #[inline(always)]
    fn turn(self, _y: f32) -> f32 {
        1.0
    }
    /// The loss at (y, score) of one output and its slope, both turned by [`Self::turn`]. A training step waits for the
    /// slope, and need not wait for two signs to be changed.
    #[inline(always)]
    fn turned(self, y: f32, score: f32) -> (Point, f32) {
        let mut scores = [score];
        let point = self.eval(y, &mut scores);
        (point, scores[0])
    }
}

/// A loss of the margin m = y·p, y being −1 or 1.
trait MarginLoss: Copy {
    /// (plain, factor, dℓ/dm).
    fn at_margin(self, m: f32) -> (f32, f32, f32);
}

/// A loss of the residual r = p − y.
trait ResidualLoss: Copy {
    /// (loss, dℓ/dr).
    fn at_residual(self, r: f32) -> (f32, f32);
}

macro_rules! margin_objectives {
    ($($type:ty),*) => {$(
        impl Objective for $type {
            #[inline(always)]
            fn eval(self, y: f32, scores: &mut [f32]) -> Point {
                let (point, slope) = self.turned(y, y * scores[0]);
                scores[0] = y * slope;
                point
            }

            #[inline(always)]
            fn turn(self, y: f32) -> f32 {
                y
            }

            #[inline(always)]
            fn turned(self, _y: f32, margin: f32) -> (Point, f32) {
                let (plain, factor, slope) = self.at_margin(margin);
                (Point { plain, factor, right: margin > 0.0 }, slope)
            }
        }
    )*};
}
margin_objectives!(LogLoss, Hinge, SquaredHinge, ModifiedHuber);

macro_rules! residual_objectives {
    ($($type:ty),*) => {$(
        impl Objective for $type {
            #[inline(always)]
            fn eval(self, y: f32, scores: &mut [f32]) -> Point {
                let p = scores[0];
                let (plain, slope) = self.at_residual(p - y);
                scores[0] = slope;
                Point { plain, factor: 1.0, right: y * p > 0.0 }
            }
        }
    )*};
}
residual_objectives!(SquaredError, Huber, EpsilonInsensitive);

/// [`Loss::LogLoss`].
#[derive(Debug, Clone, Copy)]
pub struct LogLoss;
/// [`Loss::Hinge`].
#[derive(Debug, Clone, Copy)]
pub struct Hinge;
/// [`Loss::SquaredHinge`].
#[derive(Debug, Clone, Copy)]
pub struct SquaredHinge;
/// [`Loss::ModifiedHuber`].
#[derive(Debug, Clone, Copy)]
pub struct ModifiedHuber;
/// [`Loss::SquaredError`].
#[derive(Debug, Clone, Copy)]
pub struct SquaredError;
/// [`Loss::Huber`] with its ε.
#[derive(Debug, Clone, Copy)]
pub struct Huber(pub f32);
/// [`Loss::EpsilonInsensitive`] with its ε.
#[derive(Debug, Clone, Copy)]
pub struct EpsilonInsensitive(pub f32);
/// [`Loss::Softmax`].
#[derive(Debug, Clone, Copy)]
pub struct Softmax;

impl MarginLoss for LogLoss {
    #[inline(always)]
    fn at_margin(self, m: f32) -> (f32, f32, f32) {
        // The probability of the other class. ln(1 + e^−m) is max(−m, 0) − ln max(q, 1 − q): nothing overflows.
        let q = other_side(m);
        ((-m).max(0.0), q.max(1.0 - q), -q)
    }
}

impl MarginLoss for Hinge {
    #[inline(always)]
    fn at_margin(self, m: f32) -> (f32, f32, f32) {
        if m < 1.0 { (1.0 - m, 1.0, -1.0) } else { (0.0, 1.0, 0.0) }
    }
}

impl MarginLoss for SquaredHinge {
    #[inline(always)]
    fn at_margin(self, m: f32) -> (f32, f32, f32) {
        let missing = (1.0 - m).max(0.0);
        (missing * missing, 1.0, -2.0 * missing)
    }
}

impl MarginLoss for ModifiedHuber {
    #[inline(always)]
    fn at_margin(self, m: f32) -> (f32, f32, f32) {
        if m >= -1.0 {
            let missing = (1.0 - m).max(0.0);
            (missing * missing, 1.0, -2.0 * missing)
        } else {
            (-4.0 * m, 1.0, -4.0)
        }
    }
}

impl ResidualLoss for SquaredError {
    #[inline(always)]
    fn at_residual(self, r: f32) -> (f32, f32) {
        (0.5 * r * r, r)
    }
}

impl ResidualLoss for Huber {
    #[inline(always)]
    fn at_residual(self, r: f32) -> (f32, f32) {
        if r.abs() <= self.0 {
            (0.5 * r * r, r)
        } else {
            (self.0 * r.abs() - 0.5 * self.0 * self.0, self.0.copysign(r))
        }
    }
}

impl ResidualLoss for EpsilonInsensitive {
    #[inline(always)]
    fn at_residual(self, r: f32) -> (f32, f32) {
        let beyond = r.abs() - self.0;
        if beyond > 0.0 { (beyond, 1f32.copysign(r)) } else { (0.0, 0.0) }
    }
}

impl Objective for Softmax {
    const SINGLE: bool = false;

    #[inline(always)]
    fn eval(self, y: f32, scores: &mut [f32]) -> Point {
        let class = y as usize;
        let own = scores.get(class).copied().unwrap_or(0.0);
        let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut others = 0f32;
        let mut best_other = f32::NEG_INFINITY;
        for (k, score) in scores.iter_mut().enumerate() {
            if k != class {
                best_other = best_other.max(*score);
            }
            // Shifted by the largest: no exponent is above 0.
            *score = exp_of_negative(*score - largest);
            others += *score;
        }
        // ℓ = ln Σ e^(p_k − max) − (p_y − max); the sum lies between 1 and the number of classes.
        let inverse = 1.0 / others;
        for score in scores.iter_mut() {
            *score *= inverse;
        }
        if let Some(score) = scores.get_mut(class) {
            *score -= 1.0;
        }
        Point { plain: largest - own, factor: inverse, right: own > best_other }
    }
}

/// The logistic function, 1 / (1 + e^(−score)), without overflow.
pub fn sigmoid(score: f64) -> f64 {
    let e = (-score.abs()).exp();
    if score >= 0.0 { 1.0 / (1.0 + e) } else { e / (1.0 + e) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both(objective: impl Objective, y: f32, p: f32) -> (f64, f64) {
        let mut scores = [p];
        let point = objective.eval(y, &mut scores);
        (f64::from(point.plain) - f64::from(point.factor).ln(), f64::from(scores[0]))
    }

    /// The slope equals the central difference of the closed form in f64.
    fn check(objective: impl Objective, y: f32, p: f32, f: impl Fn(f64) -> f64) -> Result<(), TestCaseError> {
        let (loss, slope) = both(objective, y, p);
        let (p, h) = (f64::from(p), 1e-5);
        let size = 1.0 + f(p).abs();
        prop_assert!((loss - f(p)).abs() < 1e-5 * size, "loss {loss}, expected {}", f(p));
        let expected = (f(p + h) - f(p - h)) / (2.0 * h);
        prop_assert!((slope - expected).abs() < 1e-3 * size, "slope {slope}, expected {expected}");
        Ok(())
    }

    proptest! {
        #[test]
        fn slopes_of_classifiers_are_derivatives(p in -8f32..8.0, positive: bool) {
            let y = if positive { 1.0f32 } else { -1.0 };
            let m = move |p: f64| f64::from(y) * p;
            // Away from the kinks.
            prop_assume!((y * p - 1.0).abs() > 1e-3 && (y * p + 1.0).abs() > 1e-3);
            check(LogLoss, y, p, |p| (-m(p)).max(0.0) + (-m(p).abs()).exp().ln_1p())?;
            check(Hinge, y, p, |p| (1.0 - m(p)).max(0.0))?;
            check(SquaredHinge, y, p, |p| (1.0 - m(p)).max(0.0).powi(2))?;
            check(ModifiedHuber, y, p, |p| if m(p) < -1.0 { -4.0 * m(p) } else { (1.0 - m(p)).max(0.0).powi(2) })?;
        }

        #[test]
        fn slopes_of_regressions_are_derivatives(p in -20f32..20.0, y in -20f32..20.0) {
            let r = move |p: f64| p - f64::from(y);
            prop_assume!(((p - y).abs() - 0.5).abs() > 1e-3);
            check(SquaredError, y, p, |p| 0.5 * r(p).powi(2))?;
            check(Huber(0.5), y, p, |p| if r(p).abs() <= 0.5 { 0.5 * r(p).powi(2) } else { 0.5 * r(p).abs() - 0.125 })?;
            check(EpsilonInsensitive(0.5), y, p, |p| (r(p).abs() - 0.5).max(0.0))?;
        }

        #[test]
        fn softmax_slopes_are_derivatives(scores in prop::collection::vec(-6f32..6.0, 2..8), class in 0usize..8) {
            let class = class % scores.len();
            let f = |p: &[f64]| {
                let largest = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                p.iter().map(|x| (x - largest).exp()).sum::<f64>().ln() + largest - p[class]
            };
            let exact: Vec<f64> = scores.iter().map(|x| f64::from(*x)).collect();
            let mut slopes = scores.clone();
            let point = Softmax.eval(class as f32, &mut slopes);
            prop_assert!((f64::from(point.plain) - f64::from(point.factor).ln() - f(&exact)).abs() < 1e-4);
            for k in 0..scores.len() {
                let (mut up, mut down) = (exact.clone(), exact.clone());
                up[k] += 1e-5;
                down[k] -= 1e-5;
                prop_assert!((f64::from(slopes[k]) - (f(&up) - f(&down)) / 2e-5).abs() < 1e-4);
            }
        }

        #[test]
        fn everything_is_finite_for_large_scores(p in -1e15f32..1e15, positive: bool) {
            let y = if positive { 1.0 } else { -1.0 };
            for (loss, slope) in [both(LogLoss, y, p), both(Hinge, y, p), both(SquaredHinge, y, p), both(ModifiedHuber, y, p)] {
                prop_assert!(loss.is_finite() && slope.is_finite());
            }
            let mut scores = [p, -p, 0.0];
            let point = Softmax.eval(1.0, &mut scores);
            prop_assert!(point.plain.is_finite() && point.factor.is_finite() && scores.iter().all(|s| s.is_finite()));
        }
    }

    #[test]
    fn names_and_synonyms_resolve() {
        for loss in Loss::ALL {
            assert_eq!(Loss::by_name(loss.name()), Some(loss));
        }
        assert_eq!(Loss::by_name("svm"), Some(Loss::Hinge));
        assert_eq!(Loss::by_name("multinomial"), Some(Loss::Softmax));
        assert_eq!(Loss::by_name("nothing"), None);
    }

    #[test]
    fn sigmoid_saturates_without_overflow() {
        assert_eq!(sigmoid(1e300), 1.0);
        assert_eq!(sigmoid(-1e300), 0.0);
        assert_eq!(sigmoid(0.0), 0.5);
    }
}
