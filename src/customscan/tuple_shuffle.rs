//! TupleShuffle: fills buffers with decoded tuples.
//!
//! Like Hash it hands its parent a whole buffer, not a slot a tuple, and keeps its own
//! instrumentation. What is shuffled is an index, by the read thread (`read_thread`), so that it
//! overlaps with the next fill. ReScan rescans the child.

use super::block_shuffle::BlockShuffle;
use crate::error::{self, ColumnNames, RowError};
use crate::pg::array::{ACCEPTED, Element};
use crate::pg::explain::{Explainer, pretty_bytes};
use crate::pg::fill::{Decoder, KNOWN_CLASSES, LabelRead, Room, Stop};
use crate::pg::full_shuffle::{FullShuffle, Space};
use crate::pg::node::{self, CustomNode, Methods, Node, exec_methods, scan_methods};
use crate::pg::progress::Progress;
use crate::pg::{list, thread, types};
use corgipile_core::labels::{Coded, LabelCoder, Meaning};
use corgipile_core::params::{OnNull, Params};
use corgipile_core::permute::mix;
use corgipile_core::plumber::Record;
use corgipile_core::tuples::{Density, TupleBuffer};
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use pgrx::{check_for_interrupts, pg_sys};

/// Tuples between two returns from the unguarded loop, which look for interrupts: that many short ones.
const QUOTA: u32 = 4096;

/// The same for tuples of `dims` features (0: not known): long ones may each be a read from the disk.
fn quota(dims: usize) -> u32 {
    (QUOTA / (1 + dims as u32 / 8)).max(16)
}
/// Tells the hashes that choose the rows to hold out from other uses of the seed.
const HOLD_OUT: u64 = 0x686f_6c64;

/// State of the node.
pub struct TupleShuffle {
    child: *mut pg_sys::PlanState,
    names: ColumnNames,
    /// Type of the target.
    pub target_type: pg_sys::Oid,
    training: Option<Training>,
    /// See `look`.
    looking: bool,
    full: Full,
    traced: Traced,
    explain: Explained,
    // Over all epochs, for EXPLAIN ANALYZE.
    rows: u64,
    skipped: u64,
    fills: u64,
    cpu_ns: u64,
}

/// What reading cost in this epoch.
#[derive(Default, Clone, Copy)]
struct Traced {
    on: bool,
    cpu_ns: u64,
    wall_ns: u64,
    taken: u64,
    bytes: u64,
    pages_hit: u64,
    pages_read: u64,
    pages_prefetched: u64,
    io_ns: u64,
}

/// The server's counters of pages, in shared buffers or those of temporary tables.
#[derive(Clone, Copy)]
struct Pages {
    hit: i64,
    read: i64,
    io_ns: i64,
}

impl Pages {
    fn now() -> Self {
        // SAFETY: a plain variable of the backend, read on its own thread.
        let usage = unsafe { pg_sys::pgBufferUsage };
        #[cfg(feature = "pg15")]
        let io_ns = usage.blk_read_time.tv_sec * 1_000_000_000 + usage.blk_read_time.tv_nsec;
        // Ticks are nanoseconds where the clock is clock_gettime (instr_time.h).
        #[cfg(feature = "pg16")]
        let io_ns = usage.blk_read_time.ticks;
        #[cfg(not(any(feature = "pg15", feature = "pg16")))]
        let io_ns = usage.shared_blk_read_time.ticks + usage.local_blk_read_time.ticks;
        Self {
            hit: usage.shared_blks_hit + usage.local_blks_hit,
            read: usage.shared_blks_read + usage.local_blks_read,
            io_ns,
        }
    }
}

/// The full shuffle below the buffers, where the strategy has one.
#[derive(Default)]
struct Full {
    /// Memory of the sort; 0: there is none.
    kilobytes: i32,
    /// Sort anew in every epoch?
    every_epoch: bool,
    seed: i64,
    epoch: u32,
    /// Boxed: the decoder holds its address.
    sort: Option<Box<FullShuffle>>,
    space: Option<Space>,
    /// Rows left out, for NULL and for other reasons, before the sort began.
    left_out: (u64, u64),
}

/// What a training needs, from `start` on.
struct Training {
    decoder: Decoder,
    coder: LabelCoder,
    /// Bytes of the known classes of a text target; the decoder points into them.
    texts: Vec<Box<[u8]>>,
    /// Counters of the child's tuples in this epoch.
    epoch_pulled: u64,
    epoch_skipped: u64,
    /// Rows of this epoch that are not trained on for other reasons: without weight, or held out.
    epoch_passed_over: u64,
    held_out: u64,
    /// Rows of this epoch that were counted for the scan below.
    noted: u64,
    /// First tuple of each block, while the first epoch is read for a cache; the decoder writes into it.
    block_starts: Vec<u32>,
}

