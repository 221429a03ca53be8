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

/// Columns among the arguments of a call: each is one, from some place on, or one row holds them all. A function takes
/// at most 100 arguments, so many columns come as a row (`values::spread`).
pub struct Spread {
    from: usize,
    row: Option<pg_sys::TupleDesc>,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

impl Spread {
    /// The columns from argument `from` on, and their types; what is kept of a row's type lives in `context`.
    ///
    /// # Safety
    /// A valid call frame; the result does not outlive `context`.
    pub unsafe fn new(call: Call, from: usize, context: pg_sys::MemoryContext) -> (Self, Vec<pg_sys::Oid>) {
        let mut this = Self { from, row: None, values: Vec::new(), nulls: Vec::new() };
        let alone = call.len() == from + 1 && call.type_of(from) == pg_sys::RECORDOID;
        let Some(row) = call.get(from).filter(|_| alone) else {
            return (this, (from..call.len()).map(|i| call.type_of(i)).collect());
        };
        // SAFETY: a composite value says what its type is; the copy of the type lives in the context.
        unsafe {
            let header = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
            let (oid, typmod) = ((*header).t_choice.t_datum.datum_typeid, (*header).t_choice.t_datum.datum_typmod);
            let old = pg_sys::MemoryContextSwitchTo(context);
            let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(oid, typmod);
            pg_sys::MemoryContextSwitchTo(old);
            let columns = (*descriptor).natts as usize;
            this.row = Some(descriptor);
            this.values = vec![pg_sys::Datum::from(0); columns];
            this.nulls = vec![true; columns];
            (this, (1..=columns as i32).map(|i| pg_sys::SPI_gettypeid(descriptor, i)).collect())
        }
    }

    /// Takes the row of this call apart, if it is one.
    ///
    /// # Safety
    /// A call as the one that this was made for.
    pub unsafe fn read(&mut self, call: Call) {
        let (Some(descriptor), Some(row)) = (self.row, call.get(self.from)) else { return };
        // SAFETY: by contract a row of that type, which has as many columns as there are places.
        unsafe {
            let header = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
            let mut tuple: pg_sys::HeapTupleData = std::mem::zeroed();
            tuple.t_len = pgrx::varlena::varsize_4b(header.cast()) as u32;
            tuple.t_data = header;
            pg_sys::heap_deform_tuple(&mut tuple, descriptor, self.values.as_mut_ptr(), self.nulls.as_mut_ptr());
        }
    }

    /// How many there are.
    pub fn len(&self, call: Call) -> usize {
        if self.row.is_none() { call.len() - self.from } else { self.values.len() }
    }

    /// Column `i` of this call, NULL as `None`.
    pub fn get(&self, call: Call, i: usize) -> Option<pg_sys::Datum> {
        if self.row.is_none() {
            return call.get(self.from + i);
        }
        self.values.get(i).copied().filter(|_| !self.nulls[i])
    }
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
