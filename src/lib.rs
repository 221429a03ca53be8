//! corgipile: trains and serves linear models by stochastic gradient descent inside PostgreSQL.
//!
//! This crate is the only place that speaks to PostgreSQL; the shuffle, the SGD kernel and the model
//! are in `corgipile_core`. The install script is kept by hand in `sql/`.

#![allow(unsafe_code, reason = "every block says in a SAFETY comment why it is sound")]
#![deny(ffi_unwind_calls)]

#[cfg(not(panic = "unwind"))]
compile_error!("errors of PostgreSQL unwind the Rust stack: build with panic = \"unwind\"");

mod api;
mod catalog;
mod customscan;
mod error;
mod guc;
mod pg;
mod planner;
mod predict_by;

pgrx::pg_module_magic!();

/// "Called when the library is loaded."
#[pgrx::pg_guard]
pub extern "C-unwind" fn _PG_init() {
    guc::init();
    pg::types::watch_enums();
    customscan::register();
    planner::init();
    predict_by::init();
}
