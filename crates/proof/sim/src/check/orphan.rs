//! Nothing exists without its topic: events go to partitions that the topic durably has, and no stream, group, cursor
//! or attempt count outlives it.

use std::collections::BTreeMap;

use millrace_model::{Batch, Op, Outcome, Space, TopicRow};

use super::Checker;
use crate::facts::Facts;
use crate::seen::Seen;

pub(super) struct Orphans;

impl Checker for Orphans {
    fn name(&self) -> &'static str {
        "no_orphans"
    }

    fn see(&mut self, facts: &Facts, seen: &Seen<'_>) -> Result<(), String> {
        match seen {
            Seen::Durable { batch, outcome: Outcome::Done(_) } => appended(facts, batch),
            Seen::Opened { .. } | Seen::End { .. } => left_behind(facts),
            _ => Ok(()),
        }
    }
}

fn appended(facts: &Facts, batch: &Batch) -> Result<(), String> {
    let mut made: BTreeMap<&str, u32> = BTreeMap::new();
    for op in &batch.ops {
        match op {
            Op::Put { space: Space::Topics, key, value } => {
                made.insert(key, TopicRow::decode(key, value).map_or(0, |row| row.config.partitions));
            }
            Op::Append(append) => {
                let known = facts.ledger.topics.get(&append.stream.topic).map(|config| config.partitions);
                let partitions = made.get(append.stream.topic.as_str()).copied().or(known).unwrap_or(0);
                if append.stream.partition.0 >= partitions {
                    return Err(format!("an event went to {}, the topic has {partitions}", append.stream));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn left_behind(facts: &Facts) -> Result<(), String> {
    let ledger = &facts.ledger;
    let owned = (ledger.logs.keys().map(|stream| (&stream.topic, "a stream")))
        .chain(ledger.groups.keys().map(|seat| (&seat.topic, "a group")))
        .chain(ledger.cursors.keys().map(|spot| (&spot.seat.topic, "a cursor")))
        .chain(ledger.tries.keys().map(|(spot, _)| (&spot.seat.topic, "a try")));
    let mut orphans = owned.filter(|(topic, _)| !ledger.topics.contains_key(*topic));
    orphans
        .next()
        .map_or(Ok(()), |(topic, what)| Err(format!("{what} of {topic} is left, the topic is gone")))
}
