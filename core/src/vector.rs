//! The inner loops: dot products and scaled additions.
//!
//! Dot products add in sixteen fixed lanes and never fuse multiply and add: the result has the same
//! bits with SSE2, AVX2 and AVX-512 (the compiler may use any width, it may not reorder a sum).

const LANES: usize = 16;

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
pub fn axpy(v: &mut [f32], step: f32, x: &[f32]) {
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

/// w moved towards zero by `by`, not beyond it.
#[inline(always)]
pub fn soft_threshold(w: f32, by: f32) -> f32 {
    w.signum() * (w.abs() - by).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn dot_and_axpy_agree_with_f64(x in prop::collection::vec((-10f32..10.0, -10f32..10.0), 0..300), step in -2f32..2.0) {
            let (a, b): (Vec<f32>, Vec<f32>) = x.iter().copied().unzip();
            let exact: f64 = x.iter().map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            let size: f64 = x.iter().map(|(a, b)| f64::from(a * b).abs()).sum();
            prop_assert!((f64::from(dot(&a, &b)) - exact).abs() <= 1e-5 * size.max(1.0));
            let mut v = a.clone();
            axpy(&mut v, step, &b);
            prop_assert!(v.iter().zip(&x).all(|(v, (a, b))| *v == a + step * b));
        }
    }

    #[test]
    fn soft_threshold_stops_at_zero() {
        assert_eq!((soft_threshold(2.0, 0.5), soft_threshold(-2.0, 0.5), soft_threshold(0.3, 0.5)), (1.5, -1.5, 0.0));
    }
}
