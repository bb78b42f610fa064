//! Events whose cause is not known yet. Between streams the order of time says nothing about the order of causes within
//! a millisecond, and the stored records of the loop's messages come a little after the events that the messages caused.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_model::Event;

/// The newest of them that are kept, and their bytes.
const EVENTS_MAX: usize = 4096;
const BYTES_MAX: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Undecided {
    events: BTreeMap<u64, Arc<Event>>,
    by_cause: BTreeMap<String, Vec<u64>>,
    next: u64,
    bytes: usize,
}

impl Undecided {
    /// Keeps an event that names a cause; drops the oldest ones beyond the bounds.
    pub(super) fn add(&mut self, event: &Arc<Event>) {
        let Some(cause) = cause_of(event) else { return };
        self.by_cause.entry(cause).or_default().push(self.next);
        self.bytes += event.body.bytes();
        self.events.insert(self.next, event.clone());
        self.next += 1;
        while self.events.len() > EVENTS_MAX || self.bytes > BYTES_MAX {
            let Some((number, oldest)) = self.events.pop_first() else { return };
            self.bytes -= oldest.body.bytes();
            if let Some(cause) = cause_of(&oldest)
                && let Some(numbers) = self.by_cause.get_mut(&cause)
            {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    self.by_cause.remove(&cause);
                }
            }
        }
    }

    /// Removes and returns the events that this caused, in the order in which they were found.
    pub(super) fn caused_by(&mut self, id: &str) -> Vec<Arc<Event>> {
        let numbers = self.by_cause.remove(id).unwrap_or_default();
        let found: Vec<_> = numbers.iter().filter_map(|number| self.events.remove(number)).collect();
        self.bytes -= found.iter().map(|event| event.body.bytes()).sum::<usize>();
        found
    }
}

fn cause_of(event: &Event) -> Option<String> {
    event.body.lineage.causation.as_ref().map(ToString::to_string)
}

#[cfg(test)]
mod tests {
    use millrace_model::{EventBody, EventId, JsonText, Lineage, Namespace, Offset, Partition, TopicKey};
    use millrace_model::{Timestamp, TopicName};

    use super::*;

    fn event(offset: u64, cause: &str, bytes: usize) -> Arc<Event> {
        let topic = TopicKey::new(&Namespace::default(), &TopicName::new("t").unwrap());
        let lineage = Lineage { causation: Some(EventId::parse(cause).unwrap()), ..Lineage::default() };
        let payload = JsonText::from_value(&"x".repeat(bytes)).unwrap();
        Arc::new(Event {
            stream: topic.stream(Partition(0)),
            offset: Offset(offset),
            ts: Timestamp(1),
            id: EventId::parse(&format!("e-{offset}")).unwrap(),
            body: Arc::new(EventBody { lineage, ..EventBody::of(payload) }),
        })
    }

    #[test]
    fn events_wait_for_their_cause_and_the_oldest_are_dropped() {
        let mut undecided = Undecided::default();
        for offset in 1..=EVENTS_MAX as u64 + 2 {
            undecided.add(&event(offset, if offset % 2 == 0 { "even" } else { "odd" }, 1));
        }
        let even: Vec<u64> = undecided.caused_by("even").iter().map(|event| event.offset.0).collect();
        assert_eq!((even.len(), even[0]), (EVENTS_MAX / 2, 4), "in order, without the dropped ones");
        assert!(undecided.caused_by("even").is_empty());
        for offset in 0..10 {
            undecided.add(&event(offset, "large", BYTES_MAX / 4));
        }
        assert!(undecided.caused_by("odd").is_empty(), "dropped for the large ones");
        assert_eq!(undecided.caused_by("large").len(), 3);
        assert_eq!((undecided.bytes, undecided.events.len(), undecided.by_cause.len()), (0, 0, 0));
    }
}
