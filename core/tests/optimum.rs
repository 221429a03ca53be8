//! At convergence training reaches the minimum of the documented objective, mean ℓ + l2/2·‖w‖² + l1·‖w‖₁ over standardised
//! features and targets, for every loss: that of a solver over all tuples, in f64, which shares no code with it.

use corgipile_core::loss::Loss;
use corgipile_core::params::Params;
use corgipile_core::trainer::{Trainer, train_in_memory};
use corgipile_core::tuples::{Density, Features, TupleBuffer};

const DIMS: usize = 3;
const CLASSES: usize = 3;
const ROWS: usize = 900;

/// One problem, in the space where its objective is defined.
struct Problem {
    loss: Loss,
    l1: f64,
    l2: f64,
    x: Vec<[f64; DIMS]>,
    y: Vec<f64>,
}

/// For each output the weights and the intercept.
type Solution = Vec<[f64; DIMS + 1]>;

impl Problem {
    fn outputs(&self) -> usize {
        if self.loss == Loss::Softmax { CLASSES } else { 1 }
    }

    /// ℓ and its slopes at scores, by the definitions in the README.
    fn loss(&self, y: f64, s: &[f64]) -> (f64, Vec<f64>) {
        let m = y * s[0];
        let r = s[0] - y;
        let one = |loss: f64, slope: f64| (loss, vec![slope]);
        match self.loss {
            Loss::LogLoss => one((-m).exp().ln_1p(), -y / (1.0 + m.exp())),
            Loss::Hinge => one((1.0 - m).max(0.0), if m < 1.0 { -y } else { 0.0 }),
            Loss::ModifiedHuber if m < -1.0 => one(-4.0 * m, -4.0 * y),
            Loss::SquaredHinge | Loss::ModifiedHuber => one((1.0 - m).max(0.0).powi(2), -2.0 * y * (1.0 - m).max(0.0)),
            // ε is a tenth of the target's deviation where none is given.
            Loss::Huber if r.abs() > 0.1 => one(0.1 * r.abs() - 0.005, 0.1 * r.signum()),
            Loss::SquaredError | Loss::Huber => one(r * r / 2.0, r),
            Loss::EpsilonInsensitive => one((r.abs() - 0.1).max(0.0), if r.abs() > 0.1 { r.signum() } else { 0.0 }),
            Loss::Softmax => {
                let sum: f64 = s.iter().map(|s| s.exp()).sum();
                let p: Vec<f64> = s.iter().map(|s| s.exp() / sum).collect();
                let class = y as usize;
                (-p[class].ln(), p.iter().enumerate().map(|(k, p)| p - f64::from(u8::from(k == class))).collect())
            }
        }
    }

