//! Callbacks for the server's audit: refused messages, and what the bus answered.

use std::sync::Arc;

use millrace_bus::Reply;
use millrace_model::{Principal, TraceId};

/// Something to be audited. Nothing else depends on these.
#[derive(Debug)]
pub enum AuditEvent<'a> {
    /// The sender may not send this message of type `what`: 401 or 403.
    Refused { by: Option<&'a Principal>, code: u16, what: &'a str, why: &'a str },
    /// The bus's answer to a command of type `what`, refusals included.
    Bus { by: Option<&'a Principal>, what: &'a str, reply: &'a Reply, trace: Option<&'a TraceId> },
}

/// Must not wait: called in the middle of the loop's work.
pub type AuditHook = Arc<dyn Fn(&AuditEvent<'_>) + Send + Sync>;
