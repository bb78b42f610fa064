//! An event is stored once: only events with an id are published twice, and an id is stored once within its window.
//! Nothing is stored that nobody published.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use millrace_bus::{Input, Request};
use millrace_model::{EventBody, NewEvent, Offset, Op, Outcome, Stream, TopicKey};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::dropped;
use crate::payload::number;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct StoredOnce {
    published: BTreeMap<u64, (TopicKey, Arc<EventBody>)>,
    /// Where each event is in the log.
    stored: BTreeMap<u64, (Stream, Offset)>,
    /// Events published to a server that had started while the wall clock was far off: it judges ids by a wrong time,
    /// and stores their events under it.
    mistimed: BTreeSet<u64>,
}

impl Checker for StoredOnce {
    fn name(&self) -> &'static str {
        "stored_once"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Told { input: Input::Request { request, .. } } => self.asked(facts, request),
            Seen::Neighbour { batch } => {
                for op in &batch.ops {
                    if let Op::Append(append) = op {
                        self.note(&append.stream.topic, &append.event);
                    }
                }
            }
            Seen::Durable { batch, outcome: Outcome::Done(done), .. } => {
                for topic in dropped(batch) {
                    self.stored.retain(|_, (stream, _)| stream.topic != *topic);
                }
                let appends = batch.ops.iter().filter_map(|op| match op {
                    Op::Append(append) => Some(append),
                    _ => None,
                });
                for (append, one) in appends.zip(&done.appended) {
                    let topic = &append.stream.topic;
                    if one.duplicate || topic.is_dead_letter() || topic.is_system() {
                        continue;
                    }
                    self.stored(&append.stream, one.offset, &append.event)?;
                }
            }
            Seen::Ended { .. } => self.find_again(facts),
            _ => {}
        }
        Ok(())
    }
}

impl StoredOnce {
    fn note(&mut self, topic: &TopicKey, event: &NewEvent) {
        if let Some(number) = number(&event.body) {
            self.published.insert(number, (topic.clone(), Arc::clone(&event.body)));
        }
    }

    fn asked(&mut self, facts: &Facts, request: &Request) {
        let (topic, events) = match request {
            Request::Publish(publish) => (&publish.topic, std::slice::from_ref(&publish.event)),
            Request::PublishBatch(batch) => (&batch.topic, &batch.events[..]),
            _ => return,
        };
        for event in events {
            self.note(topic, event);
            self.mistimed.extend(number(&event.body).filter(|_| facts.began_far_off));
        }
    }

    fn stored(&mut self, stream: &Stream, offset: Offset, event: &NewEvent) -> Result<(), String> {
        let number = number(&event.body).ok_or(format!("{:?} was stored and never published", event.body))?;
        if self.published.get(&number) != Some(&(stream.topic.clone(), Arc::clone(&event.body))) {
            return Err(format!("event {number} was stored otherwise than it was published"));
        }
        // An id outlives its event: an event that retention has removed does not come again. No run is as long as the
        // window.
        let before = self.stored.insert(number, (stream.clone(), offset));
        // A server that starts while the wall clock is far off cannot know that: ids may then seem old.
        let mistimed = self.mistimed.contains(&number);
        before.filter(|_| !mistimed).map_or(Ok(()), |(first, at)| {
            Err(format!(
                "event {number} (id {:?}) was stored at {first} {at} and at {stream} {offset}",
                event.id
            ))
        })
    }

    fn find_again(&mut self, facts: &Facts) {
        self.stored.clear();
        let of_users = |stream: &Stream| !stream.topic.is_dead_letter() && !stream.topic.is_system();
        let logs = facts.ledger.logs.iter().filter(|(stream, _)| of_users(stream));
        for event in logs.flat_map(|(_, log)| log.events.values()) {
            if let Some(number) = number(&event.body) {
                self.stored.insert(number, (event.stream.clone(), event.offset));
            }
        }
    }
}
