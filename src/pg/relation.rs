//! Names of relations and roles.

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
