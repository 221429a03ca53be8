//! Server functions called without pgrx's guard around each call.
//!
//! A guard costs 17–34 ns, a tuple some 100: the hot loops are guarded as a whole
//! (`pg_guard_ffi_boundary` around a closure of plain data, see `fill`), and inside them these are
//! called as C would. An ERROR in one of them jumps to that guard over Rust frames that own nothing
//! to drop. Never call them outside a guard.

use pgrx::pg_sys;

/// tuptable.h: empties a slot.
///
/// # Safety
/// Inside a guard.
#[allow(ffi_unwind_calls, reason = "inside the caller's pg_guard_ffi_boundary")]
#[inline(always)]
pub unsafe fn clear_slot(slot: *mut pg_sys::TupleTableSlot) {
    // SAFETY: every slot has its methods.
    unsafe {
        if let Some(clear) = (*(*slot).tts_ops).clear {
            clear(slot);
        }
    }
}

unsafe extern "C-unwind" {
    /// execScan.c: fetches, filters and projects one tuple.
    pub fn ExecScan(
        node: *mut pg_sys::ScanState,
        access: pg_sys::ExecScanAccessMtd,
        recheck: pg_sys::ExecScanRecheckMtd,
    ) -> *mut pg_sys::TupleTableSlot;
    /// execTuples.c: deforms the first `attnum` attributes.
    pub fn slot_getsomeattrs_int(slot: *mut pg_sys::TupleTableSlot, attnum: core::ffi::c_int);
    /// execTuples.c: declares the values in a virtual slot valid.
    pub fn ExecStoreVirtualTuple(slot: *mut pg_sys::TupleTableSlot) -> *mut pg_sys::TupleTableSlot;
    /// tuplesort.c: adds a row to a sort.
    pub fn tuplesort_puttupleslot(state: *mut pg_sys::Tuplesortstate, slot: *mut pg_sys::TupleTableSlot);
    /// tuplesort.c: the next row of a finished sort into `slot`.
    pub fn tuplesort_gettupleslot(
        state: *mut pg_sys::Tuplesortstate,
        forward: bool,
        copy: bool,
        slot: *mut pg_sys::TupleTableSlot,
        abbrev: *mut pg_sys::Datum,
    ) -> bool;
    /// detoast.c: an in-line copy, still compressed if it was, in the current memory context.
    pub fn detoast_external_attr(attr: *mut pg_sys::varlena) -> *mut pg_sys::varlena;
    /// detoast.c: a plain, four-byte-header copy in the current memory context.
    pub fn detoast_attr(attr: *mut pg_sys::varlena) -> *mut pg_sys::varlena;
    /// fd.c: opens a file that is closed at the end of the transaction if not before; negative on failure.
    pub fn OpenTransientFile(path: *const core::ffi::c_char, flags: core::ffi::c_int) -> core::ffi::c_int;
    /// fd.c: closes it.
    pub fn CloseTransientFile(fd: core::ffi::c_int) -> core::ffi::c_int;
    /// mcxt.c: frees everything in the context.
    pub fn MemoryContextReset(context: pg_sys::MemoryContext);
}

/// Functions that read a variable and raise nothing: they need no guard anywhere.
pub mod plain {
    use pgrx::pg_sys;

    unsafe extern "C-unwind" {
        /// miscinit.c: the current role.
        pub safe fn GetUserId() -> pg_sys::Oid;
        /// snapmgr.c: is there an active snapshot?
        pub safe fn ActiveSnapshotSet() -> bool;
        /// snapmgr.c: the active snapshot; there must be one.
        pub fn GetActiveSnapshot() -> pg_sys::Snapshot;
    }
}
