//! The inner loop of most trainings: dense tuples, one score, plain SGD, batch size 1.
//!
//! A step cannot begin before the one before it has ended: dot product, sum of lanes, loss, update, and the next dot
//! product waits for the updated weights. At few features this chain, not memory or arithmetic, takes the time. It is
//! cut by linearity: a tuple's score is taken with the weights one or two steps *before* its turn, and what those
//! steps add is added to it, (w + step·x)·x′ = w·x′ + step·(x·x′). The result is the same but for rounding.
//!
//! Each step goes over the weights once: they are changed, and multiplied with the row that comes into view, while they
//! are in registers. For long rows nothing is taken ahead; there the products cost more than the chain.
//!
//! The row that will be needed next is brought into the cache line by line while another is worked on:
//! asking for a whole row at once would exceed what the processor keeps track of.

use crate::loss::{Objective, Point};
use crate::memory::prefetch_at;
use crate::tuples::Visits;
use crate::vector::{GROUP, Group, StepRows, Tail, groups, step_and_dots};
use pulp::Simd;

/// Bytes of tuples to be on their way into the cache.
const BYTES_AHEAD: usize = 16 << 10;

/// Longest rows of which the products of two are taken ahead.
const TWO_AHEAD: usize = 64;
/// Longest rows of which the products of one are taken ahead. Beyond, the chain of a step is short beside its work.
const ONE_AHEAD: usize = 256;

/// Tuples to look ahead for rows of this many values.
pub fn distance(values: usize) -> usize {
    (BYTES_AHEAD / (values * 4).max(1)).clamp(4, 32)
}

/// Weights of one score: w = scale·v, and the intercept.
#[derive(Debug)]
pub struct Line<'a> {
    /// In units of `scale`, with zeros behind them.
    pub v: &'a mut [Group],
    /// w = scale·v.
    pub scale: &'a mut f32,
    /// The intercept.
    pub bias: &'a mut f32,
}

/// What is constant during a run of steps.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// η.
    pub rate: f32,
    /// What a step leaves of the weights: 1 − η·λ₂.
    pub shrink: f32,
    /// Whether the intercept is trained.
    pub intercept: bool,
}

/// Sums up losses. A trait, not a closure: closures are not inlined into code with wide instructions.
pub trait Tally {
    /// Notes the loss of the tuple in row `row`; gives the factor of its slope.
    fn note(&mut self, row: usize, y: f32, point: Point) -> f32;
}

