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
    row: Option<RowType>,
    types: Vec<pg_sys::Oid>,
    values: Vec<pg_sys::Datum>,
    nulls: Vec<bool>,
}

/// What rows are taken apart by.
struct RowType {
    oid: pg_sys::Oid,
    modifier: i32,
    descriptor: pg_sys::TupleDesc,
}

impl Spread {
    /// The columns from argument `from` on; `None` where they are a row that is NULL. What is kept of a row's type
    /// lives in `context`.
    ///
    /// # Safety
    /// A valid call frame; the result does not outlive `context`.
    pub unsafe fn new(call: Call, from: usize, context: pg_sys::MemoryContext) -> Option<Self> {
        let mut this = Self { from, row: None, types: Vec::new(), values: Vec::new(), nulls: Vec::new() };
        if call.len() != from + 1 || call.type_of(from) != pg_sys::RECORDOID {
            this.types = (from..call.len()).map(|i| call.type_of(i)).collect();
            return Some(this);
        }
        let row = call.get(from)?;
        // SAFETY: a composite value says what its type is; the copy of the type lives in the context.
        unsafe {
            let header = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
            let (oid, modifier) = ((*header).t_choice.t_datum.datum_typeid, (*header).t_choice.t_datum.datum_typmod);
            let old = pg_sys::MemoryContextSwitchTo(context);
            let descriptor = pg_sys::lookup_rowtype_tupdesc_copy(oid, modifier);
            pg_sys::MemoryContextSwitchTo(old);
            let columns = (*descriptor).natts as usize;
            this.row = Some(RowType { oid, modifier, descriptor });
            this.values = vec![pg_sys::Datum::from(0); columns];
            this.nulls = vec![true; columns];
            this.types = (1..=columns as i32).map(|i| pg_sys::SPI_gettypeid(descriptor, i)).collect();
        }
        Some(this)
    }

    /// Types of the columns.
    pub fn types(&self) -> &[pg_sys::Oid] {
        &self.types
    }

    /// Takes the row of this call apart, if the columns are one; false if it is NULL. A row of another type than the
    /// first is an error.
    ///
    /// # Safety
    /// A call as the one that this was made for.
    pub unsafe fn read(&mut self, call: Call) -> bool {
        let Some(row_type) = &self.row else { return true };
        let Some(row) = call.get(self.from) else { return false };
        // SAFETY: a composite value; it is taken apart by the type that it says it has, with as many places as columns.
        unsafe {
            let header = pg_sys::pg_detoast_datum(row.cast_mut_ptr()).cast::<pg_sys::HeapTupleHeaderData>();
            let of = (*header).t_choice.t_datum;
            if (of.datum_typeid, of.datum_typmod) != (row_type.oid, row_type.modifier) {
                error::fail(
                    PgSqlErrorCode::ERRCODE_DATATYPE_MISMATCH,
                    "rows of different types are given as the columns of one model",
                    Some("Give every row the same columns, of the same types."),
                );
            }
            let mut tuple: pg_sys::HeapTupleData = std::mem::zeroed();
            tuple.t_len = pgrx::varlena::varsize_4b(header.cast()) as u32;
            tuple.t_data = header;
            pg_sys::heap_deform_tuple(
                &mut tuple,
                row_type.descriptor,
                self.values.as_mut_ptr(),
                self.nulls.as_mut_ptr(),
            );
        }
        true
    }

    /// All columns of this call, NULL as `None`, behind what `columns` has.
    pub fn collect(&self, call: Call, columns: &mut Vec<Option<pg_sys::Datum>>) {
        if self.row.is_none() {
            columns.extend(call.all().iter().skip(self.from).map(|arg| (!arg.isnull).then_some(arg.value)));
        } else {
            columns.extend(self.values.iter().zip(&self.nulls).map(|(value, null)| (!null).then_some(*value)));
        }
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

    /// All arguments.
    fn all(&self) -> &[pg_sys::NullableDatum] {
        // SAFETY: as above; the frame has so many, and lasts as long as the call, which this value is of.
        unsafe { (*self.0).args.as_slice((*self.0).nargs as usize) }
    }

    /// Argument `i`, NULL as `None`.
    pub fn get(self, i: usize) -> Option<pg_sys::Datum> {
        self.all().get(i).filter(|arg| !arg.isnull).map(|arg| arg.value)
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

    /// The context of the aggregate that is calling.
    pub fn aggregate_context(self, aggregate: &str) -> pg_sys::MemoryContext {
        let mut context: pg_sys::MemoryContext = std::ptr::null_mut();
        // SAFETY: a valid call frame by construction.
        if unsafe { pg_sys::AggCheckCallContext(self.0, &mut context) } == 0 {
            error::internal(&format!("a function of {aggregate} was called outside an aggregate"));
        }
        context
    }

    /// Returns NULL.
    pub fn null(self) -> pg_sys::Datum {
        // SAFETY: as above.
        unsafe { (*self.0).isnull = true };
        pg_sys::Datum::from(0)
    }
}
