//! The model type's input and output, and functions about stored models.

use super::arguments::Call;
use super::predict::{class_number, model_argument};
use crate::catalog::{self, ModelKey, Role, Stored, Which};
use crate::error;
use crate::pg::{progress, types};
use crate::pg_function;
use corgipile_core::model::Model;
use corgipile_core::plumber::{self, EpochTrace, Operator};
use corgipile_core::report;
use pgrx::datum::TimestampWithTimeZone;
use pgrx::iter::TableIterator;
use pgrx::{FromDatum, IntoDatum, JsonB, PgSqlErrorCode, Spi, name, pg_extern, pg_sys};
use serde_json::{Value, json};

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
    /// corgipile.weights_of(model) → real[]: the weights, intercept last; for softmax class after class.
    corgipile_model_vector,
    pg_finfo_corgipile_model_vector,
    model_vector
);

pg_function!(
    /// corgipile.trace_json(model) → jsonb: what each operator of its training cost, and what follows.
    corgipile_trace_json,
    pg_finfo_corgipile_trace_json,
    trace_json
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

unsafe fn trace_json(call: Call) -> pg_sys::Datum {
    let Some(model) = model_argument(call) else { return call.null() };
    let header = &model.header;
    let epochs: Vec<Value> = header.trace.iter().map(epoch_json).collect();
    let tuning = header.tuning.map(|tuning| {
        json!({
            "predicted": tuning.predicted,
            "measured": tuning.measured,
            "limit": tuning.limit.words(),
            "best": tuning.best,
            "best_with_cache": tuning.best_with_cache,
            "with_one_core_more": tuning.what_if[0],
            "with_twice_the_memory": tuning.what_if[1],
            "with_twice_the_bandwidth": tuning.what_if[2],
            "plan": tuning.plan.map(|plan| json!({
                "block_size": plan.block,
                "buffer_size": plan.buffer,
                "cache": plan.cache,
                "reason": plan.limit.words(),
                "on_disk": plan.disk,
                "reading": plan.reading,
                "throughput": plan.throughput,
                "decoded_bytes": plan.decoded_bytes,
                // How far the estimate was off, where the exact size is known.
                "size_error": (header.cache_bytes > 0).then(|| plan.decoded_bytes / header.cache_bytes as f64 - 1.0),
            })),
        })
    });
    let program = json!({
        "loss": header.loss,
        "shuffle": header.params.shuffle,
        "batch_size": header.params.batch_size,
        "block_size": header.params.block_size,
        "buffer_size": header.params.buffer_size,
        "blocks": header.blocks,
        "cache_bytes": header.cache_bytes,
    });
    let json = json!({ "program": program, "epochs": epochs, "tuning": tuning });
    JsonB(json).into_datum().unwrap_or_else(|| call.null())
}

/// An epoch of a trace with the rates that follow from it.
fn epoch_json(trace: &EpochTrace) -> Value {
    let rates = plumber::rates(trace);
    let slowest = rates.iter().map(|rate| rate.rate).fold(f64::INFINITY, f64::min);
    let wall = trace.wall_ns.max(1) as f64;
    let ms = |ns: u64| ns as f64 / 1e6;
    let operators: Vec<Value> = Operator::ALL
        .iter()
        .zip(trace.records.iter().zip(&rates))
        .filter(|(_, (record, _))| record.completions > 0)
        .map(|(operator, (record, rate))| {
            json!({
                "operator": operator.name(),
                "completions": record.completions,
                "visit_ratio": rate.visit_ratio,
                "bytes_per_element": record.bytes as f64 / record.completions as f64,
                // JSON has no infinity: an operator that took no time has no rate.
                "rate": if rate.rate.is_finite() { json!(rate.rate) } else { Value::Null },
                "theta": record.cpu_ns as f64 / wall,
                "bottleneck": rate.rate.is_finite() && rate.rate <= slowest,
                "cpu_ms": ms(record.cpu_ns),
                "blocked_ms": ms(record.blocked_ns),
                "pages_read": record.pages_read,
                "pages_hit": record.pages_hit,
                "pages_prefetched": record.pages_prefetched,
                "detoasted_bytes": record.detoasted_bytes,
                "io_ms": ms(record.io_ns),
            })
        })
        .collect();
    json!({ "epoch": trace.epoch, "cached": trace.cached, "wall_ms": ms(trace.wall_ns), "operators": operators })
}

pg_function!(
    /// model_vector(model [, class]) → real[]: a weight for each feature, without the intercept; for softmax class after
    /// class, or those of one class. Of two classes the first is preferred by the opposite weights.
    corgipile_feature_weights,
    pg_finfo_corgipile_feature_weights,
    feature_weights
);

unsafe fn feature_weights(call: Call) -> pg_sys::Datum {
    let Some(model) = model_argument(call) else { return call.null() };
    let rows = model.weights.chunks_exact(model.row_len()).map(|row| &row[..row.len() - 1]);
    let weights: Vec<f32> = if call.len() < 2 {
        rows.flatten().copied().collect()
    } else {
        // SAFETY: a text argument.
        let Some(class) = call.get(1).and_then(|datum| unsafe { String::from_datum(datum, false) }) else {
            return call.null();
        };
        let number = class_number(&model, &class);
        let opposite = model.outputs() == 1 && number == 0;
        let sign = if opposite { -1.0 } else { 1.0 };
        let row = if model.outputs() == 1 { 0 } else { number };
        rows.skip(row).take(1).flatten().map(|weight| sign * weight).collect()
    };
    weights.into_datum().unwrap_or_else(|| call.null())
}

unsafe fn model_vector(call: Call) -> pg_sys::Datum {
    let Some(model) = model_argument(call) else { return call.null() };
    model.weights.to_vec().into_datum().unwrap_or_else(|| call.null())
}

pg_function!(
    /// import_model(exported, model_name) → id of the stored model.
    import_model_wrapper,
    pg_finfo_import_model_wrapper,
    import_model
);
pg_function!(
    /// export_model(model) → jsonb: header and weights, under scikit-learn's names.
    corgipile_export_model,
    pg_finfo_corgipile_export_model,
    export_model
);

unsafe fn export_model(call: Call) -> pg_sys::Datum {
    let Some(model) = model_argument(call) else { return call.null() };
    let json = model.to_json(interrupts).unwrap_or_else(|e| error::raise(e));
    // The server reads it: what is too large for jsonb is its own error.
    json_datum(json).unwrap_or_else(|| call.null())
}

fn interrupts() {
    pgrx::check_for_interrupts!();
}

/// Text as jsonb.
fn json_datum(text: String) -> Option<pg_sys::Datum> {
    let text = std::ffi::CString::new(text).ok()?;
    // SAFETY: the input function of jsonb reads a NUL-terminated text.
    unsafe { pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(pg_sys::Datum::from(text.as_ptr()))]) }
}

