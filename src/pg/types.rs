//! Types and values: text forms, names, bytea-like datums.

use super::array::Element;
use corgipile_core::labels::{TargetKind, TargetValue};
use pgrx::pg_sys;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// Class labels and names are kept as UTF-8; in a database of another encoding they would be mangled.
pub fn require_utf8() {
    // SAFETY: a plain variable of the backend.
    if unsafe { pg_sys::GetDatabaseEncoding() } != pg_sys::pg_enc::PG_UTF8 as i32 {
        crate::error::fail(
            pgrx::PgSqlErrorCode::ERRCODE_FEATURE_NOT_SUPPORTED,
            "corgipile needs a database with encoding UTF8",
            Some("Create the database with ENCODING 'UTF8'."),
        );
    }
}

/// Puts dates and intervals into the form that reads back the same whatever the session's settings;
/// the session's come back when this is dropped, also by an error.
struct PortableStyle {
    date_style: i32,
    interval_style: i32,
    float_digits: i32,
}

impl PortableStyle {
    fn set() -> Self {
        // SAFETY: plain variables of the backend, read and written on its own thread.
        unsafe {
            let before = Self {
                date_style: pg_sys::DateStyle,
                interval_style: pg_sys::IntervalStyle,
                float_digits: pg_sys::extra_float_digits,
            };
            pg_sys::DateStyle = pg_sys::USE_ISO_DATES as i32;
            pg_sys::IntervalStyle = pg_sys::INTSTYLE_POSTGRES as i32;
            pg_sys::extra_float_digits = 1;
            before
        }
    }
}

impl Drop for PortableStyle {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe {
            pg_sys::DateStyle = self.date_style;
            pg_sys::IntervalStyle = self.interval_style;
            pg_sys::extra_float_digits = self.float_digits;
        }
    }
}

/// The text form of a value by its type's output function, independent of the session's settings.
///
/// # Safety
/// `datum` is a non-NULL value of type `oid`.
pub unsafe fn text_of(datum: pg_sys::Datum, oid: pg_sys::Oid) -> String {
    let mut output = pg_sys::InvalidOid;
    let mut varlena = false;
    let _style = PortableStyle::set();
    // SAFETY: by contract; the output function returns a NUL-terminated palloc'd string.
    unsafe {
        pg_sys::getTypeOutputInfo(oid, &mut output, &mut varlena);
        let text = pg_sys::OidOutputFunctionCall(output, datum);
        let owned = CStr::from_ptr(text).to_string_lossy().into_owned();
        pg_sys::pfree(text.cast());
        owned
    }
}

/// A type's name as SQL reads it back whatever the search path.
pub fn type_name(oid: pg_sys::Oid) -> String {
    // Their SQL names mean one character, one bit.
    match oid {
        pg_sys::BPCHAROID => return "pg_catalog.bpchar".into(),
        pg_sys::BITOID => return "pg_catalog.\"bit\"".into(),
        _ => {}
    }
    // SAFETY: format_type_be_qualified returns a palloc'd string for any oid.
    unsafe { CStr::from_ptr(pg_sys::format_type_be_qualified(oid)).to_string_lossy().into_owned() }
}

/// The type under a domain.
pub fn base_type(oid: pg_sys::Oid) -> pg_sys::Oid {
    // SAFETY: a catalog look-up by oid.
    unsafe { pg_sys::getBaseType(oid) }
}

/// Changes of enums that this backend has seen.
static ENUM_CHANGES: AtomicU64 = AtomicU64::new(0);

/// How often an enum was changed: what is known of labels by their oids is good while this stays the same, for a label can be
/// renamed.
pub fn enum_changes() -> u64 {
    ENUM_CHANGES.load(Ordering::Relaxed)
}

unsafe extern "C-unwind" fn enum_changed(_: pg_sys::Datum, _: i32, _: u32) {
    ENUM_CHANGES.fetch_add(1, Ordering::Relaxed);
}