impl Training {
    /// Counts rows that were left out before a sort, and are not in it, as rows of the epoch.
    fn count_left_out(&mut self, (skipped, passed_over): (u64, u64)) {
        self.decoder.skipped = skipped;
        self.decoder.passed_over = passed_over;
        self.decoder.pulled = skipped + passed_over;
    }
}

/// What EXPLAIN shows of the plan.
#[derive(Default, Clone, Copy)]
struct Explained {
    buffer_bytes: usize,
    buffers: usize,
    shuffled: bool,
    largest_buffer: usize,
    peak_bytes: usize,
}

/// How a fill ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// A tuple is too long for the buffer that a look has.
    TooLong,
    /// The buffer is full; more is to come.
    Full,
    /// The input has ended.
    Last,
    /// The target turned out to be a quantity, or of many classes, after tuples were trained on as of two.
    Restart,
}

pub static SCAN_METHODS: Methods<pg_sys::CustomScanMethods> = Methods(scan_methods::<TupleShuffle>());
static EXEC_METHODS: Methods<pg_sys::CustomExecMethods> = Methods(exec_methods::<TupleShuffle>(exec));

/// How a target of this type is read.
pub fn label_read(target_type: pg_sys::Oid) -> LabelRead {
    match types::base_type(target_type) {
        pg_sys::BOOLOID => LabelRead::Bool,
        pg_sys::INT2OID => LabelRead::Int2,
        pg_sys::INT4OID => LabelRead::Int4,
        pg_sys::INT8OID => LabelRead::Int8,
        pg_sys::FLOAT4OID => LabelRead::Float4,
        pg_sys::FLOAT8OID => LabelRead::Float8,
        pg_sys::TEXTOID | pg_sys::VARCHAROID => LabelRead::Bytes,
        pg_sys::NUMERICOID => LabelRead::Slow,
        base => {
            let (mut length, mut by_value) = (0, false);
            // SAFETY: a catalog look-up by oid.
            unsafe { pg_sys::get_typlenbyval(base, &mut length, &mut by_value) };
            if by_value { LabelRead::Word } else { LabelRead::Slow }
        }
    }
}

/// The element type of an array column, or an error that lists what is accepted.
pub fn element_of(array_type: pg_sys::Oid, name: &str, indices: bool) -> Element {
    match types::element(array_type) {
        Some(element) if !indices || element.is_integer() => element,
        _ => error::unusable_features(name, &types::type_name(array_type), indices, ACCEPTED),
    }
}

/// The coder of a target of this type, or an error if the loss does not fit it.
pub fn new_coder(target_type: pg_sys::Oid, params: &Params) -> LabelCoder {
    LabelCoder::new(types::target_kind(target_type), params.loss).unwrap_or_else(|e| error::raise(e))
}

/// How the features of an input are given.
#[derive(Debug, Clone, Copy)]
pub enum Layout {
    /// An array.
    Dense(Element),
    /// An array of numbers and one of values.
    Sparse(Element, Element),
    /// Both in one bytea.
    Packed,
}

impl Layout {
    /// From the types of the columns behind the target (one or two), and their names for messages.
    pub fn of(types: &[pg_sys::Oid], names: &[String]) -> Self {
        let name = |i: usize| names.get(i).map_or("features", String::as_str);
        match types {
            [pg_sys::BYTEAOID, ..] => Self::Packed,
            [numbers, values, ..] => {
                Self::Sparse(element_of(*numbers, name(0), true), element_of(*values, name(1), false))
            }
            [values] => Self::Dense(element_of(*values, name(0), false)),
            [] => error::internal("there are no features"),
        }
    }

    /// Whether features are numbered.
    pub fn is_sparse(self) -> bool {
        !matches!(self, Self::Dense(_))
    }
}

