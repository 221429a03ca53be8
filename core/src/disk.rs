//! How fast a disk gives blocks of each size.
//!
//! A read of b bytes at a random place takes t(b): what it costs to get there, and b over the rate of
//! reading on. t is kept as a piecewise linear curve through what was measured; the bandwidth is b / t(b).

use serde::{Deserialize, Serialize};

/// Block sizes that a probe measures, in bytes.
pub const PROBED: [usize; 6] = [8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20];

/// Seconds of reading a block, by its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// (bytes, seconds), in ascending order of both.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// A curve through measured (bytes of a block, bytes per second); `None` without any. A larger block
    /// never takes less time, and is never read at a smaller bandwidth, than a smaller one: what says
    /// otherwise is noise.
    pub fn new(measured: &[(f64, f64)]) -> Option<Self> {
        let sane = |(bytes, bandwidth): &&(f64, f64)| *bytes > 0.0 && *bandwidth > 0.0 && bandwidth.is_finite();
        let mut points: Vec<(f64, f64)> = measured.iter().filter(sane).copied().collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        let mut most = 0f64;
        for (bytes, bandwidth) in &mut points {
            most = most.max(*bandwidth);
            *bandwidth = *bytes / most;
        }
        let mut least = 0f64;
        for (_, seconds) in &mut points {
            least = least.max(*seconds);
            *seconds = least;
        }
        (!points.is_empty()).then_some(Self { points })
    }

    /// Bytes per second in blocks of `bytes`.
    pub fn bandwidth(&self, bytes: f64) -> f64 {
        bytes / self.seconds(bytes)
    }

    fn seconds(&self, bytes: f64) -> f64 {
        let (first, last) = (self.points[0], self.points[self.points.len() - 1]);
        if bytes <= first.0 {
            // Getting there is all that counts.
            return first.1;
        }
        let at = self.points.partition_point(|(b, _)| *b < bytes);
        match self.points.get(at) {
            Some(after) => {
                let before = self.points[at - 1];
                before.1 + (after.1 - before.1) * (bytes - before.0) / (after.0 - before.0)
            }
            None => last.1 * bytes / last.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_goes_through_what_was_measured() {
        let curve = Curve::new(&[(1e6, 50e6), (8e3, 1e6), (10e6, 140e6)]).expect("points");
        assert!((curve.bandwidth(1e6) - 50e6).abs() < 1.0);
        assert!((curve.bandwidth(4e3) - 0.5e6).abs() < 1.0);
        assert!((curve.bandwidth(80e6) - 140e6).abs() < 1.0);
        // 20 ms for 1 MB, 71.4 ms for 10 MB: 48.6 ms for 6 MB.
        assert!((curve.bandwidth(6e6) - 6e6 / (0.02 + (10e6 / 140e6 - 0.02) * 5.0 / 9.0)).abs() < 1.0);
        assert!(Curve::new(&[(0.0, 1.0), (1.0, f64::NAN)]).is_none());
    }

    proptest! {
        #[test]
        fn larger_blocks_take_longer_and_are_no_slower(
            measured in prop::collection::vec((1e3f64..1e8, 1e5f64..1e10), 1..9), sizes in prop::collection::vec(1e3f64..1e8, 2),
        ) {
            let curve = Curve::new(&measured).expect("points");
            let (a, b) = (sizes[0].min(sizes[1]), sizes[0].max(sizes[1]));
            prop_assert!(curve.seconds(a) <= curve.seconds(b) * (1.0 + 1e-9));
            prop_assert!(curve.bandwidth(a) <= curve.bandwidth(b) * (1.0 + 1e-9));
        }
    }
}
