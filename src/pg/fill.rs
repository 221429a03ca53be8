//! The hot loop of the write thread: pull tuples from the child, decode target and features, append
//! to the arena.
//!
//! The loop runs inside one guard for thousands of tuples. All it touches is plain data (`Decoder`,
//! `Room`), so that an ERROR raised below may jump out of it; whatever needs allocation, a decision
//! or an error message ends the loop with a `Stop` and is done outside.

#![allow(ffi_unwind_calls, reason = "called inside a pg_guard_ffi_boundary, as the module says")]

use super::array::{self, Element, RawArray, Unusable};
use super::block_scan::BlockScan;
use super::full_shuffle::{EXTRA_COLUMNS, FullShuffle};
use super::{raw, thread};
use corgipile_core::permute::mix;
use corgipile_core::tuples::{Density, TupleBuffer};
use pgrx::pg_sys;

/// How the target column is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelRead {
    /// boolean
    Bool,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// real
    Float4,
    /// double precision
    Float8,
    /// text and other varlena types compared by their bytes
    Bytes,
    /// Any other type passed by value (an enum's oid, a date)
    Word,
    /// Everything else: decoded outside the loop
    Slow,
}

/// Which column of the input it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// The label.
    Target,
    /// The sparse feature numbers.
    Indices,
    /// The feature values.
    Values,
    /// How much the tuple counts.
    Weight,
}

/// Classes that the loop knows by itself.
pub const KNOWN_CLASSES: usize = 32;

/// Values stored out of line are fetched up to so many bytes at a time: on a slow disk that takes a while.
const QUOTA_BYTES: u64 = 512 * 1024;

/// Why the loop ended.
#[derive(Debug, Clone, Copy)]
pub enum Stop {
    /// The quota is used up; go on.
    Quota,
    /// No more tuples.
    End,
    /// The buffer has reached its limit.
    Full,
    /// Storage for a tuple of this many values is needed.
    Room(usize),
    /// A target value whose label is not known yet.
    UnknownLabel,
    /// A column is NULL.
    Null(Column),
    /// An array cannot be used.
    Unusable(Column, Unusable),
    /// The value at this position (from 1; 0: the target) is NaN or infinite.
    NotFinite(Column, usize),
    /// A dense array of another length.
    Length(usize),
    /// Indices and values of different length.
    Unpaired(usize, usize),
    /// A weight below 0, or not finite.
    Weight(f64),
    /// The index at this position (from 1) is below 1, too large, or not above the one before it.
    Index(usize, i64),
}

/// What became of a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is in the buffer.
    Row,
    /// Left out for NULL.
    Null,
    /// Left out for its weight of 0.
    Absent,
    /// Held out, and seen in an epoch before.
    HeldOut,
}

