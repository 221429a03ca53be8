//! What every operator of a training costs, and what that means: Plumber's model (Kuchnik et al., MLSys
//! 2022, §4) for the pipeline scan → decode → shuffle → sgd.
//!
//! An operator's record is one fixed struct. Operational analysis turns records into rates: visit ratios
//! from the root to the source, V₀ = 1 and V_i = (C_i / C_{i−1})·V_{i−1} for completions C, and minibatches
//! per second and core, R_i = (C_i / V_i) / CPU seconds. A linear program with the rates, the cores, the
//! disk's bandwidth by block size and the memory gives the best throughput and what limits it.

use crate::advice::Plan;
use crate::{Error, Result};
use good_lp::{
    Expression, ProblemVariables, Solution, SolverModel, Variable, constraint, microlp, variable, variables,
};
use serde::{Deserialize, Serialize};

/// The operators, from the source to the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    /// Pages to tuples.
    Scan,
    /// Tuples to numbers.
    Decode,
    /// Scaling and the order of visits.
    Shuffle,
    /// Steps.
    Sgd,
}

impl Operator {
    /// From the source to the root.
    pub const ALL: [Operator; 4] = [Operator::Scan, Operator::Decode, Operator::Shuffle, Operator::Sgd];

    /// The name in views.
    pub fn name(self) -> &'static str {
        match self {
            Operator::Scan => "scan",
            Operator::Decode => "decode",
            Operator::Shuffle => "shuffle",
            Operator::Sgd => "sgd",
        }
    }
}

/// What an operator did in an epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Elements produced: tuples, or minibatches at the root.
    pub completions: u64,
    /// Bytes produced.
    pub bytes: u64,
    /// CPU time of its own thread without its children, in nanoseconds.
    pub cpu_ns: u64,
    /// Wall time, in nanoseconds.
    pub wall_ns: u64,
    /// Of that, waiting for the other thread.
    pub blocked_ns: u64,
    /// Pages read from outside of shared buffers.
    pub pages_read: u64,
    /// Pages found in shared buffers.
    pub pages_hit: u64,
    /// Pages that were asked for before they were needed.
    #[serde(default)]
    pub pages_prefetched: u64,
    /// Time of reading them, in nanoseconds (with track_io_timing).
    pub io_ns: u64,
    /// Bytes of values that were stored out of line or compressed, as they are when plain.
    #[serde(default)]
    pub detoasted_bytes: u64,
}

impl Record {
    /// Adds what was done in another part of the same work.
    pub fn add(&mut self, other: &Record) {
        self.completions += other.completions;
        self.bytes += other.bytes;
        self.cpu_ns += other.cpu_ns;
        self.wall_ns += other.wall_ns;
        self.blocked_ns += other.blocked_ns;
        self.pages_read += other.pages_read;
        self.pages_hit += other.pages_hit;
        self.pages_prefetched += other.pages_prefetched;
        self.io_ns += other.io_ns;
        self.detoasted_bytes += other.detoasted_bytes;
    }
}

const _: () = assert!(size_of::<Record>() <= 144, "a record is kept for every operator and epoch");

/// The records of an epoch, from the source to the root.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpochTrace {
    /// Counted from 1.
    pub epoch: u32,
    /// Whether tuples came from the cache: then nothing was scanned or decoded.
    pub cached: bool,
    /// Wall time of the epoch, in nanoseconds.
    pub wall_ns: u64,
    /// One an operator.
    pub records: [Record; 4],
}

/// An operator's place in the pipeline.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Completions for each one at the root.
    pub visit_ratio: f64,
    /// Bytes for each minibatch at the root.
    pub bytes: f64,
    /// Minibatches per second and core; infinite if it took no time.
    pub rate: f64,
}

/// Rates of the operators of an epoch; zero completions give a rate of infinity.
pub fn rates(trace: &EpochTrace) -> [Rate; 4] {
    let mut rates = [Rate { visit_ratio: 0.0, bytes: 0.0, rate: f64::INFINITY }; 4];
    let root = trace.records[3].completions.max(1) as f64;
    let (mut above, mut visit) = (root, 1.0);
    for (record, rate) in trace.records.iter().zip(&mut rates).rev() {
        let completions = record.completions as f64;
        visit *= completions / above;
        above = completions.max(1.0);
        rate.visit_ratio = visit;
        rate.bytes = record.bytes as f64 / root;
        if record.cpu_ns > 0 && completions > 0.0 {
            rate.rate = completions / visit / (record.cpu_ns as f64 * 1e-9);
        }
    }
    rates
}

