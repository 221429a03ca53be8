//! The orders of visits that streaming shufflers give, for comparison with the two-level shuffle: they
//! read the table in its order, buffer by buffer, and carry some tuples from one buffer to the next.
//!
//! An arena holds the new tuples of a fill and, behind them, the carried ones; the functions here work
//! on row numbers only.

use crate::permute::{Stream, below, generator, shuffle};
use rand_pcg::Pcg64;

/// What to do with the tuples of an arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rows to train on, in this order.
    pub order: Vec<u32>,
    /// Rows to carry on to the next fill.
    pub keep: Vec<u32>,
    /// Rows to carry on beside them: the loop of multiplexed reservoir sampling.
    pub replay: Vec<u32>,
}

/// A shuffler's state between fills.
#[derive(Debug)]
pub enum Window {
    /// TensorFlow's `shuffle(n)`: a tuple takes the place of a random one in a window of n, which is
    /// trained on. Every tuple is trained on once in an epoch.
    Sliding {
        /// n; set by the first fill.
        capacity: usize,
        /// Random numbers of the epoch.
        rng: Pcg64,
    },
    /// Bismarck's multiplexed reservoir sampling (Feng et al., SIGMOD 2012, §3.4): of what is read a
    /// uniform sample stays in a reservoir, and what is dropped is trained on; beside each of those,
    /// `ratio` tuples of the reservoir of the epoch before are trained on, in a loop.
    Reservoir {
        /// Size of the reservoir; set by the first fill.
        capacity: usize,
        /// Tuples of the loop for each one dropped.
        ratio: u32,
        /// Tuples read in this epoch.
        seen: u64,
        /// Where the loop stands.
        next: usize,
        /// Random numbers of the epoch.
        rng: Pcg64,
    },
}

impl Window {
    /// A sliding window.
    pub fn sliding(seed: i64) -> Self {
        Self::Sliding { capacity: 0, rng: generator(seed, Stream::Window, 0, 0) }
    }

    /// A reservoir.
    pub fn reservoir(seed: i64, ratio: u32) -> Self {
        Self::Reservoir { capacity: 0, ratio, seen: 0, next: 0, rng: generator(seed, Stream::Window, 0, 0) }
    }

    /// Plans a fill whose new tuples are `new`, with those carried before and those of the loop. At the
    /// last fill of an epoch the sliding window is emptied, and a reservoir becomes the next epoch's loop.
    pub fn plan(&mut self, new: &[u32], carried: &[u32], replay: &[u32], last: bool) -> Plan {
        let mut order = Vec::with_capacity(new.len());
        let mut keep = carried.to_vec();
        match self {
            Self::Sliding { capacity, rng } => {
                *capacity = (*capacity).max(if carried.is_empty() { new.len() } else { 0 });
                for row in new {
                    if keep.len() < *capacity {
                        keep.push(*row);
                    } else {
                        let place = below(rng, keep.len() as u32) as usize;
                        order.push(std::mem::replace(&mut keep[place], *row));
                    }
                }
                if last {
                    shuffle(&mut keep, rng);
                    order.append(&mut keep);
                }
                Plan { order, keep, replay: Vec::new() }
            }
            Self::Reservoir { capacity, ratio, seen, next, rng } => {
                *capacity = (*capacity).max(if *seen == 0 { new.len() } else { 0 });
                for row in new {
                    *seen += 1;
                    let mut dropped = *row;
                    if keep.len() < *capacity {
                        keep.push(*row);
                        continue;
                    }
                    let place = below_large(rng, *seen);
                    if let Some(kept) = keep.get_mut(place) {
                        dropped = std::mem::replace(kept, *row);
                    }
                    order.push(dropped);
                    for _ in 0..if replay.is_empty() { 0 } else { *ratio } {
                        order.push(replay[*next % replay.len()]);
                        *next += 1;
                    }
                }
                if !last {
                    return Plan { order, keep, replay: replay.to_vec() };
                }
                // A table that the reservoir holds whole would never be trained on.
                if order.is_empty() {
                    order = keep.clone();
                    shuffle(&mut order, rng);
                }
                (*seen, *next) = (0, 0);
                Plan { order, keep: Vec::new(), replay: keep }
            }
        }
    }
}

