//! SGD: trains by pulling buffers from TupleShuffle, one ReScan an epoch, and returns one row that
//! holds the model.

use super::block_shuffle::BlockShuffle;
use super::read_thread::{Batch, Compute, ComputeTime, EpochDone, PassDone, ReadThread};
use super::tuple_shuffle::{Filled, TupleShuffle};
use super::warm_start::WarmStart;
use super::{auto_shuffle, survey};
use crate::error;
use crate::guc::{self, Settings};
use crate::pg::explain::{Explainer, pretty_bytes};
use crate::pg::node::{self, CustomNode, Methods, Node, exec_methods, scan_methods};
use crate::pg::progress::{Phase, Progress};
use crate::pg::{list, memory, types};
use corgipile_core::advice::{Given, Plan, Survey};
use corgipile_core::blocks::{self, BlockLayout};
use corgipile_core::cache::{Cache, Pass};
use corgipile_core::clustering::Verdict;
use corgipile_core::exchange::Wait;
use corgipile_core::labels::{LabelCoder, Meaning};
use corgipile_core::loss::Loss;
use corgipile_core::model::{Header, Model};
use corgipile_core::params::{ClassWeight, Params, Schedule, Shuffle};
use corgipile_core::plumber::{self, EpochTrace, Operator, Record, Resources};
use corgipile_core::trainer::{EpochReport, Measured, StopReason, Trained, Trainer};
use corgipile_core::tuples::{Density, TupleBuffer};
use corgipile_core::weights::Rows;
use corgipile_core::{Error, Result};
use pgrx::{FromDatum, JsonB, PgLogLevel, PgSqlErrorCode, check_for_interrupts, ereport, pg_sys};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// A look before a training takes no longer, and for advice.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_FOR_ADVICE: Duration = Duration::from_millis(200);
/// Tables smaller than this fit into one buffer, and need no look.
const LEAST_SURVEYED: u64 = blocks::MIN_BUFFER_BYTES as u64;

/// What a look at the table showed and what would be done: for corgipile.advise.
pub struct Advice {
    /// The look.
    pub survey: Survey,
    /// The plan.
    pub plan: Plan,
    /// Parameters with what was chosen.
    pub params: Params,
    /// Why the order of visits was chosen.
    pub reason: Option<String>,
    /// Memory that there is, in bytes.
    pub memory: usize,
}

thread_local! {
    /// Handed from the node to the function that ran the query.
    static ADVICE: RefCell<Option<Advice>> = const { RefCell::new(None) };
}

/// Takes what the last query with the option `advise` has found.
pub fn take_advice() -> Option<Advice> {
    ADVICE.take()
}

/// A wait on the read thread never lasts longer without a look at the interrupts.
const TICK: Duration = Duration::from_millis(10);
/// Part of the memory limit that the buffers may take; the rest is for weights and the model.
const BUFFER_PERCENT: usize = 90;
/// Epochs whose trace is kept with the model.
const MOST_TRACED: usize = 50;

/// State of the node.
pub struct Sgd {
    shuffle: *mut Node<TupleShuffle>,
    settings: Settings,
    params: Option<Params>,
    done: bool,
    /// Owned here so that it is joined when the state is dropped, whatever ends the query.
    thread: Option<ReadThread>,
    outcome: Outcome,
    model: pg_sys::Datum,
}

/// What EXPLAIN ANALYZE and the model's header say of the run.
#[derive(Default)]
struct Outcome {
    history: Vec<EpochReport>,
    last: Option<EpochDone>,
    measured: Option<Measured>,
    loss_name: Option<&'static str>,
    /// The choice of the order of visits, where it was left open.
    verdict: Option<Verdict>,
    /// Sizes and cache by a look at the table, and what is expected of them.
    plan: Option<Plan>,
    wait_ns: u64,
    restarts: u32,
    rows: u64,
    weight_bytes: usize,
    /// Tuples and bytes of the cache.
    cached: Option<(usize, usize)>,
    /// What each operator did, of the first epochs.
    trace: Vec<EpochTrace>,
    /// Compute time, waiting and wall time when the last epoch ended, in nanoseconds.
    before: (ComputeTime, u64, u64),
    buffer_bytes: usize,
    blocks_per_buffer: f64,
    asynchronous: bool,
}

/// Training without a second thread: one buffer, filled and trained on in turn.
struct Inline {
    compute: Compute,
    buffer: Option<Batch>,
}

/// How an attempt at training ended.
enum Attempt {
    /// With a model.
    Model(pg_sys::Datum),
    /// There was nothing to train on.
    Empty,
    /// The target is a quantity, or of many classes, and tuples were trained on as of two.
    Restart,
}

/// Sizes in force.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    buffer_bytes: usize,
    pages_per_block: u32,
    /// Memory of a full shuffle's sort; 0: none.
    sort_kilobytes: i32,
}

pub static SCAN_METHODS: Methods<pg_sys::CustomScanMethods> = Methods(scan_methods::<Sgd>());
static EXEC_METHODS: Methods<pg_sys::CustomExecMethods> = Methods(exec_methods::<Sgd>(exec));

/// Memory for buffers and a cache, the most for one buffer, and for a sort, in bytes.
fn shares(settings: &Settings, params: &Params) -> (usize, usize, usize) {
    let most = settings.memory_limit / 100 * BUFFER_PERCENT;
    // A sort takes half; what a window carries from buffer to buffer takes less than one more buffer.
    let (most, sort) = if params.shuffle.sorts() { (most / 2, most / 2) } else { (most, 0) };
    (most, most / (settings.buffers() + usize::from(params.shuffle.parts() > 1)), sort)
}

