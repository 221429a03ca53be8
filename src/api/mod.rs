//! What SQL calls, by task. Argument parsing only; the work is done below.

mod advise;
mod aggregate;
mod arguments;
pub mod encode;
mod last_row;
mod models;
mod predict;
mod roc_auc;
mod score_sql;
mod train;
mod whole_rows;