/// A pipeline and what it may use.
#[derive(Debug, Clone)]
pub struct Problem {
    /// R of scan, decode, shuffle, sgd, in minibatches per second and core.
    pub rates: [f64; 4],
    /// R of shuffle over a cache, whose tuples were scaled when it was filled.
    pub cached_shuffle: f64,
    /// Bytes read for a minibatch.
    pub bytes_per_minibatch: f64,
    /// Cores.
    pub cores: f64,
    /// Bytes of memory for two buffers and the cache.
    pub memory: f64,
    /// Bytes of all decoded tuples.
    pub cache_bytes: f64,
    /// Block sizes to choose from, in bytes, and the bandwidth of reading them, in bytes per second;
    /// infinite where the table is in memory.
    pub blocks: Vec<(f64, f64)>,
    /// Fewest blocks in a buffer, so that the order is random enough.
    pub blocks_per_buffer: f64,
    /// Smallest and largest buffer, in bytes.
    pub buffer: (f64, f64),
    /// Whether decoded tuples are kept; `None`: where that pays.
    pub cache: Option<bool>,
}

/// What holds the throughput down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Scanning and decoding, which share a thread.
    WriteThread,
    /// Shuffling and training, which share a thread.
    ReadThread,
    /// The number of cores.
    Cores,
    /// The disk.
    Bandwidth,
}

impl Limit {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Limit::WriteThread => "scanning and decoding in one thread",
            Limit::ReadThread => "shuffling and training in one thread",
            Limit::Cores => "the number of cores",
            Limit::Bandwidth => "the bandwidth of the disk",
        }
    }
}

/// The best configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Minibatches per second, once a cache is filled.
    pub throughput: f64,
    /// Minibatches per second while the table is read.
    pub reading: f64,
    /// Cores given to scan, decode, shuffle, sgd.
    pub theta: [f64; 4],
    /// Bytes of a block: the smallest that does not cost throughput.
    pub block: f64,
    /// Bytes of one of the two buffers: as large as memory allows.
    pub buffer: f64,
    /// Whether decoded tuples are kept.
    pub cache: bool,
    /// What holds it down.
    pub limit: Limit,
}

/// Part of the throughput that a smaller block, which shuffles better, may cost: less than what a
/// measured bandwidth is sure to.
const SLACK: f64 = 0.03;

/// One of the programs that are solved one after the other.
struct Program<'a> {
    problem: &'a Problem,
    /// Throughputs and bytes in units near 1, or the solver's tolerances mean nothing.
    top: f64,
    memory_unit: f64,
    /// Larger than any throughput: what a constraint that does not apply may be.
    big: f64,
    /// Whether a cache takes its bytes and relieves scan, decoding and disk; or takes its bytes only, as
    /// while it is filled.
    filled: bool,
    cache: Option<bool>,
    least_x: f64,
    block: Option<usize>,
}

/// Its variables.
struct Unknowns {
    x: Variable,
    theta: [Variable; 4],
    blocks: Vec<Variable>,
    buffer: Variable,
    cache: Variable,
}

/// What it found.
struct Found {
    x: f64,
    theta: [f64; 4],
    block: usize,
    buffer: f64,
    cache: bool,
}

