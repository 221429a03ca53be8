//! How clustered a table is: what `shuffle => 'auto'` decides by.
//!
//! CorgiPile's analysis (SIGMOD 2022, §4) has one number for it, the cluster factor h_D between 1 and
//! the tuples of a block: how many times larger the variance of the blocks' mean gradients is than it
//! would be if tuples lay in random order. A linear model's gradient is a slope times the features, so
//! what is taken here is the same ratio for the target and for the features themselves, from a few
//! tuples of a sample of pages: the variance of the pages' means times tuples a page, over the variance
//! of the tuples.

use crate::params::Shuffle;
use crate::permute::{Stream, below, generator, mix};
use crate::tuples::{Features, TupleBuffer};

/// Pages that are looked at, and tuples of each.
pub const SAMPLE_PAGES: u32 = 128;
/// See [`SAMPLE_PAGES`].
pub const SAMPLE_ROWS: usize = 32;
/// Numbers that stand for the features; more features are sampled (dense) or hashed (sparse).
const FEATURES: usize = 32;
/// Numbers that stand for the classes of softmax.
const CLASSES: usize = 8;
/// Standard deviations above 1, as in random order, from which a table counts as clustered so that
/// blocks, and so that blocks and tuples must be shuffled.
const BLOCKS: f64 = 5.0;
const TUPLES: f64 = 10.0;

/// The pages to look at: a random sample in ascending order.
pub fn sample_pages(seed: i64, pages: u32) -> Vec<u32> {
    if pages <= SAMPLE_PAGES {
        return (0..pages).collect();
    }
    // One from each of as many equal parts.
    let mut rng = generator(seed, Stream::Sample, 0, 0);
    (0..SAMPLE_PAGES)
        .map(|i| {
            let part = |i: u32| (u64::from(pages) * u64::from(i) / u64::from(SAMPLE_PAGES)) as u32;
            let (from, to) = (part(i), part(i + 1));
            from + below(&mut rng, (to - from).max(1))
        })
        .collect()
}

/// One number of every tuple, summed up.
#[derive(Debug, Clone, Copy, Default)]
struct Component {
    first: f64,
    differing: u64,
    sum: f64,
    squares: f64,
    page_sum: f64,
    /// Σ over pages of sum²/n.
    between: f64,
}

/// The sums over what was looked at.
#[derive(Debug)]
pub struct Clustering {
    target: Vec<Component>,
    features: Vec<Component>,
    rows: u64,
    pages: u64,
}

/// What was found, and what to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Verdict {
    /// The cluster factor, 1 in random order; `None` if it could not be measured.
    pub factor: Option<f64>,
    /// The strategy for it.
    pub shuffle: Shuffle,
}

impl Clustering {
    /// Nothing looked at yet. `softmax`: labels are numbers of classes.
    pub fn new(softmax: bool) -> Self {
        let target = vec![Component::default(); if softmax { CLASSES } else { 1 }];
        Self { target, features: vec![Component::default(); FEATURES], rows: 0, pages: 0 }
    }

    /// Adds the tuples of a page.
    pub fn add_page(&mut self, tuples: &TupleBuffer) {
        let rows = tuples.len().min(SAMPLE_ROWS);
        if rows == 0 {
            return;
        }
        let many = self.target.len() > 1;
        let mut numbers = [0f64; FEATURES];
        for row in 0..rows {
            let label = f64::from(tuples.label(row));
            for (i, component) in self.target.iter_mut().enumerate() {
                // A class is +1 or −1 in each, by its hash.
                let sign = if mix(i as u64, label.to_bits()) & 1 == 0 { 1.0 } else { -1.0 };
                component.add(if many { sign } else { label }, self.rows == 0);
            }
            numbers.fill(0.0);
            match tuples.features(row) {
                Features::Dense(x) if x.len() <= FEATURES => {
                    numbers.iter_mut().zip(x).for_each(|(number, x)| *number = f64::from(*x));
                }
                Features::Dense(x) => {
                    for (i, number) in numbers.iter_mut().enumerate() {
                        *number = f64::from(x[i * x.len() / FEATURES]);
                    }
                }
                Features::Sparse(k, x) => {
                    for (k, x) in k.iter().zip(x) {
                        let hash = mix(0, u64::from(*k));
                        let sign = if hash & 1 == 0 { 1.0 } else { -1.0 };
                        numbers[(hash >> 1) as usize % FEATURES] += sign * f64::from(*x);
                    }
                }
            }
            for (component, number) in self.features.iter_mut().zip(&numbers) {
                component.add(*number, self.rows == 0);
            }
            self.rows += 1;
        }
        for component in self.target.iter_mut().chain(&mut self.features) {
            component.between += component.page_sum.powi(2) / rows as f64;
            component.page_sum = 0.0;
        }
        self.pages += 1;
    }