/// How to decode a tuple, and the state of decoding.
#[derive(Debug, Clone, Copy)]
pub struct Decoder {
    /// Position of the target among the input's columns.
    pub target: usize,
    /// Position of the sparse feature numbers; unused when dense.
    pub indices: usize,
    /// Position of the feature values.
    pub values: usize,
    /// Position of the weight; unused when there is none.
    pub weight: usize,
    /// Is there a weight?
    pub weighted: bool,
    /// For each block of the scan, in the order of reading, the number of its first tuple in the epoch, or
    /// `u32::MAX`; null where nobody wants to know.
    pub block_starts: *mut u32,
    /// Length of `block_starts`.
    pub blocks: usize,
    /// The block that the tuple before came from.
    pub block: usize,
    /// Tuples of the epoch in the fills before this one.
    pub rows_before: u32,
    /// Hashes below this are of tuples to hold out; 0: none.
    pub hold_out_below: u64,
    /// Start of those hashes.
    pub hold_out_seed: u64,
    /// Tuples to hold out have been seen: leave them out.
    pub held_out_known: bool,
    /// The scan whose row is being decoded, if there is one: its position is hashed, else the tuple.
    pub position: *const BlockScan,
    /// Columns of the input.
    pub columns: i32,
    /// Element type of the indices.
    pub index_element: Element,
    /// Element type of the values.
    pub value_element: Element,
    /// Indices and values?
    pub sparse: bool,
    /// Both in one column: a bytea of numbers from 1 as u32, then as many values as f32 (what encoding gives).
    pub packed: bool,
    /// Features of a dense tuple; 0: not known yet.
    pub dims: usize,
    /// Largest feature number allowed.
    pub max_index: i64,
    /// How the target is read.
    pub label_read: LabelRead,
    /// The target is a quantity, not a class.
    pub numbers: bool,
    /// How many classes are known here; more than fit are looked up outside.
    pub known: usize,
    /// Known classes by value.
    pub keys: [u64; KNOWN_CLASSES],
    /// Known classes by bytes.
    pub texts: [(*const u8, usize); KNOWN_CLASSES],
    /// Their labels.
    pub labels: [f32; KNOWN_CLASSES],
    /// Label of the pending tuple, if found.
    pub label: Option<f32>,
    /// Leave tuples with NULL out?
    pub skip_nulls: bool,
    /// Where tuples come from without a call of the executor for each: the scan below, when it has
    /// neither filter nor projection to do; null otherwise. Columns are then the table's.
    pub direct: *mut BlockScan,
    /// The sort that tuples come from, once they are sorted; null otherwise.
    pub sorted: *mut FullShuffle,
    /// The tuple that was pulled but not yet taken.
    pub pending: *mut pg_sys::TupleTableSlot,
    /// Context for detoasted copies, reset for each tuple that needed it.
    pub temporary: pg_sys::MemoryContext,
    /// Tuples pulled.
    pub pulled: u64,
    /// Tuples left out for NULL.
    pub skipped: u64,
    /// Tuples left out for other reasons.
    pub passed_over: u64,
    /// Tuples of this fill that are held out.
    pub held_out: u64,
    /// Take the time of some tuples?
    pub trace: bool,
    /// Tuples until the next one that is timed.
    pub until_timed: u32,
    /// Wall time of scanning those, in nanoseconds.
    pub scan_ns: u64,
    /// Wall time of decoding them.
    pub decode_ns: u64,
    /// Bytes of arrays that were stored out of line or compressed, as they are when plain.
    pub detoasted: u64,
}

/// One short tuple in so many is timed: a look at the clock costs a fourth of it. Of long ones more are.
const TIMED: u32 = 256;
/// A tuple that takes longer waited for the disk or the processor; that is not work.
const MOST_NS: u64 = 20_000;

/// Raw view of a buffer's storage.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    values: *mut f32,
    indices: *mut u32,
    ends: *mut u32,
    labels: *mut f32,
    weights: *mut f32,
    weights_there: usize,
    row_bytes: usize,
    rows: usize,
    rows_there: usize,
    used: usize,
    values_there: usize,
    limit: usize,
    max_features: usize,
}

impl Room {
    /// A view of the buffer; valid until the buffer is touched otherwise.
    pub fn of(buffer: &mut TupleBuffer) -> Self {
        let (rows_there, _) = buffer.capacity();
        let (limit, max_features) = (buffer.limit(), buffer.max_features());
        let dense = matches!(buffer.density(), Density::Dense(_));
        let row_bytes = buffer.sparse_row_bytes();
        let storage = buffer.storage();
        Self {
            rows: storage.rows,
            rows_there: if dense { rows_there } else { storage.labels.len().min(storage.ends.len()) },
            used: storage.used,
            // Ends of rows are 32 bits wide.
            values_there: storage.values.len().min(u32::MAX as usize),
            values: storage.values.as_mut_ptr(),
            indices: storage.indices.as_mut_ptr(),
            ends: storage.ends.as_mut_ptr(),
            labels: storage.labels.as_mut_ptr(),
            weights: storage.weights.as_mut_ptr(),
            weights_there: storage.weights.len(),
            row_bytes,
            limit,
            max_features,
        }
    }

    /// Makes what was appended valid.
    pub fn commit(self, buffer: &mut TupleBuffer) {
        buffer.commit(self.rows, self.max_features);
    }
}

/// A float's key: equal numbers have equal bits.
#[inline(always)]
pub fn float_key(x: f64) -> u64 {
    (x + 0.0).to_bits()
}

