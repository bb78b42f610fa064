//! Reports of the loop about itself: its own messages, the trace, answers to queries.

pub(crate) mod messages;
pub(crate) mod observe;
pub(crate) mod queries;
pub(crate) mod trace;
