//! EXPLAIN's property calls behind a small safe face.

use pgrx::pg_sys;
use std::ffi::CString;

/// Where EXPLAIN collects what a node says.
pub struct Explainer(*mut pg_sys::ExplainState);

impl Explainer {
    /// # Safety
    /// `es` is the valid state of the EXPLAIN callback that is running.
    pub unsafe fn new(es: *mut pg_sys::ExplainState) -> Self {
        Self(es)
    }

    /// EXPLAIN ANALYZE?
    pub fn is_analyze(&self) -> bool {
        // SAFETY: valid by construction.
        unsafe { (*self.0).analyze }
    }

    /// Are timings wanted?
    pub fn is_timing(&self) -> bool {
        // SAFETY: valid by construction.
        unsafe { (*self.0).analyze && (*self.0).timing }
    }

    fn is_text(&self) -> bool {
        // SAFETY: valid by construction.
        unsafe { (*self.0).format == pg_sys::ExplainFormat::EXPLAIN_FORMAT_TEXT }
    }

    /// A text property.
    pub fn text(&self, label: &str, value: &str) {
        let (label, value) = (CString::new(label).unwrap_or_default(), CString::new(value).unwrap_or_default());
        // SAFETY: valid by construction; both strings are NUL-terminated and copied.
        unsafe { pg_sys::ExplainPropertyText(label.as_ptr(), value.as_ptr(), self.0) }
    }

    /// A whole number.
    pub fn integer(&self, label: &str, value: i64) {
        let label = CString::new(label).unwrap_or_default();
        // SAFETY: valid by construction.
        unsafe { pg_sys::ExplainPropertyInteger(label.as_ptr(), std::ptr::null(), value, self.0) }
    }

    /// A number with digits behind the point.
    pub fn float(&self, label: &str, value: f64, digits: i32) {
        let label = CString::new(label).unwrap_or_default();
        // SAFETY: valid by construction.
        unsafe { pg_sys::ExplainPropertyFloat(label.as_ptr(), std::ptr::null(), value, digits, self.0) }
    }

    /// Bytes: `16 MB` in text, a plain number of kilobytes elsewhere.
    pub fn bytes(&self, label: &str, bytes: usize) {
        if self.is_text() {
            self.text(label, &pretty_bytes(bytes))
        } else {
            self.integer(label, bytes.div_ceil(1024) as i64)
        }
    }

    /// A duration as `12.345 ms`, in milliseconds elsewhere; nothing with TIMING OFF.
    pub fn time(&self, label: &str, nanoseconds: u64) {
        if self.is_timing() {
            let ms = nanoseconds as f64 / 1e6;
            if self.is_text() { self.text(label, &format!("{ms:.3} ms")) } else { self.float(label, ms, 3) }
        }
    }
}

/// A size as people read it.
pub fn pretty_bytes(bytes: usize) -> String {
    match bytes {
        0..8192 => format!("{bytes} bytes"),
        8192..10_485_760 => format!("{} kB", bytes.div_ceil(1024)),
        10_485_760..10_737_418_240 => format!("{} MB", bytes.div_ceil(1 << 20)),
        _ => format!("{} GB", bytes.div_ceil(1 << 30)),
    }
}