/// A decoder for inputs with the columns target, indices (if sparse), values, weight (if `weighted`) in
/// this order.
pub fn decoder(
    target_type: pg_sys::Oid,
    coder: &LabelCoder,
    layout: Layout,
    weighted: bool,
    params: &Params,
    temporary: pg_sys::MemoryContext,
) -> Decoder {
    let (index_element, value_element) = match layout {
        Layout::Dense(values) => (Element::Int4, values),
        Layout::Sparse(numbers, values) => (numbers, values),
        Layout::Packed => (Element::Int4, Element::Float4),
    };
    let (sparse, packed) = (layout.is_sparse(), matches!(layout, Layout::Packed));
    let values = if sparse && !packed { 2 } else { 1 };
    let label_read = label_read(target_type);
    Decoder {
        target: 0,
        indices: 1,
        values,
        weight: values + 1,
        weighted,
        // The fraction of all hashes; 0.9 at most, so it does not overflow.
        block_starts: core::ptr::null_mut(),
        blocks: 0,
        block: 0,
        rows_before: 0,
        hold_out_below: (params.eval_fraction * u64::MAX as f64) as u64,
        hold_out_seed: mix(HOLD_OUT, params.seed as u64),
        held_out_known: false,
        position: core::ptr::null(),
        columns: values as i32 + 1 + i32::from(weighted),
        index_element,
        value_element,
        sparse,
        packed,
        dims: 0,
        max_index: i64::from(i32::MAX),
        label_read,
        numbers: coder.meaning() == Meaning::Numbers && label_read != LabelRead::Slow,
        known: 0,
        keys: [0; KNOWN_CLASSES],
        texts: [(core::ptr::null(), 0); KNOWN_CLASSES],
        labels: [0.0; KNOWN_CLASSES],
        label: None,
        skip_nulls: params.on_null == OnNull::Skip,
        direct: core::ptr::null_mut(),
        sorted: core::ptr::null_mut(),
        pending: core::ptr::null_mut(),
        temporary,
        pulled: 0,
        skipped: 0,
        passed_over: 0,
        held_out: 0,
        trace: false,
        until_timed: 0,
        scan_ns: 0,
        decode_ns: 0,
        detoasted: 0,
    }
}

/// What a target value that was new to the decoder meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learnt {
    /// One more value.
    Value,
    /// The target is a quantity: labels so far were codes of classes.
    Numbers,
    /// There are more than two classes: labels so far were −1 and +1.
    Softmax,
}

impl Learnt {
    /// Turns the labels of a buffer that was filled before into what they are now.
    pub fn relabel(self, buffer: &mut TupleBuffer, coder: &LabelCoder) {
        match self {
            Learnt::Value => {}
            Learnt::Numbers => buffer.map_labels(|code| coder.value_of_code(code)),
            Learnt::Softmax => buffer.map_labels(LabelCoder::class_of_code),
        }
    }
}

/// Codes a target value that the decoder does not know, and teaches it.
///
/// # Safety
/// `datum` is a non-NULL value of the target's type; `texts` is what the decoder points into.
pub unsafe fn learn_label(
    decoder: &mut Decoder,
    coder: &mut LabelCoder,
    texts: &mut Vec<Box<[u8]>>,
    datum: pg_sys::Datum,
    target_type: pg_sys::Oid,
) -> Result<Learnt, RowError> {
    // SAFETY: by contract.
    let value = unsafe { types::target_value(datum, target_type) }.ok_or(RowError::TargetNotFinite)?;
    let number = value.number() as f32;
    let (label, learnt) = match coder.code(value)? {
        Coded::Label(label) => (label, Learnt::Value),
        Coded::NowNumbers => {
            decoder.numbers = decoder.label_read != LabelRead::Slow;
            (number, Learnt::Numbers)
        }
        Coded::NowSoftmax => {
            decoder.labels.iter_mut().for_each(|label| *label = LabelCoder::class_of_code(*label));
            (coder.label_of(coder.class_count() - 1), Learnt::Softmax)
        }
    };
    if !label.is_finite() {
        return Err(RowError::TargetNotFinite);
    }
    decoder.label = Some(label);
    let at = decoder.known;
    if coder.meaning() == Meaning::Classes && at < KNOWN_CLASSES && decoder.label_read != LabelRead::Slow {
        if decoder.label_read == LabelRead::Bytes {
            // SAFETY: a varlena by `label_read`.
            let bytes: Box<[u8]> = unsafe { types::varlena_bytes(datum) }.into();
            decoder.texts[at] = (bytes.as_ptr(), bytes.len());
            texts.push(bytes);
        } else {
            decoder.keys[at] = decoder.key(datum);
        }
        decoder.labels[at] = label;
        decoder.known = at + 1;
    }
    Ok(learnt)
}

impl TupleShuffle {
    /// The BlockShuffle below, also under nodes that only pass its tuples on (a one-time filter).
    ///
    /// # Safety
    /// `node` is a begun node.
    pub unsafe fn block_shuffle(node: *mut Node<Self>) -> Option<*mut Node<BlockShuffle>> {
        // SAFETY: by contract; the tag says what a plan state is.
        unsafe {
            let mut ps = (*node).state.child;
            while !ps.is_null() {
                if let Some(blocks) = node::downcast::<BlockShuffle>(ps) {
                    return Some(blocks);
                }
                ps = match (*ps).type_ {
                    pg_sys::NodeTag::T_ResultState => (*ps).lefttree,
                    pg_sys::NodeTag::T_SubqueryScanState => (*ps.cast::<pg_sys::SubqueryScanState>()).subplan,
                    _ => return None,
                };
            }
            None
        }
    }

    /// The input.
    pub fn child(&self) -> *mut pg_sys::PlanState {
        self.child
    }

