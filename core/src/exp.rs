//! e^x for x ≤ 0 in single precision, to be inlined into the training loop: a call of the C library there
//! costs as much as the dot product of a short row, and its last bit depends on the library.

/// e^x for x ≤ 0 as if x were off by at most one unit in its last place, and 2 more units of the result; 0
/// below the smallest normal number. x·log₂e = n + f with |f| ≤ ½, and 2^f by a polynomial of degree 6 (through the
/// Chebyshev nodes), whose parts are evaluated side by side: in a training step everything waits for the result.
#[inline(always)]
pub fn exp_of_negative(x: f32) -> f32 {
    // Adding it leaves the nearest integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // At the smallest normal number; a NaN passes.
    let clamped = if x < -87.0 { -87.0 } else { x };
    let t = clamped * std::f32::consts::LOG2_E;
    let rounded = t + ROUND;
    let f = t - (rounded - ROUND);
    let f2 = f * f;
    let f4 = f2 * f2;
    let low = (1.0 + f * std::f32::consts::LN_2) + f2 * (0.240_226_5 + f * 0.055_503_57);
    let high = (9.618_083e-3 + f * 1.339_086_3e-3) + f2 * 1.545_316_3e-4;
    // 2^n: n into the exponent. The low bits of `rounded` are n itself.
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(1f32.to_bits()));
    if x < -87.0 { 0.0 } else { (low + f4 * high) * power }
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
            prop_assert!(error <= (2.5e-7 + 1.2e-7 * f64::from(-x)) * exact, "x {x}: {error}");
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
