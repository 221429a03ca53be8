//! Standardising: dense features, centred and scaled (sparse ones stay as they are), and a numeric target.
//!
//! Mean and standard deviation come from the tuples of the first buffer, in two passes in f64, never
//! from sums of squares. Tuples are scaled where they lie, once a fill; the finished weights are
//! folded back, so the model is in the user's units and prediction costs nothing extra.

use crate::tuples::{Density, TupleBuffer};
use crate::vector::dispatch;
use crate::weights::Rows;
use crate::{Error, Result};

/// How values were scaled: x' = (x − mean)·inverse.
#[derive(Debug, Clone, Default)]
pub struct Scaling {
    /// Empty where nothing is centred.
    mean: Vec<f32>,
    /// Empty where nothing is scaled.
    inverse: Vec<f32>,
    target: Option<(f64, f64)>,
    constant: usize,
}

/// Scales dense rows; a type of its own for [`dispatch`].
struct Apply<'a> {
    scaling: &'a Scaling,
    tuples: &'a mut TupleBuffer,
}

impl pulp::WithSimd for Apply<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let Scaling { mean, inverse, .. } = self.scaling;
        for row in self.tuples.dense_rows_mut() {
            if mean.is_empty() {
                for (x, inverse) in row.iter_mut().zip(inverse) {
                    *x *= inverse;
                }
            } else {
                for ((x, mean), inverse) in row.iter_mut().zip(mean).zip(inverse) {
                    *x = (*x - mean) * inverse;
                }
            }
        }
    }
}

fn zeros<T: Clone + Default>(n: usize) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    vec.try_reserve_exact(n)
        .map_err(|_| Error::OutOfMemory { bytes: n * size_of::<T>(), purpose: "the scaling of the features" })?;
    vec.resize(n, T::default());
    Ok(vec)
}

impl Scaling {
    /// Learns from a buffer, tuples counting by their weights. `features`: scale the features; `numbers`: scale the labels, which are
    /// numbers; `centre`: means are subtracted, which needs an intercept to make up for it.
    pub fn learn(tuples: &TupleBuffer, features: bool, numbers: bool, centre: bool) -> Result<Self> {
        let mut scaling = Self::default();
        let weight = |row: usize| f64::from(tuples.weight(row));
        let n = (0..tuples.len()).map(weight).sum::<f64>();
        let n = if n > 0.0 { n } else { 1.0 };
        if let (true, Some(matrix), Density::Dense(dims)) = (features, tuples.matrix(), tuples.density()) {
            let mut sums: Vec<f64> = zeros(dims)?;
            for (i, row) in matrix.rows().into_iter().enumerate() {
                for (sum, x) in sums.iter_mut().zip(row) {
                    *sum += weight(i) * f64::from(*x);
                }
            }
            let means: Vec<f64> = sums.iter().map(|sum| if centre { sum / n } else { 0.0 }).collect();
            sums.fill(0.0);
            for (i, row) in matrix.rows().into_iter().enumerate() {
                for ((sum, x), mean) in sums.iter_mut().zip(row).zip(&means) {
                    *sum += weight(i) * (f64::from(*x) - mean).powi(2);
                }
            }
            scaling.inverse = zeros(dims)?;
            for ((inverse, sum), mean) in scaling.inverse.iter_mut().zip(&sums).zip(&means) {
                let deviation = (sum / n).sqrt();
                // What is left of a constant column is the rounding of its mean. It adds nothing, and a
                // value that differs later does not count for more than the mean did.
                if deviation > mean.abs() * 1e-9 && deviation > 0.0 {
                    *inverse = (1.0 / deviation) as f32;
                } else {
                    *inverse = (1.0 / mean.abs().max(1.0)) as f32;
                    scaling.constant += 1;
                }
            }
            if centre {
                scaling.mean = means.iter().map(|mean| *mean as f32).collect();
            }
        }
        if numbers {
            let labels = || tuples.labels().iter().enumerate().map(|(i, y)| (weight(i), f64::from(*y)));
            let mean = if centre { labels().map(|(w, y)| w * y).sum::<f64>() / n } else { 0.0 };
            let deviation = (labels().map(|(w, y)| w * (y - mean).powi(2)).sum::<f64>() / n).sqrt();
            scaling.target = Some((mean, if deviation > 0.0 { deviation } else { 1.0 }));
        }
        Ok(scaling)
    }

    /// Columns that had one value only.
    pub fn constant_columns(&self) -> usize {
        self.constant
    }

    /// What a unit of the scaled target is in the user's units.
    pub fn target_unit(&self) -> f64 {
        self.target.map_or(1.0, |(_, deviation)| deviation)
    }