/// A number in [0, bound); a bound beyond 32 bits loses 2⁻³² of uniformity.
fn below_large(rng: &mut Pcg64, bound: u64) -> usize {
    match u32::try_from(bound) {
        Ok(bound) => below(rng, bound) as usize,
        Err(_) => {
            let high = u128::from(below(rng, u32::MAX)) << 32 | u128::from(below(rng, u32::MAX));
            ((high * u128::from(bound)) >> 64) as usize
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs an epoch over tuples 0..n in fills of `fill`, as the trainer does; gives tuple numbers.
    fn epoch(window: &mut Window, n: u32, fill: usize, replay: &mut Vec<u32>) -> Vec<u32> {
        let mut order = Vec::new();
        let mut carried: Vec<u32> = Vec::new();
        let all: Vec<u32> = (0..n).collect();
        let fills: Vec<&[u32]> = all.chunks(fill).collect();
        for (i, fill) in fills.iter().enumerate() {
            // Numbers in place of rows: what is carried keeps its number.
            let plan = window.plan(fill, &carried, replay, i + 1 == fills.len());
            order.extend(plan.order);
            carried = plan.keep;
            *replay = plan.replay;
        }
        order
    }

    proptest! {
        #[test]
        fn a_sliding_window_visits_every_tuple_once(n in 1u32..500, fill in 1usize..60, seed: i64) {
            let mut window = Window::sliding(seed);
            for _ in 0..2 {
                let order = epoch(&mut window, n, fill, &mut Vec::new());
                // A tuple cannot be trained on before it was read, nor the first before the window is full.
                let capacity = fill.min(n as usize);
                for (position, tuple) in order.iter().enumerate() {
                    prop_assert!((*tuple as usize) < position + 1 + capacity);
                }
                let mut sorted = order;
                sorted.sort_unstable();
                prop_assert_eq!(sorted, (0..n).collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_reservoir_trains_on_what_it_drops_and_loops_over_what_it_kept(
            n in 2u32..500, fill in 1usize..60, seed: i64, ratio in 0u32..4,
        ) {
            let mut window = Window::reservoir(seed, ratio);
            let mut replay = Vec::new();
            let first = epoch(&mut window, n, fill, &mut replay);
            let capacity = fill.min(n as usize);
            if n as usize > capacity {
                // Dropped and kept together are all of them, once.
                let mut all: Vec<u32> = first.iter().chain(&replay).copied().collect();
                all.sort_unstable();
                prop_assert_eq!(all, (0..n).collect::<Vec<_>>());
                let kept = replay.clone();
                let second = epoch(&mut window, n, fill, &mut replay);
                let dropped = n as usize - capacity;
                prop_assert_eq!(second.len(), dropped * (1 + ratio as usize));
                for (i, steps) in second.chunks(1 + ratio as usize).enumerate() {
                    for (j, replayed) in steps[1..].iter().enumerate() {
                        prop_assert_eq!(*replayed, kept[(i * ratio as usize + j) % kept.len()]);
                    }
                }
            } else {
                prop_assert_eq!(first.len(), n as usize);
            }
        }
    }

    #[test]
    fn the_reservoir_is_a_uniform_sample() {
        // 5 of 20: each tuple a quarter of the time; chi-square with 19 degrees, 99.9 % at 43.8.
        const ROUNDS: u32 = 8000;
        let mut counts = [0f64; 20];
        let mut window = Window::reservoir(3, 1);
        for _ in 0..ROUNDS {
            let mut replay = Vec::new();
            epoch(&mut window, 20, 5, &mut replay);
            for tuple in replay {
                counts[tuple as usize] += 1.0;
            }
        }
        let expected = f64::from(ROUNDS) / 4.0;
        let chi2: f64 = counts.iter().map(|c| (c - expected).powi(2) / expected).sum::<f64>() / 0.75;
        assert!(chi2 < 43.8, "chi-square {chi2}");
    }

    #[test]
    fn a_large_bound_is_kept() {
        let mut rng = generator(1, Stream::Window, 0, 0);
        let bound = (1u64 << 40) + 3;
        let numbers: Vec<usize> = (0..1000).map(|_| below_large(&mut rng, bound)).collect();
        assert!(numbers.iter().all(|n| (*n as u64) < bound));
        assert!(numbers.iter().any(|n| *n > 1 << 39));
    }
}
