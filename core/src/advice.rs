//! What to do with a table, from a look at a small part of it: sizes of blocks and buffers, whether to
//! keep decoded tuples, and how fast that will be.

use crate::Result;
use crate::blocks;
use crate::disk::Curve;
use crate::plumber::{Choice, EpochTrace, Limit, Problem, Rate, rates};
use serde::{Deserialize, Serialize};

/// The smallest block that is chosen unasked. In memory the way to a block costs about a microsecond: with
/// 8 kB an epoch of narrow tuples takes a fifth longer, with 128 kB a thirtieth.
pub const LEAST_BLOCK: usize = 128 << 10;

/// What a look at some blocks of a table has shown.
#[derive(Debug, Clone)]
pub struct Survey {
    /// Pages of the table.
    pub pages: u64,
    /// Pages looked at.
    pub seen: u64,
    /// What the operators did on them: an epoch of its own.
    pub trace: EpochTrace,
    /// CPU time of ordering the tuples looked at as if from a cache, in nanoseconds: without scaling them.
    pub cached_order_ns: u64,
    /// Bytes of pages of the table and of its values out of line, in all.
    pub table_bytes: u64,
    /// How fast the disk is, where the table is not in memory.
    pub disk: Option<Curve>,
}

/// What is given: by the user, or by what was decided before.
#[derive(Debug, Clone, Copy)]
pub struct Given {
    /// Bytes of a page.
    pub page: usize,
    /// Bytes for two buffers and a cache.
    pub memory: usize,
    /// Buffers, two where they are filled by a thread of their own.
    pub buffers: usize,
    /// Most bytes of a buffer.
    pub most_buffer: usize,
    /// Bytes of a block, and of a buffer, where they are not to be chosen.
    pub block: Option<usize>,
    /// See `block`.
    pub buffer: Option<usize>,
    /// Largest block to choose.
    pub most_block: usize,
    /// Whether to keep decoded tuples; `None`: where that pays.
    pub cache: Option<bool>,
    /// Cores.
    pub cores: f64,
}

/// What is to be done, and what is expected of it: kept with the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Bytes of a block, and of a buffer.
    pub block: u64,
    /// See `block`.
    pub buffer: u64,
    /// Whether decoded tuples are kept.
    pub cache: bool,
    /// Tuples of the table, as estimated.
    pub rows: f64,
    /// Bytes of all decoded tuples, as estimated.
    pub decoded_bytes: f64,
    /// Minibatches per second expected of epochs that read the table.
    pub reading: f64,
    /// Minibatches per second expected of the last epochs.
    pub throughput: f64,
    /// Minibatches of an epoch.
    pub minibatches: f64,
    /// What will hold that down.
    pub limit: Limit,
    /// Whether the disk was taken into account.
    pub disk: bool,
    /// How many times the throughput with one core more, twice the memory, twice the bandwidth.
    pub what_if: [f64; 3],
    /// Rates of scan, decode, shuffle, sgd in minibatches per second and core (0: it took no time), and cores
    /// given to each.
    pub rates: [f64; 4],
    /// See `rates`.
    pub theta: [f64; 4],
}

/// The largest power of two of pages that is at most `bytes`; at least a page.
fn whole_pages(bytes: f64, page: usize) -> usize {
    let pages = ((bytes / page as f64) as usize).max(1);
    page << pages.ilog2()
}

impl Survey {
    /// Minibatches that the pages looked at are.
    fn minibatches(&self) -> f64 {
        self.trace.records[3].completions as f64
    }

    /// Parts of the table of which one was looked at.
    fn scale(&self) -> f64 {
        self.pages as f64 / self.seen.max(1) as f64
    }

    /// Bytes of all decoded tuples.
    fn decoded_bytes(&self) -> f64 {
        self.trace.records[1].bytes as f64 * self.scale()
    }

    /// Bytes of the table's own pages.
    fn own_bytes(&self, given: &Given) -> f64 {
        self.pages as f64 * given.page as f64
    }

    /// Sizes of blocks to choose from, in bytes of the table's own pages.
    fn blocks(&self, given: &Given, buffer: usize) -> Vec<usize> {
        if let Some(block) = given.block {
            return vec![block];
        }
        let own = self.own_bytes(given).max(1.0);
        // Values out of line belong to a block as well: on the disk, and decoded in the buffer.
        let (on_disk, decoded) = (self.table_bytes as f64 / own, (self.decoded_bytes() / own).max(1.0));
        let most = whole_pages((buffer / blocks::BLOCKS_PER_BUFFER) as f64 / decoded, given.page);
        let most = most.min(whole_pages(given.most_block as f64 / on_disk.max(1.0), given.page));
        let mut size = whole_pages(LEAST_BLOCK as f64 / on_disk.max(1.0), given.page).min(most);
        let mut sizes = vec![size];
        while size < most {
            size *= 2;
            sizes.push(size);
        }
        sizes
    }

