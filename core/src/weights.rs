//! The weight vector, kept as scale × v so that the L2 shrinkage of a step is one multiplication.
//!
//! Dot products add in sixteen fixed lanes and never fuse multiply and add: the result has the same
//! bits with SSE2, AVX2 and AVX-512 (the compiler may use any width, it may not reorder a sum).

use crate::tuples::Features;
use crate::{Error, Result};

const LANES: usize = 16;
/// Below this the scale is folded into the vector, before v grows out of f32's range.
const MIN_SCALE: f32 = 1e-6;

/// w = scale · v, and the intercept.
#[derive(Debug, Clone)]
pub struct Weights {
    v: Vec<f32>,
    scale: f32,
    /// The intercept; neither scaled nor shrunk.
    pub intercept: f32,
}

/// The sum of the lanes, pairwise.
#[inline(always)]
fn reduce(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// lanes += a·b, element by element.
#[inline(always)]
fn multiply_add<const N: usize>(lanes: &mut [f32; LANES], a: &[f32; N], b: &[f32; N]) {
    for i in 0..N {
        lanes[i] += a[i] * b[i];
    }
}

/// v += step·x, element by element.
#[inline(always)]
fn add_scaled<const N: usize>(v: &mut [f32; N], step: f32, x: &[f32; N]) {
    for i in 0..N {
        v[i] += step * x[i];
    }
}

/// x · y over the shorter of the two, in pieces of 16, 8, 4 and 1.
#[inline(always)]
pub fn dot(x: &[f32], y: &[f32]) -> f32 {
    let n = x.len().min(y.len());
    let (mut x, mut y) = (&x[..n], &y[..n]);
    let mut lanes = [0f32; LANES];
    while let (Some((a, x_rest)), Some((b, y_rest))) = (x.split_first_chunk::<16>(), y.split_first_chunk::<16>()) {
        multiply_add(&mut lanes, a, b);
        (x, y) = (x_rest, y_rest);
    }
    if let (Some((a, x_rest)), Some((b, y_rest))) = (x.split_first_chunk::<8>(), y.split_first_chunk::<8>()) {
        multiply_add(&mut lanes, a, b);
        (x, y) = (x_rest, y_rest);
    }
    if let (Some((a, x_rest)), Some((b, y_rest))) = (x.split_first_chunk::<4>(), y.split_first_chunk::<4>()) {
        multiply_add(&mut lanes, a, b);
        (x, y) = (x_rest, y_rest);
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(x.iter().zip(y)) {
        *lane += a * b;
    }
    reduce(lanes)
}

/// v += step·x over the shorter of the two, in pieces of 16, 8, 4 and 1.
#[inline(always)]
fn axpy(v: &mut [f32], step: f32, x: &[f32]) {
    let n = x.len().min(v.len());
    let (mut v, mut x) = (&mut v[..n], &x[..n]);
    while x.len() >= 16 {
        let (Some((a, v_rest)), Some((b, x_rest))) = (v.split_first_chunk_mut::<16>(), x.split_first_chunk::<16>())
        else {
            return;
        };
        add_scaled(a, step, b);
        (v, x) = (v_rest, x_rest);
    }
    if x.len() >= 8 {
        let (Some((a, v_rest)), Some((b, x_rest))) = (v.split_first_chunk_mut::<8>(), x.split_first_chunk::<8>())
        else {
            return;
        };
        add_scaled(a, step, b);
        (v, x) = (v_rest, x_rest);
    }
    if x.len() >= 4 {
        let (Some((a, v_rest)), Some((b, x_rest))) = (v.split_first_chunk_mut::<4>(), x.split_first_chunk::<4>())
        else {
            return;
        };
        add_scaled(a, step, b);
        (v, x) = (v_rest, x_rest);
    }
    for (v, x) in v.iter_mut().zip(x) {
        *v += step * x;
    }
}

/// Σ v[k]·x; an index beyond the vector has weight 0.
#[inline(always)]
pub fn sparse_dot(v: &[f32], k: &[u32], x: &[f32]) -> f32 {
    let mut sum = 0f32;
    for (k, x) in k.iter().zip(x) {
        if let Some(v) = v.get(*k as usize) {
            sum += v * x;
        }
    }
    sum
}

impl Weights {
    /// Zeros.
    pub fn zeros(n: usize) -> Result<Self> {
        let mut weights = Self { v: Vec::new(), scale: 1.0, intercept: 0.0 };
        weights.grow(n)?;
        Ok(weights)
    }

    /// Features there are weights for.
    pub fn len(&self) -> usize {
        self.v.len()
    }

    /// Whether there is no weight at all.
    pub fn is_empty(&self) -> bool {
        self.v.is_empty()
    }

    /// Adds weights of zero for features not met before (sparse data).
    pub fn grow(&mut self, n: usize) -> Result<()> {
        let more = n.saturating_sub(self.v.len());
        self.v.try_reserve(more).map_err(|_| Error::OutOfMemory { bytes: n * 4, purpose: "the weights" })?;
        self.v.resize(self.v.len() + more, 0.0);
        Ok(())
    }

    /// The score w·x + b.
    #[inline(always)]
    pub fn score(&self, x: Features<'_>) -> f32 {
        let raw = match x {
            Features::Dense(x) => dot(&self.v, x),
            Features::Sparse(k, x) => sparse_dot(&self.v, k, x),
        };
        self.scale * raw + self.intercept
    }

    /// w += step · x.
    #[inline(always)]
    pub fn add(&mut self, step: f32, x: Features<'_>) {
        let step = step / self.scale;
        match x {
            Features::Dense(x) => axpy(&mut self.v, step, x),
            Features::Sparse(k, x) => {
                for (k, x) in k.iter().zip(x) {
                    if let Some(v) = self.v.get_mut(*k as usize) {
                        *v += step * x;
                    }
                }
            }
        }
    }

    /// w *= factor, in constant time; a factor that is not positive gives zero.
    #[inline(always)]
    pub fn shrink(&mut self, factor: f32) {
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

    /// Multiplies the scale into the vector.
    pub fn fold(&mut self) {
        if self.scale != 1.0 {
            for v in &mut self.v {
                *v *= self.scale;
            }
            self.scale = 1.0;
        }
    }

    /// Whether every weight is a number.
    pub fn is_finite(&self) -> bool {
        let finite = |x: f32| x.is_finite();
        finite(self.intercept) && finite(self.scale) && self.v.iter().fold(true, |ok, v| ok & finite(v * self.scale))
    }

    /// Sign change of all (the classes were coded the other way round).
    pub fn negate(&mut self) {
        self.v.iter_mut().for_each(|v| *v = -*v);
        self.intercept = -self.intercept;
    }

    /// w as a plain vector.
    pub fn into_vec(mut self) -> Vec<f32> {
        self.fold();
        self.v
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn dot_agrees_with_f64(x in prop::collection::vec((-10f32..10.0, -10f32..10.0), 0..300)) {
            let (a, b): (Vec<f32>, Vec<f32>) = x.iter().copied().unzip();
            let exact: f64 = x.iter().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let size: f64 = x.iter().map(|(a, b)| f64::from(a * b).abs()).sum();
            prop_assert!((f64::from(dot(&a, &b)) - exact).abs() <= 1e-5 * size.max(1.0));
        }

        /// Lazy scaling and sparse steps equal the naive dense update.
        #[test]
        fn lazy_sparse_update_equals_naive(
            steps in prop::collection::vec((prop::collection::btree_map(0u32..30, -2f32..2.0, 0..8), -0.5f32..0.5, 0.5f32..1.0), 1..60)
        ) {
            let mut weights = Weights::zeros(30).expect("fits");
            let mut naive = vec![0f64; 30];
            for (row, step, factor) in &steps {
                let (k, x): (Vec<u32>, Vec<f32>) = row.iter().map(|(k, x)| (*k, *x)).unzip();
                weights.shrink(*factor);
                weights.add(*step, Features::Sparse(&k, &x));
                naive.iter_mut().for_each(|w| *w *= f64::from(*factor));
                for (k, x) in k.iter().zip(&x) { naive[*k as usize] += f64::from(*step) * f64::from(*x); }
            }
            for (w, n) in weights.into_vec().iter().zip(&naive) {
                prop_assert!((f64::from(*w) - n).abs() < 1e-4, "{w} {n}");
            }
        }
    }

    #[test]
    fn shrinking_for_ever_stays_finite() {
        let mut weights = Weights::zeros(2).expect("fits");
        for _ in 0..100_000 {
            weights.add(1.0, Features::Dense(&[1.0, -1.0]));
            weights.shrink(0.5);
        }
        assert!(weights.is_finite());
        weights.shrink(0.0);
        assert_eq!(weights.into_vec(), [0.0, 0.0]);
    }
}
