//! A delayed event appears once and never early; a delayed event that was confirmed appears in the end.

use std::collections::BTreeMap;

use millrace_bus::{Input, Reply, Request};
use millrace_model::{DeliverAt, Durability, Op, Outcome, Timestamp, TopicKey};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::dropped;
use crate::payload::number;
use crate::seen::Seen;

/// How late a delayed event may appear while its server lives: reads may fail and commits may be slow.
const LATE_MS_MAX: u64 = 20_000;

/// The earliest moment at which an event may appear.
#[derive(Clone, Copy)]
enum Due {
    /// A time of the wall clock.
    Wall(u64),
    /// A time of the world, valid while the server with number `life` runs: only the wall clock knows how long a server
    /// was away. `last_ms` is the due time of the last request for the same event.
    World { at_ms: u64, last_ms: u64, life: u64 },
}

#[derive(Default)]
pub(super) struct Delayed {
    /// When an event may appear, by the event's number.
    due: BTreeMap<u64, Due>,
    /// The promise of an event's confirmation, by the event's number. Another checker sees that no event appears twice.
    confirmed: BTreeMap<u64, (TopicKey, Durability)>,
}

impl Checker for Delayed {
    fn name(&self) -> &'static str {
        "delayed_on_time"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Told { input: Input::Request { request: Request::Publish(publish), .. } } => {
                let due = match publish.deliver_at {
                    Some(DeliverAt::AfterMs(ms)) => {
                        let at_ms = facts.now_ms + ms;
                        Due::World { at_ms, last_ms: at_ms, life: facts.life }
                    }
                    Some(DeliverAt::At(at)) => Due::Wall(at.0),
                    None => return Ok(()),
                };
                if let Some(number) = number(&publish.event.body) {
                    // The same event may be published again after a reconnect; either of the two requests may be the
                    // one that is stored.
                    let known = self.due.entry(number).or_insert(due);
                    if let (Due::World { last_ms, .. }, Due::World { at_ms, .. }) = (known, due) {
                        *last_ms = at_ms;
                    }
                }
                Ok(())
            }
            Seen::Durable { batch, outcome: Outcome::Done(_), .. } => {
                for topic in dropped(batch) {
                    self.confirmed.retain(|_, (of, _)| of != topic);
                }
                for op in &batch.ops {
                    let Op::Append(append) = op else { continue };
                    // Dead letters are copies of older events; the wall clock may have stepped back since those
                    // appeared.
                    if append.stream.topic.is_dead_letter() || append.stream.topic.is_system() {
                        continue;
                    }
                    let due = number(&append.event.body).and_then(|number| self.due.get(&number));
                    if let Some(wrong) = due.and_then(|due| due.wrong(facts, batch.now)) {
                        return Err(format!("{:?} appeared {wrong}", append.event.body));
                    }
                }
                Ok(())
            }
            Seen::Answered { to, reply: Reply::Published { topic, due: Some(_), durability, .. } } => {
                let asked = facts.traffic.asked.get(to).filter(|_| !facts.traffic.is_dropping(topic));
                if let Some(Request::Publish(publish)) = asked
                    && let Some(number) = number(&publish.event.body)
                {
                    self.confirmed.insert(number, (topic.clone(), *durability));
                }
                Ok(())
            }
            Seen::Ended { ending } => {
                self.confirmed.retain(|_, (_, durability)| *durability >= ending.survives());
                Ok(())
            }
            Seen::End { .. } => self.all_appeared(facts),
            _ => Ok(()),
        }
    }
}

impl Due {
    fn wrong(self, facts: &Facts, now: Timestamp) -> Option<String> {
        match self {
            Due::Wall(at_ms) => (now.0 < at_ms).then(|| format!("{} ms early", at_ms - now.0)),
            Due::World { life, .. } if life != facts.life => None,
            Due::World { at_ms, .. } if facts.now_ms < at_ms => {
                Some(format!("{} ms early", at_ms - facts.now_ms))
            }
            Due::World { last_ms, .. } => {
                let late_ms = facts.now_ms.saturating_sub(last_ms);
                (late_ms > LATE_MS_MAX).then(|| format!("{late_ms} ms late"))
            }
        }
    }
}

impl Delayed {
    fn all_appeared(&self, facts: &Facts) -> Result<(), String> {
        let logs = facts.ledger.logs.values();
        let stored: Vec<u64> =
            logs.flat_map(|log| log.events.values()).filter_map(|event| number(&event.body)).collect();
        match self.confirmed.keys().find(|number| !stored.contains(number)) {
            Some(number) => Err(format!("the delayed event {number} was confirmed and never appeared")),
            None => Ok(()),
        }
    }
}
