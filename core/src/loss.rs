//! Losses ℓ(y, p) of the label y and the score p = w·x + b, with their derivatives in p.
//!
//! Classification labels are −1 and +1. Every function is overflow-safe for finite input.
//! Sources: Bottou, "Stochastic gradient descent tricks" (2012); the CorgiPile report (LR, SVM).

use serde::{Deserialize, Serialize};

/// The losses there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Loss {
    /// Logistic regression: ln(1 + e^(−y·p)).
    LogLoss,
    /// Linear support vector machine: max(0, 1 − y·p).
    Hinge,
    /// Least squares: (p − y)² / 2.
    SquaredError,
}

impl Loss {
    /// All of them, in the order in which they are listed to users.
    pub const ALL: [Loss; 3] = [Loss::LogLoss, Loss::Hinge, Loss::SquaredError];

    /// The name in options, views and EXPLAIN.
    pub fn name(self) -> &'static str {
        match self {
            Loss::LogLoss => "log_loss",
            Loss::Hinge => "hinge",
            Loss::SquaredError => "squared_error",
        }
    }

    /// Finds a loss by its name or by one of the names other systems give it.
    pub fn by_name(name: &str) -> Option<Loss> {
        match name {
            "log_loss" | "log" | "logistic" | "lr" => Some(Loss::LogLoss),
            "hinge" | "svm" => Some(Loss::Hinge),
            "squared_error" | "squared" | "squared_loss" | "linear" => Some(Loss::SquaredError),
            _ => None,
        }
    }

    /// Whether the target is a class (of two), not a number.
    pub fn is_classification(self) -> bool {
        !matches!(self, Loss::SquaredError)
    }

    /// Whether the score can be turned into a probability.
    pub fn has_probability(self) -> bool {
        matches!(self, Loss::LogLoss)
    }
}

/// ℓ(y, p) = plain + ln(factor), and its derivative in p. A logarithm a tuple costs as much as its
/// dot product; the factors of a few hundred tuples are multiplied instead, for one logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The part of the loss that needs no logarithm.
    pub plain: f32,
    /// Between 1 and 2.
    pub factor: f32,
    /// dℓ/dp.
    pub slope: f32,
}

/// A loss as a type, so that the training loop is compiled once for each.
pub trait PointLoss: Copy {
    /// The loss at (y, p).
    fn eval(self, y: f32, p: f32) -> Point;
}

/// [`Loss::LogLoss`].
#[derive(Debug, Clone, Copy)]
pub struct LogLoss;
/// [`Loss::Hinge`].
#[derive(Debug, Clone, Copy)]
pub struct Hinge;
/// [`Loss::SquaredError`].
#[derive(Debug, Clone, Copy)]
pub struct SquaredError;

impl PointLoss for LogLoss {
    #[inline(always)]
    fn eval(self, y: f32, p: f32) -> Point {
        let margin = y * p;
        // e ≤ 1: nothing overflows, and both results keep their relative precision.
        let e = (-margin.abs()).exp();
        // 1 / (1 + e^margin), the probability of the other class.
        let other = if margin >= 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) };
        Point { plain: (-margin).max(0.0), factor: 1.0 + e, slope: -y * other }
    }
}

impl PointLoss for Hinge {
    #[inline(always)]
    fn eval(self, y: f32, p: f32) -> Point {
        let margin = y * p;
        let (plain, slope) = if margin < 1.0 { (1.0 - margin, -y) } else { (0.0, 0.0) };
        Point { plain, factor: 1.0, slope }
    }
}

impl PointLoss for SquaredError {
    #[inline(always)]
    fn eval(self, y: f32, p: f32) -> Point {
        let residual = p - y;
        Point { plain: 0.5 * residual * residual, factor: 1.0, slope: residual }
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

    fn both(point: Point) -> (f32, f32) {
        (point.plain + point.factor.ln(), point.slope)
    }

    /// Central difference in f64 of the closed form.
    fn slope(f: impl Fn(f64) -> f64, p: f64) -> f64 {
        let h = 1e-5;
        (f(p + h) - f(p - h)) / (2.0 * h)
    }

    proptest! {
        #[test]
        fn log_loss_slope_is_its_derivative(p in -30f32..30.0, positive: bool) {
            let y = if positive { 1.0 } else { -1.0 };
            let f = |p: f64| { let m = f64::from(y) * p; (-m).max(0.0) + (-m.abs()).exp().ln_1p() };
            let (loss, d) = both(LogLoss.eval(y, p));
            prop_assert!((f64::from(loss) - f(p.into())).abs() < 1e-5);
            prop_assert!((f64::from(d) - slope(f, p.into())).abs() < 1e-4);
        }

        #[test]
        fn hinge_slope_is_its_derivative(p in -5f32..5.0, positive: bool) {
            let y = if positive { 1.0 } else { -1.0 };
            prop_assume!((y * p - 1.0).abs() > 1e-3);
            let f = |p: f64| (1.0 - f64::from(y) * p).max(0.0);
            let (loss, d) = both(Hinge.eval(y, p));
            prop_assert!((f64::from(loss) - f(p.into())).abs() < 1e-5);
            prop_assert!((f64::from(d) - slope(f, p.into())).abs() < 1e-4);
        }

        #[test]
        fn squared_slope_is_its_derivative(p in -50f32..50.0, y in -50f32..50.0) {
            let f = |p: f64| 0.5 * (p - f64::from(y)).powi(2);
            let (loss, d) = both(SquaredError.eval(y, p));
            prop_assert!((f64::from(loss) - f(p.into())).abs() < 1e-2);
            prop_assert!((f64::from(d) - slope(f, p.into())).abs() < 1e-3);
        }

        #[test]
        fn every_loss_is_finite_for_finite_margins(p in prop::num::f32::NORMAL, positive: bool) {
            let y = if positive { 1.0 } else { -1.0 };
            for (loss, d) in [LogLoss.eval(y, p), Hinge.eval(y, p)].map(both) {
                prop_assert!(loss.is_finite() && d.is_finite());
            }
        }
    }

    #[test]
    fn names_and_synonyms_resolve() {
        for loss in Loss::ALL {
            assert_eq!(Loss::by_name(loss.name()), Some(loss));
        }
        assert_eq!(Loss::by_name("svm"), Some(Loss::Hinge));
        assert_eq!(Loss::by_name("nothing"), None);
    }

    #[test]
    fn sigmoid_saturates_without_overflow() {
        assert_eq!(sigmoid(1e300), 1.0);
        assert_eq!(sigmoid(-1e300), 0.0);
        assert_eq!(sigmoid(0.0), 0.5);
    }
}