/// Block and buffer sizes under the memory limit: explicit ones are kept or refused, never changed; others
/// are as planned, or by the size of the table.
fn choose_sizes(
    settings: &Settings,
    params: &Params,
    table: Option<&BlockLayout>,
    plan: Option<&Plan>,
) -> Result<Sizes> {
    let page = pg_sys::BLCKSZ as usize;
    let buffers = settings.buffers();
    let (_, cap, sort) = shares(settings, params);
    let table_bytes = table.map_or(usize::MAX, |layout| layout.pages() as usize * page);
    let buffer_bytes = match (params.buffer_size.or(settings.buffer_size), plan) {
        (Some(bytes), _) if bytes > cap => {
            let what = format!("{buffers} buffers of {}", pretty_bytes(bytes));
            return Err(Error::MemoryLimit { what, needed: bytes * buffers, limit: cap * buffers });
        }
        (Some(bytes), _) => bytes,
        (None, Some(plan)) => (plan.buffer as usize).min(cap),
        (None, None) => blocks::auto_buffer_bytes(table_bytes, cap),
    };
    let pages_per_block = match (params.block_size, plan) {
        (Some(bytes), _) if bytes > buffer_bytes => {
            let what = format!("a block of {} in a buffer of {}", pretty_bytes(bytes), pretty_bytes(buffer_bytes));
            return Err(Error::MemoryLimit { what, needed: bytes, limit: buffer_bytes });
        }
        (Some(bytes), _) => (bytes / page).max(1) as u32,
        (None, Some(plan)) => (plan.block as usize / page).max(1) as u32,
        (None, None) => {
            let most = (settings.block_size / page).max(1) as u32;
            blocks::auto_pages_per_block(table_bytes, buffer_bytes, page).min(most)
        }
    };
    Ok(Sizes { buffer_bytes, pages_per_block, sort_kilobytes: (sort / 1024).min(i32::MAX as usize) as i32 })
}

/// Whether decoded tuples can be kept: where there are later epochs to read them, or that was asked for.
fn may_cache(params: &Params) -> bool {
    params.shuffle.caches()
        && params.cache != Some(false)
        && (params.max_epochs > 1 || params.final_loss || params.cache == Some(true))
}

/// Asks again and again, looking for interrupts; `None` once the read thread is gone.
fn wait<T>(mut ask: impl FnMut(Duration) -> Wait<T>) -> Option<T> {
    loop {
        match ask(TICK) {
            Wait::Ready(value) => return Some(value),
            Wait::Gone => return None,
            Wait::NotYet => {
                check_for_interrupts!();
            }
        }
    }
}

/// The weights that the user gave, by class number; empty for none. When all classes are known
/// (`complete`), a weight for a class that does not occur is an error.
pub fn class_weights(params: &Params, coder: &LabelCoder, target_type: pg_sys::Oid, complete: bool) -> Vec<f32> {
    if params.class_weight.is_some() && coder.meaning() == Meaning::Numbers {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            "class_weight has no effect on a target that is a quantity",
            Some("Name a loss for classes, or leave class_weight out."),
        );
    }
    let Some(ClassWeight::Each(given)) = &params.class_weight else { return Vec::new() };
    let classes: Vec<String> = coder.classes().iter().map(|class| types::class_text(class, target_type)).collect();
    if let (true, Some(unknown)) = (complete, given.keys().find(|class| !classes.contains(class))) {
        let mut shown = classes.clone();
        shown.sort();
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("class \"{unknown}\" of class_weight does not occur"),
            Some(&format!("The classes are: {}.", shown.join(", "))),
        );
    }
    classes.iter().map(|class| given.get(class).copied().unwrap_or(1.0) as f32).collect()
}

/// The header of a finished model; names, sizes and times are left to be filled in.
pub fn header(trained: &Trained, coder: &LabelCoder, target_type: pg_sys::Oid, density: Density) -> Header {
    let Trained { trainer, history, stop, measured } = trained;
    let classes = coder.sorted_classes();
    Header {
        loss: trainer.loss(),
        n_features: trainer.features(),
        sparse: density == Density::Sparse,
        target: String::new(),
        // Not a domain: its checks are not the reader's to run.
        target_type: types::type_name(types::base_type(target_type)),
        features: Vec::new(),
        classes: classes.iter().map(|class| types::class_text(class, target_type)).collect(),
        params: trainer.params_in_force(),
        encoding: None,
        vectors: false,
        weight: None,
        measured: *measured,
        rows: history.last().map_or(0, |report| report.rows),
        rows_skipped: 0,
        rows_held_out: 0,
        constant_columns: trainer.constant_columns(),
        history: history.clone(),
        stop: *stop,
        clustering: None,
        shuffle_reason: None,
        blocks: 0,
        blocks_per_buffer: 0.0,
        trace: Vec::new(),
        tuning: None,
        cache_bytes: 0,
        peak_memory: 0,
        duration_ms: 0.0,
    }
}

/// The model as a datum in the current memory context.
pub fn model_datum(mut trainer: Trainer, coder: &LabelCoder, header: Header) -> Result<pg_sys::Datum> {
    let rows = trainer.finish(coder.is_flipped())?;
    let order = if header.loss == Loss::Softmax { coder.sorted_numbers() } else { vec![0] };
    let length = (rows.features + 1) * order.len();
    let mut weights: Vec<f32> = Vec::new();
    weights.try_reserve_exact(length).map_err(|_| Error::OutOfMemory { bytes: length * 4, purpose: "the model" })?;
    for k in order {
        weights.extend_from_slice(&rows.weights[k * rows.features..(k + 1) * rows.features]);
        weights.push(rows.intercepts[k]);
    }
    let bytes = Model { header, weights: weights.into() }.encode()?;
    types::varlena_datum(&bytes).ok_or(Error::OutOfMemory { bytes: bytes.len(), purpose: "the model" })
}