    fn scores(w: &Solution, x: &[f64; DIMS]) -> Vec<f64> {
        w.iter().map(|w| w[DIMS] + w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect()
    }

    fn objective(&self, w: &Solution) -> f64 {
        let losses = self.x.iter().zip(&self.y).map(|(x, y)| self.loss(*y, &Self::scores(w, x)).0);
        let weights = w.iter().flat_map(|w| &w[..DIMS]);
        let penalty = |w: &f64| self.l2 / 2.0 * w * w + self.l1 * w.abs();
        losses.sum::<f64>() / self.x.len() as f64 + weights.map(penalty).sum::<f64>()
    }

    /// Proximal (sub)gradient descent over all tuples, with steps that become small.
    fn minimum(&self) -> f64 {
        let mut w: Solution = vec![[0.0; DIMS + 1]; self.outputs()];
        let mut least = f64::INFINITY;
        for i in 0..6000 {
            let step = 0.2 / (1.0 + f64::from(i) / 500.0);
            let mut gradient = vec![[0.0; DIMS + 1]; w.len()];
            for (x, y) in self.x.iter().zip(&self.y) {
                let (_, slopes) = self.loss(*y, &Self::scores(&w, x));
                for (gradient, slope) in gradient.iter_mut().zip(slopes) {
                    gradient.iter_mut().zip(x).for_each(|(g, x)| *g += slope * x);
                    gradient[DIMS] += slope;
                }
            }
            for (w, gradient) in w.iter_mut().zip(&gradient) {
                for (j, (w, g)) in w.iter_mut().zip(gradient).enumerate() {
                    *w -= step * g / self.x.len() as f64;
                    if j < DIMS {
                        *w -= step * self.l2 * *w;
                        *w = w.signum() * (w.abs() - step * self.l1).max(0.0);
                    }
                }
            }
            if i % 100 == 99 {
                least = least.min(self.objective(&w));
            }
        }
        least
    }
}

/// Numbers in [−1, 1), the same on every machine.
fn numbers() -> impl FnMut() -> f64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// Features in the user's units, and labels of classes that overlap or of a noisy line.
fn tuples(loss: Loss) -> (Vec<[f64; DIMS]>, Vec<f64>) {
    let mut next = numbers();
    let rows = (0..ROWS).map(|i| {
        let class = i * CLASSES / ROWS;
        let side = if i * 2 < ROWS { -1.0 } else { 1.0 };
        let towards = if loss == Loss::Softmax { class as f64 - 1.0 } else { side };
        let x = [next() + 0.4 * towards, next() - 0.2 * towards.abs(), next() * 0.8];
        let y = match loss {
            Loss::Softmax => class as f64,
            loss if loss.is_classification() => side,
            _ => 300.0 + 20.0 * (x[0] - 0.5 * x[1] + 0.3 * next()),
        };
        // In units of their own, the last one large.
        ([x[0], x[1] * 0.5, x[2] * 30.0], y)
    });
    rows.unzip()
}

fn moments(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let n = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / n;
    (mean, (values.map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt())
}

/// The objective that training reaches, and its minimum.
fn reached(loss: Loss, sparse: bool, l1: f64) -> (f64, f64) {
    let l2 = 0.02;
    let (x, y) = tuples(loss);
    let density = if sparse { Density::Sparse } else { Density::Dense(DIMS) };
    let mut buffer = TupleBuffer::new(density, usize::MAX);
    for (x, y) in x.iter().zip(&y) {
        let x = x.map(|x| x as f32);
        let features = if sparse { Features::Sparse(&[0, 1, 2], &x) } else { Features::Dense(&x) };
        buffer.push(*y as f32, features).expect("fits");
    }
    let params =
        Params { l2_reg: Some(l2), l1_reg: l1, tolerance: 0.0, max_epochs: 300, decay: 0.98, ..Params::default() };
    let classes = if loss == Loss::Softmax { CLASSES } else { 2 };
    let trainer = Trainer::new(params, loss, density, 1 << 30);
    let mut trained = train_in_memory(trainer, &mut buffer, classes, || true).expect("trains");
    let rows = trained.trainer.finish(false).expect("finishes");
    // The space of the objective: dense features centred and of deviation 1, sparse ones of at most 1, numbers as dense ones.
    let columns: [(f64, f64); DIMS] = std::array::from_fn(|j| {
        let column = x.iter().map(|x| x[j]);
        if sparse { (0.0, column.map(f64::abs).fold(1.0, f64::max)) } else { moments(column) }
    });
    let (mean, unit) = if loss.is_classification() { (0.0, 1.0) } else { moments(y.iter().copied()) };
    let scaled = |x: &[f64; DIMS]| std::array::from_fn(|j| (x[j] - columns[j].0) / columns[j].1);
    let problem =
        Problem { loss, l1, l2, x: x.iter().map(scaled).collect(), y: y.iter().map(|y| (y - mean) / unit).collect() };
    let found = (0..problem.outputs()).map(|k| {
        let w = &rows.weights[k * DIMS..(k + 1) * DIMS];
        let mut own = [0.0; DIMS + 1];
        own[DIMS] = (f64::from(rows.intercepts[k]) - mean) / unit;
        for (j, (mean, deviation)) in columns.into_iter().enumerate() {
            own[j] = f64::from(w[j]) * deviation / unit;
            own[DIMS] += f64::from(w[j]) * mean / unit;
        }
        own
    });
    (problem.objective(&found.collect()), problem.minimum())
}

#[test]
fn every_loss_reaches_its_minimum() {
    for loss in Loss::ALL {
        for sparse in [false, true] {
            for l1 in [0.0, 0.03] {
                let (found, least) = reached(loss, sparse, l1);
                println!("{loss:?}, sparse {sparse}, l1 {l1}: {found}, least {least}");
                assert!(
                    found < least + 1e-4 * (1.0 + least),
                    "{loss:?}, sparse {sparse}, l1 {l1}: {found}, least {least}"
                );
            }
        }
    }
}