/// import_model(exported, model_name) → id of the stored model.
unsafe fn import_model(call: Call) -> pg_sys::Datum {
    require_writable(c"import_model()");
    let Some(exported) = call.get(0) else {
        error::fail(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, "the model to import is NULL", None)
    };
    // SAFETY: a jsonb argument; its output function gives a NUL-terminated text, in UTF-8 like the database.
    let exported =
        unsafe { std::ffi::CStr::from_ptr(pg_sys::OidOutputFunctionCall(pg_sys::F_JSONB_OUT.into(), exported)) };
    let exported = exported.to_str().unwrap_or_default();
    // SAFETY: a text argument.
    let model_name = call.get(1).and_then(|name| unsafe { String::from_datum(name, false) });
    if let Some(name) = &model_name {
        check_new_name(name);
    }
    let mut model = Model::from_json(exported).unwrap_or_else(|e| {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_TEXT_REPRESENTATION,
            format!("the model cannot be imported: {e}"),
            Some("Import what export_model gave, unchanged."),
        )
    });
    // Its name goes into queries later, so it is written anew.
    let named = model.header.target_type.as_str();
    let oid = Spi::connect(|client| {
        let rows = client.select("SELECT pg_catalog.to_regtype($1)::pg_catalog.oid", None, &[named.into()])?;
        rows.first().get_one::<pg_sys::Oid>()
    });
    let oid = oid.ok().flatten().map(types::base_type);
    let Some(oid) = oid.filter(|oid| types::is_plain(*oid)) else {
        error::fail(
            PgSqlErrorCode::ERRCODE_UNDEFINED_OBJECT,
            format!("the model cannot be imported: its target has type \"{named}\", which does not exist here"),
            Some("Create the type first; it must be a base type or an enum."),
        )
    };
    model.header.target_type = types::type_name(oid);
    catalog::insert(model_name.as_deref(), "(imported)", &model).0.into_datum().unwrap_or_else(|| call.null())
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