impl Sgd {
    /// Reads the options, once, and sets the nodes below.
    unsafe fn prepare(node: *mut Node<Self>, evaluate: bool) {
        // SAFETY: a begun node; the options are the first of the plan's expressions.
        unsafe {
            if (*node).state.params.is_none() {
                let plan = (*node).css.ss.ps.plan.cast::<pg_sys::CustomScan>();
                let exprs = list::pointers::<pg_sys::Expr>((*plan).custom_exprs);
                let options = match exprs.first() {
                    None => None,
                    Some(expr) if (**expr).type_ == pg_sys::NodeTag::T_Const => {
                        let constant = expr.cast::<pg_sys::Const>();
                        JsonB::from_datum((*constant).constvalue, (*constant).constisnull)
                    }
                    Some(expr) if evaluate => {
                        let state = pg_sys::ExecInitExpr(*expr, &raw mut (*node).css.ss.ps);
                        let mut null = false;
                        let econtext = (*node).css.ss.ps.ps_ExprContext;
                        let datum = pg_sys::ExecEvalExprSwitchContext(state, econtext, &mut null);
                        JsonB::from_datum(datum, null)
                    }
                    Some(_) => return,
                };
                (*node).state.params = Some(parse_options(options.as_ref()));
            }
            let state = &mut (*node).state;
            let Some(params) = &state.params else { return };
            let blocks = TupleShuffle::block_shuffle(state.shuffle);
            let table = blocks.map(|blocks| (*blocks).state.layout());
            let sizes = choose_sizes(&state.settings, params, table, state.outcome.plan.as_ref())
                .unwrap_or_else(|e| error::raise(e));
            if let Some(blocks) = blocks {
                BlockShuffle::configure(blocks, sizes.pages_per_block, params.shuffle.blocks(), params.seed);
            }
            let every_epoch = params.shuffle == Shuffle::Epoch;
            (*state.shuffle).state.sort_by_random_keys(sizes.sort_kilobytes, every_epoch, params.seed);
            (*state.shuffle).state.describe(sizes.buffer_bytes, state.settings.buffers(), params.shuffle.tuples());
            state.outcome.buffer_bytes = sizes.buffer_bytes;
        }
    }

    /// Trains; `None` for an empty input.
    unsafe fn run(node: *mut Node<Self>) -> Option<pg_sys::Datum> {
        // SAFETY: a begun node; SGD and TupleShuffle are different allocations, and each state is
        // borrowed for the length of one call only.
        unsafe {
            let started = Instant::now();
            // TupleShuffle is not called through ExecProcNode, which would do this: parameters of an
            // outer query have changed, and the input must begin anew with them.
            let shuffle = (*node).state.shuffle;
            if !(*shuffle).css.ss.ps.chgParam.is_null() {
                pg_sys::ExecReScan(shuffle.cast());
            }
            Self::prepare(node, true);
            let params = (*node).state.params.clone().unwrap_or_default();
            let blocks = TupleShuffle::block_shuffle(shuffle);
            let relation = blocks.map_or(pg_sys::InvalidOid, |blocks| (*(*blocks).css.ss.ss_currentRelation).rd_id);
            let count = blocks.map_or(0, |blocks| (*blocks).state.layout().blocks());
            let _shown = Progress::start(relation, params.max_epochs, count);
            let warm = WarmStart::find(&params, (*shuffle).state.target_type);
            if let Some(warm) = &warm {
                warm.check_names(&(*shuffle).state.names().features);
            }
            let mut coder = warm.as_ref().map(WarmStart::coder);
            if params.shuffle == Shuffle::Auto {
                Progress::phase(Phase::Sampling, 0);
                let verdict = auto_shuffle::choose(shuffle, &params, &mut coder);
                (*node).state.outcome.verdict = Some(verdict);
                (*node).state.params = Some(Params { shuffle: verdict.shuffle, ..params });
                Self::prepare(node, true);
            }
            let params = (*node).state.params.clone().unwrap_or_default();
            (*node).state.outcome.plan = Self::look(node, &params, coder.as_ref());
            if params.advise {
                return None;
            }
            Self::prepare(node, true);
            Progress::blocks(blocks.map_or(0, |blocks| (*blocks).state.layout().blocks()));
            loop {
                let density = TupleShuffle::start(shuffle, &params, coder.take())?;
                let initial = warm.as_ref().map(|warm| warm.rows(density));
                match Self::attempt(node, &params, density, initial, started) {
                    Attempt::Model(datum) => return Some(datum),
                    Attempt::Empty => return None,
                    Attempt::Restart => {
                        // The target is not what its first values looked like: begin anew, now knowing it.
                        (*node).state.thread = None;
                        (*node).state.outcome.restarts += 1;
                        (*node).state.outcome.history.clear();
                        (*node).state.outcome.cached = None;
                        coder = (*shuffle).state.coder().cloned();
                        TupleShuffle::reset(shuffle);
                        pg_sys::ExecReScan(shuffle.cast());
                        Self::prepare(node, true);
                    }
                }
            }
        }
    }

    /// Looks at a part of a table that is not small, and plans; for advice also at a small one.
    unsafe fn look(node: *mut Node<Self>, params: &Params, coder: Option<&LabelCoder>) -> Option<Plan> {
        // SAFETY: as for `run`.
        unsafe {
            let shuffle = (*node).state.shuffle;
            let settings = (*node).state.settings;
            let blocks = TupleShuffle::block_shuffle(shuffle)?;
            let open = params.block_size.is_none()
                || params.buffer_size.or(settings.buffer_size).is_none()
                || params.cache.is_none();
            let wanted = params.advise || (open && BlockShuffle::table_bytes(blocks) >= LEAST_SURVEYED);
            if !wanted {
                return None;
            }
            Progress::phase(Phase::Sampling, 0);
            let (memory, most_buffer, _) = shares(&settings, params);
            let budget = if params.advise { LOOK_FOR_ADVICE } else { LOOK };
            let survey = survey::survey(shuffle, params, settings.memory_limit, budget, coder)?;
            let given = Given {
                page: pg_sys::BLCKSZ as usize,
                memory,
                buffers: settings.buffers(),
                most_buffer,
                block: params.block_size,
                buffer: params.buffer_size.or(settings.buffer_size),
                most_block: settings.block_size,
                cache: if may_cache(params) { params.cache } else { Some(false) },
                cores: cores(),
            };
            let plan = match survey.plan(&given) {
                Ok(plan) => plan,
                Err(e) if params.advise => error::raise(e),
                // What does not fit is refused where its exact size is known.
                Err(_) => return None,
            };
            if params.advise {
                let reason = (*node).state.outcome.verdict.map(auto_shuffle::reason);
                let advice = Advice { survey, plan, params: params.clone(), reason, memory };
                ADVICE.set(Some(advice));
            }
            Some(plan)
        }
    }

