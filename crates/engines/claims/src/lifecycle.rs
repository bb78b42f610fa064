//! The beginning and the end of a session.

pub(crate) mod heartbeat;
pub(crate) mod namespace_rows;
pub(crate) mod session;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod validate;
