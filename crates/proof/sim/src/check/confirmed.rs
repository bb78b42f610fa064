//! No confirmed event is lost: it stays at its offset, with its content, through every crash that its durability
//! promises to survive.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_bus::{Reply, ReplyTo, Request};
use millrace_model::{Durability, EventBody, NewEvent, Offset, Outcome, Stream};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::dropped;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Confirmed {
    promised: BTreeMap<(Stream, Offset), Promise>,
}

struct Promise {
    body: Arc<EventBody>,
    durability: Durability,
}

impl Checker for Confirmed {
    fn name(&self) -> &'static str {
        "confirmed_kept"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Answered { to, reply } => self.answered(facts, *to, reply),
            Seen::Ended { ending } => {
                self.promised.retain(|_, promise| promise.durability >= ending.survives());
                self.promised.iter().try_for_each(|(place, promise)| kept(facts, place, promise))
            }
            Seen::Durable { batch, outcome: Outcome::Done(_) } => {
                for topic in dropped(batch) {
                    self.promised.retain(|(stream, _), _| stream.topic != *topic);
                }
                Ok(())
            }
            Seen::End { .. } => {
                self.promised.iter().try_for_each(|(place, promise)| kept(facts, place, promise))
            }
            _ => Ok(()),
        }
    }
}

impl Confirmed {
    fn answered(&mut self, facts: &Facts, to: ReplyTo, reply: &Reply) -> Result<(), String> {
        match (facts.traffic.asked.get(&to), reply) {
            (
                Some(Request::Publish(publish)),
                Reply::Published { topic, at: Some((partition, offset)), durability, id, .. },
            ) => {
                if publish.event.id.as_ref().is_some_and(|brought| brought != id) {
                    return Err(format!("{:?} was confirmed as {id}", publish.event.id));
                }
                self.promise(facts, (topic.stream(*partition), *offset), &publish.event, *durability)
            }
            (
                Some(Request::PublishBatch(publish)),
                Reply::PublishedBatch { topic, offsets, durability, .. },
            ) => {
                if offsets.len() != publish.events.len() {
                    return Err(format!(
                        "{} events were confirmed with {} offsets",
                        publish.events.len(),
                        offsets.len()
                    ));
                }
                let mut pairs = offsets.iter().zip(&publish.events);
                pairs.try_for_each(|((partition, offset), event)| {
                    self.promise(facts, (topic.stream(*partition), *offset), event, *durability)
                })
            }
            _ => Ok(()),
        }
    }

    fn promise(
        &mut self,
        facts: &Facts,
        place: (Stream, Offset),
        event: &NewEvent,
        durability: Durability,
    ) -> Result<(), String> {
        if facts.traffic.is_dropping(&place.0.topic) {
            return Ok(());
        }
        let promise = Promise { body: Arc::clone(&event.body), durability };
        kept(facts, &place, &promise)?;
        self.promised.insert(place, promise);
        Ok(())
    }
}

fn kept(facts: &Facts, (stream, offset): &(Stream, Offset), promise: &Promise) -> Result<(), String> {
    let (start, _) = facts.ledger.bounds(stream);
    match facts.ledger.event(stream, *offset) {
        _ if *offset < start => Ok(()),
        Some(event) if event.body == promise.body => Ok(()),
        Some(_) => Err(format!("{stream} at {offset} holds another event than was confirmed")),
        None => Err(format!("{stream} at {offset} was confirmed and is lost")),
    }
}