/// Refuses to change the store where nothing can be written.
pub fn require_writable(function: &std::ffi::CStr) {
    // SAFETY: plain checks that raise the server's own errors.
    unsafe {
        pg_sys::PreventCommandIfReadOnly(function.as_ptr());
        pg_sys::PreventCommandDuringRecovery(function.as_ptr());
        pg_sys::PreventCommandIfParallelMode(function.as_ptr());
    }
    catalog::require_up_to_date();
}

/// What a user's key means for a change: a name all its versions, an id that model.
fn which<'a>(key: &'a ModelKey, stored: &Stored) -> Which<'a> {
    match key {
        ModelKey::Name(name) if stored.name.as_ref() == Some(name) => Which::Versions(name),
        _ => Which::Id(stored.id),
    }
}

/// Forgets a model, or all versions of a name; true if there were any.
fn drop_model(key: ModelKey, missing_ok: bool) -> bool {
    require_writable(c"drop_model()");
    match catalog::lookup_owned(&key) {
        Some(stored) => {
            catalog::delete(which(&key, &stored));
            true
        }
        None if missing_ok => false,
        None => catalog::no_such_model(&key),
    }
}

/// Runs a change on what the current role may change, or raises an error.
fn with_owned(model: &str, change: impl FnOnce(Which<'_>)) {
    let key = ModelKey::Name(model.into());
    let stored = catalog::lookup_owned(&key).unwrap_or_else(|| catalog::no_such_model(&key));
    change(which(&key, &stored));
}

/// rename_model(model, new_name): NULL takes the name away.
#[pg_extern]
fn rename_model(model: Option<&str>, new_name: Option<&str>) {
    require_writable(c"rename_model()");
    with_owned(required(model), |which| {
        if let Some(name) = new_name {
            check_name(name);
            catalog::lock_name(name);
            // SAFETY: a statement is running, so there is a transaction; the latest state is wanted.
            if unsafe { catalog::find(&ModelKey::Name(name.into()), std::ptr::null_mut()) }.is_some() {
                error::fail(
                    PgSqlErrorCode::ERRCODE_DUPLICATE_OBJECT,
                    format!("model \"{name}\" already exists"),
                    Some("Choose another name, or forget the old model with drop_model."),
                );
            }
        }
        catalog::rename(which, new_name);
    });
}

/// set_current_model(name, id): lets a name mean one of its versions.
#[pg_extern]
fn set_current_model(name: Option<&str>, model: Option<i64>) {
    require_writable(c"set_current_model()");
    let (name, id) = (required(name), required(model));
    let key = ModelKey::Name(name.into());
    let current = catalog::lookup_owned(&key).unwrap_or_else(|| catalog::no_such_model(&key));
    let chosen = catalog::lookup_owned(&ModelKey::Id(id)).unwrap_or_else(|| catalog::no_such_model(&ModelKey::Id(id)));
    if current.name.as_deref() != Some(name) || chosen.name.as_deref() != Some(name) {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_PARAMETER_VALUE,
            format!("model {id} is not a version of model {key}"),
            Some("SELECT model_id, version FROM corgipile.models WHERE model_name = '…' lists the versions of a name."),
        );
    }
    catalog::set_current(name, id);
}

