//! Finds an event by its id, without an index of ids: by time if the id contains one, else by reading everything.

use std::sync::Arc;

use millrace_model::{Event, EventId, Namespace, Offset, Timestamp};
use millrace_store::{ReadLimit, StreamBounds};

use super::{Admin, AdminError, ClaimView, EventView};

const PAGE: ReadLimit = ReadLimit { events_max: 1024, bytes_max: 4 << 20 };
/// An id that Millrace made contains its time; the event's own time may be a little later or, after a step of the
/// clock, earlier.
const SLACK_MS: u64 = 60_000;

impl Admin {
    /// Returns the event and its status with its handlers; searches one namespace, or all.
    pub fn inspect(
        &self,
        namespace: Option<&Namespace>,
        id: &EventId,
        now: Timestamp,
    ) -> Result<Option<EventView>, AdminError> {
        let Some(event) = self.find(namespace, id)? else { return Ok(None) };
        let standings = match Namespace::new(event.stream.topic.namespace()) {
            Ok(namespace) => self.standings(&namespace)?,
            Err(_) => Vec::new(),
        };
        self.view(event, &standings, now).map(Some)
    }

    /// Returns the status of an event with each of its handlers, for a caller who has the event.
    pub fn claims_of(&self, event: &Event, now: Timestamp) -> Result<Vec<ClaimView>, AdminError> {
        let Ok(namespace) = Namespace::new(event.stream.topic.namespace()) else { return Ok(Vec::new()) };
        let standings = self.standings(&namespace)?;
        Ok(self.view(Arc::new(event.clone()), &standings, now)?.claims)
    }

    pub(super) fn find(
        &self,
        namespace: Option<&Namespace>,
        id: &EventId,
    ) -> Result<Option<Arc<Event>>, AdminError> {
        let mut streams = self.store.streams()?;
        streams.retain(|bounds| {
            namespace.is_none_or(|namespace| bounds.stream.topic.namespace() == namespace.as_str())
        });
        if let Some(made) = made_at(id) {
            let (from, to) = (made.saturating_sub(SLACK_MS), made + SLACK_MS);
            for bounds in &streams {
                let start = self.store.seek(&bounds.stream, from)?;
                if let Some(event) = self.look(bounds, start, Some(to), id)? {
                    return Ok(Some(event));
                }
            }
        }
        for bounds in &streams {
            if let Some(event) = self.look(bounds, bounds.start, None, id)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }

    fn look(
        &self,
        bounds: &StreamBounds,
        mut from: Offset,
        until: Option<Timestamp>,
        id: &EventId,
    ) -> Result<Option<Arc<Event>>, AdminError> {
        while from < bounds.next {
            let page = self.store.read(&bounds.stream, from, PAGE)?;
            if let Some(event) = page.events.iter().find(|event| event.id == *id) {
                return Ok(Some(event.clone()));
            }
            let is_past = page.events.last().is_some_and(|last| until.is_some_and(|until| last.ts > until));
            if is_past || page.through < from {
                break;
            }
            from = page.through.next();
        }
        Ok(None)
    }
}

/// Returns the time in a UUID of version 7.
fn made_at(id: &EventId) -> Option<Timestamp> {
    match id {
        EventId::Uuid(bits) if bits >> 76 & 0xf == 7 => Some(Timestamp((bits >> 80) as u64)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_version_7_tells_its_time() {
        assert_eq!(made_at(&EventId::mint(Timestamp(1234), 7, 0)), Some(Timestamp(1234)));
        assert_eq!(made_at(&EventId::parse("order 7").unwrap()), None);
    }
}