impl Decoder {
    /// The class key of a by-value target.
    ///
    /// # Safety
    /// `datum` is of the type that `label_read` says.
    #[inline(always)]
    pub fn key(&self, datum: pg_sys::Datum) -> u64 {
        match self.label_read {
            LabelRead::Bool => u64::from(datum.value() as u8 != 0),
            LabelRead::Int2 => i64::from(datum.value() as i16) as u64,
            LabelRead::Int4 => i64::from(datum.value() as i32) as u64,
            LabelRead::Float4 => float_key(f64::from(f32::from_bits(datum.value() as u32))),
            LabelRead::Float8 => float_key(f64::from_bits(datum.value() as u64)),
            _ => datum.value() as u64,
        }
    }

    /// The number of a by-value target.
    #[inline(always)]
    fn number(&self, datum: pg_sys::Datum) -> f32 {
        match self.label_read {
            LabelRead::Bool => f32::from(u8::from(datum.value() as u8 != 0)),
            LabelRead::Int2 => f32::from(datum.value() as i16),
            LabelRead::Int4 => datum.value() as i32 as f32,
            LabelRead::Float4 => f32::from_bits(datum.value() as u32),
            LabelRead::Float8 => f64::from_bits(datum.value() as u64) as f32,
            _ => datum.value() as i64 as f32,
        }
    }

    #[inline(always)]
    unsafe fn find_label(&mut self, datum: pg_sys::Datum) -> Result<f32, Stop> {
        if self.label_read == LabelRead::Slow {
            return Err(Stop::UnknownLabel);
        }
        if self.numbers {
            let number = self.number(datum);
            return if number.is_finite() { Ok(number) } else { Err(Stop::NotFinite(Column::Target, 0)) };
        }
        if self.label_read == LabelRead::Bytes {
            // SAFETY: by contract of `decode` a varlena; known texts live as long as the node.
            unsafe {
                let (at, len) = array::plain(datum, self.temporary);
                let mut i = 0;
                while i < self.known {
                    let (known, known_len) = *self.texts.get_unchecked(i);
                    if known_len == len && libc::memcmp(known.cast(), at.cast(), len) == 0 {
                        return Ok(*self.labels.get_unchecked(i));
                    }
                    i += 1;
                }
            }
            return Err(Stop::UnknownLabel);
        }
        let key = self.key(datum);
        let mut i = 0;
        while i < self.known {
            // SAFETY: `known` is at most the length of the arrays.
            unsafe {
                if *self.keys.get_unchecked(i) == key {
                    return Ok(*self.labels.get_unchecked(i));
                }
            }
            i += 1;
        }
        Err(Stop::UnknownLabel)
    }

    /// Opens an array column and checks its element type's promise.
    #[inline(always)]
    unsafe fn array(&mut self, datum: pg_sys::Datum, column: Column) -> Result<RawArray, Stop> {
        // SAFETY: by contract of `decode`.
        unsafe {
            let element = if column == Column::Indices { self.index_element } else { self.value_element };
            let opened = array::open(datum, element, self.temporary).map_err(|what| Stop::Unusable(column, what))?;
            if array::is_toasted(datum) {
                self.detoasted += (opened.len * element.bytes()) as u64;
            }
            Ok(opened)
        }
    }

    /// Numbers and values of a column that holds both.
    #[inline(always)]
    unsafe fn unpack(&mut self, datum: pg_sys::Datum) -> Result<(RawArray, RawArray), Stop> {
        // SAFETY: by contract of `decode` a varlena; both halves lie inside it.
        unsafe {
            let (at, size) = array::plain(datum, self.temporary);
            if size % 8 != 0 {
                return Err(Stop::Unusable(Column::Values, Unusable::Corrupt));
            }
            let len = size / 8;
            Ok((RawArray { len, data: at }, RawArray { len, data: at.add(4 * len) }))
        }
    }

    /// The hash by which the tuple just written to row `rows` is held out or not.
    ///
    /// # Safety
    /// `from..to` are its values in `room`.
    #[inline(always)]
    unsafe fn hash(&self, room: &Room, label: f32, from: usize, to: usize) -> u64 {
        // SAFETY: by contract; the scan is the one that the child reads.
        unsafe {
            if !self.position.is_null() {
                let place = if self.sorted.is_null() {
                    (*self.position).current_place()
                } else {
                    (*(*self.pending).tts_values.add(1)).value() as u64
                };
                return mix(self.hold_out_seed, place);
            }
            let mut hash = mix(self.hold_out_seed, u64::from(label.to_bits()));
            let mut i = from;
            while i < to {
                let number = if self.sparse { *room.indices.add(i) } else { 0 };
                hash = mix(hash, (u64::from(number) << 32) | u64::from((*room.values.add(i)).to_bits()));
                i += 1;
            }
            hash
        }
    }