    /// What to do about it.
    pub fn verdict(&self) -> Verdict {
        if self.pages < 2 || self.rows < 2 * self.pages {
            return Verdict { factor: None, shuffle: Shuffle::Corgipile };
        }
        let factors = |components: &[Component]| -> Vec<(f64, bool)> {
            components
                .iter()
                .filter_map(|c| Some((c.factor(self.pages, self.rows)?, c.differing * 8 >= self.rows)))
                .collect()
        };
        let mean = |factors: &[(f64, bool)]| factors.iter().map(|(f, _)| f).sum::<f64>() / factors.len().max(1) as f64;
        let (target, features) = (factors(&self.target), factors(&self.features));
        // All targets the same: those that differ lie together somewhere else.
        let of_target = if target.is_empty() { self.rows as f64 / self.pages as f64 } else { mean(&target) };
        // One feature may be what the table is ordered by; of values that are rare little can be said.
        let largest = features.iter().filter(|(_, common)| *common).map(|(f, _)| *f).fold(0.0, f64::max);
        let factor = of_target.max(mean(&features)).max(largest).max(1.0);
        let deviation = (2.0 / (self.pages - 1) as f64).sqrt();
        let shuffle = if factor < 1.0 + BLOCKS * deviation {
            Shuffle::None
        } else if factor < 1.0 + TUPLES * deviation {
            Shuffle::BlockOnly
        } else {
            Shuffle::Corgipile
        };
        Verdict { factor: Some(factor), shuffle }
    }
}

impl Component {
    fn add(&mut self, x: f64, first: bool) {
        if first {
            self.first = x;
        }
        // Distances from the first value: large means do not drown the variance.
        let x = x - self.first;
        self.differing += u64::from(x != 0.0);
        self.sum += x;
        self.squares += x * x;
        self.page_sum += x;
    }

    /// Mean square between pages over that of all tuples; `None` for a constant.
    fn factor(&self, pages: u64, rows: u64) -> Option<f64> {
        let centre = self.sum.powi(2) / rows as f64;
        let all = (self.squares - centre) / (rows - 1) as f64;
        let between = (self.between - centre).max(0.0) / (pages - 1) as f64;
        (self.differing > 0 && all > 0.0).then(|| between / all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuples::Density;
    use rand::RngExt;

    /// Pages of tuples whose label and first feature are given by the tuple's number.
    fn verdict(pages: u32, softmax: bool, tuple: impl Fn(u32, f32) -> (f32, f32)) -> Verdict {
        let mut clustering = Clustering::new(softmax);
        let mut rng = generator(5, Stream::Tuples, 0, 0);
        for page in 0..pages {
            let mut buffer = TupleBuffer::new(Density::Dense(3), usize::MAX);
            for i in 0..40 {
                let (y, x) = tuple(page * 40 + i, rng.random::<f32>());
                let rest = [rng.random::<f32>() + 1e4, 7.0];
                buffer.push(y, Features::Dense(&[x, rest[0], rest[1]])).expect("fits");
            }
            clustering.add_page(&buffer);
        }
        clustering.verdict()
    }

    #[test]
    fn random_order_is_left_alone() {
        let coin = |x: f32| if x < 0.5 { -1.0 } else { 1.0 };
        for pages in [4, 16, 128] {
            let random = verdict(pages, false, |_, x| (coin((x * 977.0).fract()), x));
            assert_eq!(random.shuffle, Shuffle::None, "{random:?}");
            assert!(random.factor.expect("measured") < 3.0);
        }
        let classes = verdict(128, true, |_, x| ((x * 977.0 % 10.0).floor(), x));
        assert_eq!(classes.shuffle, Shuffle::None, "{classes:?}");
    }

    #[test]
    fn clusters_are_seen() {
        let n = 128 * 40;
        let label = verdict(128, false, |i, x| (if i < n / 2 { -1.0 } else { 1.0 }, x));
        assert_eq!(label.shuffle, Shuffle::Corgipile);
        assert!((25.0..=33.0).contains(&label.factor.expect("measured")), "{label:?}");
        let classes = verdict(128, true, |i, x| ((i * 10 / n) as f32, x));
        assert_eq!(classes.shuffle, Shuffle::Corgipile, "{classes:?}");
        let feature = verdict(128, false, |i, x| (if x < 0.5 { -1.0 } else { 1.0 }, i as f32));
        assert_eq!(feature.shuffle, Shuffle::Corgipile, "{feature:?}");
        // A few pages hold all of the second class.
        let rare = verdict(128, false, |i, x| (if i < 80 { 1.0 } else { -1.0 }, x));
        assert_eq!(rare.shuffle, Shuffle::Corgipile, "{rare:?}");
        // None of those looked at does.
        let hidden = verdict(128, false, |_, x| (1.0, x));
        assert_eq!(hidden.shuffle, Shuffle::Corgipile, "{hidden:?}");
    }

    #[test]
    fn a_single_page_cannot_be_judged() {
        assert_eq!(verdict(1, false, |_, x| (1.0, x)), Verdict { factor: None, shuffle: Shuffle::Corgipile });
    }

    #[test]
    fn sampled_pages_are_distinct_and_spread() {
        for pages in [1, 127, 128, 129, 1000, 1_000_000, u32::MAX] {
            let sample = sample_pages(3, pages);
            assert_eq!(sample.len() as u32, pages.min(SAMPLE_PAGES));
            assert!(sample.windows(2).all(|pair| pair[0] < pair[1]) && sample.iter().all(|page| *page < pages));
        }
    }
}
