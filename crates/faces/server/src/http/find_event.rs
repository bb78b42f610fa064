//! Finds an event by its id, without an index of ids.

use millrace_model::{Event, EventId, Headers, Offset, Requester, Stream, Timestamp, TopicKey};
use millrace_store::{ReadLimit, Store, StoreError, StreamBounds};

use crate::http::topic_access::check_topic;

const PAGE: ReadLimit = ReadLimit { events_max: 512, bytes_max: 4 << 20 };
/// An id that Millrace made contains its time; the event's own time is the same, unless a clock was set. An id that a
/// client made may be a little older. Narrow looks come first, because many events may have been published around that
/// time.
const SLACKS_MS: [u64; 3] = [0, 1_000, 60_000];

/// The event that is looked for.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    pub(crate) id: EventId,
    pub(crate) topic: Option<TopicKey>,
    /// Most events that are looked at.
    pub(crate) scan_max: u64,
}

impl Lookup {
    /// Finds the event: by the time in its id, else by looking at the newest events. `Err` says how many were looked at.
    pub(crate) fn find(
        &self,
        store: &dyn Store,
        by: &Requester,
        namespace: &str,
    ) -> Result<Result<Event, u64>, StoreError> {
        self.find_in(store, &readable_streams(store, by, namespace)?)
    }

    /// The same, among streams that were found readable before.
    pub(crate) fn find_in(
        &self,
        store: &dyn Store,
        readable: &[StreamBounds],
    ) -> Result<Result<Event, u64>, StoreError> {
        let of_topic =
            |bounds: &&StreamBounds| self.topic.as_ref().is_none_or(|wanted| *wanted == bounds.stream.topic);
        let streams: Vec<&StreamBounds> = readable.iter().filter(of_topic).collect();
        let mut left = self.scan_max;
        if let Some(event) = self.by_time(store, &streams, &mut left)? {
            return Ok(Ok(event));
        }
        // The newest of each stream, in equal parts: an id that a client brought tells nothing about its place.
        let part = left / (streams.len().max(1) as u64);
        for bounds in &streams {
            let from = Offset(bounds.next.0.saturating_sub(part).max(bounds.start.0.max(1)));
            let mut of_stream = part;
            let is_it = |event: &Event| event.id == self.id;
            if let Some(event) = scan(store, (&bounds.stream, from), None, &mut of_stream, is_it)? {
                return Ok(Ok(event));
            }
            left -= part - of_stream;
        }
        Ok(Err(self.scan_max - left))
    }

    /// Looks only where the time in the id leads; an id without a time is not found.
    pub(crate) fn by_time(
        &self,
        store: &dyn Store,
        streams: &[&StreamBounds],
        left: &mut u64,
    ) -> Result<Option<Event>, StoreError> {
        let Some(made) = made_at(&self.id) else { return Ok(None) };
        for slack_ms in SLACKS_MS {
            let until = Timestamp(made.0.saturating_add(slack_ms));
            for bounds in streams {
                let from = store.seek(&bounds.stream, Timestamp(made.0.saturating_sub(slack_ms)))?;
                let is_it = |event: &Event| event.id == self.id;
                if let Some(event) = scan(store, (&bounds.stream, from), Some(until), left, is_it)? {
                    return Ok(Some(event));
                }
            }
        }
        Ok(None)
    }
}

/// Returns the first event from an offset on for which `is_it` holds; looks at no more than `left` events.
pub(crate) fn scan(
    store: &dyn Store,
    (stream, mut from): (&Stream, Offset),
    until: Option<Timestamp>,
    left: &mut u64,
    mut is_it: impl FnMut(&Event) -> bool,
) -> Result<Option<Event>, StoreError> {
    while *left > 0 {
        let page = store.read(stream, from, PAGE)?;
        if page.through < from {
            break;
        }
        for event in &page.events {
            if until.is_some_and(|until| event.ts > until) {
                return Ok(None);
            }
            *left = left.saturating_sub(1);
            if is_it(event) {
                return Ok(Some(Event::clone(event)));
            }
        }
        // Empty stretches count a little, so that they end, too.
        *left = left.saturating_sub(1);
        from = page.through.next();
    }
    Ok(None)
}

/// The time in a UUID of version 7.
pub(crate) fn made_at(id: &EventId) -> Option<Timestamp> {
    match id {
        EventId::Uuid(bits) if bits >> 76 & 0xf == 7 => Some(Timestamp((bits >> 80) as u64)),
        _ => None,
    }
}

/// The streams of a namespace that `by` may read.
pub(crate) fn readable_streams(
    store: &dyn Store,
    by: &Requester,
    namespace: &str,
) -> Result<Vec<StreamBounds>, StoreError> {
    let mut readable = Vec::new();
    for bounds in store.streams()? {
        let Stream { topic, partition } = &bounds.stream;
        if topic.namespace() == namespace && check_topic(store, by, topic, *partition)?.is_ok() {
            readable.push(bounds);
        }
    }
    Ok(readable)
}

pub(crate) fn header(event: &Event, name: &str) -> Option<String> {
    event.body.headers.as_ref().and_then(|headers: &Headers| headers.get(name))
}