    /// One training.
    unsafe fn attempt(
        node: *mut Node<Self>,
        params: &Params,
        density: Density,
        initial: Option<&Rows>,
        started: Instant,
    ) -> Attempt {
        // SAFETY: as for `run`.
        unsafe {
            let shuffle = (*node).state.shuffle;
            let settings = (*node).state.settings;
            let buffer_bytes = (*node).state.outcome.buffer_bytes;
            let left = settings.memory_limit.saturating_sub(settings.buffers() * buffer_bytes);
            // Weights while training, and the model built from them; beside them what is held out.
            let most = left / if params.eval_fraction > 0.0 { 48 } else { 24 };
            if let Density::Dense(dims) = density
                && dims > most
            {
                let what = format!("{dims} weights");
                error::raise(Error::MemoryLimit { what, needed: dims * 24, limit: most * 24 });
            }
            (*shuffle).state.limit_features(most);
            (*shuffle).state.trace(settings.trace);
            (*node).state.outcome.trace.clear();
            (*node).state.outcome.before =
                (ComputeTime::default(), (*node).state.outcome.wait_ns, started.elapsed().as_nanos() as u64);
            let loss = (*shuffle).state.coder().map_or(Loss::LogLoss, LabelCoder::loss);
            let weighted = (*shuffle).state.is_weighted();
            let batch = || {
                let tuples = TupleBuffer::new(density, buffer_bytes);
                let mut tuples = if weighted { tuples.with_weights() } else { tuples };
                tuples.reserve_all(memory::advise_huge_pages).unwrap_or_else(|e| error::raise(e));
                tuples.set_limit(buffer_bytes / params.shuffle.parts());
                Batch {
                    tuples,
                    epoch: 0,
                    fill: 0,
                    last: false,
                    loss,
                    classes: 2,
                    class_weights: Vec::new(),
                    measure: false,
                    part: 1.0,
                    starts: Vec::new(),
                    pass: None,
                }
            };
            let mut inline: Option<Inline> = None;
            let plan = (*node).state.outcome.plan;
            let cached = may_cache(params) && (params.cache == Some(true) || plan.is_none_or(|plan| plan.cache));
            // A little more than estimated; what is not enough grows.
            let expected = plan.map_or(left, |plan| (plan.decoded_bytes * 1.02) as usize + (1 << 20)).min(left);
            let compute = || {
                let mut compute = Compute::new(params.clone(), loss, density, left, initial.cloned());
                if cached {
                    let mut cache = Cache::new(density, weighted, left);
                    // In large pages if they can be had; if not, it grows as it is filled.
                    if let Err(e) = cache.reserve(expected, memory::advise_huge_pages) {
                        pgrx::debug1!("the cache of decoded tuples is not reserved: {e}");
                    }
                    compute.keep(cache);
                }
                compute
            };
            let blocks = TupleShuffle::block_shuffle(shuffle);
            if let (true, Some(blocks), false) = (cached, blocks, params.shuffle.sorts()) {
                (*shuffle).state.note_block_starts((*blocks).state.layout().blocks());
            }
            if settings.async_compute {
                match ReadThread::start(compute(), vec![batch(), batch()]) {
                    Ok(thread) => (*node).state.thread = Some(thread),
                    Err(e) => pgrx::debug1!("corgipile trains without a second thread: {e}"),
                }
            }
            (*node).state.outcome.asynchronous = (*node).state.thread.is_some();
            if (*node).state.thread.is_none() {
                inline = Some(Inline { compute: compute(), buffer: Some(batch()) });
            }
            let mut stop = StopReason::MaxEpochs;
            for epoch in 0..params.max_epochs {
                let in_cache = (*node).state.outcome.cached.is_some();
                if epoch > 0 && !in_cache {
                    pg_sys::ExecReScan(shuffle.cast());
                }
                Progress::phase(if in_cache { Phase::Cached } else { Phase::of_epoch(params.shuffle) }, epoch + 1);
                let pass = if in_cache {
                    Self::cached_pass(node, params, epoch, false, &mut inline)
                } else {
                    Self::pass(node, epoch, false, &mut inline)
                };
                let mut done = match pass {
                    None => return Attempt::Restart,
                    Some(PassDone::Epoch(done)) => done,
                    Some(PassDone::Measured(_)) => error::internal("an epoch did not train"),
                };
                if done.report.rows == 0 {
                    // Everything was left out for NULL.
                    (*node).state.thread = None;
                    return Attempt::Empty;
                }
                if (epoch, params.cache, done.cached) == (0, Some(true), None) {
                    error::raise(Error::MemoryLimit {
                        what: format!("all {} decoded tuples beside the buffers and the weights", done.report.rows),
                        needed: settings.memory_limit,
                        limit: left,
                    });
                }
                (*node).state.outcome.cached = done.cached;
                done.report.elapsed_ms = started.elapsed().as_secs_f64() * 1e3;
                if settings.trace {
                    Self::record(node, params, epoch, in_cache, &done, started);
                }
                Self::end_of_epoch(node, params, epoch, done);
                if done.converged {
                    stop = StopReason::Tolerance;
                    break;
                }
                if params.max_seconds > 0.0 && started.elapsed().as_secs_f64() >= params.max_seconds {
                    stop = StopReason::MaxSeconds;
                    break;
                }
            }
            if params.final_loss {
                let epoch = (*node).state.outcome.history.len() as u32;
                Progress::phase(Phase::Measuring, epoch);
                let pass = if (*node).state.outcome.cached.is_some() {
                    Self::cached_pass(node, params, epoch, true, &mut inline)
                } else {
                    pg_sys::ExecReScan(shuffle.cast());
                    Self::pass(node, epoch, true, &mut inline)
                };
                if let Some(PassDone::Measured(measured)) = pass {
                    (*node).state.outcome.measured = measured;
                }
            }
            let trainer = match (inline, (*node).state.thread.take()) {
                (Some(inline), _) => inline.compute.into_trainer(),
                (None, Some(thread)) => match thread.finish() {
                    Some(Ok(trainer)) => trainer,
                    Some(Err(e)) => error::raise(e),
                    None => error::internal("the read thread ended unexpectedly"),
                },
                (None, None) => error::internal("there is no trainer"),
            };
            Attempt::Model(Self::emit(node, trainer, density, stop, started))
        }
    }

