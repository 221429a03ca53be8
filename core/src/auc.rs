//! The area under the ROC curve in bounded memory: the share of pairs of a positive and a negative tuple
//! in which the positive one has the larger score, ties counting half (Mann–Whitney).
//!
//! Scores are kept as sorted counts by distinct value. When there are more than [`MOST`] distinct ones,
//! neighbours are put together, as few tuples in each as leave half as many: scores that then fall together
//! count as ties. Each holds at most 4 / [`MOST`] of the tuples, wherever the scores lie, which changes the area
//! by about 1e-5 at most.

use crate::{Error, Result};

/// Distinct scores kept: 6 MB.
pub const MOST: usize = 1 << 18;

/// One distinct score: its bits in an order that integers have too, negatives, positives.
type Bin = (u64, u64, u64);

/// The counts so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Auc {
    bins: Vec<Bin>,
    /// New scores, unsorted; the lowest bit of each is its label.
    pending: Vec<u64>,
}

/// Bits of a number in the order of the numbers; −0 is 0.
fn ordered(score: f64) -> u64 {
    let bits = (score + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}

/// Sorted bins with equal ones put together.
fn coalesce(bins: &mut Vec<Bin>) {
    bins.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
            kept.2 += next.2;
        }
        same
    });
}

impl Auc {
    /// Adds a score. An error for NaN, which has no place in an order, and when memory is short.
    pub fn add(&mut self, score: f64, positive: bool) -> Result<()> {
        if score.is_nan() {
            return Err(Error::BadOption { name: "score", value: "NaN".into(), expected: "a number".into() });
        }
        if self.pending.len() == MOST {
            self.flush()?;
        }
        if self.pending.len() == self.pending.capacity() {
            let more = self.pending.len().max(64);
            self.pending.try_reserve_exact(more).map_err(|_| no_memory(more * 8))?;
        }
        self.pending.push(ordered(score) & !1 | u64::from(positive));
        Ok(())
    }

    /// Sorts what is pending into the bins.
    fn flush(&mut self) -> Result<()> {
        self.pending.sort_unstable();
        let more = self.pending.len();
        self.bins.try_reserve(more).map_err(|_| no_memory(more * size_of::<Bin>()))?;
        self.bins.extend(self.pending.drain(..).map(|word| (word >> 1, 1 - (word & 1), word & 1)));
        self.tidy();
        Ok(())
    }

    fn tidy(&mut self) {
        self.bins.sort_unstable_by_key(|bin| bin.0);
        coalesce(&mut self.bins);
        if self.bins.len() > MOST {
            let tuples: u64 = self.bins.iter().fold(0, |sum, bin| sum.saturating_add(bin.1).saturating_add(bin.2));
            // Two neighbours together are more than this, so there are at most MOST / 2 of them.
            let most = tuples.div_ceil(MOST as u64 / 4);
            self.bins.dedup_by(|next, kept| {
                let few = [kept.2, next.1, next.2].into_iter().fold(kept.1, u64::saturating_add) <= most;
                if few {
                    kept.1 += next.1;
                    kept.2 += next.2;
                }
                few
            });
        }
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, mut other: Auc) -> Result<()> {
        self.flush()?;
        other.flush()?;
        self.bins.try_reserve(other.bins.len()).map_err(|_| no_memory(other.bins.len() * size_of::<Bin>()))?;
        self.bins.append(&mut other.bins);
        self.tidy();
        Ok(())
    }

    /// The area; `None` unless there are tuples of both kinds.
    pub fn value(&mut self) -> Result<Option<f64>> {
        self.flush()?;
        let (mut below, mut positives, mut pairs) = (0u64, 0u64, 0f64);
        for (_, negative, positive) in &self.bins {
            pairs += *positive as f64 * (below as f64 + *negative as f64 / 2.0);
            below += negative;
            positives += positive;
        }
        let all = below as f64 * positives as f64;
        Ok((all > 0.0).then(|| pairs / all))
    }

    /// The bytes of the counts.
    pub fn to_bytes(&mut self) -> Result<Vec<u8>> {
        self.flush()?;
        let length = self.bins.len() * 24;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| no_memory(length))?;
        for (key, negative, positive) in &self.bins {
            for word in [key, negative, positive] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        Ok(bytes)
    }

