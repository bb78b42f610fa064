//! Nothing is answered or delivered before the commit that it depends on is durable, and a delivered event equals the
//! committed one.

use millrace_bus::{Ack, Reply, Request};
use millrace_model::{DueRow, EventId, Offset, TopicKey};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::is_done;
use crate::place::Seat;
use crate::seen::Seen;

pub(super) struct DurableFirst;

impl Checker for DurableFirst {
    fn name(&self) -> &'static str {
        "durable_first"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Delivered { event, .. } => match facts.ledger.event(&event.stream, event.offset) {
                Some(stored) if stored == *event => Ok(()),
                Some(_) => {
                    Err(format!("{} at {} was delivered with another content", event.stream, event.offset))
                }
                None => Err(format!("{} at {} was delivered and is not durable", event.stream, event.offset)),
            },
            Seen::Answered { to, reply } => answered(facts, facts.traffic.asked.get(to), reply),
            _ => Ok(()),
        }
    }
}

fn answered(facts: &Facts, request: Option<&Request>, reply: &Reply) -> Result<(), String> {
    let ledger = &facts.ledger;
    if topic_of(reply).is_some_and(|topic| facts.traffic.is_dropping(topic)) {
        return Ok(());
    }
    match (reply, request) {
        (Reply::Published { topic, id, at: Some((partition, offset)), .. }, _) => {
            match ledger.event(&topic.stream(*partition), *offset) {
                Some(event) if event.id == *id => Ok(()),
                _ => Err(format!("{topic}/{partition} at {offset} was confirmed as {id} and is not durable")),
            }
        }
        (Reply::Published { topic, id, at: None, .. }, _) => delayed(facts, topic, id),
        (Reply::PublishedBatch { topic, offsets, .. }, _) => {
            let missing =
                offsets.iter().find(|(at, offset)| ledger.event(&topic.stream(*at), *offset).is_none());
            missing.map_or(Ok(()), |at| Err(format!("{topic} at {at:?} was confirmed and is not durable")))
        }
        (Reply::Subscribed { topic, group, .. }, _) => {
            let seat = Seat { topic: topic.clone(), group: group.clone() };
            let known = ledger.groups.contains_key(&seat);
            known.then_some(()).ok_or(format!("{seat} was confirmed and is not durable"))
        }
        (Reply::Topic { topic, .. }, Some(Request::CreateTopic { .. } | Request::PatchTopic { .. })) => {
            let known = ledger.topics.contains_key(&topic.topic);
            known.then_some(()).ok_or(format!("{} was confirmed and is not durable", topic.topic))
        }
        (Reply::Acked, Some(Request::Ack(ack))) => acked(facts, ack),
        _ => Ok(()),
    }
}

fn topic_of(reply: &Reply) -> Option<&TopicKey> {
    match reply {
        Reply::Published { topic, .. }
        | Reply::PublishedBatch { topic, .. }
        | Reply::Subscribed { topic, .. } => Some(topic),
        Reply::Topic { topic, .. } => Some(&topic.topic),
        _ => None,
    }
}

/// A delayed event waits in the table of due events; a confirmed duplicate may be of an event that has moved to the
/// log.
fn delayed(facts: &Facts, topic: &TopicKey, id: &EventId) -> Result<(), String> {
    let waits = |(key, value): (&String, &bytes::Bytes)| {
        DueRow::decode(key, value).is_ok_and(|row| row.topic == topic.as_str() || row.topic == topic.topic())
    };
    let moved = || facts.ledger.ids.contains_key(&(topic.clone(), id.clone()));
    let known = facts.ledger.due.iter().any(waits) || moved();
    known.then_some(()).ok_or(format!("a delayed event for {topic} was confirmed as {id} and is not durable"))
}

fn acked(facts: &Facts, ack: &Ack) -> Result<(), String> {
    let seat = Seat { topic: ack.topic.clone(), group: ack.group.clone() };
    let spot = seat.spot(ack.partition);
    let excused = facts.traffic.is_moving(&seat)
        || facts.traffic.moved.contains(&seat)
        || facts
            .traffic
            .item(&spot, ack.offset)
            .is_none_or(|item| item.sends_this_life == 0 || item.asked_back)
        || ack.offset == Offset::ZERO;
    if excused || is_done(&facts.ledger.cursor(&spot), ack.offset) {
        return Ok(());
    }
    Err(format!("the ack of {} at {} was confirmed and is not durable", spot, ack.offset))
}
