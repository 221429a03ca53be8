//! Names and kinds of relations.

use pgrx::pg_sys;
use std::ffi::CStr;

/// A string that the server allocated; empty for null.
///
/// # Safety
/// `text` is null or NUL-terminated.
pub unsafe fn string(text: *const core::ffi::c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// `schema.name`, quoted where needed; `None` if there is no such relation.
pub fn qualified_name(oid: pg_sys::Oid) -> Option<String> {
    // SAFETY: look-ups by oid that give null when it does not exist.
    unsafe {
        let name = pg_sys::get_rel_name(oid);
        if name.is_null() {
            return None;
        }
        let schema = pg_sys::get_namespace_name(pg_sys::get_rel_namespace(oid));
        Some(string(pg_sys::quote_qualified_identifier(schema, name)))
    }
}

/// The tables that hold the rows of a table: itself, its partitions, its children; none for a view.
pub fn leaves_of(oid: pg_sys::Oid) -> Vec<pg_sys::Oid> {
    // SAFETY: a look-up by oid; the list is palloc'd in the current memory context.
    unsafe {
        if pg_sys::get_rel_relkind(oid) as u8 == pg_sys::RELKIND_VIEW {
            return Vec::new();
        }
        let all = pg_sys::find_all_inheritors(oid, pg_sys::AccessShareLock as i32, std::ptr::null_mut());
        let all: Vec<pg_sys::Oid> = pgrx::PgList::<pg_sys::Oid>::from_pg(all).iter_oid().collect();
        all.into_iter().filter(|oid| pg_sys::get_rel_relkind(*oid) as u8 != pg_sys::RELKIND_PARTITIONED_TABLE).collect()
    }
}

/// Whether a table is stored by heap: other access methods may lack the sampling interface that
/// block_scan uses, and are read by their own sequential scan, as foreign tables are.
pub fn is_heap(oid: pg_sys::Oid) -> bool {
    // SAFETY: raises an error for an oid that is gone; the lock is the transaction's.
    unsafe {
        let relation = pg_sys::relation_open(oid, pg_sys::AccessShareLock as i32);
        let heap = (*(*relation).rd_rel).relam == pg_sys::HEAP_TABLE_AM_OID;
        pg_sys::relation_close(relation, pg_sys::NoLock as i32);
        heap
    }
}