    /// The program for a table of this kind, over these blocks and buffers of these sizes.
    fn problem(&self, given: &Given, sizes: &[usize], buffer: (usize, usize)) -> Problem {
        let found: [Rate; 4] = rates(&self.trace);
        let own = self.own_bytes(given).max(1.0);
        let (on_disk, decoded) = (self.table_bytes as f64 / own, (self.decoded_bytes() / own).max(1.0));
        let block = |size: usize| {
            let bandwidth = self.disk.as_ref().map_or(f64::INFINITY, |disk| disk.bandwidth(size as f64 * on_disk));
            // As it will be in the buffer.
            (size as f64 * decoded, bandwidth)
        };
        Problem {
            rates: found.map(|rate| rate.rate),
            cached_shuffle: self.minibatches() / (self.cached_order_ns.max(1) as f64 * 1e-9),
            bytes_per_minibatch: self.table_bytes as f64 / (self.minibatches() * self.scale()).max(1.0),
            cores: given.cores,
            // As if of two buffers, which is what the program knows.
            memory: given.memory as f64 + (2.0 - given.buffers as f64) * buffer.0 as f64,
            cache_bytes: self.decoded_bytes(),
            // A block may be larger, or a buffer smaller, where that was asked for.
            blocks_per_buffer: if given.block.is_some() || given.buffer.is_some() {
                0.0
            } else {
                // A single page may be too much already.
                let least = sizes.first().map_or(0.0, |size| block(*size).0).max(1.0);
                (blocks::BLOCKS_PER_BUFFER as f64).min(buffer.0 as f64 / least)
            },
            blocks: sizes.iter().map(|size| block(*size)).collect(),
            buffer: (buffer.0 as f64, buffer.1 as f64),
            cache: given.cache,
        }
    }

    /// The best plan; an error if what was asked for does not fit into memory.
    pub fn plan(&self, given: &Given) -> Result<Plan> {
        let want = blocks::auto_buffer_bytes(self.table_bytes as usize, given.most_buffer);
        // On a disk a larger buffer allows larger blocks.
        let most = given.buffer.unwrap_or(if self.disk.is_some() { given.most_buffer } else { want });
        // In memory nothing that was measured decides on a buffer: the same seed then means the same order.
        let least = if self.disk.is_some() { blocks::MIN_BUFFER_BYTES.min(want) } else { want };
        let least = given.buffer.unwrap_or(least);
        let sizes = self.blocks(given, most);
        let problem = self.problem(given, &sizes, (least, most));
        let Choice { throughput, reading, theta, block, buffer, cache, limit } = problem.solve()?;
        let chosen = problem.blocks.iter().position(|(bytes, _)| *bytes == block).unwrap_or(0);
        let buffer = buffer.min((block * blocks::BLOCKS_PER_BUFFER as f64).max(want as f64));
        // In whole megabytes, so that a slightly different estimate does not mean another order of tuples.
        let whole = |bytes: u64| if bytes < 2 << 20 { bytes } else { bytes >> 20 << 20 };
        Ok(Plan {
            block: sizes[chosen] as u64,
            buffer: given.buffer.map_or_else(|| whole(buffer as u64), |bytes| bytes as u64),
            cache,
            rows: self.trace.records[1].completions as f64 * self.scale(),
            decoded_bytes: problem.cache_bytes,
            reading,
            throughput,
            minibatches: self.minibatches() * self.scale(),
            limit,
            disk: self.disk.is_some(),
            what_if: problem.what_if(throughput)?,
            rates: problem.rates.map(|rate| if rate.is_finite() { rate } else { 0.0 }),
            theta,
        })
    }
}

impl Plan {
    /// Seconds that an epoch which reads the table will take, and a later one.
    pub fn seconds(&self) -> (f64, f64) {
        (self.minibatches / self.reading, self.minibatches / self.throughput)
    }

