//! Finding PREDICT BY among the tokens of a text. The server's scanner makes the tokens; what they mean is decided here,
//! where any tokens can be tried without a server.

/// A token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The grammar's code.
    pub code: i32,
    /// Byte offset in the text.
    pub start: usize,
    /// The value of an integer constant or parameter number.
    pub number: i32,
}

/// Codes of the tokens that matter; they differ between versions of the server.
#[derive(Debug, Clone, Copy)]
pub struct Codes {
    /// An identifier.
    pub identifier: i32,
    /// The keyword BY.
    pub by: i32,
    /// The keyword AS.
    pub keyword_as: i32,
    /// An integer.
    pub integer: i32,
    /// A string.
    pub string: i32,
    /// A parameter.
    pub parameter: i32,
}

/// What stands behind PREDICT BY.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Model {
    /// A number.
    Id(i32),
    /// A string: its value.
    Text(String),
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

/// The clauses of a text, in order, by its tokens, which are in order as well. `string_value` gives the value of a string as it
/// is written; where it gives none, there is no clause.
pub fn find(
    text: &[u8],
    tokens: &[Token],
    codes: &Codes,
    string_value: impl Fn(&[u8]) -> Option<String>,
) -> Vec<Clause> {
    let mut clauses = Vec::new();
    for (i, window) in tokens.windows(3).enumerate().skip(1) {
        let [predict, by, model] = window else { continue };
        let word = text.get(predict.start..predict.start.saturating_add(7)).unwrap_or_default();
        if predict.code != codes.identifier || by.code != codes.by || !word.eq_ignore_ascii_case(b"predict") {
            continue;
        }
        let end = tokens.get(i + 3).map_or(text.len(), |next| next.start);
        let model = if model.code == codes.integer {
            Model::Id(model.number)
        } else if model.code == codes.parameter {
            Model::Parameter(model.number)
        } else if model.code == codes.string {
            match text.get(model.start..end).and_then(&string_value) {
                Some(value) => Model::Text(value),
                None => continue,
            }
        } else {
            continue;
        };
        // No table reference is longer than this many tokens, but for a list of column aliases.
        let tables = (0..i)
            .rev()
            .take(2000)
            .filter(|first| is_table_reference(text, &tokens[*first..i], codes))
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
        if let Some(words) = blanked.get_mut(clause.start..clause.end) {
            words.fill(b' ');
        }
    }
    blanked
}

/// Tokens as a scanner might make them, of words, numbers, strings and single characters, for tests without a server.
#[doc(hidden)]
pub fn scan_simply(text: &[u8], codes: &Codes) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut at = 0;
    let is_word = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c >= 0x80;
    while let Some(c) = text.get(at).copied() {
        let start = at;
        let run = |is: &dyn Fn(u8) -> bool| text[start + 1..].iter().take_while(|c| is(**c)).count() + 1;
        at += match c {
            b'\'' | b'"' => {
                let inside = run(&|other| other != c);
                (inside + 1).min(text.len() - start)
            }
            b'$' => run(&|c| c.is_ascii_digit()),
            _ if is_word(c) => run(&is_word),
            _ => 1,
        };
        let word = &text[start..at];
        let digits = |word: &[u8]| std::str::from_utf8(word).ok().and_then(|word| word.parse::<i32>().ok());
        let (code, number) = match c {
            _ if c.is_ascii_whitespace() => continue,
            b'\'' => (codes.string, 0),
            b'$' => (codes.parameter, digits(&word[1..]).unwrap_or_default()),
            b'0'..=b'9' => (codes.integer, digits(word).unwrap_or_default()),
            _ if word.eq_ignore_ascii_case(b"by") => (codes.by, 0),
            _ if word.eq_ignore_ascii_case(b"as") => (codes.keyword_as, 0),
            _ if c == b'"' || is_word(c) => (codes.identifier, 0),
            _ => (i32::from(c), 0),
        };
        tokens.push(Token { code, start, number });
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CODES: Codes = Codes { identifier: 258, by: 300, keyword_as: 301, integer: 266, string: 261, parameter: 267 };

    fn found(text: &str) -> Vec<Clause> {
        let unquoted = |text: &[u8]| Some(String::from_utf8_lossy(text).trim().trim_matches('\'').to_string());
        find(text.as_bytes(), &scan_simply(text.as_bytes(), &CODES), &CODES, unquoted)
    }

    #[test]
    fn clauses_are_found_with_all_that_may_be_their_table() {
        let text = "SELECT * FROM s.t AS a (x, y) predict BY 'm' WHERE b";
        let [clause] = found(text).try_into().expect("one");
        assert_eq!(clause.model, Model::Text("m".into()));
        assert_eq!(&text[clause.start..clause.end], "predict BY 'm' ");
        let tables: Vec<&str> = clause.tables.iter().map(|at| &text[*at..clause.start]).collect();
        // A list of columns needs an alias before it, so "a (x, y)" alone is
        // none; "AS a" reads as a table named AS, which the grammar refuses.
        assert_eq!(tables, ["AS a (x, y) ", "t AS a (x, y) ", "s.t AS a (x, y) "]);
        assert_eq!(blank(text.as_bytes(), std::slice::from_ref(&clause)).len(), text.len());
        let models: Vec<Model> =
            found("t PREDICT BY 7, u PREDICT BY $2").into_iter().map(|clause| clause.model).collect();
        assert_eq!(models, [Model::Id(7), Model::Parameter(2)]);
        for none in ["PREDICT BY 1", "t \"predict\" BY 1", "'t PREDICT BY 1'", "t PREDICT BY m", "t PREDICT by", ""] {
            assert_eq!(found(none), [], "{none}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart(parts in prop::collection::vec(prop::sample::select(vec![
            "predict", " BY ", "by", " 1", " 'm'", "$1", " t", ".", ",", "(", ")", "*", " as ", "\"q\"", "'", "\"", "\u{e9}",
        ]), 0..40)) {
            let text = parts.concat();
            let clauses = found(&text);
            for clause in &clauses {
                prop_assert!(clause.start < clause.end && clause.end <= text.len());
                prop_assert!(text.is_char_boundary(clause.start) && text.is_char_boundary(clause.end));
                prop_assert!(clause.tables.iter().all(|at| *at < clause.start));
            }
            prop_assert!(clauses.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let blanked = blank(text.as_bytes(), &clauses);
            prop_assert!(blanked.len() == text.len() && String::from_utf8(blanked).is_ok());
        }
    }
}