    /// Blocks of this epoch that reading has begun with; 0 where there are none.
    pub fn blocks_begun(&self) -> u64 {
        let position = self.training.as_ref().map_or(core::ptr::null(), |training| training.decoder.position);
        // SAFETY: null, or the scan of the BlockShuffle below, which lives as long as the training.
        unsafe { position.as_ref() }.map_or(0, |scan| scan.blocks_begun() as u64)
    }

    /// Pages that the scan below has asked for before they were needed.
    fn pages_prefetched(&self) -> u64 {
        let position = self.training.as_ref().map_or(core::ptr::null(), |training| training.decoder.position);
        // SAFETY: as for `blocks_begun`.
        unsafe { position.as_ref() }.map_or(0, |scan| scan.pages_prefetched())
    }

    /// Names of the aggregate's arguments.
    pub fn names(&self) -> &ColumnNames {
        &self.names
    }

    /// The coder of the target, once started.
    pub fn coder(&self) -> Option<&LabelCoder> {
        self.training.as_ref().map(|training| &training.coder)
    }

    /// Whether buffers need room for a weight beside each tuple.
    pub fn is_weighted(&self) -> bool {
        self.names.weight.is_some() || self.training.as_ref().is_some_and(|t| t.decoder.hold_out_below > 0)
    }

    /// Rows to be trained on in this epoch.
    pub fn epoch_rows(&self) -> u64 {
        self.training.as_ref().map_or(0, |t| t.epoch_pulled - t.epoch_skipped - t.epoch_passed_over)
    }

    /// Rows held out of training.
    pub fn held_out(&self) -> u64 {
        self.training.as_ref().map_or(0, |training| training.held_out)
    }

    /// Rows left out for NULL in this epoch.
    pub fn epoch_skipped(&self) -> u64 {
        self.training.as_ref().map_or(0, |training| training.epoch_skipped)
    }

    /// Rows that the child gave in this epoch, the ones of a fill in progress included.
    fn pulled(&self) -> u64 {
        self.training.as_ref().map_or(0, |training| training.epoch_pulled + training.decoder.pulled)
    }

    /// What EXPLAIN will show of the buffers.
    pub fn describe(&mut self, buffer_bytes: usize, buffers: usize, shuffled: bool) {
        self.explain = Explained { buffer_bytes, buffers, shuffled, ..self.explain };
    }

    /// Most bytes that the buffers have had.
    pub fn peak_bytes(&self) -> usize {
        self.explain.peak_bytes
    }

    /// Notes the bytes that a buffer has allocated, and the buffers in use: each is taken to be as large as the
    /// largest, since which one is filled next depends on which is done first.
    pub fn note_memory(&mut self, bytes: usize, buffers: usize) {
        self.explain.largest_buffer = self.explain.largest_buffer.max(bytes);
        self.explain.peak_bytes = self.explain.peak_bytes.max(self.explain.largest_buffer * buffers);
    }

    /// Puts a full shuffle below the buffers, of at most `kilobytes` of memory; 0: none. Before `start`.
    pub fn sort_by_random_keys(&mut self, kilobytes: i32, every_epoch: bool, seed: i64) {
        let sort = self.full.sort.take();
        self.full = Full { kilobytes, every_epoch, seed, epoch: 0, sort, ..Full::default() };
    }

    /// Says that parts of the input are looked at, not epochs of it: what was met is no more than that, and nothing is
    /// sorted.
    pub fn look(&mut self, looking: bool) {
        self.looking = looking;
    }

    /// Counts from here on, for EXPLAIN ANALYZE.
    pub fn forget_counts(&mut self) {
        (self.rows, self.skipped, self.fills, self.cpu_ns) = (0, 0, 0, 0);
    }

    /// Records of the scan and of decoding in the epoch that has just been read. What they cost together
    /// was measured; how it is divided, on some of the tuples.
    pub fn take_records(&mut self) -> [Record; 2] {
        let traced = self.traced;
        self.traced = Traced { on: traced.on, ..Traced::default() };
        // Nothing is pulled in an epoch over the cache.
        let read = self.training.as_ref().filter(|_| traced.wall_ns > 0);
        let pulled = read.map_or(0, |training| training.epoch_pulled);
        let (scan, decode) = self.training.as_mut().map_or((0, 0), |training| {
            (std::mem::take(&mut training.decoder.scan_ns), std::mem::take(&mut training.decoder.decode_ns))
        });
        let part = if scan + decode > 0 { scan as f64 / (scan + decode) as f64 } else { 0.5 };
        let divide = |ns: u64| ((ns as f64 * part) as u64, ns - (ns as f64 * part) as u64);
        let (cpu, wall) = (divide(traced.cpu_ns), divide(traced.wall_ns));
        let pages = traced.pages_hit + traced.pages_read;
        let scan = Record {
            completions: pulled,
            bytes: pages * u64::from(pg_sys::BLCKSZ),
            cpu_ns: cpu.0,
            wall_ns: wall.0,
            pages_read: traced.pages_read,
            pages_hit: traced.pages_hit,
            pages_prefetched: traced.pages_prefetched,
            io_ns: traced.io_ns,
            ..Record::default()
        };
        let decode = Record {
            completions: traced.taken,
            bytes: traced.bytes,
            cpu_ns: cpu.1,
            wall_ns: wall.1,
            detoasted_bytes: self.training.as_mut().map_or(0, |t| std::mem::take(&mut t.decoder.detoasted)),
            ..Record::default()
        };
        [scan, decode]
    }

