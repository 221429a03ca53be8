//! `corgipile.roc_auc(score, positive)`: a parallel aggregate over `corgipile_core::auc`.

use super::arguments::Call;
use crate::error;
use crate::pg::types;
use crate::pg_function;
use corgipile_core::auc::Auc;
use pgrx::{IntoDatum, PgMemoryContexts, pg_sys};

pg_function!(
    /// Transition function: (internal, score, positive) → internal; rows with NULL are left out.
    corgipile_roc_auc_transition,
    pg_finfo_corgipile_roc_auc_transition,
    transition
);
pg_function!(
    /// Combine function: (internal, internal) → internal.
    corgipile_roc_auc_combine,
    pg_finfo_corgipile_roc_auc_combine,
    combine
);
pg_function!(
    /// Serial function: internal → bytea.
    corgipile_roc_auc_serial,
    pg_finfo_corgipile_roc_auc_serial,
    serial
);
pg_function!(
    /// Deserial function: (bytea, internal) → internal.
    corgipile_roc_auc_deserial,
    pg_finfo_corgipile_roc_auc_deserial,
    deserial
);
pg_function!(
    /// Final function: internal → float8, NULL unless there are rows of both kinds.
    corgipile_roc_auc_final,
    pg_finfo_corgipile_roc_auc_final,
    finish
);

/// A state that lives as long as the aggregate's context.
fn keep(context: pg_sys::MemoryContext, auc: Auc) -> *mut Auc {
    PgMemoryContexts::For(context).leak_and_drop_on_delete(auc)
}

/// The state in an argument.
unsafe fn state<'a>(call: Call, i: usize) -> Option<&'a mut Auc> {
    // SAFETY: by contract of the aggregate's declaration, made by `keep`; nothing else holds it meanwhile.
    call.get(i).map(|datum| unsafe { &mut *datum.cast_mut_ptr::<Auc>() })
}

unsafe fn transition(call: Call) -> pg_sys::Datum {
    let context = call.aggregate_context("corgipile.roc_auc");
    let state = match call.get(0) {
        Some(state) => state.cast_mut_ptr::<Auc>(),
        None => keep(context, Auc::default()),
    };
    if let (Some(score), Some(positive)) = (call.get(1), call.get(2)) {
        let (score, positive) = (f64::from_bits(score.value() as u64), positive.value() as u8 != 0);
        // SAFETY: made by `keep`.
        unsafe { (*state).add(score, positive) }.unwrap_or_else(|e| error::raise(e));
    }
    pg_sys::Datum::from(state)
}

unsafe fn combine(call: Call) -> pg_sys::Datum {
    let context = call.aggregate_context("corgipile.roc_auc");
    // SAFETY: states of this aggregate.
    let Some(other) = (unsafe { state(call, 1) }) else {
        return call.get(0).unwrap_or_else(|| call.null());
    };
    let to = match call.get(0) {
        Some(state) => state.cast_mut_ptr::<Auc>(),
        None => keep(context, Auc::default()),
    };
    // SAFETY: made by `keep`, and another than `other`.
    unsafe { (*to).merge(std::mem::take(other)) }.unwrap_or_else(|e| error::raise(e));
    pg_sys::Datum::from(to)
}

unsafe fn serial(call: Call) -> pg_sys::Datum {
    call.aggregate_context("corgipile.roc_auc");
    // SAFETY: a state of this aggregate.
    let Some(state) = (unsafe { state(call, 0) }) else { return call.null() };
    let bytes = state.to_bytes().unwrap_or_else(|e| error::raise(e));
    types::varlena_datum(&bytes).unwrap_or_else(|| call.null())
}

unsafe fn deserial(call: Call) -> pg_sys::Datum {
    let context = call.aggregate_context("corgipile.roc_auc");
    let Some(datum) = call.get(0) else { return call.null() };
    // SAFETY: a bytea argument.
    match Auc::from_bytes(unsafe { types::varlena_bytes(datum) }) {
        Some(auc) => pg_sys::Datum::from(keep(context, auc)),
        None => error::internal("the state of corgipile.roc_auc cannot be read"),
    }
}

unsafe fn finish(call: Call) -> pg_sys::Datum {
    call.aggregate_context("corgipile.roc_auc");
    // SAFETY: a state of this aggregate.
    let Some(state) = (unsafe { state(call, 0) }) else { return call.null() };
    let value = state.value().unwrap_or_else(|e| error::raise(e));
    value.and_then(IntoDatum::into_datum).unwrap_or_else(|| call.null())
}
