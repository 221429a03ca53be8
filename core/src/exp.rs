//! e^x for x ≤ 0 in single precision, to be inlined into the training loop: a call of the C library there
//! costs as much as the dot product of a short row, and its last bit depends on the library.

/// e^x for x ≤ 0, to 2 units in the last place; 0 below the smallest normal number. x = n·ln 2 + r with
/// |r| ≤ ln 2 / 2, and e^r by a polynomial of degree 6 (the coefficients of Cephes' expf, Moshier 1992)
/// whose parts are evaluated side by side.
#[inline(always)]
pub fn exp_of_negative(x: f32) -> f32 {
    // ln 2 in two parts, the first with few digits so that n times it is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding it leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // At the smallest normal number; a NaN passes.
    let clamped = if x < -87.0 { -87.0 } else { x };
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let r2 = r * r;
    let low = r * 0.166_666_66 + 0.5;
    let middle = r * 8.333_452e-3 + 4.166_579_6e-2;
    let high = r * 1.987_569_1e-4 + 1.398_2e-3;
    let e = 1.0 + (r + r2 * (low + r2 * (middle + r2 * high)));
    // 2^n: n into the exponent. The low bits of `rounded` are n itself.
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1f32.to_bits()));
    if x < -87.0 { 0.0 } else { e * power }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn close_to_the_exponential(x in -87f32..0.0) {
            let exact = f64::from(x).exp();
            let error = (f64::from(exp_of_negative(x)) - exact).abs();
            prop_assert!(error <= 2.5e-7 * exact, "x {x}: {error}");
        }
    }

    #[test]
    fn at_the_ends() {
        assert_eq!((exp_of_negative(0.0), exp_of_negative(-0.0)), (1.0, 1.0));
        assert_eq!((exp_of_negative(-88.0), exp_of_negative(f32::NEG_INFINITY)), (0.0, 0.0));
        assert!(exp_of_negative(f32::NAN).is_nan());
        assert!(exp_of_negative(-87.0) > 0.0);
    }
}
