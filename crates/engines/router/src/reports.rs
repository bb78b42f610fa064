//! What the loop tells about itself: messages of its own, the trace, answers to queries.

pub(crate) mod messages;
pub(crate) mod observe;
pub(crate) mod queries;
pub(crate) mod trace;
