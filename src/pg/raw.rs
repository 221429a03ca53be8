//! Server functions called without pgrx's guard around each call.
//!
//! A guard costs 17–34 ns, a tuple some 100: the hot loops are guarded as a whole
//! (`pg_guard_ffi_boundary` around a closure of plain data, see `fill`), and inside them these are
//! called as C would. An ERROR in one of them jumps to that guard over Rust frames that own nothing
//! to drop. Never call them outside a guard.

use pgrx::pg_sys;

unsafe extern "C-unwind" {
    /// execScan.c: fetches, filters and projects one tuple.
    pub fn ExecScan(
        node: *mut pg_sys::ScanState,
        access: pg_sys::ExecScanAccessMtd,
        recheck: pg_sys::ExecScanRecheckMtd,
    ) -> *mut pg_sys::TupleTableSlot;
    /// execTuples.c: deforms the first `attnum` attributes.
    pub fn slot_getsomeattrs_int(slot: *mut pg_sys::TupleTableSlot, attnum: core::ffi::c_int);
    /// detoast.c: a plain, four-byte-header copy in the current memory context.
    pub fn detoast_attr(attr: *mut pg_sys::varlena) -> *mut pg_sys::varlena;
    /// mcxt.c: frees everything in the context.
    pub fn MemoryContextReset(context: pg_sys::MemoryContext);
}
