//! The inner loop of most trainings: dense tuples, one score, plain SGD, batch size 1.
//!
//! A step cannot begin before the one before it has ended: dot product, sum of lanes, loss, division,
//! update, and the next dot product waits for the updated weights. At few features this chain, not
//! memory or arithmetic, takes the time. It is cut by linearity: the next tuple's score is taken with
//! the weights *before* this step, and what the step adds is added to it,
//! (w + step·x)·x′ = w·x′ + step·(x·x′), so two steps are always in progress. The result is the same but
//! for rounding.
//!
//! The row that will be needed next is brought into the cache line by line while another is worked on:
//! asking for a whole row at once would exceed what the processor keeps track of.

use crate::loss::{Objective, Point};
use crate::tuples::Visits;
use crate::vector::{padded_axpy, padded_dots};
use pulp::Simd;

/// Bytes of tuples to be on their way into the cache.
const BYTES_AHEAD: usize = 24 << 10;

/// Longest rows whose next score is taken before the step. Beyond, the chain of a step is short beside its
/// work, and weights and two rows at once do not stay in the first cache.
const MOST_AHEAD: usize = 2048;

/// Tuples to look ahead for rows of this many values.
pub fn distance(values: usize) -> usize {
    (BYTES_AHEAD / (values * 4).max(1)).clamp(4, 16)
}

/// Weights of one score: w = scale·v, and the intercept.
#[derive(Debug)]
pub struct Line<'a> {
    /// In units of `scale`, with zeros behind them up to [`crate::vector::padded`].
    pub v: &'a mut [f32],
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
        Visits { tuples, order }: Visits<'_>,
        rows: std::ops::Range<usize>,
        tally: &mut T,
    ) {
        let Some(first) = order.get(rows.start) else { return };
        let Self { v, scale: scale_at, bias: bias_at } = self;
        let (mut scale, mut bias) = (*scale_at, *bias_at);
        let (dims, all) = tuples.dense_values();
        let values = |row: u32| &all[row as usize * dims..][..dims];
        let mut next = values(*first);
        let far = distance(dims);
        let bias_rate = if step.intercept { step.rate } else { 0.0 };
        let mut score = [scale * padded_dots(simd, v, next, next, next).0 + bias];
        for at in rows {
            let row = order[at] as usize;
            let x = next;
            let shrunk = scale * step.shrink;
            // The score of the next tuple is `before` + slope · `per_slope`: only this waits for the slope.
            let (mut before, mut per_slope) = (0f32, 0f32);
            if let Some(farther) = order.get(at + 2 * far) {
                tuples.prefetch_place(*farther as usize);
            }
            let soon = order.get(at + far).map_or(x, |number| values(*number));
            if let Some(number) = order.get(at + 1) {
                next = values(*number);
                if dims <= MOST_AHEAD {
                    let (dot, gram) = padded_dots(simd, v, x, next, soon);
                    before = shrunk * dot + bias;
                    per_slope = -(step.rate * step.shrink) * gram - bias_rate;
                }
            }
            let y = tuples.label(row);
            let point = loss.eval(y, &mut score);
            let slope = score[0] * tally.note(row, y, point);
            let last = -(step.rate / scale) * slope;
            if last != 0.0 {
                padded_axpy(simd, v, last, x);
            }
            bias -= bias_rate * slope;
            scale = shrunk;
            score = if dims <= MOST_AHEAD {
                [before + slope * per_slope]
            } else {
                [scale * padded_dots(simd, v, next, next, soon).0 + bias]
            };
        }
        *scale_at = scale;
        *bias_at = bias;
    }
}
