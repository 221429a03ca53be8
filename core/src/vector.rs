//! The inner loops: dot products and scaled additions, with the vector registers of the processor.
//!
//! Everything in a training's loop is generic over the instruction set `S` and inlined into
//! [`dispatch`]. (Left to the compiler, a loop over pieces of rows becomes gathers and scatters where
//! there is AVX-512.) A dot product has a fixed number of partial sums that are added up in a fixed
//! order, and multiply and add are never fused: the result has the same bits on every processor.

use crate::memory::prefetch_at;
use pulp::Simd;

/// Values that are worked on together: two registers of AVX-512, four of AVX2. A dot product has as many partial sums.
pub const GROUP: usize = 32;

/// Runs something with the widest instructions that this processor has.
#[inline]
pub fn dispatch<Op: pulp::WithSimd>(op: Op) -> Op::Output {
    pulp::Arch::new().dispatch(op)
}

/// Partial sums: of whole registers, and of what is left at the end of a row.
#[derive(Clone, Copy)]
struct Sums<S: Simd> {
    /// The first `LANES / F32_LANES` are in use. Indexed by constants only, so that they are registers.
    wide: [S::f32s; GROUP],
    tail: [f32; 8],
}

impl<S: Simd> Sums<S> {
    #[inline(always)]
    fn zero(simd: S) -> Self {
        Self { wide: [simd.splat_f32s(0.0); GROUP], tail: [0.0; 8] }
    }

    /// Adds the products of two pieces of N values, 32 or 16.
    #[inline(always)]
    fn add<const N: usize>(&mut self, simd: S, a: &[f32; N], b: &[f32; N]) {
        let (a, b) = (S::as_simd_f32s(a).0, S::as_simd_f32s(b).0);
        for i in 0..N / S::F32_LANES {
            self.wide[i] = simd.add_f32s(self.wide[i], simd.mul_f32s(a[i], b[i]));
        }
    }

    /// Adds the products of two pieces of 8 values or less.
    #[inline(always)]
    fn add_tail<const N: usize>(&mut self, a: &[f32; N], b: &[f32; N]) {
        let products: [f32; N] = std::array::from_fn(|i| a[i] * b[i]);
        for (sum, product) in self.tail.iter_mut().zip(products) {
            *sum += product;
        }
    }

    /// All of them, pairwise.
    #[inline(always)]
    fn total(self, simd: S) -> f32 {
        let [a, b, c, d, e, f, g, h] = self.tail;
        let tail = ((a + e) + (c + g)) + ((b + f) + (d + h));
        self.wide_total(simd) + tail
    }

    /// Those of whole registers, pairwise.
    #[inline(always)]
    fn wide_total(mut self, simd: S) -> f32 {
        let mut n = GROUP / S::F32_LANES;
        while n > 1 {
            n /= 2;
            for i in 0..n {
                self.wide[i] = simd.add_f32s(self.wide[i], self.wide[i + n]);
            }
        }
        simd.reduce_sum_f32s(self.wide[0])
    }
}

/// A row in pieces of 32, and at most one of 16, 8 and 4, and single values.
struct Pieces<'a> {
    wide: &'a [[f32; GROUP]],
    sixteen: Option<&'a [f32; 16]>,
    eight: Option<&'a [f32; 8]>,
    four: Option<&'a [f32; 4]>,
    rest: &'a [f32],
}

#[inline(always)]
fn piece<const N: usize>(x: &[f32]) -> (Option<&[f32; N]>, &[f32]) {
    x.split_first_chunk::<N>().map_or((None, x), |(piece, rest)| (Some(piece), rest))
}

#[inline(always)]
fn pieces(x: &[f32]) -> Pieces<'_> {
    let (wide, tail) = x.as_chunks::<GROUP>();
    let (sixteen, tail) = piece(tail);
    let (eight, tail) = piece(tail);
    let (four, rest) = piece(tail);
    Pieces { wide, sixteen, eight, four, rest }
}