impl Line<'_> {
    /// One step for each tuple in `rows` of `order`, in this order.
    #[inline(always)]
    pub fn run<S: Simd, L: Objective, T: Tally>(
        self,
        simd: S,
        loss: L,
        step: Step,
        visits: Visits<'_>,
        rows: std::ops::Range<usize>,
        tally: &mut T,
    ) {
        let (dims, _) = visits.tuples.dense_values();
        if dims <= TWO_AHEAD {
            self.run_ahead::<S, L, T, 2>(simd, loss, step, visits, rows, tally);
        } else if dims <= ONE_AHEAD {
            self.run_ahead::<S, L, T, 1>(simd, loss, step, visits, rows, tally);
        } else {
            self.run_ahead::<S, L, T, 0>(simd, loss, step, visits, rows, tally);
        }
    }

    /// The same, with the products of `AHEAD` (0 to 2) tuples taken before it is their turn.
    #[inline(always)]
    fn run_ahead<S: Simd, L: Objective, T: Tally, const AHEAD: usize>(
        self,
        simd: S,
        loss: L,
        step: Step,
        Visits { tuples, order }: Visits<'_>,
        rows: std::ops::Range<usize>,
        tally: &mut T,
    ) {
        let Some(first) = order.get(rows.start) else { return };
        let ((dims, all), labels) = (tuples.dense_values(), tuples.labels());
        let groups = groups(dims);
        let tail = Tail::new(simd, dims);
        let values = |row: u32| all[row as usize * dims..][..groups * GROUP].as_chunks::<GROUP>().0;
        let far = distance(dims);
        // Past the end any row will do: its score is not used.
        let row_at = |at: usize| if at < order.len() { order[at] } else { *first };
        let v = &mut self.v[..groups];
        let (mut scale, mut bias) = (*self.scale, *self.bias);
        let bias_rate = if step.intercept { step.rate } else { 0.0 };
        // What one step and two steps leave of the weights.
        let (shrink, shrink2) = (step.shrink, step.shrink * step.shrink);

        // Tuples i + 1 and i + 2: their scores without the steps from i on.
        let (mut known, mut known2) = (0f32, 0f32);
        // x_i · x_{i+1}, x_i · x_{i+2}, x_{i+1} · x_{i+2}.
        let (mut gram01, mut gram02, mut gram12) = (0f32, 0f32, 0f32);
        let mut x = values(*first);
        let mut x1 = values(row_at(rows.start + 1));
        let mut x2 = values(row_at(rows.start + 2));
        let nothing = (all, 0);
        let mut products = |z, y| {
            let (dot, [gram]) = step_and_dots(simd, &tail, v, 0.0, StepRows { x, between: [y], z }, nothing);
            (dot, gram)
        };
        let mut score = scale * products(x, x).0 + bias;
        if AHEAD > 0 {
            let (dot, gram) = products(x1, x);
            (known, gram01) = (shrink * scale * dot + bias, gram);
        }
        if AHEAD > 1 {
            let (dot, gram) = products(x2, x);
            (known2, gram02) = (shrink2 * scale * dot + bias, gram);
            gram12 = products(x2, x1).1;
        }
        let mut turn = loss.turn(labels[*first as usize]);
        score *= turn;
        for at in rows {
            let row = order[at] as usize;
            if at + 2 * far < order.len() {
                prefetch_at(labels, order[at + 2 * far] as usize);
            }
            let soon = row_at(at + far) as usize * dims;
            let z = values(row_at(at + 1 + AHEAD));
            let turn_next = loss.turn(labels[row_at(at + 1) as usize]);
            let per_slope = -(step.rate * shrink) * gram01 - bias_rate;
            let per_slope2 = -(step.rate * shrink2) * gram02 - bias_rate;

            let y = labels[row];
            let (point, slope) = loss.turned(y, score);
            let turned_slope = slope * tally.note(row, y, point);
            // Only this waits for the slope, with its signs arranged so that nothing is between slope and slope.
            score = turn_next * known + turned_slope * (turn * turn_next * per_slope);
            let slope = turn * turned_slope;
            known = known2 + slope * per_slope2;

            let last = -(step.rate / scale) * slope;
            bias -= bias_rate * slope;
            scale *= shrink;
            let soon = (all, soon);
            if AHEAD > 1 {
                let rows = StepRows { x, between: [x1, x2], z };
                let (dot, [gram1, gram2]) = step_and_dots(simd, &tail, v, last, rows, soon);
                known2 = shrink2 * scale * dot + bias;
                (gram01, gram02, gram12) = (gram12, gram1, gram2);
                (x, x1, x2) = (x1, x2, z);
            } else if AHEAD > 0 {
                let (dot, [gram]) = step_and_dots(simd, &tail, v, last, StepRows { x, between: [x1], z }, soon);
                known = shrink * scale * dot + bias;
                gram01 = gram;
                (x, x1) = (x1, z);
            } else {
                let (dot, []) = step_and_dots(simd, &tail, v, last, StepRows { x, between: [], z }, soon);
                score = turn_next * (scale * dot + bias);
                x = z;
            }
            turn = turn_next;
        }
        (*self.scale, *self.bias) = (scale, bias);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::{Hinge, LogLoss, SquaredError, sigmoid};
    use crate::tuples::{Density, Features, TupleBuffer};
    use crate::vector::dispatch;
    use proptest::prelude::*;

    /// Tuples count by their row.
    struct ByRow;

    fn weight(row: usize) -> f32 {
        [1.0, 0.0, 2.5][row % 3]
    }

    impl Tally for ByRow {
        fn note(&mut self, row: usize, _: f32, _: Point) -> f32 {
            weight(row)
        }
    }

    struct All<'a, L>(L, Step, Visits<'a>, &'a mut Vec<Group>, &'a mut f32, &'a mut f32);

    impl<L: Objective> pulp::WithSimd for All<'_, L> {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let All(loss, step, visits, v, scale, bias) = self;
            // In two runs: none may lose what the other has begun.
            let half = visits.order.len() / 2;
            for rows in [0..half, half..visits.order.len()] {
                Line { v, scale, bias }.run(simd, loss, step, visits, rows, &mut ByRow);
            }
        }
    }

    fn check<L: Objective>(
        loss: L,
        slope: impl Fn(f64, f64) -> f64,
        kink: Option<f64>,
        dims: usize,
        tuples: usize,
        seed: u32,
    ) -> Result<(), TestCaseError> {
        let number = |i: usize| ((i as u32 ^ seed).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 24) as f32 - 0.5;
        let mut buffer = TupleBuffer::new(Density::Dense(dims), usize::MAX);
        for row in 0..tuples {
            let x: Vec<f32> = (0..dims).map(|j| number(row * dims + j) * 4.0 / (dims as f32).sqrt()).collect();
            buffer.push(if number(row + 77_777) > 0.0 { 1.0 } else { -1.0 }, Features::Dense(&x)).expect("fits");
        }
        buffer.arrange(true, i64::from(seed), 0, 0).expect("memory");
        let step = Step { rate: 0.3, shrink: 0.99, intercept: seed.is_multiple_of(2) };
        let (mut v, mut scale, mut bias) = (vec![Group([0.0; GROUP]); groups(dims)], 1.0, 0.0);
        dispatch(All(loss, step, buffer.visits(), &mut v, &mut scale, &mut bias));

        // The same, as it is written in books.
        let (mut w, mut b) = (vec![0f64; dims], 0f64);
        for row in buffer.order() {
            let row = *row as usize;
            let Features::Dense(x) = buffer.features(row) else { unreachable!("dense") };
            let score: f64 = x.iter().zip(&w).map(|(x, w)| f64::from(*x) * w).sum::<f64>() + b;
            // Where the slope jumps, rounding decides.
            let margin = f64::from(buffer.label(row)) * score;
            prop_assume!(kink.is_none_or(|kink| (margin - kink).abs() > 1e-5));
            let slope = 0.3 * slope(f64::from(buffer.label(row)), score) * f64::from(weight(row));
            w.iter_mut().zip(x).for_each(|(w, x)| *w = 0.99 * (*w - slope * f64::from(*x)));
            if step.intercept {
                b -= slope;
            }
        }
        let flat = v.iter().flat_map(|group| group.0);
        for (v, w) in flat.zip(w.iter().copied().chain(std::iter::repeat(0.0))) {
            let found = f64::from(v * scale);
            prop_assert!((found - w).abs() < 1e-4, "{dims} features: {found} in place of {w}");
        }
        prop_assert!((f64::from(bias) - b).abs() < 1e-4);
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn steps_in_progress_are_steps_one_by_one(
            dims in prop::sample::select(vec![1usize, 2, 18, 31, 32, 33, 64, 65, 90, 256, 257, 300]),
            tuples in 1usize..80,
            seed: u32,
        ) {
            check(LogLoss, |y, p| -y * sigmoid(-y * p), None, dims, tuples, seed)?;
            check(SquaredError, |y, p| p - y, None, dims, tuples, seed)?;
            check(Hinge, |y, p| if y * p < 1.0 { -y } else { 0.0 }, Some(1.0), dims, tuples, seed)?;
        }
    }
}
