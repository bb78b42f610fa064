//! The beginning and the end of a session.

pub(crate) mod start;