/// Has changes of enums counted; called once, when the library is loaded.
pub fn watch_enums() {
    let cache = pg_sys::SysCacheIdentifier::ENUMOID as i32;
    // SAFETY: the function stays as long as the library, which is never unloaded, and does nothing but count.
    unsafe { pg_sys::CacheRegisterSyscacheCallback(cache, Some(enum_changed), pg_sys::Datum::from(0)) }
}

/// Whether reading a value of this type from text runs nobody's code: a base type or an enum, or an array of such.
/// A domain has checks, and a row of them may too.
pub fn is_plain(oid: pg_sys::Oid) -> bool {
    // SAFETY: catalog look-ups by oid.
    let plain = |oid| matches!(unsafe { pg_sys::get_typtype(oid) } as u8, b'b' | b'e');
    // SAFETY: as above.
    let element = unsafe { pg_sys::get_element_type(oid) };
    plain(oid) && (element == pg_sys::InvalidOid || plain(element))
}

/// The type of this name, written for a query, if values may be read from text as of it by anyone: a name that was
/// kept may mean another type by now.
pub fn castable(name: &str) -> Option<String> {
    named(name).filter(|oid| is_plain(*oid)).map(type_name)
}

/// The type of this name, which came from [`type_name`], if there is one now.
pub fn named(name: &str) -> Option<pg_sys::Oid> {
    let name = std::ffi::CString::new(name).ok()?;
    let (mut oid, mut modifier) = (pg_sys::InvalidOid, -1);
    // SAFETY: parses the name and looks it up; missing_ok.
    unsafe { pg_sys::parseTypeString(name.as_ptr(), &mut oid, &mut modifier, true) };
    (oid != pg_sys::InvalidOid).then_some(oid)
}

/// The elements of an array of numbers, or of pgvector's vector or halfvec.
pub fn element(oid: pg_sys::Oid) -> Option<Element> {
    let base = base_type(oid);
    // SAFETY: a catalog look-up by oid.
    Element::of(unsafe { pg_sys::get_element_type(base) }).or_else(|| match vector(base)? {
        Vector::Single => Some(Element::Vector),
        Vector::Half => Some(Element::HalfVector),
        Vector::Sparse => None,
    })
}

/// pgvector's types of vectors of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vector {
    /// vector
    Single,
    /// halfvec
    Half,
    /// sparsevec
    Sparse,
}

/// Which of them it is: by its name, and by membership of the extension `vector`, to which there is no link.
pub fn vector(oid: pg_sys::Oid) -> Option<Vector> {
    // SAFETY: look-ups by oid; null or InvalidOid where there is nothing.
    unsafe {
        if oid.to_u32() < pg_sys::FirstNormalObjectId {
            return None;
        }
        let tuple = pg_sys::SearchSysCache1(pg_sys::SysCacheIdentifier::TYPEOID as i32, oid.into());
        if tuple.is_null() {
            return None;
        }
        let form = pg_sys::GETSTRUCT(tuple).cast::<pg_sys::FormData_pg_type>();
        let kind = match CStr::from_ptr((*form).typname.data.as_ptr()).to_bytes() {
            b"vector" => Some(Vector::Single),
            b"halfvec" => Some(Vector::Half),
            b"sparsevec" => Some(Vector::Sparse),
            _ => None,
        };
        pg_sys::ReleaseSysCache(tuple);
        let extension = pg_sys::get_extension_oid(c"vector".as_ptr(), true);
        let own = kind.is_some()
            && extension != pg_sys::InvalidOid
            && pg_sys::getExtensionOfObject(pg_sys::TypeRelationId, oid) == extension;
        kind.filter(|_| own)
    }
}

/// What a target of this type can mean.
pub fn target_kind(oid: pg_sys::Oid) -> TargetKind {
    match base_type(oid) {
        pg_sys::BOOLOID => TargetKind::Boolean,
        pg_sys::INT2OID
        | pg_sys::INT4OID
        | pg_sys::INT8OID
        | pg_sys::FLOAT4OID
        | pg_sys::FLOAT8OID
        | pg_sys::NUMERICOID => TargetKind::Numeric,
        _ => TargetKind::Text,
    }
}