    /// What becomes of a row whose value at `position` (from 1) is not finite: NaN is as NULL where those are skipped.
    ///
    /// # Safety
    /// `values` holds what was copied.
    #[cold]
    unsafe fn not_finite(&self, values: *const f32, position: usize) -> Result<Taken, Stop> {
        // SAFETY: by contract.
        if self.skip_nulls && unsafe { *values.add(position - 1) }.is_nan() {
            return Ok(Taken::Null);
        }
        Err(Stop::NotFinite(Column::Values, position))
    }

    /// Decodes one tuple into `room`.
    ///
    /// # Safety
    /// Inside a guard; `values` and `nulls` hold the columns that the decoder was made for.
    #[inline(always)]
    pub unsafe fn decode(
        &mut self,
        values: *const pg_sys::Datum,
        nulls: *const bool,
        room: &mut Room,
    ) -> Result<Taken, Stop> {
        // SAFETY: by contract; every write to `room` is below the lengths it was made with.
        unsafe {
            let mut weight = 1.0;
            if self.weighted {
                if *nulls.add(self.weight) {
                    return if self.skip_nulls { Ok(Taken::Null) } else { Err(Stop::Null(Column::Weight)) };
                }
                let given = f64::from_bits((*values.add(self.weight)).value() as u64);
                weight = given as f32;
                if !(given >= 0.0 && weight.is_finite()) {
                    return Err(Stop::Weight(given));
                }
                if weight == 0.0 {
                    return Ok(Taken::Absent);
                }
            }
            let mut null = None;
            if *nulls.add(self.values) {
                null = Some(Column::Values);
            }
            if self.sparse && !self.packed && *nulls.add(self.indices) {
                null = Some(Column::Indices);
            }
            if *nulls.add(self.target) {
                null = Some(Column::Target);
            }
            if let Some(column) = null {
                return if self.skip_nulls { Ok(Taken::Null) } else { Err(Stop::Null(column)) };
            }
            let (packed, features) = if self.packed {
                let (numbers, features) = self.unpack(*values.add(self.values))?;
                (Some(numbers), features)
            } else {
                match self.array(*values.add(self.values), Column::Values) {
                    Err(Stop::Unusable(_, Unusable::NullAt(_))) if self.skip_nulls => return Ok(Taken::Null),
                    other => (None, other?),
                }
            };
            let label = match self.label {
                Some(label) => label,
                None => self.find_label(*values.add(self.target))?,
            };
            self.label = Some(label);
            let rows = room.rows;
            let (from, to);
            if self.sparse {
                let numbers = match packed {
                    Some(numbers) => numbers,
                    None => match self.array(*values.add(self.indices), Column::Indices) {
                        Err(Stop::Unusable(_, Unusable::NullAt(_))) if self.skip_nulls => return Ok(Taken::Null),
                        other => other?,
                    },
                };
                let n = features.len;
                if numbers.len != n {
                    return Err(Stop::Unpaired(numbers.len, n));
                }
                if rows > 0 && (rows + 1) * room.row_bytes + (room.used + n) * 8 > room.limit {
                    return Err(Stop::Full);
                }
                if rows >= room.rows_there || room.used + n > room.values_there {
                    return Err(Stop::Room(n));
                }
                let (to_values, to_indices) = (room.values.add(room.used), room.indices.add(room.used));
                if let Some(position) = array::copy_values(features, self.value_element, to_values) {
                    return self.not_finite(to_values, position);
                }
                let mut previous = 0i64;
                let mut i = 0;
                while i < n {
                    let number = array::integer_at(numbers, self.index_element, i);
                    if number <= previous || number > self.max_index {
                        return Err(Stop::Index(i + 1, number));
                    }
                    *to_indices.add(i) = (number - 1) as u32;
                    previous = number;
                    i += 1;
                }
                room.max_features = room.max_features.max(previous as usize);
                (from, to) = (room.used, room.used + n);
            } else {
                if features.len != self.dims || features.len == 0 {
                    return Err(Stop::Length(features.len));
                }
                if rows >= room.rows_there {
                    return Err(Stop::Room(features.len));
                }
                (from, to) = (rows * self.dims, (rows + 1) * self.dims);
                let to_values = room.values.add(from);
                if let Some(position) = array::copy_values(features, self.value_element, to_values) {
                    return self.not_finite(to_values, position);
                }
            }
            self.label = None;
            if self.hold_out_below > 0 && self.hash(room, label, from, to) < self.hold_out_below {
                if self.held_out_known {
                    return Ok(Taken::HeldOut);
                }
                weight = -weight;
                self.held_out += 1;
            }
            if room.weights_there > rows {
                *room.weights.add(rows) = weight;
            }
            if self.sparse {
                room.used = to;
                *room.ends.add(rows) = to as u32;
            }
            *room.labels.add(rows) = label;
            room.rows = rows + 1;
            Ok(Taken::Row)
        }
    }

