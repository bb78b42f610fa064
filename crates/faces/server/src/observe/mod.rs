//! The reports of the server about itself: counters of refusals, the audit, `system.metrics`, traces in the log.
//!
//! ```text
//! edges, engine's notes -> Trail (bounded, drops and counts) -> one task -> system.bus.audit
//! every period: Stats + shell -> one event -> system.metrics
//! ```
//!
//! Nothing here can delay or fail a request. Nothing here is about `system.*` topics, so the reports cause no further
//! reports.

mod audit_log;
mod http_requester;
mod kinds;
mod log_ring;
mod notes;
mod publisher;
mod reads;
mod refusals;
mod replies;
mod traces;

pub(crate) use audit_log::AuditLog;
pub(crate) use http_requester::{HttpRequester, to_its_end};
pub use kinds::{AuditKind, AuditKinds};
pub(crate) use log_ring::KeptLine;
pub use log_ring::{LogLevel, LogLine, LogRing};
pub(crate) use publisher::{make_topics, start};
pub(crate) use reads::ContentRead;
pub(crate) use refusals::Refusals;
pub(crate) use replies::{RequestParty, publish_trace};
pub(crate) use traces::TracedPublish;