    /// Whether records are taken.
    pub fn trace(&mut self, on: bool) {
        self.traced = Traced { on, ..Traced::default() };
    }

    /// Notes, while the first epoch is read, where each of `blocks` blocks starts.
    pub fn note_block_starts(&mut self, blocks: u32) {
        if let Some(training) = &mut self.training {
            training.block_starts = vec![u32::MAX; blocks as usize];
            training.decoder.block_starts = training.block_starts.as_mut_ptr();
            training.decoder.blocks = blocks as usize;
        }
    }

    /// Where the blocks of an epoch that was read to its end start: number in the order of reading, and
    /// first tuple; blocks without tuples are left out.
    pub fn take_block_starts(&mut self) -> Vec<(u32, u32)> {
        let Some(training) = &mut self.training else { return Vec::new() };
        training.decoder.block_starts = core::ptr::null_mut();
        let starts = std::mem::take(&mut training.block_starts);
        (0u32..).zip(starts).filter(|(_, start)| *start != u32::MAX).collect()
    }

    /// Forgets the training, so that the next rescan begins with the input.
    ///
    /// # Safety
    /// `node` is a begun node.
    pub unsafe fn reset(node: *mut Node<Self>) {
        // SAFETY: by contract; a finished sort is not in use between two calls of the node.
        unsafe {
            (*node).state.training = None;
            (*node).state.full.epoch = 0;
            if let Some(sort) = (*node).state.full.sort.take() {
                sort.end();
            }
        }
    }

    /// Sorts the whole input, if that is wanted and not done; the decoder then reads the sorted tuples.
    unsafe fn sort(node: *mut Node<Self>) {
        // SAFETY: as for `fill`. The sort lives in the query's memory until it is ended, or the query is.
        unsafe {
            let full = &mut (*node).state.full;
            if full.kilobytes == 0 || full.sort.is_some() || (*node).state.looking {
                return;
            }
            let targets = list::pointers::<pg_sys::TargetEntry>((*(*node).css.ss.ps.plan).targetlist);
            let types: Vec<pg_sys::Oid> =
                targets.iter().map(|target| pg_sys::exprType((**target).expr.cast())).collect();
            let old = pg_sys::MemoryContextSwitchTo((*(*node).css.ss.ps.state).es_query_cxt);
            let sort = FullShuffle::new(&types, full.kilobytes, full.seed, full.epoch);
            pg_sys::MemoryContextSwitchTo(old);
            full.epoch += 1;
            full.sort = Some(Box::new(sort));
            let child = (*node).state.child;
            loop {
                let Some(sort) = (*node).state.full.sort.as_mut().map(|sort| &raw mut **sort) else { return };
                let Some(training) = (*node).state.training.as_mut() else { return };
                let decoder = &raw mut training.decoder;
                let ended = pg_guard_ffi_boundary(|| (*decoder).run_sort(child, &mut *sort, quota((*decoder).dims)));
                check_for_interrupts!();
                if ended {
                    (*node).state.note_read();
                    (*sort).sort();
                    let full = &mut (*node).state.full;
                    full.space = Some((*sort).space());
                    if let Some(training) = (*node).state.training.as_mut() {
                        full.left_out = (training.decoder.skipped, training.decoder.passed_over);
                        training.decoder.read_sorted(sort);
                        training.count_left_out(full.left_out);
                    }
                    return;
                }
            }
        }
    }

    /// Counts tuples for the scan that was read without the executor.
    unsafe fn note_read(&mut self) {
        let pulled = self.pulled();
        // SAFETY: the child of a begun node; its instrumentation is null unless wanted.
        let instrument = unsafe { (*self.child).instrument };
        let Some(training) = self.training.as_mut().filter(|training| !training.decoder.direct.is_null()) else {
            return;
        };
        let new = pulled - std::mem::replace(&mut training.noted, pulled);
        if !instrument.is_null() {
            // SAFETY: as above.
            unsafe {
                pg_sys::InstrStartNode(instrument);
                pg_sys::InstrStopNode(instrument, new as f64);
            }
        }
    }

