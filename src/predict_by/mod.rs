//! PREDICT BY
pub fn init() {}