/// x · y over the shorter of the two.
#[inline(always)]
pub fn dot<S: Simd>(simd: S, x: &[f32], y: &[f32]) -> f32 {
    let n = x.len().min(y.len());
    let (x, y) = (pieces(&x[..n]), pieces(&y[..n]));
    let mut sums = Sums::zero(simd);
    for (x, y) in x.wide.iter().zip(y.wide) {
        sums.add(simd, x, y);
    }
    if let (Some(x), Some(y)) = (x.sixteen, y.sixteen) {
        sums.add(simd, x, y);
    }
    if let (Some(x), Some(y)) = (x.eight, y.eight) {
        sums.add_tail(x, y);
    }
    if let (Some(x), Some(y)) = (x.four, y.four) {
        sums.add_tail(x, y);
    }
    for (x, y) in x.rest.iter().zip(y.rest) {
        sums.add_tail(&[*x], &[*y]);
    }
    sums.total(simd)
}

/// A group of weights, where a line of the cache begins: a register that is stored across two lines cannot be
/// loaded again before both have arrived.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Group(pub [f32; GROUP]);

/// `n` values, as whole groups.
pub fn groups(n: usize) -> usize {
    n.div_ceil(GROUP)
}

/// Which values of the last group of a row belong to it. Groups are read whole, with what lies behind the row.
#[derive(Clone, Copy)]
pub struct Tail<S: Simd>([S::m32s; GROUP]);

impl<S: Simd> Tail<S> {
    /// Of rows of `n` values.
    #[inline(always)]
    pub fn new(simd: S, n: usize) -> Self {
        let last = n - groups(n).saturating_sub(1) * GROUP;
        let numbers: [f32; GROUP] = std::array::from_fn(|i| i as f32);
        let end = simd.splat_f32s(last as f32);
        let mut masks = [simd.less_than_f32s(end, end); GROUP];
        for (mask, numbers) in masks.iter_mut().zip(S::as_simd_f32s(&numbers).0) {
            *mask = simd.less_than_f32s(*numbers, end);
        }
        Self(masks)
    }

    /// Register `i` of the last group, with zeros in place of what does not belong to the row.
    #[inline(always)]
    fn keep(&self, simd: S, i: usize, x: S::f32s) -> S::f32s {
        simd.select_f32s(self.0[i], x, simd.splat_f32s(0.0))
    }
}

/// What [`step_and_dots`] works on: rows of as many groups.
pub struct StepRows<'a, const AHEAD: usize> {
    /// What is added to the weights.
    pub x: &'a [[f32; GROUP]],
    /// The rows between x and z.
    pub between: [&'a [[f32; GROUP]]; AHEAD],
    /// The row whose products are taken.
    pub z: &'a [[f32; GROUP]],
}

/// v += step·x; gives v · z, and the products of z and the rows between x and z. While at it asks for the row that begins
/// at number `soon` of `all` to be brought into the cache, a line for each line of z. What is behind v is zero and
/// stays so.
#[inline(always)]
pub fn step_and_dots<S: Simd, const AHEAD: usize>(
    simd: S,
    tail: &Tail<S>,
    v: &mut [Group],
    step: f32,
    StepRows { x, between, z }: StepRows<'_, AHEAD>,
    (all, soon): (&[f32], usize),
) -> (f32, [f32; AHEAD]) {
    /// Values in a line of the cache.
    const LINE: usize = 16;
    let steps = simd.splat_f32s(step);
    // Variables of their own, not an array: they are to be registers.
    let (mut a, mut b, mut c) = (Sums::zero(simd), Sums::zero(simd), Sums::zero(simd));
    let (near, far) = (between.first().unwrap_or(&x), between.last().unwrap_or(&x));
    let last = z.len().saturating_sub(1);
    for (i, ((((v, x), y1), y2), z)) in v.iter_mut().zip(x).zip(*near).zip(*far).zip(z).enumerate() {
        prefetch_at(all, soon + i * GROUP);
        prefetch_at(all, soon + i * GROUP + LINE);
        let (v, x, z) = (S::as_mut_simd_f32s(&mut v.0).0, S::as_simd_f32s(x).0, S::as_simd_f32s(z).0);
        let (y1, y2) = (S::as_simd_f32s(y1).0, S::as_simd_f32s(y2).0);
        for j in 0..GROUP / S::F32_LANES {
            let own = |x: S::f32s| if i < last { x } else { tail.keep(simd, j, x) };
            let z = own(z[j]);
            v[j] = simd.add_f32s(v[j], simd.mul_f32s(steps, own(x[j])));
            a.wide[j] = simd.add_f32s(a.wide[j], simd.mul_f32s(v[j], z));
            if AHEAD > 0 {
                b.wide[j] = simd.add_f32s(b.wide[j], simd.mul_f32s(own(y1[j]), z));
            }
            if AHEAD > 1 {
                c.wide[j] = simd.add_f32s(c.wide[j], simd.mul_f32s(own(y2[j]), z));
            }
        }
    }
    // A row rarely starts where a line does: its last value may lie one line farther.
    prefetch_at(all, soon + z.len() * GROUP);
    let products = [b.wide_total(simd), c.wide_total(simd)];
    (a.wide_total(simd), std::array::from_fn(|i| products[i]))
}