    /// Prepares a training and looks at the first tuple: the shape of the features, or `None` for an
    /// empty input. A coder is passed on when training starts anew.
    ///
    /// # Safety
    /// `node` is a begun node at the start of a scan.
    pub unsafe fn start(node: *mut Node<Self>, params: &Params, coder: Option<LabelCoder>) -> Option<Density> {
        // SAFETY: by contract; the argument types were checked when the plan was made.
        unsafe {
            let state = &mut (*node).state;
            let plan = (*node).css.ss.ps.plan;
            let targets = list::pointers::<pg_sys::TargetEntry>((*plan).targetlist);
            let type_at = |i: usize| pg_sys::exprType((*targets[i]).expr.cast());
            let types: Vec<pg_sys::Oid> = (1..=state.names.features.len()).map(type_at).collect();
            let layout = Layout::of(&types, &state.names.features);
            let weighted = state.names.weight.is_some();
            let coder = coder.unwrap_or_else(|| new_coder(state.target_type, params));
            let temporary = (*(*node).css.ss.ps.ps_ExprContext).ecxt_per_tuple_memory;
            let decoder = decoder(state.target_type, &coder, layout, weighted, params, temporary);
            state.training = Some(Training {
                decoder,
                coder,
                texts: Vec::new(),
                epoch_pulled: 0,
                epoch_skipped: 0,
                epoch_passed_over: 0,
                held_out: 0,
                noted: 0,
                block_starts: Vec::new(),
            });
            if layout.is_sparse() {
                return Self::peek(node).map(|_| Density::Sparse);
            }
            let dims = Self::peek(node)?;
            if dims == 0 {
                Self::fail(node, RowError::Length(0));
            }
            if let Some(training) = &mut (*node).state.training {
                training.decoder.dims = dims;
            }
            Some(Density::Dense(dims))
        }
    }

    /// Limits feature numbers so that the weights stay under the memory cap.
    pub fn limit_features(&mut self, most: usize) {
        if let Some(training) = &mut self.training {
            training.decoder.max_index = (most as i64).min(i64::from(i32::MAX));
        }
    }

    unsafe fn prepare(node: *mut Node<Self>) {
        // SAFETY: the child of a begun node.
        unsafe {
            let child = (*node).state.child;
            if !(*child).chgParam.is_null() {
                pg_sys::ExecReScan(child);
            }
            let decoder = (*node).state.training.as_mut().map(|training| &mut training.decoder);
            if let (Some(decoder), Some(blocks)) = (decoder, Self::block_shuffle(node)) {
                BlockShuffle::prepare(blocks);
                decoder.position = (*blocks).state.position();
            }
            if let Some(blocks) = node::downcast::<BlockShuffle>(child) {
                BlockShuffle::prepare(blocks);
                let decoder = (*node).state.training.as_mut().map(|training| &mut training.decoder);
                // Sorted tuples are found at places of their own.
                let decoder = decoder.filter(|decoder| decoder.sorted.is_null());
                if let (Some(decoder), Some((scan, columns))) = (decoder, BlockShuffle::direct(blocks)) {
                    decoder.direct = scan;
                    decoder.target = columns[0];
                    let values = decoder.values_place();
                    decoder.values = columns[values];
                    decoder.indices = columns[1];
                    decoder.weight = columns[if decoder.weighted { values + 1 } else { 0 }];
                    // The scan has deformed what is needed.
                    decoder.columns = 0;
                }
            }
        }
    }

    unsafe fn peek(node: *mut Node<Self>) -> Option<usize> {
        // SAFETY: the closure touches plain data only.
        unsafe {
            Self::prepare(node);
            let child = (*node).state.child;
            let training = (*node).state.training.as_mut()?;
            let decoder = &raw mut training.decoder;
            let instrument = (*node).css.ss.ps.instrument;
            start_clock(instrument);
            let peeked = pg_guard_ffi_boundary(|| (*decoder).peek(child));
            stop_clock(instrument, 0);
            match peeked {
                Ok(len) => len,
                Err(stop) => Self::fail(node, RowError::from(stop)),
            }
        }
    }

