//! A full shuffle: all tuples of the input sorted by a random key, by PostgreSQL's own sort, which
//! keeps to a memory limit and to temp_file_limit and whose files go with the query however it ends.
//!
//! Arrays kept out of line are fetched first: the copy is read in order, as a shuffled table would be.

#![allow(ffi_unwind_calls, reason = "called inside a pg_guard_ffi_boundary, as the module says")]

use super::block_scan::BlockScan;
use super::raw;
use corgipile_core::permute::Keys;
use pgrx::pg_sys;
use pgrx::varlena::varatt_is_1b_e;

/// Columns before those of the input: the key, and the position of the row.
pub const EXTRA_COLUMNS: usize = 2;

/// What the sort took.
#[derive(Debug, Clone, Copy)]
pub struct Space {
    /// "external merge" and the like.
    pub method: &'static str,
    /// On disk, or else in memory.
    pub disk: bool,
    /// Kilobytes.
    pub kilobytes: i64,
}

/// A sort, being filled or read.
pub struct FullShuffle {
    state: *mut pg_sys::Tuplesortstate,
    input: *mut pg_sys::TupleTableSlot,
    output: *mut pg_sys::TupleTableSlot,
    columns: usize,
    /// Columns whose values may be out of line.
    varlena: [bool; 4],
    keys: Keys,
}

impl FullShuffle {
    /// An empty sort of rows with columns of these types (at most 4), in at most `kilobytes` of memory.
    ///
    /// # Safety
    /// The current memory context and resource owner last as long as the sort.
    pub unsafe fn new(types: &[pg_sys::Oid], kilobytes: i32, seed: i64, epoch: u32) -> Self {
        // SAFETY: by contract; the arrays are read during the calls only.
        unsafe {
            let columns = types.len().min(4);
            let total = EXTRA_COLUMNS + columns;
            let descriptor = pg_sys::CreateTemplateTupleDesc(total as i32);
            let mut varlena = [false; 4];
            for i in 0..total {
                let oid = if i < EXTRA_COLUMNS { pg_sys::INT8OID } else { types[i - EXTRA_COLUMNS] };
                pg_sys::TupleDescInitEntry(descriptor, (i + 1) as i16, core::ptr::null(), oid, -1, 0);
                if i >= EXTRA_COLUMNS {
                    varlena[i - EXTRA_COLUMNS] = pg_sys::get_typlen(oid) == -1;
                }
            }
            let (mut number, mut operator, mut collation, mut nulls_first) =
                (1i16, pg_sys::Oid::from(pg_sys::Int8LessOperator), pg_sys::InvalidOid, false);
            let state = pg_sys::tuplesort_begin_heap(
                descriptor,
                1,
                &mut number,
                &mut operator,
                &mut collation,
                &mut nulls_first,
                kilobytes.max(64),
                core::ptr::null_mut(),
                pg_sys::TUPLESORT_RANDOMACCESS as i32,
            );
            Self {
                state,
                input: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsVirtual),
                output: pg_sys::MakeSingleTupleTableSlot(descriptor, &raw const pg_sys::TTSOpsMinimalTuple),
                columns,
                varlena,
                keys: Keys::new(seed, epoch),
            }
        }
    }

    /// Adds a row whose columns are at these places of `slot`; `position` is the scan that it comes from,
    /// or null.
    ///
    /// # Safety
    /// Inside a guard; the slot's columns are deformed. The current memory context is reset for each row.
    #[inline]
    pub unsafe fn put(
        &mut self,
        slot: *mut pg_sys::TupleTableSlot,
        places: &[usize; 4],
        position: *const BlockScan,
    ) -> u64 {
        let mut fetched = 0;
        // SAFETY: by contract; the input slot has EXTRA_COLUMNS + columns places.
        unsafe {
            let (values, nulls) = ((*self.input).tts_values, (*self.input).tts_isnull);
            raw::clear_slot(self.input);
            *values = pg_sys::Datum::from(self.keys.next_key());
            *nulls = false;
            let place = if position.is_null() { 0 } else { (*position).current_place() };
            *values.add(1) = pg_sys::Datum::from(place);
            *nulls.add(1) = false;
            let mut i = 0;
            while i < self.columns {
                let place = places[i];
                let null = *(*slot).tts_isnull.add(place);
                let mut value = *(*slot).tts_values.add(place);
                if !null && self.varlena[i] && varatt_is_1b_e(value.cast_mut_ptr()) {
                    let whole = raw::detoast_external_attr(value.cast_mut_ptr());
                    fetched += pgrx::varlena::varsize_any(whole) as u64;
                    value = pg_sys::Datum::from(whole);
                }
                *values.add(EXTRA_COLUMNS + i) = value;
                *nulls.add(EXTRA_COLUMNS + i) = null;
                i += 1;
            }
            raw::ExecStoreVirtualTuple(self.input);
            raw::tuplesort_puttupleslot(self.state, self.input);
        }
        fetched
    }

    /// Sorts what was put.
    ///
    /// # Safety
    /// Called once, not inside an unguarded section.
    pub unsafe fn sort(&mut self) {
        // SAFETY: by contract.
        unsafe {
            pg_sys::ExecClearTuple(self.input);
            pg_sys::tuplesort_performsort(self.state);
        }
    }

    /// The next row; null at the end.
    ///
    /// # Safety
    /// Inside a guard, after `sort`.
    #[inline]
    pub unsafe fn next(&mut self) -> *mut pg_sys::TupleTableSlot {
        // SAFETY: by contract; the row stays valid until the next call.
        unsafe {
            if raw::tuplesort_gettupleslot(self.state, true, false, self.output, core::ptr::null_mut()) {
                self.output
            } else {
                core::ptr::null_mut()
            }
        }
    }

    /// Back to the first row.
    ///
    /// # Safety
    /// After `sort`, not inside an unguarded section.
    pub unsafe fn rewind(&mut self) {
        // SAFETY: by contract.
        unsafe {
            pg_sys::ExecClearTuple(self.output);
            pg_sys::tuplesort_rescan(self.state);
        }
    }

    /// What the sort took.
    ///
    /// # Safety
    /// After `sort`.
    pub unsafe fn space(&self) -> Space {
        // SAFETY: by contract; the names are constants of the server.
        unsafe {
            let mut stats = pg_sys::TuplesortInstrumentation::default();
            pg_sys::tuplesort_get_stats(self.state, &mut stats);
            let method = core::ffi::CStr::from_ptr(pg_sys::tuplesort_method_name(stats.sortMethod));
            Space {
                method: method.to_str().unwrap_or("sort"),
                disk: stats.spaceType == pg_sys::TuplesortSpaceType::SORT_SPACE_TYPE_DISK,
                kilobytes: stats.spaceUsed,
            }
        }
    }

    /// Releases memory and files. After an ERROR the server does that.
    ///
    /// # Safety
    /// Not used any more; not inside an unguarded section.
    pub unsafe fn end(self) {
        // SAFETY: by contract.
        unsafe {
            pg_sys::ExecDropSingleTupleTableSlot(self.input);
            pg_sys::ExecDropSingleTupleTableSlot(self.output);
            pg_sys::tuplesort_end(self.state);
        }
    }
}