    /// Makes the next tuple pending, if none is. False at the end of the input.
    ///
    /// # Safety
    /// Inside a guard; `child` is a valid plan state whose parameters are settled.
    #[inline(always)]
    unsafe fn pull(&mut self, child: *mut pg_sys::PlanState) -> bool {
        // SAFETY: by contract; a slot that is not empty has its columns deformed on demand.
        unsafe {
            if !self.pending.is_null() {
                return true;
            }
            if !(*self.temporary).isReset {
                raw::MemoryContextReset(self.temporary);
            }
            let slot = if !self.sorted.is_null() {
                (*self.sorted).next()
            } else if !self.direct.is_null() {
                (*self.direct).next_table_slot()
            } else if let Some(exec) = (*child).ExecProcNode {
                exec(child)
            } else {
                return false;
            };
            if slot.is_null() || (*slot).tts_flags & pg_sys::TTS_FLAG_EMPTY as u16 != 0 {
                return false;
            }
            if i32::from((*slot).tts_nvalid) < self.columns {
                raw::slot_getsomeattrs_int(slot, self.columns);
            }
            self.pending = slot;
            self.label = None;
            self.pulled += 1;
            true
        }
    }

    /// Notes the first tuple of a block, of which the last of `rows` in the buffer may be one.
    ///
    /// # Safety
    /// The scan is the one that the child reads; `block_starts` holds `blocks` numbers.
    #[inline(always)]
    unsafe fn note_block(&mut self, rows: usize) {
        if self.block_starts.is_null() || self.position.is_null() {
            return;
        }
        // SAFETY: by contract.
        unsafe {
            let block = (*self.position).blocks_begun();
            if block != self.block && block <= self.blocks {
                self.block = block;
                *self.block_starts.add(block - 1) = self.rows_before + rows as u32 - 1;
            }
        }
    }

    /// Pulls and decodes until something needs doing, at most `quota` tuples.
    ///
    /// # Safety
    /// Inside a guard; as for `pull` and `decode`.
    pub unsafe fn run(&mut self, child: *mut pg_sys::PlanState, room: &mut Room, quota: u32) -> Stop {
        let mut left = quota;
        let detoasted = self.detoasted + QUOTA_BYTES;
        // SAFETY: by contract.
        unsafe {
            while left > 0 && self.detoasted < detoasted {
                let timed = self.trace && self.until_timed == 0;
                self.until_timed = if self.until_timed == 0 {
                    (TIMED / (1 + self.dims as u32 / 64)).max(4)
                } else {
                    self.until_timed - 1
                };
                let start = if timed { thread::wall_ns() } else { 0 };
                if !self.pull(child) {
                    return Stop::End;
                }
                let pulled = if timed { thread::wall_ns() } else { 0 };
                let slot = self.pending;
                match self.decode((*slot).tts_values, (*slot).tts_isnull, room) {
                    Ok(Taken::Row) => self.note_block(room.rows),
                    Ok(Taken::Null) => self.skipped += 1,
                    Ok(Taken::Absent | Taken::HeldOut) => self.passed_over += 1,
                    Err(stop) => return stop,
                }
                self.pending = core::ptr::null_mut();
                left -= 1;
                if timed {
                    self.scan_ns += (pulled - start).min(MOST_NS);
                    self.decode_ns += (thread::wall_ns() - pulled).min(MOST_NS);
                }
            }
        }
        Stop::Quota
    }

