//! A whole store in numbers.

use millrace_model::{Space, Timestamp};
use serde::Serialize;

use super::{Admin, AdminError, Liveness};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    pub namespaces: u64,
    pub topics: u64,
    /// Retained offsets; with holes in a stream a little more than events.
    pub events: u64,
    /// Delayed events that are not due yet.
    pub delayed: u64,
    pub groups: u64,
    pub handlers: u64,
    pub schedules: u64,
    /// Sessions that are alive.
    pub sessions: u64,
    /// Events that handlers gave up on.
    pub handler_dead_letters: u64,
    /// Events that groups gave up on, retained in the topics made for them.
    pub group_dead_letters: u64,
}

impl Admin {
    pub fn totals(&self, now: Timestamp, session_ttl_ms: u64) -> Result<Totals, AdminError> {
        let streams = self.store.streams()?;
        let retained = |of_groups: bool| {
            let streams = streams.iter().filter(|bounds| !of_groups || bounds.stream.topic.is_dead_letter());
            streams.map(|bounds| bounds.next.0.saturating_sub(bounds.start.0)).sum()
        };
        let namespaces = self.namespace_names()?;
        let mut sessions = 0;
        for namespace in &namespaces {
            let found = self.sessions(namespace, now, session_ttl_ms)?;
            sessions += found.iter().filter(|session| session.liveness == Liveness::Alive).count() as u64;
        }
        Ok(Totals {
            namespaces: namespaces.len() as u64,
            topics: self.count_rows(Space::Topics, "")?,
            events: retained(false),
            delayed: self.count_rows(Space::Due, "")?,
            groups: self.count_rows(Space::Groups, "")?,
            handlers: self.count_rows(Space::Handlers, "")?,
            schedules: self.count_rows(Space::Schedules, "")?,
            sessions,
            handler_dead_letters: self.count_letters("")?,
            group_dead_letters: retained(true),
        })
    }
}
