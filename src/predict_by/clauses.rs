//! Finding PREDICT BY in a text, by the server's own tokens.

use crate::catalog::ModelKey;
use crate::pg::parser::{self, Codes, Token};
use std::ffi::CStr;
use std::sync::OnceLock;

/// What stands behind PREDICT BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// A constant.
    Constant(ModelKey),
    /// `$n`.
    Parameter(i32),
}

/// One clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// Where the word PREDICT starts.
    pub start: usize,
    /// Where the text goes on.
    pub end: usize,
    /// The model.
    pub model: Model,
    /// Starts of the tokens from which a table reference up to the clause can begin: each is the
    /// first token of something that reads `name(.name)* [*] [[AS] alias [(names)]]`.
    pub tables: Vec<usize>,
}

fn codes() -> Option<&'static Codes> {
    static CODES: OnceLock<Option<Codes>> = OnceLock::new();
    CODES.get_or_init(parser::learn_codes).as_ref()
}

/// Whether a token is a name or a keyword: the grammar decides later which keywords may be names.
fn is_word(text: &[u8], token: &Token) -> bool {
    text.get(token.start).is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, b'_' | b'"' | 0x80..))
}

fn is_char(text: &[u8], token: &Token, c: u8) -> bool {
    text.get(token.start) == Some(&c) && token.code == i32::from(c)
}

/// Whether these tokens read as a table reference with an optional alias.
fn is_table_reference(text: &[u8], tokens: &[Token], codes: &Codes) -> bool {
    let mut rest = tokens;
    let take = |rest: &mut &[Token], is: &dyn Fn(&Token) -> bool| match rest.split_first() {
        Some((token, tail)) if is(token) => {
            *rest = tail;
            true
        }
        _ => false,
    };
    let word = |token: &Token| is_word(text, token);
    let dot = |token: &Token| is_char(text, token, b'.');
    if !take(&mut rest, &word) {
        return false;
    }
    while take(&mut rest, &dot) {
        if !take(&mut rest, &word) {
            return false;
        }
    }
    take(&mut rest, &|token| is_char(text, token, b'*'));
    let has_as = take(&mut rest, &|token| token.code == codes.keyword_as);
    if !take(&mut rest, &word) {
        return rest.is_empty() && !has_as;
    }
    if take(&mut rest, &|token| is_char(text, token, b'(')) {
        loop {
            if !take(&mut rest, &word) {
                return false;
            }
            if !take(&mut rest, &|token| is_char(text, token, b',')) {
                break;
            }
        }
        if !take(&mut rest, &|token| is_char(text, token, b')')) {
            return false;
        }
    }
    rest.is_empty()
}

/// The value of a string constant: the server's parser reads it, so every way of quoting works.
fn string_value(text: &[u8]) -> Option<String> {
    let sql = std::ffi::CString::new([b"SELECT ".as_slice(), text].concat()).ok()?;
    parser::constant_string(&sql)
}

/// The clauses of a text, in order. Raises the scanner's error for a text that cannot be split.
pub fn find(text: &CStr) -> Vec<Clause> {
    let Some(codes) = codes() else { return Vec::new() };
    let tokens = parser::scan(text);
    let bytes = text.to_bytes();
    let mut clauses = Vec::new();
    for i in 1..tokens.len().saturating_sub(2) {
        let [predict, by, model] = [tokens[i], tokens[i + 1], tokens[i + 2]];
        let word = bytes.get(predict.start..predict.start + 7).unwrap_or_default();
        if predict.code != codes.identifier || by.code != codes.by || !word.eq_ignore_ascii_case(b"predict") {
            continue;
        }
        let end = tokens.get(i + 3).map_or(bytes.len(), |next| next.start);
        let model = if model.code == codes.integer {
            Model::Constant(ModelKey::Id(i64::from(model.number)))
        } else if model.code == codes.parameter {
            Model::Parameter(model.number)
        } else if model.code == codes.string {
            match string_value(&bytes[model.start..end]) {
                Some(name) => Model::Constant(ModelKey::Name(name)),
                None => continue,
            }
        } else {
            continue;
        };
        // No table reference is longer than this many tokens, but for a list of column aliases.
        let tables = (0..i)
            .rev()
            .take(2000)
            .filter(|first| is_table_reference(bytes, &tokens[*first..i], codes))
            .map(|first| tokens[first].start)
            .collect();
        clauses.push(Clause { start: predict.start, end, model, tables });
    }
    clauses
}

/// The text with the clauses blanked.
pub fn blank(text: &[u8], clauses: &[Clause]) -> Vec<u8> {
    let mut blanked = text.to_vec();
    for clause in clauses {
        blanked[clause.start..clause.end].fill(b' ');
    }
    blanked
}
