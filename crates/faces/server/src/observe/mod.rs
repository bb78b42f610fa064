//! What the server tells about itself: counters of refusals, the audit, `system.metrics`, traces in the log.
//!
//! ```text
//! edges, engine's notes -> Trail (bounded, drops and counts) -> one task -> system.bus.audit
//! every period: Stats + shell -> one event -> system.metrics
//! ```
//!
//! None of it can hold up or fail a request, and none of it is about `system.*`, so it never feeds itself.

mod asker;
mod audit_log;
mod done;
mod kinds;
mod notes;
mod publisher;
mod refusals;

pub(crate) use asker::Asker;
pub(crate) use audit_log::Trail;
pub(crate) use done::{Done, publish_trace};
pub use kinds::{AuditKind, AuditKinds};
pub(crate) use publisher::{make_topics, start};
pub(crate) use refusals::Refusals;
