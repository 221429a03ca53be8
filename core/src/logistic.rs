//! The slope of the logistic loss in single precision, for the training loop: the exponential and the division
//! of the closed form, one after the other, are most of what a step of few features waits for.

use crate::exp::exp_of_negative;

/// Nodes of the table in a unit.
const PER_UNIT: usize = 16;
/// Nodes in all: from −32 to 32, the negative ones last.
const NODES: usize = 1024;
/// Beyond this the closed form is used, which keeps the relative precision of what is nearly 0.
const FAR: f32 = 24.0;
/// Adding it rounds to a multiple of 1/16, whose number is then in the low bits: single precision has steps of 1/16
/// between 2¹⁹ and 2²⁰.
const ROUND: f32 = 786_432.0;

/// Taylor polynomials of 1 / (1 + e^m) around the multiples of 1/16: the coefficients of 1, d, d² and d³, a table each.
/// At most 1/32 away, they are off by less than 4e-8 of the value.
static CUBICS: [[f32; NODES]; 4] = cubics();

const fn cubics() -> [[f32; NODES]; 4] {
    let mut all = [[0.0; NODES]; 4];
    // e^(1/16), by its series.
    let mut ratio = 1.0f64;
    let mut i = 20;
    while i > 0 {
        ratio = 1.0 + ratio / (PER_UNIT as f64 * i as f64);
        i -= 1;
    }
    let mut power = 1.0f64;
    let mut node = 0;
    while node < NODES / 2 {
        // q = 1/(1 + e^m); at −m it is 1 − q.
        let (q, p) = (1.0 / (1.0 + power), power / (1.0 + power));
        put_cubic(&mut all, node, q, p);
        if node > 0 {
            put_cubic(&mut all, NODES - node, p, q);
        }
        power *= ratio;
        node += 1;
    }
    all
}

/// The polynomial where the function is q = 1 − p.
const fn put_cubic(all: &mut [[f32; NODES]; 4], node: usize, q: f64, p: f64) {
    let slope = -q * p;
    all[0][node] = q as f32;
    all[1][node] = slope as f32;
    all[2][node] = (slope * (q - p) / 2.0) as f32;
    all[3][node] = (slope * (1.0 - 6.0 * q * p) / 6.0) as f32;
}

/// 1 / (1 + e^m), to 2.5e-7 of it.
#[inline(always)]
pub fn other_side(m: f32) -> f32 {
    if m.abs() >= FAR || m.is_nan() {
        return far(m);
    }
    let rounded = m + ROUND;
    let node = rounded.to_bits() as usize % NODES;
    let [a, b, c, d] = [CUBICS[0][node], CUBICS[1][node], CUBICS[2][node], CUBICS[3][node]];
    let by = m - (rounded - ROUND);
    (a + b * by) + by * by * (c + d * by)
}

#[cold]
#[inline(never)]
fn far(m: f32) -> f32 {
    let e = exp_of_negative(-m.abs());
    if m > 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn close_to_the_closed_form(m in -80f32..80.0) {
            let exact = 1.0 / (1.0 + f64::from(m).exp());
            // Beyond the table as close as the exponential is.
            let bound = if m.abs() < FAR { 2.5e-7 } else { 3e-7 + 1.2e-7 * f64::from(m.abs()) };
            let error = (f64::from(other_side(m)) - exact).abs();
            prop_assert!(error <= bound * exact, "{m}: {error:e} of {exact:e}");
        }
    }

    #[test]
    fn at_the_nodes_the_edges_and_the_ends() {
        assert_eq!((other_side(0.0), other_side(-0.0)), (0.5, 0.5));
        for m in [FAR, FAR.next_down(), FAR.next_up(), 1.0 / 32.0, 3.0 / 32.0, 15.96875, 1.0, 0.0625] {
            for m in [m, -m] {
                let exact = 1.0 / (1.0 + f64::from(m).exp());
                assert!((f64::from(other_side(m)) - exact).abs() <= 1e-6 * exact, "{m}");
            }
        }
        assert_eq!((other_side(f32::INFINITY), other_side(f32::NEG_INFINITY)), (0.0, 1.0));
        assert!(other_side(f32::NAN).is_nan());
    }
}