    /// Scales the tuples of a freshly filled buffer.
    pub fn apply(&self, tuples: &mut TupleBuffer) {
        if let Some((mean, deviation)) = self.target {
            tuples.map_labels(|y| ((f64::from(y) - mean) / deviation) as f32);
        }
        if self.inverse.is_empty() {
            return;
        }
        dispatch(Apply { scaling: self, tuples });
    }

    /// Weights in the user's units as they are over scaled tuples: the inverse of [`Self::unscale`].
    pub fn scale(&self, rows: &mut Rows) {
        let (target_mean, unit) = self.target.unwrap_or((0.0, 1.0));
        for (k, intercept) in rows.intercepts.iter_mut().enumerate() {
            let row = &mut rows.weights[k * rows.features..(k + 1) * rows.features];
            let mut shift = 0f64;
            for (j, w) in row.iter_mut().enumerate() {
                let own = f64::from(*w) / unit;
                shift += own * f64::from(self.mean.get(j).copied().unwrap_or(0.0));
                *w = (own / f64::from(self.inverse.get(j).copied().unwrap_or(1.0))) as f32;
            }
            *intercept = ((f64::from(*intercept) - target_mean) / unit + shift) as f32;
        }
    }

    /// Finished weights in the user's units.
    pub fn unscale(&self, rows: &mut Rows) {
        let (target_mean, unit) = self.target.unwrap_or((0.0, 1.0));
        for (k, intercept) in rows.intercepts.iter_mut().enumerate() {
            let row = &mut rows.weights[k * rows.features..(k + 1) * rows.features];
            let mut shift = 0f64;
            for (j, w) in row.iter_mut().enumerate() {
                let scaled = f64::from(*w) * f64::from(self.inverse.get(j).copied().unwrap_or(1.0));
                shift += scaled * f64::from(self.mean.get(j).copied().unwrap_or(0.0));
                *w = (scaled * unit) as f32;
            }
            *intercept = ((f64::from(*intercept) - shift) * unit + target_mean) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuples::Features;
    use crate::vector::wide_dot;
    use proptest::prelude::*;

    proptest! {
        /// A score of scaled tuples by scaled weights is the score of the tuples by the unscaled ones.
        #[test]
        fn folding_back_keeps_the_scores(
            rows in prop::collection::vec((prop::collection::vec(-1000f32..1000.0, 4), -50f32..50.0), 2..30),
            w in prop::collection::vec(-2f32..2.0, 4), b in -1f32..1.0, centre: bool, numbers: bool,
        ) {
            let mut tuples = TupleBuffer::new(Density::Dense(4), usize::MAX);
            for (x, y) in &rows { tuples.push(*y, Features::Dense(x)).expect("fits"); }
            let scaling = Scaling::learn(&tuples, true, numbers, centre).expect("fits");
            scaling.apply(&mut tuples);
            let mut folded = Rows { features: 4, weights: w.clone(), intercepts: vec![b] };
            scaling.unscale(&mut folded);
            for (i, (x, _)) in rows.iter().enumerate() {
                let Features::Dense(scaled) = tuples.features(i) else { unreachable!("dense") };
                let (mean, unit) = scaling.target.unwrap_or((0.0, 1.0));
                let expected = f64::from(wide_dot(&w, scaled) + b) * unit + mean;
                let found = f64::from(wide_dot(&folded.weights, x) + folded.intercepts[0]);
                prop_assert!((expected - found).abs() < 1e-3 * (1.0 + expected.abs() + unit), "{expected} {found}");
            }
            // And back again: what a warm start does.
            scaling.scale(&mut folded);
            for (a, b) in w.iter().chain([&b]).zip(folded.weights.iter().chain(&folded.intercepts)) {
                prop_assert!((a - b).abs() < 2e-2 * (1.0 + a.abs()), "{a} {b}");
            }
        }
    }

    #[test]
    fn large_means_do_not_drown_the_deviation() {
        // Year-like values: sums of squares in f32 would lose the deviation.
        let mut tuples = TupleBuffer::new(Density::Dense(2), usize::MAX);
        for i in 0..1000 {
            tuples.push(0.0, Features::Dense(&[1_000_000.0 + (i % 2) as f32, 7.0])).expect("fits");
        }
        let scaling = Scaling::learn(&tuples, true, false, true).expect("fits");
        assert!((scaling.inverse[0] - 2.0).abs() < 1e-3);
        assert_eq!(scaling.constant_columns(), 1);
        scaling.apply(&mut tuples);
        assert_eq!(tuples.features(3), Features::Dense(&[1.0, 0.0]));
    }
}
