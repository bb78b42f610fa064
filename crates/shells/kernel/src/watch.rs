//! What whoever runs the loop hears about access and the bus, for its audit.

use std::sync::Arc;

use millrace_bus::Reply;
use millrace_model::TraceId;
use millrace_router::By;

/// Nothing depends on these.
#[derive(Debug)]
pub enum Seen<'a> {
    /// A message of type `what` that its sender may not send: 401 or 403.
    Refused { by: &'a By, code: u16, what: &'a str, why: &'a str },
    /// What the bus answered to a command of type `what`, refusals included.
    Bus { by: &'a By, what: &'a str, reply: &'a Reply, trace: Option<&'a TraceId> },
}

/// Must not wait: it is called in the middle of things.
pub type Watch = Arc<dyn Fn(&Seen<'_>) + Send + Sync>;
