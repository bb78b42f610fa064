//! Events and where they lie: ids, payloads, streams, partitions, pages.

pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod json;
pub(crate) mod partition;
pub(crate) mod reading;
pub(crate) mod stream;
pub(crate) mod trace;
