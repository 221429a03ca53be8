//! `SELECT … FROM t PREDICT BY model`: the clause after a table in FROM.
//!
//! 1. A text without the word PREDICT goes to the original parser at once.
//! 2. The server's scanner finds PREDICT BY followed by a constant or a parameter (`clauses`); text
//!    in strings, comments, dollar quotes and quoted identifiers never matches.
//! 3. The words are blanked, so that every position still means what the user typed, and the
//!    original parser runs.
//! 4. In its tree the table in front of the words becomes a subselect with the extra columns (`tree`).
//!
//! PREDICT BY followed by a constant is not valid SQL anywhere, so nothing that was valid changes its
//! meaning. Where the words do not follow a table, the original parser sees the original text, and
//! reports the error that it always did.

mod clauses;
mod tree;

use crate::guc;
use crate::pg::parser;
use pgrx::{PgLogLevel, PgSqlErrorCode, PgTryBuilder, ereport, pg_sys};
use std::ffi::{CStr, CString};

/// Installs the detour; without it everything else still works.
pub fn init() {
    if let Err(reason) = parser::install(raw_parser) {
        ereport!(
            PgLogLevel::WARNING,
            PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            format!("PREDICT BY is not available in this server: {reason}"),
            "The functions predict, predict_proba, predict_score and predict_value work all the same."
        );
    }
}

/// Whether the text holds the word, in any case.
fn mentions_predict(text: &[u8]) -> bool {
    const WORD: &[u8] = b"predict";
    let last = text.len().saturating_sub(WORD.len() - 1);
    (0..last).any(|i| text[i] | 0x20 == b'p' && text[i..i + WORD.len()].eq_ignore_ascii_case(WORD))
}

/// What the server calls in place of its parser. Unguarded, and without anything to drop, so that a
/// text without the word costs one look at its bytes.
unsafe extern "C-unwind" fn raw_parser(
    text: *const core::ffi::c_char,
    mode: pg_sys::RawParseMode::Type,
) -> *mut pg_sys::List {
    // SAFETY: the server passes a NUL-terminated text.
    unsafe {
        if mentions_predict(CStr::from_ptr(text).to_bytes()) {
            parse_with_clauses(text, mode)
        } else {
            parser::original_unguarded(text, mode)
        }
    }
}

/// The slow path, for a text that holds the word.
#[pgrx::pg_guard]
unsafe extern "C-unwind" fn parse_with_clauses(
    text: *const core::ffi::c_char,
    mode: pg_sys::RawParseMode::Type,
) -> *mut pg_sys::List {
    // SAFETY: as above; the text outlives the call.
    let text = unsafe { CStr::from_ptr(text) };
    let statement_mode = mode != pg_sys::RawParseMode::RAW_PARSE_TYPE_NAME;
    if !guc::predict_by() || !statement_mode {
        return parser::original(text, mode);
    }
    // A text that cannot be split into tokens gets the original's error, from the original.
    let found = PgTryBuilder::new(|| clauses::find(text)).catch_others(|_| Vec::new()).execute();
    if found.is_empty() {
        return parser::original(text, mode);
    }
    let Ok(blanked) = CString::new(corgipile_core::clauses::blank(text.to_bytes(), &found)) else {
        return parser::original(text, mode);
    };
    let trees = parser::original(&blanked, mode);
    // SAFETY: the tree that the parser just made.
    if unsafe { tree::rewrite(trees, &found) } {
        return trees;
    }
    parser::original(text, mode)
}
