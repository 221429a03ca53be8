//! PostgreSQL's scanner, and the inline detour of `raw_parser`.
//!
//! The grammar has no hook in front of it, so the entry of `raw_parser` is redirected to a function
//! of ours, which runs the original through the trampoline that the redirection leaves behind. The
//! original stays as it is for every text without the word PREDICT.

use corgipile_core::clauses::{Codes, Token};
use pgrx::pg_sys;
use pgrx::pg_sys::ffi::pg_guard_ffi_boundary;
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// raw_parser's type (parser.h; the same in PostgreSQL 14 to 19).
pub type RawParser =
    unsafe extern "C-unwind" fn(*const core::ffi::c_char, pg_sys::RawParseMode::Type) -> *mut pg_sys::List;

static ORIGINAL: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

mod server {
    use super::pg_sys;
    unsafe extern "C-unwind" {
        pub fn raw_parser(text: *const core::ffi::c_char, mode: pg_sys::RawParseMode::Type) -> *mut pg_sys::List;
    }
}

/// The original parser, unguarded: for the path that must cost nothing.
///
/// # Safety
/// Called from a frame that owns nothing to drop.
#[inline]
pub unsafe fn original_unguarded(
    text: *const core::ffi::c_char,
    mode: pg_sys::RawParseMode::Type,
) -> *mut pg_sys::List {
    let trampoline = ORIGINAL.load(Ordering::Relaxed);
    // SAFETY: set once by `install` to the trampoline, which has raw_parser's type.
    unsafe {
        let parser: RawParser = std::mem::transmute::<*mut (), RawParser>(trampoline);
        #[allow(ffi_unwind_calls, reason = "the caller owns nothing to drop, as C calling C")]
        parser(text, mode)
    }
}

/// The original parser.
pub fn original(text: &CStr, mode: pg_sys::RawParseMode::Type) -> *mut pg_sys::List {
    let text = text.as_ptr();
    // SAFETY: a valid string; errors of the parser are caught by the guard and unwind from here.
    unsafe { pg_guard_ffi_boundary(|| original_unguarded(text, mode)) }
}

/// Redirects `raw_parser` to `replacement`, for the life of the process.
#[cfg(target_arch = "x86_64")]
pub fn install(replacement: RawParser) -> Result<(), String> {
    // SAFETY: both functions have the same type and live for ever; no other thread runs the parser.
    unsafe {
        let detour = retour::RawDetour::new(server::raw_parser as *const (), replacement as *const ())
            .map_err(|e| e.to_string())?;
        ORIGINAL.store(std::ptr::from_ref(detour.trampoline()).cast_mut(), Ordering::Relaxed);
        detour.enable().map_err(|e| e.to_string())?;
        std::mem::forget(detour);
    }
    Ok(())
}

/// Redirects `raw_parser`: only known for x86-64.
#[cfg(not(target_arch = "x86_64"))]
pub fn install(_replacement: RawParser) -> Result<(), String> {
    let _ = server::raw_parser as *const ();
    Err(format!("not implemented for {}", std::env::consts::ARCH))
}

/// Splits a text into tokens as the server does. Raises the server's own error for text that cannot
/// be split (an open quote).
pub fn scan(text: &CStr) -> Vec<Token> {
    let mut tokens = Vec::new();
    // SAFETY: the scanner's state lives on this stack until scanner_finish; on an error it is
    // abandoned with the memory context, as the server's own parser does.
    unsafe {
        let mut extra: pg_sys::core_yy_extra_type = std::mem::zeroed();
        let scanner = pg_sys::scanner_init(
            text.as_ptr(),
            &mut extra,
            &raw const pg_sys::ScanKeywords,
            (&raw const pg_sys::ScanKeywordTokens).cast(),
        );
        // The original parser will warn about escapes; once is enough.
        (&raw mut extra.escape_string_warning).write(false);
        loop {
            let mut value: pg_sys::core_YYSTYPE = std::mem::zeroed();
            let mut location = 0;
            let code = pg_sys::core_yylex(&mut value, &mut location, scanner);
            if code == 0 {
                break;
            }
            tokens.push(Token { code, start: location.max(0) as usize, number: value.ival });
        }
        pg_sys::scanner_finish(scanner);
    }
    tokens
}

/// Learns the codes; `None` if the scanner is not what we know.
pub fn learn_codes() -> Option<Codes> {
    match scan(c"a by as 1 'x' $1").as_slice() {
        [a, by, keyword_as, one, x, dollar] => Some(Codes {
            identifier: a.code,
            by: by.code,
            keyword_as: keyword_as.code,
            integer: one.code,
            string: x.code,
            parameter: dollar.code,
        }),
        _ => None,
    }
}

/// The string in `SELECT 'string'`.
pub fn constant_string(sql: &CStr) -> Option<String> {
    let parsed = original(sql, pg_sys::RawParseMode::RAW_PARSE_DEFAULT);
    // SAFETY: the parser's own tree; each step checks the tag.
    unsafe {
        let raw = super::list::pointers::<pg_sys::RawStmt>(parsed);
        let query = (**raw.first()?).stmt;
        if (*query).type_ != pg_sys::NodeTag::T_SelectStmt {
            return None;
        }
        let targets = super::list::pointers::<pg_sys::ResTarget>((*query.cast::<pg_sys::SelectStmt>()).targetList);
        let value = (**targets.first()?).val;
        if value.is_null() || (*value).type_ != pg_sys::NodeTag::T_A_Const {
            return None;
        }
        let constant = value.cast::<pg_sys::A_Const>();
        if (*constant).isnull || (*constant).val.node.type_ != pg_sys::NodeTag::T_String {
            return None;
        }
        Some(super::relation::string((*constant).val.sval.sval))
    }
}