/// corgipile.current_model(name, features, classifies) → the id of the name's current version: what PREDICT BY looks
/// up when a statement runs. The columns in the statement are those of the version that was current when it was
/// parsed, so the one that is current now must go with them.
#[pg_extern]
fn current_model(model: &str, features: Vec<Option<String>>, target_type: &str) -> i64 {
    let key = ModelKey::Name(model.into());
    let stored = catalog::required(&key);
    let header = &stored.model.header;
    let same = header.features.iter().map(|name| Some(name.as_str())).eq(features.iter().map(Option::as_deref));
    if !same || header.prediction_type() != target_type {
        error::fail(
            PgSqlErrorCode::ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("version {} of model {key} does not go with this statement", stored.version),
            Some(
                "It needs other columns, or predicts another type, than the version that was current when the statement \
                 was prepared or the view was made. Prepare or make it anew.",
            ),
        );
    }
    stored.id
}

/// corgipile.report_page(model, judged_on, actual, predicted, count) → the model as a page of HTML.
#[pg_extern]
fn report_page(
    model: Option<&str>,
    judged_on: Option<&str>,
    actual: Option<Vec<Option<String>>>,
    predicted: Option<Vec<Option<String>>>,
    count: Option<Vec<Option<i64>>>,
) -> Option<String> {
    let stored = looked_up(model?);
    let title = match &stored.name {
        Some(name) => format!("{name}, version {} (model {})", stored.version, stored.id),
        None => format!("Model {}", stored.id),
    };
    let pairs = actual.unwrap_or_default().into_iter().zip(predicted.unwrap_or_default());
    let confusion: Vec<(String, String, i64)> = pairs
        .zip(count.unwrap_or_default())
        .filter_map(|((actual, predicted), count)| Some((actual?, predicted?, count?)))
        .collect();
    let about = report::Stored {
        title: &title,
        source: &stored.source,
        confusion: &confusion,
        judged_on: judged_on.unwrap_or_default(),
    };
    Some(report::html(&stored.model, &about))
}

/// corgipile.usable(model_id, change) → whether the current role may use a model (or change it).
#[pg_extern]
fn usable(model_id: i64, change: bool) -> bool {
    catalog::is_usable(model_id, change)
}

/// The model that a name or id means, for the current role.
fn looked_up(model: &str) -> Stored {
    catalog::required(&ModelKey::Name(model.into()))
}

/// corgipile.model_features(model) → each feature: number from 1, name, and centre and deviation of its values, which are
/// 0 and 1 where they are used as they are.
#[pg_extern]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn model_features(
    model: &str,
) -> TableIterator<
    'static,
    (name!(feature, i32), name!(column_name, String), name!(name, String), name!(mean, f64), name!(deviation, f64)),
> {
    let model = looked_up(model).model;
    let count = model.header.n_features;
    TableIterator::new((0..count).map(move |i| {
        let header = &model.header;
        let found = header.encoding.as_ref().and_then(|encoding| encoding.feature(i));
        let (column, scale) = match found {
            Some((column, _, scale)) => (column.name.clone(), scale),
            None => (header.features.last().cloned().unwrap_or_default(), None),
        };
        let (mean, deviation) = scale.map_or((0.0, 1.0), |scale| (scale.mean, scale.deviation));
        (i as i32 + 1, column, header.feature_name(i), mean, deviation)
    }))
}

