//! PostgreSQL's `List`, and the nodes that plans are allowed to carry.

use pgrx::{PgList, pg_sys};
use serde::{Serialize, de::DeserializeOwned};
use std::ffi::{CStr, CString};

/// The pointers in a list.
///
/// # Safety
/// `list` is NIL or a valid list of pointers.
pub unsafe fn pointers<T>(list: *mut pg_sys::List) -> Vec<*mut T> {
    // SAFETY: by contract; PgList only reads the list here.
    unsafe { PgList::<T>::from_pg(list).iter_ptr().collect() }
}

/// A list of these pointers, in the current memory context.
pub fn from_pointers<T>(items: &[*mut T]) -> *mut pg_sys::List {
    let mut list = PgList::<T>::new();
    for item in items {
        list.push(*item);
    }
    list.into_pg()
}

/// A plan's private data: one String node with JSON. It survives copyObject and nodeToString.
pub fn private_data<T: Serialize>(data: &T) -> *mut pg_sys::List {
    let json = serde_json::to_string(data).unwrap_or_default().replace('\0', "");
    let json = CString::new(json).unwrap_or_default();
    // SAFETY: pstrdup copies the string, makeString wraps the copy; both live in the planner's context.
    let node = unsafe { pg_sys::makeString(pg_sys::pstrdup(json.as_ptr())) };
    from_pointers(&[node])
}

/// Reads [`private_data`] back; `None` when it is not ours.
///
/// # Safety
/// `list` is NIL or the `custom_private` of a plan.
pub unsafe fn read_private_data<T: DeserializeOwned>(list: *mut pg_sys::List) -> Option<T> {
    // SAFETY: by contract the list holds String nodes; the string is NUL-terminated.
    let json = unsafe {
        let nodes = pointers::<pg_sys::String>(list);
        let node = nodes.first().filter(|node| !node.is_null())?;
        #[allow(clippy::unnecessary_cast)]
        CStr::from_ptr((**node).sval as *const core::ffi::c_char)
    };
    serde_json::from_slice(json.to_bytes()).ok()
}