/// v += step·x over the shorter of the two.
#[inline(always)]
pub fn axpy<S: Simd>(simd: S, v: &mut [f32], step: f32, x: &[f32]) {
    let n = x.len().min(v.len());
    let steps = simd.splat_f32s(step);
    let (wide, tail) = v[..n].split_at_mut(n / 16 * 16);
    let (wide_x, tail_x) = x[..n].split_at(wide.len());
    for (v, x) in S::as_mut_simd_f32s(wide).0.iter_mut().zip(S::as_simd_f32s(wide_x).0) {
        *v = simd.add_f32s(*v, simd.mul_f32s(steps, *x));
    }
    let x = pieces(tail_x);
    let (eight, tail) = tail.split_at_mut(x.eight.map_or(0, |x| x.len()));
    if let (Some(v), Some(x)) = (eight.first_chunk_mut::<8>(), x.eight) {
        add_scaled(v, step, x);
    }
    let (four, rest) = tail.split_at_mut(x.four.map_or(0, |x| x.len()));
    if let (Some(v), Some(x)) = (four.first_chunk_mut::<4>(), x.four) {
        add_scaled(v, step, x);
    }
    for (v, x) in rest.iter_mut().zip(x.rest) {
        *v += step * x;
    }
}

/// v += step·x, element by element.
#[inline(always)]
fn add_scaled<const N: usize>(v: &mut [f32; N], step: f32, x: &[f32; N]) {
    // All is read before anything is written: one load, one store.
    let (old, x) = (*v, *x);
    *v = std::array::from_fn(|i| old[i] + step * x[i]);
}

/// x · y with the widest instructions there are, for callers outside of a training's loop.
pub fn wide_dot(x: &[f32], y: &[f32]) -> f32 {
    struct Dot<'a>(&'a [f32], &'a [f32]);
    impl pulp::WithSimd for Dot<'_> {
        type Output = f32;
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            dot(simd, self.0, self.1)
        }
    }
    dispatch(Dot(x, y))
}

/// Σ v[k]·x; an index beyond the vector has weight 0.
#[inline(always)]
pub fn sparse_dot(v: &[f32], k: &[u32], x: &[f32]) -> f32 {
    // Four sums, so that an addition need not wait for the one before it.
    let ((k4, k), (x4, x)) = (k.as_chunks::<4>(), x.as_chunks::<4>());
    let mut sums = [0f32; 4];
    for (k, x) in k4.iter().zip(x4) {
        for i in 0..4 {
            if let Some(v) = v.get(k[i] as usize) {
                sums[i] += v * x[i];
            }
        }
    }
    for (i, (k, x)) in k.iter().zip(x).enumerate() {
        if let Some(v) = v.get(*k as usize) {
            sums[i] += v * x;
        }
    }
    (sums[0] + sums[2]) + (sums[1] + sums[3])
}