    /// Runs one pass over the cache of the read thread, or of `inline`. Short ones are over before a wait
    /// looks for interrupts, and nothing else does: it is done here.
    unsafe fn cached_pass(
        node: *mut Node<Self>,
        params: &Params,
        epoch: u32,
        measure: bool,
        inline: &mut Option<Inline>,
    ) -> Option<PassDone> {
        // SAFETY: as for `run`.
        unsafe {
            let shuffle = (*node).state.shuffle;
            let order = match TupleShuffle::block_shuffle(shuffle) {
                Some(blocks) if !params.shuffle.sorts() => (*blocks).state.order_of(epoch),
                _ => vec![0],
            };
            check_for_interrupts!();
            let fill_bytes = (*node).state.outcome.buffer_bytes;
            let shuffled = params.shuffle.tuples() && !measure;
            let coder = (*shuffle).state.coder()?;
            let (loss, classes) = (coder.loss(), coder.class_count());
            let mut batch = match inline.as_mut().and_then(|inline| inline.buffer.take()) {
                Some(batch) => batch,
                None => Self::take_idle(node),
            };
            batch.tuples.clear();
            (batch.epoch, batch.last, batch.measure) = (epoch, true, measure);
            (batch.loss, batch.classes) = (loss, classes);
            batch.pass = Some(Pass { order, fill_bytes, shuffled, seed: params.seed, epoch });
            match Self::hand_over(node, batch, inline)? {
                Ok(done) => Some(done),
                Err(e) => error::raise(e),
            }
        }
    }

    /// Gives a batch to the read thread, or consumes it inline; the answer if it is the last of a pass.
    unsafe fn hand_over(
        node: *mut Node<Self>,
        mut batch: Batch,
        inline: &mut Option<Inline>,
    ) -> Option<Result<PassDone>> {
        // SAFETY: as for `run`.
        unsafe {
            let last = batch.last;
            match inline {
                Some(Inline { compute, buffer }) => {
                    let answer = compute.consume(&mut batch, || {
                        check_for_interrupts!();
                        true
                    });
                    *buffer = Some(batch);
                    answer.transpose()
                }
                None => {
                    if let Some(thread) = &(*node).state.thread {
                        thread.exchange().submit(batch);
                    }
                    last.then(|| Self::take_reply(node))
                }
            }
        }
    }

    /// Runs one pass over the child, an epoch or a measurement; `None` when training must begin anew.
    unsafe fn pass(node: *mut Node<Self>, epoch: u32, measure: bool, inline: &mut Option<Inline>) -> Option<PassDone> {
        // SAFETY: as for `run`.
        unsafe {
            let shuffle = (*node).state.shuffle;
            let blocks = TupleShuffle::block_shuffle(shuffle);
            let blocks_before = blocks.map_or(0, |b| (*b).state.blocks_done());
            let mut fill = 0;
            loop {
                let mut batch = match inline.as_mut().and_then(|inline| inline.buffer.take()) {
                    Some(batch) => batch,
                    None => Self::take_idle(node),
                };
                batch.tuples.clear();
                let filled = TupleShuffle::fill(shuffle, &mut batch.tuples, epoch > 0 || fill > 0);
                if filled == Filled::Restart {
                    return None;
                }
                batch.epoch = epoch;
                batch.fill = fill;
                let last = filled == Filled::Last;
                batch.last = last;
                batch.measure = measure;
                batch.loss = (*shuffle).state.coder()?.loss();
                batch.classes = (*shuffle).state.coder()?.class_count();
                // All classes have been met when the first epoch ends.
                if let (0, Some(params)) = (epoch, &(*node).state.params) {
                    let coder = (*shuffle).state.coder()?;
                    batch.class_weights = class_weights(params, coder, (*shuffle).state.target_type, last);
                }
                fill += 1;
                let buffers = if (*node).state.outcome.asynchronous { 2 } else { 1 };
                (*shuffle).state.note_memory(batch.tuples.bytes_held(), buffers.min(fill as usize));
                if let (0, Some(b)) = (epoch, blocks) {
                    let done = (*b).state.blocks_done() - blocks_before;
                    if !last || fill == 1 {
                        (*node).state.outcome.blocks_per_buffer = done as f64 / f64::from(fill);
                    }
                }
                if last && epoch == 0 {
                    let rows = (*shuffle).state.epoch_rows();
                    if let Some(Err(e)) = (*shuffle).state.coder().map(|coder| coder.check_complete(rows)) {
                        error::raise(e);
                    }
                }
                if epoch == 0 {
                    let all = blocks.map_or(1.0, |b| f64::from((*b).state.layout().blocks().max(1)));
                    let done = blocks.map_or(1.0, |b| ((*b).state.blocks_done() - blocks_before) as f64);
                    batch.part = if last { 1.0 } else { (done / all).clamp(0.0, 1.0) };
                    if last {
                        batch.starts = Self::block_starts(shuffle, blocks);
                    }
                }
                match Self::hand_over(node, batch, inline) {
                    None => {}
                    Some(Ok(done)) => return Some(done),
                    Some(Err(e)) => error::raise(e),
                }
            }
        }
    }

