//! Arguments of functions that are called with any of several types (version-1 convention).

use crate::error;
use pgrx::{PgSqlErrorCode, pg_sys};

/// Declares a version-1 C function: its info record and a guarded entry.
#[macro_export]
macro_rules! pg_function {
    ($(#[$doc:meta])* $name:ident, $info:ident, $body:path) => {
        #[doc = "The calling convention of the function below (fmgr.h)."]
        #[unsafe(no_mangle)]
        pub extern "C" fn $info() -> *const pgrx::pg_sys::Pg_finfo_record {
            static INFO: pgrx::pg_sys::Pg_finfo_record = pgrx::pg_sys::Pg_finfo_record { api_version: 1 };
            &INFO
        }
        $(#[$doc])*
        #[unsafe(no_mangle)]
        #[pgrx::pg_guard]
        pub unsafe extern "C-unwind" fn $name(fcinfo: pgrx::pg_sys::FunctionCallInfo) -> pgrx::pg_sys::Datum {
            let body: unsafe fn(Call) -> pgrx::pg_sys::Datum = $body;
            // SAFETY: called by fmgr with a valid call frame.
            unsafe { body(Call(fcinfo)) }
        }
    };
}

/// A call in progress.
#[derive(Clone, Copy)]
pub struct Call(pub pg_sys::FunctionCallInfo);

impl Call {
    /// Number of arguments.
    pub fn len(self) -> usize {
        // SAFETY: a valid call frame by construction.
        unsafe { (*self.0).nargs as usize }
    }

    /// Argument `i`, NULL as `None`.
    pub fn get(self, i: usize) -> Option<pg_sys::Datum> {
        // SAFETY: as above; `i` is below `len` by the function's declaration.
        unsafe {
            let args = (*self.0).args.as_slice((*self.0).nargs as usize);
            args.get(i).filter(|arg| !arg.isnull).map(|arg| arg.value)
        }
    }

    /// The actual type of argument `i`. A call without that knowledge (the fast-path protocol) is an
    /// error: what the datum holds could only be guessed.
    pub fn type_of(self, i: usize) -> pg_sys::Oid {
        // SAFETY: as above; InvalidOid when the expression is not known.
        let oid = unsafe { pg_sys::get_fn_expr_argtype((*self.0).flinfo, i as i32) };
        if oid == pg_sys::InvalidOid {
            error::fail(
                PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
                "this function needs to know the types of its arguments",
                Some("Call it in a query, not by the fast-path protocol."),
            );
        }
        oid
    }

    /// Returns NULL.
    pub fn null(self) -> pg_sys::Datum {
        // SAFETY: as above.
        unsafe { (*self.0).isnull = true };
        pg_sys::Datum::from(0)
    }
}
