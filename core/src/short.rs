//! Short byte strings in two registers: compared and hashed without a call.

/// Bytes that go into two words.
pub const MOST: usize = 16;

/// What at most [`MOST`] bytes are: the same for the same bytes only, among strings of one length. `None` for more.
#[inline(always)]
pub fn words(bytes: &[u8]) -> Option<[u64; 2]> {
    fn ends<const N: usize>(bytes: &[u8]) -> Option<[[u8; N]; 2]> {
        Some([*bytes.first_chunk::<N>()?, *bytes.last_chunk::<N>()?])
    }
    // The two ends cover all of it; they may overlap.
    match bytes.len() {
        0 => Some([0; 2]),
        1..4 => ends::<1>(bytes).map(|[a, b]| [u64::from(a[0]) << 8 | u64::from(b[0]), bytes[bytes.len() / 2].into()]),
        4..8 => ends(bytes).map(|ends| ends.map(|end| u32::from_le_bytes(end).into())),
        8..=MOST => ends(bytes).map(|ends| ends.map(u64::from_le_bytes)),
        _ => None,
    }
}

/// Whether they are the same.
#[inline(always)]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && words(a).map_or_else(|| a == b, |words_a| words(b) == Some(words_a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_same_words_are_the_same_bytes(a in prop::collection::vec(0u8..3, 0..20), at: prop::sample::Index, to: u8) {
            prop_assert_eq!(words(&a).is_some(), a.len() <= MOST);
            prop_assert!(same(&a, &a.clone()));
            let mut b = a.clone();
            if !a.is_empty() {
                let at = at.index(a.len());
                b[at] = to;
                prop_assert_eq!(same(&a, &b), a == b);
                prop_assert!(!same(&a, &a[1..]));
            }
        }
    }
}
