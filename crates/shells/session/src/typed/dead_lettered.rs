//! The event that the `claims` engine appends when a handler gives up on an event.

use millrace_state::Schema;
use serde::{Deserialize, Serialize};

use super::event::Event;

/// A handler gave up on an event. Handle it like any other event: `#[on_event(DeadLettered)]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLettered {
    pub event_id: String,
    pub handler_id: String,
    pub attempts: u32,
    pub last_error: String,
}

impl Event for DeadLettered {
    const TYPE: &'static str = "event.dead_letter";
    const NAME_GIVEN: bool = true;

    fn schema() -> Schema {
        let text = "String";
        Schema::new(
            Self::TYPE,
            &[("event_id", text), ("handler_id", text), ("attempts", "u32"), ("last_error", text)],
        )
    }
}
