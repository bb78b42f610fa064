//! Lists the sessions of a namespace and the events that its handlers gave up on, for people.

use millrace_admin::replaying;
use millrace_model::{DeadLetterRow, HandlerId, SessionId, SessionRow, Space, TopicName};
use millrace_store::KeyRange;

use crate::error::Result;
use crate::session::Session;
use crate::typed::{Handler, Start};

/// The most rows that a call lists: the oldest ones.
pub const LIST_MAX: usize = 10_000;

impl Session {
    /// Returns the events that handlers of this namespace gave up on, the oldest first, without those that are being
    /// replayed.
    pub fn dead_letters(&self) -> Result<Vec<DeadLetterRow>> {
        let replaying = replaying(self.store(), &format!("{}/", self.namespace_name()))?;
        let rows = self.rows(Space::DeadLetters)?;
        rows.iter()
            .filter(|row| !replaying.contains(&row.key))
            .map(|row| Ok(DeadLetterRow::decode(&row.key, &row.value)?))
            .collect()
    }

    /// Returns every session of this namespace that has run. A session whose heartbeat is older than `session_ttl_ms`
    /// and that has not stopped is dead.
    pub fn sessions(&self) -> Result<Vec<(SessionId, SessionRow)>> {
        let rows = self.rows(Space::Sessions)?;
        let named = rows.iter().map(|row| {
            let id = row.key.rsplit('/').next().unwrap_or_default();
            Ok((SessionId::new(id)?, SessionRow::decode(&row.key, &row.value)?))
        });
        named.collect()
    }

    fn rows(&self, space: Space) -> Result<Vec<millrace_store::Row>> {
        let range = KeyRange::prefix(&format!("{}/", self.namespace_name()));
        Ok(self.store().scan(space, &range, LIST_MAX)?)
    }
}

impl Handler {
    /// Returns the part of the handler that the engine needs.
    pub(crate) fn spec(&self) -> Result<millrace_claims::HandlerSpec> {
        Ok(millrace_claims::HandlerSpec {
            id: HandlerId::new(&self.id)?,
            topic: TopicName::new(self.event_type)?,
            priority: self.priority,
            from: match self.start {
                Start::Earliest => millrace_claims::From::Backlog,
                Start::Now => millrace_claims::From::Now,
            },
            settings: self.settings.clone(),
        })
    }
}