    /// Reads them back; `None` if they are not what [`Auc::to_bytes`] wrote.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let whole = bytes.len().is_multiple_of(24) && bytes.len() / 24 <= MOST;
        let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
        let bins = || bytes.chunks_exact(24).map(|bin| (word(&bin[..8]), word(&bin[8..16]), word(&bin[16..])));
        whole.then(|| Self { bins: bins().collect(), pending: Vec::new() })
    }
}

fn no_memory(bytes: usize) -> Error {
    Error::OutOfMemory { bytes, purpose: "the area under the ROC curve" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(scores: &[(f64, bool)]) -> Option<f64> {
        let of = |kind: bool| scores.iter().filter(move |s| s.1 == kind).map(|s| s.0);
        let pairs = of(true).flat_map(|p| {
            of(false).map(move |n| {
                if p > n {
                    1.0
                } else if p == n {
                    0.5
                } else {
                    0.0
                }
            })
        });
        let (mut sum, mut count) = (0.0, 0u32);
        pairs.for_each(|pair| (sum, count) = (sum + pair, count + 1));
        (count > 0).then(|| sum / f64::from(count))
    }

    proptest! {
        #[test]
        fn it_is_the_share_of_pairs(scores in prop::collection::vec((-3i32..3, any::<bool>(), -1f32..1.0), 0..60), cut in 0usize..60) {
            let scores: Vec<(f64, bool)> = scores.iter().map(|(s, p, x)| (if *s == 0 { f64::from(*x) } else { f64::from(*s) }, *p)).collect();
            let of = |part: &[(f64, bool)]| {
                let mut auc = Auc::default();
                part.iter().for_each(|(s, p)| auc.add(*s, *p).expect("adds"));
                auc
            };
            let (a, b) = scores.split_at(cut.min(scores.len()));
            let mut parts = Auc::from_bytes(&of(a).to_bytes().expect("bytes")).expect("back");
            parts.merge(of(b)).expect("merges");
            let (whole, expected) = (of(&scores).value().expect("value"), naive(&scores));
            prop_assert_eq!(whole.is_some(), expected.is_some());
            if let (Some(whole), Some(expected)) = (whole, expected) {
                prop_assert!((whole - expected).abs() < 1e-12, "{} {}", whole, expected);
                prop_assert_eq!(parts.value().expect("value"), Some(whole));
            }
        }

        #[test]
        fn any_bytes_are_refused_or_harmless(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            if let Some(mut auc) = Auc::from_bytes(&bytes) {
                let _ = auc.to_bytes();
            }
        }
    }

    #[test]
    fn where_scores_lie_does_not_matter() {
        // The same order as scores over ±30 and as their probabilities, most of which are next to 0 or 1.
        let (mut scores, mut probabilities, mut x) = (Auc::default(), Auc::default(), 0.5f64);
        for i in 0..800_000u64 {
            x = (x + 0.618_033_988_749_894_9).fract();
            let (score, positive) = (60.0 * x - 30.0, (i * 7919) % 60 < (60.0 * x) as u64);
            scores.add(score, positive).expect("adds");
            probabilities.add(1.0 / (1.0 + (-score).exp()), positive).expect("adds");
        }
        let (a, b) = (scores.value().expect("value"), probabilities.value().expect("value"));
        assert!(a.zip(b).is_some_and(|(a, b)| (a - b).abs() < 1e-5), "{a:?} {b:?}");
    }

    #[test]
    fn many_scores_stay_in_bounds_and_near() {
        // 2 million distinct scores: positives spread over [0, 1), negatives over [−0.5, 0.5).
        let (mut auc, mut all) = (Auc::default(), Vec::new());
        let (mut x, mut half) = (0.5f64, false);
        for _ in 0..2_000_000 {
            x = (x + 0.618_033_988_749_894_9).fract();
            half = !half;
            let score = if half { x } else { x - 0.5 };
            auc.add(score, half).expect("adds");
            all.push((score, half));
        }
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (mut below, mut pairs) = (0u64, 0u64);
        for (_, positive) in all {
            if positive { pairs += below } else { below += 1 }
        }
        let exact = pairs as f64 / 1e12;
        let value = auc.value().expect("value").expect("both kinds");
        assert!((value - exact).abs() < 1e-5 && (exact - 0.875).abs() < 1e-5, "{value} {exact}");
        assert!(auc.bins.len() <= MOST);
        assert!(auc.add(f64::NAN, true).is_err());
    }
}
