//! A delayed event appears once and never early; one that was confirmed appears in the end.

use std::collections::BTreeMap;

use millrace_bus::{Input, Reply, Request};
use millrace_model::{DeliverAt, Durability, Op, Outcome, TopicKey};

use super::Checker;
use crate::facts::Facts;
use crate::ledger::dropped;
use crate::payload::number;
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Delayed {
    /// By number: the earliest moment of the wall clock at which it may appear.
    due_ms: BTreeMap<u64, u64>,
    /// By number: what its confirmation promised. That it appears at most once is checked for all events alike.
    confirmed: BTreeMap<u64, (TopicKey, Durability)>,
}

impl Checker for Delayed {
    fn name(&self) -> &'static str {
        "delayed_on_time"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Told { input: Input::Request { request: Request::Publish(publish), .. } } => {
                let due_ms = match publish.deliver_at {
                    Some(DeliverAt::AfterMs(ms)) => facts.now.wall.0 + ms,
                    Some(DeliverAt::At(at)) => at.0,
                    None => return Ok(()),
                };
                if let Some(number) = number(&publish.event.body) {
                    // The same event may be asked for again after a reconnect; which of the two is stored is open.
                    let earliest_ms = self.due_ms.entry(number).or_insert(due_ms);
                    *earliest_ms = (*earliest_ms).min(due_ms);
                }
                Ok(())
            }
            Seen::Durable { batch, outcome: Outcome::Done(_), .. } => {
                for topic in dropped(batch) {
                    self.confirmed.retain(|_, (of, _)| of != topic);
                }
                for op in &batch.ops {
                    let Op::Append(append) = op else { continue };
                    // Copies of what has long been there; the wall clock may have stepped back since.
                    if append.stream.topic.is_dead_letter() || append.stream.topic.is_system() {
                        continue;
                    }
                    let due_ms = number(&append.event.body).and_then(|number| self.due_ms.get(&number));
                    if let Some(due_ms) = due_ms.filter(|due_ms| batch.now.0 < **due_ms) {
                        return Err(format!(
                            "{:?} appeared {} ms early",
                            append.event.body,
                            due_ms - batch.now.0
                        ));
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
