//! Any text: the clauses found in it lie in it, in order, and blanking them leaves the rest of the text as it was.
#![no_main]

use corgipile_core::clauses::{Codes, blank, find, scan_simply};
use libfuzzer_sys::fuzz_target;

const CODES: Codes = Codes { identifier: 258, by: 300, keyword_as: 301, integer: 266, string: 261, parameter: 267 };

fuzz_target!(|text: &[u8]| {
    let tokens = scan_simply(text, &CODES);
    let value = |text: &[u8]| std::str::from_utf8(text).ok().map(str::to_string);
    let clauses = find(text, &tokens, &CODES, value);
    let mut after = 0;
    for clause in &clauses {
        assert!(after <= clause.start && clause.start < clause.end && clause.end <= text.len());
        assert!(text[clause.start..].to_ascii_lowercase().starts_with(b"predict"));
        assert!(clause.tables.iter().all(|at| *at < clause.start));
        assert!(clause.tables.windows(2).all(|pair| pair[0] > pair[1]));
        after = clause.end;
    }
    let blanked = blank(text, &clauses);
    assert_eq!(blanked.len(), text.len());
    let inside = |at: usize| clauses.iter().any(|clause| (clause.start..clause.end).contains(&at));
    for (at, (now, before)) in blanked.iter().zip(text).enumerate() {
        assert_eq!(*now, if inside(at) { b' ' } else { *before });
    }
});