fn usable(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

impl<'a> Program<'a> {
    fn new(problem: &'a Problem) -> Self {
        let rates = || problem.rates.iter().copied().chain([problem.cached_shuffle]).filter(|rate| usable(*rate));
        let top = rates().fold(1.0, f64::max);
        let bandwidth = problem.blocks.iter().map(|(_, bw)| *bw).filter(|bw| usable(*bw)).fold(0.0, f64::max);
        let most = rates().fold(f64::INFINITY, f64::min).min(1e300) * problem.cores;
        Self {
            problem,
            top,
            memory_unit: problem.memory.max(1.0),
            big: (most.max(bandwidth / problem.bytes_per_minibatch.max(1e-9)) / top).max(1.0) * 2.0,
            filled: true,
            cache: problem.cache,
            least_x: 0.0,
            block: None,
        }
    }

    /// Maximises `goal`; an error if not even the smallest buffers fit into memory.
    fn solve(&self, goal: impl Fn(&Unknowns) -> Expression) -> Result<Found> {
        let Self { problem, top, memory_unit, big, .. } = *self;
        let mut variables: ProblemVariables = variables!();
        let (least, most) = problem.buffer;
        let it = Unknowns {
            x: variables.add(variable().min(0.0)),
            theta: [(); 4].map(|()| variables.add(variable().min(0.0).max(problem.cores))),
            blocks: problem.blocks.iter().map(|_| variables.add(variable().binary())).collect(),
            buffer: variables.add(variable().min(least / memory_unit).max(most.max(least) / memory_unit)),
            cache: variables.add(variable().binary()),
        };
        let goal = goal(&it);
        let Unknowns { x, theta, blocks, buffer, cache } = &it;
        let mut model = variables.maximise(goal).using(microlp);
        let relief = if self.filled { big } else { 0.0 };
        for (i, rate) in problem.rates.iter().enumerate().filter(|(_, rate)| usable(**rate)) {
            // Scan and decode lie below the cache; so does the scaling of tuples.
            let free = if i < 3 { relief * *cache } else { Expression::from(0.0) };
            model = model.with(constraint!(*x <= theta[i] * (rate / top) + free));
        }
        if usable(problem.cached_shuffle) {
            model = model.with(constraint!(*x <= theta[2] * (problem.cached_shuffle.max(problem.rates[2]) / top)));
        }
        model = model.with(constraint!(theta[0] + theta[1] + theta[2] + theta[3] <= problem.cores));
        model = model.with(constraint!(theta[0] + theta[1] <= 1.0));
        model = model.with(constraint!(theta[2] + theta[3] <= 1.0));
        model = model.with(constraint!(*x <= big));
        model = model.with(constraint!(*x >= self.least_x / top));
        let chosen: Expression = blocks.iter().copied().map(Expression::from).sum();
        model = model.with(constraint!(chosen == 1.0));
        let sum = |each: &dyn Fn(f64, f64) -> f64| -> Expression {
            blocks.iter().zip(&problem.blocks).map(|(b, (bytes, bandwidth))| *b * each(*bytes, *bandwidth)).sum()
        };
        let per_second = |_, bw: f64| if usable(bw) { bw / problem.bytes_per_minibatch.max(1e-9) / top } else { big };
        model = model.with(constraint!(*x <= sum(&per_second) + relief * *cache));
        model = model.with(constraint!(*buffer >= sum(&|bytes, _| bytes * problem.blocks_per_buffer / memory_unit)));
        let used = 2.0 * *buffer + (problem.cache_bytes / memory_unit) * *cache;
        model = model.with(constraint!(used <= problem.memory / memory_unit));
        if let Some(fixed) = self.cache {
            model = model.with(constraint!(*cache == f64::from(u8::from(fixed))));
        }
        if let Some(block) = self.block {
            model = model.with(constraint!(blocks[block] == 1.0));
        }
        let solution = model.solve().map_err(|_| Error::MemoryLimit {
            what: "two buffers of enough blocks, and what is kept beside them".into(),
            needed: (2.0 * least + if self.cache == Some(true) { problem.cache_bytes } else { 0.0 }) as usize,
            limit: problem.memory as usize,
        })?;
        Ok(Found {
            x: solution.value(*x) * top,
            theta: theta.map(|t| solution.value(t)),
            block: blocks.iter().position(|b| solution.value(*b) > 0.5).unwrap_or(0),
            buffer: solution.value(*buffer) * memory_unit,
            cache: solution.value(*cache) > 0.5,
        })
    }
}

impl Problem {
    /// The most minibatches per second once a cache is filled, the cores for it, and whether there is one.
    fn most(&self) -> Result<(f64, [f64; 4], bool)> {
        let program = Program::new(self);
        let best = program.solve(|it| it.x.into())?;
        // At the same throughput a cache leaves the other core idle, and the disk to others.
        let program = Program { least_x: best.x * 0.999, ..program };
        let kept = program.solve(|it| it.cache.into())?;
        Ok((best.x, kept.theta, kept.cache))
    }

    /// Solves it: throughput first; then, for the epochs that read the table (also those that fill a cache),
    /// the smallest block that does not hold them up, and the largest buffer. An error if not even the
    /// smallest buffers fit into memory.
    pub fn solve(&self) -> Result<Choice> {
        let (throughput, theta, cache) = self.most()?;
        let reading = Program { filled: false, cache: Some(cache), ..Program::new(self) };
        let best = reading.solve(|it| it.x.into())?.x;
        let reading = Program { least_x: best * (1.0 - SLACK), ..reading };
        let smallest = |it: &Unknowns| -> Expression {
            let sizes = it.blocks.iter().zip(&self.blocks);
            sizes.map(|(b, (bytes, _))| *b * -(bytes / reading.memory_unit)).sum()
        };
        let block = reading.solve(smallest)?.block;
        let buffer = Program { block: Some(block), ..reading }.solve(|it| it.buffer.into())?.buffer;
        let reading = self.bounds(block, false).iter().map(|(_, x)| *x).fold(f64::INFINITY, f64::min);
        Ok(Choice {
            throughput: if cache { throughput } else { reading },
            reading,
            theta,
            block: self.blocks[block].0,
            buffer,
            cache,
            limit: self.limit(block, cache),
        })
    }

    /// The throughput that each limit alone would allow, with this block size and cache.
    fn bounds(&self, block: usize, cache: bool) -> [(Limit, f64); 4] {
        let seconds =
            |range: std::ops::Range<usize>| self.rates[range].iter().map(|r| 1.0 / r.max(1e-300)).sum::<f64>();
        let shuffle = if cache { self.cached_shuffle.max(self.rates[2]) } else { self.rates[2] };
        let (write, read) = (if cache { 0.0 } else { seconds(0..2) }, 1.0 / shuffle.max(1e-300) + seconds(3..4));
        let bandwidth = if cache { f64::INFINITY } else { self.blocks[block].1 / self.bytes_per_minibatch.max(1e-9) };
        [
            (Limit::WriteThread, 1.0 / write),
            (Limit::ReadThread, 1.0 / read),
            (Limit::Cores, self.cores / (write + read)),
            (Limit::Bandwidth, bandwidth),
        ]
    }

    fn limit(&self, block: usize, cache: bool) -> Limit {
        let bounds = self.bounds(block, cache);
        bounds.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(Limit::ReadThread, |(limit, _)| *limit)
    }

    /// How many times the throughput `now` of the solution would be with one core more, twice the memory,
    /// twice the bandwidth.
    pub fn what_if(&self, now: f64) -> Result<[f64; 3]> {
        let twice = |blocks: &[(f64, f64)]| blocks.iter().map(|(b, bw)| (*b, bw * 2.0)).collect();
        let core = Problem { cores: self.cores + 1.0, ..self.clone() };
        let memory = Problem { memory: self.memory * 2.0, ..self.clone() };
        let bandwidth = Problem { blocks: twice(&self.blocks), ..self.clone() };
        Ok([core.most()?.0 / now, memory.most()?.0 / now, bandwidth.most()?.0 / now])
    }
}

/// What a training's trace says: kept with the model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tuning {
    /// Minibatches per second that the model predicts for the last epoch, from the rates of one before it.
    pub predicted: f64,
    /// Minibatches per second of the last epoch.
    pub measured: f64,
    /// What held it down.
    pub limit: Limit,
    /// The best the linear program finds with these resources, and whether with a cache.
    pub best: f64,
    /// See `best`.
    pub best_with_cache: bool,
    /// How many times `best` with one core more, twice the memory, twice the bandwidth.
    pub what_if: [f64; 3],
    /// What was planned before, where the table was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
}

