//! The decoded tuples of a whole table, so that later epochs need neither its pages nor decoding.
//!
//! The first epoch fills it on the way. From the second on the same blocks are visited in the same
//! order as if they were read: cut into the same fills, and shuffled in each by the same random numbers.
//! What comes out has the same bits with and without a cache.

use crate::Result;
use crate::permute::{Stream, generator, shuffle};
use crate::tuples::{Density, TupleBuffer};
use std::ops::Range;

/// The tuples of an epoch, and where those of each block lie.
#[derive(Debug)]
pub struct Cache {
    tuples: TupleBuffer,
    blocks: Vec<Range<u32>>,
}

impl Cache {
    /// An empty cache of at most `limit` bytes; `like` says the shape.
    pub fn new(density: Density, weighted: bool, limit: usize) -> Self {
        let tuples = TupleBuffer::new(density, limit);
        Self { tuples: if weighted { tuples.with_weights() } else { tuples }, blocks: Vec::new() }
    }

    /// Reserves storage for about `bytes`; `advise` may say something to the system about each region.
    pub fn reserve(&mut self, bytes: usize, advise: impl FnMut(*const u8, usize)) -> Result<()> {
        let limit = self.tuples.limit();
        self.tuples.set_limit(bytes.min(limit));
        let reserved = self.tuples.reserve_all(advise);
        self.tuples.set_limit(limit);
        reserved
    }

    /// Adds the tuples of a fill of the first epoch; false if they do not fit.
    pub fn add(&mut self, tuples: &TupleBuffer) -> Result<bool> {
        if self.tuples.bytes_used() + tuples.bytes_used() > self.tuples.limit() {
            return Ok(false);
        }
        self.tuples.append_all(tuples)?;
        Ok(true)
    }

    /// Ends the first epoch: `starts` has for each block that has tuples its number and its first tuple,
    /// in the order in which they were read. Without blocks all tuples are one block, number 0.
    pub fn complete(&mut self, starts: &[(u32, u32)]) {
        let end = self.tuples.len() as u32;
        let most = starts.iter().map(|(block, _)| *block as usize + 1).max().unwrap_or(1);
        self.blocks = vec![0..0; most];
        if starts.is_empty() {
            self.blocks[0] = 0..end;
        }
        for (i, (block, start)) in starts.iter().enumerate() {
            self.blocks[*block as usize] = *start..starts.get(i + 1).map_or(end, |(_, next)| *next);
        }
    }

    /// Tuples held.
    pub fn len(&self) -> usize {
        self.tuples.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the tuples held.
    pub fn bytes(&self) -> usize {
        self.tuples.bytes_used()
    }

    /// All tuples.
    pub fn tuples(&self) -> &TupleBuffer {
        &self.tuples
    }

    /// The fills of an epoch.
    pub fn epoch(&self, pass: Pass) -> Fills<'_> {
        Fills { cache: self, pass, block: 0, row: 0, fill: 0, rows: Vec::new() }
    }
}

/// What an epoch is.
#[derive(Debug, Clone)]
pub struct Pass {
    /// Blocks in the order of visits.
    pub order: Vec<u32>,
    /// Bytes of a buffer: how much is one fill.
    pub fill_bytes: usize,
    /// Whether tuples are shuffled in each fill.
    pub shuffled: bool,
    /// Seed of the training.
    pub seed: i64,
    /// Epoch, from 0.
    pub epoch: u32,
}

/// Goes through an epoch fill by fill.
#[derive(Debug)]
pub struct Fills<'a> {
    cache: &'a Cache,
    pass: Pass,
    block: usize,
    row: u32,
    fill: u32,
    rows: Vec<u32>,
}

