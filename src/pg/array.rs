//! One-dimensional numeric arrays, and pgvector's vectors, read where they lie, without detoasting what is plain.
//!
//! Called inside a guard: plain data only, no panic, no allocation but `detoast_attr`'s, which goes
//! to the caller's temporary context. Layout: array.h (header, dimensions, lower bounds, NULL
//! bitmap, elements), varlena headers: postgres.h.

#![allow(ffi_unwind_calls, reason = "called inside a pg_guard_ffi_boundary, as the module says")]

use super::raw;
use pgrx::pg_sys;

#[cfg(target_endian = "big")]
compile_error!("varlena headers are read as little-endian words");

/// Types that feature values and indices may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// real
    Float4,
    /// double precision
    Float8,
    /// smallint
    Int2,
    /// integer
    Int4,
    /// bigint
    Int8,
    /// Of pgvector's vector: single precision.
    Vector,
    /// Of pgvector's halfvec: half precision.
    HalfVector,
}

impl Element {
    /// By the array's element type.
    pub fn of(element: pg_sys::Oid) -> Option<Self> {
        match element {
            pg_sys::FLOAT4OID => Some(Self::Float4),
            pg_sys::FLOAT8OID => Some(Self::Float8),
            pg_sys::INT2OID => Some(Self::Int2),
            pg_sys::INT4OID => Some(Self::Int4),
            pg_sys::INT8OID => Some(Self::Int8),
            _ => None,
        }
    }

    /// Bytes of an element.
    #[inline(always)]
    pub fn bytes(self) -> usize {
        match self {
            Self::Int2 | Self::HalfVector => 2,
            Self::Float4 | Self::Int4 | Self::Vector => 4,
            Self::Float8 | Self::Int8 => 8,
        }
    }

    /// Whether it can number features.
    pub fn is_integer(self) -> bool {
        matches!(self, Self::Int2 | Self::Int4 | Self::Int8)
    }

    /// Whether values are not arrays but vectors: a word with the number of elements in its first half, then these.
    #[inline(always)]
    fn in_vector(self) -> bool {
        matches!(self, Self::Vector | Self::HalfVector)
    }
}

/// What a user is told about accepted arrays.
pub const ACCEPTED: &str =
    "smallint[], integer[], bigint[], real[], double precision[], or pgvector's vector or halfvec";

/// An array that is there and one-dimensional (or empty).
#[derive(Debug, Clone, Copy)]
pub struct RawArray {
    /// Number of elements.
    pub len: usize,
    /// First element, perhaps unaligned.
    pub data: *const u8,
}

/// Why an array cannot be used.
#[derive(Debug, Clone, Copy)]
pub enum Unusable {
    /// More than one dimension.
    Dimensions(i32),
    /// The element at this position (from 1) is NULL.
    NullAt(usize),
    /// Its bytes are not an array's.
    Corrupt,
}

/// Content of a varlena that is not toasted: pointer behind the header, and its length.
///
/// # Safety
/// `varlena` is one, and lies in one piece.
#[inline(always)]
pub(super) unsafe fn content(varlena: *const u8) -> (*const u8, usize) {
    // SAFETY: the caller passes a plain varlena; its first byte tells the size of the header.
    unsafe {
        let first = *varlena;
        if first & 1 == 1 {
            (varlena.add(1), usize::from(first >> 1) - 1)
        } else {
            let header = varlena.cast::<u32>().read_unaligned();
            (varlena.add(4), (header >> 2) as usize - 4)
        }
    }
}

/// Whether a value is stored out of line or compressed.
///
/// # Safety
/// `datum` is a valid varlena.
#[inline(always)]
pub unsafe fn is_toasted(datum: pg_sys::Datum) -> bool {
    // SAFETY: by contract. A first byte of 1 marks a toast pointer, low bits 10 a compressed value.
    let first = unsafe { *datum.cast_mut_ptr::<u8>() };
    first == 1 || first & 3 == 2
}

/// Bytes of a value as it is stored, with its header; `None` where that is only a pointer to the value.
///
/// # Safety
/// `datum` is a valid varlena.
#[inline(always)]
pub unsafe fn stored_len(datum: pg_sys::Datum) -> Option<usize> {
    let at = datum.cast_mut_ptr::<u8>();
    // SAFETY: by contract; the first byte tells the size of the header, which tells the length of both.
    unsafe {
        match *at {
            1 => None,
            first if first & 1 == 1 => Some(usize::from(first >> 1)),
            _ => Some((at.cast::<u32>().read_unaligned() >> 2) as usize),
        }
    }
}

