//! A numeric as a double, without its text form in between.
//!
//! Layout: numeric.c. A word with sign, scale and, in the short form, weight; in the long form the weight in a word of its
//! own; then digits to base 10,000, the first of which counts base^weight.

/// Powers of ten that a double holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22,
];

/// The nearest double, where that takes one exact product or quotient (Clinger 1990): nearly always. `None` for all
/// others, and for NaN and the infinities.
pub fn to_double(content: &[u8]) -> Option<f64> {
    let word = |at: usize| Some(u16::from_le_bytes(content.get(at..at + 2)?.try_into().ok()?));
    let header = word(0)?;
    let (negative, weight, digits) = match header & 0xC000 {
        0xC000 => return None,
        0x8000 => {
            // Seven bits with a sign.
            let weight = (i32::from(header & 0x7F) ^ 0x40) - 0x40;
            (header & 0x2000 != 0, weight, content.get(2..)?)
        }
        sign => (sign == 0x4000, i32::from(word(2)? as i16), content.get(4..)?),
    };
    let count = digits.len() / 2;
    if count > 4 {
        return None;
    }
    let whole = digits
        .chunks_exact(2)
        .fold(0u64, |whole, digit| whole * 10_000 + u64::from(u16::from_le_bytes([digit[0], digit[1]])));
    if whole > 1 << 53 {
        return None;
    }
    let zeros = 4 * (weight + 1 - count as i32);
    let power = POWERS.get(zeros.unsigned_abs() as usize)?;
    let size = if zeros < 0 { whole as f64 / power } else { whole as f64 * power };
    // 0 has no sign.
    Some(if negative { -size } else { size })
}