impl Fills<'_> {
    /// The rows of the next fill in the order of visits, and values a tuple on average; `None` at the end.
    pub fn next_fill(&mut self) -> Option<(&[u32], usize)> {
        let tuples = &self.cache.tuples;
        let limit = self.pass.fill_bytes;
        let (mut bytes, mut values) = (0, 0);
        self.rows.clear();
        'fill: while let Some(block) = self.pass.order.get(self.block) {
            let range = self.cache.blocks.get(*block as usize).cloned().unwrap_or(0..0);
            let mut row = self.row.max(range.start);
            while row < range.end {
                // Tuples held out are known after the first epoch and take no room.
                if !tuples.is_held_out(row as usize) {
                    let stored = tuples.stored_of(row as usize);
                    let more = tuples.tuple_bytes(stored);
                    if !self.rows.is_empty() && bytes + more > limit {
                        self.row = row;
                        break 'fill;
                    }
                    bytes += more;
                    values += stored;
                    self.rows.push(row);
                }
                row += 1;
            }
            self.block += 1;
            self.row = 0;
        }
        if self.rows.is_empty() {
            return None;
        }
        if self.pass.shuffled {
            let Pass { seed, epoch, .. } = self.pass;
            shuffle(&mut self.rows, &mut generator(seed, Stream::Tuples, epoch, self.fill));
        }
        self.fill += 1;
        Some((&self.rows, values / self.rows.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuples::Features;
    use proptest::prelude::*;

    /// One epoch as the nodes read it: blocks in `order` into buffers of `limit` bytes.
    fn read(table: &[Vec<f32>], order: &[u32], density: Density, limit: usize, held_out: bool) -> Vec<TupleBuffer> {
        let mut fills = Vec::new();
        let mut buffer = TupleBuffer::new(density, limit).with_weights();
        for block in order {
            for x in &table[*block as usize] {
                let k: Vec<u32> = (0..x.abs() as u32 % 5).collect();
                let v = vec![*x; k.len()];
                let features = if density == Density::Sparse {
                    Features::Sparse(&k, &v)
                } else {
                    Features::Dense(std::slice::from_ref(x))
                };
                let weight = if (*x as i32) % 7 == 0 { -1.0 } else { 1.0 };
                if weight < 0.0 && !held_out {
                    continue;
                }
                if !buffer.is_empty() && !buffer.has_room(features.len()) {
                    fills.push(std::mem::replace(&mut buffer, TupleBuffer::new(density, limit).with_weights()));
                }
                buffer.push_weighted(*x, features, weight).expect("fits");
            }
        }
        fills.push(buffer);
        fills
    }

    proptest! {
        #[test]
        fn visits_are_those_of_reading(
            sizes in prop::collection::vec(0usize..12, 1..20), limit in 100usize..600, shuffled: bool, seed: i64, sparse: bool,
        ) {
            let mut number = 0f32;
            let table: Vec<Vec<f32>> = sizes.iter().map(|n| (0..*n).map(|_| { number += 1.0; number }).collect()).collect();
            let density = if sparse { Density::Sparse } else { Density::Dense(1) };
            let n = table.len() as u32;
            let first = crate::permute::block_order(seed, 0, n);
            let mut cache = Cache::new(density, true, usize::MAX);
            for fill in read(&table, &first, density, limit, true) {
                prop_assert!(cache.add(&fill).expect("memory"));
            }
            let mut starts = Vec::new();
            let mut rows = 0;
            for block in &first {
                let tuples = table[*block as usize].len() as u32;
                if tuples > 0 { starts.push((*block, rows)); }
                rows += tuples;
            }
            cache.complete(&starts);
            for epoch in 1..3 {
                let order = crate::permute::block_order(seed, epoch, n);
                let pass = Pass { order: order.clone(), fill_bytes: limit, shuffled, seed, epoch };
                let mut fills = cache.epoch(pass);
                for (i, mut expected) in read(&table, &order, density, limit, false).into_iter().enumerate() {
                    expected.arrange(shuffled, seed, epoch, i as u32).expect("memory");
                    let expected: Vec<f32> = expected.order().iter().map(|row| expected.label(*row as usize)).collect();
                    let found: Vec<f32> = match fills.next_fill() {
                        Some((rows, _)) => rows.iter().map(|row| cache.tuples().label(*row as usize)).collect(),
                        None => Vec::new(),
                    };
                    prop_assert_eq!(found, expected);
                }
                prop_assert!(fills.next_fill().is_none());
            }
        }
    }

    /// The visits of an epoch over `blocks` blocks of `each` tuples, as numbers of tuples, fill by fill.
    fn visits(blocks: u32, each: u32, fill: u32, random: bool, shuffled: bool, epoch: u32) -> Vec<Vec<u32>> {
        let mut cache = Cache::new(Density::Dense(1), false, usize::MAX);
        let mut buffer = TupleBuffer::new(Density::Dense(1), usize::MAX);
        for i in 0..blocks * each {
            buffer.push(i as f32, Features::Dense(&[0.0])).expect("fits");
        }
        cache.add(&buffer).expect("memory");
        cache.complete(&(0..blocks).map(|b| (b, b * each)).collect::<Vec<_>>());
        let order = if random { crate::permute::block_order(9, epoch, blocks) } else { (0..blocks).collect() };
        let fill_bytes = fill as usize * buffer.tuple_bytes(1);
        let mut fills = cache.epoch(Pass { order, fill_bytes, shuffled, seed: 9, epoch });
        let mut all = Vec::new();
        while let Some((rows, _)) = fills.next_fill() {
            all.push(rows.to_vec());
        }
        all
    }

    #[test]
    fn a_buffer_of_the_whole_table_gives_a_uniform_permutation() {
        // Chi-square over (tuple, position) of 3 blocks of 2: 25 degrees of freedom, 99.9 % at 52.6.
        const ROUNDS: u32 = 6000;
        let mut counts = [[0f64; 6]; 6];
        for epoch in 0..ROUNDS {
            let order = visits(3, 2, 6, true, true, epoch).concat();
            for (position, tuple) in order.into_iter().enumerate() {
                counts[tuple as usize][position] += 1.0;
            }
        }
        let expected = f64::from(ROUNDS) / 6.0;
        let chi2: f64 = counts.iter().flatten().map(|c| (c - expected).powi(2) / expected).sum();
        assert!(chi2 < 52.6, "chi-square {chi2}");
    }

    proptest! {
        #[test]
        fn strategies_differ_as_they_should(blocks in 1u32..12, each in 1u32..9, fill in 1u32..40, epoch in 0u32..5) {
            let all = |random, shuffled| visits(blocks, each, fill, random, shuffled, epoch);
            // Each visits every tuple once.
            for (random, shuffled) in [(true, true), (true, false), (false, true), (false, false)] {
                let mut order = all(random, shuffled).concat();
                order.sort_unstable();
                prop_assert_eq!(order, (0..blocks * each).collect::<Vec<_>>());
            }
            // Table order; and blocks in random order, whole and in table order inside.
            prop_assert_eq!(all(false, false).concat(), (0..blocks * each).collect::<Vec<_>>());
            for block in all(true, false).concat().chunks(each as usize) {
                prop_assert!(block[0] % each == 0 && block.windows(2).all(|pair| pair[1] == pair[0] + 1));
            }
            // Shuffling stays inside a fill: the same tuples as unshuffled, fill by fill.
            for random in [true, false] {
                for (mut shuffled, mut plain) in all(random, true).into_iter().zip(all(random, false)) {
                    shuffled.sort_unstable();
                    plain.sort_unstable();
                    prop_assert_eq!(shuffled, plain);
                }
            }
        }

        #[test]
        fn buffers_of_one_block_are_block_only_with_blocks_shuffled(blocks in 1u32..12, each in 1u32..9, epoch in 0u32..5) {
            let corgipile = visits(blocks, each, each, true, true, epoch);
            let block_only = visits(blocks, each, each, true, false, epoch);
            prop_assert_eq!(corgipile.len(), blocks as usize);
            for (shuffled, plain) in corgipile.iter().zip(&block_only) {
                let mut sorted = shuffled.clone();
                sorted.sort_unstable();
                prop_assert_eq!(&sorted, plain);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut buffer = TupleBuffer::new(Density::Dense(1), usize::MAX);
        for i in 0..10 {
            buffer.push(i as f32, Features::Dense(&[1.0])).expect("fits");
        }
        let mut cache = Cache::new(Density::Dense(1), false, buffer.bytes_used() * 2);
        assert!(cache.add(&buffer).expect("memory") && cache.add(&buffer).expect("memory"));
        assert!(!cache.add(&buffer).expect("memory"));
        cache.complete(&[]);
        assert_eq!((cache.len(), cache.blocks[0].clone()), (20, 0..20));
    }
}