    /// Fills `buffer` from where the input stands. `trained` says whether any buffer was already
    /// trained on, so that a late change of the target's meaning needs a restart.
    ///
    /// # Safety
    /// `node` was started; `buffer` is of its density.
    pub unsafe fn fill(node: *mut Node<Self>, buffer: &mut TupleBuffer, trained: bool) -> Filled {
        // SAFETY: the guarded closure touches plain data only: a Copy decoder, a Copy view of the
        // buffer's storage, and the child. Nothing else holds the node's state meanwhile.
        unsafe {
            Self::prepare(node);
            let instrument = (*node).css.ss.ps.instrument;
            start_clock(instrument);
            let (cpu, wall, pages) = (thread::cpu_ns(), thread::wall_ns(), Pages::now());
            let prefetched = (*node).state.pages_prefetched();
            if let Some(training) = (*node).state.training.as_mut() {
                training.decoder.trace = (*node).state.traced.on;
            }
            Self::sort(node);
            let child = (*node).state.child;
            let target_type = (*node).state.target_type;
            let filled = loop {
                let Some(training) = (*node).state.training.as_mut() else { break Filled::Last };
                let mut room = Room::of(buffer);
                let (room_at, decoder) = (&raw mut room, &raw mut training.decoder);
                let stop = pg_guard_ffi_boundary(|| (*decoder).run(child, &mut *room_at, quota((*decoder).dims)));
                room.commit(buffer);
                match stop {
                    Stop::Quota => {
                        check_for_interrupts!();
                        let begun = (*node).state.blocks_begun();
                        Progress::done(begun, (*node).state.rows + buffer.len() as u64);
                    }
                    Stop::End => break Filled::Last,
                    Stop::Full => break Filled::Full,
                    Stop::Room(values) => {
                        if !buffer.has_room(values) {
                            if buffer.is_empty() && (*node).state.looking {
                                break Filled::TooLong;
                            }
                            if buffer.is_empty() {
                                let what = format!("one tuple of {values} features");
                                error::raise(corgipile_core::Error::MemoryLimit {
                                    what,
                                    needed: values * 8 + 64,
                                    limit: buffer.limit(),
                                });
                            }
                            break Filled::Full;
                        }
                        buffer.make_room(values).unwrap_or_else(|e| error::raise(e));
                    }
                    Stop::UnknownLabel => {
                        let slot = training.decoder.pending;
                        let datum = *(*slot).tts_values.add(training.decoder.target);
                        let Training { decoder, coder, texts, .. } = training;
                        // Text forms and detoasted copies go with the tuple.
                        let old = pg_sys::MemoryContextSwitchTo(decoder.temporary);
                        let learnt = learn_label(decoder, coder, texts, datum, target_type);
                        pg_sys::MemoryContextSwitchTo(old);
                        match learnt {
                            Ok(Learnt::Numbers | Learnt::Softmax) if trained => break Filled::Restart,
                            Ok(learnt) => learnt.relabel(buffer, coder),
                            Err(what) => Self::fail(node, what),
                        }
                    }
                    other => Self::fail(node, RowError::from(other)),
                }
            };
            let state = &mut (*node).state;
            if let Some(training) = &mut state.training {
                let decoder = &mut training.decoder;
                decoder.rows_before = decoder.rows_before.saturating_add(buffer.len() as u32);
                training.epoch_pulled += std::mem::take(&mut decoder.pulled);
                let skipped = std::mem::take(&mut decoder.skipped);
                let held_out = std::mem::take(&mut decoder.held_out);
                training.held_out += held_out;
                training.epoch_passed_over += std::mem::take(&mut decoder.passed_over) + held_out;
                training.epoch_skipped += skipped;
                state.skipped += skipped;
            }
            if state.full.sort.is_none() {
                state.note_read();
            }
            state.rows += buffer.len() as u64;
            state.fills += 1;
            let cpu = thread::cpu_ns() - cpu;
            state.cpu_ns += cpu;
            let (traced, now) = (&mut state.traced, Pages::now());
            traced.cpu_ns += cpu;
            traced.wall_ns += thread::wall_ns() - wall;
            traced.taken += buffer.len() as u64;
            traced.bytes += buffer.bytes_used() as u64;
            traced.pages_hit += (now.hit - pages.hit) as u64;
            traced.pages_read += (now.read - pages.read) as u64;
            traced.io_ns += (now.io_ns - pages.io_ns) as u64;
            let prefetched = state.pages_prefetched() - prefetched;
            state.traced.pages_prefetched += prefetched;
            stop_clock(instrument, buffer.len());
            filled
        }
    }

    /// Raises the error of the pending row, with its place.
    unsafe fn fail(node: *mut Node<Self>, what: RowError) -> ! {
        // SAFETY: a begun node.
        unsafe {
            let state = &(*node).state;
            let number = state.pulled();
            let sorted = state.training.as_ref().and_then(|training| training.decoder.sorted_position());
            let place = match Self::block_shuffle(node) {
                Some(blocks) => (*blocks).state.row_in_words(sorted),
                None => format!("in row {number} of the input"),
            };
            let dims = state.training.as_ref().map_or(0, |t| t.decoder.dims);
            let most = state.training.as_ref().map_or(0, |t| t.decoder.max_index);
            error::raise_row(what, &state.names, &place, dims, most)
        }
    }
}

unsafe fn start_clock(instrument: *mut pg_sys::Instrumentation) {
    if !instrument.is_null() {
        // SAFETY: the node's own instrumentation.
        unsafe { pg_sys::InstrStartNode(instrument) }
    }
}

unsafe fn stop_clock(instrument: *mut pg_sys::Instrumentation, rows: usize) {
    if !instrument.is_null() {
        // SAFETY: as above; started before.
        unsafe { pg_sys::InstrStopNode(instrument, rows as f64) }
    }
}