    /// Numbers and first tuples of the blocks of the first epoch, in the order in which they were read.
    unsafe fn block_starts(
        shuffle: *mut Node<TupleShuffle>,
        blocks: Option<*mut Node<BlockShuffle>>,
    ) -> Vec<(u32, u32)> {
        // SAFETY: begun nodes.
        unsafe {
            let starts = (*shuffle).state.take_block_starts();
            let Some(blocks) = blocks else { return Vec::new() };
            let order = (*blocks).state.order_of(0);
            starts.into_iter().filter_map(|(number, start)| Some((*order.get(number as usize)?, start))).collect()
        }
    }

    /// An idle buffer, or the read thread's error.
    unsafe fn take_idle(node: *mut Node<Self>) -> Batch {
        // SAFETY: as for `run`; the exchange is not used while errors are raised.
        unsafe {
            let waiting = Instant::now();
            let taken = (*node).state.thread.as_ref().and_then(|thread| {
                let exchange = thread.exchange();
                match exchange.take_reply(Duration::ZERO) {
                    Wait::Ready(Err(e)) => Some(Err(e)),
                    _ => wait(|limit| exchange.take_idle(limit)).map(Ok),
                }
            });
            (*node).state.outcome.wait_ns += waiting.elapsed().as_nanos() as u64;
            match taken {
                Some(Ok(batch)) => batch,
                Some(Err(e)) => Self::thread_failed(node, Some(e)),
                None => Self::thread_failed(node, None),
            }
        }
    }

    /// The read thread's answer to a pass.
    unsafe fn take_reply(node: *mut Node<Self>) -> Result<PassDone> {
        // SAFETY: as for `run`.
        unsafe {
            let waiting = Instant::now();
            let thread = (*node).state.thread.as_ref();
            let reply = thread.and_then(|thread| wait(|limit| thread.exchange().take_reply(limit)));
            (*node).state.outcome.wait_ns += waiting.elapsed().as_nanos() as u64;
            match reply {
                Some(reply) => reply,
                None => Self::thread_failed(node, None),
            }
        }
    }

    /// Joins the thread and raises its error.
    unsafe fn thread_failed(node: *mut Node<Self>, known: Option<Error>) -> ! {
        // SAFETY: as for `run`.
        let thread = unsafe { (*node).state.thread.take() };
        let reply = thread.as_ref().and_then(|thread| match thread.exchange().take_reply(Duration::ZERO) {
            Wait::Ready(Err(e)) => Some(e),
            _ => None,
        });
        drop(thread);
        match known.or(reply) {
            Some(e) => error::raise(e),
            None => error::internal("the read thread ended unexpectedly"),
        }
    }

    /// Notes what each operator did in an epoch.
    unsafe fn record(
        node: *mut Node<Self>,
        params: &Params,
        epoch: u32,
        cached: bool,
        done: &EpochDone,
        started: Instant,
    ) {
        // SAFETY: as for `run`.
        let [mut scan, decode] = unsafe { (*(*node).state.shuffle).state.take_records() };
        // SAFETY: as for `run`.
        let outcome = unsafe { &mut (*node).state.outcome };
        let wall = started.elapsed().as_nanos() as u64;
        let (time, waited, wall_before) = std::mem::replace(&mut outcome.before, (done.time, outcome.wait_ns, wall));
        if outcome.trace.len() >= MOST_TRACED {
            return;
        }
        scan.blocked_ns = outcome.wait_ns - waited;
        let wall_ns = wall - wall_before;
        let root = done.report.rows.div_ceil(u64::from(params.batch_size));
        let shuffle = Record {
            completions: done.report.rows,
            bytes: decode.bytes,
            cpu_ns: done.time.shuffle_ns - time.shuffle_ns,
            wall_ns,
            ..Record::default()
        };
        let sgd = Record {
            completions: root,
            cpu_ns: done.time.sgd_ns - time.sgd_ns,
            wall_ns,
            blocked_ns: done.time.wait_ns - time.wait_ns,
            ..Record::default()
        };
        outcome.trace.push(EpochTrace { epoch: epoch + 1, cached, wall_ns, records: [scan, decode, shuffle, sgd] });
    }