/// w moved towards zero by `by`, not beyond it.
#[inline(always)]
pub fn soft_threshold(w: f32, by: f32) -> f32 {
    w.signum() * (w.abs() - by).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use pulp::Scalar;

    /// Everything here with one instruction set.
    struct All<'a>(&'a [f32], &'a [f32], f32);

    impl pulp::WithSimd for All<'_> {
        type Output = (Vec<f32>, f32, [f32; 3]);
        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
            let All(x, y, step) = self;
            let mut v = x.to_vec();
            axpy(simd, &mut v, step, y);
            // What is behind a row is never to be seen.
            let whole = |x: &[f32], behind: f32| {
                let mut groups = vec![[behind; GROUP]; groups(x.len())];
                groups.as_flattened_mut()[..x.len()].copy_from_slice(x);
                groups
            };
            let tail = Tail::new(simd, x.len());
            let mut wide: Vec<Group> = whole(x, 0.0).into_iter().map(Group).collect();
            let (x_whole, y_whole) = (whole(x, f32::NAN), whole(y, f32::NAN));
            let mut first = wide.clone();
            let (alone, []) = step_and_dots(
                simd,
                &tail,
                &mut first,
                step,
                StepRows { x: &y_whole, between: [], z: &y_whole },
                (y, 0),
            );
            let (product, [xy, yy]) = step_and_dots(
                simd,
                &tail,
                &mut wide,
                step,
                StepRows { x: &y_whole, between: [&x_whole, &y_whole], z: &y_whole },
                (y, 0),
            );
            assert!(alone.to_bits() == product.to_bits());
            let products = [product, xy, yy];
            let wide: Vec<f32> = wide.iter().flat_map(|group| group.0).collect();
            let (wide, behind) = wide.split_at(x.len());
            assert!(wide == v && behind.iter().all(|value| *value == 0.0));
            (v, dot(simd, x, y), products)
        }
    }

    proptest! {
        #[test]
        fn dot_and_axpy_agree_with_f64(x in prop::collection::vec((-10f32..10.0, -10f32..10.0), 0..300), step in -2f32..2.0) {
            let (a, b): (Vec<f32>, Vec<f32>) = x.iter().copied().unzip();
            let exact: f64 = x.iter().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let size: f64 = x.iter().map(|(a, b)| f64::from(a * b).abs()).sum();
            let (v, product, three) = dispatch(All(&a, &b, step));
            prop_assert!((f64::from(product) - exact).abs() <= 1e-5 * size.max(1.0));
            prop_assert!(v.iter().zip(&x).all(|(v, (a, b))| *v == a + step * b));
            let near = |a: f32, b: f32| (a - b).abs() <= 1e-4 * (size as f32).max(1.0);
            prop_assert!(near(three[0], wide_dot(&v, &b)) && near(three[1], product) && near(three[2], wide_dot(&b, &b)));
        }

        #[test]
        fn every_instruction_set_gives_the_same_bits(x in prop::collection::vec((-10f32..10.0, -10f32..10.0), 0..300), step in -2f32..2.0) {
            use pulp::{Simd, WithSimd};
            let (a, b): (Vec<f32>, Vec<f32>) = x.iter().copied().unzip();
            let plain = All(&a, &b, step).with_simd(Scalar);
            #[cfg(target_arch = "x86_64")]
            {
                if let Some(simd) = pulp::x86::V3::try_new() {
                    prop_assert_eq!(&plain, &Simd::vectorize(simd, All(&a, &b, step)));
                }
                if let Some(simd) = pulp::x86::V4::try_new() {
                    prop_assert_eq!(&plain, &Simd::vectorize(simd, All(&a, &b, step)));
                }
            }
        }
    }

    #[test]
    fn soft_threshold_stops_at_zero() {
        assert_eq!((soft_threshold(2.0, 0.5), soft_threshold(-2.0, 0.5), soft_threshold(0.3, 0.5)), (1.5, -1.5, 0.0));
    }
}
