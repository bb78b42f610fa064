//! Handlers and schedules as traces need them: how far handlers are with many events at once, and who made an event.

use std::sync::Arc;

use millrace_claims::{PLANNED_AT, is_fire_of, is_made_by};
use millrace_model::{Event, EventId, HandlerId, Namespace, Timestamp};

use super::{Admin, AdminError, ClaimView};

/// A fire of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FireView {
    pub schedule: String,
    pub planned: Timestamp,
}

impl Admin {
    /// Returns, of each event, its status with each of its handlers. All events must be of this namespace.
    pub fn claims_of_each(
        &self,
        namespace: &Namespace,
        events: &[Arc<Event>],
        now: Timestamp,
    ) -> Result<Vec<Vec<ClaimView>>, AdminError> {
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let standings = self.standings(namespace)?;
        events.iter().map(|event| Ok(self.view(event.clone(), &standings, now)?.claims)).collect()
    }

    /// Returns the fire that published the event, if a schedule of the namespace did.
    pub fn fire_of(&self, namespace: &Namespace, event: &Event) -> Result<Option<FireView>, AdminError> {
        let planned = event.body.headers.as_ref().and_then(|headers| headers.get(PLANNED_AT));
        let Some(planned) = planned.and_then(|planned| planned.parse().ok()).map(Timestamp) else {
            return Ok(None);
        };
        let schedules = self.schedules(namespace, planned)?;
        let mut names = schedules.into_iter().map(|view| view.name);
        let fired = names.find(|name| is_fire_of(&event.id, namespace, name, planned));
        Ok(fired.map(|schedule| FireView { schedule, planned }))
    }
}

/// Whether the handler made the event `id` while it handled the event `cause`.
pub fn made_by(id: &EventId, cause: &EventId, handler: &str) -> bool {
    HandlerId::new(handler).is_ok_and(|handler| is_made_by(id, cause, &handler))
}