    /// Whether every number is one: what goes into a model's header.
    pub fn is_finite(&self) -> bool {
        [self.rows, self.decoded_bytes, self.reading, self.throughput, self.minibatches]
            .into_iter()
            .chain(self.what_if)
            .chain(self.rates)
            .chain(self.theta)
            .all(f64::is_finite)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plumber::Record;

    /// 1 % of 3 million tuples of 28 features: 521 MB in pages, 348 MB decoded.
    fn survey(disk: Option<Curve>) -> Survey {
        let record = |bytes, cpu_ns| Record { completions: 30_000, bytes, cpu_ns, ..Record::default() };
        let records =
            [record(5_210_000, 1_200_000), record(3_480_000, 1_300_000), record(0, 100_000), record(0, 800_000)];
        let trace = EpochTrace { epoch: 1, cached: false, wall_ns: 3_000_000, records };
        Survey { pages: 66_700, seen: 667, trace, cached_order_ns: 100_000, table_bytes: 521 << 20, disk }
    }

    fn given() -> Given {
        Given {
            page: 8192,
            memory: 240 << 20,
            buffers: 2,
            most_buffer: 120 << 20,
            block: None,
            buffer: None,
            most_block: 10 << 20,
            cache: None,
            cores: 2.0,
        }
    }

    #[test]
    fn in_memory_blocks_are_small_and_what_fits_is_kept() {
        let plan = survey(None).plan(&given()).expect("feasible");
        assert_eq!((plan.block, plan.buffer, plan.cache), (128 << 10, 26 << 20, false), "{plan:?}");
        assert_eq!((plan.rows, plan.decoded_bytes), (3e6, 348e6));
        // 2.5 ms for 30,000 tuples in the write thread.
        assert!((plan.throughput - 12e6).abs() < 1e3 && plan.limit == Limit::WriteThread, "{plan:?}");
        assert!((plan.seconds().0 - 0.25).abs() < 1e-3);
        let plan = survey(None).plan(&Given { memory: 1 << 30, most_buffer: 1 << 29, ..given() }).expect("feasible");
        assert!(plan.cache && plan.limit == Limit::ReadThread, "{plan:?}");
        assert!((plan.throughput - 30e3 / 0.9e-3).abs() < 1e4 && (plan.reading - 12e6).abs() < 1e3, "{plan:?}");
    }

    #[test]
    fn a_hard_disk_wants_large_blocks_and_binds() {
        // 8 ms to a block, then 150 MB/s.
        let points: Vec<(f64, f64)> =
            crate::disk::PROBED.iter().map(|b| (*b as f64, *b as f64 / (0.008 + *b as f64 / 150e6))).collect();
        let survey = survey(Curve::new(&points));
        let plan = survey.plan(&given()).expect("feasible");
        // The largest of which 64 fill a buffer, which is larger for it.
        assert_eq!((plan.block, plan.buffer, plan.limit), (1 << 20, 64 << 20, Limit::Bandwidth), "{plan:?}");
        assert!(plan.what_if[2] > 1.9 && plan.disk);
        // A disk without ways does not need them.
        let flat = Curve::new(&[(8192.0, 300e6), (8e6, 300e6)]);
        assert_eq!(Survey { disk: flat, ..survey }.plan(&given()).expect("feasible").block, 128 << 10);
    }

    #[test]
    fn values_out_of_line_belong_to_their_block() {
        // 20,000 tuples of 2,000 features: 1 MB in pages, 164 MB out of line.
        let record = |bytes, cpu_ns| Record { completions: 650, bytes, cpu_ns, ..Record::default() };
        let records =
            [record(5_300_000, 200_000), record(5_200_000, 1_500_000), record(0, 100_000), record(0, 200_000)];
        let trace = EpochTrace { epoch: 1, cached: false, wall_ns: 3_000_000, records };
        let survey = Survey { pages: 154, seen: 5, trace, cached_order_ns: 10_000, table_bytes: 165 << 20, disk: None };
        let plan = survey.plan(&given()).expect("feasible");
        // A page holds 130 tuples, 1 MB: a buffer holds 16 of them.
        assert_eq!((plan.block, plan.buffer, plan.cache), (8192, 16 << 20, true), "{plan:?}");
    }

    #[test]
    fn what_is_given_stays() {
        let given = Given { block: Some(1 << 20), buffer: Some(2 << 20), cache: Some(true), ..given() };
        assert!(survey(None).plan(&given).is_err(), "the cache does not fit");
        let given = Given { cache: Some(false), ..given };
        let plan = survey(None).plan(&given).expect("feasible");
        assert_eq!((plan.block, plan.buffer, plan.cache), (1 << 20, 2 << 20, false));
    }
}
