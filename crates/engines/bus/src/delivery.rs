//! Events on their way to consumers: read, delivered, acknowledged, redelivered, dead-lettered.

pub(crate) mod ack;
pub(crate) mod dead_letter;
pub(crate) mod deliver;
pub(crate) mod ended;
pub(crate) mod fetch;
pub(crate) mod flush;
