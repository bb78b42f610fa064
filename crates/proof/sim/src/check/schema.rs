//! Every event that joins a topic matches the schema in force. A schema that was not forced comes into force only if it
//! accepts every event that the engine ever put into the topic or holds back for later. Both are judged when the engine
//! decides, by this file's own arithmetic on the events' numbers.

use std::collections::{BTreeMap, BTreeSet};

use millrace_model::{Check, EventBody, JsonText, Op, Space, TopicKey, TopicRow, TopicSchemaRow};

use super::Checker;
use crate::facts::Facts;
use crate::payload::{forbidden_factor, number};
use crate::seen::Seen;

#[derive(Default)]
pub(super) struct Schemas {
    /// The factor that the numbers of a topic's events must not have.
    in_force: BTreeMap<TopicKey, u64>,
    /// Numbers of the events that the engine put into each topic; events of other processes are not checked.
    joined: BTreeMap<TopicKey, BTreeSet<u64>>,
    of_others: BTreeSet<u64>,
}

impl Checker for Schemas {
    fn name(&self) -> &'static str {
        "schema_kept"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Wanted { batch } => {
                let due = batch.ops.iter().any(|op| matches!(op, Op::Delete { space: Space::Due, .. }));
                // Events whose id is already taken are not stored.
                let resent = |op: &&Op| {
                    batch.checks.iter().any(|check| match (check, op) {
                        (Check::IdTaken(taken), Op::Append(append)) => {
                            append.event.id.as_ref() == Some(&taken.id)
                        }
                        (Check::IdTaken(taken), Op::Delay(delay)) => delay.id == taken.id,
                        _ => false,
                    })
                };
                batch.ops.iter().filter(|op| !resent(op)).try_for_each(|op| self.wanted(facts, op, due))
            }
            Seen::Neighbour { batch } => {
                let numbers = batch.ops.iter().filter_map(|op| match op {
                    Op::Append(append) => number(&append.event.body),
                    _ => None,
                });
                self.of_others.extend(numbers);
                Ok(())
            }
            Seen::Ended { .. } => {
                self.start_over(facts);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Schemas {
    /// `due`: the batch moves delayed events, which were accepted long ago.
    fn wanted(&mut self, facts: &Facts, op: &Op, due: bool) -> Result<(), String> {
        match op {
            Op::Put { space: Space::Topics, key, value } => {
                let (Ok(topic), Ok(row)) = (TopicKey::parse(key), TopicRow::decode(key, value)) else {
                    return Ok(());
                };
                match row.config.schema.as_deref().and_then(forbidden_factor) {
                    Some(factor) => self.in_force.insert(topic, factor),
                    None => self.in_force.remove(&topic),
                };
            }
            Op::Put { space: Space::Kv, key, value } => {
                let Some(topic) = versions_of(key) else { return Ok(()) };
                let row = TopicSchemaRow::decode(key, value).map_err(|error| error.to_string())?;
                if let Some(factor) = forbidden_factor(&row.schema).filter(|_| !row.forced) {
                    return self.nothing_broken(facts, &topic, factor, row.version);
                }
            }
            Op::Append(append) => {
                let topic = &append.stream.topic;
                let Some(number) = number(&append.event.body).filter(|_| !topic.is_dead_letter()) else {
                    return Ok(());
                };
                // A delayed event has joined when it was accepted. Its move is conditional, and refused if the topic
                // was deleted and made anew since.
                if due {
                    return Ok(());
                }
                self.joined.entry(topic.clone()).or_default().insert(number);
                return self.matches(topic, number);
            }
            Op::Delay(delay) => {
                let body = EventBody::of(JsonText::from_stored(delay.row.payload.clone().into()));
                let Some(number) = number(&body) else { return Ok(()) };
                self.joined.entry(delay.topic.clone()).or_default().insert(number);
                return self.matches(&delay.topic, number);
            }
            Op::Drop { topic } => {
                self.in_force.remove(topic);
                self.joined.remove(topic);
            }
            _ => {}
        }
        Ok(())
    }

    fn matches(&self, topic: &TopicKey, number: u64) -> Result<(), String> {
        match self.in_force.get(topic) {
            Some(factor) if number.is_multiple_of(*factor) => Err(format!(
                "event {number} was accepted by {topic}, whose schema forbids multiples of {factor}"
            )),
            _ => Ok(()),
        }
    }

    fn nothing_broken(
        &self,
        facts: &Facts,
        topic: &TopicKey,
        factor: u64,
        version: u32,
    ) -> Result<(), String> {
        let logs = facts.ledger.logs.iter().filter(|(stream, _)| stream.topic == *topic);
        let gone: BTreeSet<u64> = logs
            .flat_map(|(_, log)| log.events.range(..log.start))
            .filter_map(|(_, event)| number(&event.body))
            .collect();
        let joined = self.joined.get(topic).into_iter().flatten();
        match joined.filter(|number| !gone.contains(number)).find(|number| number.is_multiple_of(factor)) {
            None => Ok(()),
            Some(number) => Err(format!(
                "version {version} of the schema of {topic} forbids multiples of {factor} and was not forced, but event {number} is there"
            )),
        }
    }

    fn start_over(&mut self, facts: &Facts) {
        let factor = |(topic, config): (&TopicKey, &millrace_model::TopicConfig)| {
            Some((topic.clone(), config.schema.as_deref().and_then(forbidden_factor)?))
        };
        self.in_force = facts.ledger.topics.iter().filter_map(factor).collect();
        self.joined.clear();
        for (stream, log) in &facts.ledger.logs {
            let numbers = log.events.values().filter_map(|event| number(&event.body));
            let of_engine = numbers.filter(|number| !self.of_others.contains(number));
            self.joined.entry(stream.topic.clone()).or_default().extend(of_engine);
        }
    }
}

/// The topic in the key of a schema version.
fn versions_of(key: &str) -> Option<TopicKey> {
    let (rest, _version) = key.strip_prefix("schema/")?.rsplit_once('/')?;
    let (topic, _made) = rest.rsplit_once('/')?;
    TopicKey::parse(topic).ok()
}