/// Resources that a training had.
#[derive(Debug, Clone, Copy)]
pub struct Resources {
    /// Cores.
    pub cores: f64,
    /// Bytes for buffers and cache.
    pub memory: f64,
    /// Bytes of a buffer, and of a block.
    pub buffer: f64,
    /// See `buffer`.
    pub block: f64,
}

/// Judges a training by its trace; `None` if there is nothing to judge by. Where there was a plan, what it
/// expected is the prediction.
pub fn judge(trace: &[EpochTrace], have: Resources, plan: Option<Plan>) -> Option<Tuning> {
    let last = trace.last()?;
    // The last epoch is predicted from one before it that read the table, if there is one.
    let reads = |epoch: &&EpochTrace| !epoch.cached && epoch.records[3].completions > 0;
    let before = trace[..trace.len() - 1].iter().rev().find(reads);
    let read = before.or(Some(last).filter(reads))?;
    let found = rates(read);
    let mut each = found.map(|rate| rate.rate);
    // Shuffling and training over a cache are not what they are over a buffer that was just filled.
    if last.cached {
        let late = rates(last);
        (each[2], each[3]) = (late[2].rate, late[3].rate);
    }
    let scan = read.records[0];
    // Pages from outside of shared buffers: their bandwidth as it was seen, if it was measured.
    let bandwidth = if scan.io_ns > 0 && scan.pages_read * 10 > scan.pages_hit {
        scan.bytes as f64 / (scan.io_ns as f64 * 1e-9)
    } else {
        f64::INFINITY
    };
    let problem = Problem {
        rates: each,
        cached_shuffle: each[2],
        bytes_per_minibatch: found[0].bytes,
        cores: have.cores,
        memory: have.memory,
        cache_bytes: read.records[1].bytes as f64,
        blocks: vec![(have.block.max(1.0), bandwidth)],
        blocks_per_buffer: 1.0,
        buffer: (have.buffer.min(have.memory / 2.0), have.memory),
        cache: None,
    };
    let (limit, predicted) = problem.bounds(0, last.cached).into_iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let best = problem.solve().ok()?;
    let measured = last.records[3].completions as f64 / (last.wall_ns.max(1) as f64 * 1e-9);
    let sane = |x: f64| x.is_finite();
    let plan = plan.filter(Plan::is_finite);
    let tuning = Tuning {
        predicted: plan.map_or(predicted, |plan| if last.cached { plan.throughput } else { plan.reading }),
        plan,
        measured,
        limit,
        best: best.throughput,
        best_with_cache: best.cache,
        what_if: problem.what_if(best.throughput).ok()?,
    };
    let all = [tuning.predicted, tuning.measured, tuning.best].into_iter().chain(tuning.what_if).all(sane);
    all.then_some(tuning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn problem() -> Problem {
        Problem {
            rates: [20e6, 15e6, 100e6, 40e6],
            cached_shuffle: 100e6,
            bytes_per_minibatch: 170.0,
            cores: 2.0,
            memory: 256e6,
            cache_bytes: 1e9,
            blocks: vec![(8e3, 10e6), (64e3, 60e6), (1e6, 120e6), (10e6, 140e6)],
            blocks_per_buffer: 10.0,
            buffer: (1e6, 1e9),
            cache: None,
        }
    }

    #[test]
    fn rates_follow_the_recurrence() {
        let mut trace = EpochTrace::default();
        // 1,000 tuples scanned, 800 pass a filter; minibatches of 8.
        for (record, (completions, cpu_ms, bytes)) in
            trace.records.iter_mut().zip([(1000, 4, 8000), (800, 2, 3200), (800, 1, 3200), (100, 5, 0)])
        {
            *record = Record { completions, bytes, cpu_ns: cpu_ms * 1_000_000, ..Record::default() };
        }
        let found = rates(&trace);
        assert_eq!(found.map(|r| r.visit_ratio), [10.0, 8.0, 8.0, 1.0]);
        // 100 minibatches in 4, 2, 1 and 5 ms of CPU.
        for (rate, expected) in found.iter().zip([25_000.0, 50_000.0, 100_000.0, 20_000.0]) {
            assert!((rate.rate - expected).abs() < 1e-6, "{rate:?}");
        }
        assert_eq!(found[0].bytes, 80.0);
    }

    #[test]
    fn the_disk_binds_and_more_bandwidth_helps() {
        // 140 MB/s / 170 bytes: 0.82 million a second, far below what the processor could do.
        let choice = problem().solve().expect("feasible");
        assert!((choice.throughput - 140e6 / 170.0).abs() < 1.0, "{choice:?}");
        assert_eq!((choice.limit, choice.cache, choice.block), (Limit::Bandwidth, false, 10e6));
        assert!(choice.buffer >= 100e6 && choice.buffer <= 128e6);
        let [core, memory, bandwidth] = problem().what_if(choice.throughput).expect("feasible");
        assert!((core - 1.0).abs() < 1e-6 && (memory - 1.0).abs() < 1e-6 && (bandwidth - 2.0).abs() < 1e-6);
    }

    #[test]
    fn a_cache_that_fits_frees_from_disk_and_decoding() {
        let problem = Problem { cache_bytes: 100e6, ..problem() };
        let choice = problem.solve().expect("feasible");
        // 1 / (1/100e6 + 1/40e6).
        assert!(choice.cache && (choice.throughput - 28.571e6).abs() < 1e4, "{choice:?}");
        assert_eq!(choice.limit, Limit::ReadThread);
        // With the table in memory and no room for a cache the write thread binds: 1 / (1/20e6 + 1/15e6).
        let problem = Problem { blocks: vec![(64e3, f64::INFINITY)], ..self::problem() };
        let choice = problem.solve().expect("feasible");
        assert!((choice.throughput - 8.571e6).abs() < 1e4, "{choice:?}");
        assert_eq!(choice.limit, Limit::WriteThread);
        assert!(
            choice.theta[0] + choice.theta[1] <= 1.0 + 1e-6 && choice.theta[0] > 0.4 && choice.theta[1] > 0.5,
            "{choice:?}"
        );
    }

    #[test]
    fn too_little_memory_is_an_error() {
        assert!(Problem { memory: 1e6, ..problem() }.solve().is_err());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn nothing_beats_the_solution(
            rates in prop::array::uniform4(1e5f64..1e8), bytes in 20f64..2000.0, cores in 1f64..4.0, memory in 2e7f64..5e8,
            cache in 1e6f64..1e9, cached_shuffle in 1e5f64..1e8, bandwidths in prop::collection::vec(1e7f64..1e9, 1..5),
        ) {
            let mut blocks: Vec<(f64, f64)> = bandwidths.iter().enumerate().map(|(i, bw)| (8e3 * 12f64.powi(i as i32), *bw)).collect();
            blocks.sort_by(|a, b| a.0.total_cmp(&b.0));
            let problem = Problem {
                rates, cached_shuffle, bytes_per_minibatch: bytes, cores, memory, cache_bytes: cache, blocks, blocks_per_buffer: 10.0,
                buffer: (1e5, 1e9), cache: None,
            };
            // Brute force: every block size and cache decision in closed form.
            let fits = |block: f64, y: bool| {
                2.0 * (10.0 * block).max(problem.buffer.0) + if y { cache } else { 0.0 } <= memory
            };
            let rate = |i: usize, y: bool| problem.bounds(i, y).iter().map(|b| b.1).fold(f64::INFINITY, f64::min);
            let all = || (0..problem.blocks.len()).flat_map(|i| [(i, false), (i, true)]);
            let possible = || all().filter(|(i, y)| fits(problem.blocks[*i].0, *y));
            let best = possible().map(|(i, y)| rate(i, y)).max_by(f64::total_cmp);
            match (best, problem.solve()) {
                (None, found) => prop_assert!(found.is_err()),
                (Some(best), Ok(found)) => {
                    let (most, _, cached) = problem.most().expect("feasible");
                    prop_assert!((most - best).abs() <= 1e-4 * best, "found {most}, best {best}");
                    prop_assert!(found.throughput >= (1.0 - SLACK - 1e-4) * best, "found {found:?}, best {best}");
                    prop_assert_eq!(cached, found.cache);
                    let used = 2.0 * found.buffer + if found.cache { cache } else { 0.0 };
                    prop_assert!(used <= memory * (1.0 + 1e-6), "{used} of {memory}");
                    // No smaller block reads as fast.
                    let reads = || possible().filter(|(_, y)| *y == cached).map(|(i, _)| (problem.blocks[i].0, rate(i, false)));
                    let fastest = reads().map(|(_, x)| x).fold(0.0, f64::max);
                    let smallest = reads().filter(|(_, x)| *x >= fastest * (1.0 - SLACK + 1e-4)).map(|(b, _)| b).fold(f64::INFINITY, f64::min);
                    prop_assert!(found.block <= smallest * (1.0 + 1e-9), "{found:?}, {smallest} would do");
                }
                (Some(best), Err(e)) => prop_assert!(false, "{e}, but {best} is possible"),
            }
        }
    }
}