    /// Checks the counts of an epoch, and notes and tells how it went.
    unsafe fn end_of_epoch(node: *mut Node<Self>, params: &Params, epoch: u32, done: EpochDone) {
        // SAFETY: as for `run`.
        unsafe {
            let shuffle = &(*(*node).state.shuffle).state;
            let expected = shuffle.epoch_rows();
            if done.report.rows != expected && params.shuffle != Shuffle::Mrs {
                error::internal(&format!("epoch {} trained on {} of {expected} tuples", epoch + 1, done.report.rows));
            }
            let outcome = &mut (*node).state.outcome;
            Progress::loss(done.report.loss);
            Progress::done(0, outcome.rows + done.report.rows);
            outcome.history.push(done.report);
            outcome.rows += done.report.rows;
            outcome.last = Some(done);
            outcome.weight_bytes = done.weight_bytes;
            outcome.loss_name = shuffle.coder().map(|coder| coder.loss().name());
            if params.verbose {
                let EpochReport { loss, accuracy, eval, learning_rate, rows, diverged, .. } = done.report;
                let diverged = if diverged { " (diverged: back to the epoch before, with half the rate)" } else { "" };
                let loss = loss.map(|loss| format!("loss {loss:.6}")).unwrap_or_else(|| "no loss".into());
                let percent = |a: Option<f64>| a.map(|a| format!(", accuracy {a:.5}")).unwrap_or_default();
                let accuracy = percent(accuracy);
                let eval = eval
                    .map(|eval| format!(", held out: loss {:.6}{}", eval.loss, percent(eval.accuracy)))
                    .unwrap_or_default();
                ereport!(
                    PgLogLevel::NOTICE,
                    PgSqlErrorCode::ERRCODE_SUCCESSFUL_COMPLETION,
                    format!(
                        "epoch {} of {}: {loss}{accuracy}{eval}, learning rate {learning_rate:.3e}, {rows} tuples{diverged}",
                        epoch + 1,
                        params.max_epochs
                    )
                );
            }
        }
    }

    /// Builds the model's datum in the query's memory context.
    unsafe fn emit(
        node: *mut Node<Self>,
        trainer: Trainer,
        density: Density,
        stop: StopReason,
        started: Instant,
    ) -> pg_sys::Datum {
        // SAFETY: as for `run`.
        unsafe {
            let shuffle = (*node).state.shuffle;
            let state = &(*shuffle).state;
            let Some(coder) = state.coder() else { error::internal("there is no target") };
            let outcome = &(*node).state.outcome;
            let blocks = TupleShuffle::block_shuffle(shuffle).map(|b| (*b).state.layout());
            let (history, measured) = (outcome.history.clone(), outcome.measured);
            let trained = Trained { trainer, history, stop, measured };
            let mut header = header(&trained, coder, state.target_type, density);
            header.params.buffer_size = Some(outcome.buffer_bytes);
            header.params.block_size = blocks.map(|b| b.pages_per_block() as usize * pg_sys::BLCKSZ as usize);
            header.target = state.names().target.clone();
            header.features = state.names().features.clone();
            header.weight = state.names().weight.clone();
            header.rows_held_out = state.held_out();
            header.clustering = outcome.verdict.and_then(|verdict| verdict.factor);
            header.shuffle_reason = outcome.verdict.map(auto_shuffle::reason);
            header.rows_skipped = state.epoch_skipped();
            header.blocks = blocks.map_or(0, |b| b.blocks());
            header.blocks_per_buffer = outcome.blocks_per_buffer;
            header.trace = outcome.trace.clone();
            let settings = &(*node).state.settings;
            header.tuning = plumber::judge(
                &outcome.trace,
                Resources {
                    cores: cores(),
                    memory: settings.memory_limit.saturating_sub(outcome.weight_bytes) as f64,
                    buffer: outcome.buffer_bytes as f64,
                    block: blocks.map_or(0.0, |b| f64::from(b.pages_per_block()) * f64::from(pg_sys::BLCKSZ)),
                },
                outcome.plan,
            );
            let cache_bytes = outcome.cached.map_or(0, |(_, bytes)| bytes);
            header.cache_bytes = cache_bytes as u64;
            header.peak_memory = (state.peak_bytes() + outcome.weight_bytes + cache_bytes) as u64;
            header.duration_ms = started.elapsed().as_secs_f64() * 1e3;
            let old = pg_sys::MemoryContextSwitchTo((*(*node).css.ss.ps.state).es_query_cxt);
            let datum = model_datum(trained.trainer, coder, header);
            pg_sys::MemoryContextSwitchTo(old);
            datum.unwrap_or_else(|e| error::raise(e))
        }
    }
}

/// The plan, and the records of the last epoch that was traced.
fn explain_trace(out: &Explainer, outcome: &Outcome) {
    if let Some(plan) = &outcome.plan {
        let cache = if plan.cache { "cache" } else { "no cache" };
        let (reading, later) = (plan.reading / 1e6, plan.throughput / 1e6);
        let text =
            format!("{cache}, {reading:.2} then {later:.2} million minibatches/s, held down by {}", plan.limit.words());
        out.text("Planned", &text);
    }
    let Some(epoch) = outcome.trace.last() else { return };
    for (operator, (record, rate)) in Operator::ALL.iter().zip(epoch.records.iter().zip(plumber::rates(epoch))) {
        if record.completions == 0 {
            continue;
        }
        let theta = record.cpu_ns as f64 / epoch.wall_ns.max(1) as f64;
        let rate_text = match rate.rate.is_finite() {
            true => format!("{:.2} million minibatches/s and core", rate.rate / 1e6),
            false => "no time".into(),
        };
        let text = format!(
            "{} completions, visit ratio {:.2}, {rate_text}, {theta:.2} cores",
            record.completions, rate.visit_ratio
        );
        out.text(&format!("Epoch {} {}", epoch.epoch, operator.name()), &text);
    }
}

fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}

/// Parameters from the aggregate's options argument.
pub fn parse_options(options: Option<&JsonB>) -> Params {
    let params = match options {
        None => Params::default(),
        Some(JsonB(json)) => Params::from_json(json).unwrap_or_else(|e| error::raise(e)),
    };
    let given = options.is_some_and(|JsonB(json)| json.get("shuffle").is_some_and(|value| !value.is_null()));
    if given { params } else { Params { shuffle: guc::default_shuffle(), ..params } }
}