/// Gives a plain varlena: itself, or a detoasted copy in `temporary`.
///
/// # Safety
/// Inside a guard; `datum` is a valid varlena and `temporary` a memory context.
#[inline(always)]
pub unsafe fn plain(datum: pg_sys::Datum, temporary: pg_sys::MemoryContext) -> (*const u8, usize) {
    // SAFETY: by contract.
    unsafe {
        let varlena = datum.cast_mut_ptr::<u8>();
        if is_toasted(datum) {
            let old = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = temporary;
            let copy = raw::detoast_attr(varlena.cast());
            pg_sys::CurrentMemoryContext = old;
            content(copy.cast())
        } else {
            content(varlena)
        }
    }
}

/// Opens an array value, or a vector.
///
/// # Safety
/// Inside a guard; `datum` is a non-NULL array of such elements, `temporary` a memory context.
#[inline(always)]
pub unsafe fn open(
    datum: pg_sys::Datum,
    element: Element,
    temporary: pg_sys::MemoryContext,
) -> Result<RawArray, Unusable> {
    // SAFETY: by contract; every read stays inside the varlena's length, which is checked.
    unsafe {
        let (at, size) = plain(datum, temporary);
        if element.in_vector() {
            let len = if size < 4 { usize::MAX } else { at.cast::<u16>().read_unaligned() as usize };
            let whole = len.checked_mul(element.bytes()).and_then(|bytes| bytes.checked_add(4));
            return if whole == Some(size) { Ok(RawArray { len, data: at.add(4) }) } else { Err(Unusable::Corrupt) };
        }
        if size < 12 {
            return Err(Unusable::Corrupt);
        }
        let word = |i: usize| at.cast::<i32>().add(i).read_unaligned();
        let (dimensions, null_offset) = (word(0), word(1));
        if dimensions == 0 {
            return Ok(RawArray { len: 0, data: at });
        }
        if dimensions != 1 {
            return Err(Unusable::Dimensions(dimensions));
        }
        if size < 20 {
            return Err(Unusable::Corrupt);
        }
        let len = word(3).max(0) as usize;
        if null_offset == 0 {
            return Ok(RawArray { len, data: at.add(20) });
        }
        let bitmap = at.add(20);
        let mut i = 0;
        while i < len {
            if *bitmap.add(i / 8) & (1 << (i % 8)) == 0 {
                return Err(Unusable::NullAt(i + 1));
            }
            i += 1;
        }
        Ok(RawArray { len, data: at.add((null_offset as usize).wrapping_sub(4)) })
    }
}

/// A number of half precision (IEEE 754 binary16).
#[inline(always)]
fn of_half(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, u32::from(bits) & 1023);
    match exponent {
        // Below the smallest normal number: a multiple of 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 * (1.0 / 16_777_216.0)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

/// Copies `len` elements as f32; gives the position (from 1) of the first that is not finite.
///
/// # Safety
/// `data` holds `len` elements of that type; `out` has room for `len` values.
#[inline(always)]
pub unsafe fn copy_values(array: RawArray, element: Element, out: *mut f32) -> Option<usize> {
    const EXPONENT: u32 = 0x7f80_0000;
    // SAFETY: by contract; reads are unaligned, writes stay below `len`.
    unsafe {
        let len = array.len;
        let mut wrong = false;
        macro_rules! copy {
            ($source:ty, $convert:expr) => {{
                let source = array.data.cast::<$source>();
                let mut i = 0;
                while i < len {
                    let value: f32 = $convert(source.add(i).read_unaligned());
                    wrong |= value.to_bits() & EXPONENT == EXPONENT;
                    *out.add(i) = value;
                    i += 1;
                }
            }};
        }
        match element {
            Element::Float4 | Element::Vector => copy!(f32, |x| x),
            Element::HalfVector => copy!(u16, of_half),
            Element::Float8 => copy!(f64, |x| x as f32),
            Element::Int2 => copy!(i16, f32::from),
            Element::Int4 => copy!(i32, |x| x as f32),
            Element::Int8 => copy!(i64, |x| x as f32),
        }
        if !wrong {
            return None;
        }
        let mut i = 0;
        while i < len && (*out.add(i)).is_finite() {
            i += 1;
        }
        Some(i + 1)
    }
}

/// The integer at `i`.
///
/// # Safety
/// `i < array.len` and the elements are of that integer type.
#[inline(always)]
pub unsafe fn integer_at(array: RawArray, element: Element, i: usize) -> i64 {
    // SAFETY: by contract.
    unsafe {
        match element {
            Element::Int2 => i64::from(array.data.cast::<i16>().add(i).read_unaligned()),
            Element::Int8 => array.data.cast::<i64>().add(i).read_unaligned(),
            _ => i64::from(array.data.cast::<i32>().add(i).read_unaligned()),
        }
    }
}