/// A target value in the core's form; `None` for NaN and infinity.
///
/// # Safety
/// `datum` is a non-NULL value of type `oid`.
pub unsafe fn target_value(datum: pg_sys::Datum, oid: pg_sys::Oid) -> Option<TargetValue> {
    let number = |x: f64| x.is_finite().then_some(TargetValue::Number(x + 0.0));
    match base_type(oid) {
        pg_sys::BOOLOID => Some(TargetValue::Integer(i64::from(datum.value() as u8 != 0))),
        pg_sys::INT2OID => Some(TargetValue::Integer(i64::from(datum.value() as i16))),
        pg_sys::INT4OID => Some(TargetValue::Integer(i64::from(datum.value() as i32))),
        pg_sys::INT8OID => Some(TargetValue::Integer(datum.value() as i64)),
        pg_sys::FLOAT4OID => number(f64::from(f32::from_bits(datum.value() as u32))),
        pg_sys::FLOAT8OID => number(f64::from_bits(datum.value() as u64)),
        pg_sys::NUMERICOID => {
            // SAFETY: by contract a numeric; the text form of any numeric parses as f64.
            let text = unsafe { text_of(datum, oid) };
            text.parse().ok().and_then(number)
        }
        // SAFETY: by contract.
        _ => Some(TargetValue::Text(unsafe { text_of(datum, oid) })),
    }
}

/// A class in the text form of its type, as `predict` returns it.
pub fn class_text(value: &TargetValue, target_type: pg_sys::Oid) -> String {
    match (value, base_type(target_type)) {
        (TargetValue::Integer(i), pg_sys::BOOLOID) => if *i != 0 { "true" } else { "false" }.into(),
        (TargetValue::Integer(i), _) => i.to_string(),
        (TargetValue::Number(x), pg_sys::FLOAT4OID) => (*x as f32).to_string(),
        (TargetValue::Number(x), _) => x.to_string(),
        (TargetValue::Text(s), _) => s.clone(),
    }
}

/// A class from its text form, as [`class_text`] wrote it; `None` if that is no value of the type.
pub fn class_of_text(text: &str, target_type: pg_sys::Oid) -> Option<TargetValue> {
    match base_type(target_type) {
        pg_sys::BOOLOID => text.parse().ok().map(|b: bool| TargetValue::Integer(i64::from(b))),
        pg_sys::INT2OID | pg_sys::INT4OID | pg_sys::INT8OID => text.parse().ok().map(TargetValue::Integer),
        pg_sys::FLOAT4OID => text.parse().ok().map(|x: f32| TargetValue::Number(f64::from(x))),
        pg_sys::FLOAT8OID | pg_sys::NUMERICOID => text.parse().ok().map(TargetValue::Number),
        _ => Some(TargetValue::Text(text.into())),
    }
}

/// A varlena with these bytes in the current memory context; `None` over PostgreSQL's 1 GB.
pub fn varlena_datum(bytes: &[u8]) -> Option<pg_sys::Datum> {
    let size = bytes.len().checked_add(pg_sys::VARHDRSZ)?;
    if size >= 0x3fff_ffff {
        return None;
    }
    // SAFETY: palloc gives `size` writable bytes: a four-byte header and the payload.
    unsafe {
        let varlena = pg_sys::palloc(size).cast::<pg_sys::varlena>();
        pgrx::varlena::set_varsize_4b(varlena, size as i32);
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), varlena.cast::<u8>().add(pg_sys::VARHDRSZ), bytes.len());
        Some(pg_sys::Datum::from(varlena))
    }
}

/// The bytes of a varlena, detoasted.
///
/// # Safety
/// `datum` is a non-NULL varlena.
pub unsafe fn varlena_bytes<'a>(datum: pg_sys::Datum) -> &'a [u8] {
    // SAFETY: by contract; the detoasted copy lives in the current memory context.
    unsafe {
        let varlena = pg_sys::pg_detoast_datum_packed(datum.cast_mut_ptr());
        let data = pgrx::varlena::vardata_any(varlena).cast::<u8>();
        core::slice::from_raw_parts(data, pgrx::varlena::varsize_any_exhdr(varlena))
    }
}
