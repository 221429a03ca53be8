//! The model type's input and output, and functions about stored models.

use super::arguments::Call;
use super::predict::model_argument;
use crate::catalog::{self, ModelKey};
use crate::error;
use crate::pg::{progress, types};
use crate::pg_function;
use corgipile_core::model::Model;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::iter::TableIterator;
use pgrx::{IntoDatum, JsonB, PgSqlErrorCode, name, pg_extern, pg_sys};

pg_function!(
    /// corgipile.model_from_bytes(bytea) → corgipile.model: checks format and checksum.
    corgipile_model_from_bytes,
    pg_finfo_corgipile_model_from_bytes,
    model_from_bytes
);
pg_function!(
    /// Input function of corgipile.model: the text form of a bytea.
    corgipile_model_in,
    pg_finfo_corgipile_model_in,
    model_in
);
pg_function!(
    /// Binary input function of corgipile.model.
    corgipile_model_recv,
    pg_finfo_corgipile_model_recv,
    model_recv
);
pg_function!(
    /// corgipile.model_info(model) → jsonb: the header.
    corgipile_model_info,
    pg_finfo_corgipile_model_info,
    model_info
);
pg_function!(
    /// model_vector(model) → real[]: the weights, intercept last; for softmax class after class.
    corgipile_model_vector,
    pg_finfo_corgipile_model_vector,
    model_vector
);

/// The datum unchanged, if its bytes are a model.
unsafe fn checked(datum: pg_sys::Datum) -> pg_sys::Datum {
    // SAFETY: a varlena.
    let bytes = unsafe { types::varlena_bytes(datum) };
    if let Err(e) = Model::decode(bytes) {
        error::raise(e);
    }
    datum
}

unsafe fn model_from_bytes(call: Call) -> pg_sys::Datum {
    // SAFETY: a bytea argument.
    call.get(0).map_or_else(|| call.null(), |datum| unsafe { checked(datum) })
}

unsafe fn model_in(call: Call) -> pg_sys::Datum {
    // SAFETY: a cstring argument; byteain parses it or raises an error.
    call.get(0).map_or_else(
        || call.null(),
        |datum| unsafe { checked(pg_sys::DirectFunctionCall1Coll(Some(byteain), pg_sys::InvalidOid, datum)) },
    )
}

unsafe fn model_recv(call: Call) -> pg_sys::Datum {
    // SAFETY: an internal StringInfo argument; bytearecv reads it.
    call.get(0).map_or_else(
        || call.null(),
        |datum| unsafe { checked(pg_sys::DirectFunctionCall1Coll(Some(bytearecv), pg_sys::InvalidOid, datum)) },
    )
}

unsafe extern "C-unwind" {
    fn byteain(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
    fn bytearecv(fcinfo: pg_sys::FunctionCallInfo) -> pg_sys::Datum;
}

unsafe fn model_info(call: Call) -> pg_sys::Datum {
    let Some(model) = model_argument(call) else { return call.null() };
    match serde_json::to_value(&model.header) {
        Ok(json) => JsonB(json).into_datum().unwrap_or_else(|| call.null()),
        Err(e) => error::internal(&format!("the model's header cannot be shown: {e}")),
    }
}

unsafe fn model_vector(call: Call) -> pg_sys::Datum {
    let Some(model) = model_argument(call) else { return call.null() };
    model.weights.clone().into_datum().unwrap_or_else(|| call.null())
}

/// corgipile.training_progress_rows() → one row a training that runs, of the roles whose rights one has.
#[pg_extern]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn training_progress_rows() -> TableIterator<
    'static,
    (
        name!(pid, i32),
        name!(datid, pg_sys::Oid),
        name!(usesysid, pg_sys::Oid),
        name!(relid, pg_sys::Oid),
        name!(phase, String),
        name!(epoch, i64),
        name!(max_epochs, i64),
        name!(blocks_done, i64),
        name!(blocks_total, i64),
        name!(tuples, i64),
        name!(loss, Option<f64>),
        name!(started_at, Option<TimestampWithTimeZone>),
    ),
> {
    TableIterator::new(progress::all().into_iter().map(|row| {
        let started = TimestampWithTimeZone::try_from(row.started).ok();
        let (pid, phase) = (row.pid, row.phase.to_string());
        (
            pid,
            row.database,
            row.role,
            row.relation,
            phase,
            row.epoch,
            row.max_epochs,
            row.blocks_done,
            row.blocks_total,
            row.tuples,
            row.loss,
            started,
        )
    }))
}

/// Forgets a model; true if there was one.
fn drop_model(key: ModelKey, missing_ok: bool) -> bool {
    // SAFETY: plain checks that raise the server's own errors.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(c"drop_model()".as_ptr());
        pg_sys::PreventCommandDuringRecovery(c"drop_model()".as_ptr());
    }
    match catalog::lookup(&key) {
        Some(stored) => {
            catalog::delete(stored.id);
            true
        }
        None if missing_ok => false,
        None => catalog::no_such_model(&key),
    }
}

/// drop_model(bigint, boolean)
#[pg_extern]
fn drop_model_by_id(id: i64, missing_ok: bool) -> bool {
    drop_model(ModelKey::Id(id), missing_ok)
}

/// drop_model(text, boolean)
#[pg_extern]
fn drop_model_by_name(name: String, missing_ok: bool) -> bool {
    drop_model(ModelKey::Name(name), missing_ok)
}

/// Checks a name before anything is trained under it.
pub fn check_new_name(name: &str) {
    if name.is_empty() || name.len() > 255 || name.bytes().all(|b| b.is_ascii_digit()) {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_NAME,
            format!("\"{name}\" cannot be the name of a model"),
            Some("A name has 1 to 255 bytes and is not a number, since numbers are ids."),
        );
    }
    let key = ModelKey::Name(name.into());
    // SAFETY: a statement is running, so there is a transaction; the latest state is wanted.
    if unsafe { catalog::find(&key, std::ptr::null_mut()) }.is_some() {
        error::fail(
            PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
            format!("model {key} already exists"),
            Some("Choose another model_name, or forget the old model with drop_model."),
        );
    }
}
