//! Finding PREDICT BY in a text, by the server's own tokens.

use crate::pg::parser;
use corgipile_core::clauses::{self, Clause, Codes};
use std::ffi::CStr;
use std::sync::OnceLock;

fn codes() -> Option<&'static Codes> {
    static CODES: OnceLock<Option<Codes>> = OnceLock::new();
    CODES.get_or_init(parser::learn_codes).as_ref()
}

/// The value of a string constant: the server's parser reads it, so every way of quoting works.
fn string_value(text: &[u8]) -> Option<String> {
    let sql = std::ffi::CString::new([b"SELECT ".as_slice(), text].concat()).ok()?;
    parser::constant_string(&sql)
}

/// The clauses of a text, in order. Raises the scanner's error for a text that cannot be split.
pub fn find(text: &CStr) -> Vec<Clause> {
    let Some(codes) = codes() else { return Vec::new() };
    clauses::find(text.to_bytes(), &parser::scan(text), codes, string_value)
}