/// TupleShuffle gives whole buffers to SGD; nobody may ask it for a slot.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn exec(_css: *mut pg_sys::CustomScanState) -> *mut pg_sys::TupleTableSlot {
    error::internal("TupleShuffle node does not support the ExecProcNode call convention")
}

impl CustomNode for TupleShuffle {
    const NAME: &'static std::ffi::CStr = c"TupleShuffle";

    fn exec_methods() -> &'static pg_sys::CustomExecMethods {
        &EXEC_METHODS.0
    }

    unsafe fn create(plan: *mut pg_sys::CustomScan) -> Self {
        // SAFETY: a plan made by the planner module: two to four columns, names as private data.
        let (names, target_type) = unsafe {
            let targets = list::pointers::<pg_sys::TargetEntry>((*plan).scan.plan.targetlist);
            let target = targets.first().map_or(pg_sys::InvalidOid, |t| pg_sys::exprType((**t).expr.cast()));
            (list::read_private_data::<ColumnNames>((*plan).custom_private).unwrap_or_default(), target)
        };
        Self {
            child: std::ptr::null_mut(),
            names,
            target_type,
            training: None,
            looking: false,
            full: Full::default(),
            traced: Traced::default(),
            explain: Explained::default(),
            rows: 0,
            skipped: 0,
            fills: 0,
            cpu_ns: 0,
        }
    }

    unsafe fn begin(node: *mut Node<Self>, estate: *mut pg_sys::EState, eflags: i32) {
        // SAFETY: being begun.
        unsafe { (*node).state.child = node::begin_child(node, estate, eflags) }
    }

    unsafe fn rescan(node: *mut Node<Self>) {
        // SAFETY: a begun node.
        unsafe {
            if let Some(training) = &mut (*node).state.training {
                training.decoder.pending = std::ptr::null_mut();
                training.decoder.label = None;
                training.decoder.pulled = 0;
                training.decoder.skipped = 0;
                training.decoder.passed_over = 0;
                training.decoder.rows_before = 0;
                training.decoder.block = 0;
                // An epoch that was read to its end has shown all that is held out.
                training.decoder.held_out_known = training.held_out > 0 && !(*node).state.looking;
                training.decoder.held_out = 0;
                training.epoch_pulled = 0;
                training.epoch_skipped = 0;
                training.epoch_passed_over = 0;
                training.noted = 0;
            }
            // The next epoch over what was sorted once reads the same order again.
            let full = &mut (*node).state.full;
            let again = (*node).css.ss.ps.chgParam.is_null() && !full.every_epoch;
            match full.sort.as_mut().filter(|_| again) {
                Some(sort) => {
                    sort.rewind();
                    if let Some(training) = &mut (*node).state.training {
                        training.count_left_out(full.left_out);
                    }
                    return;
                }
                None => {
                    if let Some(sort) = full.sort.take() {
                        sort.end();
                    }
                    if let Some(training) = &mut (*node).state.training {
                        training.decoder.read_input();
                    }
                }
            }
            node::rescan_child(node, (*node).state.child);
        }
    }

    unsafe fn end(node: *mut Node<Self>) {
        // SAFETY: a begun node.
        unsafe {
            Self::reset(node);
            pg_sys::ExecEndNode((*node).state.child);
        }
    }

    unsafe fn explain(node: *mut Node<Self>, es: *mut pg_sys::ExplainState) {
        // SAFETY: by contract.
        let (state, out) = unsafe { (&(*node).state, Explainer::new(es)) };
        let explain = &state.explain;
        if explain.buffers > 0 {
            let order = match (state.full.kilobytes, explain.shuffled) {
                (0, true) => "shuffled in the buffer",
                (0, false) => "as read",
                _ if state.full.every_epoch => "sorted by random keys in every epoch",
                _ => "sorted by random keys once",
            };
            out.text("Tuple Order", order);
            out.text("Buffers", &format!("{} of {}", explain.buffers, pretty_bytes(explain.buffer_bytes)));
        }
        if out.is_analyze() {
            out.integer("Tuples", state.rows as i64);
            if state.skipped > 0 {
                out.integer("Rows Skipped for NULL", state.skipped as i64);
            }
            if state.held_out() > 0 {
                out.integer("Rows Held Out", state.held_out() as i64);
            }
            if let Some(space) = state.full.space {
                let place = if space.disk { "disk" } else { "memory" };
                let text = format!("{}, {} of {place}", space.method, pretty_bytes(space.kilobytes as usize * 1024));
                out.text("Full Shuffle", &text);
            }
            out.integer("Fills", state.fills as i64);
            out.bytes("Peak Memory", explain.peak_bytes);
            out.time("CPU Time With Children", state.cpu_ns);
        }
    }
}