/// "Fetch the next scan tuple."
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn exec(css: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    // SAFETY: called by the executor with our begun node. The scan slot has one column, the model.
    unsafe {
        let node = css.cast::<Node<Sgd>>();
        let slot = (*css).ss.ss_ScanTupleSlot;
        pg_sys::ExecClearTuple(slot);
        if std::mem::replace(&mut (*node).state.done, true) {
            return slot;
        }
        let model = Sgd::run(node);
        let node_state = &mut (*node).state;
        node_state.model = model.unwrap_or(pg_sys::Datum::from(0));
        *(*slot).tts_values = node_state.model;
        *(*slot).tts_isnull = model.is_none();
        pg_sys::ExecStoreVirtualTuple(slot);
        let projection = (*css).ss.ps.ps_ProjInfo;
        if projection.is_null() {
            return slot;
        }
        let econtext = (*css).ss.ps.ps_ExprContext;
        pg_sys::MemoryContextReset((*econtext).ecxt_per_tuple_memory);
        (*econtext).ecxt_scantuple = slot;
        pg_sys::ExecProject(projection)
    }
}

impl CustomNode for Sgd {
    const NAME: &'static std::ffi::CStr = c"SGD";

    fn exec_methods() -> &'static pg_sys::CustomExecMethods {
        &EXEC_METHODS.0
    }

    unsafe fn create(_plan: *mut pg_sys::CustomScan) -> Self {
        Self {
            shuffle: std::ptr::null_mut(),
            settings: Settings::read(),
            params: None,
            done: false,
            thread: None,
            outcome: Outcome::default(),
            model: pg_sys::Datum::from(0),
        }
    }

    unsafe fn begin(node: *mut Node<Self>, estate: *mut pg_sys::EState, eflags: i32) {
        types::require_utf8();
        // SAFETY: being begun; the planner puts a TupleShuffle below.
        unsafe {
            let child = node::begin_child(node, estate, eflags);
            match node::downcast::<TupleShuffle>(child) {
                Some(shuffle) => (*node).state.shuffle = shuffle,
                None => error::internal("the child of SGD is not TupleShuffle"),
            }
            Self::prepare(node, false);
        }
    }

    unsafe fn rescan(node: *mut Node<Self>) {
        // SAFETY: a begun node. A training starts from the beginning, with the options of now.
        unsafe {
            let model = std::mem::replace(&mut (*node).state.model, pg_sys::Datum::from(0));
            if !model.is_null() {
                pg_sys::pfree(model.cast_mut_ptr());
            }
            (*node).state.done = false;
            (*node).state.thread = None;
            (*node).state.params = None;
            (*node).state.outcome.history.clear();
            (*node).state.outcome.measured = None;
            (*node).state.outcome.verdict = None;
            (*node).state.outcome.plan = None;
            (*node).state.outcome.cached = None;
            TupleShuffle::reset((*node).state.shuffle);
            node::rescan_child(node, (*node).state.shuffle.cast());
        }
    }

    unsafe fn end(node: *mut Node<Self>) {
        // SAFETY: a begun node.
        unsafe {
            (*node).state.thread = None;
            pg_sys::ExecEndNode((*node).state.shuffle.cast());
        }
    }

    unsafe fn explain(node: *mut Node<Self>, es: *mut pg_sys::ExplainState) {
        // SAFETY: by contract.
        let (state, out) = unsafe { (&(*node).state, Explainer::new(es)) };
        let outcome = &state.outcome;
        if let Some(params) = &state.params {
            let loss = outcome.loss_name.or(params.loss.map(|loss| loss.name()));
            out.text("Loss", loss.unwrap_or("chosen by the target"));
            let reason = outcome.verdict.map(|verdict| format!(" ({})", auto_shuffle::reason(verdict)));
            out.text("Strategy", &format!("{}{}", params.shuffle.name(), reason.unwrap_or_default()));
            out.integer("Seed", params.seed);
            out.integer("Max Epochs", i64::from(params.max_epochs));
            let found = outcome.history.first().map(|report| report.learning_rate);
            let rate = match (params.learning_rate, found) {
                (Some(rate), _) => format!("{rate}"),
                (None, Some(found)) => format!("{found:.3e} (found)"),
                (None, None) => "to be found".into(),
            };
            let schedule = match params.schedule {
                Schedule::Constant => String::new(),
                schedule => format!(", {} decay {}", schedule.name(), params.decay),
            };
            out.text(
                "Optimizer",
                &format!(
                    "{}, learning rate {rate}{schedule}, batch size {}",
                    params.optimizer.name(),
                    params.batch_size
                ),
            );
        }
        if !out.is_analyze() {
            return;
        }
        out.integer("Epochs", outcome.history.len() as i64);
        out.integer("Tuples", outcome.rows as i64);
        if outcome.restarts > 0 {
            out.integer("Restarts", i64::from(outcome.restarts));
        }
        if let Some(done) = &outcome.last {
            if let Some(loss) = done.report.loss {
                out.float("Final Progressive Loss", loss, 6);
            }
            if let Some(accuracy) = done.report.accuracy {
                out.float("Final Progressive Accuracy", accuracy, 5);
            }
            for (name, measured) in [("Held-Out", done.report.eval), ("Final", outcome.measured)] {
                if let Some(measured) = measured {
                    out.float(&format!("{name} Loss"), measured.loss, 6);
                    if let Some(accuracy) = measured.accuracy {
                        out.float(&format!("{name} Accuracy"), accuracy, 5);
                    }
                }
            }
            out.bytes("Weights Memory", outcome.weight_bytes);
            if let Some((tuples, bytes)) = outcome.cached {
                out.text("Cache", &format!("{tuples} tuples in {}", pretty_bytes(bytes)));
            }
            out.text("Compute", if outcome.asynchronous { "in the read thread" } else { "between the fills" });
            out.time("Shuffle CPU Time", done.time.shuffle_ns);
            out.time("SGD CPU Time", done.time.sgd_ns);
            out.time("Read Thread Waited", done.time.wait_ns);
            out.time("Write Thread Waited", outcome.wait_ns);
            if out.is_timing() {
                explain_trace(&out, outcome);
            }
        }
    }
}