    /// Puts up to `quota` tuples into a sort; true at the end of the input.
    ///
    /// # Safety
    /// Inside a guard; as for `pull`.
    pub unsafe fn run_sort(&mut self, child: *mut pg_sys::PlanState, sort: &mut FullShuffle, quota: u32) -> bool {
        let values = if self.sparse && !self.packed { [self.indices, self.values] } else { [self.values, self.weight] };
        let places = [self.target, values[0], values[1], self.weight];
        let mut left = quota;
        let mut detoasted = 0;
        // SAFETY: by contract.
        unsafe {
            while left > 0 && detoasted < QUOTA_BYTES {
                if !self.pull(child) {
                    return true;
                }
                // Copies of values out of line go with the row.
                let old = pg_sys::CurrentMemoryContext;
                pg_sys::CurrentMemoryContext = self.temporary;
                detoasted += sort.put(self.pending, &places, self.position);
                pg_sys::CurrentMemoryContext = old;
                self.pending = core::ptr::null_mut();
                left -= 1;
            }
        }
        false
    }

    /// Place of the values among the columns of the plan.
    pub fn values_place(&self) -> usize {
        if self.sparse && !self.packed { 2 } else { 1 }
    }

    /// From here on tuples come from a sort of the columns as `run_sort` has put them.
    pub fn read_sorted(&mut self, sort: *mut FullShuffle) {
        let values = self.values_place();
        self.sorted = sort;
        self.target = EXTRA_COLUMNS;
        self.indices = EXTRA_COLUMNS + 1;
        self.values = EXTRA_COLUMNS + values;
        self.weight = EXTRA_COLUMNS + values + 1;
        self.columns = (EXTRA_COLUMNS + values + 1) as i32 + i32::from(self.weighted);
        self.pulled = 0;
    }

    /// The place of the pending tuple, if it comes from a sort.
    pub fn sorted_position(&self) -> Option<u64> {
        if self.sorted.is_null() || self.pending.is_null() {
            return None;
        }
        // SAFETY: a row of the sort: its second column is the position as `put` wrote it.
        Some(unsafe { (*(*self.pending).tts_values.add(1)).value() as u64 })
    }

    /// Undoes `read_sorted`: the next epoch reads the input again.
    pub fn read_input(&mut self) {
        let values = self.values_place();
        self.sorted = core::ptr::null_mut();
        self.direct = core::ptr::null_mut();
        self.target = 0;
        self.indices = 1;
        self.values = values;
        self.weight = values + 1;
        self.columns = values as i32 + 1 + i32::from(self.weighted);
    }

    /// Looks at the first tuple without taking it: its number of features (dense), or `None` when
    /// there is no tuple. Tuples that will be left out are passed over.
    ///
    /// # Safety
    /// As for `run`.
    pub unsafe fn peek(&mut self, child: *mut pg_sys::PlanState) -> Result<Option<usize>, Stop> {
        // SAFETY: by contract.
        unsafe {
            while self.pull(child) {
                let slot = self.pending;
                let weightless = self.weighted
                    && !*(*slot).tts_isnull.add(self.weight)
                    && f64::from_bits((*(*slot).tts_values.add(self.weight)).value() as u64) as f32 == 0.0;
                if weightless {
                    self.passed_over += 1;
                    self.pending = core::ptr::null_mut();
                    continue;
                }
                if *(*slot).tts_isnull.add(self.values) {
                    if !self.skip_nulls {
                        return Err(Stop::Null(Column::Values));
                    }
                } else if self.packed {
                    return Ok(Some(self.unpack(*(*slot).tts_values.add(self.values))?.0.len));
                } else {
                    match self.array(*(*slot).tts_values.add(self.values), Column::Values) {
                        Ok(array) => return Ok(Some(array.len)),
                        Err(Stop::Unusable(_, Unusable::NullAt(_))) if self.skip_nulls => {}
                        Err(stop) => return Err(stop),
                    }
                }
                self.skipped += 1;
                self.pending = core::ptr::null_mut();
            }
        }
        Ok(None)
    }
}
