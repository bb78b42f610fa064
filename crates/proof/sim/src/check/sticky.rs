//! Sticky groups: one event of a key is in flight at a time, lower offsets first. All events of a key go to one member
//! as long as that member stays and lets none of them time out.

use std::collections::BTreeMap;

use millrace_bus::{ConnId, Input, ReplyTo, Request};
use millrace_model::{Event, Offset};

use super::Checker;
use crate::facts::{Facts, spot_of};
use crate::ledger::{dropped, is_done};
use crate::place::{Seat, Spot};
use crate::seen::Seen;
use crate::traffic::Acked;

#[derive(Default)]
pub(super) struct Sticky {
    /// The member that was sent the last event of a key, as long as it has not left the group since.
    members: BTreeMap<(Seat, String), KeyMember>,
}

/// The member that a key was sent to last. If the topic has grown, several partitions may hold events of the key.
struct KeyMember {
    conn: ConnId,
    /// Deliveries without an ACK or NACK in time: where, and until when.
    unanswered: Vec<(Spot, Offset, u64)>,
}

impl Checker for Sticky {
    fn name(&self) -> &'static str {
        "keys_in_order"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Delivered { conn, group, event, .. } => {
                let spot = spot_of(group, event);
                if facts.sticky.contains(&spot.seat)
                    && !facts.traffic.moved.contains(&spot.seat)
                    && !facts.traffic.is_moving(&spot.seat)
                {
                    return self.delivered(facts, &spot, *conn, event);
                }
            }
            Seen::Told { input: Input::Close { conn } | Input::Evict { conn } } => {
                self.members.retain(|_, member| member.conn != *conn);
            }
            Seen::Told { input: Input::Request { to, request: Request::Ack(ack), .. } } => {
                let seat = Seat { topic: ack.topic.clone(), group: ack.group.clone() };
                self.answered(facts, *to, &seat.spot(ack.partition), ack.offset);
            }
            Seen::Told { input: Input::Request { to, request: Request::Nack(nack), .. } } => {
                let seat = Seat { topic: nack.topic.clone(), group: nack.group.clone() };
                self.answered(facts, *to, &seat.spot(nack.partition), nack.offset);
            }
            Seen::Told {
                input: Input::Request { to, request: Request::Unsubscribe { topic, group }, .. },
            } => {
                let seat = Seat { topic: topic.clone(), group: group.clone() };
                self.members.retain(|(at, _), member| *at != seat || !is_of(*to, member.conn));
            }
            Seen::Wanted { batch } => {
                for topic in dropped(batch) {
                    self.members.retain(|(seat, _), _| seat.topic != *topic);
                }
            }
            Seen::Ended { .. } => self.members.clear(),
            _ => {}
        }
        Ok(())
    }
}

fn is_of(to: ReplyTo, conn: ConnId) -> bool {
    matches!(to, ReplyTo::Conn { conn: of, .. } if of == conn)
}

impl Sticky {
    fn answered(&mut self, facts: &Facts, to: ReplyTo, spot: &Spot, offset: Offset) {
        for ((seat, _), member) in &mut self.members {
            if *seat == spot.seat && is_of(to, member.conn) {
                let in_time = |until_ms: u64| facts.now_ms < until_ms;
                member
                    .unanswered
                    .retain(|(at, sent, until_ms)| at != spot || *sent != offset || !in_time(*until_ms));
            }
        }
    }

    fn delivered(&mut self, facts: &Facts, spot: &Spot, conn: ConnId, event: &Event) -> Result<(), String> {
        let Some(key) = event.body.key.as_deref() else { return Ok(()) };
        let offset = event.offset;
        for (other, item) in facts.traffic.items.get(spot).into_iter().flatten() {
            if *other != offset
                && item.surely_held(facts.now_ms).is_some()
                && key_at(facts, spot, *other) == Some(key)
            {
                return Err(format!("{spot} sent {offset} of key {key} while {other} of it is in flight"));
            }
        }
        if let Some(lower) = unfinished_below(facts, spot, offset, key) {
            return Err(format!("{spot} sent {offset} of key {key} before {lower} of it was finished"));
        }
        let remembered = facts.limits.sticky_keys_max > KEYS_IN_USE_MAX;
        let until_ms = facts.now_ms + facts.ack_timeout_ms(&spot.seat.topic);
        let sent = (spot.clone(), offset, until_ms);
        let new = || KeyMember { conn, unanswered: Vec::new() };
        let member = self.members.entry((spot.seat.clone(), key.to_owned())).or_insert_with(new);
        let timed_out = member.unanswered.iter().any(|(_, _, until_ms)| *until_ms <= facts.now_ms);
        if member.conn != conn {
            if remembered && !timed_out {
                let before = member.conn;
                return Err(format!(
                    "{spot} sent {offset} of key {key} to {conn:?}, its member is {before:?}"
                ));
            }
            *member = new();
        }
        member.unanswered.push(sent);
        Ok(())
    }
}

/// More keys than the workload ever has, over all groups. An engine with a lower limit may forget keys and give them
/// another member.
const KEYS_IN_USE_MAX: usize = 1000;

fn key_at<'a>(facts: &'a Facts, spot: &Spot, offset: Offset) -> Option<&'a str> {
    facts.ledger.event(&spot.stream(), offset)?.body.key.as_deref()
}

fn unfinished_below(facts: &Facts, spot: &Spot, offset: Offset, key: &str) -> Option<Offset> {
    let (row, stream) = (facts.ledger.cursor(spot), spot.stream());
    let (start, _) = facts.ledger.bounds(&stream);
    let first = start.0.max(row.committed.0 + 1);
    (first..offset.0).map(Offset).find(|lower| {
        let item = facts.traffic.item(spot, *lower).cloned().unwrap_or_default();
        // An event that may have used up its attempts may be about to become a dead letter.
        let maybe_given_up = item.sends >= facts.attempts_max(&spot.seat.topic)
            || facts.ledger.durable_attempts(spot, *lower) >= facts.attempts_max(&spot.seat.topic);
        key_at(facts, spot, *lower) == Some(key)
            && item.acked == Acked::No
            && !maybe_given_up
            && !is_done(&row, *lower)
            && !facts.may_be_filtered(&spot.seat, facts.ledger.event(&stream, *lower))
    })
}
