//! What a handler holds while it works on one event.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::state::Pending;
use crate::typed::{Event, IntoIntents, IntoOutgoing, Outgoing};

/// The part of a context that does not depend on the event's type. The run loop makes it, the handler fills it, the
/// run loop gets it back with the result.
#[derive(Debug, Default)]
pub struct Core {
    pub(crate) pending: Pending,
    pub(crate) emitted: Vec<Outgoing>,
    pub(crate) meta: BTreeMap<String, String>,
}

/// The event, and everything the handler may do about it.
#[derive(Debug)]
pub struct HandlerContext<E: Event> {
    pub event: E,
    core: Core,
}

impl<E: Event> HandlerContext<E> {
    pub(crate) fn new(event: E, core: Core) -> HandlerContext<E> {
        HandlerContext { event, core }
    }

    pub(crate) fn into_core(self) -> Core {
        self.core
    }

    /// Declares the full state of an entity or relation, or of many. Nothing is written before `commit`.
    pub fn ensure<Many>(&mut self, state: impl IntoIntents<Many>) -> Result<()> {
        Ok(self.core.pending.push(state.into_intents()?)?)
    }

    /// Enqueues the event if and when the handler succeeds.
    pub fn emit(&mut self, event: impl IntoOutgoing) -> Result<()> {
        self.core.emitted.push(event.into_outgoing()?);
        Ok(())
    }

    /// Attaches text to the next commit.
    pub fn add_commit_meta(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.core.meta.insert(name.into(), value.into());
    }
}
