//! Work besides handlers and schedules: retention, and moving delayed events that are due.

pub(crate) mod delayed;
pub(crate) mod retention;
pub(crate) mod sweep;