/// corgipile.model_encoding(model) → each column that features are made of, and how.
#[pg_extern]
#[allow(clippy::type_complexity, reason = "the columns of the SQL function")]
fn model_encoding(
    model: &str,
) -> TableIterator<
    'static,
    (
        name!(column_name, String),
        name!(column_type, String),
        name!(encoding, String),
        name!(features, i64),
        name!(on_null, String),
        name!(details, JsonB),
    ),
> {
    let encoding = looked_up(model).model.header.encoding.clone();
    let columns = encoding.map(|encoding| encoding.columns).unwrap_or_default();
    TableIterator::new(columns.into_iter().map(|column| {
        let text = |json: serde_json::Result<Value>| match json {
            Ok(Value::String(text)) => text,
            _ => String::new(),
        };
        let details = serde_json::to_value(&column.kind).unwrap_or_default();
        let (words, width) = (column.description(), column.width() as i64);
        let on_null = text(serde_json::to_value(column.on_null));
        (column.name, column.sql_type, words, width, on_null, JsonB(details))
    }))
}

/// corgipile.class_type(model) → the type that the model's classes can be cast to in a query.
#[pg_extern]
fn class_type(model: &str) -> String {
    let stored = looked_up(model);
    types::castable(stored.model.header.prediction_type()).unwrap_or_else(|| "text".into())
}

/// A model argument that must not be NULL.
fn required<T>(model: Option<T>) -> T {
    model.unwrap_or_else(|| error::fail(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, "the model is NULL", None))
}

/// The role of a grant: one that exists, or PUBLIC.
fn grantee(role: Option<&str>) -> String {
    let Some(role) = role else {
        error::fail(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, "the role is NULL", None)
    };
    if is_everybody(role) {
        return catalog::EVERYBODY.into();
    }
    let name = std::ffi::CString::new(role).unwrap_or_default();
    // SAFETY: a catalog look-up that raises the server's own error.
    unsafe { pg_sys::get_role_oid(name.as_ptr(), false) };
    role.into()
}

/// Whether a grant is for all roles: no role can be named "public", but one may be named "PUBLIC".
fn is_everybody(role: &str) -> bool {
    let name = std::ffi::CString::new(role).unwrap_or_default();
    // SAFETY: a catalog look-up by name.
    let is_role = || unsafe { pg_sys::get_role_oid(name.as_ptr(), true) } != pg_sys::InvalidOid;
    role == catalog::EVERYBODY || (role.eq_ignore_ascii_case(catalog::EVERYBODY) && !is_role())
}

/// grant_model(model, role)
#[pg_extern]
fn grant_model(model: Option<&str>, role: Option<&str>) {
    require_writable(c"grant_model()");
    with_owned(required(model), |which| catalog::grant(which, &Role::named(&grantee(role))));
}

/// revoke_model(model, role)
#[pg_extern]
fn revoke_model(model: Option<&str>, role: Option<&str>) {
    require_writable(c"revoke_model()");
    // A role that is gone may be left among the grants.
    let Some(role) = role else {
        error::fail(PgSqlErrorCode::ERRCODE_NULL_VALUE_NOT_ALLOWED, "the role is NULL", None)
    };
    let role = if is_everybody(role) { catalog::EVERYBODY } else { role };
    with_owned(required(model), |which| catalog::revoke(which, role));
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

/// Checks that a name can be a model's.
fn check_name(name: &str) {
    if name.is_empty() || name.len() > 255 || name.bytes().all(|b| b.is_ascii_digit()) {
        error::fail(
            PgSqlErrorCode::ERRCODE_INVALID_NAME,
            format!("\"{name}\" cannot be the name of a model"),
            Some("A name has 1 to 255 bytes and is not a number, since numbers are ids."),
        );
    }
}

/// Checks a name before anything is trained under it: one that is free, or whose versions one may change.
pub fn check_new_name(name: &str) {
    check_name(name);
    catalog::versions_of(name);
}
